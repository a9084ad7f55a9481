"""A JSON of offsets that does not fit the streams: a sequence beyond the end, or a stream that is not read."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import OptionError
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.options import SourceOptions, source_options
from eyot_hub.planning import Planner, read_spans
from eyot_hub.source import JetStreamStreamReader
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered


def given(streams: Streams, *, streaming: bool = False, **options: Any) -> SourceOptions:
    texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
    return source_options({"servers": streams.url, **texts}, streaming=streaming)


def batch(options: SourceOptions) -> list[tuple[str, int, int]]:
    planner = Planner(options)
    try:
        return [(span.stream, span.first_seq, span.last_seq) for span, _ in read_spans(planner)]
    finally:
        planner.close()


def begins(options: SourceOptions) -> dict[str, int]:
    reader = JetStreamStreamReader(options)
    try:
        return {name: at["sequence"] for name, at in reader.initialOffset().items()}
    finally:
        reader.stop()


@pytest.fixture
def filled(streams: Streams) -> Streams:
    streams.create("S", ["s"])
    streams.create("EMPTY", ["empty"])
    streams.publish(numbered("s", 12))
    return streams


@pytest.mark.parametrize(("stream", "first", "last"), [("S", 14, 12), ("S", 1000, 12), ("EMPTY", 2, 0)])
def test_beyond_the_end(filled: Streams, caplog: pytest.LogCaptureFixture, stream: str, first: int, last: int) -> None:
    what = f"begins beyond the end of stream {stream}: at {first}, and its last message is {last}"
    options: dict[str, Any] = {"stream": stream, "startingOffsets": {stream: first}}
    for streaming, start in ((False, batch), (True, begins)):
        with pytest.raises(OptionError, match=rf"^option 'startingOffsets' {what}"):
            start(given(filled, streaming=streaming, **options))
    options["failOnDataLoss"] = "false"
    with caplog.at_level(logging.WARNING, "eyot_hub"):
        assert all(first > last for _, first, last in batch(given(filled, **options)))
        assert begins(given(filled, streaming=True, **options)) == {stream: last}
    assert what in caplog.text


@pytest.mark.parametrize(("stream", "first"), [("S", 13), ("EMPTY", 1), ("EMPTY", 0)])
def test_at_the_end(filled: Streams, stream: str, first: int) -> None:
    """Where a reader ended, the next one may begin before there is anything new."""
    options = {"stream": stream, "startingOffsets": {stream: first}}
    assert all(first > last for _, first, last in batch(given(filled, **options)))
    assert begins(given(filled, streaming=True, **options)) == {stream: max(0, first - 1)}


@pytest.mark.parametrize("which", [{"stream": "S"}, {"stream": "S*"}, {"subscribePattern": "S.*"}])
def test_a_stream_that_is_not_read(filled: Streams, which: dict[str, str]) -> None:
    unknown = {"S": 1, "T": 5, "OTHER": "latest"}
    for bound in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OptionError, match=rf"option '{bound}' names streams that are not read: OTHER, T$"):
            batch(given(filled, **which, **{bound: unknown}))
    with pytest.raises(OptionError, match=r"option 'startingOffsets' names streams that are not read: OTHER, T$"):
        begins(given(filled, streaming=True, **which, startingOffsets=unknown))


def test_ingest(spark: SparkSession, filled: Streams, tmp_path: Path) -> None:
    """Only an empty table needs the option: later, a stream that it names may be gone."""

    def rows(*names: str, start: dict[str, int | str]) -> int:
        job = Ingest(
            spark, jobs_config(filled.url, tmp_path, list(names), start=json.dumps(start), fail_on_data_loss=False)
        )
        try:
            job.run(once=True, report=lambda _: None)
            return job.table.rows()
        finally:
            job.close()

    with pytest.raises(OptionError, match=r"names streams that are not read: T$"):
        rows("S*", start={"S": 11, "T": 1})
    filled.create("S2", ["s2"])
    filled.publish(numbered("s2", 5))
    start: dict[str, int | str] = {"S": 11, "S2": 5}
    assert rows("S*", start=start) == 3
    filled.delete("S2")
    filled.create("S3", ["s3"])
    filled.publish(numbered("s3", 4))
    assert rows("S*", start=start) == 3 + 4
