"""The bytes of a link: plain, or an S2 stream in each direction once both sides agreed on it.

A block is self-contained, so a slice is packed as a whole and waits for no other. S2's extensions of Snappy save little
on messages: all compressing levels are written alike (`eyot_wire.archive.s2`). Both kinds are read.

A hostile peer can expand few bytes to many. Before authentication a block may expand to little. In one turn at most
`UNPACKED_PER_TURN` is unpacked; the rest waits for the next (`is_behind`), and a peer that sends beyond `BEHIND_MAX` is
disconnected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from eyot_sync.leaf.compression import AUTO, NOT_SUPPORTED, OFF, UNCOMPRESSED, LeafCompression, is_compressed
from eyot_wire.archive.errors import ArchiveError

if TYPE_CHECKING:
    from eyot_wire.archive.s2 import S2Reader

_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"

#: The largest unpacked block, bytes: S2's limit, and before the link is established that of an INFO or a CONNECT.
BLOCK_MAX = 4 << 20
BLOCK_MAX_FIRST = 32 << 10
UNPACKED_PER_TURN = 16 << 20
#: Packed bytes that may wait: two blocks of the largest size.
BEHIND_MAX = 8 << 20
#: Up to this a slice is assumed to shrink as those before it did.
_RATIO_MAX = 8.0
_RATIO_SHARE = 0.25
#: Shorter slices are no measure of compression.
_RATIO_SAMPLE_MIN = 256
#: With `s2_auto`, slices up to this go uncompressed while the distance is not known: the handshake is not worth the memory of
#: the compressor, which a near link never loads.
_EARLY_MAX = 4096
#: Counted for each block in a turn, however little it contains.
_BLOCK_COST = 256


class Chunks(Protocol):
    """`eyot_wire.archive.s2.chunks`."""

    def __call__(self, parts: list[bytes], *, compress: bool) -> bytes: ...


class LeafCodec:
    """The codec of one link. `mode`: this side's, once agreed with the peer. `ratio`: recent compression ratio, at least 1."""

    __slots__ = ("_chunks", "_clear", "_compression", "_has_begun", "_reader", "is_behind", "mode", "ratio")

    def __init__(self, compression: LeafCompression) -> None:
        self.mode = compression.mode
        self.ratio = 1.0
        self.is_behind = False
        self._compression = compression
        self._clear = b""
        self._has_begun = False
        self._reader: S2Reader | None = None
        self._chunks: Chunks

    @property
    def is_offered(self) -> bool:
        """Return whether the peer may still request S2."""
        return self._compression.is_offered and self._reader is None

    @property
    def told(self) -> str:
        """The word for the peer."""
        return AUTO if self._compression.mode == AUTO else self.mode

    def agree(self, theirs: str) -> bool:
        """Apply the peer's mode. True: everything is S2 from here on. Raises UnknownMode."""
        self.mode = self._compression.agreed(theirs)
        if not is_compressed(self.mode):
            return False
        from eyot_wire.archive import s2  # loads its library only where it is used

        self._reader = s2.S2Reader(BLOCK_MAX_FIRST)
        self._chunks = s2.chunks
        return True

    def heard_login(self, theirs: str) -> None:
        """Note the peer's mode in its CONNECT: without a request for S2 before it, the link stays uncompressed."""
        if self._reader is None:
            self.mode = OFF if theirs else NOT_SUPPORTED

    def established(self) -> None:
        """Lift the limit of blocks: the peer is authenticated."""
        if self._reader is not None:
            self._reader.block_max = BLOCK_MAX

    @property
    def pending(self) -> int:
        """Packed bytes that are received and not unpacked yet."""
        return 0 if self._reader is None else self._reader.pending

    def level(self, rtt_s: float | None) -> str:
        """Return this side's compression at this round-trip time, in nats-server's words."""
        return self._compression.level(self.mode, rtt_s)

    # -- out -------------------------------------------------------------------------------------------------------

    def say_in_clear(self, data: bytes) -> None:
        """Queue the last plain bytes before S2. Nothing may follow before the peer answers: it switches right after them."""
        self._clear = data

    @property
    def has_clear(self) -> bool:
        return bool(self._clear)

    def take_clear(self) -> bytes:
        data, self._clear = self._clear, b""
        return data

    def pack(self, parts: list[bytes], rtt_s: float | None) -> bytes:
        """Return the wire bytes of a slice that consists of `parts`."""
        if self._reader is None:
            return b"".join(parts)
        size = sum(map(len, parts))
        if not size:
            return b""
        is_early = rtt_s is None and self.mode == AUTO and size <= _EARLY_MAX
        compress = not is_early and self.level(rtt_s) != UNCOMPRESSED
        packed = self._chunks(parts, compress=compress)
        if not compress:
            self.ratio = 1.0
        elif size >= _RATIO_SAMPLE_MIN:
            ratio = max(1.0, min(size / len(packed), _RATIO_MAX))
            self.ratio += (ratio - self.ratio) * _RATIO_SHARE
        if self._has_begun:
            return packed
        self._has_begun = True
        return _IDENTIFIER + packed

    # -- in --------------------------------------------------------------------------------------------------------

    def unpack(self, data: bytes | bytearray | memoryview) -> Iterator[bytes | bytearray | memoryview]:
        """Yield the content of received bytes (and of those left over), up to the limit of a turn.

        Raises ArchiveError for malformed S2, and when too much waits already.
        """
        reader = self._reader
        if reader is None:
            yield data
            return
        reader.feed(data)
        if self.is_behind and reader.pending > BEHIND_MAX:
            raise ArchiveError("s2: more than can be unpacked")
        self.is_behind = False
        room = UNPACKED_PER_TURN
        try:
            while (block := reader.next_block()) is not None:
                room -= len(block) + _BLOCK_COST
                yield block
                if room <= 0:
                    self.is_behind = True
                    return
        finally:
            reader.hold()  # `data` may be the buffer of the next read
