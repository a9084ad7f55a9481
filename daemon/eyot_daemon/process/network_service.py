"""The network that comes back wakes what waits for it, as a service of the daemon; without remotes and bridges it does nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from eyot_daemon.config.options import Options
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

log = logging.getLogger("eyot")


class NetworkService:
    """`when_back`: what is done, at most once a second, as long as the configuration has something that dials."""

    name = "network changes"

    def __init__(self, when_back: Iterable[Callable[[], None]]) -> None:
        self._when_back = tuple(when_back)
        self._nursery: trio.Nursery | None = None
        self._scope: trio.CancelScope | None = None

    def configure(self, options: Options) -> bool:
        """Return whether anything dials."""
        return bool(options.leafnodes.remotes or options.eyot.bridges)

    def start(self, prepared: bool, runtime: Runtime) -> None:
        self._nursery = runtime.nursery  # not one of the connections, for which a stop waits
        self._update(prepared)

    def reload(self, prepared: bool, steps: ReloadSteps) -> None:
        """Begin or end with the first and last remote or bridge."""
        steps.last(lambda: self._update(prepared))

    def _update(self, wanted: bool) -> None:
        if wanted and self._scope is None:
            self._begin()
        elif not wanted:
            self.stop()

    def _begin(self) -> None:
        # Loaded only where something dials.
        from eyot_daemon.net import network_changes

        try:
            source = network_changes.open_socket()
        except (OSError, AttributeError) as error:
            # Another system than Linux, or a sandbox. Links then wait for their usual interval.
            log.debug("Changes of the network are not seen: %s", error)
            return
        assert self._nursery is not None
        scope = self._scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await network_changes.watch(source, self._changed)

        self._nursery.start_soon(run)

    def _changed(self) -> None:
        log.debug("The network changed")
        for step in self._when_back:
            step()

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: links and bridges have states of their own."""
        return None

    def stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
