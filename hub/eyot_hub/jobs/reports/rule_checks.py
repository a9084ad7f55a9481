"""Evaluates rules of data quality over Arrow tables, whole columns at a time; a check adds up what it sees.

Memory: value rules keep counts and the devices concerned, `freshness` a time per device, `rate` a count per device and
window, `unique` a count per distinct key of the rows that are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.jobs.config.rules import Freshness, Range, Rate, Regex, Required, Rule, Unique
from eyot_wire.quantities import counted

EXAMPLES_MAX: Final = 3  # of each rule
_TEXT_MAX: Final = 60  # characters of a value in an example
_MERGE_PARTS: Final = 64  # partial results that are kept before they become one
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD_US: Final = 86_400_000_000  # how far an event may lie ahead of the clock, as `ahead` of silver tables


@dataclass
class Finding:
    """The result of a rule: of `checked` rows (freshness: devices, rate: windows) so many are `violations`."""

    checked: int = 0
    violations: int = 0
    devices: int = 0  # that the violations come from; 0 for unique, whose rows belong together
    examples: list[str] = field(default_factory=list)


class Check:
    """One rule over the rows from `since_us` on by the column `by`; None: over all rows."""

    by: str = "stored_at"

    def __init__(self, since_us: int | None) -> None:
        self.since_us = since_us

    @property
    def columns(self) -> list[str]:
        """The columns that `add` needs."""
        raise NotImplementedError

    def add(self, rows: pa.Table) -> None:
        """Take rows into account, which lie within the check's time."""
        raise NotImplementedError

    def result(self) -> Finding:
        raise NotImplementedError


def make_check(rule: Rule, period_us: int, now_us: int) -> Check:
    """Return the check of a rule at the time `now_us`, over the last `period_us` (0: over all rows)."""
    since_us = now_us - period_us if period_us else None
    if isinstance(rule, Freshness):
        return _FreshnessCheck(rule, now_us)
    if isinstance(rule, Rate):
        return _RateCheck(rule, since_us, now_us)
    if isinstance(rule, Unique):
        return _UniqueCheck(rule, since_us)
    return _ValueCheck(rule, since_us)


class _ValueCheck(Check):
    """Required, range and regex: a row by itself passes or does not."""

    def __init__(self, rule: Required | Range | Regex, since_us: int | None) -> None:
        super().__init__(since_us)
        self._column = rule.column
        self._nulls_count = isinstance(rule, Required)
        self._passes = _predicate(rule)
        self._devices: set[str] = set()
        self._found = Finding()

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([self._column, "device", "stream", "sequence"]))

    def add(self, rows: pa.Table) -> None:
        column = rows.column(self._column)
        found = self._found
        found.checked += rows.num_rows if self._nulls_count else rows.num_rows - column.null_count
        bad = rows.filter(pc.invert(self._passes(column)))
        if not bad.num_rows:
            return
        found.violations += bad.num_rows
        self._devices.update(pc.unique(bad.column("device")).to_pylist())
        for row in bad.slice(0, EXAMPLES_MAX - len(found.examples)).to_pylist():
            value = _brief(row[self._column])
            found.examples.append(f"{row['device']}: {value} ({row['stream']} {row['sequence']})")

    def result(self) -> Finding:
        self._found.devices = len(self._devices)
        return self._found


def _predicate(rule: Required | Range | Regex) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """Return the function from a column to booleans without nulls."""
    if isinstance(rule, Required):
        return lambda column: column.is_valid()
    if isinstance(rule, Range):
        return lambda column: _within(column, rule)
    whole = rule.whole
    return lambda column: _matches(column, whole)


