"""The lake on object storage (an S3-compatible server on loopback): every job, by delta-rs's options alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec import to_builtins
from msgspec.structs import replace
from pyspark.sql import SparkSession

from eyot_hub.errors import HubError
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config, ConfigError, IcebergCatalog, Lake
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.devices import DEVICES, SCHEMA, Devices
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.reports.report import write_report
from eyot_hub.jobs.tables.table import Fenced
from support.hub.jobs_config import jobs_config
from support.hub.object_storage import ObjectStorage
from support.hub.streams import Streams
from support.hub.truth import NEW_YEAR_MS, Hub, message, series, truth

NAME = "Größe=1"  # a stream whose name is no plain folder


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    """Options for an empty bucket `lake`."""
    with ObjectStorage("lake") as running:
        yield running.options


def config(url: str, folder: Path, storage: dict[str, str], **lake: str) -> Config:
    parsed = to_builtins(jobs_config(url, folder, ["*"], compact_every=2))
    return convert({**parsed, "lake": {"path": "s3://lake/fleet", "storage_options": storage, **lake}}, "tests")


def test_every_job(spark: SparkSession, streams: Streams, tmp_path: Path, storage: dict[str, str]) -> None:
    streams.create(NAME, ["readings.>"])
    settings = config(streams.url, tmp_path, storage, checkpoints=str(tmp_path / "checkpoints"))
    assert "geheim" not in repr(Hub(spark, settings).ingest.table.spec)
    readings = series("d1", NEW_YEAR_MS, 40) + series("d2", NEW_YEAR_MS, 40)
    hub = Hub(spark, settings)
    for part in range(4):
        streams.publish([*map(message, readings[part::4]), ("readings.x", b"poison")])
        hub.round()
    assert hub.gold() == truth(readings)
    assert hub.reasons() == ["payload is not json"] * 4
    assert hub.ingest.table.rows() == 84
    hub.aggregate.rebuild(set())
    assert hub.gold() == truth(readings)
    # Whoever reads Delta reads it.
    table = DeltaTable("s3://lake/fleet/silver/readings", storage_options=storage).to_pyarrow_table()
    assert sorted(table.column("device").to_pylist()) == ["d1"] * 40 + ["d2"] * 40
    assert len(DeltaTable("s3://lake/fleet/bronze", storage_options=storage).to_pyarrow_table()) == 84
    streams.remove(NAME, 84)
    assert not Gaps(spark, settings).run().bad
    assert {row["device"]: row["readings"] for row in Fleet(spark, settings).run()} == {"d1": 40, "d2": 40}
    Devices(spark, settings).run(once=True)
    devices = Devices(spark, settings).table.dataframe(spark).collect()
    assert {row["device"]: row["readings"] for row in devices} == {"d1": 40, "d2": 40}
    write_report(spark, settings, str(tmp_path / "page.html"))
    assert "d2" in (tmp_path / "page.html").read_text()
    with pytest.raises(ConfigError, match=r"lake\.checkpoints: must name a folder"):
        Devices(spark, config(streams.url, tmp_path, storage)).run(once=True)


@pytest.mark.parametrize(("first", "then"), [("delta", "iceberg"), ("iceberg", "delta")])
def test_a_table_keeps_its_format(tmp_path: Path, storage: dict[str, str], first: str, then: str) -> None:
    catalog = IcebergCatalog(uri=f"sqlite:///{tmp_path}/catalog.db")
    lake = Lake(f"s3://lake/{first}-kept", storage_options=storage, format=first, catalog=catalog)
    schema = pa.schema([("seq", pa.int64())])
    open_table(lake, "bronze", schema)
    with pytest.raises(HubError, match=f"s3://lake/{first}-kept/bronze holds a table of format {first}"):
        open_table(replace(lake, format=then), "bronze", schema)
    open_table(lake, "bronze", schema)


class Batch:
    """A batch of the query of `devices`."""

    def __init__(self, device: str, readings: int) -> None:
        row = {name.replace("_at", "_us"): None for name in SCHEMA.names} | {"device": device, "readings": readings}
        self._rows = pa.Table.from_pylist([row])

    def toArrow(self) -> pa.Table:
        return self._rows


def test_devices_asks_little_of_the_storage(tmp_path: Path) -> None:
    """A batch refreshes the table (2 requests), writes a file (3), and commits it (8); the rows are in memory."""
    with ObjectStorage("lake", tmp_path / "requests.log") as storage:
        settings = config("nats://127.0.0.1", tmp_path, storage.options)
        job = Devices(Mock(), settings)
        job.put(Batch("d0", 1))  # type: ignore[arg-type]
        for number in range(1, 4):
            before = len(storage.requests())
            job.put(Batch(f"d{number % 3}", number))  # type: ignore[arg-type]
            asked = storage.requests()[before:]
            assert len(asked) <= 13, "\n".join(asked)
            assert not [one for one in asked if ".parquet" in one and not one.startswith(("PUT", "POST"))]
        expected = {"d0": 3, "d1": 1, "d2": 2}
        assert {row["device"]: row["readings"] for row in job.table.to_pylist()} == expected
        # Of another writer's commit, the rows are read again.
        other = open_table(settings.lake, DEVICES, SCHEMA)
        other.replace([row for row in other.to_pylist() if row["device"] != "d1"])
        job.put(Batch("d2", 9))  # type: ignore[arg-type]
        assert {row["device"]: row["readings"] for row in job.table.to_pylist()} == {"d0": 3, "d2": 9}


def test_of_two_commits_from_one_position_one_is_refused(storage: dict[str, str]) -> None:
    lake = Lake(path="s3://lake", storage_options=storage)
    slow, fast = (open_table(lake, "fenced", pa.schema([("number", pa.int64())])) for _ in range(2))
    fast.commit([], {"p": 5})
    with pytest.raises(Fenced):
        slow.commit([], {"p": 5})
    slow.refresh()
    assert slow.position("p") == 5
