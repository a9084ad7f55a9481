"""The columns of the source: Spark's schema, the matching Arrow schema, and record batches from scanned frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.frame_columns import Rows, slices
from eyot_hub.header_columns import MAP_TYPE as MAP_TYPE
from eyot_hub.header_columns import header_lines, header_map
from eyot_hub.origins import Origins, origin_columns

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

#: Columns that hold the value of one header each: (column, header).
HeaderColumns: TypeAlias = tuple[tuple[str, str], ...]

# The columns of `format("jetstream")`. The option includeHeaders=false leaves out `headers`.
DDL: Final = (
    "domain STRING, account STRING, stream STRING, sequence BIGINT, subject STRING, headers MAP<STRING, STRING>, "
    "payload BINARY, stored_at TIMESTAMP, origin_domain STRING, origin_stream STRING, origin_sequence BIGINT"
)
ARROW_SCHEMA: Final = pa.schema(
    [
        ("domain", pa.string()),
        ("account", pa.string()),
        ("stream", pa.string()),
        ("sequence", pa.int64()),
        ("subject", pa.string()),
        ("headers", MAP_TYPE),
        ("payload", pa.binary()),
        ("stored_at", TIMESTAMP),
        ("origin_domain", pa.string()),
        ("origin_stream", pa.string()),
        ("origin_sequence", pa.int64()),
    ]
)


@dataclass(frozen=True)
class StreamLabels:
    """Values that all rows of one stream share."""

    stream: str
    domain: str | None
    account: str | None
    origins: Origins


def batch(
    buffer: bytearray,
    rows: Rows,
    labels: StreamLabels,
    *,
    with_headers: bool,
    header_columns: HeaderColumns = (),
) -> pa.RecordBatch:
    """Return the rows of one read as a record batch. The batch copies everything out of `buffer`."""
    data = pa.py_buffer(buffer)
    count = len(rows)
    lines = header_lines(data, rows)
    subjects = text(slices(data, rows.subject_start, rows.subject_end))
    origin = origin_columns(lines, rows.stream_seq, subjects, labels.origins)
    columns: list[pa.Array] = [
        pa.repeat(pa.scalar(labels.domain, pa.string()), count),
        pa.repeat(pa.scalar(labels.account, pa.string()), count),
        pa.repeat(pa.scalar(labels.stream, pa.string()), count),
        pa.array(rows.stream_seq),
        subjects,
    ]
    headers = pa.nulls(count, MAP_TYPE)
    if lines is not None and (with_headers or header_columns):
        headers = header_map(lines, rows.header_end > rows.header_start)
    if with_headers:
        columns.append(headers)
    columns += [
        slices(data, rows.payload_start, rows.payload_end),
        pa.array(rows.stored_ns // np.int64(1000)).cast(TIMESTAMP),
        origin.domain,
        origin.stream,
        origin.sequence,
        *(pc.map_lookup(headers, header, "first") for _, header in header_columns),
    ]
    found = schema(with_headers=with_headers, header_columns=header_columns)
    return pa.RecordBatch.from_arrays(columns, schema=found)


def schema(*, with_headers: bool, header_columns: HeaderColumns = ()) -> pa.Schema:
    """Return the Arrow schema of `batch`."""
    found = ARROW_SCHEMA if with_headers else ARROW_SCHEMA.remove(ARROW_SCHEMA.get_field_index("headers"))
    for column, _ in header_columns:
        found = found.append(pa.field(column, pa.string()))
    return found


def ddl(*, with_headers: bool, header_columns: HeaderColumns = ()) -> str:
    """Return the schema of `batch` as DDL for Spark."""
    fixed = DDL if with_headers else DDL.replace("headers MAP<STRING, STRING>, ", "")
    return ", ".join([fixed, *(f"`{column.replace('`', '``')}` STRING" for column, _ in header_columns)])


def text(octets: pa.BinaryArray) -> pa.StringArray:
    """Return `octets` as text; bytes that are not UTF-8 become U+FFFD."""
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in octets.to_pylist()], pa.string())


def percentile_name(fraction: float) -> str:
    """Return the column name of a percentile: p95 for 0.95, p99_9 for 0.999."""
    return "p" + f"{fraction * 100:.10g}".replace(".", "_")
