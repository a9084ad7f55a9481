"""Committed records of a range as they are stored, for who copies them on without looking inside.

A reading is planned in the loop's thread (``Log.reading``), where it is known what is committed and what a staged removal
has taken away; the function it returns does the work, in whatever thread calls it, in short read transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from eyot_store.records import StoredMessage, decode_head, encode_body, pack_u64, seq_of

RECORDS_MAX = 1024
"""Records read in one transaction (about half a millisecond, in which a resize of the map has to wait)."""


RECORD_COST = 16
"""What each record counts for on top of its own size, so that a directory of them has room in the same bytes."""


class RecordBlock(NamedTuple):
    """Records in ascending order, and where to go on: nothing below ``next_seq`` was left out.

    ``keys``      sequences, 8 bytes big-endian each
    ``records``   MessagePack ``[ts_ns, subject, header, payload]``
    """

    keys: list[bytes]
    records: list[bytes]
    next_seq: int


Reading = Callable[[], RecordBlock]
"""Raises StoreError("corrupt") when the first record it meets does not hold what was written; else it ends before it."""


def block_of(messages: list[StoredMessage], next_seq: int, max_bytes: int) -> RecordBlock:
    """Decoded messages as records again, up to ``max_bytes``."""
    keys: list[bytes] = []
    records: list[bytes] = []
    for message in messages:
        record = encode_body((message.ts_ns, message.subject, message.header, message.payload))
        max_bytes -= len(record) + RECORD_COST
        if max_bytes < 0 and keys:
            return RecordBlock(keys, records, message.seq)
        keys.append(pack_u64(message.seq))
        records.append(record)
    return RecordBlock(keys, records, next_seq)


def without(block: RecordBlock, seqs: Collection[int]) -> RecordBlock:
    """The block less the records at ``seqs``."""
    if not seqs:
        return block
    kept = [index for index, key in enumerate(block.keys) if seq_of(key) not in seqs]
    return _chosen(block, kept)


def matching(block: RecordBlock, match: Callable[[bytes], bool]) -> RecordBlock:
    """The block less the records on other subjects."""
    kept = [index for index, record in enumerate(block.records) if match(subject_of(record))]
    return _chosen(block, kept)


def subject_of(record: bytes) -> bytes:
    """The subject in a record."""
    # uint64 and bin8, as nearly every record has them.
    if record[1] == 0xCF and record[10] == 0xC4:
        return record[12 : 12 + record[11]]
    return decode_head(record).subject


def _chosen(block: RecordBlock, kept: list[int]) -> RecordBlock:
    if len(kept) == len(block.keys):
        return block
    return RecordBlock([block.keys[i] for i in kept], [block.records[i] for i in kept], block.next_seq)
