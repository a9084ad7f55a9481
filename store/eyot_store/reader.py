"""The interface of a log's committed records: an LMDB database, or memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from eyot_store.errors import StoreError
from eyot_store.record_run import Weighed
from eyot_store.records.record import ReadResult, StoredMessage
from eyot_store.subjects.index_reader import IndexReading
from eyot_wire.native import StoredRun

RECORDS_MAX = 1024
"""Records read in one transaction (about half a millisecond, in which a resize of the map has to wait)."""

SCAN_BYTES_MAX = 4 << 20
"""Bytes of records on disk that a filtered read scans before it answers (some five milliseconds)."""
HEADS_NS_MAX = 5_000_000
"""Time after which a read of large records' heads ends: each may have to come from the disk."""

Reading = Callable[[], int]
"""Appends records to a run and returns the sequence to continue at: nothing below it was left out. Raises StoreError("corrupt") when the
first record it meets does not hold what was written, else it ends before it; what it has appended before any error stays."""


class RecordReader(Protocol):
    """Committed records of one stream, by sequence. Called in the loop's thread; nothing is held between calls."""

    def get(self, seq: int) -> StoredMessage | None:
        """Return the record at `seq`. Raises StoreError("corrupt") for a damaged one."""

    def get_many(self, seqs: list[int], max_bytes: int) -> ReadResult:
        """Return the records at `seqs` (ascending), up to `max_bytes` of them; `next_seq` is the first that is left."""

    def count_bytes(self, seqs: Sequence[int], cost: int, header_cost: int) -> list[Weighed]:
        """Return the sizes of the records at `seqs` (ascending; see `record_run.count_bytes`).

        Missing and unreadable records are left out.
        """

    def scan(
        self,
        first: int,
        last: int,
        max_messages: int,
        max_bytes: int,
        max_scanned: int,
        match: Callable[[bytes], bool] | None,
    ) -> ReadResult:
        """Return records of [first, last] whose subject matches, ascending, up to the first limit, but at least one.

        It may stop earlier, after `SCAN_BYTES_MAX`, even with nothing found.

        A corrupt record raises if it is the first one, else the result ends before it.
        """

    def gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        """Append up to `count` unparsed records of [first, last] to `run`, of `max_bytes` together, but at least one.

        Returns where to continue; beyond `last` when there is nothing more. It may stop earlier, even with nothing
        appended. A corrupt record raises if it is the first one, else the result ends before it.
        """

    def reading(self, run: StoredRun, first: int, last: int, max_bytes: int) -> Reading:
        """Return a function that gathers in any thread, as many records as fit; `run` must not be used meanwhile.

        A `run` that is not empty grows by `max_bytes` at most.
        """

    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        """Return (seq, subject) of up to `limit` records of [first, last], sequences of corrupt ones, and where to continue.

        Of large records it may be fewer, but at least one.
        """

    def reading_much(self) -> None:
        """Announce more reads like the last one: deferrable work may wait a little."""

    def index_some(self, reading: IndexReading, records: int) -> bool:
        """Read up to `records` of the index of subjects; True at its end (see `IndexReading.step`)."""

    def index_rest(self, reading: IndexReading, floor: int, last: int, without: Collection[int]) -> int:
        """Read the rest of the index; see `IndexReading.finish`."""

    def next_seq(self, seq: int) -> int:
        """Lowest sequence >= `seq`; 0 = none."""

    def seqs(self, first: int, last: int, limit: int) -> list[int]:
        """Up to `limit` sequences of [first, last], ascending, without touching the records."""

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        """(name, config, state) of each committed consumer, by name."""

    def positions(self) -> dict[bytes, bytes]:
        """Return the committed positions of the stream's mirror and sources."""


def read_without(reading: Reading, run: StoredRun, begun: int, seqs: Collection[int]) -> int:
    """Return the same reading without the records at `seqs`, readable or not; `run` held `begun` when it was made."""
    try:
        next_seq = reading()
    except StoreError as error:
        if error.seq in seqs:
            return error.seq + 1
        raise
    run.without(seqs, begun)
    return next_seq


def keep_within(run: StoredRun, begun: int, end: int, next_seq: int) -> int:
    """Drop the last record of `run` if the run counts for more than `end` bytes, unless it is the only new one.

    `begun`: what the run held before. Returns where to continue: at the dropped record, or at `next_seq`.
    """
    last = len(run) - 1
    if run.size > end and last >= max(begun, 1):
        next_seq = run.seq(last)
        run.cut(last)
    return next_seq
