"""Retention of the quarantine: old days leave once and are counted once, whatever is killed or comes in between."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.config.config import Config, ConfigError, Retention
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.maintenance.maintenance import TRIES, Maintained, Maintenance
from eyot_hub.jobs.removals.retention import removed_rows
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.silver.silver import QUARANTINE_SCHEMA, quarantine_table, silver_table
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config
from support.hub.killed_jobs import expire, killed

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
#: With an age of 48 hours, the days up to 7 March have been over for long enough.
AGE = "48h"
DAYS = [date(2026, 3, day) for day in (1, 6, 7, 8, 10)]
SILVERS = ("readings", "others")


def poison(silver: str, day: date, sequence: int) -> dict[str, Any]:
    made = {"silver": silver, "date": day, "reason": "payload is not json", "subject": "readings.d", "payload": b"{"}
    made |= {"headers": [], "stored_at": datetime(day.year, day.month, day.day, 23, tzinfo=UTC)}
    made |= {"origin_domain": "edge", "origin_stream": "O", "origin_sequence": sequence}
    return {**made, "stream": "S", "stream_created_ns": 7, "sequence": sequence}


def fill(table: LakeTable, rows: list[dict[str, Any]]) -> None:
    writer = table.spec.writer()
    for partition, part in by_partition(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), table.spec.partition_by):
        writer.write(part, partition)
    table.commit(writer.finish(), {})


def kept(config: Config) -> list[tuple[str, int, date]]:
    """Return silver table, sequence and day of the rows, as a new reader finds them."""
    table, found = quarantine_table(config), []
    for file in table.files():
        for rows in row_groups(table.spec.place, [file.path], pa.schema([("sequence", pa.int64())])):
            silver, day = file.partition["silver"], file.partition["date"]
            found += [(silver, number, day) for number in rows.column("sequence").to_pylist()]
    return sorted(found)


def maintained(config: Config, now: datetime = NOW, **more: bool) -> Maintained:
    """Run a round; return what it did to the quarantine."""
    return {one.table: one for one in Maintenance(config, now=lambda: now, **more).round()}["quarantine"]


def expected(first: date) -> list[tuple[str, int, date]]:
    """Return the rows of the fixture from a day on: day N has N + 1 rows of each silver table."""
    return sorted(
        (silver, 10 * at + number, day)
        for silver in SILVERS
        for at, day in enumerate(DAYS)
        for number in range(at + 1)
        if day >= first
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = structs.replace(jobs_config("nats://127.0.0.1", tmp_path), retention=Retention(quarantine=AGE))
    table = quarantine_table(made)
    table.commit([], {f"readings/{position_id('S', 7)}": 44})
    for silver in SILVERS:
        fill(
            table,
            [
                poison(*row)
                for row in [(one, day, number) for one, number, day in expected(DAYS[0])]
                if row[0] == silver
            ],
        )
    return made


@pytest.mark.usefixtures("each_lake_format")
def test_days_that_ended_long_enough_ago_leave(config: Config) -> None:
    """A day counts from its end: at 12:00 on the 10th, the 7th ended 60 hours ago and the 8th 36 hours."""
    assert kept(config) == expected(DAYS[0])
    assert maintained(config).expired == 12  # 1 + 2 + 3 rows of two silver tables
    assert kept(config) == expected(date(2026, 3, 8))
    table = quarantine_table(config)
    assert (removed_rows(table, ["readings"]), removed_rows(table, SILVERS)) == (6, 12)
    assert table.position(f"readings/{position_id('S', 7)}") == 44  # nothing is read from bronze again
    version = table.version
    assert maintained(config).expired == 0
    assert quarantine_table(config).version == version
    # 48 hours after the end of the 8th, and not a moment before.
    assert maintained(config, datetime(2026, 3, 10, 23, 59, 59, tzinfo=UTC)).expired == 0
    assert maintained(config, datetime(2026, 3, 11, tzinfo=UTC)).expired == 8
    assert removed_rows(quarantine_table(config), SILVERS) == 20


def test_nothing_leaves_unless_configured(config: Config) -> None:
    assert maintained(structs.replace(config, retention=Retention())).expired == 0
    assert maintained(config, retention=False).expired == 0
    assert kept(config) == expected(DAYS[0])


@pytest.mark.usefixtures("each_lake_format")
def test_the_files_go_with_a_vacuum(config: Config, tmp_path: Path) -> None:
    files = tmp_path / "lake/quarantine"
    maintained(config, compact=False)
    assert len(list(files.rglob("part-*.parquet"))) == 10  # older versions still need them
    quarantine_table(config).remove_files(0)
    assert len(list(files.rglob("part-*.parquet"))) == 4
    assert not list(files.glob("silver=*/date=2026-03-07/part-*.parquet"))


@pytest.mark.usefixtures("each_lake_format")
def test_a_job_that_commits_meanwhile(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal is planned again with the other job's rows; when others commit all the time, it is left for the next round."""
    other, commit = quarantine_table(config), LakeTable.commit
    meanwhile, busy = iter(range(100, 200)), 1

    def overtaken(self: LakeTable, *given: Any, **more: Any) -> None:
        nonlocal busy
        if self is not other and busy:
            busy -= 1
            other.refresh()
            fill(other, [poison("readings", DAYS[0], next(meanwhile))])
        commit(self, *given, **more)

    monkeypatch.setattr(LakeTable, "commit", overtaken)
    done = maintained(config, compact=False)
    assert (done.expired, done.refused) == (13, False)
    assert kept(config) == expected(date(2026, 3, 8))
    other.refresh()
    fill(other, [poison("readings", DAYS[0], next(meanwhile))])
    busy = TRIES
    done = maintained(config, compact=False)
    assert (done.expired, done.refused) == (0, True)
    assert maintained(config, compact=False).expired == 1 + TRIES
    assert kept(config) == expected(date(2026, 3, 8))
    assert removed_rows(quarantine_table(config), SILVERS) == 14 + TRIES


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("each_lake_format")
def test_killed_and_run_again(config: Config, tmp_path: Path, when: str) -> None:
    """The table is as if the job had run once: rows, count and versions."""
    before = quarantine_table(config).version + 1  # the reading of the clock
    killed(expire, f"LakeTable commit {when} 1", tmp_path, {"quarantine": "48h"})
    assert kept(config) == expected(DAYS[0] if when == "before" else date(2026, 3, 8))
    assert maintained(config, compact=False).expired == (12 if when == "before" else 0)
    table = quarantine_table(config)
    assert kept(config) == expected(date(2026, 3, 8))
    assert removed_rows(table, SILVERS) == 12
    assert table.version == before + 1


