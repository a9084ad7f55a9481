"""MQTT packets: what is encoded is decoded again, in pieces of any size; what the specification forbids is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.mqtt import encoder, properties
from eyot_wire.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import PacketReader
from eyot_wire.mqtt.reason_codes import ReasonCode

texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0+#"), min_size=1, max_size=20)
ids = st.integers(1, 65535)


def reader(level: int = 0, most: int = 1 << 20) -> PacketReader:
    """A reader; with a level, one that has read CONNECT."""
    made = PacketReader(most, connect_bytes_max=1 << 16)
    if level:
        assert len(list(made.feed(encoder.connect(Connect(level, "x"))))) == 1
    return made


def decoded(data: bytes, level: int) -> Packet:
    (packet,) = reader(level).feed(data)
    return packet


def refused(data: bytes, level: int = 0) -> MqttError:
    with pytest.raises(MqttError) as raised:
        list(reader(level).feed(data))
    return raised.value


message_properties = st.builds(
    Properties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    message_expiry_interval=st.none() | st.integers(0, 2**32 - 1),
    content_type=st.none() | texts,
    response_topic=st.none() | names,
    correlation_data=st.none() | st.binary(max_size=20),
    user_properties=st.lists(st.tuples(texts, texts), max_size=3),
)


def some(properties: Properties | None) -> Properties | None:
    return None if properties == Properties() else properties


@given(
    st.sampled_from([3, 4, 5]),
    texts,
    st.booleans(),
    st.integers(0, 65535),
    st.none() | texts,
    st.none() | st.binary(max_size=30),
    st.none() | st.builds(Will, names, st.binary(max_size=20), st.integers(0, 2), st.booleans()),
)
def test_connect(
    level: int, client: str, clean: bool, keep: int, user: str | None, password: bytes | None, will: Will | None
) -> None:
    if level < 5 and user is None:
        password = None
    asked = Connect(level, client, clean, keep, user, password, will)
    assert list(reader().feed(encoder.connect(asked))) == [asked]


@given(names, st.binary(max_size=50), st.integers(0, 2), st.booleans(), ids, message_properties)
def test_publish(topic: str, payload: bytes, qos: int, retain: bool, packet_id: int, properties: Properties) -> None:
    packet_id = packet_id if qos else 0
    for level in (4, 5):
        props = some(properties) if level == 5 else None
        data = encoder.publish(
            level, topic, payload, qos=qos, retain=retain, packet_id=packet_id, properties=properties
        )
        assert decoded(data, level) == Publish(topic, payload, qos, retain, False, packet_id, props)


@pytest.mark.parametrize("level", [4, 5])
def test_answers(level: int) -> None:
    for make, kind, reason in (
        (encoder.puback, Puback, 0x97),
        (encoder.pubrec, Pubrec, 0x97),
        (encoder.pubrel, Pubrel, 0x92),
        (encoder.pubcomp, Pubcomp, 0x92),
    ):
        assert decoded(make(level, 700), level) == kind(700)
        expected = kind(700, reason) if level == 5 else kind(700)
        assert decoded(make(level, 700, reason), level) == expected
    assert decoded(encoder.PINGREQ, level) == Pingreq()
    assert decoded(encoder.DISCONNECT, level) == Disconnect()
    assert decoded(encoder.disconnect(4, Properties(session_expiry_interval=7)), 5) == Disconnect(
        4, Properties(session_expiry_interval=7)
    )


@given(st.lists(st.tuples(texts.filter(bool), st.integers(0, 2)), min_size=1, max_size=5), ids)
def test_subscribe_and_unsubscribe(filters: list[tuple[str, int]], packet_id: int) -> None:
    asked = Subscribe(packet_id, [SubscriptionRequest(text, qos) for text, qos in filters])
    gone = Unsubscribe(packet_id, [text for text, _ in filters])
    for level in (4, 5):
        assert decoded(encoder.subscribe(level, asked), level) == asked
        assert decoded(encoder.unsubscribe(level, gone), level) == gone


@given(st.lists(st.integers(1, 40), max_size=40), st.lists(st.binary(max_size=300), max_size=5))
def test_packets_come_in_pieces_of_any_size(sizes: list[int], payloads: list[bytes]) -> None:
    data = encoder.connect(Connect(5, "x")) + b"".join(encoder.publish(5, "a/b", each) for each in payloads)
    whole = list(reader().feed(data))
    cut, found = reader(), []
    for size in [*sizes, len(data)]:
        found += cut.feed(data[:size])
        data = data[size:]
    assert found == whole
    assert cut.pending == 0


def test_a_byte_at_a_time() -> None:
    one, found = reader(), []
    for byte in encoder.connect(Connect(4, "x")) + encoder.publish(4, "t", b"p" * 300) + encoder.PINGREQ:
        found += one.feed(bytes((byte,)))
    assert [type(each) for each in found] == [Connect, Publish, Pingreq]


# -- what is refused: facts, section 5 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        encoder.PINGREQ,
        b"\x10\xff\xff\xff\xff\x01",  # a remaining length of five bytes
        b"\x11" + encoder.connect(Connect(4, "x"))[1:],  # flags
        b"\x10\x0c\x00\x04MQTU\x04\x02\x00\x00\x00\x00",  # another name
        b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00",  # the reserved flag
        b"\x10\x0c\x00\x04MQTT\x04\x1e\x00\x00\x00\x00",  # a will of QoS 3
        b"\x10\x0c\x00\x04MQTT\x04\x0a\x00\x00\x00\x00",  # a will's QoS without a will
        b"\x10\x0c\x00\x04MQTT\x04\x42\x00\x00\x00\x00",  # a password without a name
        b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x00x",  # a byte behind the end
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x05",  # the client id is cut off
        b"\x10\x8c\x00\x00\x04MQTT\x04\x02\x00\x00\x00\x00",  # a longer remaining length than it needs
        encoder.connect(Connect(4, "x")) * 2,
    ],
)
def test_before_and_in_connect(data: bytes) -> None:
    assert refused(data).reason_code >= 0x80


@pytest.mark.parametrize("level", [0, 1, 2, 6, 0x84])
def test_levels_that_nobody_speaks_are_told(level: int) -> None:
    """The connection answers them; nothing else of such a CONNECT is read."""
    (asked,) = reader().feed(b"\x10\x0c\x00\x04MQTT" + bytes((level,)) + b"\x02\x00\x00\x00\x00")
    assert asked == Connect(level, "")


@pytest.mark.parametrize(("name", "level"), [(b"MQTT", 3), (b"MQIsdp", 4), (b"MQIsdp", 5)])
def test_a_level_of_another_protocol_name_is_told(name: bytes, level: int) -> None:
    body = len(name).to_bytes(2, "big") + name + bytes((level,)) + b"\x02\x00\x00\x00\x00"
    (asked,) = reader().feed(bytes((0x10, len(body))) + body)
    assert asked == Connect(0, "")


@pytest.mark.parametrize(
    "data",
    [
        b"\x36\x05\x00\x01t\x00\x01",  # QoS 3
        b"\x38\x03\x00\x01t",  # DUP with QoS 0
        b"\x32\x05\x00\x01t\x00\x00",  # packet identifier 0
        b"\x30\x02\x00\x00",  # an empty topic
        b"\x30\x05\x00\x03a/#",
        b"\x30\x05\x00\x03a+b",
        b"\x30\x05\x00\x03a\x00b",
        b"\x30\x05\x00\x03\xed\xa0\x80",  # a surrogate
        b"\x30\x04\x00\x02\xc0\xaf",  # overlong UTF-8
        b"\x30\x03\x00\x09t",  # the topic is cut off
        b"\x30\x01\x00",
        b"\x32\x03\x00\x01t",  # no packet identifier
        b"\x60\x02\x00\x01",  # PUBREL without its flag
        b"\x80\x06\x00\x01\x00\x01t\x00",  # SUBSCRIBE likewise
        b"\x82\x06\x00\x00\x00\x01t\x00",
        b"\x82\x02\x00\x01",  # no filter
        b"\x82\x06\x00\x01\x00\x01t\x03",  # QoS 3
        b"\x82\x06\x00\x01\x00\x01t\x40",  # a reserved bit
        b"\xa2\x02\x00\x01",
        b"\x40\x02\x00\x00",
        b"\x20\x02\x00\x00",  # CONNACK, from a client
        b"\xd0\x00",
        b"\x90\x03\x00\x01\x00",
        b"\xc0\x01x",
        b"\x00\x00",
    ],
)
@pytest.mark.parametrize("level", [4, 5])
def test_afterwards(data: bytes, level: int) -> None:
    assert refused(data, level).reason_code >= 0x80


def test_a_packet_larger_than_agreed() -> None:
    assert refused(b"\x30\xff\xff\xff\x7f", 5).reason_code == ReasonCode.PACKET_TOO_LARGE
    with pytest.raises(ProtocolError):
        list(PacketReader(1 << 20, connect_bytes_max=100).feed(encoder.connect(Connect(4, "x" * 100))))


def publish5(properties: bytes) -> bytes:
    return encoder.packet(0x30, b"\x00\x01t" + bytes((len(properties),)) + properties)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (b"\x7e\x00", 0x81),  # no such property
        (b"\x01\x01\x01\x01", 0x82),  # twice
        (b"\x01\x02", 0x82),  # neither 0 nor 1
        (b"\x11\x00\x00\x00\x01", 0x81),  # of another packet
        (b"\x0b\x01", 0x82),  # a client's PUBLISH has no subscription identifier
        (b"\x08\x00\x03a/#", 0x90),  # a response topic with wildcards
        (b"\x02\x00", 0x81),  # cut off
    ],
)
def test_properties_of_publish(properties: bytes, reason: int) -> None:
    assert refused(publish5(properties), 5).reason_code == reason


@pytest.mark.parametrize("properties", [b"\x21\x00\x00", b"\x27\x00\x00\x00\x00", b"\x16\x00\x01x"])
def test_properties_of_connect(properties: bytes) -> None:
    body = b"\x00\x04MQTT\x05\x02\x00\x00" + bytes((len(properties),)) + properties + b"\x00\x01x"
    assert refused(encoder.packet(0x10, body)).reason_code == ReasonCode.PROTOCOL_ERROR


def _kinds_with_properties() -> Iterator[tuple[str, int, Callable[[bytes], bytes]]]:
    """Name, packet and its maker, of all packets of a client that have properties; a will's last."""
    connect = b"\0\4MQTT\5"
    yield "CONNECT", 0x10, lambda part: connect + b"\2\0\0" + part + b"\0\1x"
    yield "PUBLISH", 0x30, lambda part: b"\0\1t" + part
    for number, kind in enumerate(("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")):
        yield kind, 0x40 + 0x10 * number + (2 if kind == "PUBREL" else 0), lambda part: b"\0\1\0" + part
    yield "SUBSCRIBE", 0x82, lambda part: b"\0\1" + part + b"\0\1t\0"
    yield "UNSUBSCRIBE", 0xA2, lambda part: b"\0\1" + part + b"\0\1t"
    yield "DISCONNECT", 0xE0, lambda part: b"\0" + part
    yield "AUTH", 0xF0, lambda part: b"\x18" + part
    yield "RESERVED", 0x10, lambda part: connect + b"\6\0\0\0\0\1x" + part + b"\0\1t\0\0"


