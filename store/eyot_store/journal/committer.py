"""The committer with a journal in front of LMDB: one flush per group, applied to LMDB later (`applier.py`).

A group becomes one frame of the journal. Some groups go directly into LMDB, after all earlier frames were applied:
creations, changes and deletions of streams, groups of a size that LMDB handles as well, and groups for which LMDB may
lack space. The last rule keeps acknowledgements true on a full disk: the journal accepts a message only when LMDB has
space reserved for it. In doubt, LMDB itself decides (see `LmdbCommitter`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import lmdb

from eyot_store.changes import Changes, changes_of, encode, is_journalled, takes_room
from eyot_store.committer import CommitStats
from eyot_store.directories import flush_directory
from eyot_store.environment import Environment, as_store_error, journal_mark
from eyot_store.errors import StoreError
from eyot_store.failure_propagation import FailurePropagation
from eyot_store.journal.applier import Applier
from eyot_store.journal.high_water import HighWater, MarkRecord, encode_mark_record, remove_high
from eyot_store.journal.journal import Journal, Write, remove_files, segment_name
from eyot_store.journal.replay import about_frame
from eyot_store.lmdb.committer import LmdbCommitter
from eyot_store.native import FrameWriter
from eyot_store.options import StoreOptions
from eyot_store.txn import Txn

_STRAIGHT_BYTES = 1 << 20
_SALT_BYTES = 16


_PATH_BYTES = 6 * 4096


class _Begun(NamedTuple):
    """A group that is being written beside the loop."""

    group: Sequence[Txn]
    changes: Changes
    size: int
    """Of the frame's body."""
    frame: Write


class _NoRoomError(Exception):
    """The journal has no room although LMDB is up to date: a frame too large, or no room for a file on the disk."""


