"""The life cycle that every service of the daemon has: JetStream, leaf links, monitoring and each of the others.

A service is configured, started, reloaded, asked for its health, and stopped:

    configure(options)      checks, reads and prepares; changes nothing; may refuse
    start(prepared, ...)    the daemon starts
    reload(prepared, steps) the configuration changed; may refuse: the reload is then rolled back
    health(query)           what is wrong
    stop()                  the daemon ends, or lets its clients go

A start configures all services, then starts them in order; a stop goes the other way. A reload is all or nothing: every service
prepares before the first one changes anything, and when a later one refuses, the changes of the earlier ones are
rolled back (`ReloadSteps`). A step that cannot be rolled back, such as ending a connection, waits until no service can refuse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import trio

from eyot_daemon.config.options import Options
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.process.ports_file import Ports
from eyot_daemon.process.start_error import cannot_listen
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

log = logging.getLogger("eyot")

Step = Callable[[], None]
#: The result of `configure`, an argument of `start` and `reload`.
Prepared = TypeVar("Prepared")


class Runtime:
    """The running daemon as its services use it: where tasks run, and the steps after all services have started.

    `nursery`       tasks that end with the daemon
    `connections`   connections, and what makes them: a stop waits for these a moment
    `ports`         where the daemon can be reached; each service enters its own
    """

    def __init__(self, nursery: trio.Nursery, connections: trio.Nursery, ports: Ports) -> None:
        self.nursery = nursery
        self.connections = connections
        self.ports = ports
        self._when_open: list[Step] = []
        self._listeners: list[TcpListener] = []

    def bind(self, what: str, host: str, port: int) -> TcpListener:
        """Return a listening socket that accepts connections once all services have started. Raises StartError."""
        try:
            listener = TcpListener.reserve(host, port)
        except OSError as error:
            raise cannot_listen(what, host, port, error) from error
        self._listeners.append(listener)
        return listener

    def when_open(self, step: Step) -> None:
        """Do `step` once every listener accepts connections; it may raise StartError."""
        self._when_open.append(step)

    def open(self) -> None:
        """All services have started: who connects from now on is served. Raises StartError."""
        for listener in self._listeners:
            try:
                listener.listen()
            except OSError as error:
                raise cannot_listen("", listener.host, listener.port, error) from error
        for step in self._when_open:
            step()

    def close_listeners(self) -> None:
        """No new connections; a second call does nothing."""
        for listener in self._listeners:
            listener.close()


class ReloadSteps:
    """One reload: the steps that roll its changes back, and the steps that wait until no service can refuse."""

    def __init__(self) -> None:
        self._undo: list[Step] = []
        self._last: list[Step] = []

    def undo(self, step: Step) -> None:
        """Register `step`, which rolls a change back if the reload fails, even if the change is incomplete. Call it before the change."""
        self._undo.append(step)

    def last(self, step: Step) -> None:
        """Do `step` once every service has accepted the new configuration; `step` cannot be rolled back."""
        self._last.append(step)

    def roll_back(self) -> None:
        """Roll the changes back, in the order of the reload: each roll-back is a reload of the old configuration."""
        _each(self._undo, "Taking back a reload failed")

    def complete(self) -> None:
        """Nobody has refused."""
        _each(self._last, "The end of a reload failed")


def _each(steps: Iterable[Step], failure: str) -> None:
    """Run every step, even if others fail: half of the steps would leave neither the old nor the new configuration."""
    for step in steps:
        try:
            step()
        except Exception:
            log.exception(failure)


class Service(Protocol[Prepared]):
    """See the module."""

    @property
    def name(self) -> str:
        """Name of the service in log lines."""

    def configure(self, options: Options) -> Prepared:
        """Check the options, read the files that they name; nothing changes. Raises what a reload refuses with (`RELOAD_REFUSED`)."""

    def start(self, prepared: Prepared, runtime: Runtime) -> None:
        """Begin. Raises StartError."""

    def reload(self, prepared: Prepared, steps: ReloadSteps) -> None:
        """Take the new options, or raise. Whatever changes is registered with `steps` before."""

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return the service's problem; None: healthy, or not configured."""

    def stop(self) -> None:
        """End. A second call does nothing, nor does one without a start."""


AnyService = Service[Any]


def reload_all(services: Iterable[AnyService], options: Options) -> None:
    """Reload every service in order, or none. Raises what a service refused with; everything is then as it was."""
    prepared = [(service, service.configure(options)) for service in services]
    steps = ReloadSteps()
    try:
        for service, each in prepared:
            service.reload(each, steps)
    except BaseException:
        steps.roll_back()
        raise
    steps.complete()
