"""Cuts the bytes of a client into packets."""

from collections.abc import Iterator
from typing import Final

from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError
from eyot_wire.mqtt.native import scan_acked, scan_mixed, scan_run
from eyot_wire.mqtt.packet_types import V5, PacketType
from eyot_wire.mqtt.packets import Answer, Auth, Connect, Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from eyot_wire.mqtt.plain_publishes import AckedPublishes, MixedPublishes, PlainPublishes
from eyot_wire.mqtt.publish_run import ACKED_PUBLISH, PLAIN_PUBLISH
from eyot_wire.mqtt.reason_codes import ReasonCode

#: What a reader remembers of a client's topics: how many, and the longest, bytes.
HEADS_MAX: Final = 256
HEAD_BYTES_MAX: Final = 256

Runs = PlainPublishes | MixedPublishes | AckedPublishes
WITH_REASON: Final = (Answer, Disconnect, Auth)
RUNS: Final = (PlainPublishes, MixedPublishes, AckedPublishes)


#: Types of packets that end the connection with their first byte.
NEVER_FROM_CLIENTS: Final = frozenset(
    {PacketType.RESERVED, PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}
)
_OF_PUBREL: Final = frozenset({0, 0x92})
_OF_PUBACK: Final = frozenset({0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
#: The reason codes that a client may send (MQTT 5, 2.4).
_REASONS: Final[dict[type[Packet], frozenset[int]]] = {
    Puback: _OF_PUBACK,
    Pubrec: _OF_PUBACK,
    Pubrel: _OF_PUBREL,
    Pubcomp: _OF_PUBREL,
    Disconnect: frozenset({0, 4, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)}),
    Auth: frozenset({0, 0x18, 0x19}),
}


class PacketReader:
    """Packets from a stream of bytes that arrives in pieces of any size, in time linear in the bytes.

    `packet_bytes_max`: the largest packet, header included; `connect_bytes_max`: the same before CONNECT was read,
    while nobody knows the peer. What is kept of an unfinished packet never exceeds that.
    """

    __slots__ = ("_acked", "_buffer", "_connect_max", "_level", "_max", "_missing", "_topics")

    def __init__(self, packet_bytes_max: int, *, connect_bytes_max: int) -> None:
        self._max = packet_bytes_max
        self._connect_max = connect_bytes_max
        self._level = 0
        self._buffer = bytearray()
        #: topics of plain publishes by the bytes before the payload; None before the first
        self._topics: dict[bytes, str] | None = None
        #: the bytes before the identifier of the last run of QoS 1, and its topic; None before the first
        self._acked: tuple[bytes, str] | None = None
        #: bytes until the packet in the buffer is whole; 0: not known
        self._missing = 0

    @property
    def pending(self) -> int:
        """Bytes kept of a packet that is not whole."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Packet]:
        """Yield the packets that `data` completes; take all of them.

        Raises MalformedPacket or ProtocolError behind the packets before the fault; nothing can be read after that.
        """
        for packet in self.feed_runs(data):
            if isinstance(packet, RUNS):
                yield from packet.publishes()
            else:
                yield packet

    def feed_runs(self, data: bytes | bytearray | memoryview) -> Iterator[Packet | Runs]:
        """Yield the packets that `data` completes, with plain publishes as runs; take all of them.

        Raises MalformedPacket or ProtocolError behind the packets before the fault; nothing can be read after that.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            self._missing -= len(data)
            if self._missing > 0:
                return
            source = bytes(buffer)
            buffer.clear()
        else:
            source = bytes(data)
        at, size = 0, len(source)
        while at < size:
            start, length = self._header(source, at)
            if length < 0:
                self._missing = 1
                break
            end = start + length
            if end > size:
                self._missing = end - size
                break
            if source[at] == PLAIN_PUBLISH or source[at] == ACKED_PUBLISH:
                scan = self._run if source[at] == PLAIN_PUBLISH else self._acked_run
                run, at = scan(source, at, start, end)
                yield run
                continue
            yield self._packet(source, at, start, end)
            at = end
        if at < size:
            buffer += source[at:]

    def acked_alone(self, data: bytes | bytearray | memoryview) -> AckedPublishes | None:
        """Return the run that `data` is as a whole, if it is one of QoS 1 on the topic of the last one; None: `feed_runs` reads it."""
        if self._acked is None or self._buffer:
            return None
        head, topic = self._acked
        source = bytes(data)
        scanned = scan_acked(source, 0, head, self._level == V5, self._max)
        return AckedPublishes(topic, scanned) if scanned.packet_ids and scanned.end == len(source) else None

    def _header(self, source: bytes, at: int) -> tuple[int, int]:
        """Return where the body begins and how long it is; (0, -1) when the header is not whole."""
        kind = source[at] >> 4
        if not self._level and kind != PacketType.CONNECT:
            raise ProtocolError("the first packet is not CONNECT")
        if kind in NEVER_FROM_CLIENTS:
            raise ProtocolError(f"a client does not send {PacketType(kind).name}")
        length = shift = 0
        for offset in range(1, 5):
            if at + offset >= len(source):
                return 0, -1
            byte = source[at + offset]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if offset > 1 and not byte and self._level in (0, V5):
                    raise MalformedPacket("the remaining length is longer than it needs to be")
                most = self._max if self._level else self._connect_max
                if offset + 1 + length > most:
                    raise ProtocolError(f"a packet of {length} bytes", ReasonCode.PACKET_TOO_LARGE)
                return at + offset + 1, length
        raise MalformedPacket("the remaining length has more than 4 bytes")

    def _run(self, source: bytes, at: int, start: int, end: int) -> tuple[Runs | Packet, int]:
        """Return the run of plain publishes that begins with a packet, or the packet alone, and where the next one begins.

        The decoder reads the first packet of each topic; what it found is remembered with the bytes before the payload.
        """
        is_v5 = self._level == V5
        head = source[start : start + 2 + int.from_bytes(source[start : start + 2], "big") + is_v5]
        known = None if self._topics is None or len(head) > end - start else self._topics.get(head)
        if known is None:
            packet = self._packet(source, at, start, end)
            if type(packet) is not Publish or packet.properties is not None or (is_v5 and head[-1:] != b"\0"):
                return packet, end
            known = packet.topic
            self._remember(head, known)
        else:
            packet = None
        scanned = scan_run(source, at, head, self._max)
        if not scanned.msgs:
            return packet or self._packet(source, at, start, end), end
        if scanned.end < len(source) and source[scanned.end] == PLAIN_PUBLISH and self._topics is not None:
            mixed = scan_mixed(source, at, self._topics, int(is_v5), self._max)
            if len(mixed.heads) > 1:
                packets = source[at : mixed.end]
                return MixedPublishes(self._level, packets, self._topics, mixed), mixed.end
        whole = not at and scanned.end == len(source)
        packets = source if whole else source[at : scanned.end]
        return PlainPublishes(known, self._level, packets, len(head), scanned), scanned.end

    def _acked_run(self, source: bytes, at: int, start: int, end: int) -> tuple[Runs | Packet, int]:
        """Return the run of publishes of QoS 1 that begins with a packet, or the packet alone, and where the next one begins."""
        is_v5 = self._level == V5
        head = source[start : start + 2 + int.from_bytes(source[start : start + 2], "big")]
        known = None if self._topics is None or len(head) > end - start else self._topics.get(head)
        if known is None:
            packet = self._packet(source, at, start, end)
            if type(packet) is not Publish or packet.properties is not None or not packet.topic:
                return packet, end
            known = packet.topic
            self._remember(head, known)
        scanned = scan_acked(source, at, head, is_v5, self._max)
        if not scanned.packet_ids:
            return self._packet(source, at, start, end), end
        if len(head) <= HEAD_BYTES_MAX:
            self._acked = head, known
        return AckedPublishes(known, scanned), scanned.end

    def _remember(self, head: bytes, topic: str) -> None:
        if len(head) > HEAD_BYTES_MAX:
            return
        if self._topics is None or len(self._topics) >= HEADS_MAX:
            self._topics = {}
        self._topics[head] = topic

    def _packet(self, source: bytes, at: int, start: int, end: int) -> Packet:
        if self._level and source[at] >> 4 == PacketType.CONNECT:
            raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2], whatever is in it
        packet = decode(source[at], source[start:end], self._level)
        if type(packet) is Connect:
            self._level = packet.protocol_level
        else:
            check_reason(packet)
        return packet


def check_reason(packet: Packet) -> None:
    """Raise ProtocolError for a reason code that a client does not send with such a packet."""
    if isinstance(packet, WITH_REASON) and packet.reason_code and packet.reason_code not in _REASONS[type(packet)]:
        raise ProtocolError(f"{type(packet).__name__} with reason code {packet.reason_code:#x}")
