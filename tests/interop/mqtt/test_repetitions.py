"""Publishes of QoS 1 that come again (DUP), into streams that ask to have such a one once, and into others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
from nats.js.api import StreamConfig

from eyot_wire.mqtt import encoder
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
server_name: mqtt
jetstream { store_dir: "%WORKDIR%/js" }
mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
"""


async def _make(server: Eyotd) -> None:
    nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
    js = nc.jetstream()
    await js.add_stream(StreamConfig("ONCE", subjects=["once.>"], metadata={"eyot.mqtt_duplicates": "drop"}))
    await js.add_stream(StreamConfig("TWICE", subjects=["twice.>"]))
    await js.add_stream(
        StreamConfig("SHORT", subjects=["short.>"], duplicate_window=0.1, metadata={"eyot.mqtt_duplicates": "drop"})
    )
    await nc.close()


async def _stored(server: Eyotd, stream: str) -> list[str]:
    nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
    js = nc.jetstream()
    last = (await js.stream_info(stream)).state.last_seq
    found = [(await js.get_msg(stream, seq)).data for seq in range(1, last + 1)]
    await nc.close()
    return [(each or b"").decode() for each in found]


def _send(server: Eyotd, *publishes: tuple[str, bytes, int, bool], client_id: str = "sensor", level: int = 4) -> None:
    """Publish (topic, payload, packet id, DUP) on one connection, and wait for the PUBACK of each."""
    with RawMqtt(server.leaf_port, level=level) as mqtt:
        assert mqtt.connect(client_id, clean=False).reason == 0
        for topic, payload, packet_id, dup in publishes:
            mqtt.publish(topic, payload, qos=1, packet_id=packet_id, dup=dup)
            got = mqtt.packet()
            assert (got.packet_id, got.reason) == (packet_id, 0)


def _window(server: Eyotd) -> None:
    """A window of publishes in one write, and all of them again behind it, before any has its PUBACK."""
    with RawMqtt(server.leaf_port) as mqtt:
        assert mqtt.connect("sensor", clean=False).reason == 0
        for dup in (False, True):
            packets = [encoder.publish(4, "once/w", b"%d" % n, qos=1, packet_id=n, dup=dup) for n in range(1, 101)]
            mqtt.send(b"".join(packets))
        assert sorted(mqtt.packet().packet_id for _ in range(200)) == sorted([*range(1, 101)] * 2)


def test_a_repeated_publish_is_stored_once_where_a_stream_asks(tmp_path: Path) -> None:
    """Also after a kill. Without DUP, with another identifier, of another client or on another topic it is a new message."""
    with Eyotd(CONFIG, tmp_path) as server:
        asyncio.run(_make(server))
        for topic in ("once/a", "twice/a", "short/a"):
            _send(server, (topic, b"a", 7, False), (topic, b"a", 7, True))
        _send(server, ("once/5", b"5", 7, False), ("once/5", b"5", 7, True), client_id="v5", level=5)
        _send(server, ("once/t", b"21.5", 1, False), ("once/t", b"21.5", 1, False), ("once/t", b"21.5", 1, True))
        once = ["a", "5", "21.5", "21.5"]
        assert asyncio.run(_stored(server, "ONCE")) == once
        _window(server)
        once += [str(n) for n in range(1, 101)]
        assert asyncio.run(_stored(server, "ONCE")) == once
        server.kill()
        server.start()
        for topic in ("once/a", "twice/a", "short/a"):
            _send(server, (topic, b"a", 7, True))
        _send(server, ("once/5", b"5", 7, True), client_id="v5", level=5)
        assert asyncio.run(_stored(server, "TWICE")) == ["a", "a", "a"]
        assert asyncio.run(_stored(server, "SHORT")) == ["a", "a"], "the window was over"
        _send(server, ("once/t", b"21.5", 1, True), ("once/t", b"21.5", 1, False), ("once/t", b"21.5", 1, True))
        assert asyncio.run(_stored(server, "ONCE")) == [*once, "21.5"]
        _send(server, ("once/t", b"21.5", 2, True), ("once/u", b"21.5", 1, True), ("once/t", b"21.6", 1, True))
        _send(server, ("once/t", b"21.5", 1, True), client_id="another")
        assert asyncio.run(_stored(server, "ONCE")) == [*once, "21.5", "21.5", "21.5", "21.6", "21.5"]
