"""The local page as a service of the daemon. A daemon without the page loads nothing of it and keeps no samples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.monitor.page.controls import Controls
from eyot_daemon.monitor.page.support_bundle import SupportBundle
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.monitor.page.answers import PageAnswers


class PageService:
    """Runs while the page is configured.

    `store_path`: the directory of JetStream's store, None while there is none. `controls`: what its actions steer.
    `bundle` makes support bundles, and keeps the last lines of the log.
    """

    name = "page"

    def __init__(
        self, clients: Clients, store_path: Callable[[], Path | None], controls: Controls, bundle: SupportBundle
    ) -> None:
        self._clients = clients
        self._store_path = store_path
        self._controls = controls
        self._bundle = bundle
        self._nursery: trio.Nursery | None = None
        self._scope: trio.CancelScope | None = None
        #: what the page's addresses answer; None: the page is not served
        self.answers: PageAnswers | None = None

    def configure(self, options: Options) -> bool:
        return options.eyot.http.page

    def start(self, prepared: bool, runtime: Runtime) -> None:
        self._nursery = runtime.nursery
        self._apply(prepared)

    def reload(self, prepared: bool, steps: ReloadSteps) -> None:
        steps.last(lambda: self._apply(prepared))

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: a history that cannot be written harms nobody."""
        return None

    def stop(self) -> None:
        """End; the last samples are written."""
        self._apply(False)

    def _apply(self, wanted: bool) -> None:
        if wanted and self.answers is None:
            self._begin()
        elif not wanted and self.answers is not None:
            self._end()

    def _begin(self) -> None:
        from eyot_daemon.monitor.page.access import Access
        from eyot_daemon.monitor.page.answers import PageAnswers
        from eyot_daemon.monitor.page.history import History
        from eyot_daemon.monitor.page.sampler import Sampler

        assert self._nursery is not None
        history = History()
        self._scope = trio.CancelScope()
        sampler = Sampler(self._clients.broker, history, self._store_path)
        self.answers = PageAnswers(
            self._clients, history, self._bundle, sampler.sample, Access(self._clients, self._controls)
        )
        self._nursery.start_soon(_run, self._scope, sampler.run)

    def _end(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        self.answers = self._scope = None


async def _run(scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()
