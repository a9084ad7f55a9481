"""Gates that pause publishers while a destination has accepted more than it can process: their sockets are not read.

A connection waits at a gate for a limited time, however long the gate stays shut, and is then read once. So a peer's
PING is answered, a disconnect is noticed, and a leaf link's other traffic continues. The owner of the gate bounds what
is accepted that way, and refuses the excess.
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.turn.timers import TimerHandle, Timers

Resume = Callable[[], None]


class Gate:
    """`is_shut` tells the gate's state; the owner calls `open` when it changes to open."""

    def __init__(self, timers: Timers, is_shut: Callable[[], bool]) -> None:
        self._timers = timers
        self._is_shut = is_shut
        #: who waits; whoever asks for each message finds that out without a call
        self.waiting: dict[Resume, TimerHandle] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self.waiting)

    @property
    def is_shut(self) -> bool:
        return self._is_shut()

    def wait(self, resume: Resume, seconds_max: float) -> None:
        """Call `resume` once, when the gate opens or `seconds_max` have passed."""
        self.waiting[resume] = self._timers.call_later(seconds_max, lambda: self._out_of_patience(resume))

    def _out_of_patience(self, resume: Resume) -> None:
        if self.waiting.pop(resume, None) is not None:
            resume()

    def open(self) -> None:
        """Release all waiting connections."""
        waiting, self.waiting = self.waiting, {}
        for resume, timer in waiting.items():
            timer.cancel()
            resume()