#: a value of each property, by its length in bytes
VALUES = {
    **dict.fromkeys((0x01, 0x0B, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), b"\1"),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), b"\0\1"),
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), b"\0\1a"),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), b"\0\0\0\1"),
    0x26: b"\0\1a\0\1b",
}


@pytest.mark.parametrize(("kind", "first", "body"), list(_kinds_with_properties()))
def test_a_property_of_another_packet_is_malformed(kind: str, first: int, body: Callable[[bytes], bytes]) -> None:
    """MQTT 5, 2.2.2.2."""
    assert VALUES.keys() == properties.TABLE.keys()
    foreign = [each for each, known in properties.TABLE.items() if PacketType[kind] not in known.packets]
    assert len(foreign) > 12
    for identifier in foreign:
        part = bytes((1 + len(VALUES[identifier]), identifier)) + VALUES[identifier]
        fault = refused(encoder.packet(first, body(part)), 0 if first == 0x10 else 5)
        assert fault.reason_code == ReasonCode.MALFORMED_PACKET, properties.TABLE[identifier].name


@pytest.mark.parametrize("packet", [b"\x6a\2\0\1", b"\x8a\6\0\1\0\1t\0", b"\xaa\5\0\1\0\1t"])
def test_mqtt_3_1_repeats_with_dup(packet: bytes) -> None:
    assert len(list(reader(3).feed(packet))) == 1
    assert refused(packet, 4).reason_code == ReasonCode.MALFORMED_PACKET
    assert refused(bytes((packet[0] | 1,)) + packet[1:], 3).reason_code == ReasonCode.MALFORMED_PACKET


