"""Where streams have a message, as user properties of MQTT 5, for subscriptions that ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import Got, RawMqtt
from support.servers.eyotd import Eyotd

CONFIG = """
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
"""
ASKED = Properties(user_properties=[("Eyot-Stream-Context", "1")])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path) as made:

        async def prepare(nc: Any) -> None:
            js = nc.jetstream()
            await js.add_stream(name="PLANT", subjects=["plant.>"])
            for number in range(5):
                await js.publish("plant.before", b"%d" % number)

        with_nats(made, prepare)
        yield made


def with_nats(server: Eyotd, play: Any) -> Any:
    async def run() -> Any:
        nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
        try:
            return await play(nc)
        finally:
            await nc.close()

    return asyncio.run(run())


def client(server: Eyotd, client_id: str = "", **more: Any) -> RawMqtt:
    made = RawMqtt(server.leaf_port, level=5)
    assert made.connect(client_id, **more).reason == 0
    return made


def context(got: Got) -> tuple[str, str] | None:
    """Stream and sequence of a message; the time is checked."""
    found = dict(got.properties.user_properties)
    if "Nats-Stream" not in found:
        return None
    assert found["Nats-Time-Stamp"].endswith("Z")
    assert [name for name, _ in got.properties.user_properties].count("Nats-Stream") == 1
    return found["Nats-Stream"], found["Nats-Sequence"]


def test_every_way_to_a_stream(server: Eyotd) -> None:
    with client(server) as asks, client(server) as does_not, client(server) as one:
        assert asks.subscribe("plant/#", "other", qos=2, props=ASKED).codes == [2, 2]
        does_not.subscribe("plant/#", qos=1)
        for qos in (0, 1, 2):
            one.publish_acked("plant/a", b"same", qos=qos)
        with_nats(server, lambda nc: nc.jetstream().publish("plant.a", b"same", headers={"Unit": "C"}))
        got = [asks.message() for _ in range(4)]
        assert [context(each) for each in got] == [("PLANT", str(seq)) for seq in (6, 7, 8, 9)]
        assert [each.qos for each in got] == [0, 1, 2, 0]
        assert ("Unit", "C") in got[3].properties.user_properties
        assert [context(does_not.message()) for _ in range(4)] == [None] * 4
        # Nobody stores this one: it comes at once, and says nothing of streams.
        one.publish_acked("other", b"x", qos=1)
        got_other = asks.message()
        assert (got_other.topic, context(got_other)) == ("other", None)


def test_many_in_one_read(server: Eyotd) -> None:
    """In order, each with its own sequence, though payloads repeat."""
    with client(server) as asks, client(server) as one:
        asks.subscribe("plant/#", qos=1, props=ASKED)
        for number in range(300):
            one.publish(f"plant/{number % 3}", b"%d" % (number % 2), qos=0)
        one.ping()
        got = [asks.message() for _ in range(300)]
        assert [(each.topic, each.payload) for each in got] == [
            (f"plant/{number % 3}", b"%d" % (number % 2)) for number in range(300)
        ]
        assert [context(each) for each in got] == [("PLANT", str(6 + number)) for number in range(300)]


def test_what_a_stream_does_not_store_has_no_context(server: Eyotd) -> None:
    async def twice(nc: Any) -> None:
        for _ in range(2):
            await nc.jetstream().publish("plant.a", b"1", headers={"Nats-Msg-Id": "1"})

    with client(server) as asks:
        asks.subscribe("plant/#", props=ASKED)
        with_nats(server, twice)
        assert [context(asks.message()) for _ in range(2)] == [("PLANT", "6"), None]


def test_nobody_forges_it(server: Eyotd) -> None:
    forged = [("Nats-Stream", "BANK"), ("Nats-Sequence", "1"), ("Nats-Time-Stamp", "x"), ("a", "b")]
    with client(server) as asks, client(server) as one:
        asks.subscribe("plant/a", "free", qos=1, props=ASKED)
        for topic, found in (("plant/a", ("PLANT", "6")), ("free", None)):
            one.publish_acked(topic, b"x", qos=1, props=Properties(user_properties=forged))
            got = asks.message()
            assert context(got) == found
            assert ("a", "b") in got.properties.user_properties


def test_a_session_that_was_away(server: Eyotd) -> None:
    lasting = {"clean": False, "props": Properties(session_expiry_interval=600)}
    with client(server, "panel", **lasting) as panel:
        panel.subscribe("plant/#", "$share/g/plant/shared", qos=1, props=ASKED)
        panel.disconnect()
    with client(server) as one:
        for number in range(3):
            one.publish_acked(f"plant/{number}", b"same", qos=1)
    server.kill()
    server.start()
    with client(server, "panel", **lasting) as panel:
        assert [context(panel.message()) for _ in range(3)] == [("PLANT", str(seq)) for seq in (6, 7, 8)]


def test_deliveries_and_republished_messages_bring_theirs(server: Eyotd) -> None:
    async def prepare(nc: Any) -> None:
        config = nats.js.api.ConsumerConfig(durable_name="D", deliver_subject="to.device", ack_policy="none")
        await nc.jetstream().add_consumer("PLANT", config)
        republish = nats.js.api.RePublish(src="copied.>", dest="again.>")
        await nc.jetstream().add_stream(name="COPIED", subjects=["copied.>"], republish=republish)

    with client(server) as asks:
        asks.subscribe("to/device", "again/#", props=ASKED)
        with_nats(server, prepare)
        assert [context(asks.message()) for _ in range(5)] == [("PLANT", str(seq)) for seq in range(1, 6)]
        with_nats(server, lambda nc: nc.jetstream().publish("copied.x", b"1"))
        got = asks.message()
        assert (got.topic, context(got)) == ("again/x", ("COPIED", "1"))