def _within(column: pa.ChunkedArray, rule: Range) -> pa.ChunkedArray:
    passes = pa.chunked_array([pa.repeat(True, len(column))])
    for bound, compare, whole in (
        (rule.min, pc.greater_equal, math.ceil),
        (rule.max, pc.less_equal, math.floor),
    ):
        if bound is not None:
            # Integers are compared with integers: a double has 53 bits only.
            exact = whole(bound) if pa.types.is_integer(column.type) else float(bound)
            passes = pc.and_(passes, pc.fill_null(compare(column, pa.scalar(exact, column.type)), True))
    return passes


def _matches(column: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Return which texts match; distinct texts of a chunk are compared once."""
    chunks = []
    for chunk in column.chunks:
        coded = chunk.dictionary_encode()
        fits = pc.match_substring_regex(coded.dictionary, pattern)
        chunks.append(fits.take(coded.indices).fill_null(True))
    return pa.chunked_array(chunks, pa.bool_())


class _Counted:
    """A table of keys and an aggregate that is folded as parts come: `sum` of a count, or `max` of a column."""

    def __init__(self, keys: list[str], value: str, how: str) -> None:
        self._keys, self._value, self._how = keys, value, how
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Fold rows with the keys' columns and the value's."""
        self._parts.append(self._folded(rows))
        if len(self._parts) >= _MERGE_PARTS:
            self._parts = [self.whole()]

    def whole(self) -> pa.Table | None:
        """Return one row for each key; None: nothing was added."""
        if not self._parts:
            return None
        return self._folded(pa.concat_tables(self._parts))

    def _folded(self, rows: pa.Table) -> pa.Table:
        made = rows.group_by(self._keys, use_threads=False).aggregate([(self._value, self._how)])
        return made.rename_columns({f"{self._value}_{self._how}": self._value}).select([*self._keys, self._value])


class _UniqueCheck(Check):
    def __init__(self, rule: Unique, since_us: int | None) -> None:
        super().__init__(since_us)
        self._names = list(rule.columns)
        # Names of our own: a column may be called like the count.
        self._keys = [f"key{number}" for number in range(len(self._names))]
        self._counts = _Counted(self._keys, "rows", "sum")

    @property
    def columns(self) -> list[str]:
        return self._names

    def add(self, rows: pa.Table) -> None:
        keys = rows.select(self._names).rename_columns(self._keys).drop_null()
        self._counts.add(keys.append_column("rows", pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows)))

    def result(self) -> Finding:
        counts = self._counts.whole()
        if counts is None:
            return Finding()
        repeated = counts.filter(pc.greater(counts.column("rows"), 1))
        worst = repeated.sort_by([("rows", "descending"), *((key, "ascending") for key in self._keys)])
        examples = []
        for row in worst.slice(0, EXAMPLES_MAX).to_pylist():
            key = ", ".join(f"{name} {_brief(row[key])}" for name, key in zip(self._names, self._keys, strict=True))
            examples.append(f"{key}: {counted(row['rows'], 'time')}")
        extra = (pc.sum(repeated.column("rows")).as_py() or 0) - repeated.num_rows
        return Finding(pc.sum(counts.column("rows")).as_py() or 0, extra, 0, examples)


class _FreshnessCheck(Check):
    def __init__(self, rule: Freshness, now_us: int) -> None:
        super().__init__(now_us - rule.forget_us if rule.forget_us else None)
        self.by = rule.column
        self._oldest_us = now_us - rule.max_age_us
        #: A row of a later time was stamped by a clock that was ahead: by it, its device would be fresh for years.
        self._latest_us = now_us + _AHEAD_US
        self._newest = _Counted(["device"], rule.column, "max")

    @property
    def columns(self) -> list[str]:
        return ["device", self.by]

    def add(self, rows: pa.Table) -> None:
        times = rows.column(self.by)
        known = pc.less_equal(times, pa.scalar(self._latest_us, pa.int64()).cast(times.type))
        self._newest.add(rows.filter(known))

    def result(self) -> Finding:
        newest = self._newest.whole()
        if newest is None:
            return Finding()
        times = newest.column(self.by)
        stale = newest.filter(pc.less(times, pa.scalar(self._oldest_us, pa.int64()).cast(times.type)))
        worst = stale.sort_by([(self.by, "ascending"), ("device", "ascending")]).slice(0, EXAMPLES_MAX)
        examples = [f"{row['device']}: last at {_brief(row[self.by])}" for row in worst.to_pylist()]
        return Finding(newest.num_rows, stale.num_rows, stale.num_rows, examples)


