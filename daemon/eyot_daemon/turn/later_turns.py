"""What goes on in later turns: one peer's thousands of small operations keep nobody else waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from eyot_daemon.turn.timers import TimerHandle, Timers


class LaterTurns:
    """Who goes on in a later turn: one in each, in the order in which they asked. Sockets are read between two turns."""

    __slots__ = ("_next", "_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Callable[[], None]] = deque()
        self._next: TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many wait for a turn."""
        return len(self._waiting)

    def add(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, in a turn of its own."""
        self._waiting.append(go_on)
        self._set()

    def _set(self) -> None:
        if self._next is None and self._waiting:
            self._next = self._timers.call_later(0.0, self._run)

    def _run(self) -> None:
        self._next = None
        go_on = self._waiting.popleft()
        self._set()
        go_on()
