"""Which messages of a stream's message blocks still exist: nats-server's index files beside the blocks.

nats-server 2.10 and later keep one `index.db` for all blocks. It holds the stream's numbers, its subjects, and for each
block the first and last sequence and the set of deleted sequences between them, followed by a hash over everything.
nats-server 2.9 keeps an `N.idx` for each block `N.blk`. No other file marks messages that limits removed.

Source: nats-server's filestore.go.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator
from functools import partial
from typing import NamedTuple, TypeVar

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.native import HighwayHash64
from eyot_wire.archive.seqset import NODE_WIDTH, SeqSet, decode_seqset
from eyot_wire.archive.varint import Cursor, uvarint, varint
from eyot_wire.archive.window import Window

T = TypeVar("T")

DEAD_BYTES_MAX = 16 << 20
"""Largest index of deleted sequences in blocks, bytes. A larger one is ignored."""
_HASH_BYTES = 8
_INDEX_BYTES_MIN = 32
_PIECE = 64 << 10
_ITEM_MAX = 4 << 20  # a subject, or a block with its deleted sequences
_INDEX_MAGIC, _INDEX_VERSION_MAX = 11, 4
_FILE_MAGIC = 22
_ERASED = 1 << 63


class BlockState(NamedTuple):
    """A block as its index describes it.

    `dead`: deleted sequences between first and last. `last_ts_ns`: the time of the last message, only in a 2.9 index.
    """

    first_seq: int
    last_seq: int
    last_ts_ns: int
    dead: SeqSet


class StreamIndex(NamedTuple):
    """`index.db`: blocks by number."""

    first_seq: int
    last_seq: int
    last_ts_ns: int
    blocks: dict[int, BlockState]


def read_index(
    window: Window, size: int, hash64: HighwayHash64, wanted: Container[int]
) -> Generator[bool | None, None, StreamIndex]:
    """Read an `index.db` of `size` bytes and return the blocks that are `wanted`.

    The file is parsed as it arrives, since it may be large and its subjects are not needed. The window always moves
    past all `size` bytes, even on errors. Raises ArchiveError.
    """
    parser = _IndexParser(wanted)
    left, made = size - _HASH_BYTES, b""
    try:
        if size < _INDEX_BYTES_MIN:
            raise ArchiveError("corrupt state file")
        while left:
            piece = yield from window.take(min(left, _PIECE))
            left -= len(piece)
            if left:
                hash64 = hash64.behind(piece)
            else:
                made = hash64.digest(piece)
            parser.feed(piece, whole=not left)
    except ArchiveError:
        yield from window.skip(left + _HASH_BYTES if size >= _HASH_BYTES else size)
        raise
    if (yield from window.take(_HASH_BYTES)) != made or parser.index is None:
        raise ArchiveError("corrupt state file")
    return parser.index


class _IndexParser:
    """Parses `index.db` piece by piece. `index`: the result, set at the end."""

    def __init__(self, wanted: Container[int]) -> None:
        self.index: StreamIndex | None = None
        self._wanted = wanted
        self._data = b""
        self._at = 0
        self._whole = False
        self._grammar = self._read()

    def feed(self, piece: bytes, *, whole: bool) -> None:
        """Parse the next bytes; `whole`: they are the last. Raises ArchiveError."""
        self._data, self._at, self._whole = self._data[self._at :] + piece, 0, whole
        try:
            next(self._grammar)
        except StopIteration as end:
            self.index = end.value

    def _item(self, read: Callable[[Cursor], T]) -> Generator[None, None, T]:
        """Parse one item with `read` as soon as enough bytes have arrived."""
        while True:
            cursor = Cursor(self._data, self._at)
            try:
                value = read(cursor)
            except ArchiveError:
                if self._whole or len(self._data) - self._at > _ITEM_MAX:
                    raise
                yield
                continue
            self._at = cursor.at
            return value

    def _read(self) -> Generator[None, None, StreamIndex]:
        version, first_seq, last_seq, last_ts_ns = yield from self._item(_index_head)
        for _ in range((yield from self._item(Cursor.uvarint))):
            yield from self._item(partial(_skip_subject, version=version))
        blocks: dict[int, BlockState] = {}
        dead_bytes = 0
        for _ in range((yield from self._item(Cursor.uvarint))):
            before = self._at
            number, state = yield from self._item(partial(_index_block, version=version))
            if number in self._wanted:
                dead_bytes += max(self._at - before, 0)
                blocks[number] = state
                if dead_bytes > DEAD_BYTES_MAX:
                    raise ArchiveError("the index is too large")
        return StreamIndex(first_seq, last_seq, last_ts_ns, blocks)


def _index_head(cursor: Cursor) -> tuple[int, int, int, int]:
    magic, version = cursor.take(2)
    if magic != _INDEX_MAGIC or not 1 <= version <= _INDEX_VERSION_MAX:
        raise ArchiveError("corrupt state file")
    cursor.uvarint(), cursor.uvarint()  # messages, bytes
    first_seq = cursor.uvarint()
    cursor.uvarint()
    last_seq = cursor.uvarint()
    return version, first_seq, last_seq, cursor.varint()


def _skip_subject(cursor: Cursor, version: int) -> None:
    length = cursor.uvarint()
    if not length:
        return
    cursor.take(length)
    total = cursor.uvarint()
    cursor.uvarint()
    if total > 1 or version >= 4:
        cursor.uvarint()


def _index_block(cursor: Cursor, version: int) -> tuple[int, BlockState]:
    number, _, first, _, last, _, dead_count = (cursor.uvarint() for _ in range(7))
    for _ in range(min(version - 1, 2)):  # numbers of messages with a TTL and with a schedule
        cursor.uvarint()
    return number, BlockState(first, last, 0, decode_seqset(cursor) if dead_count else SeqSet())


def decode_block_index(data: bytes) -> BlockState:
    """Decode an `N.idx` of nats-server 2.9. Raises ArchiveError."""
    cursor = Cursor(data, 2)
    if data[:1] != bytes((_FILE_MAGIC,)) or data[1] not in (1, 2):
        raise ArchiveError("bad index file")
    cursor.uvarint(), cursor.uvarint()  # messages, bytes
    first = cursor.uvarint() & ~_ERASED
    cursor.uvarint()
    last = cursor.uvarint() & ~_ERASED
    last_ts_ns = cursor.varint()
    count = cursor.uvarint()
    cursor.take(_HASH_BYTES)
    if not count:
        return BlockState(first, last, last_ts_ns, SeqSet())
    if data[1] == 2:
        return BlockState(first, last, last_ts_ns, decode_seqset(cursor))
    nodes: dict[int, int] = {}
    while cursor.left and count:
        distance = cursor.uvarint()
        if not distance:
            break
        count -= 1
        node, bit = divmod(first + distance, NODE_WIDTH)
        nodes[node * NODE_WIDTH] = nodes.get(node * NODE_WIDTH, 0) | 1 << bit
    return BlockState(first, last, last_ts_ns, SeqSet(nodes))


def encode_empty_index(last_seq: int, last_ts_ns: int, record: bytes) -> bytes:
    """Encode an `N.idx` for a block without messages.

    `record` is the block's last record; the stream continues after `last_seq`.
    """
    numbers = (
        uvarint(0),
        uvarint(0),
        uvarint(last_seq + 1),
        varint(0),
        uvarint(last_seq),
        varint(last_ts_ns),
        uvarint(0),
    )
    return b"".join((bytes((_FILE_MAGIC, 1)), *numbers, record[-_HASH_BYTES:]))
