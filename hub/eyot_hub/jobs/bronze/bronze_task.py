"""The tasks of ingest: they read ranges of streams and write files of bronze.

A task imports no configuration, no table and no plan: a worker's first task would wait for those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from eyot_hub import columns
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table_format import TableSpec
from eyot_hub.offsets import LastRow
from eyot_hub.range_reader import Piece, RangeReader, ReadOptions

PARTITION_BY: Final = ("stream", "date")
SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("date", pa.date32()),  # of stored_at, UTC
        ("stream_created_ns", pa.int64()),
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("headers", columns.MAP_TYPE),
        ("payload", pa.binary()),
        ("stored_at", columns.TIMESTAMP),
        ("domain", pa.string()),
        ("account", pa.string()),
        ("origin_domain", pa.string()),
        ("origin_stream", pa.string()),
        ("origin_sequence", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Written:
    """What was read of a range and written."""

    files: list[DataFile]
    rows: int
    bytes: int
    last_row: LastRow | None


class Work(NamedTuple):
    """A range of an epoch."""

    piece: Piece
    epoch_ns: int


def write_pieces(read: ReadOptions, spec: TableSpec, group: list[Work]) -> list[Written]:
    """Read some ranges and write their files, in one task."""
    done: list[Written] = []
    try:
        done.extend(write_piece(read, spec, work.piece, work.epoch_ns) for work in group)  # `done` grows one by one
        return done
    except BaseException:
        spec.writer().discard([file for one in done for file in one.files])
        raise


def write_piece(read: ReadOptions, spec: TableSpec, piece: Piece, epoch_ns: int) -> Written:
    """Read a range and write its files."""
    reader = RangeReader(read, piece.span, piece.labels)
    writer = spec.writer()
    try:
        for batch in reader.batches():
            for date, rows in by_date(batch):
                partition = (("stream", piece.span.stream), ("date", date))
                writer.write(bronze_rows(rows, epoch_ns), partition)
        return Written(writer.finish(), reader.rows, reader.bytes, reader.last_row)
    except BaseException:
        writer.abandon()
        raise


def by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each UTC day of `stored_at`."""
    days = batch.column("stored_at").cast(pa.int64()).to_numpy() // 86_400_000_000
    for day in np.unique(days).tolist():
        date = str(np.datetime64(day, "D"))
        yield date, batch if (days == day).all() else batch.filter(pa.array(days == day))


def bronze_rows(batch: pa.RecordBatch, created_ns: int) -> pa.RecordBatch:
    """Return a batch of the source with the columns of the table's files."""
    arrays = [
        pa.repeat(pa.scalar(created_ns, pa.int64()), batch.num_rows)
        if name == "stream_created_ns"
        else batch.column(name)
        for name in SCHEMA.names
        if name not in PARTITION_BY
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f for f in SCHEMA if f.name not in PARTITION_BY]))
