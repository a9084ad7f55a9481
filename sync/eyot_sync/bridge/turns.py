"""Whose message goes next over a bridge: the highest priority first; streams of equal priority share by bytes.

The bytes that a stream has had are its time, and a priority's clock is the time of the stream that went last (start-time
fair queueing): one that had nothing to send begins at the clock, and does not catch up.
"""

from __future__ import annotations

from collections.abc import Iterable


class Turns:
    """The times of streams, and the clocks of priorities, bytes."""

    __slots__ = ("_clock", "_time")

    def __init__(self) -> None:
        self._time: dict[str, int] = {}
        self._clock: dict[int, int] = {}

    def pick(self, candidates: Iterable[tuple[str, int]]) -> str:
        """Return one of the (stream, priority) that have something to send; there is at least one."""
        found = list(candidates)
        top = max(priority for _, priority in found)
        clock = self._clock.get(top, 0)
        time, name = min((max(clock, self._time.get(name, 0)), name) for name, priority in found if priority == top)
        self._clock[top] = self._time[name] = time
        return name

    def sent(self, name: str, size: int) -> None:
        """Count a message of `size` bytes."""
        self._time[name] = self._time.get(name, 0) + size
