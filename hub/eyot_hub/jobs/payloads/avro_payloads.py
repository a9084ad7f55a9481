"""Avro payloads (single values without a container), decoded by fastavro.

A payload comes from a device and must not end or occupy a task, whatever it holds. fastavro's compiled reader has no limit
of depth, makes as many values of no bytes as a payload claims, and takes minutes for a decimal of a million bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro import _read_py
from fastavro.schema import SchemaParseException

from eyot_hub.jobs.payloads.binary_payloads import plain
from eyot_hub.jobs.payloads.schemas import json_of

#: Types whose values are JSON values already.
_PLAIN: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "enum"})
_RECORDS: Final = ("record", "error")
_DECIMAL: Final = "bytes-decimal"
_DIGITS_PER_BYTE: Final = 2.4  # of a decimal; the least
_SPARE_BYTES: Final = 16  # of a sign that is longer than it must be


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
    nodes = list(_nodes(schema, named))
    if any(_kind(node) == "array" and _is_empty(node["items"], named) for node in nodes):
        raise ValueError("the schema has an array of values without bytes: a payload could claim any number of them")
    # The reader in Python has Python's limit of depth.
    read = _read_py.schemaless_reader if _is_recursive(schema, named) else fastavro.schemaless_reader
    convert = _conversion(schema) if not others else plain

    def decode(payload: bytes) -> Any:
        stream = BytesIO(payload)
        value = read(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("trailing bytes after the value")
        return value if convert is None else convert(value)

    return decode


def _bounded(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader of decimals that raises ValueError for more bytes than the precision needs."""

    def bounded(data: bytes, schema: Any, *more: Any) -> Any:
        if len(data) > schema["precision"] / _DIGITS_PER_BYTE + _SPARE_BYTES:
            raise ValueError("a decimal is longer than its precision")
        return read(data, schema, *more)

    return bounded


fastavro.read.LOGICAL_READERS[_DECIMAL] = _bounded(fastavro.read.LOGICAL_READERS[_DECIMAL])


def _kind(node: Any) -> Any:
    return node.get("type") if isinstance(node, dict) else None


def _resolved(node: Any, named: Mapping[str, Any]) -> Any:
    return named.get(node, node) if isinstance(node, str) else node


def _inside(node: Any) -> list[Any]:
    """Return the schemas that a schema consists of."""
    if isinstance(node, list):
        return node
    match _kind(node):
        case None:
            return []
        case kind if kind in _RECORDS:
            return [field["type"] for field in node["fields"]]
        case "array":
            return [node["items"]]
        case "map":
            return [node["values"]]
        case kind:
            return [kind]


def _nodes(schema: Any, named: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all schemas within a schema, each named one once."""
    waiting, seen = [schema], set[str]()
    while waiting:
        node = _resolved(waiting.pop(), named)
        if isinstance(node, dict) and "name" in node:
            if node["name"] in seen:
                continue
            seen.add(node["name"])
        yield node
        waiting += _inside(node)


def _is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a record may hold itself."""
    records = [node for node in _nodes(schema, named) if _kind(node) in _RECORDS]
    return any(
        _kind(inner) in _RECORDS and inner["name"] == record["name"]
        for record in records
        for member in _inside(record)
        for inner in _nodes(member, named)
    )


def _is_empty(schema: Any, named: Mapping[str, Any], above: frozenset[str] = frozenset()) -> bool:
    """Return whether values of the schema have no bytes."""
    node = _resolved(schema, named)
    kind = _kind(node)
    if kind in _RECORDS:
        within = above | {node["name"]}
        return node["name"] not in above and all(_is_empty(one, named, within) for one in _inside(node))
    return "null" in (node, kind) or (kind == "fixed" and not node["size"])


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
