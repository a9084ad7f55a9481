"""Reads a table's Parquet files inside a task, one row group at a time, so that memory does not grow with the files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eyot_hub.jobs.tables.files import READ_ROWS, Place, filesystem

# The type of texts that tasks compare and count by: numbers into a list of distinct texts.
CODED = pa.dictionary(pa.int32(), pa.string())


def row_groups(
    place: Place,
    paths: Iterable[str],
    schema: pa.Schema,
    coded: Collection[str] = (),
    choose: Callable[[pq.ParquetFile], Iterable[int]] | None = None,
) -> Iterator[pa.Table]:
    """Yield the columns of `schema` from files of the table at `place`; null where a file is older than a column.

    Texts named in `coded` are dictionary-encoded. `choose` returns the numbers of a file's row groups that are read; None: all.
    """
    files, root = filesystem(place)
    wanted = pa.schema([pa.field(field.name, CODED) if field.name in coded else field for field in schema])
    for path in paths:
        with files.open_input_file(f"{root}{path}") as source:
            parquet = pq.ParquetFile(source, read_dictionary=list(coded), pre_buffer=True)
            have = [name for name in wanted.names if name in parquet.schema_arrow.names]
            for group in range(parquet.num_row_groups) if choose is None else choose(parquet):
                yield _fitted(parquet.read_row_group(group, have, use_threads=False), wanted)


class Range(NamedTuple):
    """Rows of one epoch of a stream with `after < sequence <= until`."""

    created_ns: int
    after: int
    until: int


class FileRows:
    """For mapInArrow: converts files, given by path and partition, to their rows.

    `partition_by`: columns that the list of files gives, `path` may be one. `ranges`: wanted rows by stream; None: all rows.
    """

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        ranges: Mapping[str, Sequence[Range]] | None = None,
    ) -> None:
        self._place = place
        self._schema = schema
        self._partition_by = partition_by
        self._ranges = ranges
        inside = {field.name: field for field in schema if field.name not in partition_by}
        if ranges is not None:
            inside |= {name: pa.field(name, pa.int64()) for name in ("stream_created_ns", "sequence")}
        self._inside = pa.schema(list(inside.values()))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for listed in batches:
            yield from self.of(listed.to_pylist())

    def of(self, listed: Iterable[Mapping[str, str | None]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files, each given as its `path` and the texts of its partition."""
        for file in listed:
            for rows in row_groups(self._place, [str(file["path"])], self._inside):
                yield from self._rows(file, rows)

    def _rows(self, file: Mapping[str, str | None], rows: pa.Table) -> Iterator[pa.RecordBatch]:
        if self._ranges is not None:
            created, sequence = (rows.column(name).to_numpy() for name in ("stream_created_ns", "sequence"))
            wanted = np.zeros(rows.num_rows, np.bool_)
            for one in self._ranges.get(file["stream"] or "", ()):
                wanted |= (created == one.created_ns) & (sequence > one.after) & (sequence <= one.until)
            if not wanted.all():
                rows = rows.filter(pa.array(wanted))
        columns = [
            pa.repeat(pa.scalar(file[field.name]).cast(field.type), rows.num_rows)
            if field.name in self._partition_by
            else rows.column(field.name)
            for field in self._schema
        ]
        yield from pa.table(columns, schema=self._schema).to_batches(max_chunksize=READ_ROWS)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            column = rows.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=schema)


def codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a dictionary-encoded column in one chunk."""
    whole: pa.DictionaryArray = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
