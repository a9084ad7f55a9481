"""The fleet by its devices' reports: eyotd publishes its status into a stream, the hub sources it, the job reads it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.fleet import Fleet
from support.hub.jobs_config import jobs_config
from support.hub.streams import Message, Streams
from support.links.link import Link
from support.servers.eyotd import Eyotd

HUB = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
"""
DEVICE = """
server_name: edge-7
jetstream {{ store_dir: "%WORKDIR%/store", domain: edge }}
leafnodes {{ reconnect: 1, remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}
eyot {{ status {{ subject: fleet.edge-7.status, every: 1s }} }}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(HUB, tmp_path_factory.mktemp("fleet-hub")) as running:
        yield running


def fleet_config(url: str, folder: Path, **fleet: object) -> Config:
    base = jobs_config(url, folder, ["STATUS"])
    return convert({**to_builtins(base), "silver": [], "gold": [], "fleet": fleet}, "tests")


@pytest.fixture
def hub_streams(hub: Eyotd) -> Iterator[Streams]:
    client = Streams(hub.client_port)
    yield client
    for name in client.api("STREAM.NAMES").get("streams") or []:
        client.delete(name)


def test_a_device_tells_of_itself(spark: SparkSession, hub: Eyotd, hub_streams: Streams, tmp_path: Path) -> None:
    """Also of the time in which nobody could hear it."""
    streams = hub_streams
    config = fleet_config(streams.url, tmp_path, subjects=["fleet.*.status"], streams=["STATUS"])
    with Link(hub.leaf_port) as link, Eyotd(DEVICE.format(port=link.port), tmp_path / "edge") as edge:
        device = Streams(edge.client_port)
        device.create("STATUS", ["fleet.>"])
        origin = {"name": "STATUS", "external": {"api": "$JS.edge.API", "deliver": ""}}
        streams.create("STATUS", sources=[origin])
        more(streams, 2)
        link.cut()
        more(device, 3)
        assert streams.state("STATUS")["messages"] < device.state("STATUS")["messages"]
        link.restore()
        more(streams, 5)
        until_linked(streams)
        job = Ingest(spark, config)
        job.run(once=True, report=lambda _: None)
        (row,) = Fleet(spark, config).run()
    assert row["device"] == "edge-7"
    assert row["statuses"] >= 7
    assert 0.0 < row["link_up_share"] < 1.0
    assert row["linked"]
    assert row["rtt_ms_p50"] > 0.0
    assert row["uptime_s"] > 3.0
    assert row["reported_backlog"] is not None
    assert row["status_stored_at"] >= row["status_at"] - timedelta(seconds=1)
    assert row["readings"] is None


def more(streams: Streams, count: int) -> None:
    """Wait until so many messages more are in the stream."""
    wanted, deadline = streams.state("STATUS")["messages"] + count, time.monotonic() + 60
    while streams.state("STATUS")["messages"] < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until_linked(streams: Streams) -> None:
    """Wait until the last status says that the device is linked: those of the time without a link come first."""
    deadline = time.monotonic() + 60
    while True:
        last = streams.api("STREAM.MSG.GET.STATUS", {"seq": streams.state("STATUS")["last_seq"]})
        if json.loads(base64.b64decode(last["message"]["data"]))["linked"]:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_states(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """Synced, behind, silent; what is no status, and repeats, change nothing."""
    now = datetime.now(UTC)

    def status(device: str, age_s: float, **more: object) -> Message:
        at = (now - timedelta(seconds=age_s)).isoformat().replace("+00:00", "Z")
        body = {"device": device, "at": at, "every_s": 3600.0, "version": "1", "uptime_s": 5.0, "linked": True, **more}
        return f"fleet.{device}.status", json.dumps(body).encode()

    streams.create("STATUS", ["fleet.>"])
    streams.publish(
        [
            status("a", 20, synced=False, backlog=70, linked=False, link_error="no route"),
            status("a", 10, synced=True, backlog=0, rtt_ms=12.5),
            status("b", 10, synced=False, backlog=70, backlog_bytes=7000, oldest_s=99.0, store_error="disk full"),
            status("b", 10, synced=False, backlog=70, backlog_bytes=7000, oldest_s=99.0, store_error="disk full"),
            ("fleet.d.status", b"no status"),
            ("fleet.d.other", b"{}"),
            status("c", 10, every_s=1e-6),  # overdue at once, and the last that bronze holds
        ]
    )
    config = fleet_config(streams.url, tmp_path, subjects=["fleet.*.status"], device="subject:2")
    Ingest(spark, config).run(once=True, report=lambda _: None)
    rows = {row["device"]: row for row in Fleet(spark, config).run()}
    assert {device: row["state"] for device, row in rows.items()} == {"a": "synced", "b": "behind", "c": "silent"}
    assert {device: row["statuses"] for device, row in rows.items()} == {"a": 2, "b": 1, "c": 1}
    assert (rows["a"]["link_up_share"], rows["a"]["rtt_ms_p50"], rows["a"]["reported_error"]) == (0.5, 12.5, None)
    behind = rows["b"]
    assert (behind["reported_backlog"], behind["reported_backlog_bytes"], behind["reported_oldest_s"]) == (
        70,
        7000,
        99.0,
    )
    assert behind["reported_error"] == "disk full"
    # What has not been ingested yet is not the device's silence.
    streams.publish([status("c", 0, every_s=1e-6)])
    (state,) = [row["state"] for row in Fleet(spark, config).run() if row["device"] == "c"]
    assert state == "behind"
    Ingest(spark, config).run(once=True, report=lambda _: None)
    (state,) = [row["state"] for row in Fleet(spark, config).run() if row["device"] == "c"]
    assert state == "silent"
