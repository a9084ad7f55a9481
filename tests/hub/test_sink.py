"""df.write.format("jetstream"): rows become messages, and what is written again is not there twice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.errors import NoResponders
from support.hub import streaming_queries
from support.hub.job_process import is_worker
from support.hub.streams import Streams, numbered
from support.servers.nats_server import NatsServer


def write(frame: DataFrame, streams: Streams, **options: str) -> None:
    frame.write.format("jetstream").options(servers=streams.url, **options).mode("append").save()


def commands(spark: SparkSession, count: int) -> DataFrame:
    rows = spark.range(count, numPartitions=3)
    return rows.select(
        F.format_string("commands.device-%s", F.col("id") % 3).alias("subject"),
        F.format_string('{"set": %s}', F.col("id")).alias("payload"),
    )


def read(spark: SparkSession, streams: Streams, stream: str) -> DataFrame:
    return spark.read.format("jetstream").options(servers=streams.url, stream=stream).load()


def test_a_job_that_is_named_and_written_twice_is_stored_once(spark: SparkSession, streams: Streams) -> None:
    streams.create("COMMANDS", ["commands.>"])
    write(commands(spark, 600), streams, job="monday")
    assert streams.state("COMMANDS")["messages"] == 600
    write(commands(spark, 600), streams, job="monday")
    assert streams.state("COMMANDS")["messages"] == 600
    write(commands(spark, 600), streams, job="tuesday")
    assert streams.state("COMMANDS")["messages"] == 1200
    bodies = {bytes(row["payload"]) for row in read(spark, streams, "COMMANDS").collect()}
    assert bodies == {b'{"set": %d}' % number for number in range(600)}


def test_equal_rows_are_two_messages(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s"])
    rows = spark.createDataFrame([("same",), ("same",), ("other",)], "payload string").coalesce(1)
    write(rows, streams, subject="s")
    assert streams.state("S")["messages"] == 3


def test_a_frame_that_is_written_again_is_stored_again(spark: SparkSession, streams: Streams) -> None:
    """A command that is given twice within the duplicate window is two commands; a task that runs again is not."""
    streams.create("S", ["s"])
    rows = spark.createDataFrame([("open",), ("close",)], "payload string").repartition(2)
    for written in (1, 2, 3):
        write(rows, streams, subject="s")
        assert streams.state("S")["messages"] == 2 * written

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ends after its first batch the first time that it runs."""
        for number, batch in enumerate(batches):
            context = TaskContext.get()
            assert context is not None
            if number and not context.attemptNumber():
                raise RuntimeError("the task fails half-way")
            yield batch

    streams.create("T", ["t"])
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        numbers = spark.range(400, numPartitions=2).selectExpr("cast(id as string) as payload")
        write(numbers.mapInArrow(failing, "payload string"), streams, subject="t", maxInFlight="10")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert streams.state("T")["messages"] == 400


def test_headers_and_given_ids(spark: SparkSession, streams: Streams) -> None:
    streams.create("S", ["s.>"])
    rows = spark.createDataFrame(
        [
            ("s.a", b"\x00\x01", {"Kind": "set", "Größe": "klein"}, "id-1"),
            ("s.b", None, None, "id-2"),
            ("s.c", b"x", None, "id-1"),
        ],
        "subject string, payload binary, headers map<string,string>, msg_id string",
    ).coalesce(1)
    write(rows, streams, expectStream="S")
    first, second = read(spark, streams, "S").orderBy("sequence").collect()
    assert (first["subject"], bytes(first["payload"])) == ("s.a", b"\x00\x01")
    assert first["headers"] == {"Kind": "set", "Größe": "klein", "Nats-Msg-Id": "id-1", "Nats-Expected-Stream": "S"}
    assert (second["subject"], bytes(second["payload"])) == ("s.b", b"")


def test_workers_are_killed_while_they_publish(spark: SparkSession, streams: Streams) -> None:
    """Spark runs the task again; what was published is not stored twice. (support/hub/sink_kills.py kills drivers, too.)"""
    streams.create("S", ["s"])
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not killed and not over.is_set():
            publishing = streams.state("S")["messages"] > 0
            for process in psutil.Process().children(recursive=True) if publishing else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if is_worker(process) and not killed:
                        process.kill()
                        killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    rows = spark.range(60_000, numPartitions=2).selectExpr("cast(id as string) as payload")
    write(rows, streams, subject="s")
    over.set()
    thread.join()
    assert killed
    assert streams.state("S")["messages"] == 60_000


