"""The daemon's clocks: a wall clock for stored times, a monotonic clock for scheduling.

Decision code takes time as an argument. The few places that read time use a `Clock`, so that tests run weeks in a
second (Trio's mock clock drives `monotonic`, `ManualClock` drives both).
"""

import time

import trio

from eyot_daemon.turn.kernel_clock import is_synchronized


class Clock:
    """The real clock: wall time from the system, monotonic time from Trio (so that a mock clock governs timers)."""

    def now_ns(self) -> int:
        """Wall time, nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Monotonic time in seconds: Trio's own clock, only meaningful inside a Trio run."""
        return trio.current_time()

    def use_present_run(self) -> None:
        """Ask the clock of the present Trio run directly from now on; to look the run up costs as much as all else in a call."""
        if type(self) is Clock:
            self.monotonic = trio.lowlevel.current_clock().current_time  # type: ignore[method-assign]

    def is_synchronized(self) -> bool:
        """Return whether the system reports the wall clock as synchronized."""
        return is_synchronized(self.now_ns())


class ManualClock(Clock):
    """A clock that moves only on demand; needs no Trio run."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000, monotonic_s: float = 1000.0) -> None:
        self._now_ns = now_ns
        self._monotonic_s = monotonic_s
        self.synchronized = True

    def is_synchronized(self) -> bool:
        return self.synchronized

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        self._now_ns += int(seconds * 1e9)
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Move only the wall clock, as an NTP correction or a dead RTC battery does."""
        self._now_ns += int(seconds * 1e9)
