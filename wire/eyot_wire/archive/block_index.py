"""What of a stream's message blocks is still alive: nats-server's index files beside the blocks.

2.10 and later keep one `index.db` for all blocks: the stream's numbers, its subjects, and for each block its first and last
sequence and the set of deleted ones between; a hash over it all at the end. 2.9 keeps an `N.idx` for each block `N.blk`.
Messages that limits removed are in no other place marked as gone.

Source: nats-server's filestore.go.
"""

from __future__ import annotations

from typing import NamedTuple

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.native import HighwayHash64
from eyot_wire.archive.seqset import SeqSet, decode_seqset
from eyot_wire.archive.varint import Cursor, uvarint, varint

_HASH_BYTES = 8
_INDEX_MAGIC, _INDEX_VERSION_MAX = 11, 4
_FILE_MAGIC = 22
_ERASED = 1 << 63


class BlockState(NamedTuple):
    """A block as its index describes it; `dead`: sequences between first and last that are gone. `last_ts_ns`: the time of the
    last one, in a block's own index."""

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


def decode_index(data: bytes, hash64: HighwayHash64) -> StreamIndex:
    """`index.db`. Raises ArchiveError."""
    body = data[:-_HASH_BYTES]
    if len(data) < 32 or hash64.digest(body) != data[-_HASH_BYTES:]:
        raise ArchiveError("corrupt state file")
    version = body[1]
    if body[0] != _INDEX_MAGIC or not 1 <= version <= _INDEX_VERSION_MAX:
        raise ArchiveError("corrupt state file")
    cursor = Cursor(body, 2)
    cursor.uvarint(), cursor.uvarint()  # messages, bytes
    first_seq = cursor.uvarint()
    cursor.uvarint()
    last_seq = cursor.uvarint()
    last_ts_ns = cursor.varint()
    _skip_subjects(cursor, version)
    blocks: dict[int, BlockState] = {}
    for _ in range(cursor.uvarint()):
        number, _, first, _, last, _, dead_count = (cursor.uvarint() for _ in range(7))
        for _ in range(min(version - 1, 2)):  # how many messages with a TTL, and with a schedule
            cursor.uvarint()
        dead = decode_seqset(cursor) if dead_count else SeqSet()
        blocks[number] = BlockState(first, last, 0, dead)
    return StreamIndex(first_seq, last_seq, last_ts_ns, blocks)


def _skip_subjects(cursor: Cursor, version: int) -> None:
    for _ in range(cursor.uvarint()):
        length = cursor.uvarint()
        if not length:
            continue
        cursor.take(length)
        total = cursor.uvarint()
        cursor.uvarint()
        if total > 1 or version >= 4:
            cursor.uvarint()


def decode_block_index(data: bytes) -> BlockState:
    """An `N.idx` of 2.9. Raises ArchiveError."""
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
    dead: list[int] = []
    while cursor.left and len(dead) < count:
        distance = cursor.uvarint()
        if not distance:
            break
        dead.append(first + distance)
    return BlockState(first, last, last_ts_ns, SeqSet(seqs=frozenset(dead)))


def encode_empty_index(last_seq: int, last_ts_ns: int, record: bytes) -> bytes:
    """An `N.idx` of a block without messages whose last record is `record`: the stream goes on after `last_seq`."""
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
