"""Fields of packets: numbers, strings and binary data, read from a packet's body and written to one.

Sources: MQTT 5.0 and 3.1.1, section 1.5.
"""

from typing import Final

from eyot_wire.mqtt.errors import MalformedPacket, ProtocolError

#: The largest number that a variable byte integer holds: 4 bytes of 7 bits.
VARINT_MAX: Final = 268_435_455
STRING_BYTES_MAX: Final = 65_535


class FieldReader:
    """Reads the fields of one packet in their order. Raises MalformedPacket when they do not fit."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._at = start
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return self._end - self._at

    def byte(self) -> int:
        at = self._take(1)
        return self._data[at]

    def boolean(self) -> bool:
        """Read a byte that is 0 or 1; another value is a protocol error (MQTT 5, 2.2.2.2)."""
        value = self.byte()
        if value > 1:
            raise ProtocolError(f"a value of {value} where 0 or 1 is due")
        return value == 1

    def int16(self) -> int:
        at = self._take(2)
        return int.from_bytes(self._data[at : at + 2], "big")

    def int32(self) -> int:
        at = self._take(4)
        return int.from_bytes(self._data[at : at + 4], "big")

    def varint(self) -> int:
        """Read a variable byte integer, in as few bytes as it needs [MQTT-1.5.5-1]."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    raise MalformedPacket("a variable byte integer is longer than it needs to be")
                return value
            shift += 7
            if shift > 21:
                raise MalformedPacket("a variable byte integer has more than 4 bytes")

    def binary(self) -> bytes:
        """Read binary data behind its length in 2 bytes."""
        size = self.int16()
        at = self._take(size)
        return self._data[at : at + size]

    def string(self) -> str:
        """Read a UTF-8 string behind its length in 2 bytes."""
        return text(self.binary())

    def rest(self) -> bytes:
        """Read everything that is left."""
        at, self._at = self._at, self._end
        return self._data[at : self._end]

    def part(self, size: int) -> "FieldReader":
        """Return a reader for the next `size` bytes alone."""
        at = self._take(size)
        return FieldReader(self._data, at, at + size)

    def finish(self) -> None:
        """Raise MalformedPacket if something is left."""
        if self.left:
            raise MalformedPacket(f"{self.left} bytes behind the last field")

    def _take(self, size: int) -> int:
        at = self._at
        if at + size > self._end:
            raise MalformedPacket("the packet ends within a field")
        self._at = at + size
        return at


def text(data: bytes) -> str:
    """Return a string of MQTT: UTF-8 without surrogates and without U+0000 [MQTT-1.5.4-1, -2]."""
    if b"\0" in data:
        raise MalformedPacket("a string contains U+0000")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not UTF-8") from None


def varint(value: int) -> bytes:
    """Return a variable byte integer."""
    if value < 0x80:
        return bytes((value,))
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def binary(data: bytes) -> bytes:
    """Return binary data behind its length. Raises ValueError beyond 65,535 bytes."""
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes do not fit into a field")
    return len(data).to_bytes(2, "big") + data


def string(value: str) -> bytes:
    """Return a UTF-8 string behind its length. Raises ValueError beyond 65,535 bytes."""
    return binary(value.encode())
