"""The data source `jetstream`: batch and streaming reads of JetStream streams, and the sink of `sink.py`.

The driver plans (`planning.py`), the tasks read ranges (`range_reader.py`) and yield Arrow batches. Filter pushdown is
left out deliberately: Spark 4.3 keeps pushed filters between queries on one DataFrame. The option `subjects` filters at
the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from eyot_hub import columns, offsets
from eyot_hub.admission import Admission
from eyot_hub.errors import OptionError
from eyot_hub.jetstream import StreamInfo
from eyot_hub.offsets import Position, Positions
from eyot_hub.options import SourceOptions, sink_options, source_options, table_options
from eyot_hub.planning import Planner, read_spans
from eyot_hub.range_reader import Piece, RangeReader, StreamRange
from eyot_hub.sink import JetStreamStreamWriter, JetStreamWriter

_TABLE_OPTIONS: Final = "jetstream.options"  # in the metadata of a table's first column


class JetStreamDataSource(DataSource):
    """`spark.read.format("jetstream")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType | str:
        of_table = table_options(self.options)
        options = source_options(self.options if of_table is None else of_table, streaming=None)
        if of_table is None:
            return columns.ddl(with_headers=options.read.include_headers, header_columns=options.read.header_columns)
        schema = from_arrow_schema(_columns_of(options))
        # Spark (4.3) does not pass a table's options to its readers, but passes its columns unchanged.
        schema.fields[0].metadata = {_TABLE_OPTIONS: json.dumps(of_table, sort_keys=True)}
        return schema

    def _given(self, schema: StructType) -> dict[str, str]:
        """Return the options of a read or write, merged over those of its table."""
        of_table = schema.fields[0].metadata.get(_TABLE_OPTIONS, "{}") if schema.fields else "{}"
        return {**json.loads(of_table), **self.options}

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self._given(schema))
        _check_schema(schema, options)
        return JetStreamReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self._given(schema), streaming=True)
        _check_schema(schema, options)
        return JetStreamStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("mode", "must be append: a stream cannot be overwritten")
        return JetStreamWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise OptionError("outputMode", "must be append or update: a stream cannot be overwritten")
        return JetStreamStreamWriter(sink_options(self.options), schema)


class JetStreamPartition(InputPartition):
    """One or more ranges of streams, read one after the other."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)


class JetStreamReader(DataSourceReader):
    """Batch reader: from startingOffsets to endingOffsets, with the streams' state at planning time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        try:
            return [JetStreamPartition(pieces) for pieces in planner.tasks(read_spans(planner))]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming reader: an offset is the last sequence of each stream, with the stream's creation time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._target: Positions | None = None  # for the trigger availableNow
        self._admission = Admission(options.limits)
        self._planned: Positions = {}  # the end of the last batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return offsets.to_json(self.planner.starting(self.planner.streams()))

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._admission.read_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends(self.planner.streams(must_exist=False))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = offsets.from_json(start)
        streams = self.planner.streams(must_exist=False)
        latest = self._ends(streams) if self._target is None else dict(self._target)
        firsts = {name: max(1, info.state.first_seq) for name, info in streams.items()}
        for name, at in begin.items():
            info = streams.get(name)
            if info is None:
                self.planner.lost_stream(name)
                latest[name] = at
                continue
            firsts[name] = self.planner.checked_start(info, at)
            same = at.created == info.created and firsts[name] > at.sequence
            if same and latest.get(name, at).sequence <= at.sequence:
                latest[name] = at
        if not isinstance(limit, ReadAllAvailable):  # Trigger.Once reads everything
            # Start at what the streams still hold, so that a limit counts existing messages; of a deleted stream it holds none.
            reading = {
                name: Position(firsts[name] - 1, streams[name].created) if name in streams else at
                for name, at in latest.items()
            }
            if self._target is None and self._admission.waits(reading, latest):
                self._planned = begin
                return start
            latest = self._admission.limited(reading, latest, streams)
        for name, at in latest.items():
            if at.row is None and name in streams and at != begin.get(name):
                latest[name] = self.planner.end(streams[name], at, begin.get(name))
        self._planned = latest
        return offsets.to_json(latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the streams end, with what the query has not read: `query.lastProgress` shows it."""
        streams = self.planner.streams(must_exist=False)
        found = offsets.to_json(self._ends(streams))
        for name, waiting in self.planner.waiting(streams, self._planned).items():
            found[name] |= waiting.as_json()
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, ends = offsets.from_json(start), offsets.from_json(end)
        self._planned = ends  # also of a batch that an earlier run of the query planned
        moved = {name: until for name, until in ends.items() if begin.get(name) != until}
        streams = self.planner.jetstream.streams(moved.keys())
        spans = []
        for name, until in moved.items():
            info = streams.get(name)
            if info is None:
                self.planner.lost_stream(name)
            elif info.created != until.created:
                self.planner.checked_start(info, until)
            else:
                first = self.planner.checked_start(info, begin.get(name))
                span = StreamRange(name, info.created, first, until.sequence)
                spans.append((span, self.planner.labels(info)))
        return [JetStreamPartition(pieces) for pieces in self.planner.tasks(spans)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    @staticmethod
    def _ends(streams: dict[str, StreamInfo]) -> Positions:
        return {name: Position(info.state.last_seq, info.created, info.last_row) for name, info in streams.items()}


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, JetStreamPartition):
        for piece in partition.pieces:
            yield from RangeReader(options.read, piece.span, piece.labels).batches()


def _columns_of(options: SourceOptions) -> pa.Schema:
    return columns.schema(with_headers=options.read.include_headers, header_columns=options.read.header_columns)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    expected = _columns_of(options).names
    if schema.fieldNames() != expected:
        raise OptionError("schema", f"cannot be chosen: the columns of jetstream are {', '.join(expected)}")
