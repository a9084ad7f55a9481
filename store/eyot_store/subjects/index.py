"""How many messages each subject of a stream has, and which is its first and last: small enough for the disk, and as it is there.

An index summarizes the records of one stream that are in LMDB, up to the sequence it *covers*; what is above is read when the
index is. It is written as a base and changes behind it: nothing is looked up to write a change, so that a change costs the bytes
of its entries, whatever the number of subjects. When the changes outgrow the base they are folded into a new one.

An *entry* is ``(subject, count, first, last, low, high)``: ``count`` more messages of it (fewer where negative), of which
``first`` and ``last`` are the lowest and highest that came, ``low`` and ``high`` of those that went; 0 = none came, none went.
In a base nothing went, and a negative ``first`` says that the first is not known, but not below that.
``subject`` is None for records that could not be read. See docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from eyot_store.native import SubjectTable
from eyot_store.subject_table import UNREAD, Entry

CHUNK_ENTRIES = 1024
"""Entries in one record of a base: what is decoded in one go."""
CHANGE_ENTRIES = 4096
"""The same of a change."""
FOLD_BYTES_MIN = 64 << 10
"""Changes of fewer bytes are not folded into the base."""
SUBJECTS_MAX = 1 << 22
"""Streams with more subjects have no index: folding it would take too much memory (100 bytes each)."""


class IndexHead(msgspec.Struct, array_like=True, frozen=True):
    """How each record of an index begins; of the last one it holds for the index."""

    covered: int = 0
    """Records up to this sequence are counted,"""
    records: int = 0
    """and that many they are."""
    base_bytes: int = 0
    change_bytes: int = 0
    # Behind that, in each record, an array of entries (see ``SubjectTable.fold_record``).


encode_index = msgspec.msgpack.Encoder().encode
decode_index_head = msgspec.msgpack.Decoder(IndexHead).decode


def base_of(table: SubjectTable) -> Iterator[list[Entry]]:
    """The entries of a base that says what ``table`` does."""
    at = 0
    while True:
        found, at = table.scan(b"", at, CHUNK_ENTRIES)
        if found:
            yield [
                (None if subject == UNREAD else subject, count, first, last, 0, 0)
                for subject, count, first, last in found
            ]
        if not at:
            return
