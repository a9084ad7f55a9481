"""`eyot-hub erase`: the rows of one device leave every table once, whatever is killed or comes in between, and do not come back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import SCHEMA, bronze_table, position_id
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, FleetStatus
from eyot_hub.jobs.devices.file_summaries import FileSummaries
from eyot_hub.jobs.devices.fleet import FLEET_SCHEMA
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.maintenance.erasure import Eraser
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.removals.erasures import COMPLETED, REQUESTED, named, noted, unfinished
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.main import main
from support.hub.jobs_config import jobs_config
from support.hub.killed_jobs import erase, killed
from support.hub.local_spark import LocalSpark

pytestmark = pytest.mark.slow

DAYS = [date(2026, 3, day) for day in (1, 2)]
SPARK: Any = LocalSpark()
ROWS = 40


def stored(sequence: int, payload: bytes | None = None, subject: str = "readings.x", **more: Any) -> dict[str, Any]:
    """A row of bronze: a reading of four devices in turn, on two days; every tenth one lacks its metric."""
    day = DAYS[sequence % 8 // 4]
    at = datetime(day.year, day.month, day.day, 8, sequence % 60, tzinfo=UTC)
    body: dict[str, Any] = {"device": f"d{sequence % 4}", "at": int(at.timestamp() * 1000), "value": sequence / 4}
    if sequence % 10:
        body["metric"] = "m"
    payload = json.dumps(body).encode() if payload is None else payload
    row = {"stream": "S", "date": day, "stream_created_ns": 7, "sequence": sequence, "headers": [], "subject": subject}
    origin = {"domain": "", "account": "", "origin_domain": "edge", "origin_stream": "O", "origin_sequence": sequence}
    return {**row, "payload": payload, "stored_at": at, **origin, **more}


def store(config: Config, rows: list[dict[str, Any]]) -> None:
    table = bronze_table(config)
    writer = table.spec.writer()
    for partition, part in by_partition(pa.Table.from_pylist(rows, SCHEMA), table.spec.partition_by):
        writer.write(part, partition)
    table.commit(writer.finish(), {position_id("S", 7): rows[-1]["sequence"]})


def rows_of(table: LakeTable, *names: str) -> list[tuple[Any, ...]]:
    """The rows as a new reader finds them, sorted."""
    schema = pa.schema([table.spec.schema.field(name) for name in names])
    groups = row_groups(table.spec.place, [file.path for file in table.files()], schema)
    return sorted(tuple(row.values()) for rows in groups for row in rows.to_pylist())


def lake(config: Config) -> dict[str, list[tuple[Any, ...]]]:
    (silver,), (gold,) = config.silver, config.gold
    return {
        "bronze": rows_of(bronze_table(config), "sequence"),
        "quarantine": rows_of(quarantine_table(config), "sequence"),
        f"silver/{silver.name}": rows_of(silver_table(config, silver), "sequence", "device"),
        f"gold/{gold.name}": rows_of(gold_table(config, gold), "device", "window_start", "count", "mean"),
    }


def without(before: dict[str, list[tuple[Any, ...]]], number: int = 1) -> dict[str, list[tuple[Any, ...]]]:
    """What the tables must hold once a device is erased."""
    left = {name: [row for row in rows if row[0] % 4 != number] for name, rows in before.items() if name[0] != "g"}
    return {**left, "gold/minute": [row for row in before["gold/minute"] if row[0] != f"d{number}"]}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return jobs_config("nats://127.0.0.1", tmp_path, vacuum_after="1h")


@pytest.fixture
def filled(config: Config) -> Config:
    """A lake of forty messages in four files, aggregated; nobody has looked for gaps."""
    for first in range(1, ROWS, 20):
        store(config, [stored(sequence) for sequence in range(first, first + 20)])
    Aggregate(SPARK, config).round()
    return config


@pytest.mark.usefixtures("each_lake_format")
def test_fleet_at_the_same_time_brings_nothing_back(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fleet` has read silver, then the device is erased, then `fleet` writes what it read."""
    fleet = open_table(filled.lake, "fleet", FLEET_SCHEMA)
    rows = [{"device": f"d{number}"} for number in range(4)]
    fleet.replace(rows, named(fleet))
    summaries, keep = FileSummaries(SPARK, filled), FileSummaries._keep

    def overtaken(self: FileSummaries, *given: Any, **options: Any) -> bool:
        Eraser(SPARK, filled).erase("d1")
        return keep(self, *given, **options)

    summaries.found()
    store(filled, [stored(sequence) for sequence in range(41, 61)])
    Aggregate(SPARK, filled).round()
    monkeypatch.setattr(FileSummaries, "_keep", overtaken)
    summaries.found()
    with pytest.raises(Fenced):
        fleet.replace(rows, named(fleet))
    assert rows_of(open_table(filled.lake, "fleet", FLEET_SCHEMA), "device") == [("d0",), ("d2",), ("d3",)]
    assert ("d1",) not in rows_of(summaries.table, "device")
    fleet.replace(rows[:1], named(fleet))  # the next run knows the erasure
    assert rows_of(open_table(filled.lake, "fleet", FLEET_SCHEMA), "device") == [("d0",)]


