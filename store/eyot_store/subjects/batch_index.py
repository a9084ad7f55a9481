"""The index changes of one LMDB transaction, collected with its operations and written at its end.

Removals are always included. Additions are included in large runs (the journal is applied by the ten thousand): their
records are in memory then, and need not be read back later. `Indexes.bring_up` handles smaller runs.
"""

from __future__ import annotations

from typing import Any

from eyot_store.environment import Environment
from eyot_store.native import Change
from eyot_store.records.record import pack_u64, seq_of
from eyot_store.subjects.index_writer import INDEX_EVERY, SLICE_BYTES, Indexes, Written

RUN_MIN = 512
"""Records that are noted in passing: fewer are not worth a page of the index, unless they are large."""
RUN_BYTES_MIN = 1 << 16
"""Bytes of records that are noted in passing: to read them back would cost more than a page of the index."""

Items = list[tuple[bytes, bytes]]


class BatchIndex:
    """The subject index of one stream, within one transaction of the committing thread."""

    def __init__(self, environment: Environment, indexes: Indexes, txn: Any, stream_id: int) -> None:
        self._environment = environment
        self._indexes = indexes
        self._txn = txn
        self._id = stream_id
        self._reading = environment.codec(stream_id).reading
        self._covered = indexes.covered(stream_id)
        self._upto = pack_u64(self._covered)
        self._change: Change | None = None
        self._void = False  # removed records are unknown

    def came(self, db: Any, last_before: int, items: Items, size: int, last: int) -> None:
        """Count records of `size` bytes that will be appended after `last_before`; then the last sequence is `last`.

        The records are in the form before sealing.
        """
        lag = last_before - self._covered
        is_small = len(items) < RUN_MIN and size < RUN_BYTES_MIN
        if is_small or lag >= INDEX_EVERY or self._void or not self._indexes.takes_more(self._id):
            return
        change = self._begun()
        if lag > 0:
            environment = self._environment
            tree = environment.base_tree(self._txn, self._id)
            environment.pages.ahead(tree, pack_u64(self._covered + 1), lag)
            cursor = self._txn.cursor(db)
            if cursor.set_range(pack_u64(self._covered + 1)):
                _, read, is_more = change.came_all(cursor.iternext(), lag + 1, SLICE_BYTES, *self._reading)
                if is_more:  # large records: the rest waits until no commit does
                    self._covered = read
                    self._upto = pack_u64(read)
                    return
        change.came_run(items)
        self._covered = last
        self._upto = pack_u64(last)

    def counts(self, key: bytes) -> bool:
        """Return whether the index has this record."""
        return key <= self._upto

    def went(self, key: bytes, value: bytes) -> None:
        """Count an indexed record that will be removed."""
        if not self._void and not self._begun().went_record(key, value, *self._reading):
            self._void = True

    def went_from(self, key: bytes, subject: bytes) -> None:
        """Count an indexed record of this subject that will be removed."""
        if not self._void:
            self._begun().went(subject, seq_of(key))

    def write(self) -> Written | None:
        """None: nothing has changed."""
        if self._void:
            return self._indexes.wipe(self._txn, self._id)
        if self._change is None:
            return None
        return self._indexes.write(self._txn, self._id, self._covered, self._change)

    def _begun(self) -> Change:
        if self._change is None:
            self._change = Change()
        return self._change
