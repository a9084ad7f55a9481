"""Timers at times of the wall clock, which may be set: forward over the time, or back before it.

The event loop's timers follow the monotonic clock. A device without a battery-backed clock starts in the past, so a
login whose token has long expired would last for what was left by the wrong clock.
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.timers import TimerHandle, Timers

#: The longest interval between looks at the wall clock while a timer is pending, seconds. JetStream looks as often.
LOOK_S = 15.0


class WallTimers:
    """Pending calls by wall time. One of `timers` waits for the earliest, for at most LOOK_S."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._pending = Timers(clock)
        self._look: TimerHandle | None = None

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> TimerHandle:
        """Run `fn` once the wall clock shows what it shows now, and `delay_s` seconds more.

        It runs at most LOOK_S late after the clock was set forward.
        """
        handle = self._pending.call_at(self._clock.now_ns() / 1e9 + delay_s, fn)
        self._wait()
        return handle

    def _wait(self) -> None:
        """Look when the earliest is due by the clock as it is now, or in LOOK_S."""
        at_s = self._pending.next_deadline
        if at_s is None:
            return
        wait_s = min(max(0.0, at_s - self._clock.now_ns() / 1e9), LOOK_S)
        deadline = self._clock.monotonic() + wait_s
        if self._look is not None and self._look.active:
            if self._look.deadline <= deadline:
                return
            self._look.cancel()
        self._look = self._timers.call_at(deadline, self._run)

    def _run(self) -> None:
        self._pending.run_due(self._clock.now_ns() / 1e9)
        self._wait()
