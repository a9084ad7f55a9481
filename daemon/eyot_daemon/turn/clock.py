"""Time as the daemon sees it: one wall clock for what is stored, one monotonic clock for what is scheduled.

Everything that decides gets time as an argument; the few places that ask for it ask a `Clock`, so that tests run
weeks in a second (Trio's mock clock drives `monotonic`, `ManualClock` drives both).
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

    def is_synchronized(self) -> bool:
        """Does something that knows the time say that the wall clock is right?"""
        return is_synchronized(self.now_ns())


class ManualClock(Clock):
    """A clock that moves only when told to; needs no Trio run."""

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
        """Move only the wall clock: what an NTP correction or a dead RTC battery does."""
        self._now_ns += int(seconds * 1e9)
