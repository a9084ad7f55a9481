"""The job `maintain`: fewer files, the same rows; killed at every step it leaves each row once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table, position_id
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.maintenance.maintenance import TRIES, Maintained, Maintenance
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config
from support.hub.killed_jobs import killed, maintain

pytestmark = pytest.mark.slow

FILES = 4


def append(table: LakeTable, first: int, count: int) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
    row = {"stream_created_ns": 1, "subject": "s", "stored_at": datetime.now(UTC)}
    rows = [{**row, "sequence": number} for number in range(first, first + count)]
    writer = table.spec.writer()
    writer.write(pa.Table.from_pylist(rows, schema), (("stream", "S"), ("date", "2026-01-01")))
    table.commit(writer.finish(), {position_id("S", 1): first + count - 1})


def sequences(config: Config) -> list[int]:
    """Return the table's sequences, in ascending order, as a new reader finds them."""
    tables = [pa.parquet.read_table(file.uri, partitioning=None) for file in bronze_table(config).files()]
    return sorted(number for table in tables for number in table.column("sequence").to_pylist())


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = jobs_config("nats://127.0.0.1", tmp_path, vacuum_after="1h")
    table = bronze_table(made)
    for number in range(FILES):
        append(table, 1 + 10 * number, 10)
    return made


@pytest.mark.usefixtures("each_lake_format")
def test_files_are_joined_in_every_table_that_exists(config: Config) -> None:
    silver_table(config, config.silver[0])
    quarantine_table(config)
    done = {one.table: one for one in Maintenance(config).round()}
    assert done["bronze"] == Maintained("bronze", FILES, 1)
    assert done.keys() == {"bronze", "quarantine", "silver/readings"}
    assert sequences(config) == list(range(1, 41))
    assert bronze_table(config).position(position_id("S", 1)) == 40
    assert next(Maintenance(config).round()).files == 1


def test_parts_that_are_left_out(config: Config) -> None:
    assert next(Maintenance(config, compact=False).round()).files == FILES
    assert next(Maintenance(config, vacuum=False).round()).files == 1
    assert list(Maintenance(config).round(lambda: True)) == []


def test_the_command(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def session(*_: object) -> None:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr("eyot_hub.main.session", session)
    toml = tmp_path / "hub.toml"
    toml.write_text(f"""
        [nats]
        servers = "nats://127.0.0.1"
        [lake]
        path = "{config.lake.path}"
        [bronze]
        streams = ["S"]
    """)
    assert main(["maintain", "-c", str(toml), "--once", "--no-compact"]) == 0
    assert capsys.readouterr().out == f"bronze: {FILES} files, now {FILES}; 0 old files removed\n"
    assert main(["maintain", "-c", str(toml), "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    expected = {"table": "bronze", "files_before": FILES, "files": 1, "removed": 0, "refused": False}
    expected |= {"expired": 0, "waits_for": [], "clock_jumped": False}
    assert json.loads(line) == expected
    assert sequences(config) == list(range(1, 41))


@pytest.mark.usefixtures("each_lake_format")
def test_a_job_that_commits_meanwhile(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction is made again; when others commit all the time, it is left for the next round."""
    other, commit = bronze_table(config), LakeTable.commit
    meanwhile = iter(range(41, 1000))
    busy = 1

    def overtaken(self: LakeTable, *given: object, **more: bool) -> None:
        nonlocal busy
        if self is not other and busy:
            busy -= 1
            append(other, next(meanwhile), 1)
        commit(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LakeTable, "commit", overtaken)
    assert next(Maintenance(config).round()) == Maintained("bronze", FILES, 1)
    assert sequences(config) == list(range(1, 42))
    other.refresh()
    append(other, next(meanwhile), 1)
    busy = TRIES
    done = next(Maintenance(config).round())
    assert (done.refused, done.files) == (True, 2 + TRIES)
    assert sequences(config) == list(range(1, 43 + TRIES))


@pytest.mark.parametrize(
    "step",
    [
        "FileWriter write before",
        "FileWriter finish after",
        "LakeTable commit before",
        "LakeTable commit after",
        "Log vacuum before",
        "Log vacuum after",
    ],
)
@pytest.mark.usefixtures("each_lake_format")
def test_killed_at_any_step(config: Config, tmp_path: Path, step: str) -> None:
    before = bronze_table(config).version + 1  # the reading of the clock
    killed(maintain, f"{step} 1", tmp_path)
    assert sequences(config) == list(range(1, 41))
    committed = step.startswith("Log") or step == "LakeTable commit after"
    assert (bronze_table(config).version > before) == committed
    table = bronze_table(config)
    append(table, 41, 5)
    assert next(Maintenance(config).round()).files == 1
    assert sequences(config) == list(range(1, 46))
    # What the killed job left behind goes with a vacuum.
    bronze_table(config).remove_files(0)
    assert len(list((tmp_path / "lake/bronze").rglob("part-*.parquet"))) == 1
