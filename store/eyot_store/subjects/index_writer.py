"""The subject indexes of all streams, as the committing side maintains them (see `subject_index`).

Additions are read from LMDB itself, some thousand records at a time while no commit waits. Removals are written in the
transaction that removes the records. A doubtful index is dropped and rebuilt in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import lmdb
import msgspec

from eyot_store.environment import Environment
from eyot_store.errors import StoreError
from eyot_store.native import Change, SubjectTable
from eyot_store.pages.errors import PageError
from eyot_store.records.record import pack_u64, seq_of
from eyot_store.subjects.index import (
    CHANGE_ENTRIES,
    FOLD_BYTES_MIN,
    SUBJECTS_MAX,
    IndexHead,
    base_of,
    decode_index_head,
    encode_index,
)

Encoded = bytes
"""Encoded entries of an index record."""

_NOTHING: Encoded = encode_index([])

Written = tuple[int, IndexHead]
"""The number of an index's last record, and its content."""

Unseal = Callable[[bytes, bytes, bytes, str], bytes]
"""`Environment.unseal`."""

INDEX_EVERY = 4096
"""Messages that an index may lag behind before it is brought up."""
SLICE_RECORDS = 4096
SLICE_BYTES = 4 << 20
"""Records that are read back in one step, during which nothing else is written into LMDB."""
TAIL_MAX = 1 << 16
"""Records above an index that are counted when a store is opened; with more it is still being built."""


