"""Retention of bronze, silver and gold: whole days leave once, nothing that is still needed leaves, nothing comes back."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import bronze_table, position_id
from eyot_hub.jobs.bronze.coverage import ORIGIN, Segment, Source, coverage
from eyot_hub.jobs.bronze.gaps import Gaps, Report
from eyot_hub.jobs.bronze.segments import Segments
from eyot_hub.jobs.config.config import Config, ConfigError, Lake, Retention
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.lake.lake import ExistingTables, existing_table
from eyot_hub.jobs.maintenance.expiry import expired_rows
from eyot_hub.jobs.maintenance.maintenance import Maintenance
from eyot_hub.jobs.removals.retention import first_day
from eyot_hub.jobs.reports.explain import explain
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.main import main
from support.hub.aged_lake import (
    DAYS,
    EPOCH,
    KEPT,
    NOW,
    SPARK,
    Killed,
    aggregated,
    at,
    clock_goes_on,
    days,
    ending,
    lake,
    maintained,
    read_clock,
    rows_of,
    store,
    stored,
)
from support.hub.jobs_config import GOLD, SILVER, jobs_config
from support.hub.killed_jobs import expire, killed

pytestmark = pytest.mark.slow


def with_ages(config: Config, **ages: str) -> Config:
    return structs.replace(config, retention=Retention(**ages))


def checked(config: Config) -> Report:
    """Run the job `gaps`, without asking a hub."""
    return Gaps(SPARK, config).run()


def sequences(config: Config) -> list[int]:
    return [sequence for (sequence,) in rows_of(bronze_table(config), "sequence")]


def day_of(sequence: int) -> date:
    return DAYS[(sequence - 1) // 10]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Ten messages on each day, the last of which is poison."""
    made = jobs_config("nats://127.0.0.1", tmp_path)
    made = structs.replace(made, gaps=structs.replace(made.gaps, ask_origins=False))
    store(made, [stored(number, day_of(number), poison=number % 10 == 0) for number in range(1, 41)])
    return made


@pytest.fixture
def filled(config: Config) -> Config:
    """The same, and every table has read everything."""
    aggregated(config)
    checked(config)
    read_clock(config)
    return config


