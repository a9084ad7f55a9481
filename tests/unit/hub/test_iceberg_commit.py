"""What a commit to an Iceberg table costs: little more with every snapshot and file that the table has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pyiceberg.table
import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake import iceberg_catalog
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.iceberg_commit import MANIFESTS_MAX
from eyot_hub.jobs.tables.iceberg_log import between_others
from eyot_hub.jobs.tables.table import LakeTable

SCHEMA = pa.schema([("number", pa.int64())])


def append(table: LakeTable, number: int) -> None:
    writer = table.spec.writer()
    writer.write(pa.table({"number": [number]}, SCHEMA), ())
    table.commit(writer.finish(), {"eyot:S@1": number})


def numbers(table: LakeTable) -> list[int]:
    return sorted(row["number"] for row in table.to_pylist())


def manifests(lake: Lake) -> int:
    table = iceberg_catalog.catalog_of(lake).load_table("eyot.table")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(snapshot.manifests(table.io))


def test_a_commit_copies_the_snapshots_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each look at the metadata: a table that many commits were made to would slow all later ones down."""
    table = open_table(Lake(path=str(tmp_path), format="iceberg"), "table", SCHEMA)
    writer = table.spec.writer()
    writer.write(pa.table({"number": [1, 2]}, SCHEMA), ())
    table.commit(writer.finish(), {"eyot:S@1": 1})
    copies: list[int] = []
    for module in (pyiceberg.table, pyiceberg.catalog):
        real = module.update_table_metadata

        def counted(base_metadata: Any, *given: Any, real: Any = real, **more: Any) -> Any:
            copies.append(len(base_metadata.snapshots))
            return real(base_metadata, *given, **more)

        monkeypatch.setattr(module, "update_table_metadata", counted)
    table.commit([], {"eyot:S@1": 2})
    assert copies == [1, 1]
    copies.clear()
    table.commit([], {"eyot:S@1": 3}, table.files())
    assert copies == [2, 2]
    assert (table.position("eyot:S@1"), table.rows()) == (3, 0)


def test_a_writer_reads_and_copies_no_snapshot_that_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(Lake(path=str(tmp_path), format="iceberg"), "table", SCHEMA)
    for number in range(3):
        append(table, number)
    read: list[object] = []
    monkeypatch.setattr(FromInputFile, "table_metadata", lambda *given: read.append(given))
    monkeypatch.setattr(Summary, "__deepcopy__", lambda *given: read.append(given), raising=False)
    table.refresh()
    append(table, 3)
    table.commit([], {"eyot:S@1": 4}, table.files()[:1])
    assert (read, table.rows(), table.position("eyot:S@1")) == ([], 3, 4)


def test_commits_of_another_process_are_seen(tmp_path: Path) -> None:
    lake = Lake(path=str(tmp_path), format="iceberg")
    table = open_table(lake, "table", SCHEMA)
    append(table, 1)
    iceberg_catalog._catalogs.clear()
    other = open_table(lake, "table", SCHEMA)
    append(other, 2)
    table.refresh()
    assert numbers(table) == [1, 2]
    append(table, 3)
    other.refresh()
    assert (numbers(other), other.position("eyot:S@1")) == ([1, 2, 3], 3)


def test_manifests_stay_few(tmp_path: Path) -> None:
    """However many commits there were; each file stays in the table once, until it is removed."""
    lake = Lake(path=str(tmp_path), format="iceberg")
    table = open_table(lake, "table", SCHEMA)
    for number in range(3 * MANIFESTS_MAX):
        append(table, number)
        assert manifests(lake) <= MANIFESTS_MAX
    assert numbers(table) == list(range(3 * MANIFESTS_MAX))
    gone = table.files()[:20]
    table.commit([], {}, gone)
    left = {file.path for file in table.files()}
    assert (len(left), left & {file.path for file in gone}) == (3 * MANIFESTS_MAX - 20, set())
    for number in range(100, 100 + 2 * MANIFESTS_MAX):
        append(table, number)
    assert {file.path for file in table.files()} > left
    assert table.rows() == 5 * MANIFESTS_MAX - 20


def test_which_snapshots_stay() -> None:
    """All of the last ten minutes, the last of each ten minutes of a day, and the last of each hour before."""
    now = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC)
    ages = [timedelta(minutes=minutes) for minutes in (3000, 2990, 2981, 1441, 1439, 40, 35, 31, 15, 11, 9, 5, 0)]
    ages += [timedelta(minutes=-9), timedelta(days=-5 * 365)]  # clocks that differ, and one that was years ahead
    snapshots = [
        Snapshot(
            snapshot_id=number,
            timestamp_ms=int((now - age).timestamp() * 1000),
            manifest_list="",
            summary=Summary(Operation.APPEND),
        )
        for number, age in enumerate(ages)
    ]
    gone = {age // timedelta(minutes=1) for age in (ages[one.snapshot_id] for one in between_others(snapshots, now))}
    assert gone == {3000, 2990, 40, 35, 15, -5 * 365 * 24 * 60}
