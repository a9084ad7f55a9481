"""What publishers wait at when somebody has taken in more than can be dealt with: their sockets are not read until it is open.

A connection waits at a gate for a while only, however long it stays shut: one more read then, so that a peer that asks for life is
answered, one that hung up is noticed, and what a leaf link carries for others gets through. What is taken in that way is bounded by
whoever shut the gate, who refuses when it is too much.
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.turn.timers import TimerHandle, Timers

Resume = Callable[[], None]


class Gate:
    """`is_shut` says whether it is; whoever shuts it calls `open` when it no longer is."""

    def __init__(self, timers: Timers, is_shut: Callable[[], bool]) -> None:
        self._timers = timers
        self._is_shut = is_shut
        self._waiting: dict[Resume, TimerHandle] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def shut(self) -> bool:
        return self._is_shut()

    def wait(self, resume: Resume, seconds_max: float) -> None:
        """Call `resume` once, when the gate opens or `seconds_max` have passed."""
        self._waiting[resume] = self._timers.call_later(seconds_max, lambda: self._out_of_patience(resume))

    def _out_of_patience(self, resume: Resume) -> None:
        if self._waiting.pop(resume, None) is not None:
            resume()

    def open(self) -> None:
        """Let everybody go on."""
        waiting, self._waiting = self._waiting, {}
        for resume, timer in waiting.items():
            timer.cancel()
            resume()
