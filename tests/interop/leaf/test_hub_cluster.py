"""A hub that is a cluster of three real nats-servers with replicated mirrors: its servers stop one after the other, leaders change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from support.links.leaf_pair import ACCOUNTS
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import free_port

SERVER = """
server_name: NAME
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
cluster { name: HUBS, listen: "127.0.0.1:ROUTE", routes: [ROUTES] }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""
LEAF = """
server_name: leaf-server
jetstream { store_dir: "%WORKDIR%/store", domain: leaf }
leafnodes { reconnect: 1, remotes = [ { urls: [URLS], account: ACC } ] }
"""
BATCH = 300


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[dict[str, NatsServer]]:
    routes = [free_port() for _ in range(3)]
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    made = {}
    for number, route in enumerate(routes, 1):
        config = SERVER.replace("NAME", f"h{number}").replace("ROUTES", urls).replace("ROUTE", str(route))
        made[f"h{number}"] = NatsServer(config + ACCOUNTS, tmp_path / f"h{number}")
    for one in made.values():
        one.start()
    yield made
    for one in made.values():
        one.kill()


@pytest.fixture
def leaf(hubs: dict[str, NatsServer], tmp_path: Path) -> Iterator[Eyotd]:
    urls = ", ".join(f'"{hub.leaf_url("acc")}"' for hub in hubs.values())
    with Eyotd(LEAF.replace("URLS", urls) + ACCOUNTS, tmp_path / "leaf") as server:
        yield server


async def _within(seconds: float, attempt: Any) -> Any:
    """What `attempt()` returns, as soon as it does and is true; a cluster that elects refuses much."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := await attempt():
                return found
        except NatsError as problem:
            found = problem
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


async def _publish(leaf: Client, done: int) -> int:
    js = leaf.jetstream(timeout=10)
    sent = [await js.publish_async("r.x", b"%d" % (done + number)) for number in range(BATCH)]
    await asyncio.gather(*sent)
    return done + BATCH


async def _payloads(hub: Client, stream: str, count: int) -> list[int]:
    js = hub.jetstream(timeout=5)
    sub = await _within(30, lambda: js.subscribe("", stream=stream, ordered_consumer=True))
    found = [int((await sub.next_msg(timeout=10)).data) for _ in range(count)]
    await sub.unsubscribe()
    return found


def test_servers_of_the_hub_stop_one_after_the_other(hubs: dict[str, NatsServer], leaf: Eyotd) -> None:
    asyncio.run(_play(hubs, leaf))


async def _play(hubs: dict[str, NatsServer], leaf: Eyotd) -> None:
    at_leaf = await nats.connect(leaf.client_url("acc"))
    await at_leaf.jetstream().add_stream(name="R", subjects=["r.>"])
    origin = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
    hub = await nats.connect(
        [one.client_url("acc") for one in hubs.values()], max_reconnect_attempts=-1, reconnect_time_wait=0.1
    )
    js = hub.jetstream(timeout=3)
    for config in (
        StreamConfig(name="ALL", num_replicas=3, sources=[origin]),
        StreamConfig(name="MIR", num_replicas=3, mirror=origin),
    ):
        await _within(30, lambda config=config: js.add_stream(config))
    sent = await _publish(at_leaf, 0)

    async def holds() -> bool:
        states = [(await js.stream_info(name)).state for name in ("ALL", "MIR")]
        return all(state.messages >= sent for state in states)

    await _within(30, holds)
    for _ in range(2):
        (linked,) = leaf.monitor("/leafz")["leafs"]
        hubs[linked["name"]].stop()
        sent = await _publish(at_leaf, sent)
        await _within(40, holds)
        hubs[linked["name"]].start()

    async def synced() -> bool:
        return bool(leaf.monitor("/eyot/syncz")["synced"])

    await _within(20, synced)
    status = leaf.monitor("/eyot/syncz")["out"]
    assert [(one["peer"], one["kind"], one["linked"], one["confirmed_seq"]) for one in status] == [
        ("HUBS", "mirror", True, sent),
        ("HUBS", "source", True, sent),
    ]
    for name in ("ALL", "MIR"):
        assert await _payloads(hub, name, sent) == list(range(sent))
        assert (await _within(30, lambda name=name: js.stream_info(name))).state.messages == sent
    await hub.close()
    await at_leaf.close()
