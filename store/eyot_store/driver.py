"""Drivers call a committer: from a thread with group commit, or from the caller (for deterministic simulation)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from eyot_store.committer import Committer
from eyot_store.environment import as_store_error
from eyot_store.errors import StoreError
from eyot_store.txn import Txn

Group = list[tuple[Txn, StoreError | None]]

GROUP_BYTES_MAX = 16 << 20
"""A group is closed at this size, so that no publisher waits for all of a large backlog."""

WINDOW_BYTES_MAX = 1 << 20
"""A group of this size waits for no others: its flush is paid for."""

TIDY_EVERY = 8
"""Groups after which some housekeeping is done even if the next one is waiting."""


class Driver(Protocol):
    """Accepts transactions in the loop's thread and passes results to `finished`, group by group, in order."""

    def submit(self, txn: Txn) -> None: ...

    def stop(self) -> None:
        """Commit everything that was submitted, then end."""

    def hold(self) -> None:
        """Keep what is submitted until `release`. In the loop's thread."""

    def release(self) -> None:
        """Hand over what was kept."""

    def set_window(self, seconds: float) -> None:
        """Let a group of patient transactions wait up to this long for others. In the loop's thread."""

    def stalled_s(self) -> float:
        """Return for how long, in seconds, the committing side has been at one group or piece of housekeeping.

        0 while it waits for work, infinity when it has ended unexpectedly.
        """


class Holding:
    """The part of a driver that keeps what is submitted between `hold` and `release`."""

    def __init__(self) -> None:
        self._kept: list[Txn] | None = None  # None: nothing is held

    def submit(self, txn: Txn) -> None:
        if self._kept is None:
            self._take([txn])
        else:
            self._kept.append(txn)

    def hold(self) -> None:
        if self._kept is None:
            self._kept = []

    def release(self) -> None:
        kept, self._kept = self._kept, None
        if kept:
            self._take(kept)

    def _take(self, txns: list[Txn]) -> None:
        """Have transactions committed."""
        raise NotImplementedError


class ThreadDriver(Holding):
    """Commits in one thread; a group is what gathered during the last flush. `finished` runs in that thread.

    With a window, a group waits for more as long as all of its transactions are patient. What is submitted between `hold` and `release`
    comes to the thread at once: it would wake up for the first of many, contend for the interpreter, and flush a few.
    """

    def __init__(self, committer: Committer, finished: Callable[[Group], None]) -> None:
        super().__init__()
        self._committer = committer
        self._finished = finished
        self._queue: SimpleQueue[Txn | None] = SimpleQueue()
        self._window_s = 0.0
        self._since = 0.0  # when what the thread is at began (monotonic); 0: it waits for work
        self._thread = threading.Thread(target=self._run, name="eyot-commit", daemon=True)
        self._thread.start()

    def _take(self, txns: list[Txn]) -> None:
        for txn in txns:
            self._queue.put(txn)

    def set_window(self, seconds: float) -> None:
        self._window_s = seconds

    def stop(self) -> None:
        self.release()
        self._queue.put(None)
        self._thread.join()

    def stalled_s(self) -> float:
        if not self._thread.is_alive():
            return float("inf")
        since = self._since
        return time.monotonic() - since if since else 0.0

    def _run(self) -> None:
        committer = self._committer
        groups = 0
        while True:
            group, txn = self._gather(self._next())
            self._since = time.monotonic()
            if group:
                self._finished(run_group(committer, group))
            if txn is None:
                return
            groups += 1
            if groups % TIDY_EVERY == 0 and committer.untidy:
                committer.tidy()

    def _gather(self, txn: Txn | None) -> tuple[list[Txn], Txn | None]:
        """Return a group that begins with `txn`, and the last that was taken from the queue: None to end."""
        group: list[Txn] = []
        size = 0
        patient = True
        until = time.monotonic() + self._window_s if self._window_s else 0.0
        try:
            while txn is not None:
                group.append(txn)
                size += txn.bytes
                if size >= GROUP_BYTES_MAX:
                    break
                patient = patient and txn.patient
                self._since = 0.0  # waiting for others is no stall
                left_s = until - time.monotonic() if until and patient and size < WINDOW_BYTES_MAX else 0.0
                txn = self._queue.get(timeout=left_s) if left_s > 0 else self._queue.get_nowait()
        except Empty:
            pass
        return group, txn

    def _next(self) -> Txn | None:
        """Return the next transaction; runs housekeeping until one arrives."""
        while self._committer.untidy:
            try:
                return self._queue.get_nowait()
            except Empty:
                self._since = time.monotonic()
                self._committer.tidy()
        self._since = 0.0
        return self._queue.get()


class InlineDriver:
    """Commits only in `commit_now`; simulations can lose what was submitted and not committed."""

    def __init__(self, committer: Committer, finished: Callable[[Group], None]) -> None:
        self._committer = committer
        self._finished = finished
        self._queue: list[Txn] = []

    def submit(self, txn: Txn) -> None:
        self._queue.append(txn)

    def commit_now(self) -> int:
        """Commit what was submitted as one group, then do one step of housekeeping; return the number of transactions."""
        group, self._queue = self._queue, []
        if group:
            self._finished(run_group(self._committer, group))
        if self._committer.untidy:
            self._committer.tidy()
        return len(group)

    def hold(self) -> None:
        """Do nothing: the caller says when to commit."""

    def release(self) -> None:
        """Do nothing: the caller says when to commit."""

    def set_window(self, seconds: float) -> None:
        """Ignore it: the caller says when to commit."""

    def stalled_s(self) -> float:
        return 0.0

    def lose(self) -> None:
        """Drop what was submitted and not committed, as a crash does."""
        self._queue.clear()

    def stop(self) -> None:
        self.commit_now()


def run_group(committer: Committer, group: list[Txn]) -> Group:
    """Commit a group; an unexpected exception becomes the result of its transactions, so that the driver continues."""
    try:
        results = committer.commit(group)
    except Exception as error:
        failure = as_store_error(error)
        results = [failure] * len(group)
    return list(zip(group, results, strict=True))
