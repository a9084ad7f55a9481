"""Go's variable-length integers: seven bits a byte, the lowest first; signed integers are zigzag-encoded."""

from __future__ import annotations

from eyot_wire.archive.errors import ArchiveError

BYTES_MAX = 10
_M64 = (1 << 64) - 1


def uvarint(value: int) -> bytes:
    """Encode `value` (0 to 2^64 - 1)."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a signed `value` of 64 bits."""
    return uvarint((value << 1 ^ value >> 63) & _M64)


def unzigzag(value: int) -> int:
    """Return the signed integer that an unsigned zigzag value encodes."""
    return value >> 1 ^ -(value & 1)


class Cursor:
    """A buffer read from front to back. Every method raises ArchiveError when the buffer ends too early."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def uvarint(self) -> int:
        value = shift = 0
        for byte in self.data[self.at : self.at + BYTES_MAX]:
            value |= (byte & 0x7F) << shift
            self.at += 1
            if byte < 0x80:
                if value > _M64:
                    break
                return value
            shift += 7
        raise ArchiveError("corrupt state")

    def varint(self) -> int:
        return unzigzag(self.uvarint())

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise ArchiveError("corrupt state")
        self.at += size
        return piece

    @property
    def left(self) -> int:
        return len(self.data) - self.at
