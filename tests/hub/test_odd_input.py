"""Unexpected input, from the stream to the page: large and empty payloads, names of all kinds, the ends of time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.devices.fleet import Fleet
from eyot_hub.jobs.reports.report import write_report
from eyot_hub.jobs.reports.report_charts import visible
from support.hub.jobs_config import SILVER, jobs_config
from support.hub.streams import Streams
from support.hub.truth import NEW_YEAR_MS, Hub
from support.servers.nats_server import NatsServer

CONFIG = """
server_name: hub
max_payload: 9MB
jetstream { store_dir: "%WORKDIR%/js" }
"""
STREAMS = ["Größe", "a=b", "a,b", "[x]", "{x}", "a?b", "a\u00a0b", "💥", "__HIVE_DEFAULT_PARTITION__", "007"]
DEVICES = ["<b>&'\"", "a/b", "../../etc", "Größe", "x" * 250, "new\nline", "%41", "💥", "nul\x00l", " ", "null"]
SUBJECTS = ["s" * 300, "Größe.💥", "a/b\\c", "$x,{y}|\"'`", ".".join("abcdefgh" * 8)]
LAST_MS = 9_223_286_400_000  # 2262-04-11, the last day of a clock that counts nanoseconds in 64 bits
HEADERS = {
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\nEmpty:\r\nB:  x  \r\n\r\n": {"A": "1, 2", "a": "3", "Empty": "", "B": "x"},
    b"NATS/1.0\r\n\r\n": {},
    b"NATS/1.0\r\nno colon\r\n\r\n": {"": "NATS/1.0\r\nno colon\r\n\r\n"},
    b"NATS/1.0\r\nK\xff: v\xff\r\n\r\n": {"K�": "v�"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("odd")) as running:
        yield running


def reading(device: str, at: int = NEW_YEAR_MS, **more: Any) -> bytes:
    return json.dumps({"device": device, "metric": "m", "at": at, "value": 1.0, **more}).encode()


def test_from_the_stream_to_the_page(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for number, name in enumerate(STREAMS):
        streams.create(name, [f"in{number}.>"])
        streams.publish([(f"in{number}.r", reading(name))])
    streams.publish([("in0.r", reading("gone"))])
    streams.remove("Größe", 2)
    large = reading("large", pad="x" * 8_000_000)
    noise = bytes(range(256)) * 32_000
    streams.publish((f"in0.{subject}", reading(subject)) for subject in SUBJECTS)
    streams.publish(("in0.r", reading(device)) for device in DEVICES)
    streams.publish([("in0.r", reading("clock", at)) for at in (-1, 0, LAST_MS)])
    streams.publish([("in0.r", b""), ("in0.r", large), ("in0.r", noise), ("in0.r", gzip.compress(large))])
    connection = Connection.open(ConnectOptions((streams.url,)))
    for number, block in enumerate(HEADERS):
        connection.publish(b"in0.headers", reading(f"h{number}"), header=block)
    connection.publish(b"in0.\xff\xfe", reading("bytes"))
    connection.request("$JS.API.INFO")
    total = streams.state("Größe")["messages"]

    base = to_builtins(jobs_config(streams.url, tmp_path, ["*"]))
    silver = {**SILVER, "subjects": ["*.>"], "earliest": "1970-01-01T00:00:00Z", "ahead": "2500000h"}
    config = convert({**base, "silver": [silver]}, "tests")
    hub = Hub(spark, config)
    done = hub.round()
    bronze = hub.ingest.table.dataframe(spark)
    rows = bronze.where(F.col("stream") == "Größe").orderBy("sequence").collect()
    assert [row["sequence"] for row in rows] == [1, *range(3, total + 2)]
    assert [row["headers"] for row in rows if row["subject"] == "in0.headers"] == list(HEADERS.values())
    payloads = [bytes(row["payload"]) for row in rows]
    assert {b"", large, noise} <= set(payloads)
    assert {f"in0.{subject}" for subject in SUBJECTS} | {"in0.��"} <= {row["subject"] for row in rows}
    others = bronze.where(F.col("stream") != "Größe").select("stream", "sequence").collect()
    assert sorted(map(tuple, others)) == sorted((name, 1) for name in STREAMS[1:])

    assert (done.silver[0].added, done.silver[0].quarantined) == (total + len(STREAMS) - 1 - 4, 4)
    assert hub.reasons() == [
        "event time before 1970-01-01T00:00:00Z",
        "payload is not UTF-8",
        "payload is not UTF-8",
        "payload is not json",
    ]
    gold = {(device, start): count for (device, start), (count, *_) in hub.gold().items()}
    assert (gold["clock", 0], gold["clock", LAST_MS]) == (1, 1)
    devices = {device for device, _ in gold}
    assert {*DEVICES, *STREAMS[1:], *SUBJECTS, "large"} <= devices

    assert [(gap.source.name, gap.first, gap.status) for gap in Gaps(spark, config).run().gaps] == [
        ("Größe", 2, "deleted")
    ]
    assert {row["device"] for row in Fleet(spark, config).run()} == devices
    write_report(spark, config, str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "<b>&'" not in page
    assert all(visible(device) in page for device in DEVICES)


def test_large_payloads_that_are_poison(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """More than one row group."""
    streams.create("READINGS", ["readings.>"])
    streams.publish(("readings.x", b"%d " % number + b"x" * 8_000_000) for number in range(6))
    hub = Hub(spark, jobs_config(streams.url, tmp_path))
    assert hub.round().silver[0].quarantined == 6
    rows = hub.aggregate.silver["readings"].quarantine.dataframe(spark)
    sizes = rows.selectExpr("length(payload) as size").collect()
    assert sorted(row["size"] for row in sizes) == sorted(8_000_000 + len(f"{number} ") for number in range(6))