def test_a_streaming_query_writes_each_row_once(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("IN", ["in"])
    streams.create("OUT", ["out"])

    def copy() -> None:
        rows = (
            spark.readStream.format("jetstream")
            .options(servers=streams.url, stream="IN", startingOffsets="earliest")
            .load()
        )
        writer = (
            rows.select("payload")
            .writeStream.format("jetstream")
            .options(servers=streams.url, subject="out", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        streaming_queries.catch_up(writer.start)

    streams.publish(numbered("in", 100))
    copy()
    # A batch whose commit was lost is run again.
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    copy()
    assert streams.state("OUT")["messages"] == 100
    # The same content in a later batch is something new.
    streams.publish(numbered("in", 10))
    copy()
    assert streams.state("OUT")["messages"] == 110


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("'s' AS subject", {}, "column 'payload' is missing"),
        ("'x' AS payload", {}, "option 'subject' is missing"),
        ("'s' AS subject, 'x' AS payload", {"subject": "s"}, "option 'subject' and a column of that name"),
        ("'s' AS subject, 1 AS payload", {}, "column 'payload' has type int; it must be binary or string"),
        ("'s' AS subject, 'x' AS payload, 1 AS size", {}, "column 'size' is not one of the sink's"),
        ("'s.*' AS subject, 'x' AS payload", {}, "is not a valid subject"),
        ("'none' AS subject, 'x' AS payload", {"timeout": "2s"}, "no stream stores messages on none"),
        ("'x' AS payload", {"subject": "s", "expectStream": "T"}, "expected stream does not match"),
        ("'x' AS payload, map('a', 1) AS headers", {"subject": "s"}, "has type map<string,int>; its values must be"),
        ("'x' AS payload, map('a b\\n', 'c') AS headers", {"subject": "s"}, "cannot be a header"),
    ],
)
def test_what_cannot_be_published(
    spark: SparkSession, streams: Streams, columns: str, options: dict[str, Any], problem: str
) -> None:
    streams.create("S", ["s"])
    with pytest.raises(PySparkException, match=problem):
        write(
            spark.range(1).selectExpr(*[part.strip() for part in columns.split(", ") if part])
            if "map(" not in columns
            else spark.sql(f"SELECT {columns}"),
            streams,
            **options,
        )
    assert streams.state("S")["messages"] == 0


def test_a_stream_cannot_be_overwritten(spark: SparkSession, streams: Streams) -> None:
    with pytest.raises(PySparkException, match=r"cannot be overwritten|append"):
        commands(spark, 1).write.format("jetstream").option("servers", streams.url).mode("overwrite").save()


def test_a_connection_that_breaks_meanwhile(server: NatsServer, streams: Streams) -> None:
    """What was not acknowledged is published again over another connection, and stored once."""
    from eyot_hub.connection import ConnectOptions
    from eyot_hub.publisher import Publisher
    from eyot_wire import headers

    streams.create("S", ["s"])
    publisher = Publisher(ConnectOptions((streams.url,), retry_s=30.0), 4096)
    for number in range(3000):
        publisher.publish(b"s", headers.build(fields=[("Nats-Msg-Id", str(number))]), b"x")
        if number in (1000, 2000):
            assert publisher._connection is None or publisher._connection.sock.fileno() >= 0
            if publisher._connection is not None:
                publisher._connection.sock.shutdown(2)
        if number == 2500:
            server.kill()
            server.start()
    publisher.flush()
    publisher.close()
    assert streams.state("S")["messages"] == 3000
    assert publisher.stored + publisher.duplicates == 3000


def test_a_stream_that_comes_back(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server restarts, a leader is elected or a link is away, no stream takes messages; each is stored once afterwards."""
    from eyot_hub import publisher as module
    from eyot_hub.connection import ConnectOptions
    from eyot_wire import headers

    streams.create("S", ["s"])
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            streams.create("LATE", ["late"])

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pause))
    publisher = module.Publisher(ConnectOptions((streams.url,)), 4096)
    for number in range(100):
        subject = b"late" if number % 10 == 0 else b"s"
        publisher.publish(subject, headers.build(fields=[("Nats-Msg-Id", str(number))]), b"x")
    publisher.flush()
    assert (len(pauses), streams.state("S")["messages"], streams.state("LATE")["messages"]) == (3, 90, 10)
    assert publisher.stored + publisher.duplicates == 100
    # One that stays away ends the write, and takes no more of the time of others.
    publisher.publish(b"s", b"", b"x")
    publisher.publish(b"gone", b"", b"x")
    with pytest.raises(NoResponders, match="no stream stores messages on gone"):
        publisher.flush()
    assert sum(pauses[3:]) == module.NO_STREAM_S_MAX
    publisher.close()


def test_a_message_larger_than_the_server_takes(streams: Streams) -> None:
    """Refused at once, not after the connection was ended again and again."""
    from eyot_hub.connection import ConnectOptions
    from eyot_hub.errors import HubError
    from eyot_hub.publisher import Publisher

    streams.create("S", ["s"])
    publisher = Publisher(ConnectOptions((streams.url,)), 4096)
    publisher.publish(b"s", b"", b"x")
    publisher.flush()
    with pytest.raises(HubError, match="a message of 1048577 bytes on s: the server's max_payload is 1048576"):
        publisher.publish(b"s", b"", bytes(1048577))
    publisher.close()
    assert streams.state("S")["messages"] == 1
