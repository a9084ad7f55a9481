"""`make bench-hub`: how fast the hub's stream becomes rows and tables; prints a table, writes docs/measured-hub.md.

Readings of about 200 bytes of JSON lie in a stream of the broker named by --hub (both in turn: eyotd and Debian's nats-server).
Everything runs on this machine, the broker included, so that broker, Spark and readers share its cores. Beside each rate stands
what it cost: seconds of CPU for a million rows, of the broker and of everything that reads. On a machine that is busy with
other things these say more than the rates. --grow looks at the cost per row of streams that grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "hub"), str(ROOT / "wire")])

import subprocess

import hub_floor
import nats
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from nodes import Node
from page import write_section
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from table import Row, conditions, markdown

from eyot_hub.columns import StreamLabels
from eyot_hub.jetstream import JetStream
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.spark.session import register_source, session
from eyot_hub.options import source_options
from eyot_hub.range_reader import RangeReader, StreamRange
from support.servers.server_process import executable

STREAM = "READINGS"
START_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
NATS_PY_ROWS = 60_000
PACKED = "eyotd, packed"
GROW_COMMIT = 1_000_000
SECTION_RATES = "Rates"
SECTION_GROW = "Cost per row of streams that grow"
SECTION_LATE = "Late data"
console = Console(highlight=False)


def cpu_s(pids: list[int]) -> float:
    """CPU seconds of processes and all their descendants, those that ended included."""
    spent = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    spent += sum(process.cpu_times()[:4])
    return spent


class Spent(NamedTuple):
    """What a measurement brought: rows, and seconds by the clock and of CPU (broker, readers)."""

    rows: int
    clock_s: float
    broker_s: float
    readers_s: float


def reading(number: int, devices: int = 50, step_ms: int = 100) -> bytes:
    device = number % devices
    return json.dumps(
        {
            "device": f"device-{device:04}",
            "metric": "temperature",
            "number": number,
            "at": START_MS + number * step_ms,
            "value": (number % 997) * 0.25,
            "unit": "celsius",
            "status": "ok",
            "site": "plant-17/hall-3/line-2",
            "firmware": "2.14.5-eyot",
        }
    ).encode()


class Hub:
    """A running broker with a stream of readings."""

    def __init__(self, node: Node, known: set[int]) -> None:
        """`known`: processes that were there before the broker."""
        self.node = node
        self.options = {
            "servers": f"127.0.0.1:{node.port}",
            "user": "fleet",
            "password": "fleet",
            "stream": STREAM,
        }
        self.broker = [child.pid for child in psutil.Process().children() if child.pid not in known]

    def packed(self) -> Hub:
        """The same read packed."""
        other = copy.copy(self)
        other.options = {**self.options, "packedReads": "true"}
        return other

    def create(self) -> None:
        source = source_options(self.options)
        from eyot_hub.connection import Connection

        connection = Connection.open(source.read.connect)
        body = {"name": STREAM, "subjects": ["readings.>"]}
        connection.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(body).encode())
        connection.close()

    def fill(self, first: int, count: int, body: Callable[[int], bytes] = reading) -> None:
        """Publish without acknowledgements and wait until all of it is stored."""
        from eyot_hub.connection import Connection

        source = source_options(self.options)
        connection = Connection.open(source.read.connect)
        connection.sock.settimeout(120)
        target = self.messages() + count
        for begin in range(first, first + count, 2000):
            chunk = []
            for number in range(begin, min(begin + 2000, first + count)):
                payload = body(number)
                chunk.append(
                    b"PUB readings.device-%04d.temperature %d\r\n%b\r\n" % (number % 50, len(payload), payload)
                )
            connection.send(b"".join(chunk))
            if begin // 2000 % 10 == 0:
                connection.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout_s=120)
        while self.messages() < target:
            time.sleep(0.05)
        connection.close()

    def messages(self) -> int:
        with JetStream(source_options(self.options).read.connect) as jetstream:
            return jetstream.stream(STREAM).state.messages

    def config(self, folder: Path, **bronze: Any) -> Config:
        parsed = {
            "nats": {key: value for key, value in self.options.items() if key not in ("stream", "packedReads")},
            "lake": {"path": str(folder / "lake"), "compression": "snappy"},
            "bronze": {
                "streams": [STREAM],
                "compact_every": 0,
                "packed_reads": "packedReads" in self.options,
                **bronze,
            },
            "silver": [
                {
                    "name": "readings",
                    "subjects": ["readings.>"],
                    "device": "$.device",
                    "event_time": "$.at",
                    "event_time_unit": "ms",
                    "columns": {"metric": "string", "number": "bigint", "value": "double"},
                    "ahead": "876000h",
                }
            ],
            "gold": [{"name": "minute", "silver": "readings", "metric": "metric", "value": "value"}],
        }
        return convert(parsed, "bench")


class Bench:
    """The measurements, each on a filled hub; rows per second unless said otherwise."""

    def __init__(self, spark: SparkSession, hub: Hub, rows: int) -> None:
        self.spark, self.hub, self.rows = spark, hub, rows

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        path = Path(tempfile.mkdtemp(prefix="eyot-bench-hub-", dir="/var/tmp"))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextlib.contextmanager
    def measured(self, rows: int, out: list[Spent]) -> Iterator[None]:
        """What happens within, as rows and seconds."""
        broker, everything, begun = cpu_s(self.hub.broker), cpu_s([os.getpid()]), time.perf_counter()
        yield
        clock = time.perf_counter() - begun
        broker = cpu_s(self.hub.broker) - broker
        out.append(Spent(rows, clock, broker, cpu_s([os.getpid()]) - everything - broker))

    def read_only(self) -> Spent:
        source = source_options(self.hub.options)
        with JetStream(source.read.connect) as jetstream:
            info = jetstream.stream(STREAM)
        labels = StreamLabels(STREAM, None, None, info.origins())
        span = StreamRange(STREAM, info.created, 1, self.rows)
        out: list[Spent] = []
        with self.measured(self.rows, out):
            count = sum(batch.num_rows for batch in RangeReader(source.read, span, labels).batches())
        assert count == self.rows, count
        return out[0]

    def nats_py(self) -> Spent:
        """The same job with nats-py as its reader: fetched in batches, made columns, written as Parquet."""
        count = min(NATS_PY_ROWS, self.rows)
        out: list[Spent] = []
        with self.folder() as folder, self.measured(count, out):
            asyncio.run(self._nats_py(count, folder / "out.parquet"))
        return out[0]

    async def _nats_py(self, count: int, path: Path) -> None:
        client = await nats.connect(self.hub.node.url)
        options = {"ack_policy": nats.js.api.AckPolicy.NONE, "max_deliver": 1}
        consumer = nats.js.api.ConsumerConfig(**options)
        subscription = await client.jetstream().pull_subscribe(">", stream=STREAM, config=consumer)
        schema = pa.schema(
            [("subject", pa.string()), ("sequence", pa.int64()), ("stored_ns", pa.int64()), ("payload", pa.binary())]
        )
        with pq.ParquetWriter(path, schema, compression="snappy") as writer:
            taken = 0
            while taken < count:
                messages = await subscription.fetch(1000)
                taken += len(messages)
                columns = [
                    [message.subject for message in messages],
                    [message.metadata.sequence.stream for message in messages],
                    [int(message.metadata.timestamp.timestamp() * 1e9) for message in messages],
                    [message.data for message in messages],
                ]
                writer.write_table(pa.table(columns, schema=schema))
        await client.close()

    def batch_no_sink(self) -> Spent:
        """The floor of a batch read: Spark reads all rows, and drops them."""
        out: list[Spent] = []
        with self.measured(self.rows, out):
            frame = self.spark.read.format("jetstream").options(**self.hub.options).load()
            frame.write.format("noop").mode("overwrite").save()
        return out[0]

    def stream_no_sink(self) -> Spent:
        """The floor of a streaming read."""
        out: list[Spent] = []
        with self.folder() as folder, self.measured(self.rows, out):
            frame = (
                self.spark.readStream.format("jetstream").options(**self.hub.options, startingOffsets="earliest").load()
            )
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()
        return out[0]

    def tasks_no_sink(self) -> Spent:
        """The floor of the fused ingest: as many tasks as cores read their share into Arrow, and drop it."""
        read = source_options(self.hub.options).read
        with JetStream(read.connect) as jetstream:
            info = jetstream.stream(STREAM)
        labels = StreamLabels(STREAM, None, None, info.origins())
        context = self.spark.sparkContext
        share = -(-self.rows // context.defaultParallelism)
        spans = [
            StreamRange(STREAM, info.created, first, min(first + share - 1, self.rows))
            for first in range(1, self.rows + 1, share)
        ]

        def count(span: StreamRange) -> int:
            return sum(batch.num_rows for batch in RangeReader(read, span, labels).batches())

        out: list[Spent] = []
        with self.measured(self.rows, out):
            counted = sum(context.parallelize(spans, len(spans)).map(count).collect())
        assert counted == self.rows, counted
        return out[0]

    def batch_to_parquet(self) -> Spent:
        return self._to_parquet(self.spark.read.format("jetstream").options(**self.hub.options).load())

    def floor_no_sink(self) -> Spent:
        """What Spark itself takes: rows of a source in Python that makes them of nothing."""
        out: list[Spent] = []
        with self.measured(self.rows, out):
            self._floor().write.format("noop").mode("overwrite").save()
        return out[0]

    def floor_to_parquet(self) -> Spent:
        return self._to_parquet(self._floor())

    def _floor(self) -> DataFrame:
        return hub_floor.load(self.spark, self.rows)

    def _to_parquet(self, frame: DataFrame) -> Spent:
        out: list[Spent] = []
        with self.folder() as folder, self.measured(self.rows, out):
            frame.write.parquet(str(folder / "out"))
        return out[0]

    def stream_to_parquet(self) -> Spent:
        out: list[Spent] = []
        with self.folder() as folder, self.measured(self.rows, out):
            frame = (
                self.spark.readStream.format("jetstream").options(**self.hub.options, startingOffsets="earliest").load()
            )
            writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
            query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
        return out[0]

    def ingest(self, rows: int | None = None, commit: int | None = None) -> Spent:
        """Fused: tasks write the table's files, the driver commits them, all at once or `commit` rows at a time."""
        out: list[Spent] = []
        with self.folder() as folder:
            job = Ingest(self.spark, self.hub.config(folder, max_messages_per_commit=commit or rows or self.rows))
            with self.measured(rows or self.rows, out):
                job.run(once=True, report=lambda _: None)
            assert job.table.rows() == (rows or self.rows)
            job.close()
        return out[0]

    def small_batches_s(self) -> float:
        """Seconds from question to commit of a round of 100 rows, median of 20."""
        with self.folder() as folder:
            job = Ingest(self.spark, self.hub.config(folder, max_messages_per_commit=100))
            times = []
            for _ in range(20):
                begun = time.perf_counter()
                job.round()
                times.append(time.perf_counter() - begun)
            job.close()
            return statistics.median(times)

    def refine(self) -> Spent:
        """Bronze through silver to gold."""
        with self.folder() as folder:
            job, _, spent = self._refined(folder)
            job.close()
            return spent

    def _refined(self, folder: Path) -> tuple[Ingest, Aggregate, Spent]:
        config = self.hub.config(folder, max_messages_per_commit=2_000_000)
        job, aggregate = Ingest(self.spark, config), Aggregate(self.spark, config)
        job.run(once=True, report=lambda _: None)
        out: list[Spent] = []
        with self.measured(self.rows, out):
            done = aggregate.round()
        assert done.gold[0].rows == self.rows, done
        return job, aggregate, out[0]

    def late_s(self, hours: int, late: int) -> float:
        """Seconds to take in `late` rows spread over `hours` hours."""
        with self.folder() as folder:
            job, aggregate, _ = self._refined(folder)
            step_ms = hours * HOUR_MS // late

            def late_reading(number: int) -> bytes:
                return reading(number).replace(b'"at": ', b'"at": %d, "was": ' % (START_MS + number % late * step_ms))

            self.hub.fill(self.rows, late, late_reading)
            begun = time.perf_counter()
            job.run(once=True, report=lambda _: None)
            done = aggregate.round()
            spent = time.perf_counter() - begun
            assert done.gold[0].rows == late, done
            job.close()
            return spent


