"""Uncompressed chunks of an S2 stream: the plain twin."""

from eyot_wire.archive.crc32c import crc32c

PLAIN = 0x01
BLOCK = 64 << 10
"""The largest block of a Snappy stream."""


def plain_chunks(parts: list[bytes]) -> bytes:
    """Return the bytes of `parts` in uncompressed chunks of `BLOCK` bytes; the last one may be shorter."""
    data = b"".join(parts)
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    return b"".join([head(PLAIN, len(block), crc32c(block)) + block for block in blocks])


def head(kind: int, size: int, crc: int) -> bytes:
    """Return what stands before a chunk's content of `size` bytes; `crc`: of its decoded bytes."""
    return bytes((kind,)) + (size + 4).to_bytes(3, "little") + masked(crc).to_bytes(4, "little")


def masked(crc: int) -> int:
    """Return a checksum as a chunk carries it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