@pytest.mark.usefixtures("each_lake_format")
def test_every_row_of_the_device_leaves(filled: Config, tmp_path: Path) -> None:
    before = lake(filled)
    done = Eraser(SPARK, filled).erase("d1")
    assert lake(filled) == without(before)
    gone = {name: len(rows) - len(without(before)[name]) for name, rows in before.items()}
    assert done.rows == gone
    assert gone["bronze"] == 10
    assert gone["quarantine"] == 0  # every tenth row has an even number
    # Of what is gone nothing counts as missing, and what is made anew does not have it.
    assert not Gaps(SPARK, structs.replace(filled, gaps=structs.replace(filled.gaps, ask_origins=False))).run().gaps
    for name, rows in lake(filled).items():
        assert rows == without(before)[name]
    Aggregate(SPARK, filled).round()
    Aggregate(SPARK, filled).rebuild(set())
    assert lake(filled) == without(before)
    # The audit names table and rows, and nothing is left to do.
    rows = noted(filled)
    assert [(row["event"], row["device"], row["table"], row["rows"]) for row in rows] == [
        (REQUESTED, "d1", None, 0),
        (COMPLETED, "d1", None, sum(gone.values())),
        *((COMPLETED, "d1", name, count) for name, count in gone.items()),
    ]
    assert unfinished(filled) == []
    # After the vacuum no file has it.
    for folder in tmp_path.rglob("*.parquet"):
        os.utime(folder, (0, 0))
    for name in ("bronze", "silver/readings", "gold/minute"):
        table = {
            "bronze": bronze_table(filled),
            "silver/readings": silver_table(filled, filled.silver[0]),
            "gold/minute": gold_table(filled, filled.gold[0]),
        }[name]
        table.remove_files(0)
    left = [pq.read_table(file, partitioning=None) for file in (tmp_path / "lake").rglob("*.parquet")]
    assert not [
        table
        for table in left
        if "device" in table.column_names
        and "event" not in table.column_names
        and "d1" in table.column("device").to_pylist()
    ]
    assert not [
        table
        for table in left
        if "payload" in table.column_names and any(b'"d1"' in text for text in table.column("payload").to_pylist())
    ]


def test_messages_that_cannot_be_rows(config: Config) -> None:
    """A quarantined message leaves by its device, where it names one; by its subject, whatever it holds."""
    poison = [stored(41, b"{"), stored(42, b"{", "readings.d3"), stored(43, b'{"device": "d3"}'), stored(44, b"", "z")]
    store(config, [*(stored(sequence) for sequence in range(1, 41)), *poison])
    Aggregate(SPARK, config).round()
    assert rows_of(quarantine_table(config), "sequence") == [(10,), (20,), (30,), (40,), (41,), (42,), (43,)]
    done = Eraser(SPARK, config).erase("d3", ["readings.d3", "z.>"])
    assert rows_of(quarantine_table(config), "sequence") == [(10,), (20,), (30,), (40,), (41,)]
    assert (41,) in rows_of(bronze_table(config), "sequence")
    assert not {(42,), (43,)} & set(rows_of(bronze_table(config), "sequence"))
    assert (44,) in rows_of(bronze_table(config), "sequence")
    assert done.rows["quarantine"] == 2
    assert Replay(config, config.silver[0]).run().read == 5