def test_options_of_subscribe() -> None:
    shared = encoder.subscribe(5, Subscribe(1, [SubscriptionRequest("$share/g/t", no_local=True)]))
    assert refused(shared, 5).reason_code == ReasonCode.PROTOCOL_ERROR
    assert refused(b"\x82\x07\x00\x01\x00\x00\x01t\x30", 5).reason_code == ReasonCode.PROTOCOL_ERROR
    assert refused(b"\x82\x07\x00\x01\x00\x00\x01t\x03", 5).reason_code == ReasonCode.PROTOCOL_ERROR
    assert refused(b"\x82\x07\x00\x01\x00\x00\x01t\x40", 5).reason_code == ReasonCode.MALFORMED_PACKET
    twice = encoder.subscribe(5, Subscribe(1, [SubscriptionRequest("t")], Properties(subscription_identifiers=[1, 2])))
    assert refused(twice, 5).reason_code == ReasonCode.PROTOCOL_ERROR
    zero = b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01t\x00"
    assert refused(zero, 5).reason_code == ReasonCode.PROTOCOL_ERROR


@given(st.binary(max_size=200), st.sampled_from([0, 4, 5]))
def test_anything(data: bytes, level: int) -> None:
    """Any bytes are packets or a fault of the peer's, and what is kept is bounded."""
    one = reader(level, most=500)
    try:
        for packet in one.feed(data):
            assert packet is not None
    except (MalformedPacket, ProtocolError):
        pass
    assert one.pending <= len(data)
