"""The windows of one partition against plain Python, in one task and divided among several."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eyot_hub.jobs.config.config import Lake as LakeSettings
from eyot_hub.jobs.gold.gold_task import Computed, Portion, Readings, Work, compute
from eyot_hub.jobs.gold.window_values import window_values
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.increments import Span

TIME = pa.timestamp("us", tz="UTC")
DAY = date(2026, 3, 1)
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
SILVER = pa.schema(
    [
        ("device", pa.string()),
        ("event_time", TIME),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("other", pa.int64()),
        ("stream", pa.string()),
        ("stream_created_ns", pa.int64()),
        ("sequence", pa.int64()),
        ("event_date", pa.date32()),
    ]
)
GOLD = pa.schema(
    [
        ("device", pa.string()),
        ("metric", pa.string()),
        ("window_start", TIME),
        ("window_end", TIME),
        ("count", pa.int64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("mean", pa.float64()),
        ("p50", pa.float64()),
        ("revision", pa.int64()),
        ("computed_at", TIME),
        ("event_date", pa.date32()),
    ]
)
Row = dict[str, Any]


def rows(count: int, first: int = 1, seed: int = 0) -> list[Row]:
    draw = random.Random(seed)
    return [
        {
            "device": f"d{draw.randrange(7)}",
            "event_time": MIDNIGHT + timedelta(seconds=draw.randrange(6000), microseconds=draw.randrange(10**6)),
            "metric": draw.choice(["heat", "power", None]),
            "value": draw.choice([None, draw.randrange(400) / 4]),
            "other": draw.choice([None, draw.randrange(5)]),
            "stream": "S",
            "stream_created_ns": 7,
            "sequence": number,
        }
        for number in range(first, first + count)
    ]


class Lake:
    """A silver and a gold table of one day."""

    def __init__(self, folder: Path, *, by_column: bool = False) -> None:
        self.silver = open_table(LakeSettings(path=str(folder)), "silver", SILVER, ("event_date",))
        self.gold = open_table(LakeSettings(path=str(folder)), "gold", GOLD, ("event_date",))
        names = ["device", "event_time", *(["value", "other"] if by_column else ["metric", "value"])]
        schema = pa.schema([SILVER.field(name) for name in names])
        self.readings = Readings(schema, *(("", "", ("value", "other")) if by_column else ("metric", "value", ())))

    def add(self, new: list[Row]) -> None:
        schema = pa.schema([field for field in SILVER if field.name != "event_date"])
        writer = self.silver.spec.writer()
        writer.write(pa.Table.from_pylist(new, schema), (("event_date", DAY.isoformat()),))
        self.silver.commit(writer.finish(), {})

    def compute(self, after: int, until: int, shares: int = 1) -> list[Computed]:
        """Take in the rows with these sequences, and commit."""
        span = Span("S", 7, after, until)
        work = Work(self.silver.spec.place, self.gold.spec, self.readings, (span,), 60_000_000, (0.5,), keep=True)
        files, before = self.silver.files(), self.gold.files()
        fresh = tuple(file.path for file in files if span.may_lie_in(file))
        others = tuple(file.path for file in files if not span.may_lie_in(file))
        held = tuple(file.path for file in before)
        portions = [Portion(DAY.isoformat(), fresh, others, held, share, shares) for share in range(shares)]
        done = [compute(work, portion) for portion in portions]
        if any(one.windows for one in done):
            self.gold.commit([file for one in done for file in one.files], {}, before)
        return done

    def windows(self) -> dict[tuple[str, str, datetime], tuple[Any, ...]]:
        found = {}
        for file in self.gold.files():
            for row in pa.parquet.read_table(file.uri, partitioning=None).to_pylist():
                assert row["window_end"] - row["window_start"] == timedelta(minutes=1)
                key = (row["device"], row["metric"], row["window_start"])
                assert key not in found
                found[key] = (row["count"], row["min"], row["max"], row["mean"], row["p50"], row["revision"])
        return found


def truth(readings: list[tuple[str, str, datetime, float]]) -> dict[tuple[str, str, datetime], tuple[Any, ...]]:
    windows = defaultdict(list)
    for device, metric, at, value in readings:
        windows[device, metric, at.replace(second=0, microsecond=0)].append(value)
    return {
        key: (len(values), min(values), max(values), sum(values) / len(values), statistics.median(values))
        for key, values in windows.items()
    }


def by_name(held: list[Row]) -> list[tuple[str, str, datetime, float]]:
    return [
        (row["device"], row["metric"], row["event_time"], row["value"])
        for row in held
        if row["metric"] is not None and row["value"] is not None
    ]


@pytest.mark.parametrize("shares", [1, 3])
def test_late_rows_change_their_windows_and_no_others(tmp_path: Path, shares: int) -> None:
    lake = Lake(tmp_path)
    first, late = rows(3000), rows(20, 3001, seed=1)
    lake.add(first)
    done = lake.compute(0, 3000, shares)
    assert {key: found[:5] for key, found in lake.windows().items()} == truth(by_name(first))
    assert (sum(one.rows for one in done), sum(one.windows for one in done)) == (
        len(by_name(first)),
        len(truth(by_name(first))),
    )
    assert {found[5] for found in lake.windows().values()} == {1}
    lake.add(late)
    done = lake.compute(3000, 3020, 4 - shares)
    assert {key: found[:5] for key, found in lake.windows().items()} == truth(by_name([*first, *late]))
    touched, held = truth(by_name(late)).keys(), truth(by_name(first)).keys()
    assert {key for key, found in lake.windows().items() if found[5] == 2} == touched & held
    assert sum(one.corrected for one in done) == len(touched & held)
    # Compacted, old and new rows lie in one file; what is new is still told by its sequence.
    lake.silver.compact()
    assert sum(one.windows for one in lake.compute(3020, 3030, shares)) == 0
    assert {key for key, found in lake.windows().items() if found[5] == 2} == touched & held


def test_columns_that_are_metrics(tmp_path: Path) -> None:
    lake = Lake(tmp_path, by_column=True)
    held = rows(500)
    lake.add(held)
    lake.compute(0, 500)
    readings = [
        (row["device"], name, row["event_time"], row[name])
        for row in held
        for name in ("value", "other")
        if row[name] is not None
    ]
    assert {key: found[:5] for key, found in lake.windows().items()} == truth(readings)


def test_values_that_are_no_numbers_count_as_the_largest() -> None:
    keys = pa.array([4, 2, 2, 2, 4]).to_numpy()
    values = pa.array([1.0, math.nan, 3.0, -math.inf, 2.0]).to_numpy()
    found = window_values(keys, values, (0.5, 0.25))
    assert found.keys.tolist() == [2, 4]
    assert found.count.tolist() == [3, 2]
    assert (found.least.tolist(), found.most[1]) == ([-math.inf, 1.0], 2.0)
    assert math.isnan(found.most[0])
    assert found.percentiles[0].tolist() == [3.0, 1.5]
    assert found.percentiles[1][1] == 1.25