@pytest.mark.parametrize(
    ("device", "name", "gone"),
    [("subject:2", "x", 40), ("origin_domain", "edge", 40), ("origin_stream", "O", 40), ("stream", "S", 40)],
)
def test_each_way_to_name_a_device(config: Config, device: str, name: str, gone: int) -> None:
    config = structs.replace(config, silver=[structs.replace(config.silver[0], device=device)])
    store(config, [stored(sequence) for sequence in range(1, 41)])
    Aggregate(SPARK, config).round()
    done = Eraser(SPARK, config).erase(name)
    assert (done.rows["bronze"], done.rows["silver/readings"] + done.rows["quarantine"]) == (gone, gone)
    assert not any(lake(config).values())


def test_statuses_of_the_device(config: Config) -> None:
    config = structs.replace(config, fleet=FleetStatus(subjects=["fleet.*.status"]))
    statuses = [stored(n, json.dumps({"device": f"d{n % 2}"}).encode(), "fleet.x.status") for n in range(1, 5)]
    store(config, statuses)
    assert Eraser(SPARK, config).erase("d1").rows["bronze"] == 2
    assert rows_of(bronze_table(config), "sequence") == [(2,), (4,)]


@pytest.mark.usefixtures("each_lake_format")
@pytest.mark.parametrize("step", ["after 1", "before 4", "after 5", "before 8"])
def test_killed_and_finished_by_the_next_run(filled: Config, tmp_path: Path, step: str) -> None:
    before = lake(filled)
    killed(erase, f"LakeTable commit {step}", tmp_path, "d1")
    assert len(unfinished(filled)) == 1
    # The other jobs go on with what they find.
    store(filled, [stored(sequence) for sequence in (42, 43, 44, 46)])
    Aggregate(SPARK, filled).round()
    done = Eraser(SPARK, filled).resume()
    assert unfinished(filled) == []
    now = lake(filled)
    assert now["bronze"] == [(n,) for n in range(1, 47) if n % 4 != 1]
    assert now["silver/readings"] == [(n, f"d{n % 4}") for n in range(1, 47) if n % 4 != 1 and n % 10]
    assert not [row for row in now["gold/minute"] if row[0] == "d1"]
    assert sum(row[2] for row in now["gold/minute"]) == len(now["silver/readings"])
    (one,) = done
    assert one.rows["silver/readings"] >= len(before["silver/readings"]) - len(without(before)["silver/readings"])
    Aggregate(SPARK, filled).rebuild(set())
    assert lake(filled)["silver/readings"] == now["silver/readings"]