class Notes:
    """The table that grows."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def figure(self, peer: str, what: str, unit: str, figure: float) -> None:
        self.rows.setdefault(what, Row(what, unit)).figures.setdefault(peer, []).append(figure)
        text = f"{figure:,.3f}" if figure < 100 else f"{figure:,.0f}"
        console.print(f"{peer}: {what}: {text} {unit}")

    def spent(self, peer: str, what: str, spent: Spent) -> None:
        """A rate and what it cost."""
        millions = spent.rows / 1e6
        self.figure(peer, what, "rows/s", spent.rows / spent.clock_s)
        self.figure(peer, f"{what}: CPU of the broker", "s/M rows", spent.broker_s / millions)
        self.figure(peer, f"{what}: CPU of the readers", "s/M rows", spent.readers_s / millions)


@contextlib.contextmanager
def hub_of(kind: str) -> Iterator[Hub]:
    """A running broker with an empty stream."""
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        known = {child.pid for child in psutil.Process().children()}
        node = Node(kind, "bench", Path(folder))
        node.start()
        try:
            hub = Hub(node, known)
            hub.create()
            yield hub
        finally:
            node.stop()


def run(kind: str, spark: SparkSession, options: argparse.Namespace, notes: Notes) -> None:
    with hub_of(kind) as hub:
        begun = time.perf_counter()
        hub.fill(0, options.rows)
        console.print(
            f"{kind}: {options.rows:,} readings of {len(reading(1))} bytes in {time.perf_counter() - begun:.1f} s"
        )
        peers = {PACKED: hub.packed(), kind: hub} if kind == "eyotd" else {kind: hub}
        warm_up(spark, peers)
        for number in range(options.rounds):
            console.print(f"{kind}: round {number + 1} of {options.rounds}")
            for peer, seen in peers.items():
                bench = Bench(spark, seen, options.rows)
                notes.spent(peer, "reading into Arrow, one connection", bench.read_only())
                notes.spent(peer, "batch read, no sink", bench.batch_no_sink())
                notes.spent(peer, "batch read to Parquet", bench.batch_to_parquet())
                notes.spent(peer, "streaming read (availableNow), no sink", bench.stream_no_sink())
                notes.spent(peer, "streaming read (availableNow) to Parquet", bench.stream_to_parquet())
                notes.spent(peer, "tasks of ingest, no sink", bench.tasks_no_sink())
                notes.spent(peer, "fused ingest to Delta", bench.ingest())
                if not options.no_late:
                    notes.spent(peer, "bronze through silver to gold", bench.refine())
                notes.figure(peer, "round of 100 rows, median", "s", bench.small_batches_s())
            floor = Bench(spark, hub, options.rows)
            notes.spent(kind, "Spark's floor: rows made of nothing, no sink", floor.floor_no_sink())
            notes.spent(kind, "Spark's floor: rows made of nothing, to Parquet", floor.floor_to_parquet())
            notes.spent(kind, "nats-py to Parquet, no Spark", Bench(spark, hub, options.rows).nats_py())
        if not options.no_late:
            peer, seen = next(iter(peers.items()))
            late(Bench(spark, seen, options.rows), peer, notes)


def warm_up(spark: SparkSession, peers: dict[str, Hub]) -> None:
    """Every job once, not counted: the first to come would pay for the virtual machine's and the workers' start."""
    for hub in peers.values():
        bench = Bench(spark, hub, hub.messages())
        bench.floor_to_parquet()
        bench.batch_to_parquet()
        bench.stream_to_parquet()
        bench.ingest()
        bench.refine()


def late(bench: Bench, peer: str, notes: Notes) -> None:
    """What it takes to put right what 2,000 late readings change."""
    notes.figure(peer, f"2,000 late rows over 72 hours of {bench.rows:,} rows", "s", bench.late_s(72, 2000))


def only_late(kind: str, spark: SparkSession, rows: int, notes: Notes) -> None:
    with hub_of(kind) as hub:
        hub.fill(0, rows)
        peer, seen = (PACKED, hub.packed()) if kind == "eyotd" else (kind, hub)
        late(Bench(spark, seen, rows), peer, notes)


def grow(kind: str, spark: SparkSession, sizes: list[int], notes: Notes) -> None:
    """What a row costs when the stream holds more of them.

    The whole stream is ingested at each size, in commits of the same size, and once before that, which is not counted: what
    it costs to start workers is no row's.
    """
    with hub_of(kind) as hub:
        held = 0
        peers = {PACKED: hub.packed(), kind: hub} if kind == "eyotd" else {kind: hub}
        for size in sizes:
            hub.fill(held, size - held)
            for peer, seen in peers.items():
                bench = Bench(spark, seen, size)
                if not held:
                    bench.ingest(size, GROW_COMMIT)
                rounds = max(1, min(3, sizes[-1] // size))
                spent = [bench.ingest(size, GROW_COMMIT) for _ in range(rounds)]
                for one in spent:
                    notes.spent(peer, f"{size:,} rows in the stream", one)
            held = size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hub", choices=("eyotd", "nats-server"), action="append", help="only this broker (both)")
    parser.add_argument("--no-late", action="store_true", help="leave out silver and gold")
    parser.add_argument(
        "--grow", type=lambda text: [int(n) for n in text.split(",")], help="only: streams of N,M,... rows"
    )
    parser.add_argument("--late", action="store_true", help="only: late rows into a table of --rows")
    parser.add_argument("--write", type=Path, default=ROOT / "docs" / "measured-hub.md")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    kinds = options.hub or ["eyotd", "nats-server"]
    spark = session("bench", {"spark.master": f"local[{os.cpu_count()},4]"})
    register_source(spark)
    hub_floor.register(spark)
    spark.range(10).selectExpr("sum(id)").collect()
    notes = Notes()
    for kind in kinds:
        if options.grow:
            grow(kind, spark, options.grow, notes)
        elif options.late:
            only_late(kind, spark, options.rows, notes)
        else:
            run(kind, spark, options, notes)
    peers = [PACKED, *kinds] if "eyotd" in kinds else kinds
    table = markdown(list(notes.rows.values()), peers[0], peers[1:])
    console.print(table, soft_wrap=True)
    if options.no_write or (len(kinds) < 2 and not (options.grow or options.late)):
        return
    write(options, kinds, table)
    console.print(f"written to {options.write}")


def write(options: argparse.Namespace, kinds: list[str], table: str) -> None:
    """Each kind of measurement has a section of its own and leaves the others as they are."""
    versions = {
        kind: subprocess.run([executable(kind), "-v"], capture_output=True, text=True, check=True).stdout.strip()
        for kind in kinds
    }
    rounds = 1 if options.grow or options.late else options.rounds
    text = conditions(rounds, {**versions, "PySpark": pyspark.__version__, "PyArrow": pa.__version__})
    section = SECTION_GROW if options.grow else SECTION_LATE if options.late else SECTION_RATES
    write_section(options.write, section, f"{text}\n{table}")


if __name__ == "__main__":
    main()
