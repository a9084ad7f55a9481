"""Reads the rows of a table's Parquet files inside a task, a row group at a time: what is in memory does not grow with the files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from eyot_hub.jobs.files import filesystem

# What tasks compare and count by; read as numbers into a list of distinct texts.
CODED = pa.dictionary(pa.int32(), pa.string())


def row_groups(root: str, paths: Iterable[str], schema: pa.Schema, coded: Collection[str] = ()) -> Iterator[pa.Table]:
    """The columns of `schema` from files below `root`; null where a file is older than a column.

    The texts named `coded` come as dictionaries.
    """
    files, place = filesystem(root)
    wanted = pa.schema([pa.field(field.name, CODED) if field.name in coded else field for field in schema])
    for path in paths:
        with files.open_input_file(f"{place}/{path}") as source:
            parquet = pq.ParquetFile(source, read_dictionary=list(coded), pre_buffer=True)
            have = [name for name in wanted.names if name in parquet.schema_arrow.names]
            for group in range(parquet.num_row_groups):
                yield _fitted(parquet.read_row_group(group, have, use_threads=False), wanted)


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
    """A coded column in one piece."""
    whole: pa.DictionaryArray = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
