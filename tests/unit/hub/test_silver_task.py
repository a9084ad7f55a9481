"""Repeats are left out, wherever the first one is, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.silver.silver import silver_schema
from eyot_hub.jobs.silver.silver_input import Block, Written, packed
from eyot_hub.jobs.silver.silver_task import KnownFile, SilverTask
from eyot_hub.jobs.tables.files import DataFile
from support.hub.jobs_config import jobs_config

DAY = datetime(2026, 3, 1, tzinfo=UTC)
Row = dict[str, Any]


class Silver:
    """A silver table, filled by one task at a time."""

    def __init__(self, folder: Path, *, any_day: bool = False) -> None:
        schema = silver_schema(jobs_config("nats://127.0.0.1", folder).silver[0])
        self.any_day = any_day
        self.table = open_table(Lake(path=str(folder)), "silver", schema, ("event_date",))

    def fill(self, rows: list[Row]) -> Written:
        known = tuple(
            KnownFile(
                file.path,
                str(file.partition["event_date"]),
                file.least["origin_sequence"],
                file.most["origin_sequence"],
            )
            for file in self.table.files()
        )
        table = pa.Table.from_pylist(rows, self.table.spec.schema)
        blocks: list[Block] = [(0, packed([table.slice(at, 3)])) for at in range(0, len(rows), 3)]
        done = SilverTask(self.table.spec, known, self.any_day)(blocks)
        self.table.commit(done.good, {})
        return done

    def sequences(self) -> list[int]:
        tables = [pa.parquet.read_table(file.uri, partitioning=None) for file in self.table.files()]
        return sorted(number for table in tables for number in table.column("sequence").to_pylist())


def row(sequence: int, origin: int, content: int, *, stream: str = "A", day: int = 0, **more: Any) -> Row:
    at = DAY + timedelta(days=day, seconds=sequence)
    made = {
        "device": f"d{content % 3}",
        "event_time": at,
        "event_date": at.date(),
    }
    where = {"stored_at": at, "origin_domain": "", "origin_stream": stream, "origin_sequence": origin}
    return {**made, **where, "content_hash": content, "sequence": sequence, **more}


def test_repeats_within_a_task_and_in_the_table(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    done = silver.fill([row(1, 1, 10), row(2, 1, 10), row(3, 1, 11), row(4, 2, 10), row(5, 1, 10, stream="B")])
    assert (done.read, silver.sequences()) == (5, [1, 3, 4, 5])
    silver.fill([row(6, 1, 10), row(7, 2, 10, stream="B"), row(8, 1, 11), row(9, 9, 10)])
    assert silver.sequences() == [1, 3, 4, 5, 7, 9]


def test_a_repeat_on_another_day_where_the_event_time_is_that_of_storing(tmp_path: Path) -> None:
    silver = Silver(tmp_path, any_day=True)
    silver.fill([row(1, 1, 10), row(2, 1, 10, day=1)])
    silver.fill([row(3, 1, 10, day=2), row(4, 2, 10, day=2)])
    assert silver.sequences() == [1, 4]


def test_rows_are_sorted_and_the_quarantines_files_handed_on(tmp_path: Path) -> None:
    silver = Silver(tmp_path)
    silver.fill([row(9, 9, 9), row(1, 1, 2), row(2, 2, 1), row(4, 4, 3)])
    (file,) = silver.table.files()
    read = pa.parquet.read_table(file.uri, partitioning=None).to_pylist()
    assert [one["sequence"] for one in read] == [4, 9, 2, 1]
    assert [one["device"] for one in read] == ["d0", "d0", "d1", "d2"]
    assert silver.fill([]) == Written(0, [], [])
    bad = DataFile("silver=s/part-1.parquet", 1, 1, (("silver", "s"),), 1)
    task = SilverTask(silver.table.spec, (), any_day=False)
    assert task([(0, Written(0, [], [bad])), (0, Written(0, [], [bad]))]) == Written(0, [], [bad, bad])
