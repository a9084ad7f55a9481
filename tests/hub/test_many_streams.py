"""A thousand streams, each with a position: every job behind bronze does its work, and the next round has nothing to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import DataLoss
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.bronze.bronze import PARTITION_BY, SCHEMA, Ingest, bronze_table, position_id
from eyot_hub.jobs.bronze.bronze_task import Work, write_pieces
from eyot_hub.jobs.bronze.coverage import coverage
from eyot_hub.jobs.bronze.segments import Segments
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.increments import Span, files_of, ranges_of, streams_in
from eyot_hub.planning import Piece, Planner
from eyot_hub.range_reader import StreamRange
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams
from support.hub.truth import NEW_YEAR_MS

STREAMS = 1000
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def fill(config: Config, first: int, last: int) -> None:
    """Sequences `first` to `last` of every stream; each is one reading of a device of the stream's name."""
    table = bronze_table(config)
    files: list[DataFile] = []
    positions = {}
    schema = pa.schema([field for field in SCHEMA if field.name not in PARTITION_BY])
    for number in range(STREAMS):
        name = f"DEVICE_{number:04}"
        rows = [
            {
                "stream_created_ns": number + 1,
                "sequence": sequence,
                "subject": f"readings.{name}",
                "payload": json.dumps(
                    {"device": name, "metric": "m", "at": NEW_YEAR_MS + sequence, "value": float(sequence)}
                ).encode(),
                "stored_at": DAY,
                "domain": "hub",
            }
            for sequence in range(first, last + 1)
        ]
        writer = table.spec.writer()
        writer.write(pa.Table.from_pylist(rows, schema=schema), (("stream", name), ("date", "2026-01-01")))
        files += writer.finish()
        positions[position_id(name, number + 1)] = last
    table.commit(files, positions)


def test_small_streams_share_tasks(
    spark: SparkSession, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row once; and when a stream of a task fails, no file of the others stays."""
    names = [f"EDGE_{number}" for number in range(30)]
    for number, name in enumerate(names):
        streams.create(name, [f"edge.{number}"])
        streams.publish([(f"edge.{number}", b"1"), (f"edge.{number}", b"2")])
    job = Ingest(spark, jobs_config(streams.url, tmp_path, ["EDGE_*"]))
    groups = []

    def tasks(*given: Any) -> list[list[Piece]]:
        groups.append(Planner.tasks(job._planner, *given))
        return groups[-1]

    monkeypatch.setattr(job._planner, "tasks", tasks)
    assert job.round().rows == 60
    streams.publish([("edge.7", b"3"), ("edge.9", b"3")])
    done = job.round()
    assert (done.rows, done.advanced) == (2, {"EDGE_7": (3, 3), "EDGE_9": (3, 3)})
    assert job.round().rows == 0
    assert [len(one) for one in groups] == [2, 2]  # as many as the session has cores
    rows = [(row["stream"], row["sequence"]) for row in job.table.dataframe(spark).collect()]
    expected = {(name, sequence) for name in names for sequence in (1, 2)} | {("EDGE_7", 3), ("EDGE_9", 3)}
    assert (len(rows), set(rows)) == (62, expected)
    read, files = job._planner.options.read, len(list((tmp_path / "lake").rglob("*.parquet")))
    group = [Work(piece, 1) for piece in groups[0][0]]
    again = StreamRange("EDGE_0", "2001-01-01T00:00:00Z", 1, 2)
    with pytest.raises(DataLoss, match="created again"):
        write_pieces(read, job.table.spec, [*group[:3], Work(Piece(again, group[0].piece.labels), 1)])
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == files
    job.close()


def test_a_thousand_positions(spark: SparkSession, tmp_path: Path) -> None:
    config = jobs_config("nats://127.0.0.1:1", tmp_path, ["*"])
    fill(config, 1, 2)
    jobs = Aggregate(spark, config)
    done = jobs.round()
    assert (done.silver[0].added, done.gold[0].windows) == (2 * STREAMS, STREAMS)
    assert not jobs.round().busy
    fill(config, 3, 3)
    done = jobs.round()
    assert (done.silver[0].added, done.gold[0].corrected) == (STREAMS, STREAMS)
    # Streams at different places.
    bronze = bronze_table(config)
    streams = streams_in(spark, bronze)
    spans = [Span(name, created_ns, number % 3, 3) for number, (name, created_ns) in enumerate(streams)]
    rows = bronze.dataframe(spark, files_of(bronze, spans), ranges=ranges_of(spans))
    assert rows.count() == sum(3 - span.after for span in spans)
    segments = Segments(spark, config, bronze)
    found = coverage(segments.found(), lambda: bronze.dataframe(spark))
    assert sum(epoch.count for epochs in found.epochs.values() for epoch in epochs) == 3 * STREAMS
