"""A stream whose end moved back (a power cut of the server, a restored backup): no reader loses messages silently."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from eyot_hub.errors import DataLoss
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.bronze.gaps import Gaps
from eyot_hub.jobs.config.config import Config
from support.hub import streaming_queries
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered
from support.servers.nats_server import NatsServer

CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""
OLD, KEPT = 200, 100


class Story:
    """A stream S that is read up to 200; then its store is put back to where it ended at 100."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.streams = Streams(server.client_port)
        self.streams.create("S", ["s"])
        self.streams.publish(numbered("s", KEPT))
        self._saved = server.workdir / "saved"
        self._stopped(lambda: shutil.copytree(server.workdir / "js", self._saved))
        self.streams.publish(numbered("s", OLD - KEPT, KEPT))

    def move_back(self, others: int) -> None:
        """Put the store back; then `others` messages (from 1000) are stored."""

        def put_back() -> None:
            shutil.rmtree(self.server.workdir / "js")
            shutil.copytree(self._saved, self.server.workdir / "js")

        self._stopped(put_back)
        assert self.streams.state("S")["last_seq"] == KEPT
        self.streams.publish(numbered("s", others, 1000))

    def _stopped(self, act: object) -> None:
        self.server.stop()
        act()  # type: ignore[operator]
        self.server.start()


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with NatsServer(CONFIG, tmp_path / "server") as running:
        yield Story(running)


def ingest(spark: SparkSession, config: Config) -> None:
    job = Ingest(spark, config)
    try:
        job.run(once=True, report=lambda _: None)
    finally:
        job.close()


def numbers(spark: SparkSession, config: Config) -> list[int]:
    rows = Ingest(spark, config).table.dataframe(spark).selectExpr("cast(cast(payload as string) as bigint) as number")
    return sorted(row["number"] for row in rows.collect())


# The stream's end is below what was read, at it, and beyond it.
OTHERS = pytest.mark.parametrize("others", [0, 50, 100, 150])


@OTHERS
def test_ingest_and_gaps(spark: SparkSession, story: Story, tmp_path: Path, others: int) -> None:
    strict = jobs_config(story.streams.url, tmp_path, ["S"])
    ingest(spark, strict)
    assert not Gaps(spark, strict).run().bad
    story.move_back(others)
    with pytest.raises(DataLoss, match="end moved back"):
        ingest(spark, strict)
    assert Gaps(spark, strict).run().bad
    lenient = jobs_config(story.streams.url, tmp_path, ["S"], fail_on_data_loss=False)
    ingest(spark, lenient)
    assert numbers(spark, lenient) == [*range(OLD), *range(1000, 1000 + others)]
    # From now on it is as any other stream.
    ingest(spark, strict)
    story.streams.publish(numbered("s", 5, 2000))
    ingest(spark, strict)
    assert numbers(spark, strict) == [*range(OLD), *range(1000, 1000 + others), *range(2000, 2005)]
    report = Gaps(spark, strict).run()
    assert [(gap.first, gap.last, gap.status) for gap in report.gaps] == []


@OTHERS
@pytest.mark.parametrize("limit", ["", "60"])
def test_a_streaming_query(spark: SparkSession, story: Story, tmp_path: Path, others: int, limit: str) -> None:
    options = {"servers": story.streams.url, "stream": "S", "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": limit} if limit else {}

    def catch_up(lossy: bool = False) -> None:
        rows = spark.readStream.format("jetstream").options(**options, failOnDataLoss=str(not lossy)).load()
        writer = rows.selectExpr("cast(cast(payload as string) as bigint) as number").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "table")).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        streaming_queries.catch_up(writer.trigger(availableNow=True).start)

    def found() -> list[int]:
        return sorted(row["number"] for row in spark.read.parquet(str(tmp_path / "table")).collect())

    catch_up()
    assert found() == list(range(OLD))
    story.move_back(others)
    with pytest.raises(StreamingQueryException, match="end moved back"):
        catch_up()
    catch_up(lossy=True)
    story.streams.publish(numbered("s", 5, 2000))
    catch_up()
    assert found() == [*range(OLD), *range(1000, 1000 + others), *range(2000, 2005)]
