"""Loads a stream's subjects from its index: some records at a time, then limited to what the log counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import lmdb

from eyot_store.environment import Environment
from eyot_store.errors import StoreError
from eyot_store.native import Change, SubjectTable
from eyot_store.pages.errors import PageError
from eyot_store.records.record import pack_u64, seq_of
from eyot_store.subject_table import UNREAD
from eyot_store.subjects.index import IndexHead

OUTSIDE_MAX = 1 << 14
"""Largest number of records that differ between index and log. The index may count purged records and records whose commit the
log does not know yet; those are subtracted one by one. Records above the index are counted to verify it."""


class IndexReading:
    """An index being loaded: `table` contains the records up to `number`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.table = SubjectTable()
        self.number = 0
        self.head = IndexHead()
        self._sealed = b""  # the stored record `number`

    def step(self, txn: Any, environment: Environment, stream_id: int, records: int) -> bool:
        """Apply up to `records` more records; return True at the end. Raises StoreError("corrupt").

        Starts again if the index was folded meanwhile.
        """
        prefix = pack_u64(stream_id)
        if self.number and txn.get(prefix + pack_u64(self.number), db=environment.subjects) != self._sealed:
            self._begin()
        cursor = txn.cursor(environment.subjects)
        if not cursor.set_range(prefix + pack_u64(self.number + 1)):
            return True
        for key, sealed in islice(cursor.iternext(), records):
            key = bytes(key)
            if not key.startswith(prefix):
                return True
            if seq_of(key[8:]) != self.number + 1:
                raise StoreError("corrupt", f"index of subjects: record {self.number + 1} is missing")
            self._sealed = bytes(sealed)
            try:
                record = environment.unseal(b"subjects", key, self._sealed, "index of subjects")
            except lmdb.Error as error:
                raise StoreError("corrupt", f"index of subjects: {error}") from None
            self.head = IndexHead(*self.table.fold_record(record))
            self.number += 1
        return False

    def finish(
        self, txn: Any, environment: Environment, stream_id: int, db: Any, floor: int, last: int, without: Iterable[int]
    ) -> int:
        """Apply the rest, and subtract what is outside [`floor`, `last`] or among the sequences `without`.

        Returns the sequence up to which records are counted; 0: there is no usable index, and the caller must read all
        records.
        """
        try:
            while not self.step(txn, environment, stream_id, OUTSIDE_MAX):
                pass
            covered = self.head.covered
            if not covered or not self._counts_agree(txn, db, environment, stream_id):
                return 0
            records = _Records(txn, db, environment, stream_id)
            covered = min(covered, last)
            outside = [
                *islice(records.between(1, min(floor - 1, covered)), OUTSIDE_MAX),
                *islice(records.between(covered + 1, self.head.covered), OUTSIDE_MAX),
            ]
            if len(outside) >= OUTSIDE_MAX:
                return 0
            for found in (outside, records.each(seq for seq in without if floor <= seq <= covered)):
                change = Change()
                for seq, subject in found:
                    change.went(subject, seq)
                self.table.fold(change.entries())
        except PageError:
            raise
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            return 0
        self.table.remove(UNREAD)
        return covered

    def _counts_agree(self, txn: Any, db: Any, environment: Environment, stream_id: int) -> bool:
        """Return whether the numbers add up: an older release may have written here, which knew no index."""
        environment.pages.ahead(environment.tree(txn, stream_id), pack_u64(self.head.covered + 1), OUTSIDE_MAX)
        cursor = txn.cursor(db)
        above = cursor.iternext(values=False) if cursor.set_range(pack_u64(self.head.covered + 1)) else ()
        tail = sum(1 for _ in islice(above, OUTSIDE_MAX))
        records = self.table.messages
        return records == self.head.records and (tail == OUTSIDE_MAX or records + tail == txn.stat(db)["entries"])


class _Records:
    """The heads of a stream's records, in one read transaction."""

    def __init__(self, txn: Any, db: Any, environment: Environment, stream_id: int) -> None:
        self._txn = txn
        self._db = db
        self._subject = environment.codec(stream_id).subject
        self._pages = environment.pages
        self._tree = environment.tree(txn, stream_id)

    def between(self, first: int, last: int) -> Iterator[tuple[int, bytes | None]]:
        """(sequence, subject) in [first, last], ascending; None: the record cannot be read."""
        end = pack_u64(last) if last >= 0 else b""
        if first <= last:
            self._pages.ahead(self._tree, pack_u64(first), min(OUTSIDE_MAX, last - first + 1))
        cursor = self._txn.cursor(self._db)
        for key, value in cursor.iternext() if first <= last and cursor.set_range(pack_u64(first)) else ():
            key = bytes(key)
            if key > end:
                return
            yield seq_of(key), self._subject(key, value)

    def each(self, seqs: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """Yield the existing ones of `seqs` with their subjects."""
        for seq in seqs:
            key = pack_u64(seq)
            self._pages.key(self._tree, key)
            value = self._txn.get(key, db=self._db)
            if value is not None:
                yield seq, self._subject(key, value)