@pytest.mark.usefixtures("each_lake_format")
def test_a_round_opens_each_table_once(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that loses rows, those that must have read them, and those whose removed rows are counted."""
    opened: Counter[str] = Counter()

    def counted(settings: Lake, name: str) -> LakeTable | None:
        table = existing_table(settings, name)
        opened.update([name] if table is not None else [])
        return table

    monkeypatch.setattr("eyot_hub.jobs.lake.lake.existing_table", counted)
    aged = with_ages(filled, bronze="48h", silver="48h", gold="48h")
    tables = ExistingTables(aged.lake)
    done = {one.table: one.expired for one in Maintenance(aged, now=lambda: NOW).round(tables=tables)}
    assert [done["bronze"], done["silver/readings"], done["gold/minute"]] == [20, 18, 12]
    assert expired_rows(aged, tables) == {"bronze": 20, "silver/readings": 18, "gold/minute": 12, "quarantine": 0}
    assert opened.keys() == done.keys()
    assert set(opened.values()) == {1}


@pytest.mark.usefixtures("each_lake_format")
def test_bronze_loses_what_all_tables_have_read(config: Config) -> None:
    """It waits for silver, quarantine, gold and gaps; then the days leave, and nothing else."""
    aged = with_ages(config, bronze="48h")
    done = maintained(aged)["bronze"]
    assert (done.expired, done.waits_for) == (0, ["gold/minute", "quarantine", "segments", "silver/readings"])
    aggregated(config)
    done = maintained(aged)["bronze"]
    assert (done.expired, done.waits_for) == (0, ["segments"])
    before = checked(config)
    held = lake(config)
    done = maintained(aged)["bronze"]
    assert (done.expired, done.waits_for) == (20, [])
    assert sequences(config) == list(range(21, 41))
    assert bronze_table(config).position(position_id(*EPOCH)) == 40  # nothing is read from the stream again
    # Gaps still knows them, and the other tables keep what they have.
    after = checked(config)
    assert (after.coverage.epochs, after.gaps) == (before.coverage.epochs, before.gaps)
    assert not aggregated(config).busy
    assert {**lake(config), "bronze": held["bronze"]} == held
    assert expired_rows(config) == {"bronze": 20, "silver/readings": 0, "gold/minute": 0, "quarantine": 0}
    version = bronze_table(config).version
    assert maintained(aged, compact=False)["bronze"].expired == 0
    assert bronze_table(config).version == version


def test_what_a_table_has_not_read_stays(filled: Config) -> None:
    """A file that holds one message more than a reader has read stays as a whole."""
    store(filled, [stored(41, DAYS[0])])  # as a mirror stores it that keeps the times of its origin
    aged = with_ages(filled, bronze="48h")
    done = maintained(aged, compact=False)["bronze"]
    # The new message lies on the first day, the beginning of the epoch has to leave first: both files of the day.
    assert (done.expired, done.waits_for) == (20, ["gold/minute", "quarantine", "segments", "silver/readings"])
    assert sequences(filled) == list(range(21, 42))
    aggregated(filled)
    checked(filled)
    # Messages 21 to 40 come before it, and their days stay: so does it.
    assert maintained(aged, compact=False)["bronze"].expired == 0
    clock_goes_on(filled, NOW + timedelta(days=3))
    assert maintained(aged, NOW + timedelta(days=3), compact=False)["bronze"].expired == 21


def test_an_epoch_loses_its_beginning_only(config: Config) -> None:
    """Where the hub's clock was set back, days overlap in sequence. The later one holds the earlier one."""
    store(config, [stored(41, DAYS[1]), stored(42, DAYS[3])])
    at_hub: dict[str, Any] = {"origin_domain": None, "origin_stream": None, "origin_sequence": None}
    store(config, [stored(number, DAYS[day], stream_created_ns=9, **at_hub) for number, day in ((1, 0), (2, 3))])
    store(config, [stored(1, DAYS[0], stream="OTHER", **at_hub)])
    aggregated(config)
    checked(config)
    aged = with_ages(config, bronze="48h")
    assert maintained(aged, compact=False)["bronze"].expired == 22  # 20 of the first epoch, 1 each of the others
    assert sequences(config) == [2, *range(21, 43)]
    bronze = bronze_table(config)
    until = {epoch: bronze.position(f"{position_id(*epoch)}/removed") for epoch in (EPOCH, ("S", 9), ("OTHER", 7))}
    assert until == {EPOCH: 20, ("S", 9): 1, ("OTHER", 7): 1}


@pytest.mark.usefixtures("each_lake_format")
def test_silver_and_gold_by_the_events_day(filled: Config) -> None:
    before = lake(filled)
    done = maintained(with_ages(filled, silver="48h"))
    assert (done["silver/readings"].expired, done["gold/minute"].expired) == (18, 0)
    assert days(filled) == (set(KEPT), set(DAYS))
    assert lake(filled)["gold"] == before["gold"]
    done = maintained(with_ages(filled, gold="48h"))
    assert (done["silver/readings"].expired, done["gold/minute"].expired) == (
        0,
        12,
    )  # two devices, three minutes, two days
    assert days(filled) == (set(KEPT), set(KEPT))
    assert expired_rows(filled) == {"bronze": 0, "silver/readings": 18, "gold/minute": 12, "quarantine": 0}
    assert not aggregated(filled).busy


def test_a_table_of_its_own(filled: Config) -> None:
    """`keep` of a table precedes, and "0s" keeps everything."""
    own = with_ages(filled, silver="48h", gold="48h")
    own = structs.replace(own, gold=[structs.replace(own.gold[0], keep="0s")])
    own = structs.replace(own, silver=[structs.replace(own.silver[0], keep="24h")])
    maintained(own)
    assert days(filled) == ({date(2026, 3, 10)}, set(DAYS))


@pytest.mark.usefixtures("each_lake_format")
def test_months_leave_as_a_whole(tmp_path: Path) -> None:
    config = jobs_config("nats://127.0.0.1", tmp_path)
    config = structs.replace(config, lake=structs.replace(config.lake, partition="month"))
    store(
        config,
        [
            stored(number + 1, NOW.date(), event=at(day))
            for number, day in enumerate((date(2026, 1, 31), date(2026, 2, 1)))
        ],
    )
    aggregated(config)
    aged = with_ages(config, silver="48h", gold="48h")
    assert maintained(aged, datetime(2026, 3, 2, 23, tzinfo=UTC))["silver/readings"].expired == 1  # January
    done = maintained(aged, datetime(2026, 3, 3, tzinfo=UTC))
    assert (done["silver/readings"].expired, done["gold/minute"].expired) == (1, 1)


def test_silver_waits_for_gold(config: Config) -> None:
    job = Aggregate(SPARK, config)
    for refiner in job.silver.values():
        refiner.round([EPOCH])
    aged = with_ages(config, silver="48h")
    done = maintained(aged)["silver/readings"]
    assert (done.expired, done.waits_for) == (0, ["gold/minute"])
    aggregated(config)
    done = maintained(aged)["silver/readings"]
    assert (done.expired, done.waits_for) == (18, [])


@pytest.mark.usefixtures("each_lake_format")
def test_silver_waits_until_gold_has_counted_a_replay(filled: Config) -> None:
    quarantine = quarantine_table(filled)
    quarantine.commit([], {}, quarantine.files())
    good = [stored(10, DAYS[0]), stored(20, DAYS[1])]
    names = [field.name for field in quarantine.spec.schema if field.name not in ("silver", "date", "reason")]
    writer = quarantine.spec.writer()
    for row in good:
        part = pa.Table.from_pylist(
            [{name: row[name] for name in names} | {"reason": "was strict"}], inside(quarantine)
        )
        writer.write(part, (("silver", "readings"), ("date", str(row["date"]))))
    quarantine.commit(writer.finish(), {})
    assert Replay(filled, filled.silver[0]).run().added == 2
    aged = with_ages(filled, silver="48h")
    assert maintained(aged)["silver/readings"].waits_for == ["gold/minute"]
    aggregated(filled)
    assert maintained(aged)["silver/readings"].expired == 20


def inside(table: LakeTable) -> pa.Schema:
    return pa.schema([field for field in table.spec.schema if field.name not in table.spec.partition_by])


@pytest.mark.usefixtures("each_lake_format")
def test_late_readings_of_days_that_have_left(filled: Config) -> None:
    """Silver has one late reading of a window of many: it must not replace the window. Nor do repeats come back."""
    aged = with_ages(filled, silver="48h")
    maintained(aged)
    before = lake(filled)
    late = [stored(41, DAYS[3], event=at(DAYS[0])), stored(42, DAYS[3], event=at(DAYS[3], 1))]
    repeat = stored(1, DAYS[0], stream="AGAIN")
    store(filled, late)
    store(filled, [repeat])
    (done,) = aggregated(filled).silver
    assert (done.read, done.added, done.expired, done.duplicates) == (3, 1, 2, 0)
    after = lake(filled)
    assert days(filled) == (set(KEPT), set(DAYS))
    changed = set(after["gold"]) ^ set(before["gold"])
    assert {window[2].date() for window in changed} == {DAYS[3]}


def test_gold_does_not_take_back_a_day(filled: Config) -> None:
    """Silver has the day, gold has lost it: a late reading does not bring one of its windows back."""
    maintained(with_ages(filled, gold="48h"))
    store(filled, [stored(41, DAYS[3], event=at(DAYS[0]))])
    done = aggregated(filled)
    assert (done.silver[0].added, done.gold[0].windows) == (1, 0)
    assert days(filled) == (set(DAYS), set(KEPT))


def test_a_replay_of_a_day_that_has_left(filled: Config) -> None:
    maintained(with_ages(filled, silver="48h"))
    quarantine = quarantine_table(filled)
    quarantine.commit([], {}, quarantine.files())
    row = stored(10, DAYS[0])
    names = inside(quarantine).names
    held = {name: row[name] for name in names if name != "reason"} | {"reason": "was strict"}
    writer = quarantine.spec.writer()
    writer.write(pa.Table.from_pylist([held], inside(quarantine)), (("silver", "readings"), ("date", str(DAYS[0]))))
    quarantine.commit(writer.finish(), {})
    done = Replay(filled, filled.silver[0]).run()
    assert (done.passed, done.added, done.duplicates, done.expired, done.removed) == (1, 0, 0, 1, 1)


@pytest.mark.usefixtures("each_lake_format")
def test_backfill_keeps_what_bronze_has_lost(filled: Config) -> None:
    """Also the other rows are what they were, and a second backfill changes nothing."""
    before = lake(filled)
    maintained(with_ages(filled, bronze="48h"))
    for _ in range(2):
        done = Aggregate(SPARK, filled).rebuild(set())
        assert (done.silver[0].added, done.silver[0].kept) == (18, 18)
        assert {**lake(filled), "bronze": before["bronze"]} == before
    assert sequences(filled) == list(range(21, 41))


def test_backfill_of_all_that_is_left(filled: Config) -> None:
    """Bronze has lost everything, an entire stream included. Silver and quarantine stay; gold is computed from silver."""
    before = lake(filled)
    late = NOW + timedelta(days=30)
    clock_goes_on(filled, late)
    assert maintained(with_ages(filled, bronze="48h"), late)["bronze"].expired == 40
    gold = gold_table(filled, filled.gold[0])
    gold.commit([], {}, gold.files())
    Aggregate(SPARK, filled).rebuild(set())
    assert {**lake(filled), "bronze": before["bronze"]} == before


def test_a_new_gold_table_after_bronze_has_lost_a_stream(filled: Config) -> None:
    before = lake(filled)["gold"]
    maintained(with_ages(filled, bronze="48h"), NOW + timedelta(days=30))
    more = structs.replace(filled, gold=[*filled.gold, structs.replace(filled.gold[0], name="again")])
    assert aggregated(more).gold[1].windows == 24
    assert rows_of(gold_table(more, more.gold[1]), "device", "metric", "window_start", "count", "mean") == before


@pytest.mark.parametrize(
    ("ages", "kept"),
    [
        ({"quarantine": "48h"}, {"quarantine": [(30,), (40,)]}),
        ({"silver": "48h"}, {"silver": KEPT}),
        ({"gold": "48h"}, {"gold": KEPT}),
        ({"silver": "48h", "gold": "48h", "quarantine": "48h"}, {"silver": KEPT, "gold": KEPT}),
        ({"bronze": "48h", "quarantine": "48h"}, {"quarantine": [(30,), (40,)]}),
        ({"bronze": "48h", "silver": "48h"}, {"silver": KEPT}),
        ({"bronze": "48h", "gold": "48h"}, {"gold": KEPT}),
    ],
    ids=lambda one: "-".join(one),
)
@pytest.mark.usefixtures("each_lake_format")
def test_backfill_brings_nothing_back(filled: Config, ages: dict[str, str], kept: dict[str, Any]) -> None:
    """What left a table stays away, whatever the tables before it still have; all else is what it was."""
    whole = lake(filled)
    maintained(with_ages(filled, **ages))
    before, counts = lake(filled), expired_rows(filled)
    assert [name for name in whole if before[name] != whole[name]] == [name for name in whole if name in ages]
    for _ in range(2):
        Aggregate(SPARK, filled).rebuild(set())
        assert lake(filled) == before
        assert expired_rows(filled) == counts
    for name, rows in kept.items():
        found = {"quarantine": before["quarantine"], "silver": sorted(days(filled)[0]), "gold": sorted(days(filled)[1])}
        assert found[name] == rows
    assert not any(one.expired for one in maintained(with_ages(filled, **ages)).values())


def test_backfill_counts_poison_of_days_that_have_left(filled: Config) -> None:
    maintained(with_ages(filled, quarantine="48h"))
    (done,) = Aggregate(SPARK, filled).rebuild(set()).silver
    assert (done.read, done.added, done.duplicates, done.quarantined, done.expired) == (36, 36, 0, 2, 2)


@pytest.mark.usefixtures("each_lake_format")
def test_poison_of_a_day_that_has_left(filled: Config) -> None:
    """A mirror keeps the times of its origin: its poison is as old as what left."""
    maintained(with_ages(filled, quarantine="48h"))
    store(filled, [stored(41, DAYS[0], poison=True), stored(42, DAYS[3], poison=True)])
    (done,) = aggregated(filled).silver
    assert (done.quarantined, done.expired) == (1, 1)
    assert lake(filled)["quarantine"] == [(30,), (40,), (42,)]


def test_a_backfill_that_a_removal_overtakes(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quarantine has no file that would be replaced: it is refused all the same."""
    quarantine = quarantine_table(filled)
    store(filled, [stored(41, DAYS[0], poison=True)])
    quarantine.commit([], {}, quarantine.files())
    commit = LakeTable.commit

    def overtaken(self: LakeTable, *given: Any, **more: Any) -> None:
        if self.root.endswith("quarantine"):
            monkeypatch.setattr(LakeTable, "commit", commit)
            aggregated(filled)
            assert maintained(with_ages(filled, quarantine="48h"), compact=False)["quarantine"].expired == 1
        commit(self, *given, **more)

    monkeypatch.setattr(LakeTable, "commit", overtaken)
    with pytest.raises(Fenced):
        Aggregate(SPARK, filled).rebuild(set())
    assert lake(filled)["quarantine"] == []


def test_backfill_does_not_compute_windows_of_half_a_day(filled: Config) -> None:
    """Bronze and silver have lost the first days, and gold keeps their windows."""
    before = lake(filled)
    maintained(with_ages(filled, bronze="48h", silver="48h"))
    store(filled, [stored(41, DAYS[3], event=at(DAYS[1]))])
    aggregated(filled)
    done = Aggregate(SPARK, filled).rebuild(set())
    assert (done.silver[0].added, done.silver[0].kept, done.silver[0].expired) == (18, 0, 1)
    assert lake(filled)["gold"] == before["gold"]
    assert days(filled) == (set(KEPT), set(DAYS))


def test_a_window_whose_readings_have_left(filled: Config) -> None:
    maintained(with_ages(filled, silver="48h"))
    at_ns = int(at(DAYS[0], 1).timestamp()) * 10**9
    done = explain(filled, filled.gold[0], "d1", "m", at_ns)
    assert (done.left, done.agrees, done.readings) == (True, True, [])
    assert done.count > 0
    assert not explain(filled, filled.gold[0], "d1", "m", int(at(DAYS[3], 1).timestamp()) * 10**9).left


@pytest.mark.usefixtures("each_lake_format")
def test_aggregate_is_overtaken_by_a_removal(filled: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that does not know the first day of silver or gold is refused, and made again."""
    commit, busy = LakeTable.commit, [("silver/readings", {"silver": "48h"}), ("gold/minute", {"gold": "48h"})]

    def overtaken(self: LakeTable, *given: Any, **more: Any) -> None:
        if busy and self.root.endswith(busy[0][0]):
            _, ages = busy.pop(0)
            monkeypatch.setattr(LakeTable, "commit", commit)
            assert sum(one.expired for one in maintained(with_ages(filled, **ages), compact=False).values()) > 0
            monkeypatch.setattr(LakeTable, "commit", overtaken)
        commit(self, *given, **more)

    store(filled, [stored(41, DAYS[3], event=at(DAYS[0])), stored(42, DAYS[3], event=at(DAYS[3]))])
    before = lake(filled)
    monkeypatch.setattr(LakeTable, "commit", overtaken)
    aggregated(filled)
    assert days(filled)[0] == set(KEPT)
    assert 41 not in [row[0] for row in lake(filled)["silver"]]
    assert before["gold"] != lake(filled)["gold"]
    assert days(filled)[1] == set(KEPT)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
def test_backfill_ended_at_any_commit(filled: Config, monkeypatch: pytest.MonkeyPatch, when: str, number: int) -> None:
    """Quarantine, silver, gold: whichever commit is the last, no row is gone or twice, and the next run ends whole."""
    before = lake(filled)
    maintained(with_ages(filled, bronze="48h"))
    ended = ending(monkeypatch, when, number)
    if number < 4:
        with pytest.raises(Killed):
            Aggregate(SPARK, filled).rebuild(set())
    else:
        Aggregate(SPARK, filled).rebuild(set())
    ended()
    assert {**lake(filled), "bronze": before["bronze"]} == before
    Aggregate(SPARK, filled).rebuild(set())
    assert {**lake(filled), "bronze": before["bronze"]} == before


@pytest.mark.parametrize("step", [f"{when} {number}" for number in (1, 2, 3) for when in ("before", "after")])
@pytest.mark.usefixtures("each_lake_format")
def test_killed_at_any_commit_and_run_again(filled: Config, tmp_path: Path, step: str) -> None:
    """Bronze, silver, gold: the tables are as if the job had run once, rows, counts and versions."""
    when, number = step.split()
    aged = with_ages(filled, bronze="48h", silver="48h", gold="48h")
    tables = [bronze_table(filled), silver_table(filled, filled.silver[0]), gold_table(filled, filled.gold[0])]
    versions = [table.version for table in tables]
    killed(expire, f"LakeTable commit {step}", tmp_path, {"bronze": "48h", "silver": "48h", "gold": "48h"})
    gone = int(number) - (when == "before")
    counts = [20, 18, 12]
    found = expired_rows(filled)
    assert [found[name] for name in ("bronze", "silver/readings", "gold/minute")] == counts[:gone] + [0] * (3 - gone)
    done = maintained(aged, compact=False)
    again = [done[name].expired for name in ("bronze", "silver/readings", "gold/minute")]
    assert again == [0] * gone + counts[gone:]
    assert list(expired_rows(filled).values())[:3] == counts
    for table, version in zip(tables, versions, strict=True):
        table.refresh()
        assert table.version == version + 1
    assert sequences(filled) == list(range(21, 41))
    assert days(filled) == (set(KEPT), set(KEPT))
    assert not checked(filled).gaps
    assert not aggregated(filled).busy


def test_what_repeats_an_earlier_message_stays_known(config: Config) -> None:
    """Gaps needs both messages to see it, and records what it saw before one of them may leave."""
    segments = Segments(SPARK, config, bronze_table(config))
    segments.found()
    edge = Source(ORIGIN, "edge", "O")
    again = Segment(edge, "S", 7, 51, 11, 20, 0, 0)
    places = {("S", 7, 51)}
    held = [*segments.found(), again]
    assert [one for one in held if one.repeat] == []
    segments.decide(held, places)

    def nothing() -> Any:
        raise AssertionError("no row of bronze is needed")

    found = Segments(SPARK, config, bronze_table(config)).found()
    assert [one for one in found if one.repeat] == [again._replace(repeat=True)]
    (epoch,) = coverage(found, nothing).epochs[edge]
    assert (epoch.count, epoch.last) == (40, 40)
    version = segments.table.version
    segments.decide(found, places)
    assert segments.table.version == version


def test_the_command(filled: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = tmp_path / "hub.toml"
    rest = {"silver": [SILVER], "gold": [GOLD]}
    lines = [f"[[{kind}]]\n{text(one)}" for kind, tables in rest.items() for one in tables]
    head = f'[nats]\nservers = "nats://127.0.0.1"\n[lake]\npath = "{filled.lake.path}"\n[bronze]\nstreams = ["S"]\n'
    toml.write_text("\n".join([head, '[retention]\nbronze = "48h"\nsilver = "48h"\n', *lines]))
    store(filled, [stored(41, DAYS[3], event=at(DAYS[3]))])
    for refiner in Aggregate(SPARK, filled).silver.values():
        refiner.round([EPOCH])
    arguments = ["maintain", "-c", str(toml), "--once", "--no-compact", "--no-vacuum"]
    assert main([*arguments, "--no-retention"]) == 0
    assert "expired" not in capsys.readouterr().out
    now = datetime.now(UTC)
    clock_goes_on(filled, now, now - timedelta(days=3))
    assert main(arguments) == 0  # the clock says that all days are over
    bronze, *_, silver, gold = capsys.readouterr().out.splitlines()
    assert bronze == (
        "bronze: 5 files, now 1; 40 expired rows removed; more wait until gold/minute, segments have read them; 0 old files removed"
    )
    assert silver.startswith("silver/readings: 5 files, now 5; more wait until gold/minute have read them;")
    assert gold == "gold/minute: 4 files, now 4; 0 old files removed"
    assert main([*arguments, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["expired"], first["waits_for"]) == (0, ["gold/minute", "segments"])
    assert first_day(silver_table(filled, filled.silver[0])) == ""


def text(section: dict[str, Any]) -> str:
    """Return a section as TOML."""

    def value(one: Any) -> str:
        if isinstance(one, dict):
            return "{ " + ", ".join(f"{name} = {value(each)}" for name, each in one.items()) + " }"
        return json.dumps(one)

    return "\n".join(f"{name} = {value(one)}" for name, one in section.items())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"retention": {"bronze": "1h"}}, "retention.bronze: must be at least 24h, or 0s"),
        ({"retention": {"gold": "soon"}}, "retention.gold: 'soon' is not a duration"),
        ({"silver": [{**SILVER, "keep": "2h"}]}, r"silver\[0\].keep: must be at least 24h"),
        ({"gold": [{**GOLD, "keep": "-24h"}]}, r"gold\[0\].keep: -24h is negative"),
        (
            {"bronze": {"streams": ["S"], "format": "parquet"}, "retention": {"bronze": "48h"}},
            "bronze.format is parquet",
        ),
    ],
)
def test_mistakes(changed: dict[str, Any], said: str) -> None:
    parsed: dict[str, Any] = {"nats": {"servers": "nats://127.0.0.1"}, "lake": {"path": "/lake"}}
    parsed |= {"bronze": {"streams": ["S"]}, "silver": [SILVER], "gold": [GOLD]}
    with pytest.raises(ConfigError, match=said):
        convert({**parsed, **changed}, "tests")
