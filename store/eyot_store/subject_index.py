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

from collections.abc import Iterable, Iterator

import msgspec

from eyot_store.codec import RecordCodec
from eyot_store.errors import StoreError
from eyot_store.hot import note_records

Entry = tuple[bytes | None, int, int, int, int, int]

CHUNK_ENTRIES = 1024
"""Entries in one record of a base: what is decoded in one go."""
FOLD_BYTES_MIN = 64 << 10
"""Changes of fewer bytes are not folded into the base."""
SUBJECTS_MAX = 1 << 20
"""Streams with more subjects have no index: folding it would take too much memory."""


class IndexHead(msgspec.Struct, array_like=True, frozen=True):
    """How each record of an index begins; of the last one it holds for the index."""

    covered: int = 0
    """Records up to this sequence are counted,"""
    records: int = 0
    """and that many they are."""
    base_bytes: int = 0
    change_bytes: int = 0


class IndexRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record of an index, whole."""

    covered: int
    records: int
    base_bytes: int
    change_bytes: int
    entries: list[Entry]


encode_index = msgspec.msgpack.Encoder().encode
decode_index = msgspec.msgpack.Decoder(IndexRecord).decode
decode_index_head = msgspec.msgpack.Decoder(IndexHead).decode


class Change:
    """Entries under way, by subject."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes | None, list[int]] = {}

    def came(self, subject: bytes | None, seq: int) -> None:
        """A record is there; called with ascending sequences."""
        entry = self._entries.get(subject)
        if entry is None:
            self._entries[subject] = [1, seq, seq, 0, 0]
        else:
            entry[0] += 1
            entry[1] = entry[1] or seq
            entry[2] = seq

    def came_all(self, records: Iterable[tuple[bytes, bytes]], limit: int, codec: RecordCodec) -> tuple[int, int]:
        """Records (key, value) in ascending order are there, ``limit`` at most are looked at: how many, and the last's sequence."""
        opened = None if codec.opened is None else codec.body_or_none
        return note_records(records, limit, codec.salt, opened, self._entries)

    def went(self, subject: bytes | None, seq: int) -> None:
        """A record is gone."""
        entry = self._entries.get(subject)
        if entry is None:
            self._entries[subject] = [-1, 0, 0, seq, seq]
        else:
            entry[0] -= 1
            entry[3] = min(entry[3], seq) or seq
            entry[4] = max(entry[4], seq)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def entries(self) -> list[Entry]:
        return [(subject, *numbers) for subject, numbers in self._entries.items()]  # type: ignore[misc]


class Summary:
    """Everything an index says: ``counts[subject]`` is ``[count, first, last]``, first and last as in a base's entry."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[bytes | None, list[int]] = {}

    def fold(self, entries: Iterable[Entry]) -> None:
        """Take in entries. Raises StoreError("corrupt"): they do not follow from what was before."""
        counts = self.counts
        for subject, count, first, last, low, high in entries:
            known = counts.get(subject)
            if known is None:
                if count > 0:
                    counts[subject] = known = [count, first, last]
                elif count:
                    raise StoreError("corrupt", "an index of subjects counts below zero")
                else:
                    continue
            else:
                known[0] += count
                if known[0] <= 0:
                    if known[0]:
                        raise StoreError("corrupt", "an index of subjects counts below zero")
                    del counts[subject]
                    continue
                known[2] = last or known[2]
            if high:
                self._went(known, low, high)

    @staticmethod
    def _went(known: list[int], low: int, high: int) -> None:
        count, first, last = known
        if low <= first <= high:
            known[1] = -first
        if low <= last <= high:
            known[2] = 0
        if count == 1:  # the one that is known is the one that is left
            if known[1] <= 0 and known[2]:
                known[1] = known[2]
            elif known[1] > 0 and not known[2]:
                known[2] = known[1]

    def total(self) -> int:
        return sum(known[0] for known in self.counts.values())

    def chunks(self) -> Iterator[list[Entry]]:
        """The entries of a base."""
        chunk: list[Entry] = []
        for subject, (count, first, last) in self.counts.items():
            chunk.append((subject, count, first, last, 0, 0))
            if len(chunk) == CHUNK_ENTRIES:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
