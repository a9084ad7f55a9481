"""The change of a stream's subjects from one record of its index to the next.

`_subject_change.pyx` is the compiled twin. This module runs without a compiler, and tests compare both.
`subjects/index.py` defines the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from zlib import crc32

import msgspec

from eyot_store.record_run import Opened
from eyot_store.records.record import CRC_RESIDUE, CRC_SIZE, LARGE_RECORD, subject_in, unpack_u64
from eyot_store.subject_table import Entry

_encode = msgspec.msgpack.Encoder().encode


class Change:
    """Entries by subject. None stands for the subjects of unreadable records."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes | None, list[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def came(self, subject: bytes | None, seq: int) -> None:
        """Count an added record; called with ascending sequences."""
        entry = self._entries.get(subject)
        if entry is None:
            self._entries[subject] = [1, seq, seq, 0, 0]
        else:
            entry[0] += 1
            entry[1] = entry[1] or seq
            entry[2] = seq

    def came_all(
        self, records: Iterable[tuple[bytes, bytes]], limit: int, bytes_max: int, salt: int, opened: Opened | None
    ) -> tuple[int, int, bool]:
        """Count added records (key, value) in ascending order, until they are `limit` or have `bytes_max` bytes.

        Returns how many, the last sequence (0: none), and whether a limit ended it.
        """
        count = last = size = 0
        for key, value in records:
            last = unpack_u64(key)[0]
            count += 1
            size += len(value)
            self.came(_subject_of(key, value, salt, opened), last)
            if count >= limit or size >= bytes_max:
                return count, last, True
        return count, last, False

    def came_run(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Count records (key, record) in ascending order that were just encoded: checksums are not checked."""
        for key, record in items:
            self.came(subject_in(record[:-CRC_SIZE]), unpack_u64(key)[0])

    def went(self, subject: bytes | None, seq: int) -> None:
        """Count a removed record."""
        entry = self._entries.get(subject)
        if entry is None:
            self._entries[subject] = [-1, 0, 0, seq, seq]
        else:
            entry[0] -= 1
            entry[3] = min(entry[3], seq) or seq
            entry[4] = max(entry[4], seq)

    def went_record(self, key: bytes, value: bytes, salt: int, opened: Opened | None) -> bool:
        """Count this removed record. False: it is unreadable, so its subject and size are unknown."""
        subject = _subject_of(key, value, salt, opened)
        if subject is None:
            return False
        self.went(subject, unpack_u64(key)[0])
        return True

    def entries(self) -> list[Entry]:
        """Return the entries in order of first appearance."""
        return [(subject, *numbers) for subject, numbers in self._entries.items()]  # type: ignore[misc]

    def encoded(self, most: int) -> list[tuple[bytes, int]]:
        """Return the entries as MessagePack, up to `most` per array, each with the sum of its counts."""
        entries = iter(self.entries())
        return [(_encode(some), sum(entry[1] for entry in some)) for some in _chunks(entries, most)]


def _chunks(entries: Iterator[Entry], most: int) -> Iterator[list[Entry]]:
    while some := list(islice(entries, most)):
        yield some


def _subject_of(key: bytes, value: bytes, salt: int, opened: Opened | None) -> bytes | None:
    body: bytes | None
    if opened is not None:
        body = opened(key, value)
    else:
        is_sound = len(value) > LARGE_RECORD or crc32(value, crc32(key, salt)) == CRC_RESIDUE
        body = value[:-CRC_SIZE] if is_sound else None
    return None if body is None else subject_in(body)
