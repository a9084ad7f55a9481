"""Stores for tests: a stand-in for the loop that runs what the committing thread hands over, and short ways to write."""

import os
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from eyot_store import Log, Store, StoreError, StoreOptions, Txn
from eyot_store.driver import InlineDriver
from eyot_store.native import FrameWriter

FAST = StoreOptions(inline=True, flush=False, committer="lmdb")
JOURNAL = StoreOptions(inline=True, flush=False, committer="journal", journal_segment_bytes=8 << 10, journal_segments=2)


class Loop:
    """The loop's thread: `notify` queues, `run` runs."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.calls = 0

    def notify(self, fn: Callable[[], None]) -> None:
        self.queue.put(fn)

    def run(self, until: Callable[[], bool], timeout_s: float = 30) -> None:
        """Run what is handed over until `until()` holds."""
        while not until():
            self.queue.get(timeout=timeout_s)()
            self.calls += 1

    def drain(self) -> None:
        """Run what is there."""
        while True:
            try:
                self.queue.get_nowait()()
            except Empty:
                return
            self.calls += 1


def open_inline(path: Path, options: StoreOptions = FAST) -> Store:
    """A store that commits when told to, and runs callbacks at once."""
    return Store.open(path, notify=lambda fn: fn(), options=options)


class BesideDriver(InlineDriver):
    """Commits as `DirectDriver` does, and waits: the writes are in order, so that each can be lost or fail."""

    def __init__(self, store: Store) -> None:
        super().__init__(store._committer, store._group_finished)
        self._writer = FrameWriter(os.eventfd(0))
        self.beside = 0  # groups

    def commit_now(self) -> int:
        group = self._queue
        if not (group and self._committer.begin(group, self._writer)):  # type: ignore[attr-defined]
            return super().commit_now()
        self.beside += 1
        if self._writer.wait():
            self._committer.abort()  # type: ignore[attr-defined]
            return super().commit_now()
        self._committer.end(self._writer.flush_ns)  # type: ignore[attr-defined]
        self._queue = []
        self._finished([(txn, None) for txn in group])
        return len(group)


def write_beside(store: Store) -> BesideDriver:
    """Have an inline store with a journal commit small groups as a loop does."""
    store._driver = driver = BesideDriver(store)
    return driver


def commit(store: Store, txn: Txn) -> StoreError | None:
    """Hand in `txn` to an inline store, commit, and return its result."""
    results: list[StoreError | None] = []
    store.submit(txn, results.append)
    store.commit_now()
    assert len(results) == 1
    return results[0]


def make_log(store: Store, name: str = "S", *, memory: bool = False, config: bytes = b"{}") -> Log:
    """A new stream in account A, committed."""
    txn = store.begin()
    log = store.create_stream(txn, "A", name, config, 1, memory=memory)
    assert commit(store, txn) is None
    return log


def fill(store: Store, log: Log, count: int, subject: bytes = b"a", payload: bytes = b"x") -> None:
    """Append and commit `count` messages; their times are their sequences."""
    txn = store.begin()
    for _ in range(count):
        log.append(txn, subject, b"", payload, log.state.last_seq + 1)
    assert commit(store, txn) is None
