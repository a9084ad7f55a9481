"""The columns of the hub's tables as an Iceberg schema and back, and the ids of its fields in Parquet files."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError

_ID: Final = b"PARQUET:field_id"
_TYPES: Final[list[tuple[pa.DataType, IcebergType]]] = [
    (pa.string(), StringType()),
    (pa.int64(), LongType()),
    (pa.float64(), DoubleType()),
    (pa.bool_(), BooleanType()),
    (pa.binary(), BinaryType()),
    (pa.date32(), DateType()),
    (TIMESTAMP, TimestamptzType()),
]


def iceberg_type(kind: pa.DataType) -> IcebergType:
    """Return the type of a column; the ids of a map are for a new table or a new column, which get ids of their own."""
    if pa.types.is_map(kind):
        key, value = iceberg_type(kind.key_type), iceberg_type(kind.item_type)
        return MapType(key_id=-1, key_type=key, value_id=-2, value_type=value, value_required=False)
    for arrow, iceberg in _TYPES:
        if arrow == kind:
            return iceberg
    raise HubError(f"there is no type of Iceberg for {kind}")


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Return the Arrow type of a column. Raises HubError for a type that the hub does not write."""
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
    for arrow, iceberg in _TYPES:
        if iceberg == kind:
            return arrow
    raise HubError(f"the hub has no columns of the type {kind}")


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Return the schema of a new table."""
    fields, at = [], len(schema)
    for number, field in enumerate(schema, 1):
        kind = iceberg_type(field.type)
        if isinstance(kind, MapType):
            kind = kind.model_copy(update={"key_id": at + 1, "value_id": at + 2})
            at += 2
        fields.append(NestedField(number, field.name, kind, required=False))
    return Schema(*fields)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a table's columns."""
    return pa.schema([(field.name, arrow_type(field.field_type)) for field in schema.fields])


def with_field_ids(columns: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the columns of a file: each names its field of the table's schema, by which readers find it."""
    fields = []
    for column in columns:
        field = schema.find_field(column.name)
        fields.append(pa.field(column.name, _identified(column.type, field.field_type), metadata=_id(field.field_id)))
    return pa.schema(fields)


def _identified(kind: pa.DataType, field: IcebergType) -> pa.DataType:
    if not isinstance(field, MapType):
        return kind
    key = pa.field("key", kind.key_type, nullable=False, metadata=_id(field.key_id))
    return pa.map_(key, pa.field("value", kind.item_type, metadata=_id(field.value_id)))


def _id(number: int) -> dict[bytes, bytes]:
    return {_ID: str(number).encode()}
