"""Bronze: every message once, in spite of failures of the job, its folders and the server."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import DataLoss
from eyot_hub.jobs.bronze.bronze import Ingest, Round, bronze_table
from eyot_hub.jobs.config.config import Config
from support.hub.ingest_kills import Trial
from support.hub.job_process import is_worker
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered
from support.servers.nats_server import NatsServer


def ingest(spark: SparkSession, config: Config) -> list[Round]:
    rounds: list[Round] = []
    job = Ingest(spark, config)
    try:
        job.run(once=True, report=rounds.append)
    finally:
        job.close()
    return rounds


def numbers(spark: SparkSession, config: Config) -> list[int]:
    table = bronze_table(config)
    rows = table.dataframe(spark).selectExpr("cast(cast(payload as string) as bigint) as number").collect()
    return sorted(row["number"] for row in rows)


def test_rounds_and_reruns(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 250))
    config = jobs_config(streams.url, tmp_path, max_messages_per_commit=100, partitions=2, compact_every=2)
    rounds = ingest(spark, config)
    assert [done.rows for done in rounds] == [100, 100, 50]
    assert [done.behind for done in rounds] == [150, 50, 0]
    assert numbers(spark, config) == list(range(250))
    # There is no checkpoint: another machine with the same table goes on where it ends.
    assert ingest(spark, config) == []
    streams.publish(numbered("readings.a", 10, 250))
    assert [done.advanced for done in ingest(spark, config)] == [{"READINGS": (251, 260)}]
    assert numbers(spark, config) == list(range(260))
    assert streams.consumers("READINGS") == 0


def test_columns_of_bronze(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("ORIG", ["readings.>"])
    info = streams.create("READINGS", ["direct"], sources=[{"name": "ORIG"}])
    streams.publish([("readings.x", b"1", {"Nats-Msg-Id": "a"})])
    while not streams.state("READINGS")["messages"]:
        time.sleep(0.01)
    config = jobs_config(streams.url, tmp_path)
    ingest(spark, config)
    (row,) = Ingest(spark, config).table.dataframe(spark).collect()
    assert (row["stream"], row["sequence"], row["subject"]) == ("READINGS", 1, "readings.x")
    assert (row["origin_stream"], row["origin_sequence"]) == ("ORIG", 1)
    assert row["headers"]["Nats-Msg-Id"] == "a"
    assert row["date"] == row["stored_at"].date()
    assert str(row["stream_created_ns"])[-9:] in info["created"].rstrip("Z").replace(".", "").ljust(40, "0")


def test_retention_that_passed_the_reader(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 20))
    config = jobs_config(streams.url, tmp_path)
    ingest(spark, config)
    streams.publish(numbered("readings.a", 20, 20))
    streams.purge("READINGS", below=31)
    with pytest.raises(DataLoss, match="messages 21 to 30 of stream READINGS are gone"):
        ingest(spark, config)
    config = jobs_config(streams.url, tmp_path, fail_on_data_loss=False)
    ingest(spark, config)
    assert numbers(spark, config) == [*range(20), *range(30, 40)]


def test_a_stream_created_again(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 20))
    config = jobs_config(streams.url, tmp_path)
    ingest(spark, config)
    streams.delete("READINGS")
    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 30, 100))
    with pytest.raises(DataLoss, match=r"created again at .* read up to 20"):
        ingest(spark, config)
    config = jobs_config(streams.url, tmp_path, fail_on_data_loss=False)
    ingest(spark, config)
    assert numbers(spark, config) == [*range(20), *range(100, 130)]
    assert ingest(spark, config) == []


def test_a_stream_is_deleted_while_the_job_runs(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for name in ("A", "B"):
        streams.create(name, [name])
        streams.publish(numbered(name, 5))
    strict = Ingest(spark, jobs_config(streams.url, tmp_path / "strict", ["A", "B"]))
    lenient = Ingest(spark, jobs_config(streams.url, tmp_path / "lenient", ["A", "B"], fail_on_data_loss=False))
    for job in (strict, lenient):
        assert job.round().rows == 10
    streams.delete("A")
    streams.publish(numbered("B", 5, 5))
    with pytest.raises(DataLoss, match="stream A was deleted"):
        strict.round()
    assert lenient.round().advanced == {"B": (6, 10)}


def test_a_second_job_on_the_table_is_fenced(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 100))
    config = jobs_config(streams.url, tmp_path)
    slow, fast = Ingest(spark, config), Ingest(spark, config)
    write = slow._write

    def overtaken(*arguments: object) -> None:
        slow._write = write  # type: ignore[method-assign]
        fast.round()
        write(*arguments)  # type: ignore[arg-type]

    slow._write = overtaken  # type: ignore[method-assign]
    assert slow.round().advanced == {}
    assert numbers(spark, config) == list(range(100))
    files = {path.name for path in (tmp_path / "lake" / "bronze").rglob("*.parquet")}
    assert files == {Path(file.path).name for file in bronze_table(config).files()}


def test_the_server_restarts_while_tasks_read(
    spark: SparkSession, server: NatsServer, streams: Streams, tmp_path: Path
) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(("readings.a", b"%d" % number + b" " * 500) for number in range(60_000))
    config = jobs_config(streams.url, tmp_path, partitions=2, fetch_bytes="64k")
    job = Ingest(spark, config)

    def restart() -> None:
        while not streams.consumers("READINGS"):
            time.sleep(0.005)
        server.kill()
        server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    done = job.round()
    thread.join()
    assert done.rows == 60_000
    rows = job.table.dataframe(spark).selectExpr("count(*) as n", "count(distinct sequence) as d").first()
    assert rows is not None
    assert (rows["n"], rows["d"]) == (60_000, 60_000)


def test_workers_are_killed_while_they_read(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(("readings.a", b"%d" % number + b" " * 500) for number in range(60_000))
    job = Ingest(spark, jobs_config(streams.url, tmp_path, partitions=2, fetch_bytes="64k"))
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        """Kill one worker as soon as a task reads."""
        while not killed and not over.is_set():
            reading = streams.consumers("READINGS") > 0
            for process in psutil.Process().children(recursive=True) if reading else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if is_worker(process) and not killed:
                        process.kill()
                        killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    done = job.round()
    over.set()
    thread.join()
    assert killed
    assert done.rows == 60_000
    assert sum(file.rows for file in job.table.files()) == 60_000


def test_killed_at_any_moment(streams: Streams, tmp_path: Path) -> None:
    """A worker, the whole job, a worker of the next one. (support/hub/ingest_kills.py kills as often as it is told to.)"""
    trial = Trial(streams.url, tmp_path, seed=1, messages=6000, per_commit=250, wait_s_max=0.5)
    trial.run(["worker", "driver", "worker"])
    trial.check()
    assert trial.published >= 12_000


def test_plain_parquet(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    from eyot_hub.jobs.bronze.parquet import ingest_parquet

    streams.create("READINGS", ["readings.>"])
    streams.publish(numbered("readings.a", 50))
    config = jobs_config(streams.url, tmp_path, format="parquet", start="earliest")
    for _ in range(2):
        ingest_parquet(spark, config, once=True, stop=lambda: False)
    assert spark.read.parquet(config.folder("bronze")).count() == 50
    shutil.rmtree(config.folder("bronze-checkpoint"))
