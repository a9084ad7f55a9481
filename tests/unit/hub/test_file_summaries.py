"""The summaries behind `fleet`: exact where they are counts, within 1 % where they are classes, and of new files only."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.file_summaries import FLEET_FILES, FileSummaries, by_device, percentiles
from eyot_hub.jobs.devices.summary_table import FILES_MAX
from eyot_hub.jobs.silver.silver import silver_schema, silver_table
from eyot_hub.jobs.tables.files import by_partition
from eyot_hub.jobs.tables.table import LakeTable
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark

SPARK: Any = LocalSpark()
DAYS = [date(2026, 3, 1), date(2026, 3, 2)]
Reading = tuple[str, datetime, float]  # device, event, delay in s


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return jobs_config("nats://127.0.0.1", tmp_path)


def readings(seed: int, count: int) -> list[Reading]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        day = DAYS[chance.randrange(2)]
        at = datetime(day.year, day.month, day.day, 8, tzinfo=UTC) + timedelta(milliseconds=number)
        made.append((f"d{chance.randrange(3)}", at, chance.choice([0.0, -5.0, chance.expovariate(0.01), 90_000.0])))
    return made


def store(config: Config, made: list[Reading]) -> LakeTable:
    table = silver_table(config, config.silver[0])
    rows = [
        {"device": device, "event_time": at, "stored_at": at + timedelta(seconds=delay), "event_date": at.date()}
        for device, at, delay in made
    ]
    writer = table.spec.writer()
    for partition, part in by_partition(
        pa.Table.from_pylist(rows, silver_schema(config.silver[0])), table.spec.partition_by
    ):
        writer.write(part, partition)
    table.commit(writer.finish(), {})
    return table


def check(found: pa.Table, made: list[Reading]) -> None:
    rows = {row["device"]: row for row in by_device(found, (0.5, 0.95)).to_pylist()}
    assert rows.keys() == {device for device, _, _ in made}
    for device, row in rows.items():
        own = [(at, delay) for name, at, delay in made if name == device]
        times = [round(at.timestamp() * 1e6) for at, _ in own]
        assert (row["readings"], row["first_event_us"], row["last_event_us"]) == (len(own), min(times), max(times))
        assert row["late_readings"] == sum(delay > 60 for _, delay in own)
        assert row["delay_max_us"] == pytest.approx(max(delay for _, delay in own) * 1e6, abs=2)
        delays = sorted(max(0.0, delay) for _, delay in own)
        for index, fraction in ((0, 0.5), (1, 0.95)):
            exact = delays[max(0, int(np.ceil(fraction * len(delays))) - 1)]
            assert row[f"delay_p{index}"] == pytest.approx(exact, rel=0.0101, abs=2e-6)


def test_summaries_against_plain_python(config: Config) -> None:
    made = readings(1, 3000)
    store(config, made)
    check(FileSummaries(SPARK, config).found(), made)


def test_only_new_files_are_read(config: Config) -> None:
    made = readings(2, 300)
    table = store(config, made)
    summaries = FileSummaries(SPARK, config)
    check(summaries.found(), made)
    assert summaries.files_read == 2
    version = summaries.table.version
    check(FileSummaries(SPARK, config).found(), made)
    assert summaries.table.version == version
    more = [(device, at.replace(day=2), delay) for device, at, delay in readings(3, 50)]
    store(config, more)
    check(summaries.found(), made + more)
    assert summaries.files_read == 1
    # Compaction, and rows that leave: summaries of files that are gone do not count.
    table.refresh()
    table.compact()
    check(summaries.found(), made + more)
    assert summaries.files_read == 1
    table.commit([], {}, table.files(event_date={DAYS[0]}))
    check(summaries.found(), [one for one in made + more if one[1].date() == DAYS[1]])
    assert summaries.files_read == 0


def test_the_table_stays_small(config: Config) -> None:
    summaries, made = FileSummaries(SPARK, config), []
    for number in range(FILES_MAX + 3):
        made += readings(number, 4)
        store(config, made[-4:])
        found = summaries.found()
    check(found, made)
    assert len(summaries.table.files()) <= FILES_MAX


class Killed(Exception):
    """Stands for the end of a process."""


def kill(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """End the process of the next commit to the summaries: before it, or when it is made and not known yet."""
    commit = LakeTable.commit

    def ended(self: LakeTable, *given: Any, **options: Any) -> None:
        if self.root.endswith((FLEET_FILES, f"{FLEET_FILES}_sum")):
            monkeypatch.undo()
            if after:
                commit(self, *given, **options)
            raise Killed
        commit(self, *given, **options)

    monkeypatch.setattr(LakeTable, "commit", ended)


@pytest.mark.usefixtures("each_lake_format")
@pytest.mark.parametrize("seed", range(6))
def test_sums_that_are_kept_are_those_of_a_recount(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come, are joined and leave, other processes add up, and processes end: plain Python finds the same figures."""
    config, chance = jobs_config("nats://127.0.0.1", tmp_path), random.Random(seed)
    made: list[Reading] = []
    processes, recounts, continued = [FileSummaries(SPARK, config), FileSummaries(SPARK, config)], 0, 0
    for step in range(30):
        silver = silver_table(config, config.silver[0])
        happening = chance.choice(["rows", "rows", "rows", "compact", "leave", "kill", "nothing", "compact summaries"])
        if happening in ("rows", "kill"):
            made += (more := readings(seed * 1000 + step, chance.randrange(1, 30)))
            store(config, more)
        elif happening == "compact":
            silver.compact()
        elif happening == "leave" and chance.random() < 0.3:
            day = chance.choice(DAYS)
            silver.commit([], {}, silver.files(event_date={day}))
            made = [one for one in made if one[1].date() != day]
        elif happening == "compact summaries":
            processes[0].table.refresh()
            processes[0].table.compact()
        number = chance.choice([0, 0, 0, 1])
        if happening == "kill":
            kill(monkeypatch, after=chance.random() < 0.5)
            with pytest.raises(Killed):
                processes[number].found()
            processes[number] = FileSummaries(SPARK, config)
            continue
        if happening == "nothing":  # a process that begins takes up the stored sum
            processes[number] = FileSummaries(SPARK, config)
        check(processes[number].found(), made)
        recounts += processes[number].recounted
        continued += not processes[number].recounted
    check(FileSummaries(SPARK, config).found(), made)
    assert recounts
    assert continued


