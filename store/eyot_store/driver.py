"""Who runs a committer: a thread of its own with group commit, or the caller (for deterministic simulation)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from eyot_store.committer import Committer
from eyot_store.environment import as_store_error
from eyot_store.errors import StoreError
from eyot_store.txn import Txn

Group = list[tuple[Txn, StoreError | None]]

GROUP_BYTES_MAX = 16 << 20
"""A group is closed at this size, so that one flush does not make everybody wait for all of a large backlog."""

TIDY_EVERY = 8
"""Groups after which some housekeeping is done even if the next one is waiting."""


class Driver(Protocol):
    """Takes transactions in the loop's thread, hands results to ``finished`` group by group, in order."""

    def submit(self, txn: Txn) -> None: ...

    def stop(self) -> None:
        """Commit everything that was submitted, then end."""


class ThreadDriver:
    """One thread; a group is whatever gathered while the last one was being flushed. ``finished`` runs in that thread."""

    def __init__(self, committer: Committer, finished: Callable[[Group], None]) -> None:
        self._committer = committer
        self._finished = finished
        self._queue: SimpleQueue[Txn | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="eyot-commit", daemon=True)
        self._thread.start()

    def submit(self, txn: Txn) -> None:
        self._queue.put(txn)

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        committer = self._committer
        groups = 0
        while True:
            txn = self._next()
            group: list[Txn] = []
            size = 0
            try:
                while txn is not None:
                    group.append(txn)
                    size += txn.bytes
                    if size >= GROUP_BYTES_MAX:
                        break
                    txn = self._queue.get_nowait()
            except Empty:
                pass
            if group:
                self._finished(run_group(committer, group))
            if txn is None:
                return
            groups += 1
            if groups % TIDY_EVERY == 0 and committer.untidy:
                committer.tidy()

    def _next(self) -> Txn | None:
        """The next transaction; the time until it comes is for housekeeping."""
        while self._committer.untidy:
            try:
                return self._queue.get_nowait()
            except Empty:
                self._committer.tidy()
        return self._queue.get()


class InlineDriver:
    """Nothing happens until ``commit_now``; what was submitted and not committed can be lost on purpose."""

    def __init__(self, committer: Committer, finished: Callable[[Group], None]) -> None:
        self._committer = committer
        self._finished = finished
        self._queue: list[Txn] = []

    def submit(self, txn: Txn) -> None:
        self._queue.append(txn)

    def commit_now(self) -> int:
        """Commit what was submitted as one group, then do a piece of housekeeping; returns how many transactions."""
        group, self._queue = self._queue, []
        if group:
            self._finished(run_group(self._committer, group))
        if self._committer.untidy:
            self._committer.tidy()
        return len(group)

    def lose(self) -> None:
        """Forget what was submitted and not committed, as a crash does."""
        self._queue.clear()

    def stop(self) -> None:
        self.commit_now()


def run_group(committer: Committer, group: list[Txn]) -> Group:
    """Commit a group; whatever goes wrong becomes its transactions' result, so that the driver lives on."""
    try:
        results = committer.commit(group)
    except Exception as error:
        failure = as_store_error(error)
        results = [failure] * len(group)
    return list(zip(group, results, strict=True))
