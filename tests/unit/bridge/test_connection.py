"""The client's end of a connection to a broker, packet by packet."""

from __future__ import annotations

import itertools

import pytest

from eyot_sync.bridge.connection import CONNACK_S, PINGRESP_S, V5, V311, BridgeConnection, ConnectionOptions
from eyot_sync.bridge.events import Arrived, Ended, Established, Event, FilterRefused, Released, Settled
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import PacketReader
from eyot_wire.mqtt.reason_codes import ReasonCode


class Broker:
    """The other side: reads what the connection sends, with the reader of a server."""

    def __init__(self, level: int = V5, **options: object) -> None:
        ids = itertools.count(1)
        self.freed: list[int] = []
        asked = ConnectionOptions(client_id="gw", level=level, **options)  # type: ignore[arg-type]
        self.client = BridgeConnection(asked, lambda: next(ids), self.freed.append)
        self.level = level
        self._reader = PacketReader(1 << 20, connect_bytes_max=1 << 20)
        self.client.start(0.0)
        (self.connect,) = self.sent()

    def sent(self) -> list[object]:
        return list(self._reader.feed(self.client.take_output()))

    def say(self, data: bytes, now: float = 1.0) -> list[Event]:
        return self.client.receive(data, now)

    def accept(self, *, present: bool = False, **properties: object) -> list[Event]:
        made = Properties(**properties) if self.level == V5 else None  # type: ignore[arg-type]
        return self.say(encoder.connack(self.level, Connack(present, ReasonCode.SUCCESS, made)))

    def publish(self, topic: str, payload: bytes = b"x", packet_id: int = 9, **more: object) -> bool:
        wanted = {"qos": 1, "retain": False, "dup": False, "properties": None} | more
        return self.client.publish(packet_id, topic, payload, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [V311, V5])
def test_connect_and_subscribe(level: int) -> None:
    broker = Broker(
        level, username="u", password=b"p", subscriptions=(("a/#", 1), ("b", 2)), session_expiry_s=7, receive_maximum=5
    )
    assert isinstance(broker.connect, Connect)
    assert (broker.connect.client_id, broker.connect.clean_start) == ("gw", False)
    assert (broker.connect.username, broker.connect.password) == ("u", b"p")
    if level == V5:
        assert broker.connect.properties is not None
        assert broker.connect.properties.session_expiry_interval == 7
        assert broker.connect.properties.receive_maximum == 5
    (event,) = broker.accept(present=True)
    assert isinstance(event, Established)
    assert event.session_present
    first, second = broker.sent()
    assert isinstance(first, Subscribe)
    assert isinstance(second, Subscribe)
    assert [(each.filters[0].filter, each.filters[0].qos) for each in (first, second)] == [("a/#", 1), ("b", 2)]
    assert first.filters[0].no_local == (level == V5)
    granted = encoder.suback(level, Suback(first.packet_id, [ReasonCode.GRANTED_QOS_1]))
    refused = encoder.suback(level, Suback(second.packet_id, [ReasonCode.NOT_AUTHORIZED]))
    (event,) = broker.say(granted + refused)
    assert isinstance(event, FilterRefused)
    assert event.filter == "b"
    assert broker.freed == [first.packet_id, second.packet_id]


def test_bytes_may_come_one_by_one() -> None:
    broker = Broker()
    data = encoder.connack(V5, Connack(False, ReasonCode.SUCCESS, Properties(receive_maximum=3)))
    data += encoder.publish(V5, "t", b"hello" * 100, qos=1, packet_id=4) + encoder.PINGRESP + encoder.puback(V5, 7)
    events: list[Event] = []
    for at in range(len(data)):
        events += broker.say(data[at : at + 1])
    established, arrived, settled = events
    assert isinstance(established, Established)
    assert established.limits.receive_maximum == 3
    assert isinstance(arrived, Arrived)
    assert arrived.publish.payload == b"hello" * 100
    assert settled == Settled("puback", 7, ReasonCode.SUCCESS)


