"""What a log needs from whatever holds its committed records: an LMDB database, or memory."""

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

Reading = Callable[[], int]
"""Appends records to a run and returns the sequence to go on at: nothing below it was left out. Raises StoreError("corrupt") when the
first record it meets does not hold what was written, else it ends before it; what it has appended before any error stays."""


class RecordReader(Protocol):
    """Committed records of one stream, by sequence. Called in the loop's thread; nothing is held between calls."""

    def get(self, seq: int) -> StoredMessage | None:
        """The record at ``seq``. StoreError("corrupt") when it does not hold what was written."""

    def get_many(self, seqs: list[int], max_bytes: int) -> ReadResult:
        """The records at ``seqs`` (ascending), up to ``max_bytes`` of them; ``next_seq`` is the first that is left."""

    def count_bytes(self, seqs: Sequence[int], cost: int, header_cost: int) -> list[Weighed]:
        """What the records at ``seqs`` (ascending) count for (see ``record_run.count_bytes``); those that are not there, or cannot be read, are
        left out."""

    def scan(
        self,
        first: int,
        last: int,
        max_messages: int,
        max_bytes: int,
        max_scanned: int,
        match: Callable[[bytes], bool] | None,
    ) -> ReadResult:
        """Records of [first, last] whose subject matches, ascending; ends at the first limit reached, yet returns one
        record however large. A corrupt record raises if it is the first met, else the result ends before it."""

    def gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        """Append up to ``count`` records of [first, last] to ``run``, unopened, of together ``max_bytes``, yet one however large.
        Returns where to go on, beyond ``last`` when there is nothing more. It may end earlier, and with nothing appended. A
        corrupt record raises if it is the first met, else what is appended ends before it."""

    def reading(self, run: StoredRun, first: int, last: int, max_bytes: int) -> Reading:
        """A function that does the same in any thread, with as many records as fit; nothing else may touch ``run`` meanwhile. To
        a run that holds something it appends no more than ``max_bytes``."""

    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        """(seq, subject) of up to ``limit`` records of [first, last], the sequences of corrupt ones among them, and where
        to go on (beyond ``last``: all seen)."""

    def reading_much(self) -> None:
        """More reads like the last are to follow: what disturbs them may wait a little."""

    def index_some(self, reading: IndexReading, records: int) -> bool:
        """Read up to ``records`` of the index of subjects; True at its end (see ``IndexReading.step``)."""

    def index_rest(self, reading: IndexReading, floor: int, last: int, without: Collection[int]) -> int:
        """Read the rest of it; ``IndexReading.finish`` says the rest."""

    def next_seq(self, seq: int) -> int:
        """Lowest sequence >= ``seq``; 0 = none."""

    def seqs(self, first: int, last: int, limit: int) -> list[int]:
        """Up to ``limit`` sequences of [first, last], ascending, without touching the records."""

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        """(name, config, state) of each committed consumer, by name."""

    def positions(self) -> dict[bytes, bytes]:
        """Committed positions of the stream's mirror and sources."""


def read_without(reading: Reading, run: StoredRun, begun: int, seqs: Collection[int]) -> int:
    """The same reading less the records at ``seqs``, readable or not; ``run`` held ``begun`` when it was made."""
    try:
        next_seq = reading()
    except StoreError as error:
        if error.seq in seqs:
            return error.seq + 1
        raise
    run.without(seqs, begun)
    return next_seq


def keep_within(run: StoredRun, begun: int, end: int, next_seq: int) -> int:
    """Give back the record with which ``run``, that held ``begun`` before, counts for more than ``end`` bytes, unless it is the
    run's only one. Returns where to go on: there, or at ``next_seq``."""
    last = len(run) - 1
    if run.size > end and last >= max(begun, 1):
        next_seq = run.seq(last)
        run.cut(last)
    return next_seq
