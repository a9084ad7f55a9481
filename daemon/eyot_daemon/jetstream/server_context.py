"""The context that all accounts and streams of one server's JetStream share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from eyot_daemon.jetstream.ingest.atomic_batches import BatchBudget
from eyot_daemon.jetstream.ingest.limiter import StoreGate
from eyot_daemon.jetstream.read_thread import Beside, Inline
from eyot_daemon.jetstream.retention.limits import MemoryBound
from eyot_daemon.jetstream.wall_clock import WallClock

if TYPE_CHECKING:
    from eyot_daemon.config.jetstream import JetStreamOptions
    from eyot_daemon.router.broker import Broker
    from eyot_store.store import Store
    from eyot_wire.jetstream.model import StorageType


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
        self.batch_budget = BatchBudget()
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