class Indexes:
    """Maintains the indexes. `behind`: streams whose index lags; `outgrown`: those whose changes are to be folded."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._heads: dict[int, Written] = {}  # stream id -> number and content of the last record
        self._given_up: set[int] = set()
        self._void: set[int] = set()  # indexes whose stored form must be removed first
        self.behind: set[int] = set()
        self.outgrown: set[int] = set()

    def load(self, txn: Any, last_seqs: dict[int, int]) -> None:
        """Find the indexes that are there; `last_seqs` are the last sequences of all streams."""
        for stream_id, last_seq in last_seqs.items():
            if stream_id not in self._environment.fenced:
                try:
                    self._load(txn, stream_id)
                except PageError as error:
                    self._environment.fence(stream_id, error)
                    continue
                self.check(stream_id, last_seq)

    def _load(self, txn: Any, stream_id: int) -> None:
        cursor = txn.cursor(self._environment.subjects)
        found = cursor.prev() if cursor.set_range(pack_u64(stream_id + 1)) else cursor.last()
        key = cursor.key()
        if not found or not key.startswith(pack_u64(stream_id)):
            return
        try:
            head = decode_index_head(self._environment.unseal(b"subjects", key, cursor.value(), "index"))
        except (StoreError, msgspec.MsgspecError):
            head = None
        if head is not None and self._counts_agree(txn, stream_id, head):
            self._heads[stream_id] = seq_of(key[8:]), head
        else:
            self._void.add(stream_id)  # rebuilt from the start

    def _counts_agree(self, txn: Any, stream_id: int, head: IndexHead) -> bool:
        """Return whether the counts add up; a release without indexes may have written here."""
        environment = self._environment
        environment.pages.ahead(environment.tree(txn, stream_id), pack_u64(head.covered + 1), TAIL_MAX)
        db = self._environment.messages[stream_id]
        cursor = txn.cursor(db)
        above = cursor.iternext(values=False) if cursor.set_range(pack_u64(head.covered + 1)) else ()
        tail = sum(1 for _ in islice(above, TAIL_MAX))
        return tail == TAIL_MAX or head.records + tail == txn.stat(db)["entries"]

    def covered(self, stream_id: int) -> int:
        """Return the sequence up to which the index contains records."""
        known = self._heads.get(stream_id)
        return known[1].covered if known else 0

    def bytes(self, stream_id: int) -> int:
        """Return how large the index is, about."""
        known = self._heads.get(stream_id)
        return known[1].base_bytes + known[1].change_bytes if known else 0

    def takes_more(self, stream_id: int) -> bool:
        """Return whether additions may be written after the stored records."""
        return stream_id not in self._given_up and stream_id not in self._void

    def check(self, stream_id: int, last_seq: int) -> None:
        """Record whether the stream's index lags."""
        if last_seq - self.covered(stream_id) < INDEX_EVERY:
            self.behind.discard(stream_id)
        elif stream_id not in self._given_up:
            self.behind.add(stream_id)

    def forget(self, stream_id: int) -> None:
        """Forget a deleted stream, whose index is removed with it (see `wipe`)."""
        self._heads.pop(stream_id, None)
        self.behind.discard(stream_id)
        self.outgrown.discard(stream_id)
        self._given_up.discard(stream_id)
        self._void.discard(stream_id)

    def leave(self, stream_id: int) -> None:
        """Leave the index of a stream with unreadable messages as it is."""
        self.behind.discard(stream_id)
        self.outgrown.discard(stream_id)
        self._given_up.add(stream_id)

    # -- in a transaction; results take effect with `now` after the commit
    # ------------------------------------------------

    def write(self, txn: Any, stream_id: int, covered: int, change: Change) -> Written:
        """Write a change, in as many records as needed."""
        number, head = self._heads.get(stream_id, (0, IndexHead()))
        for encoded, records in change.encoded(CHANGE_ENTRIES) or [(_NOTHING, 0)]:
            number += 1
            change_bytes = head.change_bytes + len(encoded) + 32
            head = IndexHead(covered, head.records + records, head.base_bytes, change_bytes)
            self._put(txn, stream_id, number, head, encoded)
        return number, head

    def wipe(self, txn: Any, stream_id: int, covered: int = 0) -> Written:
        """Drop the index; `covered`: there are no records up to there."""
        prefix = pack_u64(stream_id)
        cursor = txn.cursor(self._environment.subjects)
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            found = cursor.delete()
        head = IndexHead(covered)
        if not covered:
            return 0, head
        self._put(txn, stream_id, 1, head, _NOTHING)
        return 1, head

    def now(self, stream_id: int, written: Written) -> None:
        """Record that what was written has been committed."""
        head = written[1]
        self._heads[stream_id] = written
        self._void.discard(stream_id)
        if head.change_bytes > max(head.base_bytes, FOLD_BYTES_MIN):
            self.outgrown.add(stream_id)

    def _put(self, txn: Any, stream_id: int, number: int, head: IndexHead, entries: Encoded) -> None:
        key = pack_u64(stream_id) + pack_u64(number)
        value = encode_index((head.covered, head.records, head.base_bytes, head.change_bytes, msgspec.Raw(entries)))
        txn.put(key, self._environment.seal(b"subjects", key, value), db=self._environment.subjects)

    # -- housekeeping ---------------------------------------------------------------------------------------------------

    def bring_up(self, txn: Any, stream_id: int, last_seq: int) -> Written | None:
        """Add a slice of the records above the covered sequence; None: there was nothing to write."""
        db = self._environment.messages.get(stream_id)
        before = covered = self.covered(stream_id)
        change = Change()
        if stream_id in self._void:
            self.wipe(txn, stream_id)
        if db is not None:
            environment = self._environment
            environment.pages.ahead(environment.base_tree(txn, stream_id), pack_u64(covered + 1), SLICE_RECORDS)
            cursor, codec = txn.cursor(db), self._environment.codec(stream_id)
            is_more = False
            if cursor.set_range(pack_u64(covered + 1)):
                count, last, is_more = change.came_all(cursor.iternext(), SLICE_RECORDS, SLICE_BYTES, *codec.reading)
                covered = last if count else covered
            if not is_more:
                covered = max(covered, last_seq)
        if last_seq - covered < INDEX_EVERY:
            self.behind.discard(stream_id)
        return self.write(txn, stream_id, covered, change) if covered > before else None

    def rebase(self, txn: Any, stream_id: int) -> Written:
        """Fold the changes into a new base."""
        self.outgrown.discard(stream_id)
        table = SubjectTable()
        try:
            for _ in fold_index(table, txn, self._environment.subjects, stream_id, self._environment.unseal):
                if len(table) > SUBJECTS_MAX:
                    self._given_up.add(stream_id)
                    self.behind.discard(stream_id)
                    return self.wipe(txn, stream_id)
        except StoreError:
            self.behind.add(stream_id)
            return self.wipe(txn, stream_id)
        covered, records = self.covered(stream_id), table.messages
        self.wipe(txn, stream_id)
        number = base_bytes = 0
        for entries in base_of(table):
            number += 1
            encoded = encode_index(entries)
            base_bytes += len(encoded) + 32
            self._put(txn, stream_id, number, IndexHead(covered, records, base_bytes), encoded)
        head = IndexHead(covered, records, base_bytes)
        if not number:
            number = 1
            self._put(txn, stream_id, number, head, _NOTHING)
        return number, head


def fold_index(
    table: SubjectTable, txn: Any, db: Any, stream_id: int, unseal: Unseal
) -> Iterator[tuple[int, IndexHead]]:
    """Apply each record of a stream's index in `db`, in order; yield its number and head. Raises StoreError("corrupt")."""
    prefix = pack_u64(stream_id)
    cursor = txn.cursor(db)
    expected = 1
    for key, sealed in cursor.iternext() if cursor.set_range(prefix) else ():
        key = bytes(key)
        if not key.startswith(prefix):
            return
        try:
            record = unseal(b"subjects", key, bytes(sealed), "index of subjects")
        except lmdb.Error as error:
            raise StoreError("corrupt", f"index of subjects: {error}") from None
        number = seq_of(key[8:])
        if number != expected:
            raise StoreError("corrupt", f"index of subjects: record {expected} is missing")
        expected += 1
        yield number, IndexHead(*table.fold_record(record))
