"""Places in a log below which the number of a filter's messages is known.

A count from the middle of a log walks the log, unless arithmetic suffices. The result of a long walk is kept as a
point, which is updated as messages are removed and restored. The next count starts from there.
"""

from __future__ import annotations

from eyot_store.subjects.subjects import matcher

POINTS_MAX = 8
"""Points of a log that are kept; the one that was set longest ago goes first."""

Filters = tuple[bytes, ...]


class Point:
    """`below` live committed messages that `match` (None: all) have a sequence < `seq`."""

    __slots__ = ("below", "filters", "match", "seq")

    def __init__(self, filters: Filters, seq: int, below: int) -> None:
        self.filters = filters
        self.match = matcher(filters)
        self.seq = seq
        self.below = below

    def moves(self, subject: bytes, seq: int, by: int) -> None:
        # An unreadable message has no subject: it counts for points without a filter only.
        if seq < self.seq and (self.match is None or (subject and self.match(subject))):
            self.below += by


class Points:
    """The points of one log, which reports every removal and restoration."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: list[Point] = []

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, point: Point) -> bool:
        return any(each is point for each in self._points)

    def of(self, filters: Filters) -> list[Point]:
        """Return the points of these filters."""
        return [point for point in self._points if point.filters == filters]

    def put(self, point: Point) -> None:
        """Keep a point up to date from now on; it replaces one at the same place."""
        others = (each for each in self._points if each.filters != point.filters or each.seq != point.seq)
        self._points = [*others, point][-POINTS_MAX:]

    def discard(self, subject: bytes, seq: int) -> None:
        """Account for the removal of the message at `seq`."""
        for point in self._points:
            point.moves(subject, seq, -1)

    def restore(self, subject: bytes, seq: int) -> None:
        """Account for a message whose removal was rolled back."""
        for point in self._points:
            point.moves(subject, seq, 1)

    def clear(self) -> None:
        self._points.clear()
