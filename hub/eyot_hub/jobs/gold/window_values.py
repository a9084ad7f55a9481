"""Gold's aggregates of each window's readings, computed for all windows of a task at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eyot_hub.jobs.silver.window_keys import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WindowValues:
    """One entry per window, ascending by key."""

    keys: Ints
    count: Ints
    least: Floats
    most: Floats
    mean: Floats
    percentiles: list[Floats]


def window_values(keys: Ints, values: Floats, percentiles: Sequence[float]) -> WindowValues:
    """Aggregate the values of each key. NaN counts as larger than every number; percentiles are interpolated linearly."""
    order = np.lexsort((values, keys))
    keys, ordered = keys[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    ends = np.append(starts[1:], len(keys))[: len(starts)]
    count = ends - starts
    return WindowValues(
        keys=keys[starts],
        count=count,
        least=ordered[starts],
        most=ordered[ends - 1],
        mean=np.add.reduceat(ordered, starts) / count if len(starts) else ordered,
        percentiles=[_percentile(ordered, starts, count, fraction) for fraction in percentiles],
    )


def _percentile(ordered: Floats, starts: Ints, count: Ints, fraction: float) -> Floats:
    place = (count - 1) * fraction
    below = np.floor(place).astype(np.int64)
    part = place - below
    low, high = ordered[starts + below], ordered[starts + np.minimum(below + 1, count - 1)]
    with np.errstate(invalid="ignore"):  # between two infinities
        between: Floats = np.where(part == 0, low, low * (1 - part) + high * part)
    return between
