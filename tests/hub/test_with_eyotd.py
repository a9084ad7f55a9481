"""The same against `eyotd`: source, sink and jobs over a hub and a leaf of Eyot, and over kills of the hub."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.coverage import ORIGIN
from eyot_hub.jobs.bronze.gaps import Gaps
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered
from support.hub.truth import NEW_YEAR_MS, Hub, message, series, truth
from support.servers.eyotd import Eyotd

HUB = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: 127.0.0.1:%LEAF_PORT% }
"""
LEAF = """
server_name: edge
jetstream {{ store_dir: "%WORKDIR%/store", domain: edge }}
leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(HUB, tmp_path_factory.mktemp("eyotd-hub")) as running:
        yield running


@pytest.fixture(scope="module")
def leaf(hub: Eyotd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(LEAF.format(port=hub.leaf_port), tmp_path_factory.mktemp("eyotd-leaf")) as running:
        yield running


@pytest.fixture
def streams(hub: Eyotd) -> Iterator[Streams]:
    client = Streams(hub.client_port)
    yield client
    for name in client.api("STREAM.NAMES").get("streams") or []:
        client.delete(name)


def test_source_and_sink(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s.>"])
    streams.publish([*numbered("s.a", 300), *numbered("s.b", 200, 300)])

    def read(**options: str) -> DataFrame:
        return spark.read.format("jetstream").options(servers=streams.url, stream="S", **options).load()

    rows = read(minPartitions="3").collect()
    assert [int(bytes(row["payload"])) for row in sorted(rows, key=lambda row: row["sequence"])] == list(range(500))
    assert {row["domain"] for row in rows} == {"hub"}
    assert {row["account"] for row in rows} == {"$G"}
    assert read(subjects="s.a,s.c").count() == 300
    assert read(domain="hub").count() == 500
    streams.create("OUT", ["out"])
    for job, stored in (("first", 500), ("first", 500), ("second", 1000)):
        writer = read().select("payload").write.format("jetstream")
        writer.options(servers=streams.url, subject="out", job=job).mode("append").save()
        assert streams.state("OUT")["messages"] == stored
    assert streams.consumers("S") == 0


def test_from_the_device_to_gold(spark: SparkSession, leaf: Eyotd, streams: Streams, tmp_path: Path) -> None:
    device = Streams(leaf.client_port)
    device.create("READINGS", ["readings.>"])
    readings = series("edge", NEW_YEAR_MS, 300)
    device.publish(map(message, readings))
    origin = {"name": "READINGS", "external": {"api": "$JS.edge.API", "deliver": ""}}
    streams.create("READINGS", sources=[origin])
    deadline = time.monotonic() + 30
    while streams.state("READINGS")["messages"] < 300:
        assert time.monotonic() < deadline, streams.api("STREAM.INFO.READINGS")
        time.sleep(0.02)
    config = jobs_config(streams.url, tmp_path)
    together = Hub(spark, config)
    together.round()
    assert together.gold() == truth(readings)
    row = together.ingest.table.dataframe(spark).orderBy("sequence").first()
    assert row is not None
    assert (row["origin_domain"], row["origin_stream"], row["origin_sequence"]) == ("edge", "READINGS", 1)
    report = Gaps(spark, config).run()
    assert report.gaps == []
    assert {source.domain for source in report.coverage.epochs if source.kind == ORIGIN} == {"edge"}
    assert all(known_epoch.now for epochs_known in report.known.values() for known_epoch in epochs_known)
    device.delete("READINGS")


def test_the_hub_is_killed_while_tasks_read(spark: SparkSession, hub: Eyotd, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(("readings.a", b"%d" % number + b" " * 500) for number in range(40_000))
    job = Ingest(spark, jobs_config(streams.url, tmp_path, partitions=2, fetch_bytes="64k"))

    def restart() -> None:
        while not streams.consumers("READINGS"):
            time.sleep(0.005)
        hub.kill()
        hub.start()

    thread = threading.Thread(target=restart)
    thread.start()
    done = job.round()
    thread.join()
    assert done.rows == 40_000
    rows = job.table.dataframe(spark).selectExpr("count(*) as n", "count(distinct sequence) as d").first()
    assert rows is not None
    assert (rows["n"], rows["d"]) == (40_000, 40_000)
