"""Divides many small pieces of work among few tasks: a Spark task costs more than a small piece does."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def grouped(items: Sequence[T], loads: Sequence[int], tasks: int) -> list[list[T]]:
    """Divide items of these loads among `tasks` of about the same load; at most one task for an item.

    Items keep their order within a task, and tasks the order of their first items.
    """
    tasks = min(len(items), max(1, tasks))
    groups: list[list[int]] = [[] for _ in range(tasks)]
    lightest = [(0, number) for number in range(tasks)]
    for index in sorted(range(len(items)), key=lambda one: -loads[one]):
        load, number = heapq.heappop(lightest)
        groups[number].append(index)
        heapq.heappush(lightest, (load + loads[index], number))
    return [[items[index] for index in group] for group in sorted(map(sorted, groups)) if group]
