"""Files and commits of a table in each format, without Spark."""

from __future__ import annotations

import random
import resource
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.files import DataFile, by_partition
from eyot_hub.jobs.tables.table import Fenced, LakeTable, TableSpec
from support.hub.lake_formats import lake_format

SCHEMA = pa.schema(
    [("stream", pa.string()), ("date", pa.date32()), ("sequence", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
)
NOON = datetime(2026, 1, 1, 12, 0, 0, 1500, UTC)


pytestmark = pytest.mark.usefixtures("each_lake_format")


def opened(
    tmp_path: Path, schema: pa.Schema = SCHEMA, by: tuple[str, ...] = ("stream", "date"), name: str = "table"
) -> LakeTable:
    return open_table(Lake(path=str(tmp_path), format=lake_format()), name, schema, by)


def written(spec: TableSpec, stream: str, sequences: range) -> list[DataFile]:
    writer = spec.writer()
    rows = pa.table({"sequence": list(sequences), "at": [NOON] * len(sequences)}, schema=SCHEMA.remove(0).remove(0))
    writer.write(rows, (("stream", stream), ("date", "2026-01-01")))
    return writer.finish()


def test_files_and_positions_are_committed_together(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert table.position("eyot:S@1") is None
    table.commit(written(table.spec, "S", range(1, 11)), {"eyot:S@1": 10, "eyot:S": 1})
    again = opened(tmp_path)
    assert (again.position("eyot:S@1"), again.position("eyot:S")) == (10, 1)
    (file,) = again.files()
    assert (file.rows, file.least["sequence"], file.most["sequence"]) == (10, 1, 10)
    assert file.partition == {"stream": "S", "date": date(2026, 1, 1)}


@pytest.mark.parametrize("limit", [0, 4, 64 * 1024])
def test_a_disk_without_space_keeps_no_file_of_a_failed_task(tmp_path: Path, limit: int) -> None:
    """Files may not grow beyond `limit` bytes: the first bytes, a group of rows and the end of a file fail."""
    table = opened(tmp_path)
    rows = pa.table({"sequence": [1], "at": [NOON]}, schema=SCHEMA.remove(0).remove(0))
    chance = random.Random(1)  # what does not compress
    many = pa.table(
        {"sequence": [chance.getrandbits(40) for _ in range(50_000)], "at": [NOON] * 50_000}, schema=rows.schema
    )

    def fill_disk() -> None:
        writer = table.spec.writer()
        for day in ("2026-01-01", "2026-01-02"):
            writer.write(many if limit > 4 else rows, (("stream", "S"), ("date", day)))
        writer.finish()

    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, allowed[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            fill_disk()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert list(tmp_path.rglob("part-*")) == []
    table.commit(written(table.spec, "S", range(1, 11)), {"eyot:S@1": 10})
    assert table.rows() == 10


def test_positions_of_another_writer(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.commit([], {"eyot:S@1": 10, "eyot:T@1": 5})
    assert other.position("eyot:S@1") is None
    other.refresh()
    assert [other.position(name) for name in ("eyot:S@1", "eyot:T@1", "eyot:U@1")] == [10, 5, None]
    one.commit(written(one.spec, "S", range(11, 13)), {"eyot:S@1": 12})
    one.commit([], {}, one.files())
    other.refresh()
    assert [other.position(name) for name in ("eyot:S@1", "eyot:T@1")] == [12, 5]
    assert other.version == one.version


def test_an_append_follows_another_one_of_other_positions(tmp_path: Path) -> None:
    """A commit is made again after others that named none of its positions, and refused after one that named one, even to the same value."""
    one, other = opened(tmp_path), opened(tmp_path)
    one.commit(written(one.spec, "S", range(1, 3)), {"eyot:S@1": 2})
    other.commit(written(other.spec, "T", range(1, 4)), {"eyot:T@1": 3})
    assert (other.position("eyot:S@1"), other.position("eyot:T@1")) == (2, 3)
    assert sorted(file.rows for file in other.files()) == [2, 3]
    with pytest.raises(Fenced):
        one.commit(written(one.spec, "T", range(1, 4)), {"eyot:T@1": 3})
    one.refresh()
    other.commit([], {"eyot:T@1": 3})
    with pytest.raises(Fenced):
        one.commit([], {"eyot:T@1": 4})
    # Files are removed only from the version that they were read from.
    one.refresh()
    other.commit([], {"eyot:V@1": 1})
    with pytest.raises(Fenced):
        one.commit([], {}, one.files())
    one.refresh()
    assert (one.position("eyot:T@1"), one.rows()) == (3, 5)


def test_files_are_those_of_the_version(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.commit(written(one.spec, "S", range(3)), {})
    assert (len(one.files()), len(other.files())) == (1, 0)
    other.refresh()
    assert other.files() == one.files()
    one.files().clear()
    assert len(one.files()) == 1
    one.commit([], {}, one.files())
    assert one.files() == []


def test_a_stream_with_an_odd_name(tmp_path: Path) -> None:
    table = opened(tmp_path)
    name = "größe:%2F=x"
    table.commit(written(table.spec, name, range(1, 4)), {})
    (file,) = table.files(stream={name})
    assert pq.read_table(file.uri, partitioning=None).num_rows == 3
    table.commit([], {}, [file])
    assert table.files() == []


def test_of_two_writers_one_is_refused(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.commit(written(one.spec, "S", range(1, 11)), {"eyot:S@1": 10})
    with pytest.raises(Fenced):
        other.commit(written(one.spec, "S", range(1, 11)), {"eyot:S@1": 10})
    other.refresh()
    assert other.position("eyot:S@1") == 10
    assert sum(file.rows for file in other.files()) == 10


def test_a_commit_whose_answer_was_lost_has_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent again and refused by its own first arrival; the files must not be taken for those of a failure."""
    table = opened(tmp_path)
    files = written(table.spec, "S", range(1, 4))
    commit = table._log.commit

    def answered_twice(*given: Any, **more: Any) -> None:
        commit(*given, **more)
        raise Fenced("the second arrival")

    monkeypatch.setattr(table._log, "commit", answered_twice)
    table.commit(files, {"p": 3})
    assert (table.position("p"), {file.path for file in table.files()}) == (3, {file.path for file in files})
    monkeypatch.setattr(table._log, "commit", commit)

    def refused(*_: Any, **__: Any) -> None:
        raise Fenced("another job")

    monkeypatch.setattr(table._log, "commit", refused)
    with pytest.raises(Fenced, match="another job"):
        table.commit(written(table.spec, "S", range(4, 5)), {"p": 4})
    with pytest.raises(Fenced, match="another job"):
        table.commit([], {"p": 4})


def test_a_commit_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not become fuller with each try. A commit that failed after it was made keeps its files."""
    table = opened(tmp_path)
    table.commit(written(table.spec, "S", range(1, 4)), {"p": 3})
    commit, full = table._log.commit, OSError("No space left on device")

    def before(*_: Any, **__: Any) -> None:
        raise full

    def after(*given: Any, **more: Any) -> None:
        commit(*given, **more)
        raise full

    for fail, rows in ((before, 3), (after, 4)):
        monkeypatch.setattr(table._log, "commit", fail)
        with pytest.raises(OSError, match="No space left"):
            table.commit(written(table.spec, "S", range(4, 5)), {"p": 4})
        assert (table.rows(), len(list(tmp_path.rglob("part-*.parquet")))) == (rows, len(table.files()))


def test_compaction_keeps_rows_and_positions(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in range(4):
        table.commit(written(table.spec, "S", range(number, number + 1)), {"eyot:S@1": number})
    orphan = written(table.spec, "S", range(100, 101))
    table.compact()
    table.remove_files(0)
    (file,) = table.files()
    assert (file.rows, table.position("eyot:S@1")) == (4, 3)
    assert not (tmp_path / "table" / orphan[0].path).exists()


def test_maintenance_gives_way_to_another_job(tmp_path: Path) -> None:
    """Of two that compact the same files, one is refused and goes on; whoever appends meanwhile loses nothing."""
    one, other = opened(tmp_path), opened(tmp_path)
    for number in range(4):
        one.commit(written(one.spec, "S", range(number, number + 1)), {"eyot:S@1": number})
    other.refresh()
    third = opened(tmp_path)
    other.compact()
    one.maintain_when_due(0, 2, 0)
    assert [file.rows for file in one.files()] == [4]
    third.commit(written(one.spec, "S", range(4, 5)), {"eyot:S@1": 4})
    one.refresh()
    version = one.version
    one.maintain_when_due(version, 2, 0)
    one.maintain_when_due(0, 0, 0)
    assert one.version == version
    assert (sum(file.rows for file in one.files()), one.position("eyot:S@1")) == (5, 4)


def test_two_that_replace_the_same_files(tmp_path: Path) -> None:
    """A round that replaces a partition, and one that compacted it or replaced it before: the slower one is refused."""
    one, other = opened(tmp_path), opened(tmp_path)
    for number in range(2):
        one.commit(written(one.spec, "S", range(number, number + 1)), {})
    other.refresh()
    stale = other.files()
    one.compact()
    with pytest.raises(Fenced):
        other.commit(written(one.spec, "S", range(2)), {}, stale)
    other.refresh()
    one.commit(written(one.spec, "S", range(2)), {}, one.files())
    with pytest.raises(Fenced):
        other.commit(written(one.spec, "S", range(2)), {}, other.files())
    other.refresh()
    assert sum(file.rows for file in other.files()) == 2


def test_the_later_one_who_replaces_everything_stands(tmp_path: Path) -> None:
    flat = pa.schema([("number", pa.int64())])
    one, other = opened(tmp_path, flat, (), "flat"), opened(tmp_path, flat, (), "flat")
    one.replace([{"number": 1}])
    other.replace([{"number": 2}, {"number": 3}])
    one.replace([{"number": 4}])
    other.refresh()
    assert [file.rows for file in other.files()] == [1]


def test_an_abandoned_task_leaves_nothing(tmp_path: Path) -> None:
    writer = opened(tmp_path).spec.writer()
    rows = pa.table({"sequence": [1], "at": [NOON]}, schema=SCHEMA.remove(0).remove(0))
    writer.write(rows, (("stream", "S"), ("date", "2026-01-01")))
    writer.abandon()
    assert list((tmp_path / "table").rglob("*.parquet")) == []


def test_another_schema_is_refused(tmp_path: Path) -> None:
    """More columns are added; other types and another partitioning are refused."""
    opened(tmp_path)
    wider = SCHEMA.append(pa.field("more", pa.string()))
    grown = opened(tmp_path, wider)
    assert grown.spec.schema.names == [*SCHEMA.names, "more"]
    older = opened(tmp_path)
    # A job with an older configuration joins files and leaves the columns that it does not know as they are.
    for number in range(2):
        rows = pa.table({"sequence": [number], "at": [NOON], "more": ["x"]}, schema=wider.remove(0).remove(0))
        writer = grown.spec.writer()
        writer.write(rows, (("stream", "S"), ("date", "2026-01-01")))
        grown.commit(writer.finish(), {})
    older.refresh()
    older.compact()
    (file,) = older.files()
    assert pa.parquet.read_table(file.uri, partitioning=None).column("more").to_pylist() == ["x", "x"]
    other = SCHEMA.set(SCHEMA.get_field_index("sequence"), pa.field("sequence", pa.string()))
    with pytest.raises(HubError, match="its column 'sequence' is int64, not string"):
        opened(tmp_path, other)
    with pytest.raises(HubError, match="is partitioned by stream, date, not by date"):
        opened(tmp_path, SCHEMA, ("date",))


def test_rows_by_partition() -> None:
    days = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 1)]
    table = pa.table({"stream": ["A", "A", "A"], "date": days, "sequence": [1, 2, 3]})
    parts = by_partition(table, ("stream", "date"))
    assert [(dict(key), rows.column("sequence").to_pylist()) for key, rows in parts] == [
        ({"stream": "A", "date": "2026-01-01"}, [1, 3]),
        ({"stream": "A", "date": "2026-01-02"}, [2]),
    ]
