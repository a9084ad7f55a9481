"""Where in a log it is known how many messages of a filter lie below.

Counting from the middle of a log walks it, unless arithmetic will do. How many messages lie below the place at which a long walk ended
is kept, and moves with what goes away and comes back: the next count walks from there.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS_MAX = 8
"""Filters of a log for which a point is kept; the one that was set longest ago goes first."""

Filters = tuple[bytes, ...]
Match = Callable[[bytes], bool] | None


class Point:
    """``below`` live committed messages that match have a sequence < ``seq``."""

    __slots__ = ("below", "match", "seq")

    def __init__(self, match: Match, seq: int, below: int) -> None:
        self.match = match
        self.seq = seq
        self.below = below

    def moves(self, subject: bytes, seq: int, by: int) -> None:
        # What could not be read has no subject: it counts where all do.
        if seq < self.seq and (self.match is None or (subject and self.match(subject))):
            self.below += by


class Points:
    """Those of one log, whose only writer tells what goes and comes."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: dict[Filters, Point] = {}

    def __len__(self) -> int:
        return len(self._points)

    def get(self, filters: Filters) -> Point | None:
        return self._points.get(filters)

    def put(self, filters: Filters, point: Point) -> None:
        self._points.pop(filters, None)
        if len(self._points) == POINTS_MAX:
            del self._points[next(iter(self._points))]
        self._points[filters] = point

    def discard(self, subject: bytes, seq: int) -> None:
        """The message at ``seq`` went away."""
        for point in self._points.values():
            point.moves(subject, seq, -1)

    def restore(self, subject: bytes, seq: int) -> None:
        """A message whose removal did not happen is back."""
        for point in self._points.values():
            point.moves(subject, seq, 1)

    def clear(self) -> None:
        self._points.clear()
