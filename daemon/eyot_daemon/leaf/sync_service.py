"""The policies of `eyot { sync { } }` as a service of the daemon; what metered links have spent is kept beside the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from eyot_daemon.config.options import Options
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.router.sync_control import SyncControl
from eyot_sync.policy.policy import SyncPolicies


class SyncService:
    """`store_path`: the directory of JetStream's store, None while there is none."""

    name = "sync policies"

    def __init__(self, sync: SyncControl, store_path: Callable[[], Path | None]) -> None:
        self.sync = sync
        self._store_path = store_path
        self._nursery: trio.Nursery | None = None
        self._keeps = False

    def configure(self, options: Options) -> SyncPolicies:
        return options.eyot.sync

    def start(self, prepared: SyncPolicies, runtime: Runtime) -> None:
        """Do nothing: the broker was created with the policies."""
        self._nursery = runtime.nursery  # not one of the connections, for which a stop waits
        self._keep()

    def _keep(self) -> None:
        path = self._store_path()
        if path is not None and not self._keeps and self._nursery is not None:
            self._keeps = True
            self.sync.keep_in(path)
            self._nursery.start_soon(self.sync.run)

    def reload(self, prepared: SyncPolicies, steps: ReloadSteps) -> None:
        before = self.sync.policies
        steps.undo(lambda: self.sync.reload(before))
        self.sync.reload(prepared)
        steps.last(self._keep)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Do nothing: the counters are written when the nursery ends."""
