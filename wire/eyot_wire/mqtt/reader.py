"""Cuts the bytes of a client into packets."""

from collections.abc import Iterator

from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError
from eyot_wire.mqtt.packet_types import V5, PacketType
from eyot_wire.mqtt.packets import Connect, Packet, Publish
from eyot_wire.mqtt.plain_publishes import PlainPublishes, plain_publishes
from eyot_wire.mqtt.reason_codes import ReasonCode


class PacketReader:
    """Packets from a stream of bytes that arrives in pieces of any size, in time linear in the bytes.

    `packet_bytes_max`: the largest packet, header included; `connect_bytes_max`: the same before CONNECT was read,
    while nobody knows the peer. What is kept of an unfinished packet never exceeds that.
    """

    __slots__ = ("_buffer", "_connect_max", "_level", "_max", "_missing")

    def __init__(self, packet_bytes_max: int, *, connect_bytes_max: int) -> None:
        self._max = packet_bytes_max
        self._connect_max = connect_bytes_max
        self._level = 0
        self._buffer = bytearray()
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
            if isinstance(packet, PlainPublishes):
                yield from packet.publishes()
            else:
                yield packet

    def feed_runs(self, data: bytes | bytearray | memoryview) -> Iterator[Packet | PlainPublishes]:
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
            packet = self._packet(source, at, start, end)
            if type(packet) is Publish:
                run, behind = plain_publishes(packet, source, at, self._level, self._max)
                if run is not None:
                    yield run
                    at = behind
                    continue
            yield packet
            at = end
        if at < size:
            buffer += source[at:]

    def _header(self, source: bytes, at: int) -> tuple[int, int]:
        """Return where the body begins and how long it is; (0, -1) when the header is not whole."""
        kind = source[at] >> 4
        if not self._level and kind != PacketType.CONNECT:
            raise ProtocolError("the first packet is not CONNECT")
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

    def _packet(self, source: bytes, at: int, start: int, end: int) -> Packet:
        packet = decode(source[at], source[start:end], self._level)
        if type(packet) is Connect:
            if self._level:
                raise ProtocolError("a second CONNECT")
            self._level = packet.protocol_level
        return packet
