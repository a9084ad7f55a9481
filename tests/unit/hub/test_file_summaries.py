"""The summaries behind `fleet`: exact where they are counts, within 1 % where they are classes, and of new files only."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eyot_hub.jobs.config import Config
from eyot_hub.jobs.file_summaries import FILES_MAX, FileSummaries, by_device, percentiles
from eyot_hub.jobs.files import by_partition
from eyot_hub.jobs.silver import silver_schema, silver_table
from eyot_hub.jobs.table import LakeTable
from support.jobs_config import jobs_config
from support.local_spark import LocalSpark

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
    table.maintain(compact=True, vacuum_hours=None)
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


def test_percentiles_of_several_devices() -> None:
    device, number, count = np.array([1, 0, 1, 0]), np.array([5, 0, 9, 3]), np.array([1, 9, 1, 1])
    half, most = percentiles(device, number, count, (0.5, 0.95))
    assert half.tolist() == pytest.approx([0.0, 1.02**4.5 / 1e6])
    assert most.tolist() == pytest.approx([1.02**2.5 / 1e6, 1.02**8.5 / 1e6])
