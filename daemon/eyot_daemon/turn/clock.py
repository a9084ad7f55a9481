"""The daemon's clocks: a wall clock for stored times, a monotonic clock for scheduling.

Decision code takes time as an argument. The few places that read time use a `Clock`, so that tests run weeks in a
second (Trio's mock clock drives `monotonic`; a subclass drives both).
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
