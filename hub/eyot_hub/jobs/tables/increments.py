"""Which rows of a table another table has not processed yet, by the positions of streams.

Bronze grows by ascending sequences of each stream, and silver's rows keep stream and sequence. "The rows of stream S
above sequence N" is therefore exactly what is new, whatever files hold the rows and however often these were compacted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub.jobs.tables.file_rows import Range
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

DESCRIBED_MAX: Final = 10
_STREAM: Final = ("stream", "stream_created_ns")
Streams: TypeAlias = list[tuple[str, int]]  # name and creation time in ns


@dataclass(frozen=True)
class Span:
    """Rows of one stream (created at that time) with `after < sequence <= until`."""

    stream: str
    created_ns: int
    after: int
    until: int

    def __str__(self) -> str:
        return f"{self.stream} {self.after + 1}..{self.until}"

    def holds(self, stream: str, created_ns: int, sequence: int) -> bool:
        """Return whether a row is one of these."""
        return (stream, created_ns) == (self.stream, self.created_ns) and self.after < sequence <= self.until

    def may_lie_in(self, file: TableFile) -> bool:
        """Return whether the file's statistics allow for such rows."""
        if file.partition.get("stream", self.stream) != self.stream:
            return False
        least, most = file.least, file.most
        if not _within(self.created_ns, least.get("stream_created_ns"), most.get("stream_created_ns")):
            return False
        first, last = least.get("sequence"), most.get("sequence")
        return first is None or last is None or (first <= self.until and last > self.after)


def _within(value: int, least: int | None, most: int | None) -> bool:
    return least is None or most is None or least <= value <= most


def streams_in(spark: SparkSession, table: LakeTable) -> Streams:
    """Return the streams that the table has rows of, each with its creation time."""
    found: set[tuple[str, int]] = set()
    unclear: list[TableFile] = []
    for file in table.files():
        least, most = file.least.get("stream_created_ns"), file.most.get("stream_created_ns")
        if "stream" in file.partition and least is not None and least == most:
            found.add((file.partition["stream"], least))
        else:
            unclear.append(file)
    if unclear:
        found |= set(table.collected(spark, _streams_of_task, unclear, _STREAM))
    return sorted(found)


def _streams_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int]]:
    """Return the streams of some files' rows."""
    found = set[tuple[str, int]]()
    for batch in batches:
        distinct = pa.Table.from_batches([batch]).group_by(list(_STREAM), use_threads=False).aggregate([])
        found.update(zip(*(distinct.column(name).to_pylist() for name in _STREAM), strict=True))
    return iter(found)


def new_spans(
    streams: Streams,
    have: Callable[[str, int], int | None],
    target: Callable[[str, int], int | None],
) -> list[Span]:
    """Return the spans between `have`, the position of the filled table, and `target`, that of its input."""
    spans = []
    for stream, created_ns in streams:
        after, until = have(stream, created_ns) or 0, target(stream, created_ns) or 0
        if until > after:
            spans.append(Span(stream, created_ns, after, until))
    return spans


def limited(spans: list[Span], rows: int) -> list[Span]:
    """Return the beginnings of the spans, `rows` together, divided in proportion."""
    total = sum(span.until - span.after for span in spans)
    if total <= rows:
        return spans
    return [replace(span, until=span.after - (span.after - span.until) * rows // total) for span in spans]


def ranges_of(spans: list[Span]) -> dict[str, list[Range]]:
    """Return the wanted rows by stream."""
    ranges: dict[str, list[Range]] = defaultdict(list)
    for span in spans:
        ranges[span.stream].append(Range(span.created_ns, span.after, span.until))
    return dict(ranges)


def files_of(table: LakeTable, spans: list[Span]) -> list[TableFile]:
    """Return the table's files that may hold rows of the spans."""
    by_stream: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_stream[span.stream].append(span)
    found = []
    for file in table.files():
        near = by_stream.get(file.partition["stream"], []) if "stream" in file.partition else spans
        if any(span.may_lie_in(file) for span in near):
            found.append(file)
    return found


def described(spans: list[Span]) -> str:
    """Describe the first spans, and their number."""
    more = f" and {len(spans) - DESCRIBED_MAX} more" if len(spans) > DESCRIBED_MAX else ""
    return ", ".join(map(str, spans[:DESCRIBED_MAX])) + more
