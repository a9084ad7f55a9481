"""The context that all accounts and streams of one server's JetStream share, and the thread that reads the store for them.

Long reads are done beside the loop; their results are handed back as turns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from eyot_daemon.config.profile import PROFILES
from eyot_daemon.jetstream.ingest.atomic_batches import BatchBudget
from eyot_daemon.jetstream.ingest.limiter import StoreGate
from eyot_daemon.jetstream.retention.limits import MemoryBound
from eyot_daemon.jetstream.wall_clock import WallClock
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.config.jetstream import JetStreamOptions
    from eyot_daemon.router.broker import Broker
    from eyot_store.store import Store
    from eyot_wire.jetstream.model import StorageType

Done = Callable[[Any, StoreError | None], None]
"""Called in the loop's thread with the result of the work, or with its failure."""


class Beside(Protocol):
    """Runs work in another thread than the loop's."""

    def run(self, work: Callable[[], Any], done: Done) -> None: ...

    def stop(self) -> None:
        """Drop the work that has not begun; its `done` is not called."""


class Inline:
    """Does the work at once, in the caller's thread (simulations, tests)."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Done]] = deque()
        self._busy = False

    def run(self, work: Callable[[], Any], done: Done) -> None:
        self._waiting.append((work, done))
        if self._busy:
            return  # a `done` submitted it: the loop that called this `done` continues with it
        self._busy = True
        try:
            while self._waiting:
                work, done = self._waiting.popleft()
                done(*_attempt(work))
        finally:
            self._busy = False

    def stop(self) -> None:
        self._waiting.clear()


class ReadThread:
    """One thread, started when it is first needed; it does its work in order.

    `notify` has a function called in the loop's thread, as a turn of the broker.
    """

    def __init__(self, notify: Callable[[Callable[[], None]], None]) -> None:
        self._notify = notify
        self._queue: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Callable[[], Any], done: Done) -> None:
        if self._stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="eyot-read", daemon=True)
            self._thread.start()
        self._queue.put((work, done))

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            if self._stopped:
                continue
            result, failure = _attempt(work)
            self._notify(partial(self._hand_over, result, failure, done))

    def _hand_over(self, result: Any, failure: StoreError | None, done: Done) -> None:
        if not self._stopped:
            done(result, failure)


def _attempt(work: Callable[[], Any]) -> tuple[Any, StoreError | None]:
    try:
        return work(), None
    except StoreError as failure:
        return None, failure
    except Exception as failure:
        return None, StoreError("io", f"reading failed: {failure}")


class AccountUsage(Protocol):
    """The figures of an account that the server's limits use."""

    @property
    def transfers(self) -> int:
        """Backups and restores under way."""
        ...

    def used(self, storage: StorageType) -> int:
        """Bytes that the account's streams hold."""
        ...

    def reserved(self, storage: StorageType) -> int:
        """Bytes that the account's streams with a limit may grow to."""
        ...

    def taken_in_memory(self) -> int:
        """Bytes that the account's streams in memory use in this process."""
        ...


class ServerContext:
    """`beside` is the thread for long reads. `accounts` are those that have JetStream, by name."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        options: JetStreamOptions,
        accounts: Mapping[str, AccountUsage],
        *,
        beside: Beside | None = None,
        machine_bytes: int = -1,
    ) -> None:
        self.broker = broker
        self.store = store
        #: replaced when the configuration is reloaded
        self.options = options
        self.beside: Beside = beside or Inline()
        self.wall_clock = WallClock(broker.clock, store.path)
        self.batch_budget = BatchBudget(PROFILES[broker.options.eyot.profile].batch_size)
        self.store_gate = StoreGate(broker.timers, store)
        #: of streams in memory, where no limit of theirs is configured
        self.memory_bound = MemoryBound(machine_bytes // 4 * 3, self._taken_in_memory)
        #: streams that are damaged on disk, by account and name, and why nothing of them is served
        self.offline: dict[tuple[str, str], str] = {}
        #: requests for packed reads that are not answered to their end
        self.packed_reads_open = 0
        self._accounts = accounts

    def used(self, storage: StorageType) -> int:
        """Bytes stored in all accounts."""
        return sum(each.used(storage) for each in self._accounts.values())

    def reserved(self, storage: StorageType) -> int:
        """Bytes that all streams with a limit may grow to."""
        return sum(each.reserved(storage) for each in self._accounts.values())

    def transfers(self) -> int:
        """Backups and restores under way in all accounts."""
        return sum(each.transfers for each in self._accounts.values())

    def _taken_in_memory(self) -> int:
        return sum(each.taken_in_memory() for each in self._accounts.values())