def test_a_replay_does_not_find_them(config: Config) -> None:
    silver_table(config, config.silver[0])
    maintained(config)
    done = Replay(config, config.silver[0]).run()
    assert (done.read, done.removed) == (9, 0)  # 4 + 5 rows of the 8th and the 10th


def test_the_command(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = tmp_path / "hub.toml"
    toml.write_text(f"""
        [nats]
        servers = "nats://127.0.0.1"
        [lake]
        path = "{config.lake.path}"
        [bronze]
        streams = ["S"]
        [retention]
        quarantine = "24h"
    """)
    # Days of a year that is over for more than a day, and one that is still to come.
    future = datetime.now(UTC).date() + timedelta(days=400)
    table = quarantine_table(config)
    table.commit([], {}, table.files())
    fill(table, [poison("readings", date(2020, 1, 1), 1), poison("readings", future, 2)])
    assert main(["maintain", "-c", str(toml), "--once", "--no-compact", "--no-vacuum", "--no-retention"]) == 0
    assert capsys.readouterr().out.startswith("quarantine: 2 files, now 2; 0 old files removed")
    assert main(["maintain", "-c", str(toml), "--once", "--no-compact", "--no-vacuum"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("quarantine: 2 files, now 1; 1 expired row removed; 0 old files removed")
    assert "clock" in out  # the newest row is of next year
    assert main(["maintain", "-c", str(toml), "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["expired"] == 0
    assert kept(config) == [("readings", 2, future)]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"quarantine": "1h"}, "retention.quarantine: must be at least 24h, or 0s"),
        ({"quarantine": "-48h"}, "retention.quarantine: -48h is negative"),
        ({"quarantine": "2 days"}, "retention.quarantine: '2 days' is not a duration"),
        ({"quarantin": "48h"}, "retention.quarantin: there is no such key, did you mean quarantine?"),
    ],
)
def test_mistakes(section: dict[str, str], said: str) -> None:
    parsed = {"nats": {"servers": "nats://127.0.0.1"}, "lake": {"path": "/lake"}, "bronze": {"streams": ["S"]}}
    with pytest.raises(ConfigError, match=said):
        convert({**parsed, "retention": section}, "tests")
