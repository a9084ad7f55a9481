"""Schemas that change under a silver table: what each version's rows become, before and after a mend and a replay, beside plain Python.

The versions are those of a device whose firmware is renewed: a field is added, removed, renamed, made wider, made another type. One
more version is unknown to the registry at first.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from msgspec import to_builtins

from eyot_hub.errors import HubError
from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.gold.gold import gold_table
from eyot_hub.jobs.reports.explain import explain
from eyot_hub.jobs.silver.replay import Replay
from eyot_hub.jobs.silver.silver import quarantine_table, silver_table
from support.hub.aged_lake import DAYS, SPARK, rows_of, store, stored
from support.hub.jobs_config import GOLD, SILVER, jobs_config
from support.hub.schema_registry import SchemaRegistry

pytestmark = pytest.mark.slow

DAY = DAYS[3]
START_MS = int(datetime(DAY.year, DAY.month, DAY.day, 8, tzinfo=UTC).timestamp() * 1000)
BASE = {"device": "string", "metric": "string", "at": "long", "value": "int"}
#: The fields of each version of the schema.
VERSIONS: dict[int, dict[str, str]] = {
    1: BASE,
    2: {**BASE, "unit": "string"},  # added
    3: {name: kind for name, kind in BASE.items() if name != "metric"},  # removed
    4: {"device": "string", "metric": "string", "at": "long", "reading": "int"},  # renamed
    5: {**BASE, "value": "double"},  # wider
    6: {**BASE, "value": "string"},  # another type
    99: BASE,  # not registered at first
}
PER_VERSION = 4
MISSING, UNKNOWN = "is missing", "payload names a schema that does not exist"


@dataclass(frozen=True)
class Kind:
    """A format of payloads: how its schemas are registered, and how a value is written by one."""

    name: str
    registered: Callable[[dict[str, str]], dict[str, Any]]
    written: Callable[[dict[str, str], dict[str, Any]], bytes]


def avro_schema(fields: dict[str, str]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def avro(fields: dict[str, str], value: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro_schema(fields)), value)
    return out.getvalue()


def json_schema(fields: dict[str, str]) -> dict[str, Any]:
    types = {"string": "string", "long": "integer", "int": "integer", "double": "number"}
    properties = {name: {"type": types[kind]} for name, kind in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


def proto_file(fields: dict[str, str]) -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {
        "string": kinds.TYPE_STRING,
        "long": kinds.TYPE_INT64,
        "int": kinds.TYPE_INT32,
        "double": kinds.TYPE_DOUBLE,
    }
    numbers = {"device": 1, "metric": 2, "at": 3, "value": 4, "reading": 4, "unit": 5}
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="acme", syntax="proto3")
    message = file.message_type.add(name="R")
    for name, kind in fields.items():
        message.field.add(name=name, number=numbers[name], type=types[kind], label=kinds.LABEL_OPTIONAL)
    return file


def protobuf(fields: dict[str, str], value: dict[str, Any]) -> bytes:
    pool = DescriptorPool()
    pool.AddSerializedFile(proto_file(fields).SerializeToString())
    content: bytes = GetMessageClass(pool.FindMessageTypeByName("acme.R"))(**value).SerializeToString()
    return b"\x00" + content


def _text(schema: dict[str, Any], kind: str = "AVRO") -> dict[str, Any]:
    return {"schema": json.dumps(schema), "schemaType": kind}


def _proto(fields: dict[str, str]) -> dict[str, Any]:
    content = base64.b64encode(proto_file(fields).SerializeToString()).decode()
    return {"schema": content, "schemaType": "PROTOBUF"}


KINDS = [
    Kind("avro", lambda fields: _text(avro_schema(fields)), avro),
    Kind("protobuf", _proto, protobuf),
    Kind("json", lambda fields: _text(json_schema(fields), "JSON"), lambda _, value: json.dumps(value).encode()),
]


def value_of(version: int, number: int) -> dict[str, Any]:
    """The value that a device of this version sends: a reading each second."""
    value: Any = {"double": number + 0.25, "string": f"{number}"}.get(VERSIONS[version].get("value", ""), number)
    sent = {"device": "d", "metric": "t", "at": START_MS + number * 1000, "value": value, "reading": value, "unit": "C"}
    return {name: sent[name] for name in VERSIONS[version]}


def config_of(url: str, folder: Path, form: str, *, mended: bool) -> Config:
    """First the rules of version 1. Mended: the field under its other name is a column, and a reading without a metric is one of "t"."""
    columns: dict[str, Any] = {"metric": "string", "value": "double"}
    required = ["metric", "value"]
    if mended:
        columns |= {"unit": "string", "reading": "double"}
        required = []
    silver = {**SILVER, "format": form, "schema": {"registry": url}, "columns": columns, "required": required}
    base = to_builtins(jobs_config("nats://127.0.0.1", folder))
    return convert(
        {**{key: base[key] for key in ("nats", "lake", "bronze")}, "silver": [silver], "gold": [GOLD]}, "tests"
    )


def silver_rows(config: Config, *more: str) -> list[tuple[Any, ...]]:
    names = ("sequence", "metric", "value", *more)
    return rows_of(silver_table(config, config.silver[0]), *names)


def gold_rows(config: Config) -> list[tuple[Any, ...]]:
    return rows_of(gold_table(config, config.gold[0]), "metric", "count", "mean")


def reasons(config: Config) -> dict[int, str]:
    return dict(rows_of(quarantine_table(config), "sequence", "reason"))


@pytest.mark.usefixtures("each_lake_format")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_versions_of_a_schema(tmp_path: Path, kind: Kind) -> None:
    order = [version for version in VERSIONS for _ in range(PER_VERSION)]
    with SchemaRegistry() as registry:
        registry.schemas = {number: kind.registered(fields) for number, fields in VERSIONS.items() if number != 99}
        first = config_of(registry.url, tmp_path, kind.name, mended=False)
        payloads = [
            struct.pack(">bI", 0, version) + kind.written(VERSIONS[version], value_of(version, number))
            for number, version in enumerate(order, 1)
        ]
        store(first, [stored(number, DAY, payload=payload) for number, payload in enumerate(payloads, 1)])
        # A registry that does not answer is no defect of the rows: nothing is written, and the round is repeated.
        registry.answer = (503, b"{}")
        with pytest.raises(HubError, match="answers 503"):
            Aggregate(SPARK, first).round()
        assert (silver_rows(first), reasons(first)) == ([], {})
        registry.answer = None
        Aggregate(SPARK, first).round()
        _check_first(first, kind, order)
        mended = config_of(registry.url, tmp_path, kind.name, mended=True)
        registry.schemas[99] = kind.registered(VERSIONS[99])
        before = explain(mended, mended.gold[0], "d", "t", START_MS * 1_000_000)
        done = Replay(mended, mended.silver[0]).run()
        assert (done.read, done.added, done.left) == (16, 12, {f"payload is not {kind.name} of the declared types": 4})
        between = explain(mended, mended.gold[0], "d", "t", START_MS * 1_000_000)
        assert (before.agrees, between.agrees, between.found) == (True, True, before.found)
        Aggregate(SPARK, mended).round()
        _check_mended(mended, order)
        # All of bronze by the mended rules gives the same, and the unit of those rows that were in silver before.
        Aggregate(SPARK, mended).rebuild(set())
        _check_mended(mended, order)
        units = {row[0]: row[3] for row in silver_rows(mended, "unit")}
        assert units == {number: "C" if order[number - 1] == 2 else None for number in units}


def _check_first(config: Config, kind: Kind, order: list[int]) -> None:
    """By the first rules versions 1, 2 and 5 are rows."""
    good = [number for number, version in enumerate(order, 1) if version in (1, 2, 5)]
    assert silver_rows(config) == [
        (number, "t", float(value_of(order[number - 1], number)["value"])) for number in good
    ]
    declared = f"payload is not {kind.name} of the declared types"
    expected = {3: f"metric {MISSING}", 4: f"value {MISSING}", 6: declared, 99: UNKNOWN}
    assert reasons(config) == {number: expected[order[number - 1]] for number in reasons(config)}
    assert len(reasons(config)) + len(good) == len(order)
    values = [float(value_of(order[number - 1], number)["value"]) for number in good]
    assert gold_rows(config) == [("t", len(values), sum(values) / len(values))]


def _check_mended(config: Config, order: list[int]) -> None:
    """By the mended rules all are rows but those of another type; gold and its lineage agree."""
    rows = []
    for number, version in enumerate(order, 1):
        value = value_of(version, number)
        reading = value.get("value")
        if version != 6:
            rows.append(
                (number, value.get("metric"), None if reading is None else float(reading), value.get("reading"))
            )
    assert silver_rows(config, "reading") == rows
    assert set(reasons(config)) == {number for number, version in enumerate(order, 1) if version == 6}
    counted = [row for row in rows if row[1] == "t" and row[2] is not None]
    found = explain(config, config.gold[0], "d", "t", START_MS * 1_000_000)
    assert (found.agrees, found.found) == (True, len(counted))
    assert sorted(one["sequence"] for one in found.readings) == [row[0] for row in counted]
    means = {metric: (count, mean) for metric, count, mean in gold_rows(config)}
    assert means["t"] == (len(counted), sum(row[2] for row in counted) / len(counted))
