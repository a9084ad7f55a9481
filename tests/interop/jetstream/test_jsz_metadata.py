"""The metadata of configurations on `/jsz`, of eyotd and of a real nats-server: as it is stored, unlike in the API's answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer


@pytest.mark.parametrize("kind", [NewerNatsServer, Eyotd])
def test_what_the_server_adds_is_in_answers_only(kind: type[NewerNatsServer | Eyotd], tmp_path: Path) -> None:
    async def make(url: str) -> None:
        client = await nats.connect(url)
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s"], metadata={"a": "b"}))
        await js.add_consumer("S", ConsumerConfig(durable_name="C", ack_policy="explicit", metadata={"c": "d"}))
        told = await js.stream_info("S")
        assert set(told.config.metadata or {}) == {"a", "_nats.req.level", "_nats.ver", "_nats.level"}
        await client.close()

    with kind('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path) as server:
        asyncio.run(make(server.client_url()))
        page = server.monitor("/jsz?accounts=1&streams=1&consumers=1&config=1")
    stream = page["account_details"][0]["stream_detail"][0]
    assert set(stream["config"]["metadata"]) == {"a", "_nats.req.level"}
    assert set(stream["consumer_detail"][0]["config"]["metadata"]) == {"c", "_nats.req.level"}
