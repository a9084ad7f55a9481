"""When schedules fall due, and which of these times are still to be corrected after the clock was set back.

A correction reads the schedule's message. Very many of them are therefore corrected in slices. Until then a schedule keeps
its due time, so nothing is forgotten; and each schedule stands here once, so nothing is made twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Due(NamedTuple):
    """A schedule: when it is due, ns since 1970, and the sequence of its message."""

    due_ns: int
    seq: int


class SetBack(NamedTuple):
    """The clock was set back by `back_ns` to `now_ns`."""

    now_ns: int
    back_ns: int


class DueTimes:
    """All committed schedules by due time."""

    def __init__(self) -> None:
        self._heap: list[Due] = []
        #: heaps of schedules that are to be corrected, each by these in turn; the oldest heap is first, and none is empty
        self._uncorrected: list[tuple[list[Due], list[SetBack]]] = []
        #: every time that the clock was set back; `push` takes a position here for what was staged before
        self._set_backs: list[SetBack] = []

    def __len__(self) -> int:
        return len(self._heap) + self.uncorrected

    @property
    def uncorrected(self) -> int:
        """Return how many are still to be corrected."""
        return sum(len(heap) for heap, _ in self._uncorrected)

    @property
    def first_ns(self) -> int | None:
        """Return when the next one is due; None: there is none."""
        heap = self._first_heap()
        return heap[0].due_ns if heap else None

    @property
    def clock(self) -> int:
        """Return how often the clock was set back, for `push`."""
        return len(self._set_backs)

    def push(self, dues: Iterable[tuple[int, int]], clock: int | None = None) -> None:
        """Add schedules whose due times were computed when `clock` was as given; None: now."""
        missed = [] if clock is None else self._set_backs[clock:]
        if missed:
            heap = [Due(*due) for due in dues]
            heapq.heapify(heap)
            if heap:
                self._uncorrected.append((heap, missed))
            return
        for due in dues:
            heapq.heappush(self._heap, Due(*due))

    def pop(self, now_ns: int) -> Due | None:
        """Remove and return the schedule that is due first; None if none is due by `now_ns`."""
        heap = self._first_heap()
        if not heap or heap[0].due_ns > now_ns:
            return None
        due = heapq.heappop(heap)
        self._drop_empty()
        return due

    def _first_heap(self) -> list[Due]:
        heaps = [heap for heap in (self._heap, *(heap for heap, _ in self._uncorrected)) if heap]
        return min(heaps, key=lambda heap: heap[0], default=[])

    def _drop_empty(self) -> None:
        if not all(heap for heap, _ in self._uncorrected):
            self._uncorrected = [each for each in self._uncorrected if each[0]]

    # -- a clock that is set back ----------------------------------------------------------------------------------

    def set_back(self, now_ns: int, back_ns: int) -> None:
        """Have all due times corrected by `correct`: the clock was set back by `back_ns` to `now_ns`."""
        jump = SetBack(now_ns, back_ns)
        self._set_backs.append(jump)
        for _, missed in self._uncorrected:
            missed.append(jump)
        if self._heap:
            self._uncorrected.append((self._heap, [jump]))
            self._heap = []

    def correct(self, most: int, corrected: Callable[[Due, Iterable[SetBack]], int]) -> None:
        """Correct up to `most` due times. `corrected` returns a due time after the clock was set back by these, in order."""
        for _ in range(most):
            if not self._uncorrected:
                return
            heap, missed = self._uncorrected[0]
            due = heap.pop()  # the last of a heap: the rest remains one
            heapq.heappush(self._heap, Due(corrected(due, missed), due.seq))
            self._drop_empty()