class _RateCheck(Check):
    by = "event_time"

    def __init__(self, rule: Rate, since_us: int | None, now_us: int) -> None:
        # Whole windows: one that began before the period would lack rows.
        super().__init__(None if since_us is None else -(-since_us // rule.per_us) * rule.per_us)
        self._rule = rule
        self._counts = _Counted(["device", "window"], "rows", "sum")

    @property
    def columns(self) -> list[str]:
        return ["device", "event_time"]

    def add(self, rows: pa.Table) -> None:
        times = rows.column("event_time").cast(pa.int64()).to_numpy()
        windows = pa.array(np.floor_divide(times, self._rule.per_us))
        ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        self._counts.add(pa.table({"device": rows.column("device"), "window": windows, "rows": ones}))

    def result(self) -> Finding:
        counts = self._counts.whole()
        if counts is None:
            return Finding()
        found, devices = Finding(counts.num_rows), set[str]()
        bad = [self._above(counts)] if self._rule.max is not None else []
        if self._rule.min is not None:
            spans = counts.group_by(["device"]).aggregate([("window", "min"), ("window", "max")])
            lengths = pc.add(pc.subtract(spans.column("window_max"), spans.column("window_min")), 1)
            found.checked = pc.sum(lengths).as_py() or 0
            below, empty = self._below(counts, spans)
            bad.append(below)
            missing = empty.filter(pc.greater(empty.column("rows"), 0))
            found.violations += pc.sum(missing.column("rows")).as_py() or 0
            devices |= set(missing.column("device").to_pylist())
            worst = missing.sort_by([("rows", "descending"), ("device", "ascending")]).slice(0, EXAMPLES_MAX)
            found.examples += [
                f"{row['device']}: {counted(row['rows'], 'window')} without a row" for row in worst.to_pylist()
            ]
        for windows in bad:
            found.violations += windows.num_rows
            devices |= set(pc.unique(windows.column("device")).to_pylist())
            for row in windows.slice(0, max(0, EXAMPLES_MAX - len(found.examples))).to_pylist():
                at = _EPOCH + timedelta(microseconds=row["window"] * self._rule.per_us)
                found.examples.append(
                    f"{row['device']}: {counted(row['rows'], 'row')} in {self._rule.per} from {_brief(at)}"
                )
        found.devices = len(devices)
        return found

    def _above(self, counts: pa.Table) -> pa.Table:
        return counts.filter(pc.greater(counts.column("rows"), self._rule.max)).sort_by(
            [("rows", "descending"), ("device", "ascending"), ("window", "ascending")]
        )

    def _below(self, counts: pa.Table, spans: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the inner windows with too few rows, and for each device how many have none at all."""
        inner = counts.join(spans, "device", use_threads=False)
        inside = pc.and_(
            pc.greater(inner.column("window"), inner.column("window_min")),
            pc.less(inner.column("window"), inner.column("window_max")),
        )
        few = inner.filter(pc.and_(inside, pc.less(inner.column("rows"), self._rule.min)))
        held = counts.group_by(["device"]).aggregate([("window", "count")]).join(spans, "device", use_threads=False)
        length = pc.add(pc.subtract(held.column("window_max"), held.column("window_min")), 1)
        empty = pa.table({"device": held.column("device"), "rows": pc.subtract(length, held.column("window_count"))})
        return few.sort_by([("rows", "ascending"), ("device", "ascending"), ("window", "ascending")]), empty


def _brief(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = "null" if value is None else str(value)
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
