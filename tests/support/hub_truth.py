"""Readings, what gold must say of them (computed in plain Python), and the jobs run together."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.aggregate import Aggregate, AggregateRound
from eyot_hub.jobs.bronze import Ingest
from eyot_hub.jobs.config import Config
from support.streams import Message

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

    def _gold_rows(self) -> list[Any]:
        frame = self.aggregate.gold["minute"].table.dataframe(self.spark)
        rows: list[Any] = frame.withColumn("start", F.unix_millis("window_start")).collect()
        return rows

    def reasons(self) -> list[str]:
        rows = self.aggregate.silver["readings"].quarantine.dataframe(self.spark).collect()
        return sorted(row["reason"] for row in rows)


def series(device: str, start_ms: int, count: int, step_ms: int = 7_000) -> list[Reading]:
    # Quarters, so that a mean does not depend on the order of additions.
    return [(device, start_ms + number * step_ms, (number % 97) * 0.25) for number in range(count)]
