"""The deadlines of one link's session on the broker's clock.

A peer whose deadline passes while its bytes are unread gets a little longer: with many links at once, or a stalled
disk, a timely answer may still wait in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eyot_daemon.turn.timers import TimerHandle, Timers

#: The extension, and how often it is granted before the link is established.
REPRIEVE_S = 0.1
REPRIEVES_MAX = 100


class TimedSession(Protocol):
    """The session, as far as it is known here."""

    @property
    def next_deadline(self) -> float:
        """Time at which the timer is due, monotonic seconds; infinity: never."""
        ...


class SessionTimer:
    """Calls `tick` with the time when `session` is due; `input_waits` says whether the peer's words lie unread."""

    __slots__ = (
        "_armed_at",
        "_input_waits",
        "_now",
        "_reprieves",
        "_session",
        "_stopped",
        "_tick",
        "_timer",
        "_timers",
    )

    def __init__(
        self,
        session: TimedSession,
        timers: Timers,
        now: Callable[[], float],
        tick: Callable[[float], None],
        input_waits: Callable[[], bool],
    ) -> None:
        self._session = session
        self._timers = timers
        self._now = now
        self._tick = tick
        self._input_waits = input_waits
        self._timer: TimerHandle | None = None
        self._armed_at = 0.0
        self._reprieves = 0
        self._stopped = False

    def heard(self) -> None:
        """Note traffic of an established peer."""
        self._reprieves = 0

    def follow(self) -> None:
        """Follow a session whose deadline may be earlier now; a later one is found when the timer fires."""
        if self._timer is None or self._session.next_deadline < self._armed_at:
            self._set(self._session.next_deadline)

    def stop(self) -> None:
        """Stop when the link ends."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = at
        self._timer = self._timers.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._stopped:
            return
        now = self._now()
        if self._reprieves < REPRIEVES_MAX and self._input_waits():
            self._reprieves += 1
            self._set(now + REPRIEVE_S)
            return
        self._tick(now)
