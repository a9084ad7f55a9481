"""S2 streams in blocks of 4 MiB, the largest that there are: klauspost's writer makes them of large archives."""

from __future__ import annotations

import random

import cramjam
import pytest

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.s2 import BLOCK_MAX, S2Reader, masked_crc

_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
_COMPRESSED, _PLAIN = 0, 1
_HALF = BLOCK_MAX // 2


def chunk(kind: int, content: bytes, data: bytes) -> bytes:
    """One block of a stream, which decodes to `data`."""
    return bytes((kind,)) + (len(content) + 4).to_bytes(3, "little") + masked_crc(data).to_bytes(4, "little") + content


def far_copies(first: bytes) -> bytes:
    """A block of `first` and its repetition: a literal, and copies of 64 bytes from `len(first)` bytes before."""
    size, length = 2 * len(first), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    literal = bytes((62 << 2,)) + (len(first) - 1).to_bytes(3, "little") + first
    copy = bytes((63 << 2 | 3,)) + len(first).to_bytes(4, "little")
    return bytes(length) + literal + copy * (len(first) // 64)


def read(stream: bytes, piece: int) -> list[bytes]:
    """The blocks of a stream that comes in pieces."""
    reader, blocks = S2Reader(), []
    for at in range(0, len(stream), piece):
        reader.feed(stream[at : at + piece])
        while (block := reader.next_block()) is not None:
            blocks.append(block)
    reader.end()
    return blocks


def test_blocks_of_4_mib_come_back() -> None:
    noise = random.Random(1).randbytes(BLOCK_MAX)
    text = b"".join(b"%08d " % number for number in range(BLOCK_MAX // 9 + 1))[:BLOCK_MAX]
    stream = _IDENTIFIER
    stream += chunk(_PLAIN, noise, noise)
    stream += chunk(_COMPRESSED, bytes(cramjam.snappy.compress_raw(text)), text)
    stream += chunk(_COMPRESSED, far_copies(noise[:_HALF]), noise[:_HALF] * 2)
    for piece in (len(stream), 128 << 10):
        assert read(stream, piece) == [noise, text, noise[:_HALF] * 2]


@pytest.mark.parametrize("kind", [_PLAIN, _COMPRESSED])
def test_larger_ones_are_refused(kind: int) -> None:
    data = bytes(BLOCK_MAX + 64)
    content = data if kind == _PLAIN else far_copies(data[: len(data) // 2])
    with pytest.raises(ArchiveError, match=r"s2: (corrupt input|decoded block is too large)"):
        read(_IDENTIFIER + chunk(kind, content, data), BLOCK_MAX)
