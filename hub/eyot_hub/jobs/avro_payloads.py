"""Avro payloads (single values without a container), decoded by fastavro."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException

from eyot_hub.jobs.binary_payloads import plain
from eyot_hub.jobs.schemas import json_of

#: Types whose values are JSON values already.
_PLAIN: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "enum"})


def avro_decoder(text: bytes | str, others: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return the decoder of payloads of one schema; `others`: schemas that it names. Raises ValueError."""
    named: dict[str, Any] = {}
    try:
        for other in others.values():
            fastavro.parse_schema(json_of(other), named)
        schema = fastavro.parse_schema(json_of(text), named)
    except SchemaParseException as error:
        raise ValueError(f"the schema is not Avro: {error}") from None
    except (AttributeError, KeyError, TypeError, RecursionError) as error:  # of JSON of another shape
        raise ValueError(f"the schema is not Avro: {type(error).__name__}: {error}") from None
    read = fastavro.schemaless_reader
    convert = _conversion(schema) if not others else plain

    def decode(payload: bytes) -> Any:
        stream = BytesIO(payload)
        value = read(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("trailing bytes after the value")
        return value if convert is None else convert(value)

    return decode


def _conversion(schema: Any) -> Callable[[Any], Any] | None:
    """Return what makes JSON values of the schema's values; None where they are JSON values already."""
    if _is_plain(schema):
        return None
    if not isinstance(schema, dict) or schema["type"] != "record":
        return plain
    odd = [field["name"] for field in schema["fields"] if not _is_plain(field["type"])]

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name in odd:  # the record is this payload's own
            value = record[name]
            record[name] = value.isoformat() if isinstance(value, datetime) else plain(value)
        return record

    return convert


def _is_plain(schema: Any) -> bool:
    """Return whether all values are of JSON's types: then nothing needs to be converted."""
    if isinstance(schema, str):
        return schema in _PLAIN
    if isinstance(schema, list):
        return all(map(_is_plain, schema))
    if "logicalType" in schema:
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        return all(_is_plain(one["type"]) for one in schema["fields"])
    if kind == "array":
        return _is_plain(schema["items"])
    if kind == "map":
        return _is_plain(schema["values"])
    return kind == "enum" or _is_plain(kind)
