"""Overlapping filters: a client of MQTT 5 gets a message once, with the identifiers of all of them [MQTT-3.3.4-4]."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import nats
import pytest

from eyot_daemon.mqtt.overlaps import FILTERS_MAX
from eyot_wire.mqtt.packets import SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import Got, RawMqtt
from support.servers.eyotd import Eyotd

CONFIG = """
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("overlaps")) as made:
        yield made


def client(server: Eyotd, client_id: str, *, level: int = 5, expiry_s: int | None = None) -> RawMqtt:
    made = RawMqtt(server.leaf_port, level=level)
    props = None if expiry_s is None else Properties(session_expiry_interval=expiry_s)
    assert made.connect(client_id, props=props).reason == 0
    return made


def subscribe(there: RawMqtt, identifier: int, *filters: str | SubscriptionRequest, qos: int = 2) -> None:
    props = Properties(subscription_identifiers=[identifier]) if identifier else None
    assert all(code <= 2 for code in there.subscribe(*filters, qos=qos, props=props).codes)


def until_end(there: RawMqtt, here: RawMqtt) -> list[Got]:
    """What arrives until a message that is published last: the order of one publisher holds."""
    here.publish_acked("over", b"", qos=1)
    found = []
    while (got := there.message()).topic != "over":
        found.append(got)
    return found


def shown(found: list[Got]) -> list[tuple[bytes, int, list[int]]]:
    return [(got.payload, got.qos, sorted(got.properties.subscription_identifiers)) for got in found]


@pytest.mark.parametrize("expiry_s", [None, 600], ids=["memory", "queue"])
def test_one_copy_with_all_identifiers(server: Eyotd, expiry_s: int | None) -> None:
    topic = f"one/{expiry_s}"
    with client(server, f"there{expiry_s}", expiry_s=expiry_s) as there, client(server, "here") as here:
        subscribe(there, 9, "over", qos=1)
        subscribe(there, 1, f"{topic}/#", qos=1)
        subscribe(there, 2, f"{topic}/+/x", qos=2)
        subscribe(there, 3, topic, qos=1)
        for qos in (1, 2):
            here.publish_acked(f"{topic}/a/x", b"both", qos=qos)
            here.publish_acked(f"{topic}/a", b"one", qos=qos)
            here.publish_acked(topic, b"end", qos=qos)
        assert shown(until_end(there, here)) == [
            (b"both", 1, [1, 2]),
            (b"one", 1, [1]),
            (b"end", 1, [1, 3]),
            (b"both", 2, [1, 2]),
            (b"one", 1, [1]),
            (b"end", 1, [1, 3]),
        ]
        assert there.unsubscribe(f"{topic}/+/x").codes == [0]
        here.publish_acked(f"{topic}/a/x", b"left", qos=2)
        assert shown(until_end(there, here)) == [(b"left", 1, [1])]


def test_quality_0_and_filters_without_identifiers(server: Eyotd) -> None:
    with client(server, "zero") as there, client(server, "here") as here:
        subscribe(there, 0, "over", "z/#", "z/+", qos=2)
        subscribe(there, 5, "+/a", qos=0)
        here.publish("z/a", b"0")
        assert shown(until_end(there, here)) == [(b"0", 0, [5])]


def test_no_local_is_of_its_filter_alone(server: Eyotd) -> None:
    with client(server, "self") as there:
        subscribe(there, 1, SubscriptionRequest("own/#", 1, no_local=True))
        subscribe(there, 2, SubscriptionRequest("own/a", 1))
        subscribe(there, 3, "over", qos=1)
        there.publish("own/a", b"heard", qos=0)
        there.publish("own/b", b"unheard", qos=0)
        there.publish("over", b"", qos=0)
        assert shown([there.message()]) == [(b"heard", 0, [2])]
        assert there.message().topic == "over"


def test_a_queued_message_and_a_filter_of_quality_0(server: Eyotd) -> None:
    """The queue keeps the copy for the filter of QoS 1; that of QoS 0 is another message."""
    with client(server, "mixed", expiry_s=600) as there, client(server, "here") as here:
        subscribe(there, 1, "m/#", qos=0)
        subscribe(there, 2, "m/a", "over", qos=1)
        here.publish_acked("m/a", b"x", qos=1)
        assert sorted(shown(until_end(there, here))) == [(b"x", 0, [1]), (b"x", 1, [2])]


def test_shared_subscriptions_have_copies_of_their_own(server: Eyotd) -> None:
    with client(server, "member") as there, client(server, "here") as here:
        subscribe(there, 1, "$share/g/s/#", qos=1)
        subscribe(there, 2, "s/a", "s/+", "over", qos=1)
        here.publish("s/a", b"x")
        here.publish_acked("over", b"", qos=1)
        found = [there.message() for _ in range(3)]
        assert sorted(shown([got for got in found if got.topic == "s/a"])) == [(b"x", 0, [1]), (b"x", 0, [2, 2])]


def test_3_1_1_gets_a_copy_for_each_filter(server: Eyotd) -> None:
    with client(server, "older", level=4) as there, client(server, "here") as here:
        subscribe(there, 0, "o/#", "o/a", "over", qos=0)
        here.publish("o/a", b"x")
        assert [got.topic for got in until_end(there, here)] == ["o/a", "o/a"]


def test_what_nats_clients_publish_comes_for_each_filter(server: Eyotd) -> None:
    async def publish() -> None:
        client = await nats.connect(server.client_url())
        await client.publish("n.a", b"x")
        await client.publish("over", b"")
        await client.close()

    with client(server, "of-nats") as there:
        subscribe(there, 1, "n/#", "over")
        subscribe(there, 2, "n/a")
        asyncio.run(publish())
        assert sorted(shown([there.message(), there.message()])) == [(b"x", 0, [1]), (b"x", 0, [2])]


def test_with_many_filters_each_has_its_copy(server: Eyotd) -> None:
    with client(server, "many") as there, client(server, "here") as here:
        subscribe(there, 0, *(f"many/{number}" for number in range(FILTERS_MAX)), qos=0)
        subscribe(there, 1, "many/#", "over", qos=0)
        here.publish("many/7", b"x")
        assert sorted(shown(until_end(there, here))) == [(b"x", 0, []), (b"x", 0, [1])]
