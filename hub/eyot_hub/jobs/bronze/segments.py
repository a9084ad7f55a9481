"""The table `segments`: what `coverage.py` found in bronze so far, so that each run reads only new rows.

Bronze's rows never change, so a segment stays valid. Each run processes the rows beyond this table's positions and appends their
segments in one commit with the new positions. When joining neighbours would halve the table, it is rewritten. Segments
of another bronze table (a re-created table has another id) do not count and disappear at the next rewrite.

Retention removes rows of bronze, and their segments stay. What only rows can tell of them, namely whether a message
repeats an earlier one, is recorded here first (`decide`); retention removes no row before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.bronze.coverage import ORIGIN, Segment, Source, Spot, segments, spot
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.tables.increments import Streams, files_of, new_spans, ranges_of, streams_in
from eyot_hub.jobs.tables.table import LakeTable

SCHEMA: Final = pa.schema(
    [
        ("bronze", pa.string()),  # id of the bronze table
        ("kind", pa.string()),
        ("domain", pa.string()),
        ("name", pa.string()),
        ("stream", pa.string()),
        ("stream_created_ns", pa.int64()),
        ("hub_sequence", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("repeat", pa.bool_()),  # its first message repeats an earlier one; null: false
    ]
)
SEGMENTS: Final = "segments"
SLACK: Final = 1000  # extra segments that do not justify a rewrite
FILES_MAX: Final = 8  # of the table, before it is rewritten: every run reads all of them


class Segments:
    """All segments of a bronze table."""

    def __init__(self, spark: SparkSession, config: Config, bronze: LakeTable) -> None:
        self._spark = spark
        self._bronze = bronze
        self.table = open_table(config.lake, SEGMENTS, SCHEMA)
        self.rows_read = 0  # bronze rows read by the last `found`
        self._streams: Streams = []  # that the last `found` saw

    def found(self) -> list[Segment]:
        """Process new rows; return all segments, joined, in the order in which the hub stored them."""
        self.table.refresh()
        bronze = self._bronze
        held = [_segment(row) for row in self.table.to_pylist() if row["bronze"] == bronze.table_id]
        self._streams = streams_in(self._spark, bronze)
        spans = new_spans(
            self._streams,
            lambda *at: self.table.position(self._id(*at)),
            lambda *at: bronze.position(position_id(*at)),
        )
        self.rows_read = sum(span.until - span.after for span in spans)
        fresh = segments(self._spark, bronze, files_of(bronze, spans), ranges_of(spans)) if spans else []
        everything = joined([*held, *fresh])
        if spans:
            rewrite = len(held) + len(fresh) > 2 * len(everything) + SLACK or len(self.table.files()) >= FILES_MAX
            files = self._write(everything if rewrite else fresh)
            positions = {self._id(span.stream, span.created_ns): span.until for span in spans}
            self.table.commit(files, positions, self.table.files() if rewrite else ())
        return everything

    def decide(self, found: Iterable[Segment], repeats: Collection[Spot]) -> None:
        """Record which of the segments that `found` returned repeat earlier messages; nothing new: no commit.

        Raises Fenced when another job committed meanwhile.
        """
        positions = {}
        for at in self._streams:
            done = self.table.position(self._id(*at))
            if done is not None and self.table.position(decided_id(self._bronze.table_id, *at)) != done:
                positions[decided_id(self._bronze.table_id, *at)] = done
        known = list(found)
        marked = [
            one._replace(repeat=True) if one.source.kind == ORIGIN and spot(one) in repeats else one for one in known
        ]
        if marked != known:
            self.table.commit(self._write(marked), positions, self.table.files())
        elif positions:
            self.table.commit([], positions)

    def _id(self, stream: str, created_ns: int) -> str:
        return f"{self._bronze.table_id}/{position_id(stream, created_ns)}"

    def _write(self, found: Iterable[Segment]) -> list[Any]:
        rows = [
            {
                "bronze": self._bronze.table_id,
                **one.source._asdict(),
                **{k: v for k, v in one._asdict().items() if k != "source"},
            }
            for one in found
        ]
        writer = self.table.spec.writer()
        if rows:
            writer.write(pa.Table.from_pylist(rows, schema=SCHEMA), ())
        return writer.finish()


def decided_id(bronze: str, stream: str, created_ns: int) -> str:
    """Return the transaction id of the sequence up to which no row of the bronze table with this id is needed any more."""
    return f"{bronze}/{position_id(stream, created_ns)}/decided"


def joined(found: Iterable[Segment]) -> list[Segment]:
    """Join segments that continue where another one ended in the same stream."""
    order = sorted(found, key=lambda one: (one.source, one.stream_created_ns, one.stream, one.hub_sequence, one.first))
    result: list[Segment] = []
    for one in order:
        last = result[-1] if result else None
        if last is not None and _goes_on(last, one):
            result[-1] = last._replace(last=one.last, last_us=one.last_us)
        else:
            result.append(one)
    return sorted(result, key=lambda one: (one.stream_created_ns, one.stream, one.hub_sequence, one.first))


def _goes_on(last: Segment, one: Segment) -> bool:
    same = (last.source, last.stream, last.stream_created_ns) == (one.source, one.stream, one.stream_created_ns)
    return same and one.first == last.last + 1 and not one.repeat


def _segment(row: dict[str, Any]) -> Segment:
    values = {name: row[name] for name in Segment._fields if name != "source"} | {"repeat": bool(row["repeat"])}
    return Segment(source=Source(row["kind"], row["domain"], row["name"]), **values)
