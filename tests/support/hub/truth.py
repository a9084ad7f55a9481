"""Readings, what gold must say of them (computed in plain Python), and the jobs run together."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub.jobs.aggregate import Aggregate, AggregateRound
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.streams import Message

DAY_MS = 86_400_000
NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

Reading = tuple[str, int, float]  # device, time in ms, value
Window = tuple[str, int]  # device, start in ms


def message(reading: Reading) -> Message:
    device, at, value = reading
    body = {"device": device, "metric": "temperature", "at": at, "value": value}
    return f"readings.{device}.temperature", json.dumps(body).encode()


def truth(readings: list[Reading]) -> dict[Window, tuple[int, float, float, float, float]]:
    """count, min, max, mean, median for each device and minute."""
    windows: dict[Window, list[float]] = defaultdict(list)
    for device, at, value in readings:
        windows[device, at - at % 60_000].append(value)
    return {
        key: (len(values), min(values), max(values), sum(values) / len(values), statistics.median(values))
        for key, values in windows.items()
    }


def rows_in(table: LakeTable) -> list[dict[str, Any]]:
    """Return the rows of a table's present version without the partition's columns, read by this process alone."""
    schema = pa.schema([one for one in table.spec.schema if one.name not in table.spec.partition_by])
    groups = row_groups(table.spec.place, [file.path for file in table.files()], schema)
    return [row for group in groups for row in group.to_pylist()]


class Hub:
    """Ingests and aggregates, and tells what gold holds."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.ingest = Ingest(spark, config)
        self.aggregate = Aggregate(spark, config)

    def round(self) -> AggregateRound:
        self.ingest.run(once=True, report=lambda _: None)
        return self.aggregate.round()

    def gold(self) -> dict[Window, tuple[int, float, float, float, float]]:
        rows = self._gold_rows()
        assert len({(row["device"], row["start"]) for row in rows}) == len(rows)
        return {
            (row["device"], row["start"]): (row["count"], row["min"], row["max"], row["mean"], row["p50"])
            for row in rows
        }

    def revisions(self) -> dict[Window, int]:
        return {(row["device"], row["start"]): row["revision"] for row in self._gold_rows()}

    def _gold_rows(self) -> list[dict[str, Any]]:
        rows = rows_in(self.aggregate.gold["minute"].table)
        return [{**row, "start": round(row["window_start"].timestamp() * 1000)} for row in rows]

    def reasons(self) -> list[str]:
        return sorted(row["reason"] for row in rows_in(self.aggregate.silver["readings"].quarantine))


def series(device: str, start_ms: int, count: int, step_ms: int = 7_000) -> list[Reading]:
    # Quarters, so that a mean does not depend on the order of additions.
    return [(device, start_ms + number * step_ms, (number % 97) * 0.25) for number in range(count)]
