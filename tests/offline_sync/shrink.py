"""Shorter schedules that still fail: what a person reads when a seed violates the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Runs that are spent on it at most.
RUNS_MAX = 120


def shrink(steps: Sequence[int], fails: Callable[[frozenset[int]], bool], runs_max: int = RUNS_MAX) -> tuple[int, ...]:
    """The numbers of few steps with which it `fails` still: ever smaller slices are taken out as long as that helps."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    runs = 0
    while runs < runs_max:
        removed = False
        at = len(kept) - size
        while at > -size and runs < runs_max:
            begin = max(0, at)
            rest = kept[:begin] + kept[at + size :]
            runs += 1
            if rest != kept and fails(frozenset(rest)):
                kept, removed = rest, True
            at -= size
        if size == 1 and not removed:
            break
        size = size if removed and size == 1 else max(1, size // 2)
    return tuple(kept)
