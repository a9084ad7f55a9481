"""The properties of MQTT 5 (2.2.2.2): one table of their identifiers, types and packets."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from eyot_wire.mqtt import fields
from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError
from eyot_wire.mqtt.fields import FieldReader
from eyot_wire.mqtt.packet_types import PacketType

#: The will of a CONNECT has properties of its own; no packet has this type.
WILL: Final = PacketType.RESERVED


class Properties(Struct, omit_defaults=True):
    """The properties of one packet or will; None (or empty) where one is missing."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] = []
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[str, str]] = []
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


class _Kind(NamedTuple):
    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]


_BYTE = _Kind(lambda reader: int(reader.boolean()), lambda value: bytes((value,)))  # all bytes are 0 or 1
_INT16 = _Kind(FieldReader.int16, lambda value: int(value).to_bytes(2, "big"))
_INT32 = _Kind(FieldReader.int32, lambda value: int(value).to_bytes(4, "big"))
_VARINT = _Kind(FieldReader.varint, fields.varint)
_STRING = _Kind(FieldReader.string, fields.string)
_BINARY = _Kind(FieldReader.binary, fields.binary)
_PAIR = _Kind(
    lambda reader: (reader.string(), reader.string()), lambda pair: fields.string(pair[0]) + fields.string(pair[1])
)

_T = PacketType
_CONNECT = frozenset({_T.CONNECT})
_CONNACK = frozenset({_T.CONNACK})
_MESSAGE = frozenset({_T.PUBLISH, WILL})
_AUTHENTICATION = frozenset({_T.CONNECT, _T.CONNACK, _T.AUTH})
_ANSWERS = frozenset({_T.PUBACK, _T.PUBREC, _T.PUBREL, _T.PUBCOMP, _T.SUBACK, _T.UNSUBACK})
_REASON = _ANSWERS | {_T.CONNACK, _T.DISCONNECT, _T.AUTH}
_EVERYWHERE = _REASON | _MESSAGE | {_T.CONNECT, _T.SUBSCRIBE, _T.UNSUBSCRIBE}


class _Property(NamedTuple):
    name: str
    kind: _Kind
    packets: frozenset[PacketType]
    repeats: bool = False
    #: 0 is a protocol error
    positive: bool = False


#: identifier -> property
TABLE: Final[dict[int, _Property]] = {
    0x01: _Property("payload_format_indicator", _BYTE, _MESSAGE),
    0x02: _Property("message_expiry_interval", _INT32, _MESSAGE),
    0x03: _Property("content_type", _STRING, _MESSAGE),
    0x08: _Property("response_topic", _STRING, _MESSAGE),
    0x09: _Property("correlation_data", _BINARY, _MESSAGE),
    0x0B: _Property("subscription_identifiers", _VARINT, frozenset({_T.PUBLISH, _T.SUBSCRIBE}), True, True),
    0x11: _Property("session_expiry_interval", _INT32, frozenset({_T.CONNECT, _T.CONNACK, _T.DISCONNECT})),
    0x12: _Property("assigned_client_identifier", _STRING, _CONNACK),
    0x13: _Property("server_keep_alive", _INT16, _CONNACK),
    0x15: _Property("authentication_method", _STRING, _AUTHENTICATION),
    0x16: _Property("authentication_data", _BINARY, _AUTHENTICATION),
    0x17: _Property("request_problem_information", _BYTE, _CONNECT),
    0x18: _Property("will_delay_interval", _INT32, frozenset({WILL})),
    0x19: _Property("request_response_information", _BYTE, _CONNECT),
    0x1A: _Property("response_information", _STRING, _CONNACK),
    0x1C: _Property("server_reference", _STRING, frozenset({_T.CONNACK, _T.DISCONNECT})),
    0x1F: _Property("reason_string", _STRING, _REASON),
    0x21: _Property("receive_maximum", _INT16, _CONNECT | _CONNACK, positive=True),
    0x22: _Property("topic_alias_maximum", _INT16, _CONNECT | _CONNACK),
    0x23: _Property("topic_alias", _INT16, frozenset({_T.PUBLISH})),
    0x24: _Property("maximum_qos", _BYTE, _CONNACK),
    0x25: _Property("retain_available", _BYTE, _CONNACK),
    0x26: _Property("user_properties", _PAIR, _EVERYWHERE, True),
    0x27: _Property("maximum_packet_size", _INT32, _CONNECT | _CONNACK, positive=True),
    0x28: _Property("wildcard_subscription_available", _BYTE, _CONNACK),
    0x29: _Property("subscription_identifier_available", _BYTE, _CONNACK),
    0x2A: _Property("shared_subscription_available", _BYTE, _CONNACK),
}


def read(reader: FieldReader, packet: PacketType) -> Properties | None:
    """Return the properties of a packet, behind their length; None when there are none.

    Raises MalformedPacket for an identifier that is unknown or not valid for the packet (2.2.2.2), ProtocolError for one
    that comes twice.
    """
    size = reader.varint()
    if not size:
        return None
    part = reader.part(size)
    found = Properties()
    seen: set[int] = set()
    while part.left:
        identifier = part.varint()
        known = TABLE.get(identifier)
        if known is None:
            raise MalformedPacket(f"no property has the identifier {identifier}")
        value = known.kind.read(part)
        if packet not in known.packets:
            raise MalformedPacket(f"{known.name} does not belong to {packet.name}")
        if known.positive and not value:
            raise ProtocolError(f"{known.name} is 0")
        if known.repeats:
            getattr(found, known.name).append(value)
            continue
        if identifier in seen:
            raise ProtocolError(f"{known.name} comes twice")
        seen.add(identifier)
        setattr(found, known.name, value)
    _check(found, packet)
    return found


def _check(found: Properties, packet: PacketType) -> None:
    if packet is PacketType.SUBSCRIBE and len(found.subscription_identifiers) > 1:
        raise ProtocolError("subscription_identifiers comes twice")
    if found.authentication_data is not None and found.authentication_method is None:
        raise ProtocolError("authentication data without a method")


def write(properties: Properties | None) -> bytes:
    """Return properties behind their length."""
    if properties is None:
        return b"\0"
    made = b""
    for identifier, known in TABLE.items():
        value = getattr(properties, known.name)
        if value is None:
            continue
        head = bytes((identifier,))
        if known.repeats:
            made += b"".join(head + known.kind.write(each) for each in value)
        else:
            made += head + known.kind.write(value)
    return fields.varint(len(made)) + made
