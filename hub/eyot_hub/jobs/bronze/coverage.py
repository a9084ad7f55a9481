"""Which sequences of which origin the bronze table holds, as ranges.

Tasks convert rows to segments (consecutive sequences of one origin). The driver therefore receives data in proportion
to origins and gaps, not to the table; `segments.py` keeps the segments. The driver joins segments to islands in the
order in which the hub stored them.

An origin whose stream was deleted and created again restarts at sequence 1. Within one stream of the hub, an origin's
sequences only ascend. A step back therefore starts a new epoch of the origin, unless the message repeats an earlier one
(equal subject and payload). Streams of the hub are treated alike; their creation time distinguishes their epochs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eyot_hub.jobs.bronze.bronze import EPOCHS_MAX
from eyot_hub.jobs.tables.file_rows import Range
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

ORIGIN: Final = "origin"
STREAM: Final = "stream"
Spot: TypeAlias = tuple[str, int, int]  # a stream, its creation time, and a sequence in it
_KEY: Final = ("kind", "domain", "name", "stream", "stream_created_ns")
#: Columns that segments are computed from.
SEGMENT_COLUMNS: Final = (
    "stream",
    "stream_created_ns",
    "sequence",
    "stored_at",
    "domain",
    "origin_domain",
    "origin_stream",
    "origin_sequence",
)
#: Columns that identify a repeated message.
REPEAT_COLUMNS: Final = (*SEGMENT_COLUMNS, "subject", "payload")


class Source(NamedTuple):
    """A source of sequences: an origin, or (kind `stream`) a stream of the hub itself."""

    kind: str
    domain: str
    name: str


class Segment(NamedTuple):
    """Consecutive sequences of a source within one stream of the hub; times in microseconds since 1970."""

    source: Source
    stream: str
    stream_created_ns: int
    hub_sequence: int  # of the first message
    first: int
    last: int
    first_us: int
    last_us: int
    repeat: bool = False  # an earlier run found that its first message repeats an earlier one


@dataclass
class Island:
    """A range without holes, with the hub's stored times of its first and last message."""

    first: int
    last: int
    first_us: int
    last_us: int


@dataclass
class Epoch:
    """One epoch of a source: its islands in ascending order."""

    number: int
    islands: list[Island] = field(default_factory=list)
    created_ns: int | None = None  # set for the hub's own streams
    continues: bool = False  # the stream's end moved back: the epoch begins where the previous one was cut off

    def covers(self, sequence: int) -> bool:
        return any(island.first <= sequence <= island.last for island in self.islands)

    @property
    def last(self) -> int:
        return self.islands[-1].last if self.islands else 0

    @property
    def count(self) -> int:
        return sum(island.last - island.first + 1 for island in self.islands)

    def add(self, segment: Segment) -> None:
        """Add a segment, which may overlap existing islands."""
        new = Island(segment.first, segment.last, segment.first_us, segment.last_us)
        if self.islands and new.first > self.islands[-1].last:
            if new.first == self.islands[-1].last + 1:
                self.islands[-1].last, self.islands[-1].last_us = new.last, new.last_us
            else:
                self.islands.append(new)
            return
        joined: list[Island] = []
        for island in sorted([*self.islands, new], key=lambda one: one.first):
            if joined and island.first <= joined[-1].last + 1:
                if island.last > joined[-1].last:
                    joined[-1].last, joined[-1].last_us = island.last, island.last_us
            else:
                joined.append(island)
        self.islands = joined


@dataclass
class Coverage:
    """All epochs of all sources. `repeats`: places of the segments whose first message repeats an earlier one."""

    epochs: dict[Source, list[Epoch]]
    repeats: set[Spot] = field(default_factory=set)


def coverage(found: list[Segment], rows: Callable[[], DataFrame]) -> Coverage:
    """Compute what a table holds from the segments of its rows; `rows` returns them where the segments do not suffice."""
    by_source: dict[Source, list[Segment]] = defaultdict(list)
    for segment in found:
        by_source[segment.source].append(segment)
    repeats = _repeats(rows, by_source) | {spot(one) for one in found if one.repeat}
    epochs = {source: epochs_of(source, parts, repeats) for source, parts in sorted(by_source.items())}
    return Coverage(epochs, repeats)


def spot(segment: Segment) -> Spot:
    """Return where a segment begins."""
    return segment.stream, segment.stream_created_ns, segment.hub_sequence


def segments(
    spark: SparkSession,
    bronze: LakeTable,
    files: Sequence[TableFile],
    ranges: Mapping[str, Sequence[Range]] | None = None,
) -> list[Segment]:
    """Return the segments of rows of bronze (`ranges` None: all rows of the files), in the order in which the hub stored them."""
    found = bronze.collected(spark, _segments_of_task, files, SEGMENT_COLUMNS, ranges)
    result = [Segment(Source(*row[:3]), *row[3:]) for row in found]
    return sorted(result, key=lambda one: (one.stream_created_ns, one.stream, one.hub_sequence, one.first))


def _segments_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Convert rows of one or more files to segments, in one task; segments that continue in the next batch are joined."""
    open_: dict[tuple[object, ...], list[int]] = {}
    for batch in (each for rows in batches for each in _by_source(rows) if each.num_rows):
        for key, parts in _segments_of_batch(batch):
            for part in parts:
                last = open_.get(key)
                if last is not None and part[1] == last[2] + 1 and part[0] > last[0]:
                    last[2], last[4] = part[2], part[4]
                    continue
                if last is not None:
                    yield (*key, *last)
                open_[key] = part
    for key, last in open_.items():
        yield (*key, *last)


def _by_source(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows of bronze as sequences of the hub's streams, and those that have an origin as sequences of their origins."""
    yield _numbered(rows, STREAM, [rows.column("domain")], "stream", "sequence")
    copied = rows.filter(rows.column("origin_stream").is_valid())
    yield _numbered(
        copied, ORIGIN, [copied.column("origin_domain"), copied.column("domain")], "origin_stream", "origin_sequence"
    )


