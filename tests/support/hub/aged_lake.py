"""A lake whose rows lie on four days, as the jobs fill it, without a server or a JVM; for tests of retention."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import SCHEMA, bronze_table, position_id
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.maintenance.maintenance import Maintained, Maintenance
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.local_spark import LocalSpark

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
#: With an age of 48 hours, the days up to 7 March have been over for long enough.
DAYS = [date(2026, 3, day) for day in (1, 7, 8, 10)]
KEPT = [date(2026, 3, day) for day in (8, 10)]
EPOCH = ("S", 7)
SPARK: Any = LocalSpark()


class Killed(BaseException):
    """Stands for the end of the process."""


def at(day: date, minute: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, 8, minute, tzinfo=UTC)


def stored(
    sequence: int, day: date, *, event: datetime | None = None, poison: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a row of bronze: a reading of two devices in turn, stored on that day."""
    event = event or at(day, sequence % 3)
    body = {"device": f"d{sequence % 2}", "metric": "m", "at": int(event.timestamp() * 1000), "value": sequence / 4}
    row = {"stream": EPOCH[0], "date": day, "stream_created_ns": EPOCH[1], "sequence": sequence, "headers": []}
    row |= {"subject": "readings.x", "payload": b"{" if poison else json.dumps(body).encode(), "stored_at": at(day)}
    return {
        **row,
        "domain": "",
        "account": "",
        "origin_domain": "edge",
        "origin_stream": "O",
        "origin_sequence": sequence,
        **more,
    }


def store(config: Config, rows: list[dict[str, Any]]) -> None:
    table = bronze_table(config)
    writer = table.spec.writer()
    for partition, part in by_partition(pa.Table.from_pylist(rows, SCHEMA), table.spec.partition_by):
        writer.write(part, partition)
    epochs = {(row["stream"], row["stream_created_ns"]): row["sequence"] for row in rows}
    table.commit(writer.finish(), {position_id(*epoch): last for epoch, last in epochs.items()})


def maintained(config: Config, now: datetime = NOW, **more: bool) -> dict[str, Maintained]:
    return {one.table: one for one in Maintenance(config, now=lambda: now, **more).round()}


def read_clock(config: Config, now: datetime = NOW) -> None:
    """Let all tables record a reading of the clock, and change nothing else."""
    maintained(config, now, compact=False, vacuum=False, retention=False)


def clock_goes_on(config: Config, until: datetime, since: datetime = NOW) -> None:
    """Let all tables record readings from one time to another, as daily rounds do."""
    while since < until:
        read_clock(config, since)
        since += timedelta(days=1)
    read_clock(config, until)


def aggregated(config: Config) -> Any:
    return Aggregate(SPARK, config).round()


def rows_of(table: LakeTable, *names: str) -> list[tuple[Any, ...]]:
    """Return the rows as a new reader finds them, sorted."""
    schema = pa.schema([table.spec.schema.field(name) for name in names])
    groups = row_groups(table.spec.place, [file.path for file in table.files()], schema)
    return sorted(tuple(row.values()) for rows in groups for row in rows.to_pylist())


def lake(config: Config) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the tables hold."""
    windows = ("device", "metric", "window_start", "count", "mean")
    return {
        "bronze": rows_of(bronze_table(config), "sequence"),
        "silver": rows_of(silver_table(config, config.silver[0]), "sequence", "device", "event_time", "value"),
        "gold": rows_of(gold_table(config, config.gold[0]), *windows),
        "quarantine": rows_of(quarantine_table(config), "sequence"),
    }


def days(config: Config) -> tuple[set[date], set[date]]:
    """Return the days of silver and gold."""
    silver = {file.partition["event_date"] for file in silver_table(config, config.silver[0]).files()}
    return silver, {file.partition["event_date"] for file in gold_table(config, config.gold[0]).files()}


def ending(monkeypatch: pytest.MonkeyPatch, when: str, number: int) -> Callable[[], None]:
    """Let the N-th commit from now on be the last thing that happens; return how to end that."""
    real, left = LakeTable.commit, [number]

    def commit(*given: Any, **more: Any) -> None:
        left[0] -= 1
        if not left[0] and when == "before":
            raise Killed
        real(*given, **more)
        if not left[0]:
            raise Killed

    monkeypatch.setattr(LakeTable, "commit", commit)
    return lambda: monkeypatch.setattr(LakeTable, "commit", real)
