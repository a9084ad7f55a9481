"""MQTT on a disk that is full: publishers get a reason code or lose their connection, what is queued can be fetched, and what was
acknowledged is there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import Closed, RawMqtt
from support.store.bad_disk import FullDiskEyotd, SmallDiskEyotd, disk_library

CONFIG = """
server_name: full
jetstream { store_dir: "%WORKDIR%/small/js", max_buffered_size: 4M }
mqtt { listen: "127.0.0.1:%LEAF_PORT%", ack_wait: "60s" }
eyot { mqtt { packet3_refusal_pause: "200ms" } }
"""
QUOTA = 0x97
EXPIRY = Properties(session_expiry_interval=3600)
PUBLISHES_MAX = 4000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disk_library(tmp_path_factory.mktemp("disk"))


def connected(server: SmallDiskEyotd, client_id: str, level: int = 5, *, clean: bool = True) -> RawMqtt:
    client = RawMqtt(server.leaf_port, level=level)
    props = EXPIRY if level == 5 and not clean else None
    assert client.connect(client_id, clean=clean, props=props).reason == 0
    return client


def publish_until_refused(client: RawMqtt, topic: str, payload: bytes, **how: Any) -> list[int]:
    """Publish until that is refused with 0x97; the numbers of those that were acknowledged."""
    acked = []
    for number in range(PUBLISHES_MAX):
        reason = client.publish_acked(topic, b"%d " % number + payload, **how)
        if reason >= 0x80:
            assert reason == QUOTA
            return acked
        acked.append(number)
    raise AssertionError("it was never full")


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(payload.split(b" ")[0]) for payload in payloads]


async def add_stream(server: SmallDiskEyotd) -> None:
    client = await nats.connect(server.client_url())
    await client.jetstream(timeout=10).add_stream(StreamConfig(name="S", subjects=["s.>"]))
    await client.close()


async def stored(server: SmallDiskEyotd) -> list[bytes]:
    client = await nats.connect(server.client_url())
    js = client.jetstream(timeout=10)
    state = (await js.stream_info("S")).state
    found = [(await js.get_msg("S", seq)).data or b"" for seq in range(state.first_seq, state.last_seq + 1)]
    await client.close()
    return found


@pytest.mark.parametrize("kind", [SmallDiskEyotd, FullDiskEyotd])
def test_a_full_disk(library: Path, tmp_path: Path, kind: type[SmallDiskEyotd]) -> None:
    kind.library = library
    with kind(CONFIG, tmp_path) as server:
        asyncio.run(add_stream(server))
        reader = connected(server, "reader", clean=False)
        assert reader.subscribe("queued/#", qos=1).codes == [1]
        reader.disconnect()
        writer = connected(server, "writer")
        queued = [number for number in range(20) if writer.publish_acked("queued/a", b"%d " % number) < 0x80]
        assert queued == list(range(20))
        server.fill()
        acked = publish_until_refused(writer, "s/a", bytes(20_000))
        # Everything that needs room is refused, each with its own answer, and the connection stays.
        assert writer.publish_acked("s/a", bytes(20_000), qos=2) == QUOTA
        assert writer.publish_acked("queued/a", b"-1 " + bytes(20_000)) == QUOTA
        assert writer.publish_acked("kept/a", bytes(20_000), retain=True) == QUOTA
        assert writer.publish_acked("nobody/a", bytes(20_000)) < 0x80, "what is not stored needs no room"
        _refuses_3_1_1(server)
        # What was queued can be fetched and acknowledged.
        reader = connected(server, "reader", clean=False)
        assert numbers([reader.message().payload for _ in queued]) == queued
        assert reader.is_quiet()
        reader.disconnect()
        server.make_room()
        while writer.publish_acked("s/a", b"%d " % (acked[-1] + 1)) >= 0x80:
            pass  # the store looks for room now and then
        acked.append(acked[-1] + 1)
        if kind is FullDiskEyotd:  # the other's file system goes with its mount
            server.kill()
            server.start()
        reader = connected(server, "reader", clean=False)
        assert reader.is_quiet(), "acknowledged messages are not sent again"
        reader.disconnect()
        assert numbers(asyncio.run(stored(server))) == acked


def _refuses_3_1_1(server: SmallDiskEyotd) -> None:
    """A publish of 3.1.1 cannot be refused: it is not answered, and the connection ends."""
    with connected(server, "old", level=4) as client:
        client.publish("s/a", bytes(20_000), qos=1)
        with pytest.raises(Closed):
            client.packet()
