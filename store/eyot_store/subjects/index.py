"""The subject index of a stream on disk: how many messages each subject has, and its first and last.

An index summarizes the records of one stream in LMDB, up to the sequence it *covers*; records above are read when the
index is loaded. It consists of a base and later changes. Writing a change needs no lookup, so it costs the bytes of its
entries, whatever the number of subjects. When the changes outgrow the base, they are folded into a new base.

An *entry* is `(subject, count, first, last, low, high)`: `count` more messages (fewer if negative); `first` and
`last` are the lowest and highest added sequence, `low` and `high` those removed; 0: none. A base has no removals;
a negative `first` in it means that the first is unknown, but not below its absolute value. `subject` is None for
unreadable records. See docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from eyot_store.native import SubjectTable
from eyot_store.subject_table import UNREAD, Entry

CHUNK_ENTRIES = 1024
"""Entries in one record of a base; a record is decoded in one go."""
CHANGE_ENTRIES = 4096
"""Entries in one record of a change."""
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
    # Each record continues with an array of entries (see `SubjectTable.fold_record`).


encode_index = msgspec.msgpack.Encoder().encode
decode_index_head = msgspec.msgpack.Decoder(IndexHead).decode


def base_of(table: SubjectTable) -> Iterator[list[Entry]]:
    """Yield the entries of a base equal to `table`."""
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
