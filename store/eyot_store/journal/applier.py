"""Applies the journal to LMDB, in large transactions.

Durable frames are queued here until an application is requested: when the journal needs a free segment, or before LMDB
is written directly. Each LMDB transaction records the last frame it contains, so that after a crash exactly the later
frames are applied again. Acknowledged data is never given up: a failed attempt is repeated, and until it succeeds the
journal fills up and refuses new transactions.

A thread applies while the committing thread continues; inline, the caller applies itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import lmdb

from eyot_store.changes import Changes
from eyot_store.committer import CommitStats
from eyot_store.environment import Environment, as_store_error, journal_mark
from eyot_store.errors import StoreError
from eyot_store.journal.aside import set_aside, split
from eyot_store.lmdb.committer import LmdbCommitter

_TXN_BYTES_MAX = 8 << 20
_RETRY_S = 1.0
_LET_GO_S = 0.05


class Pending(NamedTuple):
    """A durable frame that is not in LMDB yet."""

    frame: int
    changes: Changes
    size: int
    """Bytes in the journal; in LMDB the same data needs about twice as many."""


class Applier:
    """`applied` is the last frame that LMDB holds durably. Every writer to LMDB holds `lmdb_lock`."""

    def __init__(
        self,
        environment: Environment,
        lmdb_committer: LmdbCommitter,
        stats: CommitStats,
        salt: bytes,
        applied: int,
        on_applied: Callable[[int], None],
        *,
        threaded: bool,
    ) -> None:
        self.applied = applied
        self.last = applied  # frame handed over
        self.pending_bytes = 0
        self.error: StoreError | None = None  # why the last attempt failed
        self.lmdb_lock = threading.Lock()
        self.fenced = environment.fenced  # streams with damaged pages in LMDB
        self.used_bytes = environment.used_bytes()  # of LMDB's file, as of the last transaction
        self._environment = environment
        self._spread = environment.spread
        self._lmdb = lmdb_committer
        self._stats = stats
        self._salt = salt
        self._on_applied = on_applied
        self._pending: deque[Pending] = deque()
        self._wanted = applied
        self._attempts = 0
        self._chores: deque[Callable[[], None]] = deque()
        # Applied frames. The loop holds them, too, until it is notified. The last holder frees each of their records: this
        # thread, a frame at a time.
        self._spent: deque[Pending] = deque()
        self._stopping = False
        self._lock = threading.RLock()  # used directly when no thread waits: a condition's lock costs more
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="eyot-apply", daemon=True)
            self._thread.start()

    def room_taken(self) -> int:
        """Bytes of LMDB's file that are in use, or will be when everything handed over is applied."""
        # In this order: applied data counts as used first, and then no longer as pending.
        pending = self.pending_bytes
        return self.used_bytes + self._spread * pending

    def push(self, frame: int, changes: Changes, size: int) -> None:
        """Queue a durable frame."""
        with self._lock:
            self._pending.append(Pending(frame, changes, size))
            self.pending_bytes += size
            self.last = frame

    def request(self) -> None:
        """Start applying the queued frames soon."""
        with self._changed:
            self._wanted = self.last
            self._changed.notify_all()
        if self._thread is None:
            while self.applied < self._wanted and self._apply_some():
                pass

    def drain(self, frame: int = 0) -> StoreError | None:
        """Wait until everything handed over so far (or up to `frame`) is applied; why not, if an attempt at it fails."""
        self.request()
        with self._changed:
            frame = frame or self.last
            attempts = self._attempts
            while self.applied < frame:
                if self.error is not None and (self._attempts > attempts or self._thread is None):
                    return self.error
                self._changed.wait()
        return None

    def do(self, chore: Callable[[], None]) -> None:
        """Run a task in the applier's thread, so that commits do not wait for it; it must not raise."""
        with self._changed:
            self._chores.append(chore)
            self._changed.notify_all()

    def wake(self) -> None:
        """LMDB may have become untidy."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- applying --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._stopping or self._chores or self.applied < self._wanted or self._lmdb.untidy):
                    if not self._changed.wait(_LET_GO_S if self._spent else None):
                        break
                if self._stopping:
                    return
            spent, self._spent = self._spent, deque()
            while self._chores:
                self._chores.popleft()()
            if self.applied < self._wanted:
                if not self._apply_some():
                    with self._changed:
                        self._changed.wait(_RETRY_S)
            elif self._lmdb.untidy:
                with self.lmdb_lock:
                    self._lmdb.tidy()
            while spent:
                spent.popleft()

    def _apply_some(self) -> bool:
        """Apply a transaction's worth; False if that failed."""
        frames: list[Pending] = []
        size = 0
        with self._changed:
            for pending in self._pending:
                if pending.frame > self._wanted or (frames and size + pending.size > _TXN_BYTES_MAX):
                    break
                frames.append(pending)
                size += pending.size
        started = time.perf_counter_ns()
        with self.lmdb_lock:
            error = self._apply(frames)
            if error is not None and error.reason == "full" and len(frames) > 1:
                del frames[len(frames) // 2 :]
                error = self._apply(frames)
            used = self._used()
        self._stats.applied(time.perf_counter_ns() - started, error)
        with self._changed:
            self._attempts += 1
            self.used_bytes = used
            self.error = error
            if error is None:
                for pending in frames:
                    self._pending.popleft()
                    self.pending_bytes -= pending.size
                self.applied = frames[-1].frame
            self._changed.notify_all()
        if error is None:
            if self._thread is not None:
                self._spent.extend(frames)
            self._on_applied(self.applied)
        return error is None

    def _used(self) -> int:
        try:
            return self._environment.used_bytes()
        except lmdb.Error:  # the environment will be reopened; until then the last value is good enough
            return self.used_bytes

    def _apply(self, frames: list[Pending]) -> StoreError | None:
        changes = [change for pending in frames for change in pending.changes]
        size = sum(pending.size for pending in frames)
        try:
            return apply(self._environment, self._lmdb, changes, size, journal_mark(self._salt, frames[-1].frame))
        except Exception as error:  # any error: the committing thread waits for an answer
            return as_store_error(error)


def apply(
    environment: Environment, committer: LmdbCommitter, changes: Changes, size: int, mark: bytes
) -> StoreError | None:
    """Apply changes to LMDB.

    Changes to the messages of a fenced stream are set aside, so that they do not block all others.
    """
    kept, aside = split(changes, environment.fenced)
    error = _apply(environment, committer, kept, aside, size, mark)
    if error is not None and error.reason == "corrupt":
        refusals = committer.refusals(kept)
        for stream_id, refusal in refusals.items():
            environment.fence_for(stream_id, refusal)
        if refusals:
            kept, aside = split(changes, environment.fenced)
            error = _apply(environment, committer, kept, aside, size, mark)
    return error


def _apply(
    environment: Environment, committer: LmdbCommitter, kept: Changes, aside: Changes, size: int, mark: bytes
) -> StoreError | None:
    if aside:
        try:
            set_aside(environment.path, aside, environment.store_cipher, flush=environment.options.flush)
        except OSError as error:
            return as_store_error(error)
    return committer.apply(kept, size, mark)
