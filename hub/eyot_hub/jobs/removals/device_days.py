"""Retention by device: from which day on silver and gold keep the rows of some devices.

Devices are named by patterns, of which the first that fits counts. A table records for each pattern the first day that
has not left, in the commit that removes the rows. Only days between that one and the new one are looked at, so that a
round does not grow with the days before. Late readings of earlier days are not taken, as for whole days (`retention.py`),
also after the list of patterns has changed (`device_lists.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eyot_hub.jobs.tables.day_positions import FIRST_DAY_ID, day_of, day_position
from eyot_hub.jobs.tables.file_rows import codes

if TYPE_CHECKING:
    from eyot_hub.jobs.tables.table import LakeTable

_NEEDED: Final = pa.schema([("device", pa.string()), ("event_date", pa.date32())])
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceDays:
    """Patterns of devices in order, each with the first `event_date` that is kept (2026-01-31; "": every one is)."""

    first: tuple[tuple[str, str], ...] = ()
    #: The same of other lists of patterns, by which rows have left.
    others: tuple[tuple[tuple[str, str], ...], ...] = ()

    @property
    def latest(self) -> str:
        """From this day on no row is old."""
        return max((day for one in (self.first, *self.others) for _, day in one), default="")

    def first_of(self, device: str) -> str:
        """Return the first day that is kept of a device."""
        return max(_first_in(one, device) for one in (self.first, *self.others))

    def old(self, devices: pa.ChunkedArray, day: str) -> Mask:
        """Return which rows of one day are old; `devices`: the rows' devices."""
        if day >= self.latest:
            return np.zeros(len(devices), np.bool_)
        coded = codes(devices.dictionary_encode())
        hits = np.array([day < self.first_of(name) for name in coded.dictionary.to_pylist()] + [False])
        found: Mask = hits[coded.indices.fill_null(len(hits) - 1).to_numpy()]
        return found


def _first_in(days: tuple[tuple[str, str], ...], device: str) -> str:
    return next((day for pattern, day in days if fnmatchcase(device, pattern)), "")


EVERY_DAY: Final = DeviceDays()


@dataclass(frozen=True)
class OldRows:
    """Selects the old rows of files (`erasure_task.py`)."""

    days: DeviceDays
    needed: pa.Schema = _NEEDED

    def of(self, rows: pa.Table) -> Mask:
        """Return which rows of one file are old."""
        if not rows.num_rows:
            return np.zeros(0, np.bool_)
        return self.days.old(rows.column("device"), str(rows.column("event_date")[0]))


def recorded_days(table: LakeTable, patterns: Sequence[str]) -> DeviceDays:
    """Return what a silver or gold table has recorded of this list of patterns."""
    found = []
    for pattern, name in zip(patterns, device_day_ids(patterns), strict=True):
        days = table.position(name) or 0
        found.append((pattern, str(day_of(days)) if days else ""))
    return DeviceDays(tuple(found))


def first_days(
    recorded: DeviceDays, ages: Sequence[tuple[str, timedelta]], today: date, *, by_month: bool
) -> DeviceDays:
    """Return the first days by the ages (0: for ever) of patterns. A day that has left stays so when an age grows."""
    found = []
    for (pattern, age), (_, before) in zip(ages, recorded.first, strict=True):
        day = today - age
        wanted = str(day.replace(day=1) if by_month else day) if age else ""
        found.append((pattern, max(before, wanted)))
    return DeviceDays(tuple(found))


def at_most(days: DeviceDays, limit: DeviceDays) -> DeviceDays:
    """Return each pattern's earlier day of the two."""
    pairs = zip(days.first, limit.first, strict=True)
    return DeviceDays(tuple((pattern, min(day, other)) for (pattern, day), (_, other) in pairs))


def moved(recorded: DeviceDays, days: DeviceDays, day: str) -> bool:
    """Return whether rows of `day` are old by `days`, and were not by what is recorded."""
    pairs = zip(recorded.first, days.first, strict=True)
    return any(before <= day < now for (_, before), (_, now) in pairs)


def positions_of(days: DeviceDays) -> dict[str, int]:
    """Return what a commit records."""
    ids = device_day_ids([pattern for pattern, _ in days.first])
    pairs = zip(ids, days.first, strict=True)
    return {name: day_position(date.fromisoformat(day)) if day else 0 for name, (_, day) in pairs}


def device_day_ids(patterns: Sequence[str]) -> list[str]:
    """Return the patterns' transaction ids. Which devices a pattern stands for depends on those before it, and so does its id."""
    known, ids = hashlib.sha256(), []
    for pattern in patterns:
        known.update(pattern.encode() + b"\0")
        ids.append(f"{FIRST_DAY_ID}/{known.hexdigest()[:16]}")
    return ids
