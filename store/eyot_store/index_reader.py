"""A stream's subjects out of its index: what one read transaction sees, cut to what the log counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from eyot_store.codec import RecordCodec
from eyot_store.environment import JOURNAL_KEY, Environment, decode_mark
from eyot_store.errors import StoreError
from eyot_store.index_writer import index_records
from eyot_store.records import pack_u64, seq_of, unseal
from eyot_store.subject_index import Change, Summary
from eyot_store.subjects import SubjectEntry


class Indexed(NamedTuple):
    """``applied``: the frame of the journal up to which LMDB held everything; what is in later ones is not in ``summary``."""

    summary: Summary
    applied: int


def read_index(
    txn: Any, environment: Environment, stream_id: int, db: Any, floor: int, last: int, without: Iterable[int]
) -> Indexed | None:
    """Counts of the records in [``floor``, ``last``] but for the sequences ``without``; None when there is no index, or it does not
    fit the records (an older release has written here): then whoever asks must look at them all."""
    summary = Summary()
    covered = 0
    try:
        for _, head, entries in index_records(txn, environment.subjects, stream_id, environment.unseal):
            summary.fold(entries)
            covered = head.covered
        if not covered:
            return None
        records = _Records(txn, db, environment.codec(stream_id))
        summary.fold(records.came(covered + 1, _LAST).entries())
        if summary.total() != txn.stat(db)["entries"]:
            return None
        for first, end in ((1, floor - 1), (last + 1, _LAST)):
            summary.fold(records.went(records.between(first, end)))
        gone = (seq for seq in without if floor <= seq <= last)
        summary.fold(records.went(records.each(gone)))
    except StoreError as error:
        if error.reason != "corrupt":
            raise
        return None
    summary.counts.pop(None, None)
    sealed = txn.get(JOURNAL_KEY)
    mark = decode_mark(unseal(JOURNAL_KEY, bytes(sealed), "mark of the journal")) if sealed is not None else (b"", 0)
    return Indexed(summary, mark[1])


def entries_of(summary: Summary) -> dict[bytes, SubjectEntry]:
    """The same as a log keeps it; takes the summary apart, so that both together need little more than one."""
    out: dict[bytes, SubjectEntry] = {}
    counts = summary.counts
    while counts:
        subject, (count, first, last) = counts.popitem()
        if subject is not None:
            entry = out[subject] = SubjectEntry(max(first, 0))
            entry.count = count
            if last != first:  # else it is the same number object: 64 bytes less
                entry.last = last
            if first < 0:
                entry.floor = -first
    return out


_LAST = (1 << 64) - 1


class _Records:
    """The heads of a stream's records, in one read transaction."""

    def __init__(self, txn: Any, db: Any, codec: RecordCodec) -> None:
        self._txn = txn
        self._db = db
        self._subject = codec.subject

    def between(self, first: int, last: int) -> Iterator[tuple[int, bytes | None]]:
        """(sequence, subject) in [first, last], ascending; None: the record cannot be read."""
        end = pack_u64(last) if last >= 0 else b""
        cursor = self._txn.cursor(self._db)
        for key, value in cursor.iternext() if first <= last and cursor.set_range(pack_u64(first)) else ():
            key = bytes(key)
            if key > end:
                return
            yield seq_of(key), self._subject(key, value)

    def each(self, seqs: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
        """The same for those of ``seqs`` that are there."""
        for seq in seqs:
            key = pack_u64(seq)
            value = self._txn.get(key, db=self._db)
            if value is not None:
                yield seq, self._subject(key, value)

    def came(self, first: int, last: int) -> Change:
        change = Change()
        for seq, subject in self.between(first, last):
            change.came(subject, seq)
        return change

    @staticmethod
    def went(records: Iterator[tuple[int, bytes | None]]) -> list[Any]:
        change = Change()
        for seq, subject in records:
            change.went(subject, seq)
        return change.entries()