class JournalCommitter:
    """See the module."""

    def __init__(
        self,
        environment: Environment,
        lmdb_committer: LmdbCommitter,
        failures: FailurePropagation,
        stats: CommitStats,
        journal: Journal,
        applier: Applier,
    ) -> None:
        self._environment = environment
        self._lmdb = lmdb_committer
        self._failure_propagation = failures
        self._stats = stats
        self._journal = journal
        self._applier = applier
        self._inline = environment.options.inline
        self._spread = environment.spread
        self._growing = self._inline  # more space is being allocated ahead of time, or must not be
        # Of its own: the applier seals records while a frame is being sealed.
        self._store_cipher = environment.store_cipher and environment.store_cipher.another()
        self._high = HighWater(environment.path, journal.salt, journal.number, flush=environment.options.flush)
        if self._high.is_kept:
            self._record_mark(-1)
        self._begun: _Begun | None = None
        self._straight_bytes = min(_STRAIGHT_BYTES, journal.segment_bytes // 2)

    def commit(self, group: Sequence[Txn]) -> list[StoreError | None]:
        if not all(map(is_journalled, group)) or sum([txn.bytes for txn in group]) > self._straight_bytes:
            return self._commit_straight(group)
        results: list[StoreError | None] = [self._inherited(txn) for txn in group]
        todo = [txn for txn, result in zip(group, results, strict=True) if result is None]
        if not todo:
            return results
        if takes_room(todo) and not self._has_room(todo):
            return self._commit_straight(group)
        try:
            return self._commit_frames(group, todo, results)
        except _NoRoomError:
            return self._commit_straight(group)

    def _commit_frames(
        self, group: Sequence[Txn], todo: list[Txn], results: list[StoreError | None]
    ) -> list[StoreError | None]:
        """Return all that is to do in one frame; should that fail, in one each. Raises _NoRoomError: nothing was done."""
        error = self._try(todo)
        if error is None:
            return results
        return self._failure_propagation.results_after(
            error, group, results, lambda txn: self._inherited(txn) or self._try_alone(txn)
        )

    @property
    def untidy(self) -> bool:
        """Always False: the applier does LMDB's housekeeping."""
        return self._inline and self._lmdb.untidy

    def tidy(self) -> None:
        self._lmdb.tidy()

    def close(self) -> None:
        """Leave nothing in the journal that is not in LMDB, if that can be done."""
        error = self._applier.drain()
        self.abandon()
        if error is None:
            self._lmdb.close()
            self._record_mark(self._applier.applied)

    def abandon(self) -> None:
        """Let go of the files."""
        self._applier.close()
        self._journal.close()
        self._high.close()

    def _record_mark(self, closed: int) -> None:
        """Record in LMDB that the journal's mark exists, or (`closed` > -1) that it is no longer needed."""
        options = self._environment.options
        capacity = options.journal_segment_bytes * options.journal_segments
        try:
            self._environment.write_mark_record(encode_mark_record(MarkRecord(self._journal.salt, capacity, closed)))
        except lmdb.Error:
            pass  # a full or failing disk: the record stays as it was

    # -- through the journal -----------------------------------------------------------------------------------------------

    def _inherited(self, txn: Txn) -> StoreError | None:
        error = self._failure_propagation.inherited(txn)
        if error is None:
            for stream_id, part in txn.parts.items():
                if part.added and part.log.durable:
                    error = error or self._unwritable(stream_id)
            if error is not None:
                self._failure_propagation.fail(txn, error)
        return error

    def _unwritable(self, stream_id: int) -> StoreError | None:
        """Return why a stream cannot be appended to, in any state of the journal; None if it can."""
        if stream_id not in self._environment.messages:
            return StoreError("closed", f"stream {stream_id} was deleted")
        return self._applier.fenced.get(stream_id)

    def _try_alone(self, txn: Txn) -> StoreError | None:
        try:
            return self._try([txn])
        except _NoRoomError:
            return self._commit_straight([txn])[0]

    def _try(self, txns: Sequence[Txn]) -> StoreError | None:
        try:
            self._attempt(txns)
            return None
        except (lmdb.Error, OSError, StoreError, MemoryError) as error:
            return as_store_error(error)

    def _attempt(self, txns: Sequence[Txn]) -> None:
        """Make these transactions durable as one frame. Raises the cause of a failure; _NoRoomError if the journal is full."""
        changes = changes_of(txns)
        journal, applier = self._journal, self._applier
        body = self._body(changes)
        journal.scrub()
        filled = journal.filled
        if not journal.prepare(len(body), applier.applied):
            error = applier.drain(journal.oldest_last)
            if error is not None:
                raise error
            if not journal.prepare(len(body), applier.applied):
                raise _NoRoomError
        started = time.perf_counter_ns()
        frame = journal.write(body)
        flush_ns = time.perf_counter_ns() - started
        self._durable(txns, frame, changes, len(body), flush_ns)
        self._high.reached(frame, _ends(txns), applier.applied)
        if journal.filled != filled:
            applier.request()

    def _body(self, changes: Changes) -> bytes:
        body = encode(changes)
        if self._store_cipher is not None:
            body = self._store_cipher.seal(about_frame(self._journal.number + 1), body)
        return body

    def _durable(self, txns: Sequence[Txn], frame: int, changes: Changes, size: int, flush_ns: int) -> None:
        """`frame` is durable, and holds the changes of `txns`; `size`: of its body."""
        for txn in txns:
            txn.frame = frame
        self._applier.push(frame, changes, size)
        if not self._inline and self._journal.runs_out(self._applier.applied):
            self._applier.do(self._journal.add_spare)
        stats = self._stats
        for txn in txns:
            stats.bytes += txn.bytes
            for part in txn.parts.values():
                if part.log.durable:
                    stats.messages += len(part.added)
        stats.flushed(flush_ns, len(txns), time.time_ns())

    # -- through the journal, beside the loop (`direct_driver.py`) ---------------------------------------------------------

    def begin(self, group: Sequence[Txn], writer: FrameWriter) -> bool:
        """Have `writer` write `group` as one frame, without waiting for anything; False: `commit` must decide about it.

        `end` or `abort` must follow before anything else is called.
        """
        if not all(map(is_journalled, group)) or any(self._inherited(txn) for txn in group):
            return False
        changes = changes_of(group)
        body = self._body(changes)
        journal = self._journal
        if not journal.fits(len(body)) or (takes_room(group) and self._room_left(group) < self._headroom()):
            return False
        frame = journal.begin(body)
        mark = self._high.begin(frame.number, _ends(group), self._applier.applied)
        self._begun = _Begun(group, changes, len(body), frame)
        writer.start(frame.segment.fd, frame.data, frame.at, journal.flags, journal.flush_after, mark)
        return True

    def end(self, flush_ns: int) -> None:
        """Note that the group of `begin` is durable; its write and flush took `flush_ns`."""
        begun, self._begun = self._begun, None
        assert begun is not None
        self._journal.end(begun.frame)
        self._high.end()
        self._durable(begun.group, begun.frame.number, begun.changes, begun.size, flush_ns)

    def abort(self) -> None:
        """Note that the group of `begin` could not be written: `commit` must decide about it."""
        self._begun = None

    # -- straight into LMDB ------------------------------------------------------------------------------------------------

    def _commit_straight(self, group: Sequence[Txn]) -> list[StoreError | None]:
        error = self._applier.drain()
        if error is not None:
            for txn in group:
                self._failure_propagation.fail(txn, error)
            return [error] * len(group)
        with self._applier.lmdb_lock:
            if self._lmdb.untidy:
                self._lmdb.tidy()  # recently purged messages may free the missing space
            for txn in group:
                txn.passed = self._applier.applied
            results = self._lmdb.commit(group)
            self._applier.used_bytes = self._environment.used_bytes()
        if not self._inline and self._journal.empty:
            self._applier.do(self._journal.add_spare)  # a new stream will need a segment soon
        self._applier.wake()
        return results

    def _has_room(self, txns: Sequence[Txn]) -> bool:
        """Return whether LMDB will have space for the journal and these transactions; allocates space if needed."""
        environment, applier = self._environment, self._applier
        left = self._room_left(txns)
        if left >= 0:
            if not self._growing and left < self._headroom():
                self._growing = True
                applier.do(self._grow_ahead)
            return True
        if applier.drain() is not None:
            return False
        own = self._room_of(txns)
        with applier.lmdb_lock:
            try:
                while applier.room_taken() + own > environment.map_size:
                    if not environment.make_room(own, reserve=False):
                        return False
                    self._stats.map_growths += 1
                self._growing = self._inline
            except (lmdb.Error, OSError, StoreError):
                return False
        return True

    def _room_left(self, txns: Sequence[Txn]) -> int:
        """Bytes of LMDB that will be free when the journal and these transactions are applied; below 0 if they lack room."""
        return self._environment.map_size - self._applier.room_taken() - self._room_of(txns)

    def _room_of(self, txns: Sequence[Txn]) -> int:
        return self._spread * sum([txn.bytes for txn in txns]) + self._overhead()

    def _headroom(self) -> int:
        """Return the free space in LMDB to keep, so that no commit waits for an allocation."""
        return min(self._spread * self._journal.segment_bytes // 2, self._environment.allocated // 4)

    def _grow_ahead(self) -> None:
        """Allocate space early, in the applier's thread. A failure shows at the commit that needs the space."""
        with self._applier.lmdb_lock:
            try:
                grown = self._environment.make_room(self._headroom(), reserve=False)
            except (lmdb.Error, OSError, StoreError):
                grown = False
        self._stats.map_growths += grown
        self._growing = not grown  # a full disk is not tried again and again

    def _overhead(self) -> int:
        """Pages that LMDB changes with any transaction: the way to the records in each stream that may be in it."""
        return min(len(self._environment.messages), 64) * _PATH_BYTES + _PATH_BYTES


def _ends(txns: Sequence[Txn]) -> list[tuple[int, int]]:
    """Ids of streams that get messages, and their last sequences."""
    return [(i, part.last_seq) for txn in txns for i, part in txn.parts.items() if part.last_seq and part.log.durable]


def open_journal(
    environment: Environment,
    lmdb_committer: LmdbCommitter,
    failures: FailurePropagation,
    stats: CommitStats,
    on_applied: Callable[[int], None],
) -> tuple[JournalCommitter, int]:
    """Return a committer with an empty journal, and the last frame that LMDB holds. `replay` must have been called."""
    options = environment.options
    path = environment.journal_path
    salt, applied = environment.read_journal_mark() or (b"", 0)
    if not salt:
        salt = os.urandom(_SALT_BYTES)
        remove_files(path)
        remove_high(environment.path)
        path.mkdir(mode=0o700, exist_ok=True)
        if options.flush:
            flush_directory(environment.path)
        environment.begin_journal(journal_mark(salt, applied))
    _tidy_files(path, options)
    journal = Journal(path, salt, applied, options.journal_segment_bytes, options.journal_segments, options.flush)
    applier = Applier(environment, lmdb_committer, stats, salt, applied, on_applied, threaded=not options.inline)
    return JournalCommitter(environment, lmdb_committer, failures, stats, journal, applier), applied


def end_journal(environment: Environment) -> None:
    """Switch to LMDB alone, after `replay`."""
    if environment.read_journal_mark() is not None:
        environment.end_journal()
    remove_files(environment.journal_path)
    remove_high(environment.path)


def _tidy_files(path: Path, options: StoreOptions) -> None:
    """Remove segments of another size or beyond the number configured; all are free."""
    wanted = {segment_name(index) for index in range(options.journal_segments)}
    for file in path.glob("segment-*"):
        if file.name not in wanted or file.stat().st_size != options.journal_segment_bytes:
            file.unlink()
