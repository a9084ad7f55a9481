"""The hub's clock years ahead or behind, for a while: nothing leaves by it, and everything goes on once it is right again."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from eyot_hub.jobs.bronze.bronze import bronze_table
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, DeviceAge, Retention
from eyot_hub.jobs.tables.clock_check import HOLD, STEP, Readings, checked
from support.hub.aged_lake import (
    DAYS,
    NOW,
    SPARK,
    aggregated,
    clock_goes_on,
    days,
    lake,
    maintained,
    rows_of,
    store,
    stored,
)
from support.hub.jobs_config import jobs_config

HOUR = timedelta(hours=1)
YEARS = timedelta(days=5 * 365)
AGES = Retention(
    bronze="48h", quarantine="48h", silver="48h", gold="48h", devices=[DeviceAge(devices=["d1"], keep="24h")]
)


@pytest.mark.parametrize(
    "every", [HOUR, timedelta(hours=23, minutes=59), timedelta(hours=24, minutes=1), timedelta(days=7)]
)
def test_rounds_at_any_interval_are_trusted(every: timedelta) -> None:
    """After a jump, ages count again within the time that is held, or two rounds."""
    now, readings = NOW + YEARS, Readings(NOW)
    until = now + max(HOLD, 2 * every)
    while now <= until:
        readings = readings.after(now)
        now += every
    assert readings.trusted is not None
    assert until - readings.trusted <= max(STEP, 2 * every)


@given(
    st.integers(-20 * 365, 20 * 365).filter(lambda days: abs(days) > STEP.days + 1),
    st.lists(st.integers(0, 35 * 60), min_size=1, max_size=30).map(sorted),
    st.booleans(),
)
def test_a_clock_that_is_wrong_for_less_than_is_held(off: int, minutes: list[int], recorded: bool) -> None:
    """Nothing is as old as the wrong clock says, and no file leaves; the right clock is trusted at once."""
    known = readings = Readings(NOW)
    for minute in minutes:
        now = NOW + timedelta(days=off, minutes=minute)
        after = readings.after(now)
        found = checked(readings, after, now)
        assert found.ages_from is not None
        assert found.ages_from <= NOW
        assert not found.steady
        if recorded or after.differ(readings):
            readings = after
    back = NOW + timedelta(hours=36)
    after = readings.after(back)
    assert after.trusted == back
    assert checked(known, known.after(back), back).steady
    assert not checked(readings, after, back).steady  # files wait for one more round
    assert checked(after, after.after(back + HOUR), back + HOUR).steady


@pytest.mark.slow
@pytest.mark.parametrize("off", [YEARS, -YEARS, -57 * timedelta(days=365)])
@pytest.mark.usefixtures("each_lake_format")
def test_maintain_removes_nothing_by_a_wrong_clock(tmp_path: Path, off: timedelta) -> None:
    """Rows of bronze, quarantine, silver, gold and of devices, files and versions; then the clock is right, and all goes on."""
    config = filled(tmp_path)
    before = lake(config)
    young = structs.replace(config, retention=Retention(bronze="720h", silver="720h", gold="720h", quarantine="720h"))
    maintained(young)
    files = data_files(tmp_path)
    for hours in (0, 1, 2, 30):
        done = maintained(young, NOW + off + hours * HOUR)
        assert {one.expired + one.removed for one in done.values()} == {0}
        assert all(
            one.clock_jumped for name, one in done.items() if name in ("bronze", "quarantine", "silver/readings")
        )
    assert lake(config) == before
    assert data_files(tmp_path) >= files
    aged = structs.replace(config, retention=AGES)
    done = maintained(aged, NOW + 31 * HOUR)
    assert done["bronze"].expired
    assert not done["bronze"].clock_jumped
    assert days(config)[0] == {DAYS[3]}


@pytest.mark.slow
@pytest.mark.usefixtures("each_lake_format")
def test_a_pause_of_months(tmp_path: Path) -> None:
    """Nothing ran for half a year. Rows leave once the clock has gone on."""
    config = structs.replace(filled(tmp_path), retention=Retention(bronze="48h"))
    assert maintained(config)["bronze"].expired == 20
    later = NOW + timedelta(days=180)
    assert maintained(config, later)["bronze"].expired == 0
    assert maintained(config, later + HOLD)["bronze"].expired == 20


@pytest.mark.slow
@pytest.mark.usefixtures("each_lake_format")
def test_messages_that_the_server_stored_by_a_wrong_clock(tmp_path: Path) -> None:
    """They leave bronze with the first expired message after them, and hold back no others."""
    config = jobs_config("nats://127.0.0.1", tmp_path)
    config = structs.replace(
        config, gaps=structs.replace(config.gaps, ask_origins=False), retention=Retention(bronze="48h")
    )
    store(config, [stored(number, DAYS[0]) for number in range(1, 11)])
    store(config, [stored(number, (NOW + YEARS).date(), event=NOW) for number in range(11, 21)])
    store(config, [stored(number, DAYS[1]) for number in range(21, 31)])
    store(config, [stored(number, DAYS[3]) for number in range(31, 41)])
    store(config, [stored(number, (NOW + YEARS).date(), event=NOW) for number in range(41, 51)])
    read_all(config)
    clock_goes_on(config, NOW, NOW - timedelta(days=3))
    assert maintained(config)["bronze"].expired == 30
    assert [number for (number,) in rows_of(bronze_table(config), "sequence")] == list(range(31, 51))


@pytest.mark.usefixtures("each_lake_format")
def test_a_job_that_compacts_removes_no_file_by_a_wrong_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task is about to commit looks years old then. Without the check the commit would name a file that is gone."""
    config = jobs_config("nats://127.0.0.1", tmp_path)
    now = datetime.now(UTC)
    store(config, [stored(1, now.date(), event=now, stored_at=now)])
    table = bronze_table(config)
    table.check_clock(now)
    orphan = Path(table.spec.root, "stream=S", f"date={now.date()}", "part-0.parquet")
    orphan.write_bytes(b"of a task")
    os.utime(orphan, (time.time() - YEARS.total_seconds(),) * 2)  # as the wrong clock sees it

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return now + YEARS

    with monkeypatch.context() as wrong:
        wrong.setattr("eyot_hub.jobs.tables.table.datetime", Wrong)
        table.maintain_when_due(0, 1, 168)
    assert orphan.exists()
    table.maintain_when_due(0, 1, 168)  # the clock is right again, since just now
    assert orphan.exists()
    table.maintain_when_due(0, 1, 168)
    assert not orphan.exists()


def filled(folder: Path) -> Config:
    config = jobs_config("nats://127.0.0.1", folder)
    config = structs.replace(config, gaps=structs.replace(config.gaps, ask_origins=False))
    store(config, [stored(number, DAYS[(number - 1) // 10], poison=number % 10 == 0) for number in range(1, 41)])
    read_all(config)
    return config


def read_all(config: Config) -> None:
    aggregated(config)
    Gaps(SPARK, config).run()


def data_files(folder: Path) -> set[Path]:
    return set((folder / "lake").rglob("part-*.parquet"))
