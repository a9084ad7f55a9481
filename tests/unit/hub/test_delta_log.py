"""The log of a Delta table: what it costs to follow other writers, and statistics."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake.lake import existing_table, open_table
from eyot_hub.jobs.tables.delta_log import CHECKPOINT_INTERVAL, DeltaLog, statistics
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table import TableSpec

SCHEMA = pa.schema([("sequence", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
NOON = datetime(2026, 1, 1, 12, 0, 0, 1500, UTC)


def written(spec: TableSpec, sequences: range, text: str = "a") -> list[DataFile]:
    writer = spec.writer()
    count = len(sequences)
    writer.write(
        pa.table({"sequence": list(sequences), "at": [NOON] * count, "text": [text] * count}, schema=SCHEMA), ()
    )
    return writer.finish()


def test_positions_of_another_writer_are_read_from_its_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(path=str(tmp_path))
    one, other = (open_table(lake, "table", SCHEMA) for _ in range(2))
    one.commit([], {"eyot:S@1": 10, "eyot:T@1": 5})
    other.refresh()
    assert [other.position(name) for name in ("eyot:S@1", "eyot:T@1", "eyot:U@1")] == [10, 5, None]
    one.commit(written(one.spec, range(11, 13)), {"eyot:S@1": 12})
    one.commit([], {"eyot:U@1": 1})
    one.commit([], {}, one.files())
    asked: list[str] = []
    assert isinstance(other._log, DeltaLog)
    delta = other._log._delta
    of_delta = delta.transaction_version

    def transaction_version(app_id: str) -> int | None:
        asked.append(app_id)
        return of_delta(app_id)

    monkeypatch.setattr(delta, "transaction_version", transaction_version)
    other.refresh()
    assert [other.position(name) for name in ("eyot:S@1", "eyot:T@1", "eyot:U@1")] == [12, 5, 1]
    assert asked == []
    # After many commits the table is asked again.
    monkeypatch.setattr("eyot_hub.jobs.tables.delta_log.LOG_ENTRIES_MAX", 1)
    for last in (14, 15):
        one.commit([], {"eyot:S@1": last})
    other.refresh()
    assert [other.position(name) for name in ("eyot:S@1", "eyot:T@1")] == [15, 5]
    assert asked == ["eyot:S@1", "eyot:T@1"]


def test_a_file_is_taken_from_the_log_once(tmp_path: Path) -> None:
    """Rounds do not take longer with each file that the table has held before."""
    lake = Lake(path=str(tmp_path))
    one, other = (open_table(lake, "table", SCHEMA) for _ in range(2))
    one.commit(written(one.spec, range(1, 4)), {})
    one.commit(written(one.spec, range(4, 9)), {})
    other.refresh()
    gone, stays = sorted(other.files(), key=lambda file: file.rows)
    one.commit(written(one.spec, range(9, 10)), {}, [file for file in one.files() if file.path == gone.path])
    other.refresh()
    seen = {file.path: file for file in other.files()}
    assert seen == {file.path: file for file in open_table(lake, "table", SCHEMA).files()}
    assert sorted(file.rows for file in seen.values()) == [1, 5]
    assert seen[stays.path] is stays


def test_statistics(tmp_path: Path) -> None:
    """Times are kept to the millisecond, so a minimum is rounded down and a maximum up; a long text has none."""
    table = open_table(Lake(path=str(tmp_path)), "table", SCHEMA)
    stats = json.loads(statistics(written(table.spec, range(1, 4))[0]))
    assert stats == {
        "numRecords": 3,
        "minValues": {"sequence": 1, "at": "2026-01-01T12:00:00.001Z", "text": "a"},
        "maxValues": {"sequence": 3, "at": "2026-01-01T12:00:00.002Z", "text": "a"},
        "nullCount": {"sequence": 0, "at": 0, "text": 0},
    }
    assert "text" not in json.loads(statistics(written(table.spec, range(1, 4), "a" * 200)[0]))["minValues"]


def test_a_refresh_without_news_lists_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(path=str(tmp_path))
    one, other = (open_table(lake, "table", SCHEMA) for _ in range(2))
    one.commit([], {"eyot:S@1": 10})
    assert isinstance(other._log, DeltaLog)
    listed: list[int] = []
    delta = other._log._delta
    of_delta = delta.update_incremental

    def update_incremental() -> None:
        listed.append(1)
        of_delta()

    monkeypatch.setattr(delta, "update_incremental", update_incremental)
    for _ in range(3):
        other.refresh()
    assert (other.position("eyot:S@1"), other.version, len(listed)) == (10, one.version, 1)
    # Where a table was deleted and made again, its versions begin anew: no commit follows, and the known one is gone.
    shutil.rmtree(tmp_path / "table")
    again = open_table(lake, "table", SCHEMA)
    other.refresh()
    assert len(listed) == 2
    assert again.version == 0


def test_the_log_is_summed_up_often(tmp_path: Path) -> None:
    """A commit costs time for each one since the last checkpoint."""
    table = open_table(Lake(path=str(tmp_path)), "table", SCHEMA)
    for number in range(CHECKPOINT_INTERVAL):
        table.commit([], {"eyot:S@1": number})
    assert list((tmp_path / "table" / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_damaged_log_is_told_with_its_table(tmp_path: Path) -> None:
    """Half an entry, as a disk or a copy may leave it: delta-rs tells what is wrong, and not where."""
    lake = Lake(path=str(tmp_path))
    root = open_table(lake, "table", SCHEMA).root
    (Path(root) / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')
    with pytest.raises(HubError, match=f"^table {root}: .*Truncated record"):
        open_table(lake, "table", SCHEMA)
    with pytest.raises(HubError, match=f"^table {root}: .*Truncated record"):
        existing_table(lake, "table")
