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
from eyot_wire.archive.native import crc32c, decode_block

BLOCK_MAX = 4 << 20
PIECE = 256 << 10
"""Bytes that are compressed in one call: the library holds the interpreter's lock meanwhile, and other threads wait."""
_IDENTIFIERS = (b"S2sTwO", b"sNaPpY")
_SNAPPY_BLOCK = 64 << 10
_COMPRESSED, _PLAIN, _SKIPPABLE, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_CRC_BYTES = 4


def _content_max(block_max: int) -> int:
    """Return the largest chunk content of an incompressible block of `block_max` bytes."""
    return block_max + (block_max >> 5) + 64


class S2Reader:
    """Decodes a stream that arrives in pieces of any size, block by block.

    `block_max`: the most bytes a block may decode to.
    """

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self.block_max = block_max
        self._input = bytearray()
        self._identified = False
        self._skip = 0  # bytes of a skipped chunk still to come

    @property
    def pending(self) -> int:
        """Bytes received and not yet decoded."""
        return len(self._input)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._input += data

    def next_block(self) -> bytes | None:
        """Return the next block's bytes; None when its chunk is incomplete. Raises ArchiveError."""
        while True:
            if self._skip:
                passed = min(self._skip, len(self._input))
                del self._input[:passed]
                self._skip -= passed
                if self._skip:
                    return None
            if len(self._input) < 4:
                return None
            kind = self._input[0]
            size = int.from_bytes(self._input[1:4], "little")
            self._check(kind, size)
            if _SKIPPABLE <= kind < _IDENTIFIER:
                self._skip = size + 4
                continue
            if len(self._input) < 4 + size:
                return None
            block = None
            with memoryview(self._input) as view, view[4 : 4 + size] as content:
                if kind != _IDENTIFIER:
                    block = self._block(kind, content)
                elif content not in _IDENTIFIERS:
                    raise ArchiveError("s2: unsupported input")
            del self._input[: 4 + size]
            if block is not None:
                return block
            self._identified = True

    def end(self) -> None:
        """Mark the end of the input. Raises ArchiveError when bytes are missing."""
        if self._input or self._skip:
            raise truncated()

    def _check(self, kind: int, size: int) -> None:
        """Check the first four bytes of a chunk against the stream so far. Raises ArchiveError."""
        if not self._identified and kind != _IDENTIFIER:
            raise ArchiveError("s2: corrupt input")
        if kind == _IDENTIFIER and size != len(_IDENTIFIERS[0]):
            raise ArchiveError("s2: corrupt input")
        if kind in (_COMPRESSED, _PLAIN) and not _CRC_BYTES <= size <= _content_max(self.block_max):
            raise ArchiveError("s2: corrupt input")
        if _PLAIN < kind < _SKIPPABLE:
            raise ArchiveError("s2: unsupported input")

    def _block(self, kind: int, content: memoryview) -> bytes:
        data = bytes(content[_CRC_BYTES:])
        if kind == _COMPRESSED:
            try:
                data = decode_block(data, self.block_max)
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


def chunks(data: bytes, *, compress: bool) -> bytes:
    """Encode `data` as chunks of a stream whose identifier was sent before.

    With `compress`, chunks are compressed where that makes them smaller.
    """
    parts: list[bytes] = []
    for at in range(0, len(data), _SNAPPY_BLOCK):
        piece = data[at : at + _SNAPPY_BLOCK]
        kind, content = _PLAIN, piece
        if compress:
            packed = _compressed(piece)
            if len(packed) < len(piece):
                kind, content = _COMPRESSED, packed
        size = len(content) + _CRC_BYTES
        parts += (bytes((kind,)), size.to_bytes(3, "little"), masked_crc(piece).to_bytes(4, "little"), content)
    return b"".join(parts)


def _compressed(piece: bytes) -> bytes:
    import cramjam  # here: a link that is near enough never compresses, and saves its memory

    return bytes(cramjam.snappy.compress_raw(piece))


def masked_crc(data: bytes) -> int:
    """Return the masked checksum that a chunk carries."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
