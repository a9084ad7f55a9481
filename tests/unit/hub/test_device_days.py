"""Retention by device: the old rows of some devices leave once, the others stay, and late readings bring nothing back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, ConfigError, DeviceAge, Retention
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.maintenance.expiry import expired_rows
from eyot_hub.jobs.removals.device_lists import noted_lists
from eyot_hub.jobs.reports.explain import explain
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.aged_lake import (
    DAYS,
    EPOCH,
    KEPT,
    NOW,
    SPARK,
    Killed,
    aggregated,
    at,
    days,
    ending,
    lake,
    maintained,
    read_clock,
    store,
    stored,
)
from support.hub.jobs_config import GOLD, SILVER, jobs_config

pytestmark = pytest.mark.slow

OLD = set(DAYS) - set(KEPT)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Ten messages on each day, of two devices in turn; every table has read them."""
    made = jobs_config("nats://127.0.0.1", tmp_path)
    made = structs.replace(made, gaps=structs.replace(made.gaps, ask_origins=False))
    store(made, [stored(number, DAYS[(number - 1) // 10]) for number in range(1, 41)])
    aggregated(made)
    read_clock(made)
    return made


def ruled(config: Config, *rules: tuple[list[str], str], **ages: str) -> Config:
    """Return the configuration with a rule for each list of patterns."""
    devices = [DeviceAge(devices=patterns, keep=keep) for patterns, keep in rules]
    return structs.replace(config, retention=Retention(devices=devices, **ages))


def old_of(config: Config) -> dict[str, set[str]]:
    """Return which devices silver and gold have on the two old days."""
    held = lake(config)
    return {
        "silver": {row[1] for row in held["silver"] if row[2].date() in OLD},
        "gold": {row[0] for row in held["gold"] if row[2].date() in OLD},
    }


def lost(config: Config, now: datetime = NOW) -> tuple[int, int]:
    """Maintain the lake; return how many rows silver and gold lost."""
    done = maintained(config, now, compact=False)
    return done["silver/readings"].expired, done["gold/minute"].expired


@pytest.mark.usefixtures("each_lake_format")
def test_the_old_rows_of_a_device_leave_and_no_others(config: Config) -> None:
    before = lake(config)
    aged = ruled(config, (["d1"], "48h"))
    assert lost(aged) == (10, 6)  # five readings of two days; three minutes of two days
    after = lake(config)
    gone = [row for row in before["silver"] if row[1] == "d1" and row[2].date() in OLD]
    assert after["silver"] == [row for row in before["silver"] if row not in gone]
    assert after["gold"] == [row for row in before["gold"] if row[0] != "d1" or row[2].date() in KEPT]
    assert after["bronze"] == before["bronze"]
    assert expired_rows(config)["silver/readings"] == 10
    version = silver_table(config, config.silver[0]).version
    assert lost(aged) == (0, 0)
    assert silver_table(config, config.silver[0]).version == version
    # A day later one more day is over, and of that one alone the rows are looked at.
    assert lost(aged, NOW + timedelta(days=1)) == (5, 3)
    assert not aggregated(aged).busy


def test_late_readings_are_not_taken(config: Config) -> None:
    aged = ruled(config, (["d1"], "48h"))
    lost(aged)
    before = lake(config)
    store(config, [stored(41, DAYS[3], event=at(DAYS[0])), stored(42, DAYS[3], event=at(DAYS[0]))])
    store(config, [stored(1, DAYS[0], stream="AGAIN")])  # a repeat of a reading that has left
    done = aggregated(aged)
    (silver,) = done.silver
    assert (silver.read, silver.added, silver.expired, silver.duplicates) == (3, 1, 2, 0)
    assert old_of(config) == {"silver": {"d0"}, "gold": {"d0"}}
    assert {window[0] for window in set(lake(config)["gold"]) ^ set(before["gold"])} == {"d0"}


def test_the_first_pattern_that_fits_counts(config: Config) -> None:
    assert lost(ruled(config, (["d0"], "0s"), (["x*", "d?"], "48h"))) == (10, 6)
    assert old_of(config) == {"silver": {"d0"}, "gold": {"d0"}}
    # In another order the patterns stand for other devices: all days are looked at again.
    assert lost(ruled(config, (["x*", "d?"], "48h"), (["d0"], "0s"))) == (10, 6)
    assert old_of(config) == {"silver": set(), "gold": set()}


def test_whole_days_and_devices_leave_in_one_commit(config: Config) -> None:
    aged = ruled(config, (["d1"], "24h"), silver="72h", gold="72h")
    versions = silver_table(config, config.silver[0]).version, gold_table(config, config.gold[0]).version
    # All of 1 March; of 7 and 8 March the device's.
    assert lost(aged) == (20, 12)
    assert days(config) == (set(DAYS[1:]), set(DAYS[1:]))
    tables = silver_table(config, config.silver[0]), gold_table(config, config.gold[0])
    assert tuple(table.version for table in tables) == tuple(version + 1 for version in versions)


def test_an_age_that_grows_brings_nothing_back(config: Config) -> None:
    lost(ruled(config, (["d1"], "48h")))
    longer = ruled(config, (["d1"], "8760h"))
    store(config, [stored(41, DAYS[3], event=at(DAYS[0]))])
    assert aggregated(longer).silver[0].expired == 1
    assert lost(longer) == (0, 0)
    assert lost(ruled(config, (["d1"], "24h"))) == (5, 3)


def test_silver_waits_for_gold_and_gold_for_silver(config: Config) -> None:
    aged = ruled(config, (["d1"], "48h"))
    store(config, [stored(41, DAYS[3], event=at(DAYS[0]))])
    for refiner in Aggregate(SPARK, config).silver.values():
        refiner.round([EPOCH])
    done = maintained(aged, compact=False)
    assert (done["silver/readings"].expired, done["silver/readings"].waits_for) == (0, ["gold/minute"])
    assert done["gold/minute"].expired == 0
    aggregated(aged)
    assert lost(aged) == (11, 6)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("each_lake_format")
def test_ended_at_any_commit_and_run_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, when: str, number: int
) -> None:
    """The list of patterns, silver, gold: rows, counts and versions are as if the job had run once."""
    aged = ruled(config, (["d1"], "48h"))
    tables = silver_table(config, config.silver[0]), gold_table(config, config.gold[0])
    versions = [table.version for table in tables]
    ended = ending(monkeypatch, when, number)
    with pytest.raises(Killed):
        maintained(aged, compact=False)
    ended()
    gone = number - 1 - (when == "before")
    assert lost(aged) == (0 if gone >= 1 else 10, 0 if gone >= 2 else 6)
    assert [expired_rows(config)[name] for name in ("silver/readings", "gold/minute")] == [10, 6]
    for table, version in zip(tables, versions, strict=True):
        table.refresh()
        assert table.version == version + 1
    assert old_of(config) == {"silver": {"d0"}, "gold": {"d0"}}
    assert not aggregated(aged).busy


def test_aggregate_is_overtaken_by_a_removal(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that does not know the new first day of the device is refused, and made again."""
    aged, commit, once = ruled(config, (["d1"], "48h")), LakeTable.commit, [True]

    def overtaken(self: LakeTable, *given: Any, **more: Any) -> None:
        if once and self.root.endswith("silver/readings"):
            once.clear()
            assert lost(aged) == (10, 6)
        commit(self, *given, **more)

    store(config, [stored(41, DAYS[3], event=at(DAYS[0])), stored(43, DAYS[3], event=at(DAYS[3]))])
    monkeypatch.setattr(LakeTable, "commit", overtaken)
    aggregated(aged)
    assert old_of(config) == {"silver": {"d0"}, "gold": {"d0"}}
    assert [row[0] for row in lake(config)["silver"]][-1] == 43


def test_backfill_where_bronze_has_everything(config: Config) -> None:
    """What left does not come back."""
    aged = ruled(config, (["d1"], "48h"))
    lost(aged)
    before = lake(config)
    done = Aggregate(SPARK, aged).rebuild(set()).silver[0]
    assert (done.added, done.expired) == (30, 10)
    assert lake(config) == before
    assert lost(aged) == (0, 0)


def test_backfill_after_bronze_has_lost_rows(config: Config) -> None:
    """Silver's rows whose messages are gone stay; of the others the device's old ones do not come back."""
    aged = ruled(config, (["d1"], "24h"))
    assert lost(aged) == (15, 9)
    Gaps(SPARK, config).run()
    assert maintained(structs.replace(config, retention=Retention(bronze="48h")))["bronze"].expired == 20
    before = lake(config)
    done = Aggregate(SPARK, aged).rebuild(set()).silver[0]
    assert (done.added, done.kept, done.expired) == (15, 10, 5)
    assert lake(config) == before


def test_a_replay_of_a_day_that_has_left(config: Config) -> None:
    aged = ruled(config, (["d1"], "48h"))
    lost(aged)
    quarantine = quarantine_table(config)
    schema = pa.schema([one for one in quarantine.spec.schema if one.name not in quarantine.spec.partition_by])
    writer = quarantine.spec.writer()
    rows = [{**stored(number, DAYS[0]), "reason": "was strict"} for number in (51, 52)]
    table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    writer.write(table, (("silver", "readings"), ("date", str(DAYS[0]))))
    quarantine.commit(writer.finish(), {})
    done = Replay(aged, aged.silver[0]).run()
    assert (done.passed, done.added, done.expired, done.removed) == (2, 1, 1, 2)


def test_a_window_whose_readings_have_left(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silver has lost the readings, and the job is killed before gold has lost the window."""
    aged = ruled(config, (["d1"], "48h"))
    ended = ending(monkeypatch, "before", 3)
    with pytest.raises(Killed):
        maintained(aged, compact=False)
    ended()
    done = explain(aged, aged.gold[0], "d1", "m", int(at(DAYS[0], 1).timestamp()) * 10**9)
    assert (done.left, done.agrees, done.readings) == (True, True, [])
    assert done.count > 0
    assert not explain(aged, aged.gold[0], "d0", "m", int(at(DAYS[0], 2).timestamp()) * 10**9).left


def test_months_leave_as_a_whole(tmp_path: Path) -> None:
    config = jobs_config("nats://127.0.0.1", tmp_path)
    config = structs.replace(config, lake=structs.replace(config.lake, partition="month"))
    events = [date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1)]
    store(config, [stored(number + 1, NOW.date(), event=at(day)) for number, day in enumerate(events)])
    aggregated(config)
    aged = ruled(config, (["d1"], "48h"))
    assert lost(aged, datetime(2026, 3, 2, 23, tzinfo=UTC)) == (1, 1)  # January
    assert lost(aged, datetime(2026, 3, 3, tzinfo=UTC)) == (1, 1)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"devices": ["d*"], "keep": "1h"}, r"retention.devices\[0\].keep: must be at least 24h"),
        ({"devices": ["d*"], "keep": "long"}, r"retention.devices\[0\].keep: 'long' is not a duration"),
        ({"devices": [], "keep": "48h"}, r"retention.devices\[0\].devices: "),
        ({"devices": [""], "keep": "48h"}, r"retention.devices\[0\].devices\[0\]: "),
        ({"devices": ["d*"]}, r"retention.devices\[0\].keep: is missing"),
        ({"devices": ["d*"], "kept": "48h"}, r"retention.devices\[0\].kept: there is no such key, did you mean keep\?"),
    ],
)
def test_mistakes(rule: dict[str, Any], said: str) -> None:
    parsed: dict[str, Any] = {"nats": {"servers": "nats://127.0.0.1"}, "lake": {"path": "/lake"}}
    parsed |= {"bronze": {"streams": ["S"]}, "silver": [SILVER], "gold": [GOLD]}
    with pytest.raises(ConfigError, match=said):
        convert({**parsed, "retention": {"devices": [rule]}}, "tests")


