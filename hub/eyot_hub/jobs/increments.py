"""Which rows of a table another table has not taken in yet, by the positions of streams.

Bronze grows by ascending sequences of each stream, and silver's rows keep stream and sequence, so "the rows of stream S above
sequence N" is exactly what is new, whatever files they lie in and however often those were compacted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.compaction import TableFile
from eyot_hub.jobs.table import LakeTable

Streams: TypeAlias = list[tuple[str, int]]  # name and time of creation in ns


@dataclass(frozen=True)
class Span:
    """Rows of one stream (as created then) with `after < sequence <= until`."""

    stream: str
    created_ns: int
    after: int
    until: int

    def __str__(self) -> str:
        return f"{self.stream} {self.after + 1}..{self.until}"

    def holds(self) -> Column:
        """The condition on rows."""
        return (
            (F.col("stream") == self.stream)
            & (F.col("stream_created_ns") == self.created_ns)
            & (F.col("sequence") > self.after)
            & (F.col("sequence") <= self.until)
        )

    def may_lie_in(self, file: TableFile) -> bool:
        """Whether the file's statistics leave room for such rows."""
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
    """Streams that the table has rows of, each with its time of creation."""
    found: set[tuple[str, int]] = set()
    unclear: list[TableFile] = []
    for file in table.files():
        least, most = file.least.get("stream_created_ns"), file.most.get("stream_created_ns")
        if "stream" in file.partition and least is not None and least == most:
            found.add((file.partition["stream"], least))
        else:
            unclear.append(file)
    if unclear:
        rows = table.dataframe(spark, unclear).select("stream", "stream_created_ns").distinct().collect()
        found |= {(row["stream"], row["stream_created_ns"]) for row in rows}
    return sorted(found)


def new_spans(
    streams: Streams,
    have: Callable[[str, int], int | None],
    target: Callable[[str, int], int | None],
) -> list[Span]:
    """What lies between the positions `have` of the table that is filled and `target` of the one it is filled from."""
    spans = []
    for stream, created_ns in streams:
        after, until = have(stream, created_ns) or 0, target(stream, created_ns) or 0
        if until > after:
            spans.append(Span(stream, created_ns, after, until))
    return spans


def limited(spans: list[Span], rows: int) -> list[Span]:
    """The first of the spans' rows: from each in proportion, `rows` together."""
    total = sum(span.until - span.after for span in spans)
    if total <= rows:
        return spans
    return [replace(span, until=span.after - (span.after - span.until) * rows // total) for span in spans]


def in_spans(spans: list[Span]) -> Column:
    """Whether a row lies in one of the spans."""
    return reduce(lambda a, b: a | b, [span.holds() for span in spans], F.lit(False))


def rows_of(spark: SparkSession, table: LakeTable, spans: list[Span]) -> DataFrame:
    """The rows of all spans; only files that may hold some are read."""
    files = [file for file in table.files() if any(span.may_lie_in(file) for span in spans)]
    return table.dataframe(spark, files).where(in_spans(spans))
