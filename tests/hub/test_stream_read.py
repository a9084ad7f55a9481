"""spark.readStream.format("jetstream"): each message once across restarts, limits, and the error for lost data."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eyot_hub.progress import BatchProgress, ProgressListener, batch_progress, lag, oldest_s
from support.hub import streaming_queries
from support.hub.streams import Streams, numbered
from support.servers.nats_server import NatsServer


class Job:
    """A query from a stream to Parquet files, with its checkpoint."""

    def __init__(self, spark: SparkSession, streams: Streams, folder: Path, stream: str = "S", **options: Any) -> None:
        self.spark, self.folder = spark, folder
        self.options = {"servers": streams.url, "stream": stream, "startingOffsets": "earliest"}
        self.options |= {key: str(value) for key, value in options.items()}

    def start(self, **trigger: Any) -> StreamingQuery:
        rows = self.spark.readStream.format("jetstream").options(**self.options).load()
        numbers = rows.selectExpr("stream", "sequence", "cast(cast(payload as string) as bigint) as number")
        writer = numbers.writeStream.format("parquet").option("path", str(self.folder / "table"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def catch_up(self) -> StreamingQuery:
        return streaming_queries.catch_up(lambda: self.start(availableNow=True))

    def table(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "table"))

    def numbers(self) -> list[int]:
        return sorted(row["number"] for row in self.table().collect())

    def offsets(self) -> list[dict[str, Any]]:
        """The offsets of all batches in the checkpoint."""
        files = sorted((self.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[2]) for path in files]


def test_available_now_twice(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    info = streams.create("S", ["s"])
    streams.publish(numbered("s", 300))
    job = Job(spark, streams, tmp_path)
    job.catch_up()
    assert job.numbers() == list(range(300))
    job.catch_up()
    assert job.numbers() == list(range(300))
    streams.publish(numbered("s", 50, 300))
    query = job.catch_up()
    assert job.numbers() == list(range(350))
    last = {"created": info["created"], "sequence": 350, "row": 350, "stored": streams.state("S")["last_ts"]}
    assert job.offsets()[-1] == {"S": last}
    progress = query.lastProgress
    assert progress is not None
    assert lag(progress) == {"S": 0}
    assert streams.consumers("S") == 0


def test_a_limit_per_trigger_and_a_fixed_end(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for name in ("A", "B"):
        streams.create(name, [name.lower()])
    streams.publish(numbered("a", 90) + numbered("b", 30, 1000))
    job = Job(spark, streams, tmp_path, "A,B", maxOffsetsPerTrigger=40)
    told: list[BatchProgress] = []
    listener = ProgressListener(told.append)
    spark.streams.addListener(listener)
    query = job.catch_up()
    deadline = time.monotonic() + 60
    while len(told) < 3 and time.monotonic() < deadline:  # Spark's listeners are told later
        time.sleep(0.05)
    spark.streams.removeListener(listener)
    assert [(done.batch, done.rows, done.behind) for done in told] == [
        (0, 40, {"A": 60, "B": 20}),
        (1, 40, {"A": 30, "B": 10}),
        (2, 40, {"A": 0, "B": 0}),
    ]
    there = [(done.batch, done.rows, done.behind) for done in map(batch_progress, query.recentProgress)]
    assert there == [(done.batch, done.rows, done.behind) for done in told]
    assert "40 rows, " in str(told[0])
    assert str(told[0]).endswith("rows/s, A 60 behind, B 20 behind")
    assert job.numbers() == [*range(90), *range(1000, 1030)]
    sizes = [offset["A"]["sequence"] + offset["B"]["sequence"] for offset in job.offsets()]
    assert sizes == [40, 80, 120]


def test_a_limit_in_bytes(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 100))
    size = streams.state("S")["bytes"]
    job = Job(spark, streams, tmp_path, maxBytesPerTrigger=size // 3)
    job.catch_up()
    assert job.numbers() == list(range(100))
    assert [offset["S"]["sequence"] for offset in job.offsets()] == [33, 66, 99, 100]


def test_small_batches_wait_for_more(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 5))
    job = Job(spark, streams, tmp_path, minOffsetsPerTrigger=20, maxTriggerDelay="1h")
    query = streaming_queries.begin(lambda: job.start(processingTime="0 seconds"))
    assert len(job.offsets()) == 1
    streams.publish(numbered("s", 19, 5))
    time.sleep(1.0)  # many triggers, none of which may read
    assert [offset["S"]["sequence"] for offset in job.offsets()] == [5]
    streams.publish(numbered("s", 1, 24))
    wait_for(lambda: len(job.offsets()) == 2, query)
    query.processAllAvailable()
    query.stop()
    assert [offset["S"]["sequence"] for offset in job.offsets()] == [5, 25]
    assert job.numbers() == list(range(25))
    streams.publish(numbered("s", 1, 25))
    job.catch_up()
    assert job.numbers() == list(range(26)), "a query that ends reads what there is"


def test_progress_tells_what_waits_and_for_how_long(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for name in ("A", "B"):
        streams.create(name, [name.lower()])
    streams.publish(numbered("a", 40) + numbered("b", 1))
    time.sleep(0.2)
    query = Job(spark, streams, tmp_path, "A,B", maxOffsetsPerTrigger=21).catch_up()
    first, last = query.recentProgress[0], query.recentProgress[-1]
    told = json.loads(first.sources[0].latestOffset)
    assert told["A"]["behind"] == 20
    assert told["A"]["oldestSeconds"] >= 0.2
    assert oldest_s(first) == {"A": told["A"]["oldestSeconds"], "B": 0.0}
    assert (lag(last), oldest_s(last)) == ({"A": 0, "B": 0}, {"A": 0.0, "B": 0.0})


def wait_for(happened: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 60
    while not happened() and query.isActive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert happened(), query.exception()


def test_a_pattern_takes_in_new_streams(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("EDGE_1", ["e1"])
    streams.publish(numbered("e1", 5))
    job = Job(spark, streams, tmp_path, "EDGE_*", startingOffsets="latest")
    job.catch_up()
    streams.create("EDGE_2", ["e2"])
    streams.publish(numbered("e1", 5, 5) + numbered("e2", 5, 100))
    job.catch_up()
    assert job.numbers() == [*range(5, 10), *range(100, 105)]


def test_a_deleted_stream_takes_nothing_of_a_limit(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("EDGE_1", ["e1"])
    streams.create("EDGE_2", ["e2"])
    streams.publish(numbered("e1", 900) + numbered("e2", 10, 1000))
    job = Job(spark, streams, tmp_path, "EDGE_*", failOnDataLoss="false")
    job.catch_up()
    streams.delete("EDGE_1")
    streams.publish(numbered("e2", 100, 1010))
    job.options["maxOffsetsPerTrigger"] = "100"
    job.catch_up()
    assert job.numbers() == [*range(900), *range(1000, 1110)]
    ends = [{name: at["sequence"] for name, at in offset.items()} for offset in job.offsets()]
    assert ends == [{"EDGE_1": 900, "EDGE_2": 10}, {"EDGE_1": 900, "EDGE_2": 110}]


def test_messages_gone_while_the_query_was_stopped(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 20))
    job = Job(spark, streams, tmp_path)
    job.catch_up()
    streams.publish(numbered("s", 20, 20))
    streams.purge("S", below=31)
    with pytest.raises(StreamingQueryException, match=r"messages 21 to 30 of stream S are gone.*failOnDataLoss"):
        job.catch_up()
    assert job.numbers() == list(range(20))
    job.options["failOnDataLoss"] = "false"
    job.catch_up()
    assert job.numbers() == [*range(20), *range(30, 40)]


def test_a_stream_created_again(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 20))
    job = Job(spark, streams, tmp_path)
    job.catch_up()
    streams.delete("S")
    streams.create("S", ["s"])
    streams.publish(numbered("s", 30, 100))
    with pytest.raises(StreamingQueryException, match=r"stream S was created again at .* read up to 20"):
        job.catch_up()
    job.options["failOnDataLoss"] = "false"
    job.catch_up()
    assert job.numbers() == [*range(20), *range(100, 130)]


def test_the_query_goes_on_after_a_restart_of_the_server(
    spark: SparkSession, server: NatsServer, streams: Streams, tmp_path: Path
) -> None:
    streams.create("S", ["s"])
    streams.publish(numbered("s", 100))
    job = Job(spark, streams, tmp_path)
    query = streaming_queries.begin(lambda: job.start(processingTime="0 seconds"))
    try:
        server.kill()
        server.start()
        streams.publish(numbered("s", 100, 100))
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert job.numbers() == list(range(200))


def test_a_batch_that_was_not_committed_is_read_again(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    """The offsets of a batch are in the checkpoint, its commit is not: the same messages come, and nothing newer."""
    streams.create("S", ["s"])
    streams.publish(numbered("s", 50))
    job = Job(spark, streams, tmp_path)
    job.catch_up()
    for part in ("checkpoint/commits/0", "checkpoint/commits/.0.crc"):
        (tmp_path / part).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "table")
    streams.publish(numbered("s", 50, 50))
    job.catch_up()
    batches = [offset["S"]["sequence"] for offset in job.offsets()]
    assert batches == [50, 100]
    assert job.numbers() == list(range(100))
