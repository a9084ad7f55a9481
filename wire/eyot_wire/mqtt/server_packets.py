"""Reads the packets that a server sends: the client's end of a connection, for bridges."""

from collections.abc import Iterator
from typing import Final

from eyot_wire.mqtt import properties as mqtt_properties
from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError
from eyot_wire.mqtt.fields import FieldReader
from eyot_wire.mqtt.packet_types import V5, PacketType
from eyot_wire.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from eyot_wire.mqtt.reason_codes import ReasonCode

#: What CONNACK of 3.1.1 says (3.2.2.3), as reason codes of MQTT 5.
_CONNACK_311: Final = {
    0: ReasonCode.SUCCESS,
    1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    3: ReasonCode.SERVER_UNAVAILABLE,
    4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    5: ReasonCode.NOT_AUTHORIZED,
}
#: A server answers a CONNECT of MQTT 5 that it does not understand with the two bytes of 3.1.1.
_OLD_CONNACK_BYTES: Final = 2

#: What a server sends.
ServerPacket = Connack | Publish | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Pingresp | Disconnect | Auth
_SHARED: Final = frozenset(
    {
        PacketType.PUBLISH,
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.PUBCOMP,
        PacketType.DISCONNECT,
        PacketType.AUTH,
    }
)


def decode_from_server(first: int, body: bytes, level: int) -> ServerPacket:
    """Return a packet from a server. Raises MalformedPacket, ProtocolError."""
    kind = PacketType(first >> 4)
    if kind in _SHARED and not (kind is PacketType.DISCONNECT and level != V5):
        return decode(first, body, level)  # type: ignore[return-value]
    if first & 0x0F:
        raise MalformedPacket(f"the flags of {kind.name} are {first & 0x0F:04b}")
    reader = FieldReader(body)
    packet: ServerPacket
    if kind is PacketType.CONNACK:
        packet = _connack(reader, level)
    elif kind is PacketType.SUBACK:
        packet = _suback(reader, level)
    elif kind is PacketType.UNSUBACK:
        packet = _unsuback(reader, level)
    elif kind is PacketType.PINGRESP:
        packet = Pingresp()
    else:
        raise ProtocolError(f"a server does not send {kind.name}")
    reader.finish()
    return packet


def _connack(reader: FieldReader, level: int) -> Connack:
    is_old = level != V5 or reader.left == _OLD_CONNACK_BYTES
    flags, code = reader.byte(), reader.byte()
    if flags > 1:
        raise MalformedPacket("reserved flags of CONNACK are set")
    if is_old:
        reason = _CONNACK_311.get(code, ReasonCode.UNSPECIFIED_ERROR)
        if level == V5 and reason is ReasonCode.SUCCESS:
            raise MalformedPacket("CONNACK without properties")
        return Connack(flags == 1, reason)
    return Connack(flags == 1, reason_of(code), mqtt_properties.read(reader, PacketType.CONNACK))


def _suback(reader: FieldReader, level: int) -> Suback:
    packet_id = reader.int16()
    properties = mqtt_properties.read(reader, PacketType.SUBACK) if level == V5 else None
    return Suback(packet_id, [reason_of(code) for code in reader.rest()], properties)


def _unsuback(reader: FieldReader, level: int) -> Unsuback:
    packet_id = reader.int16()
    properties = mqtt_properties.read(reader, PacketType.UNSUBACK) if level == V5 else None
    return Unsuback(packet_id, [reason_of(code) for code in reader.rest()], properties)


def reason_of(code: int) -> ReasonCode:
    """Return a reason code; for one that the specification does not have, success or "unspecified error" by its range."""
    try:
        return ReasonCode(code)
    except ValueError:
        return ReasonCode.UNSPECIFIED_ERROR if code >= ReasonCode.UNSPECIFIED_ERROR else ReasonCode.SUCCESS


class ServerPacketReader:
    """Packets of a server from bytes that arrive in pieces of any size. `packet_bytes_max`: the largest, header included."""

    __slots__ = ("_buffer", "_level", "_max", "_missing")

    def __init__(self, level: int, packet_bytes_max: int) -> None:
        self._level = level
        self._max = packet_bytes_max
        self._buffer = bytearray()
        #: bytes until the packet in the buffer is whole; 0: not known
        self._missing = 0

    def feed(self, data: bytes | bytearray) -> Iterator[ServerPacket]:
        """Yield the packets that `data` completes; take all of them.

        Raises MalformedPacket or ProtocolError behind the packets before the fault; nothing can be read after that.
        """
        buffer = self._buffer
        buffer += data
        self._missing -= len(data)
        if self._missing > 0:
            return
        source, at = bytes(buffer), 0
        buffer.clear()
        self._missing = 0
        while at < len(source):
            start, length = self._header(source, at)
            if length < 0:
                break
            if start + length > len(source):
                self._missing = start + length - len(source)
                break
            yield decode_from_server(source[at], source[start : start + length], self._level)
            at = start + length
        buffer += source[at:]

    def _header(self, source: bytes, at: int) -> tuple[int, int]:
        """Return where the body begins and how long it is; (0, -1) when the header is not whole."""
        length = shift = 0
        for offset in range(1, 5):
            if at + offset >= len(source):
                return 0, -1
            byte = source[at + offset]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if offset + 1 + length > self._max:
                    raise ProtocolError(f"a packet of {length} bytes", ReasonCode.PACKET_TOO_LARGE)
                return at + offset + 1, length
        raise MalformedPacket("the remaining length has more than 4 bytes")