def test_a_round_at_the_same_time_brings_nothing_back(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """An aggregation that read bronze before the erasure and commits after it, to each of its tables in turn."""
    store(filled, [stored(sequence) for sequence in range(41, 61)])
    job, commit, erased = Aggregate(SPARK, filled), LakeTable.commit, []

    def overtaken(table: LakeTable, *given: Any, **more: Any) -> None:
        if not erased and table.root.endswith("/readings"):
            erased.append(True)
            monkeypatch.setattr(LakeTable, "commit", commit)
            Eraser(SPARK, filled).erase("d1")
        commit(table, *given, **more)

    monkeypatch.setattr(LakeTable, "commit", overtaken)
    job.round()
    job.round()
    assert erased
    assert not [row for row in lake(filled)["silver/readings"] if row[1] == "d1"]
    assert not [row for row in lake(filled)["gold/minute"] if row[0] == "d1"]
    assert lake(filled)["silver/readings"] == [(n, f"d{n % 4}") for n in range(1, 61) if n % 4 != 1 and n % 10]


def test_a_round_whose_bronze_is_older_than_its_silver(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    store(filled, [stored(sequence) for sequence in range(41, 61)])
    job = Aggregate(SPARK, filled)
    job.bronze.refresh()
    Eraser(SPARK, filled).erase("d1")
    monkeypatch.setattr(job.bronze, "refresh", once(job.bronze.refresh))  # the round's own refresh came before
    job.round()
    assert not [row for row in lake(filled)["silver/readings"] if row[1] == "d1"]


def once(refresh: Callable[[], None]) -> Callable[[], None]:
    """Leave out the first call."""
    calls: list[int] = []

    def again() -> None:
        calls.append(1)
        if len(calls) > 1:
            refresh()

    return again


def test_a_replay_that_read_the_quarantine_before(config: Config) -> None:
    store(config, [stored(sequence, metric=None) for sequence in range(1, 41)])
    Aggregate(SPARK, config).round()
    lenient = structs.replace(config, silver=[structs.replace(config.silver[0], required=[])])
    replay = Replay(lenient, lenient.silver[0])
    Eraser(SPARK, config).erase("d0")
    with pytest.raises(Fenced, match="a device was erased meanwhile"):
        replay.run()
    assert Replay(lenient, lenient.silver[0]).run().added == 2  # 10 and 30; 20 and 40 are of d0
    assert not [row for row in lake(config)["silver/readings"] if row[1] == "d0"]


def test_other_jobs_that_commit_continuously(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest appends before each commit of the erasure, and maintenance joins files once."""
    commit, added = LakeTable.commit, [40]

    def busy(table: LakeTable, *given: Any, **more: Any) -> None:
        if table.root.endswith("/bronze") and added[0] < 52:
            monkeypatch.setattr(LakeTable, "commit", commit)
            if added[0] == 44:
                list(Maintenance(filled, vacuum=False).round())
            store(filled, [stored(sequence) for sequence in range(added[0] + 1, added[0] + 5)])
            added[0] += 4
            monkeypatch.setattr(LakeTable, "commit", busy)
        commit(table, *given, **more)

    monkeypatch.setattr(LakeTable, "commit", busy)
    Eraser(SPARK, filled).erase("d1")
    monkeypatch.setattr(LakeTable, "commit", commit)
    assert added == [52]
    # What came last may have come after the erasure of bronze.
    left = [n for (n,) in rows_of(bronze_table(filled), "sequence")]
    assert [n for n in left if n <= 48] == [n for n in range(1, 49) if n % 4 != 1]
    assert len(left) == len(set(left))


def test_two_devices_one_after_the_other(filled: Config) -> None:
    before = lake(filled)
    eraser = Eraser(SPARK, filled)
    assert [eraser.erase("d1").erasure, eraser.erase("d2").erasure, eraser.erase("nobody").erasure] == [1, 2, 3]
    assert lake(filled) == without(without(before), 2)
    assert eraser.resume() == []


def test_a_device_without_a_name(config: Config) -> None:
    """Devices may send an empty name; its rows are found by it, and rows that name no device stay."""
    named = [json.dumps({"device": name, "at": 1772352000000, "metric": "m"}).encode() for name in ("", "d1")]
    payloads = [*named, b"{}", b'{"device": null}']
    store(config, [stored(number, payload) for number, payload in enumerate(payloads, 1)])
    Aggregate(SPARK, config).round()
    done = Eraser(SPARK, config).erase("")
    assert (done.rows["bronze"], done.rows["silver/readings"], done.rows["quarantine"]) == (1, 1, 0)
    assert rows_of(bronze_table(config), "sequence") == [(2,), (3,), (4,)]


def test_the_command(
    filled: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "hub.toml"
    toml.write_text(
        f'[nats]\nservers = "nats://127.0.0.1"\n[lake]\npath = "{filled.lake.path}"\n[bronze]\nstreams = ["S"]\n'
        '[[silver]]\nname = "readings"\nsubjects = ["readings.>"]\ndevice = "$.device"\nevent_time = "$.at"\n'
        'event_time_unit = "ms"\ncolumns = { metric = "string", value = "double" }\n'
    )
    monkeypatch.setattr("eyot_hub.main.session", lambda *_: SPARK)
    assert main(["erase", "-c", str(toml), "--device", "d1", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["erasure"], done["device"], done["rows"]["bronze"]) == (1, "d1", 10)
    assert main(["erase", "-c", str(toml), "--device", "d2", "--subject", "readings.>"]) == 0
    assert capsys.readouterr().out.startswith(
        "erasure 2: d2: bronze 30, quarantine 4, silver/readings 8; files of older"
    )
    assert main(["erase", "-c", str(toml), "--resume"]) == 0
    assert capsys.readouterr().out.startswith("no erasure is unfinished")
    assert main(["erase", "-c", str(toml), "--device", "d2", "--subject", "a..b"]) == 2
    assert "--subject: 'a..b' is no subject" in capsys.readouterr().err
    for arguments in ([], ["--resume", "--device", "d"]):
        with pytest.raises(SystemExit):
            main(["erase", "-c", str(toml), *arguments])
