"""A clock for tests that take turns one by one."""

from __future__ import annotations

from eyot_daemon.turn.clock import Clock


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
