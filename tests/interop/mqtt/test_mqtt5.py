"""What MQTT 5 adds to 3.1.1 for messages and subscriptions, statement by statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Subscribe, SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from support.mqtt.mqtt5 import LASTS, PATIENCE_S, client, connack, ended, mqtt5_server
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with mqtt5_server(tmp_path_factory.mktemp("server")) as running:
        yield running


# -- properties of messages ------------------------------------------------------------------------------------------------

MESSAGES = [
    Properties(payload_format_indicator=0, content_type="", correlation_data=b"", response_topic="r/a"),
    Properties(payload_format_indicator=1, content_type="text/plain; charset=é", correlation_data=b"\0\r\n\xff"),
    Properties(content_type=" a\r\nNats-Rollup: all", response_topic="r//b.c", user_properties=[("z", "1"), ("a", "2"), ("z", "1")]),
    Properties(user_properties=[("", ""), ("Nats-Msg-Id", "x"), ("a b", " c "), ("Content-Type", "no"), ("k", "🙂")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "qos"),
    [*((way, qos) for way in ("at once", "from the queue", "retained") for qos in (1, 2)), ("at once", 0)],
)
def test_properties_reach_subscribers_unaltered(server: Eyotd, way: str, qos: int) -> None:
    topic = f"whole/{way.split()[-1]}/{qos}"
    with client(server, "whole", clean=True, props=LASTS) as hears, client(server) as says:
        if way != "retained":
            hears.subscribe(topic, qos=qos)
        if way == "from the queue":
            hears.sock.close()
        for number, properties in enumerate(MESSAGES):
            each = f"{topic}/{number}" if way == "retained" else topic
            assert says.publish_acked(each, b"%d" % number, qos=qos, retain=way == "retained", props=properties) in (
                0,
                0x10,
            )
        says.publish_acked("whole", b"", qos=1, retain=True)  # what was sent before is on flash
        with client(server, "whole", clean=False, props=LASTS) if way == "from the queue" else client(server) as again:
            reader = hears if way == "at once" else again
            if way == "retained":
                again.subscribe(f"{topic}/#", qos=qos)
            got = {int(each.payload): each for each in (reader.message() for _ in MESSAGES)}
    for number, properties in enumerate(MESSAGES):
        assert got[number].properties == properties
        assert got[number].qos == qos


def test_expiry_is_told_as_what_remains(server: Eyotd) -> None:
    with client(server) as says, client(server) as hears:
        says.publish_acked("expiry/kept", b"x", retain=True, props=Properties(message_expiry_interval=100))
        until = time.monotonic() + PATIENCE_S
        while True:
            hears.subscribe("expiry/kept", qos=1)
            left = hears.message().properties.message_expiry_interval
            assert left is not None
            assert 0 < left <= 100
            if left < 100:
                break
            assert time.monotonic() < until, "the interval does not shrink"
            time.sleep(0.2)


def test_what_has_expired_is_not_delivered(server: Eyotd) -> None:
    client(server, "sleeps", clean=True, props=LASTS).sock.close()
    with client(server, "sleeps", clean=False, props=LASTS) as sleeps:
        sleeps.subscribe("expired/#", qos=2)
    with client(server) as says:
        for qos in (1, 2):
            says.publish_acked("expired/a", b"old", qos=qos, props=Properties(message_expiry_interval=1))
        says.publish_acked("expired/kept", b"old", retain=True, props=Properties(message_expiry_interval=1))
        time.sleep(2)
        says.publish_acked("expired/a", b"new", qos=1)
        with client(server, "sleeps", clean=False, props=LASTS) as back:
            assert back.message().payload == b"new"
        says.subscribe("expired/kept", qos=1)
        assert says.is_quiet()


def test_an_expired_message_that_was_sent_is_completed(server: Eyotd) -> None:
    """Expiry ends no flow of QoS 2 that has begun, in either direction."""
    with client(server, "begun", clean=True, props=LASTS) as begun, client(server) as says:
        begun.subscribe("begun", qos=2)
        packet_id = says.publish("begun", b"x", qos=2, props=Properties(message_expiry_interval=1))
        assert says.expect(PacketType.PUBREC).reason == 0
        got = begun.next_publish()
        time.sleep(2)
        begun.pubrec(got.packet_id)
        assert begun.expect(PacketType.PUBREL).packet_id == got.packet_id
        begun.pubcomp(got.packet_id)
        says.send(encoder.pubrel(5, packet_id))
        assert says.expect(PacketType.PUBCOMP).reason == 0


#: QoS of a message, the answers that are right, and the one that contradicts it.
CONTRADICTIONS = [
    (1, (), RawMqtt.pubrec),
    (1, (), RawMqtt.pubcomp),
    (2, (), RawMqtt.puback),
    (2, (), RawMqtt.pubcomp),
    (2, (RawMqtt.pubrec,), RawMqtt.puback),
]


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(("qos", "right", "wrong"), CONTRADICTIONS)
def test_an_answer_of_the_wrong_kind_ends_the_connection(
    server: Eyotd, level: int, qos: int, right: tuple[Callable[..., None], ...], wrong: Callable[..., None]
) -> None:
    """The message is kept for the session: it was not acknowledged."""
    name, topic = f"wrong-{level}", f"wrong/{level}/{qos}"
    lasts = {"props": LASTS} if level == 5 else {}
    with client(server) as says:
        with client(server, name, clean=True, level=level) as fresh:
            fresh.disconnect()
        with client(server, name, clean=False, level=level, **lasts) as hears:
            hears.subscribe(topic, qos=2)
            says.publish_acked(topic, b"x", qos=qos)
            got = hears.next_publish()
            for answer in right:
                answer(hears, got.packet_id)
                assert hears.expect(PacketType.PUBREL).packet_id == got.packet_id
            wrong(hears, got.packet_id)
            if level == 5:
                assert hears.expect(PacketType.DISCONNECT).reason == 0x82
            assert hears.closed()
        with client(server, name, clean=False, level=level, **lasts) as back:
            if right:
                assert back.expect(PacketType.PUBREL).packet_id == got.packet_id
                back.pubcomp(got.packet_id)
            else:
                again = back.next_publish()
                assert (again.packet_id, again.payload, again.dup) == (got.packet_id, b"x", True)


@pytest.mark.parametrize("level", [3, 4, 5])
def test_session_present(server: Eyotd, level: int) -> None:
    """3.1 reserves the byte: the session is there, and the client is not told."""
    name = f"present-{level}"
    lasts = {"props": LASTS} if level == 5 else {}
    with client(server, name, clean=True, level=level) as fresh:
        assert not connack(fresh).present
        fresh.disconnect()
    with client(server, name, clean=False, level=level, **lasts) as first, client(server) as says:
        first.subscribe(f"present/{level}", qos=1)
        first.disconnect()
        says.publish_acked(f"present/{level}", b"x", qos=1)
    with client(server, name, clean=False, level=level, **lasts) as back:
        assert connack(back).present == (level > 3)
        assert back.next_publish().payload == b"x"


@pytest.mark.parametrize("level", [4, 5])
def test_an_answer_to_nothing_changes_nothing(server: Eyotd, level: int) -> None:
    """It may have come twice."""
    with client(server, level=level) as hears:
        for answer in (RawMqtt.puback, RawMqtt.pubcomp):
            answer(hears, 7)
        hears.pubrec(7)
        if level == 5:
            assert hears.expect(PacketType.PUBREL).reason == 0x92
        else:
            hears.expect(PacketType.PUBREL)
        hears.ping()


# -- topic aliases -----------------------------------------------------------------------------------------------------------


def alias(number: int) -> Properties:
    return Properties(topic_alias=number)


def test_aliases_of_the_client(server: Eyotd) -> None:
    with client(server) as hears, client(server) as says:
        hears.subscribe("alias/#", qos=1)
        most = connack(says).properties.topic_alias_maximum or 0
        assert most > 1
        for number in range(1, most + 1):
            says.publish(f"alias/{number}", b"set", qos=1, props=alias(number))
        says.publish("alias/new", b"moved", qos=1, props=alias(1))
        for number in range(1, most + 1):
            says.publish("", b"used", qos=1, props=alias(number))
        topics = [hears.message().topic for _ in range(2 * most + 1)]
        named = [f"alias/{number}" for number in range(1, most + 1)]
        assert topics == [*named, "alias/new", "alias/new", *named[1:]]
    with client(server) as later:  # a new connection has none
        later.publish("", b"x", qos=1, props=alias(1))
        assert ended(later) == 0x82


@pytest.mark.parametrize("most", [None, 0, 2])
def test_aliases_of_the_server(server: Eyotd, most: int | None) -> None:
    with client(server, props=Properties(topic_alias_maximum=most)) as hears, client(server) as says:
        hears.subscribe("server/#", qos=1)
        known: dict[int, str] = {}
        for turn in range(2):
            for name in "abc":
                says.publish_acked(f"server/{name}", b"%d" % turn)
                got = hears.message()
                number = got.properties.topic_alias or 0
                assert number <= (most or 0)
                if got.topic:
                    known[number] = got.topic
                assert (got.topic or known[number]) == f"server/{name}"


# -- subscriptions -----------------------------------------------------------------------------------------------------------


def test_retain_handling(server: Eyotd) -> None:
    with client(server) as says, client(server) as hears:
        says.publish_acked("handling/a", b"kept", retain=True)
        for handling, comes in ((2, False), (1, False), (0, True), (0, True)):
            hears.subscribe(SubscriptionRequest("handling/+", 1, retain_handling=handling))
            if comes:
                got = hears.message()
                assert (got.payload, got.retain) == (b"kept", True)
            assert hears.is_quiet(), f"retain handling {handling}"
        hears.unsubscribe("handling/+")
        hears.subscribe(SubscriptionRequest("handling/+", 1, retain_handling=1))
        assert hears.message().payload == b"kept"


@pytest.mark.parametrize("level", [4, 5])
def test_who_subscribes_before_a_retained_message_is_on_flash_gets_it(server: Eyotd, level: int) -> None:
    with client(server, level=level) as both:
        for payload in (b"first", b"second", b""):
            # In one piece: both are processed before anything is on flash.
            published = encoder.publish(level, "coming/a", payload, qos=0, retain=True, dup=False)
            asked = [SubscriptionRequest("coming/+", 0)]
            both.send(published + encoder.subscribe(level, Subscribe(both.next_id(), asked)))
            both.expect(PacketType.SUBACK)
            if payload == b"second":
                live = both.message()  # of the subscription before
                assert (live.payload, live.retain) == (payload, False)
            if payload:
                got = both.message()
                assert (got.topic, got.payload, got.retain) == ("coming/a", payload, True)
        assert both.message().payload == b""
        assert both.is_quiet()


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_retain_as_published(server: Eyotd, expiry_s: int) -> None:
    with client(server, "as-is", props=Properties(session_expiry_interval=expiry_s)) as hears, client(server) as says:
        hears.subscribe(SubscriptionRequest("as/is/a", 1, retain_as_published=True), SubscriptionRequest("as/set/a", 1))
        for topic, retain, expected in (("as/is/a", True, True), ("as/is/a", False, False), ("as/set/a", True, False)):
            says.publish_acked(topic, b"x", retain=retain)
            assert hears.message().retain is expected
        for topic in ("as/is/a", "as/set/a"):
            says.publish_acked(topic, b"", retain=True)


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_no_local(server: Eyotd, expiry_s: int) -> None:
    with client(server, "local", props=Properties(session_expiry_interval=expiry_s)) as both, client(server) as other:
        both.subscribe(SubscriptionRequest("local/+", 1, no_local=True))
        both.publish_acked("local/a", b"own")
        other.publish_acked("local/a", b"other")
        assert both.message().payload == b"other"
        assert both.is_quiet()


@pytest.mark.parametrize("level", [4, 5])
def test_a_subscription_is_replaced(server: Eyotd, level: int) -> None:
    with client(server, level=level) as hears, client(server) as says:
        says.publish_acked("replaced", b"kept", retain=True)
        for qos, identifier in ((2, 7), (0, 8), (1, 0)):
            identifiers = [identifier] if identifier and level == 5 else []
            props = Properties(subscription_identifiers=identifiers)
            assert hears.subscribe("replaced", qos=qos, props=props).codes == [qos]
            assert hears.message().payload == b"kept"
            says.publish_acked("replaced", b"new", qos=2)
            got = hears.message()
            assert (got.payload, got.qos, got.properties.subscription_identifiers) == (b"new", qos, identifiers)
            assert hears.is_quiet()
        says.publish_acked("replaced", b"", retain=True)


def test_unsubscribe_completes_what_was_sent_and_adds_nothing(server: Eyotd) -> None:
    for qos in (1, 2):
        with client(server) as hears, client(server) as says:
            hears.subscribe("ends/a", "ends/+", qos=qos)
            says.publish_acked("ends/a", b"sent", qos=qos)
            got = hears.next_publish()
            assert hears.unsubscribe("ends/a", "ends/none", "ends/+").codes == [0, 0x11, 0]
            says.publish_acked("ends/a", b"later", qos=qos)
            if qos == 1:
                hears.puback(got.packet_id)
            else:
                hears.pubrec(got.packet_id)
                assert hears.expect(PacketType.PUBREL).packet_id == got.packet_id
                hears.pubcomp(got.packet_id)
            assert hears.is_quiet()


def test_topics_are_compared_as_they_are(server: Eyotd) -> None:
    with client(server) as hears, client(server) as says:
        composed, decomposed = "exact/\u00e9", "exact/e\u0301"
        hears.subscribe("exact/\ufeffbom", composed, "exact/Case", qos=1)
        for topic in ("exact/bom", "exact/\ufeffbom", decomposed, composed, "exact/case", "exact/Case", "exact/Case/"):
            says.publish_acked(topic, b"x")
        assert [hears.message().topic for _ in range(3)] == ["exact/\ufeffbom", composed, "exact/Case"]
        assert hears.is_quiet()


def test_a_shared_subscription_keeps_to_the_granted_quality_and_to_refusals(server: Eyotd) -> None:
    """A message that its receiver refuses goes to nobody else."""
    with client(server) as one, client(server) as two, client(server) as says:
        one.subscribe("$share/quality/shared/a", qos=1)
        says.publish_acked("shared/a", b"x", qos=2)
        got = one.next_publish()
        assert (got.payload, got.qos) == (b"x", 1)
        two.subscribe("$share/quality/shared/a", qos=1)
        one.send(encoder.puback(5, got.packet_id, 0x83))
        one.ping()
        one.unsubscribe("$share/quality/shared/a")
        says.publish_acked("shared/a", b"y", qos=1)
        assert two.message().payload == b"y"
        assert two.is_quiet()


def sent_and_left(server: Eyotd, name: str, stays: RawMqtt, *, expiry_s: int) -> int:
    """Have a member of a group get `begun` with QoS 2 and leave without PUBREC; returns the packet identifier.

    `stays` joins the group, which has the member's name as its topic has, when the message has been sent.
    """
    with client(server, name, clean=True, props=Properties(session_expiry_interval=expiry_s)) as leaves:
        leaves.subscribe(f"$share/{name}/{name}", qos=2)
        with client(server) as says:
            says.publish_acked(name, b"begun", qos=2)
        begun = leaves.next_publish()
        assert (begun.payload, begun.qos) == (b"begun", 2)
        stays.subscribe(f"$share/{name}/{name}", qos=2)
        leaves.send(encoder.disconnect(0))
        ended(leaves)
        return begun.packet_id


def test_a_shared_message_of_qos_2_goes_to_the_member_that_it_was_sent_to(server: Eyotd) -> None:
    with client(server) as stays, client(server) as says:
        packet_id = sent_and_left(server, "away", stays, expiry_s=3600)
        says.publish_acked("away", b"later", qos=2)
        assert stays.message().payload == b"later"
        with client(server, "away", clean=False) as back:
            again = back.next_publish()
            assert (again.payload, again.packet_id, again.dup) == (b"begun", packet_id, True)
            back.pubrec(packet_id)
            assert back.expect(PacketType.PUBREL).packet_id == packet_id
            back.pubcomp(packet_id)
            back.unsubscribe("$share/away/away")
        assert stays.is_quiet()


@pytest.mark.parametrize("end", ["connection", "clean-start", "unsubscribe"])
def test_a_shared_message_of_qos_2_ends_with_the_session_that_it_was_sent_to(server: Eyotd, end: str) -> None:
    with client(server) as stays, client(server) as says:
        sent_and_left(server, end, stays, expiry_s=0 if end == "connection" else 3600)
        if end == "clean-start":
            client(server, end, clean=True).sock.close()
        elif end == "unsubscribe":
            with client(server, end, clean=False) as back:
                assert back.next_publish().payload == b"begun"
                back.unsubscribe(f"$share/{end}/{end}")
        says.publish_acked(end, b"later", qos=2)
        assert stays.message().payload == b"later"
        assert stays.is_quiet()