def _numbered(rows: pa.RecordBatch, kind: str, domains: list[pa.Array], name: str, number: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "kind": pa.repeat(kind, rows.num_rows),
            "domain": pc.coalesce(*domains, pa.scalar("", pa.string())),
            "name": rows.column(name),
            "number": rows.column(number),
            "stream": rows.column("stream"),
            "stream_created_ns": rows.column("stream_created_ns"),
            "sequence": rows.column("sequence"),
            "at_us": rows.column("stored_at").cast(pa.int64()),
        }
    )


def _segments_of_batch(batch: pa.RecordBatch) -> Iterator[tuple[tuple[object, ...], list[list[int]]]]:
    """Yield for each source of a batch its consecutive pieces as [hub sequence, first, last, first time, last time]."""
    code = np.zeros(batch.num_rows, dtype=np.int64)
    for name in _KEY:
        encoded = batch.column(name).dictionary_encode()
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
    number, hub, at = (batch.column(name).to_numpy() for name in ("number", "sequence", "at_us"))
    order = np.lexsort((hub, code))
    code, number, hub, at = code[order], number[order], hub[order], at[order]
    breaks = np.flatnonzero((np.diff(code) != 0) | (np.diff(number) != 1)) + 1
    begins = np.concatenate(([0], breaks)).astype(np.int64)
    ends = np.concatenate((breaks, [len(code)])).astype(np.int64) - 1
    values = [batch.column(name) for name in _KEY]
    pieces: dict[int, list[list[int]]] = defaultdict(list)
    where: dict[int, int] = {}
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        pieces[int(code[begin])].append(
            [int(hub[begin]), int(number[begin]), int(number[end]), int(at[begin]), int(at[end])]
        )
        where.setdefault(int(code[begin]), int(order[begin]))
    for one, parts in pieces.items():
        yield tuple(value[where[one]].as_py() for value in values), parts


def _repeats(table_rows: Callable[[], DataFrame], by_source: dict[Source, list[Segment]]) -> set[Spot]:
    """Return the places where an origin's sequences step back and the message repeats an earlier one.

    Segments of which an earlier run has found that are left out: bronze may have lost their rows since.
    """
    suspects: list[Segment] = []
    for source, parts in by_source.items():
        highest = 0
        for part in parts if source.kind == ORIGIN else ():
            if part.first <= highest and not part.repeat:
                suspects.append(part)
            highest = max(highest, part.last)
    if not suspects:
        return set()
    rows = table_rows()
    wanted = sorted({(part.source.name, part.first) for part in suspects})
    table = pa.table(
        [pa.array([name for name, _ in wanted]), pa.array([first for _, first in wanted])], ["_name", "_first"]
    )
    there = (F.col("origin_stream") == F.col("_name")) & (F.col("origin_sequence") == F.col("_first"))
    found = (
        rows.join(F.broadcast(rows.sparkSession.createDataFrame(table)), there, "left_semi")
        .select(
            F.coalesce("origin_domain", "domain", F.lit("")).alias("domain"),
            F.col("origin_stream").alias("name"),
            F.col("origin_sequence").alias("number"),
            "stream",
            "stream_created_ns",
            "sequence",
            F.xxhash64("subject", "payload").alias("content"),
        )
        .collect()
    )
    content = {(row["stream"], row["stream_created_ns"], row["sequence"]): row["content"] for row in found}
    same: dict[tuple[str, str, int], list[tuple[int, str, int, int]]] = defaultdict(list)
    for row in found:
        place = (row["stream_created_ns"], row["stream"], row["sequence"], row["content"])
        same[row["domain"], row["name"], row["number"]].append(place)
    repeats = set()
    for part in suspects:
        here = spot(part)
        earlier = same[part.source.domain, part.source.name, part.first]
        before = (part.stream_created_ns, part.stream, part.hub_sequence)
        if any(place[:3] < before and place[3] == content.get(here) for place in earlier):
            repeats.add(here)
    return repeats


def epochs_of(source: Source, parts: list[Segment], repeats: set[Spot]) -> list[Epoch]:
    """Return the epochs of one source from its segments in hub order."""
    epochs = [Epoch(1)]
    if source.kind == STREAM:
        created_times = sorted({part.stream_created_ns for part in parts})
        epochs = [Epoch(number, created_ns=created_ns) for number, created_ns in enumerate(created_times, 1)]
        for before, epoch in pairwise(epochs):
            epoch.continues = (epoch.created_ns or 0) - (before.created_ns or 0) < EPOCHS_MAX
        for part in parts:
            epochs[created_times.index(part.stream_created_ns)].add(part)
        return epochs
    last_in: dict[tuple[str, int], int] = {}
    for part in parts:
        known_epoch = (part.stream, part.stream_created_ns)
        stepped_back = part.first <= last_in.get(known_epoch, 0)
        known_elsewhere = known_epoch not in last_in and epochs[-1].covers(part.first)
        repeated = spot(part) in repeats
        if (stepped_back or known_elsewhere) and not repeated:
            epochs.append(Epoch(len(epochs) + 1))
        epochs[-1].add(part)
        last_in[known_epoch] = part.last
    return epochs
