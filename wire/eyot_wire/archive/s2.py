"""S2 streams: chunks of a type byte, a length of three bytes (little-endian) and content.

    0xff         the stream's identifier, `S2sTwO` or `sNaPpY`; comes first
    0x00, 0x01   a block, compressed or not, after a masked CRC-32C of its decoded bytes (4 bytes)
    0x80..0xfe   may be skipped (padding, an index)
    0x02..0x7f   may not be skipped

A block decodes to at most 4 MiB (64 KiB in a Snappy stream). The writer produces a Snappy stream, which every S2 reader
accepts: S2's extensions save little on messages, and a maintained library writes Snappy.

Source: the Snappy framing format and the S2 package's description (github.com/klauspost/compress/s2).
"""

from __future__ import annotations

from eyot_wire.archive.errors import ArchiveError, truncated
from eyot_wire.archive.native import crc32c, decode_block, plain_chunks
from eyot_wire.archive.plain_chunks import BLOCK, PLAIN, head, masked

BLOCK_MAX = 4 << 20
PIECE = 256 << 10
"""Bytes that are compressed in one call: the library holds the interpreter's lock meanwhile, and other threads wait."""
_IDENTIFIERS = (b"S2sTwO", b"sNaPpY")
_COMPRESSED, _SKIPPABLE, _IDENTIFIER = 0x00, 0x80, 0xFF
_CRC_BYTES = 4


def _content_max(block_max: int) -> int:
    """Return the largest chunk content of an incompressible block of `block_max` bytes."""
    return block_max + (block_max >> 5) + 64


class S2Reader:
    """Decodes a stream that arrives in pieces of any size, block by block.

    What is fed is not copied, but for chunks that two pieces share: it may be overwritten after `next_block` returned None,
    or after `hold`. `block_max`: the most bytes a block may decode to.
    """

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self.block_max = block_max
        self._held = bytearray()  # what came before `_fed`: a chunk that has begun, or all that `hold` was to keep
        self._fed = memoryview(b"")
        self._identified = False
        self._skip = 0  # bytes of a skipped chunk still to come

    @property
    def pending(self) -> int:
        """Bytes received and not yet decoded."""
        return len(self._held) + len(self._fed)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self.hold()
        self._fed = memoryview(data)

    def hold(self) -> None:
        """Copy what was fed and not decoded."""
        self._held += self._fed
        self._fed = memoryview(b"")

    def next_block(self) -> bytes | memoryview | None:
        """Return the next block's bytes; None when its chunk is incomplete. Raises ArchiveError.

        They are a part of what was fed if that holds all of an uncompressed chunk.
        """
        while (chunk := self._next_chunk()) is not None:
            kind, content = chunk[0], chunk[4:]
            if kind != _IDENTIFIER:
                return self._block(kind, content)
            if content not in _IDENTIFIERS:
                raise ArchiveError("s2: unsupported input")
            self._identified = True
        return None

    def end(self) -> None:
        """Mark the end of the input. Raises ArchiveError when bytes are missing."""
        if self.pending or self._skip:
            raise truncated()

    def _next_chunk(self) -> memoryview | None:
        """Return the next chunk that is not to be skipped; None: it is incomplete. Raises ArchiveError."""
        while True:
            if self._skip:
                self._skip -= self._pass_over(self._skip)
                if self._skip:
                    return None
            if self._held:
                self._top_up(4)
            begin = self._held or self._fed
            if len(begin) < 4:
                self.hold()
                return None
            kind, size = begin[0], 4 + int.from_bytes(begin[1:4], "little")
            self._check(kind, size - 4)
            if _SKIPPABLE <= kind < _IDENTIFIER:
                self._skip = size
            elif not self._held:
                if size > len(self._fed):
                    self.hold()
                    return None
                chunk, self._fed = self._fed[:size], self._fed[size:]
                return chunk
            else:
                self._top_up(size)
                if size > len(self._held):
                    return None
                if size == len(self._held):
                    chunk, self._held = memoryview(self._held), bytearray()
                    return chunk
                with memoryview(self._held) as held:
                    chunk = memoryview(bytes(held[:size]))
                del self._held[:size]
                return chunk

    def _top_up(self, size: int) -> None:
        """Move bytes, so that `size` are held if so many have come."""
        missing = size - len(self._held)
        if missing > 0:
            self._held += self._fed[:missing]
            self._fed = self._fed[missing:]

    def _pass_over(self, count: int) -> int:
        """Drop up to `count` bytes; return how many."""
        held = min(count, len(self._held))
        del self._held[:held]
        fed = min(count - held, len(self._fed))
        self._fed = self._fed[fed:]
        return held + fed

    def _check(self, kind: int, size: int) -> None:
        """Check the first four bytes of a chunk against the stream so far. Raises ArchiveError."""
        if not self._identified and kind != _IDENTIFIER:
            raise ArchiveError("s2: corrupt input")
        if kind == _IDENTIFIER and size != len(_IDENTIFIERS[0]):
            raise ArchiveError("s2: corrupt input")
        if kind in (_COMPRESSED, PLAIN) and not _CRC_BYTES <= size <= _content_max(self.block_max):
            raise ArchiveError("s2: corrupt input")
        if PLAIN < kind < _SKIPPABLE:
            raise ArchiveError("s2: unsupported input")

    def _block(self, kind: int, content: memoryview) -> bytes | memoryview:
        data: bytes | memoryview = content[_CRC_BYTES:]
        if kind == _COMPRESSED:
            try:
                data = decode_block(bytes(data), self.block_max)
            except ValueError as error:
                raise ArchiveError(str(error)) from None
        elif len(data) > self.block_max:
            raise ArchiveError("s2: corrupt input")
        if masked_crc(data) != int.from_bytes(content[:_CRC_BYTES], "little"):
            raise ArchiveError("s2: corrupt input")
        return data


class S2Writer:
    """Encodes bytes as a stream."""

    def __init__(self) -> None:
        import cramjam  # takes 1.6 MB of memory, which a device without backups and compressed links keeps

        self._compressor = cramjam.snappy.Compressor()

    def write(self, data: bytes) -> bytes:
        """Return the encoded bytes of `data`; the writer buffers nothing."""
        for at in range(0, len(data), PIECE):
            self._compressor.compress(data[at : at + PIECE])
        return bytes(self._compressor.flush())


def chunks(parts: list[bytes], *, compress: bool) -> bytes:
    """Encode the bytes of `parts` as chunks of a stream whose identifier was sent before.

    With `compress`, chunks are compressed where that makes them smaller.
    """
    if not compress:
        return plain_chunks(parts)
    data = b"".join(parts)
    encoded: list[bytes] = []
    for at in range(0, len(data), BLOCK):
        piece = data[at : at + BLOCK]
        packed = _compressed(piece)
        kind, content = (_COMPRESSED, packed) if len(packed) < len(piece) else (PLAIN, piece)
        encoded += (head(kind, len(content), crc32c(piece)), content)
    return b"".join(encoded)


def _compressed(piece: bytes) -> bytes:
    import cramjam  # here: a link that is near enough never compresses, and saves its memory

    return bytes(cramjam.snappy.compress_raw(piece))


def masked_crc(data: bytes | memoryview) -> int:
    """Return the masked checksum that a chunk carries."""
    return masked(crc32c(data))