def test_answers() -> None:
    broker = Broker()
    broker.accept()
    text = Properties(reason_string="no room")
    data = encoder.puback(V5, 1, ReasonCode.QUOTA_EXCEEDED, text) + encoder.pubrec(V5, 2) + encoder.pubcomp(V5, 3)
    assert broker.say(data + encoder.pubrel(V5, 4)) == [
        Settled("puback", 1, ReasonCode.QUOTA_EXCEEDED, "no room"),
        Settled("pubrec", 2, ReasonCode.SUCCESS),
        Settled("pubcomp", 3, ReasonCode.SUCCESS),
        Released(4),
    ]


@pytest.mark.parametrize(
    ("level", "answer", "reason"),
    [
        (V5, b"\x20\x02\x00\x01", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),  # nats-server
        (V5, b"\x20\x03\x00\x84\x00", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
        (V5, b"\x20\x03\x00\x86\x00", ReasonCode.BAD_USER_NAME_OR_PASSWORD),
        (V311, b"\x20\x02\x00\x04", ReasonCode.BAD_USER_NAME_OR_PASSWORD),
        (V311, b"\x20\x02\x00\x05", ReasonCode.NOT_AUTHORIZED),
    ],
)
def test_refused(level: int, answer: bytes, reason: ReasonCode) -> None:
    broker = Broker(level)
    (event,) = broker.say(answer)
    assert isinstance(event, Ended)
    assert event.reason is reason
    assert broker.client.ended
    assert not broker.client.established
    assert broker.say(encoder.PINGRESP) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x20\x03\x00\x00\x00\x20\x03\x00\x00\x00",  # CONNACK twice
        b"\xd0\x00",  # PINGRESP first
        b"\x20\x03\x00\x00\x00\x82\x03\x00\x01\x00",  # SUBSCRIBE
        b"\x20\x03\x00\x00\x00\xff\x00",
        b"\x20\x03\x00\x00\x00\x30\xff\xff\xff\xff\x01",
        b"\x20\x03\x02\x00\x00",
        b"\x20\x03\x00\x00\x00" + encoder.publish(V5, "t", b"", properties=Properties(topic_alias=1)),
    ],
)
def test_a_broker_that_does_not_keep_to_the_protocol(data: bytes) -> None:
    events = Broker().say(data)
    assert isinstance(events[-1], Ended)


def test_the_brokers_limits_are_kept() -> None:
    broker = Broker()
    broker.accept(maximum_packet_size=60, topic_alias_maximum=1, retain_available=0, maximum_qos=1, receive_maximum=2)
    limits = broker.client.limits
    assert (limits.qos_max, limits.receive_maximum) == (1, 2)
    assert not broker.publish("long/topic", b"x" * 60)
    assert broker.publish("long/topic", b"1", 1, retain=True)
    assert broker.publish("long/topic", b"2", 2)
    assert broker.publish("other", b"3", 3)
    assert not broker.publish("t" * 70_000, b"")
    sent = broker.sent()
    assert all(isinstance(each, Publish) for each in sent)
    topics = [(each.topic, each.retain) for each in sent if isinstance(each, Publish)]
    assert topics == [("long/topic", False), ("", False), ("other", False)]


def test_keep_alive() -> None:
    broker = Broker(keep_alive_s=60)
    broker.accept(server_keep_alive=10)
    assert broker.client.next_deadline < 11
    assert broker.client.tick(5.0) == []
    assert broker.client.take_output() == b""
    assert broker.client.tick(11.0) == []
    assert broker.client.take_output() == encoder.PINGREQ
    assert broker.client.next_deadline == 11.0 + PINGRESP_S
    broker.say(encoder.PINGRESP, 12.0)
    assert broker.client.tick(11.0 + PINGRESP_S) == []
    assert broker.client.take_output() == encoder.PINGREQ
    (event,) = broker.client.tick(12.0 + 2 * PINGRESP_S)
    assert isinstance(event, Ended)
    assert "stale" in event.text


def test_no_connack() -> None:
    broker = Broker()
    assert broker.client.tick(CONNACK_S - 1) == []
    (event,) = broker.client.tick(CONNACK_S)
    assert isinstance(event, Ended)


def test_the_brokers_disconnect_names_its_reason() -> None:
    broker = Broker()
    broker.accept()
    (event,) = broker.say(encoder.disconnect(ReasonCode.SESSION_TAKEN_OVER))
    assert isinstance(event, Ended)
    assert event.reason is ReasonCode.SESSION_TAKEN_OVER
    assert "session taken over (0x8E)" in event.text
