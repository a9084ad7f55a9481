"""Refuses the peer's stale consumer requests on a new link, so that it repeats them at once (`stale_requests.py`).

Only while a downstream of this server is missing: when all known downstreams have their consumers, no request is
delayed.
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.turn.timers import TimerHandle, Timers
from eyot_sync.sourcing.stale_requests import StaleRequests, asks_again_sooner
from eyot_wire.frames import LeafMsg


class StaleRequestRefuser:
    """The stale requests of one link. `done`: nothing more to check.

    `refuse` is called with the inboxes of lost requests.
    """

    __slots__ = ("_refuse_all", "_requests", "_timer", "_timers", "done")

    def __init__(self, timers: Timers, refuse: Callable[[list[bytes]], None]) -> None:
        self._timers = timers
        self._refuse_all = refuse
        self._requests = StaleRequests()
        self._timer: TimerHandle | None = None
        self.done = False

    def announced(self, subject: bytes) -> None:
        self._requests.announced(subject)

    def withdrawn(self, subject: bytes) -> None:
        self._requests.withdrawn(subject)

    def heard(self, messages: list[LeafMsg]) -> None:
        self._requests.heard(messages)

    def complete(self, now: float, peer_version: str, rtt_s: float) -> None:
        """Process the peer's first interest, which is complete."""
        if not self._requests or not asks_again_sooner(peer_version):
            self.stop()
            return
        self._requests.complete(now, rtt_s)
        assert self._requests.due_at is not None
        self._timer = self._timers.call_at(self._requests.due_at, self._refuse)

    def stop(self) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()

    def _refuse(self) -> None:
        self.done = True
        self._refuse_all(list(self._requests.take()))
