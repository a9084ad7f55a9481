"""Decodes the packets that a client sends, from the fixed header's first byte and the body.

Raises MalformedPacket for what the specification calls malformed, ProtocolError for what it calls a protocol error.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from eyot_wire.mqtt import properties as mqtt_properties
from eyot_wire.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from eyot_wire.mqtt.fields import FieldReader, text
from eyot_wire.mqtt.packet_types import FLAGS_2, V5, V31, PacketType
from eyot_wire.mqtt.packets import (
    Answer,
    Auth,
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
from eyot_wire.mqtt.properties import WILL, Properties
from eyot_wire.mqtt.reason_codes import ReasonCode

#: Protocol name by level.
_NAMES: Final = {3: "MQIsdp", 4: "MQTT", V5: "MQTT"}
#: The level of a CONNECT whose name and level do not belong together: it is refused in words [MQTT-3.1.2-2 of 3.1.1].
NO_LEVEL: Final = 0
#: The most filters in one SUBSCRIBE or UNSUBSCRIBE.
FILTERS_MAX: Final = 10_000

_A = TypeVar("_A", bound=Answer)


def decode(first: int, body: bytes, level: int) -> Packet:
    """Return the packet. `first`: the first byte of its header; `level`: the protocol level of the connection, 0 before CONNECT."""
    kind = PacketType(first >> 4)
    if kind is PacketType.PUBLISH:
        return _publish(first, body, level)
    decoder = _DECODERS.get(kind)
    if decoder is None or (kind is PacketType.AUTH and level != V5):
        raise ProtocolError(f"a client does not send {kind.name}")
    # MQTT 3.1 repeats PUBREL, SUBSCRIBE and UNSUBSCRIBE with the DUP flag.
    dup = 8 if level == V31 and kind in FLAGS_2 else 0
    if first & 0x0F & ~dup != (2 if kind in FLAGS_2 else 0):
        raise MalformedPacket(f"the flags of {kind.name} are {first & 0x0F:04b}")
    reader = FieldReader(body)
    packet = decoder(reader, level)
    reader.finish()
    return packet


def _properties(reader: FieldReader, level: int, kind: PacketType) -> Properties | None:
    return mqtt_properties.read(reader, kind) if level == V5 else None


# -- CONNECT -------------------------------------------------------------------------------------------------------------


def _connect(reader: FieldReader, level: int) -> Connect:
    name, level = reader.string(), reader.byte()
    if name not in _NAMES.values():
        raise ProtocolError("the protocol name is not MQTT", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
    if name != _NAMES.get(level):
        reader.rest()
        return Connect(NO_LEVEL if level in _NAMES else level, "")
    try:
        return _connect_of(reader, level)
    except MqttError as error:
        error.connect_level = level
        raise


def _connect_of(reader: FieldReader, level: int) -> Connect:
    """Read CONNECT behind its level."""
    flags = reader.byte()
    if flags & 1 and level != 3:  # 3.1 does not use it
        raise MalformedPacket("the reserved flag of CONNECT is set")
    keep_alive = reader.int16()
    properties = _properties(reader, level, PacketType.CONNECT)
    client_id = reader.string()
    will = _will(reader, flags, level)
    has_name, has_password = bool(flags & 0x80), bool(flags & 0x40)
    if has_password and not has_name and level != V5:
        raise MalformedPacket("a password without a user name")
    connect = Connect(
        protocol_level=level,
        client_id=client_id,
        clean_start=bool(flags & 2),
        keep_alive=keep_alive,
        username=reader.string() if has_name else None,
        password=reader.binary() if has_password else None,
        will=will,
        properties=properties,
    )
    reader.finish()
    return connect


def _will(reader: FieldReader, flags: int, level: int) -> Will | None:
    qos = flags >> 3 & 3
    if not flags & 4:
        if flags & 0x38:
            raise MalformedPacket("flags of a will without a will")
        return None
    if qos == 3:
        raise MalformedPacket("the QoS of the will is 3")
    properties = mqtt_properties.read(reader, WILL) if level == V5 else None
    topic = reader.string()
    check_topic(topic)
    _check_response(properties)
    return Will(topic, reader.binary(), qos, bool(flags & 0x20), properties)


# -- PUBLISH -------------------------------------------------------------------------------------------------------------


def _publish(first: int, body: bytes, level: int) -> Publish:
    qos = first >> 1 & 3
    dup = bool(first & 8)
    if qos == 3:
        raise MalformedPacket("the QoS of PUBLISH is 3")
    if dup and not qos:
        raise MalformedPacket("DUP with QoS 0")
    if len(body) < 2:
        raise MalformedPacket("the packet ends within a field")
    end = 2 + int.from_bytes(body[:2], "big")
    if end > len(body):
        raise MalformedPacket("the packet ends within a field")
    topic = text(body[2:end])
    packet_id, properties = 0, None
    if qos:
        packet_id = int.from_bytes(body[end : end + 2], "big")
        end += 2
        if end > len(body):
            raise MalformedPacket("the packet ends within a field")
        if not packet_id:
            raise ProtocolError("the packet identifier is 0")
    if level == V5:
        if body[end : end + 1] == b"\0":
            end += 1
        else:
            reader = FieldReader(body, end)
            properties = mqtt_properties.read(reader, PacketType.PUBLISH)
            end = len(body) - reader.left
            _check_publish(properties)
    if topic:
        check_topic(topic)
    elif properties is None or properties.topic_alias is None:
        raise ProtocolError("the topic is empty") if level == V5 else MalformedPacket("the topic is empty")
    return Publish(topic, body[end:], qos, bool(first & 1), dup, packet_id, properties)


def _check_publish(properties: Properties | None) -> None:
    if properties is None:
        return
    if properties.subscription_identifiers:
        raise ProtocolError("a client's PUBLISH has a subscription identifier")  # [MQTT-3.3.4-6]
    _check_response(properties)


def _check_response(properties: Properties | None) -> None:
    if properties is not None and properties.response_topic is not None:
        check_topic(properties.response_topic)  # [MQTT-3.3.2-14]


def check_topic(topic: str) -> None:
    """Raise MalformedPacket for an empty topic, and for one with wildcards."""
    if not topic:
        raise MalformedPacket("the topic is empty", ReasonCode.TOPIC_NAME_INVALID)
    if "#" in topic or "+" in topic:
        raise MalformedPacket("the topic contains wildcards", ReasonCode.TOPIC_NAME_INVALID)


# -- answers -------------------------------------------------------------------------------------------------------------


def _answer(kind: PacketType, make: type[_A]) -> Callable[[FieldReader, int], _A]:
    def decode_answer(reader: FieldReader, level: int) -> _A:
        packet_id = _packet_id(reader)
        reason, properties = 0, None
        if level == V5 and reader.left:
            reason = reader.byte()
            if reader.left:
                properties = mqtt_properties.read(reader, kind)
        return make(packet_id, reason, properties)

    return decode_answer


def _packet_id(reader: FieldReader) -> int:
    packet_id = reader.int16()
    if not packet_id:
        raise ProtocolError("the packet identifier is 0")
    return packet_id


# -- subscriptions ---------------------------------------------------------------------------------------------------------


def _subscribe(reader: FieldReader, level: int) -> Subscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, level, PacketType.SUBSCRIBE)
    filters: list[SubscriptionRequest] = []
    while reader.left:
        topic_filter = _filter(reader)
        filters.append(_options(topic_filter, reader.byte(), level))
        if len(filters) > FILTERS_MAX:
            raise ProtocolError("too many filters in one packet", ReasonCode.QUOTA_EXCEEDED)
    if not filters:
        raise ProtocolError("SUBSCRIBE without a filter")
    return Subscribe(packet_id, filters, properties)


def _filter(reader: FieldReader) -> str:
    topic_filter = reader.string()
    if not topic_filter:
        raise MalformedPacket("a filter is empty")  # [MQTT-4.7.3-1]
    return topic_filter


def _options(topic_filter: str, options: int, level: int) -> SubscriptionRequest:
    qos = options & 3
    if options & (0xC0 if level == V5 else 0xFC):
        raise MalformedPacket(f"subscription options {options:08b}")  # [MQTT-3.8.3-5]
    if qos == 3:
        raise ProtocolError("a filter at QoS 3")
    handling = options >> 4 & 3
    if handling == 3:
        raise ProtocolError("retain handling is 3")
    no_local = bool(options & 4)
    if no_local and topic_filter.startswith("$share/"):
        raise ProtocolError("a shared subscription with no local")  # [MQTT-3.8.3-4]
    return SubscriptionRequest(topic_filter, qos, no_local, bool(options & 8), handling)


def _unsubscribe(reader: FieldReader, level: int) -> Unsubscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, level, PacketType.UNSUBSCRIBE)
    filters: list[str] = []
    while reader.left:
        filters.append(_filter(reader))
        if len(filters) > FILTERS_MAX:
            raise ProtocolError("too many filters in one packet", ReasonCode.QUOTA_EXCEEDED)
    if not filters:
        raise ProtocolError("UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, filters, properties)


# -- the others --------------------------------------------------------------------------------------------------------------


def _pingreq(reader: FieldReader, level: int) -> Pingreq:
    return Pingreq()


def _disconnect(reader: FieldReader, level: int) -> Disconnect:
    if level != V5 or not reader.left:
        return Disconnect()
    reason = reader.byte()
    return Disconnect(reason, mqtt_properties.read(reader, PacketType.DISCONNECT) if reader.left else None)


def _auth(reader: FieldReader, level: int) -> Auth:
    if not reader.left:
        return Auth()
    reason = reader.byte()
    return Auth(reason, mqtt_properties.read(reader, PacketType.AUTH) if reader.left else None)


_DECODERS: Final[dict[PacketType, Callable[[FieldReader, int], Packet]]] = {
    PacketType.CONNECT: _connect,
    PacketType.PUBACK: _answer(PacketType.PUBACK, Puback),
    PacketType.PUBREC: _answer(PacketType.PUBREC, Pubrec),
    PacketType.PUBREL: _answer(PacketType.PUBREL, Pubrel),
    PacketType.PUBCOMP: _answer(PacketType.PUBCOMP, Pubcomp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.PINGREQ: _pingreq,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
