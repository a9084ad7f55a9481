"""Rounds over many streams, and over many subjects and devices of one stream, of which few have news.

Prints a table and writes the section "Many streams" of docs/measured-hub.md. Beside the clock stands the CPU of driver, tasks
and workers, which says more on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from page import write_section
from pyspark.sql import SparkSession
from table import machine, markdown

from eyot_hub.connection import Connection
from eyot_hub.jetstream import JetStream
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.spark.session import session
from eyot_hub.options import source_options
from hub import PACKED, ROOT, START_MS, Hub, Notes, cpu_s, hub_of  # sets the paths of the packages

SECTION = "Many streams"
NEWS = 30
ROUNDS = 7
ASK_EVERY = 500  # messages until a request, so that the broker is not flooded


def publish(hub: Hub, messages: Iterator[tuple[str, str]]) -> None:
    """Publish one reading on each (subject, device)."""
    connection = Connection.open(source_options(hub.options).read.connect)
    connection.sock.settimeout(120)
    at = START_MS
    for number, (subject, device) in enumerate(messages):
        payload = json.dumps(
            {"device": device, "metric": "t", "number": number, "at": at + number, "value": 1.5}
        ).encode()
        connection.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
        if number % ASK_EVERY == 0:
            connection.request("$JS.API.INFO", timeout_s=120)
    connection.request("$JS.API.INFO", timeout_s=120)
    connection.close()


def create(hub: Hub, count: int) -> None:
    """Create streams EDGE_n in memory, of the subjects readings.n.t; the bench's own stream has those no longer."""
    with JetStream(source_options(hub.options).read.connect) as jetstream:
        connection = Connection.open(jetstream.options)
        connection.request("$JS.API.STREAM.DELETE.READINGS")
        for number in range(count):
            body = {"name": f"EDGE_{number}", "subjects": [f"readings.{number}.t"], "storage": "memory"}
            connection.request(f"$JS.API.STREAM.CREATE.EDGE_{number}", json.dumps(body).encode(), timeout_s=120)
        connection.close()


def rounds(
    spark: SparkSession,
    hub: Hub,
    peer: str,
    what: str,
    streams: list[str],
    news: Callable[[int], None],
    count: int,
    notes: Notes,
) -> None:
    """Measure the first round, rounds with news of `NEWS` devices, and rounds without any."""

    def timed(name: str, work: Callable[[], object]) -> None:
        before, begun = cpu_s([os.getpid()]) - cpu_s(hub.broker), time.perf_counter()
        work()
        clock = time.perf_counter() - begun
        cpu = cpu_s([os.getpid()]) - cpu_s(hub.broker) - before
        figures.setdefault(name, []).append((clock, cpu))

    figures: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        config = hub.config(Path(folder), streams=streams)
        ingest, aggregate = Ingest(spark, config), Aggregate(spark, config)
        timed("first ingest, a message each", ingest.round)
        assert ingest.table.rows() == count
        timed("first aggregate", aggregate.round)
        for number in range(ROUNDS):
            news(number)
            timed(f"ingest, {NEWS} with news", ingest.round)
            timed(f"aggregate, {NEWS} with news", aggregate.round)
            timed("ingest, no news", ingest.round)
        assert ingest.table.rows() == count + ROUNDS * NEWS
        ingest.close()
    for name, found in figures.items():
        clock, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        notes.figure(peer, f"{what}: {name}", "s", clock)
        notes.figure(peer, f"{what}: {name}: CPU", "s", cpu)


def run(kind: str, spark: SparkSession, streams: int, subjects: int, notes: Notes) -> None:
    with hub_of(kind) as hub:
        seen = hub.packed() if kind == "eyotd" else hub
        peer = PACKED if kind == "eyotd" else kind
        names = [f"readings.{number}.t" for number in range(subjects)]
        publish(hub, ((name, f"d{number}") for number, name in enumerate(names)))

        def of_subjects(number: int) -> None:
            publish(hub, ((names[number * NEWS + one], f"d{number * NEWS + one}") for one in range(NEWS)))

        rounds(spark, seen, peer, f"{subjects:,} subjects and devices", ["READINGS"], of_subjects, subjects, notes)
        create(hub, streams)
        publish(hub, ((name, f"d{number}") for number, name in enumerate(names[:streams])))
        rounds(spark, seen, peer, f"{streams:,} streams", ["EDGE_*"], of_subjects, streams, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--subjects", type=int, default=10_000)
    parser.add_argument("--hub", choices=("eyotd", "nats-server"), action="append", help="only this broker (both)")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    kinds = options.hub or ["eyotd", "nats-server"]
    spark = session("bench", {"spark.master": f"local[{os.cpu_count()},4]"})
    spark.range(10).selectExpr("sum(id)").collect()
    notes = Notes()
    for kind in kinds:
        run(kind, spark, options.streams, options.subjects, notes)
    peers = [PACKED if kind == "eyotd" else kind for kind in kinds]
    table = markdown(list(notes.rows.values()), peers[0], peers[1:])
    print(table)
    if not options.no_write:
        load = f"load average {os.getloadavg()[0]:.0f}" if os.getloadavg()[0] > os.cpu_count() else "idle machine"
        text = f"{machine()}, {load}. Median of {ROUNDS} rounds; `tests/bench/hub_many.py`."
        write_section(ROOT / "docs" / "measured-hub.md", SECTION, f"{text}\n\n{table}")


if __name__ == "__main__":
    main()