@pytest.mark.usefixtures("each_lake_format")
def test_a_process_that_begins_takes_up_the_stored_sum(tmp_path: Path) -> None:
    """It reads no summaries, and adds new files. A sum that is gone, damaged or of another version is added up again."""
    config = jobs_config("nats://127.0.0.1", tmp_path)
    made = readings(8, 200)
    store(config, made)
    recounts = []

    def begun() -> FileSummaries:
        one = FileSummaries(SPARK, config)
        check(one.found(), made)
        recounts.append(one.recounted)
        return one

    begun()
    begun()
    made += (more := readings(9, 30))
    store(config, more)
    begun()
    last = begun()
    assert recounts == [True, False, False, False]
    last.table.refresh()
    last.table.compact()
    begun()
    begun()
    assert recounts[4:] == [True, False]
    stored = last._stored._table
    stored.refresh()
    stored.replace([{**row, "sum": b"?" if row["sum"] else None} for row in stored.to_pylist()])
    begun()
    stored.refresh()
    stored.replace([])
    begun()
    begun()
    assert recounts[6:] == [True, True, False]


def test_a_commit_that_is_refused_is_not_part_of_the_sums(config: Config) -> None:
    made = readings(5, 100)
    store(config, made)
    one, other = FileSummaries(SPARK, config), FileSummaries(SPARK, config)
    check(one.found(), made)
    made += (more := readings(6, 20))
    store(config, more)
    refresh = one.table.refresh

    def overtaken() -> None:
        refresh()
        check(other.found(), made)

    one.table.refresh = overtaken  # type: ignore[method-assign]
    check(one.found(), made)
    one.table.refresh = refresh  # type: ignore[method-assign]
    check(one.found(), made)
    assert (one.recounted, one.files_read) == (True, 0)
    check(FileSummaries(SPARK, config).found(), made)


def test_rows_are_written_again_a_few_times_only(config: Config) -> None:
    """Rounds of one file each: what joining writes grows by the logarithm of the rows, not with each round."""
    summaries, written = FileSummaries(SPARK, config), 0
    for number in range(60):
        store(config, readings(number, 4))
        before = {file.path for file in summaries.table.files()}
        found = summaries.found()
        written += sum(file.rows for file in summaries.table.files() if file.path not in before)
    assert not summaries.recounted
    rows = summaries.table.rows()
    assert written <= rows * math.log2(rows)
    check(found, [one for number in range(60) for one in readings(number, 4)])


def test_percentiles_of_several_devices() -> None:
    device, number, count = np.array([1, 0, 1, 0]), np.array([5, 0, 9, 3]), np.array([1, 9, 1, 1])
    half, most = percentiles(device, number, count, (0.5, 0.95))
    assert half.tolist() == pytest.approx([0.0, 1.02**4.5 / 1e6])
    assert most.tolist() == pytest.approx([1.02**2.5 / 1e6, 1.02**8.5 / 1e6])
