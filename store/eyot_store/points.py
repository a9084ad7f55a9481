"""Where in a log it is known how many messages of a filter lie below.

Counting from the middle of a log walks it, unless arithmetic will do. How many messages lie below the place at which a long walk ended
is kept, and moves with what goes away and comes back: the next count walks from there.
"""

from __future__ import annotations

from eyot_store.subjects.subjects import matcher

POINTS_MAX = 8
"""Points of a log that are kept; the one that was set longest ago goes first."""

Filters = tuple[bytes, ...]


class Point:
    """``below`` live committed messages that ``match`` (None: all) have a sequence < ``seq``."""

    __slots__ = ("below", "filters", "match", "seq")

    def __init__(self, filters: Filters, seq: int, below: int) -> None:
        self.filters = filters
        self.match = matcher(filters)
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
        self._points: list[Point] = []

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, point: Point) -> bool:
        return any(each is point for each in self._points)

    def of(self, filters: Filters) -> list[Point]:
        """Those of these filters."""
        return [point for point in self._points if point.filters == filters]

    def put(self, point: Point) -> None:
        """Keep a point: it moves from now on. One at the same place goes."""
        others = (each for each in self._points if each.filters != point.filters or each.seq != point.seq)
        self._points = [*others, point][-POINTS_MAX:]

    def discard(self, subject: bytes, seq: int) -> None:
        """The message at ``seq`` went away."""
        for point in self._points:
            point.moves(subject, seq, -1)

    def restore(self, subject: bytes, seq: int) -> None:
        """A message whose removal did not happen is back."""
        for point in self._points:
            point.moves(subject, seq, 1)

    def clear(self) -> None:
        self._points.clear()
