"""Tables of Iceberg whose writer's clock steps: every reader opens them, and nothing that a reader may need leaves early."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyiceberg.table.update
import pytest
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from eyot_hub.jobs.config.config import IcebergCatalog, Lake
from eyot_hub.jobs.lake.iceberg_catalog import catalog_of
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.iceberg_commit import made_at
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.rest_catalog import RestCatalog

SCHEMA = pa.schema([("number", pa.int64())])
WIDER = pa.schema([*SCHEMA, ("more", pa.int64())])
START = datetime(2026, 6, 1, 12, 0, 1, tzinfo=UTC)
HOUR, WEEK_H = timedelta(hours=1), 168.0
MINUTE_MS = 60_000


class Clock:
    """The clock of everything that writes here."""

    def __init__(self) -> None:
        self.now = START

    def time(self) -> float:
        return self.now.timestamp()

    def time_ns(self) -> int:
        return int(self.now.timestamp() * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Now(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return clock.now

    monkeypatch.setattr(time, "time", clock.time)
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    monkeypatch.setattr(pyiceberg.table.update, "datetime", Now)
    return clock


@pytest.fixture(params=["sql", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    path = str(tmp_path / "lake")
    if request.param == "sql":
        yield Lake(path=path, format="iceberg")
        return
    os.makedirs(path)
    with RestCatalog(f"{tmp_path}/catalog.db", {"warehouse": path}) as served:
        yield Lake(path=path, format="iceberg", catalog=IcebergCatalog(type="rest", uri=served.uri))


def append(table: LakeTable, number: int, position: str = "eyot:S@1") -> None:
    writer = table.spec.writer()
    writer.write(pa.table({"number": [number]}, SCHEMA), ())
    table.commit(writer.finish(), {position: number})


def loaded(lake: Lake) -> Table:
    return catalog_of(lake).load_table("eyot.table")


def refuse_what_readers_refuse(metadata: TableMetadata) -> None:
    """The rules of Iceberg's libraries for Java (`TableMetadata`), Rust and Go, in Spark, Trino and others."""
    log = [entry.timestamp_ms for entry in metadata.snapshot_log]
    files = [entry.timestamp_ms for entry in metadata.metadata_log]
    for times in (log, files):
        assert all(later - earlier >= -MINUTE_MS for earlier, later in pairwise([*times, metadata.last_updated_ms]))


@pytest.mark.parametrize("steps", [[-HOUR], [HOUR, -HOUR], [timedelta(days=365), -timedelta(days=365), HOUR]], ids=str)
def test_every_reader_opens_a_table_whose_writers_clock_steps(lake: Lake, clock: Clock, steps: list[timedelta]) -> None:
    table = open_table(lake, "table", SCHEMA)
    number = 0
    for step in [timedelta(), *steps]:
        clock.now += step
        for _ in range(3):
            clock.now += timedelta(minutes=11)
            append(table, number := number + 1)
            refuse_what_readers_refuse(loaded(lake).metadata)
            table.commit([], {"eyot:other": number}, table.files()[:1])
            refuse_what_readers_refuse(loaded(lake).metadata)
            table.remove_files(WEEK_H)
            refuse_what_readers_refuse(loaded(lake).metadata)
    table = open_table(lake, "table", WIDER)
    refuse_what_readers_refuse(loaded(lake).metadata)
    assert (table.position("eyot:S@1"), table.rows()) == (number, 0)
    current = loaded(lake).current_snapshot()
    assert current is not None
    assert made_at(current) == clock.now.replace(microsecond=0)


def test_two_writers_of_which_one_is_an_hour_behind(lake: Lake, clock: Clock) -> None:
    ahead, behind = open_table(lake, "table", SCHEMA), open_table(lake, "table", SCHEMA)
    for number in range(4):
        append(ahead, 2 * number)
        clock.now -= HOUR
        append(behind, 2 * number + 1, "eyot:T@1")  # made again behind the other one's
        refuse_what_readers_refuse(loaded(lake).metadata)
        clock.now += HOUR + timedelta(minutes=1)
    ahead.refresh()
    assert sorted(row["number"] for row in ahead.to_pylist()) == list(range(8))


def age(lake: Lake, days: int) -> None:
    """Let all files look as old as if they were written so long before `START`."""
    for folder, _, names in os.walk(lake.path):
        for name in names:
            os.utime(os.path.join(folder, name), ((START - timedelta(days=days)).timestamp(),) * 2)


def test_a_file_stays_as_long_as_it_is_asked_to_after_it_left_a_table_that_rested(lake: Lake, clock: Clock) -> None:
    """Who opened the table just before the commit reads on, however long it had rested."""
    clock.now = START - timedelta(days=30)
    table = open_table(lake, "table", SCHEMA)
    append(table, 1)
    age(lake, 30)
    clock.now = START
    (file,) = table.files()
    place = Path(lake.path) / "table" / file.path
    table.commit([], {}, [file])
    table.remove_files(WEEK_H)
    assert place.exists()
    clock.now = START + timedelta(days=8)
    table.remove_files(WEEK_H)
    assert not place.exists()


def test_after_a_clock_was_a_year_ahead_versions_leave_by_when_they_were_made(lake: Lake, clock: Clock) -> None:
    table = open_table(lake, "table", SCHEMA)
    append(table, 1)
    age(lake, 30)
    (first,) = table.files()
    clock.now = START + timedelta(days=365)
    append(table, 2)
    clock.now = START + timedelta(minutes=1)
    place = Path(lake.path) / "table" / first.path
    append(table, 3)
    clock.now += timedelta(minutes=1)
    table.commit([], {}, [file for file in table.files() if file.path == first.path])
    table.remove_files(WEEK_H)
    assert place.exists()
    made = [made_at(one) for one in loaded(lake).metadata.snapshots]
    assert made == [START, START + timedelta(minutes=1), START + timedelta(minutes=2)]
    clock.now = START + timedelta(days=9)
    append(table, 4)
    table.remove_files(WEEK_H)
    assert not place.exists()
    assert sorted(row["number"] for row in table.to_pylist()) == [2, 3, 4]