@pytest.mark.usefixtures("each_lake_format")
def test_a_changed_list_brings_nothing_back(config: Config) -> None:
    """Which devices a list stood for when it removed their rows stays known."""
    first = ruled(config, (["d0"], "0s"), (["d?"], "48h"))
    assert lost(first) == (10, 6)  # of d1
    other = ruled(config, (["x*"], "24h"))
    for number, changed in enumerate((other, config, first, ruled(config, (["d1"], "8760h")))):
        before = lake(config)
        late = [stored(2 * number + one, DAYS[3], event=at(DAYS[0])) for one in (42, 43)]  # of d0 and d1
        store(config, late)
        assert aggregated(changed).silver[0].expired == 1
        assert old_of(config) == {"silver": {"d0"}, "gold": {"d0"}}
        assert Aggregate(SPARK, changed).rebuild(set()).silver[0].expired == 10 + number + 1
        assert [row for row in lake(config)["silver"] if row not in before["silver"]] == [
            (2 * number + 42, "d0", at(DAYS[0]), (2 * number + 42) / 4)
        ]
        assert lost(changed)[0] == 0
    # The list that was changed has its own days; what an earlier one removed is known beside it.
    assert lost(ruled(config, (["d0"], "24h"))) == (15 + 4, 9)
    done = explain(config, config.gold[0], "d0", "m", int(at(KEPT[1], 2).timestamp()) * 10**9)
    assert (done.left, done.agrees) == (False, True)


def test_a_list_is_noted_before_it_removes_rows(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    aged = ruled(config, (["d1"], "48h"))
    for when in ("after", "before"):  # of the first commit: the list's, then silver's
        ended = ending(monkeypatch, when, 1)
        with pytest.raises(Killed):
            maintained(aged, compact=False)
        ended()
        assert noted_lists(config) == [["d1"]]
        assert lost(config) == (0, 0)
    assert lost(aged) == (10, 6)
    assert noted_lists(config) == [["d1"]]
