"""The statuses of devices in bronze: each file is read once, whatever history there is, and what leaves bronze does not count."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, bronze_table
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.device_statuses import FLEET_STATUSES, StatusSummaries
from eyot_hub.jobs.lake.lake import existing_table
from eyot_hub.jobs.maintenance.erasure import Eraser
from support.hub.jobs_config import jobs_config
from support.hub.lake_formats import FORMATS

FIRST = date(2026, 3, 1)
DAYS = 30
Status = tuple[str, datetime]


def fleet_config(folder: Path, table_format: str, **fleet: Any) -> Config:
    fleet = {"subjects": ["fleet.*.status"], **fleet}
    base = to_builtins(jobs_config("nats://127.0.0.1", folder, ["STATUS"]))
    lake = {"path": str(folder / "lake"), "format": table_format}
    return convert({**base, "lake": lake, "silver": [], "gold": [], "fleet": fleet}, "tests")


class Bronze:
    """Files of bronze, each with one status of each device."""

    def __init__(self, config: Config) -> None:
        self.table = bronze_table(config)
        self.sent: list[tuple[date, Status]] = []

    def add(self, day: date, second: int, devices: str = "abc") -> None:
        at = datetime(day.year, day.month, day.day, 8, tzinfo=UTC) + timedelta(seconds=second)
        rows: list[dict[str, Any]] = [{"subject": "other.x", "payload": b"{}"}]
        for device in devices:
            self.sent.append((day, (device, at)))
            said = {"device": device, "at": at.isoformat(), "every_s": 60.0, "linked": second % 2 == 0, "synced": True}
            rows.append({"subject": f"fleet.{device}.status", "payload": json.dumps(said).encode()})
        for number, row in enumerate(rows):
            row |= {"stored_at": at, "stream_created_ns": 7, "sequence": len(self.sent) * 10 + number}
        inside = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
        writer = self.table.spec.writer()
        writer.write(pa.Table.from_pylist(rows, inside), (("stream", "STATUS"), ("date", str(day))))
        self.table.refresh()
        self.table.commit(writer.finish(), {})

    def check(self, found: dict[str, dict[str, Any]]) -> None:
        held = {one for _, one in self.sent}
        assert {device: one["statuses"] for device, one in found.items()} == {
            device: sum(one[0] == device for one in held) for device in {one[0] for one in held}
        }
        for device, figures in found.items():
            own = [at for name, at in held if name == device]
            assert figures["status_at"] == round(max(own).timestamp() * 1e6)
            assert figures["link_up_share"] == sum(at.second % 2 == 0 for at in own) / len(own)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_round_reads_what_is_new(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    config = fleet_config(tmp_path, table_format)
    bronze, job = Bronze(config), StatusSummaries(spark, config)
    for number in range(DAYS):
        bronze.add(FIRST + timedelta(days=number), 0)
    bronze.check(job.figures({}))
    assert job.files_read == DAYS
    last = FIRST + timedelta(days=DAYS)
    for second in (1, 2, 2):  # the last one is a repeat, in another file
        bronze.add(last, second)
        bronze.check(job.figures({}))
        assert (job.files_read, job.recounted) == (1, False)
    other = StatusSummaries(spark, config)
    bronze.check(other.figures({}))
    assert other.files_read == 0
    # One that is older than what is remembered, files that are joined, and a day that leaves.
    bronze.add(FIRST, 7)
    bronze.check(job.figures({}))
    assert job.files_read == 1
    bronze.table.refresh()
    bronze.table.compact()
    bronze.check(job.figures({}))
    assert job.files_read <= 2  # the first day and the last
    bronze.table.commit([], {}, bronze.table.files(date={FIRST}))
    bronze.sent = [one for one in bronze.sent if one[0] != FIRST]
    bronze.check(job.figures({}))
    assert job.files_read == 0


def test_another_definition_reads_all_files_again(spark: SparkSession, tmp_path: Path) -> None:
    config = fleet_config(tmp_path, FORMATS[0])
    bronze = Bronze(config)
    bronze.add(FIRST, 0)
    bronze.add(FIRST, 1, "a")
    bronze.check(StatusSummaries(spark, config).figures({}))
    for changed in ({"device": "subject:2"}, {"device": "subject:1"}, {"subjects": ["fleet.a.status"]}, {}):
        job = StatusSummaries(spark, fleet_config(tmp_path, FORMATS[0], **changed))
        found = {name: one["statuses"] for name, one in job.figures({}).items()}
        assert job.files_read == 2
        if changed == {"device": "subject:1"}:
            assert found == {"fleet": 2}
        else:
            assert found == ({"a": 2} if "subjects" in changed else {"a": 2, "b": 1, "c": 1})


@pytest.mark.parametrize("table_format", FORMATS)
def test_an_erased_device_is_in_no_summary(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    config = fleet_config(tmp_path, table_format)
    bronze, job = Bronze(config), StatusSummaries(spark, config)
    for second in range(3):
        bronze.add(FIRST, second)
    bronze.check(job.figures({}))
    erased = Eraser(spark, config).erase("b")
    assert erased.rows[FLEET_STATUSES] == 3
    bronze.sent = [one for one in bronze.sent if one[1][0] != "b"]
    for name in (FLEET_STATUSES, f"{FLEET_STATUSES}_sum"):
        held = existing_table(config.lake, name)
        assert held is not None
        assert {row["device"] for row in held.to_pylist()} == {"a", "c", None}
    bronze.check(job.figures({}))
    for recounted in (False, False):  # what the round before has added up, and stored
        again = StatusSummaries(spark, config)
        bronze.check(again.figures({}))
        assert again.recounted is recounted
