"""Payloads with schemas: Avro, Protobuf and JSON Schema, from a file, a folder and a registry."""

from __future__ import annotations

import base64
import json
import pickle
import struct
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import ConfigError, Silver
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.payloads.payload_records import Reasons
from eyot_hub.jobs.payloads.payloads import PayloadParser
from support.hub.jobs_config import SILVER, jobs_config
from support.hub.schema_registry import SchemaRegistry

STORED = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
AT = datetime(2026, 5, 1, 11, 0, 0, 250_000, tzinfo=UTC)
READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "metric", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "value", "type": ["null", "double"]},
    ],
}
ROW = {"device": "d1", "metric": "t", "at": AT, "value": 1.5}
JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["device", "value"],
    "properties": {
        "value": {"type": "number", "maximum": 100},
        "at": {"type": "string", "format": "date-time"},
    },
}


def silver(tmp: Path, form: str, schema: dict[str, Any] | None, **changed: Any) -> Silver:
    base = to_builtins(jobs_config("nats://127.0.0.1", tmp))
    section = {} if schema is None else {"schema": schema}
    table = {**SILVER, "event_time_unit": "iso", "format": form, **section, **changed}
    return convert({**base, "silver": [table], "gold": []}, "tests").silver[0]


def parsed(table: Silver, payloads: list[bytes]) -> list[dict[str, Any]]:
    """Rows, by a parser that has travelled to an executor."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["readings.boiler.t"] * len(payloads)),
            pa.array(payloads, pa.binary()),
            pa.array([STORED] * len(payloads), TIMESTAMP),
            pa.array(["edge"] * len(payloads)),
        ],
        ["subject", "payload", "stored_at", "origin_domain"],
    )
    shape = pickle.loads(pickle.dumps(table.shape(by_month=False)))
    (batch,) = PayloadParser(shape, ["payload", "subject"])(iter([rows]))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], row["metric"], row["value"], row["event_time"], row["reason"]


def avro(value: dict[str, Any], schema: Any = READING) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def numbered(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def proto_files(*, package: str = "acme") -> descriptor_pb2.FileDescriptorSet:
    """`units.proto` with an enum, and `reading.proto`, which imports it: message Reading, with Inner inside."""
    units = descriptor_pb2.FileDescriptorProto(name="units.proto", package=package, syntax="proto3")
    kind = units.enum_type.add(name="Unit")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="CELSIUS", number=1)
    file = descriptor_pb2.FileDescriptorProto(name="reading.proto", package=package, syntax="proto3")
    file.dependency.extend(["units.proto", "google/protobuf/timestamp.proto"])
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Reading")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    for number, (name, kind_, label, of) in enumerate(
        [
            ("device", field.TYPE_STRING, one, ""),
            ("metric", field.TYPE_STRING, one, ""),
            ("at", field.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
            ("value", field.TYPE_DOUBLE, one, ""),
            ("count", field.TYPE_INT64, one, ""),
            ("unit", field.TYPE_ENUM, one, f".{package}.Unit"),
            ("inner", field.TYPE_MESSAGE, one, f".{package}.Reading.Inner"),
            ("tags", field.TYPE_STRING, many, ""),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind_, label=label, type_name=of or None)
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="device", number=1, type=field.TYPE_STRING, label=one)
    inner.field.add(name="metric", number=2, type=field.TYPE_STRING, label=one)
    return descriptor_pb2.FileDescriptorSet(file=[units, file])


def reading(**changed: Any) -> bytes:
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP_FILE.serialized_pb)
    for file in proto_files().file:
        pool.AddSerializedFile(file.SerializeToString())
    message = GetMessageClass(pool.FindMessageTypeByName("acme.Reading"))(
        **{"device": "d1", "metric": "t", "value": 1.5, **changed}
    )
    message.at.FromDatetime(AT.replace(tzinfo=None))
    content: bytes = message.SerializeToString()
    return content


def test_avro_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(READING))
    table = silver(tmp_path, "avro", {"file": str(tmp_path / "reading.avsc")})
    good = avro(ROW)
    rows = parsed(table, [good, good + b"x", good[:-1], b"", avro({**ROW, "value": None})])
    assert values(rows[0]) == ("d1", "t", 1.5, AT, None)
    assert [row["reason"] for row in rows[1:4]] == ["payload is not avro"] * 3
    assert rows[1]["payload"] == good + b"x"
    assert values(rows[4]) == ("d1", "t", None, AT, None)


def of_length(count: int) -> bytes:
    """A length or count as Avro writes it."""
    rest, found = count << 1, bytearray()
    while rest >= 128:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def with_field(name: str, kind: Any) -> dict[str, Any]:
    return {**READING, "fields": [*READING["fields"], {"name": name, "type": kind}]}


def test_avro_that_holds_itself(tmp_path: Path) -> None:
    """A deep payload is a defect of its row; the compiled reader would end the process."""
    (tmp_path / "reading.avsc").write_text(
        json.dumps(with_field("inner", ["null", {"type": "array", "items": "Reading"}]))
    )
    table = silver(tmp_path, "avro", {"file": str(tmp_path / "reading.avsc")})
    leaf = avro(ROW) + b"\0"
    level, end = avro(ROW) + b"\x02\x02", b"\0"
    found = parsed(table, [leaf, level * 20 + leaf + end * 20, level * 100_000, level * 100_000 + leaf + end * 100_000])
    assert [row["reason"] for row in found] == [None, None, "payload is not avro", "payload is not avro"]
    assert values(found[1]) == ("d1", "t", 1.5, AT, None)


def test_avro_that_claims_much(tmp_path: Path) -> None:
    path = tmp_path / "reading.avsc"
    section = {"file": str(path)}
    path.write_text(
        json.dumps(with_field("exact", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}))
    )
    table = silver(tmp_path, "avro", section, columns={"metric": "string", "exact": "double"})
    huge = 900_000
    found = parsed(table, [avro(ROW) + b"\x04\x30\x39", avro(ROW) + of_length(huge) + b"\x7f" * huge])
    assert [(row["exact"], row["reason"]) for row in found] == [(123.45, None), (None, "payload is not avro")]
    for empty in ("null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "E", "fields": []}):
        path.write_text(json.dumps(with_field("nothing", {"type": "map", "values": {"type": "array", "items": empty}})))
        with pytest.raises(ConfigError, match=r"schema: the schema has an array of values without bytes"):
            silver(tmp_path, "avro", section)
    path.write_text(json.dumps(with_field("units", {"type": "array", "items": ["null", "string"]})))
    found = parsed(silver(tmp_path, "avro", section), [avro(ROW) + of_length(1 << 40) + b"\0"])
    assert [row["reason"] for row in found] == ["payload is not avro"]


def test_avro_values_without_an_equal_in_json(tmp_path: Path) -> None:
    fields = [
        {"name": "device", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "metric", "type": {"type": "enum", "name": "M", "symbols": ["t", "h"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "value", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "data", "type": {"type": "map", "values": "bytes"}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    table = silver(
        tmp_path,
        "avro",
        {"file": str(tmp_path / "r.avsc")},
        columns={"metric": "string", "value": "double", "x": {"type": "string", "path": "$.data.x"}},
    )
    device = "2b5d2a3e-6a0e-4c9f-8f9b-0a1b2c3d4e5f"
    row = {"device": device, "metric": "h", "at": AT, "value": Decimal("12.25"), "data": {"x": b"raw"}}
    (found,) = parsed(table, [avro(row, schema)])
    assert (*values(found), found["x"]) == (device, "h", 12.25, AT, None, "raw")


def test_protobuf_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "reading.desc").write_bytes(proto_files().SerializeToString())
    columns = {
        "metric": "string",
        "value": "double",
        "count": "bigint",
        "unit": "string",
        "inner": {"type": "string", "path": "$.inner.device"},
        "tags": "string",
    }
    settings_ = {"file": str(tmp_path / "reading.desc"), "message": "acme.Reading"}
    table = silver(tmp_path, "protobuf", settings_, columns=columns)
    full = reading(count=2**60, unit=1, inner={"device": "i"}, tags=["a", "b"])
    first, second, third = parsed(table, [full, reading(value=0.0), b"\xff"])
    assert values(first) == ("d1", "t", 1.5, AT, None)
    assert (first["count"], first["unit"], first["inner"], first["tags"]) == (2**60, "CELSIUS", "i", '["a","b"]')
    assert (second["value"], second["count"], second["unit"], second["inner"]) == (0.0, 0, "UNKNOWN", None)
    assert third["reason"] == "payload is not protobuf"


def test_json_is_checked_by_its_schema(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(JSON_SCHEMA))
    table = silver(tmp_path, "json", {"file": str(tmp_path / "s.json")})
    base = {"device": "d1", "metric": "t", "at": "2026-05-01T11:00:00Z", "value": 1.5}
    payloads = [base, {**base, "value": 101}, {**base, "at": "yesterday"}, {"device": "d1"}, [1]]
    reasons = [row["reason"] for row in parsed(table, [json.dumps(one).encode() for one in payloads])]
    assert reasons == [
        None,
        "payload breaks its schema at /properties/value/maximum",
        "payload breaks its schema at /properties/at/format",
        "payload breaks its schema at /required",
        "payload breaks its schema at /type",
    ]
    assert parsed(table, [b"{"])[0]["reason"] == "payload is not json"


@pytest.mark.parametrize("place", ["folder", "registry"])
def test_numbered_schemas(tmp_path: Path, place: str) -> None:
    other = {**READING, "fields": [*READING["fields"], {"name": "more", "type": "int"}]}
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(READING))
    (tmp_path / "schemas" / "258.avsc").write_text(json.dumps(other))
    with SchemaRegistry() as registry:
        registry.schemas = {7: {"schema": json.dumps(READING)}, 258: {"schema": json.dumps(other)}}
        table = silver(
            tmp_path, "avro", {"folder": str(tmp_path / "schemas")} if place == "folder" else {"registry": registry.url}
        )
        payloads = [
            numbered(7, avro(ROW)),
            numbered(258, avro({**ROW, "device": "d2", "more": 1}, other)),
            numbered(9, avro(ROW)),
            numbered(9, avro(ROW)),
            avro(ROW),
            b"",
            numbered(7, b""),
        ]
        rows = parsed(table, payloads)
        asked = list(registry.asked)
    assert [values(row) for row in rows[:2]] == [("d1", "t", 1.5, AT, None), ("d2", "t", 1.5, AT, None)]
    unknown, headless = (
        "payload names a schema that does not exist",
        "payload does not begin with the number of a schema",
    )
    assert [row["reason"] for row in rows[2:]] == [unknown, unknown, headless, headless, "payload is not avro"]
    assert asked == ([] if place == "folder" else ["/schemas/ids/7", "/schemas/ids/258", "/schemas/ids/9"])


def test_protobuf_by_a_registry(tmp_path: Path) -> None:
    units, file = (base64.b64encode(one.SerializeToString()).decode() for one in proto_files().file)
    with SchemaRegistry("hub", "geheim") as registry:
        registry.schemas[3] = {
            "schema": file,
            "schemaType": "PROTOBUF",
            "references": [{"name": "units.proto", "subject": "units", "version": 2}],
        }
        registry.versions["units", 2] = {"schema": units, "schemaType": "PROTOBUF"}
        section = {"registry": registry.url, "user": "hub", "password": "geheim"}
        table = silver(tmp_path, "protobuf", section, event_time="stored_at", columns={"metric": "string"})
        inner = b"\x0a\x02d9\x12\x01m"  # Reading.Inner: device, metric
        payloads = [
            numbered(3, b"\x00" + reading()),
            numbered(3, b"\x02\x00" + reading()),
            numbered(3, b"\x04\x00\x00" + inner),
            numbered(3, b"\x02\x08" + reading()),
            numbered(3, b""),
        ]
        rows = parsed(table, payloads)
        assert [row["device"] for row in rows[:3]] == ["d1", "d1", "d9"]
        assert [row["reason"] for row in rows] == [
            None,
            None,
            None,
            "payload is not protobuf",
            "payload is not protobuf",
        ]
        assert registry.asked == ["/schemas/ids/3?format=serialized", "/subjects/units/versions/2?format=serialized"]
        assert "geheim" not in repr(table.shape(by_month=False))


def test_references_of_avro_and_json_schemas(tmp_path: Path) -> None:
    metric = {"type": "enum", "name": "acme.Metric", "symbols": ["t", "h"]}
    fields = [{**one, "type": "acme.Metric"} if one["name"] == "metric" else one for one in READING["fields"]]  # type: ignore[dict-item]
    needy = {"type": "record", "name": "acme.Reading", "fields": fields}
    with SchemaRegistry() as registry:
        reference = {"name": "acme.Metric", "subject": "metric", "version": 1}
        registry.versions["metric", 1] = {"schema": json.dumps(metric)}
        registry.schemas[1] = {"schema": json.dumps(needy), "references": [reference]}
        whole = {**needy, "fields": [{**one, "type": metric} if one["name"] == "metric" else one for one in fields]}
        (row,) = parsed(
            silver(tmp_path, "avro", {"registry": registry.url}), [numbered(1, avro({**ROW, "metric": "h"}, whole))]
        )
        assert values(row) == ("d1", "h", 1.5, AT, None)
        registry.versions["value", 1] = {"schema": '{"type": "number"}', "schemaType": "JSON"}
        registry.schemas[2] = {
            "schema": json.dumps({"properties": {"value": {"$ref": "value.json"}}}),
            "schemaType": "JSON",
            "references": [{"name": "value.json", "subject": "value", "version": 1}],
        }
        table = silver(tmp_path, "json", {"registry": registry.url})
        base = {"device": "d1", "metric": "t", "at": "2026-05-01T11:00:00Z", "value": 1.5}
        good, bad = parsed(table, [numbered(2, json.dumps(one).encode()) for one in (base, {**base, "value": "x"})])
        assert values(good)[:3] == ("d1", "t", 1.5)
        assert bad["reason"] == "payload breaks its schema at /properties/value/$ref/type"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, b"{}"), "answers 500 to /schemas/ids/7"),
        ((401, b"{}"), "answers 401"),
        ((200, b"no json"), "is malformed"),
        ((200, b" " * (8 * 1024 * 1024 + 1)), "answers more than 8388608 bytes"),
    ],
)
def test_a_registry_that_does_not_work_fails_the_job_and_no_row(
    tmp_path: Path, answer: tuple[int, bytes], problem: str
) -> None:
    with SchemaRegistry() as registry:
        registry.answer = answer
        table = silver(tmp_path, "avro", {"registry": registry.url})
        with pytest.raises(HubError, match=problem):
            parsed(table, [numbered(7, avro(ROW))])
    with pytest.raises(HubError, match="cannot be reached"):
        parsed(table, [numbered(7, avro(ROW))])


def test_a_schema_of_the_registry_that_cannot_be_used_is_a_defect_of_its_rows(tmp_path: Path) -> None:
    with SchemaRegistry() as registry:
        registry.schemas = {1: {"schema": '{"type": "wrong"}'}, 2: {"schema": "{}", "schemaType": "JSON"}}
        rows = parsed(silver(tmp_path, "avro", {"registry": registry.url}), [numbered(1, b"x"), numbered(2, b"x")])
    assert {row["reason"] for row in rows} == {"payload names a schema that cannot be used"}


@pytest.mark.parametrize(
    ("form", "section", "problem"),
    [
        ("avro", None, "schema: is missing: avro needs one"),
        ("cbor", {"file": "x"}, "schema: is of no use to cbor"),
        ("avro", {}, "schema: give one of file, folder and registry"),
        ("avro", {"file": "a", "folder": "b"}, "schema: give one of"),
        ("avro", {"file": "/none.avsc"}, "schema: /none.avsc: No such file"),
        ("avro", {"folder": "/none"}, "schema: there is no folder /none"),
        ("avro", {"file": "FOLDER/text.avsc"}, "schema: the schema is not JSON"),
        ("avro", {"file": "FOLDER/number.avsc"}, "schema: the schema is not Avro"),
        ("avro", {"folder": "FOLDER"}, "holds 0 files such as 1.avsc"),
        ("json", {"folder": "FOLDER"}, "schema: schema 5: the schema is not JSON Schema"),
        ("json", {"file": "FOLDER/remote.json"}, "schema: the schema is not JSON Schema"),
        ("protobuf", {"file": "FOLDER/number.avsc"}, "message is the name"),
        ("protobuf", {"file": "FOLDER/number.avsc", "message": "a.B"}, "schema: the schema is no FileDescriptorSet"),
        ("protobuf", {"file": "FOLDER/good.desc", "message": "a.B"}, "schema: the schema has no message 'a.B'"),
        ("avro", {"registry": "ftp://x"}, "schema: registry must be an address"),
        ("avro", {"registry": "https://me:secret@x"}, "schema: registry must not hold a user"),
        ("avro", {"registry": "http://x", "user": "u", "password": "p"}, "must be https:// where a password is sent"),
        ("avro", {"registry": "https://x", "user": "u"}, "user and password go together"),
        ("avro", {"file": "FOLDER/good.desc", "ca": "x"}, "go together with registry"),
        ("avro", {"file": "x", "password": {"file": "/none"}}, "silver[0].schema.password: /none: No such file"),
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, form: str, section: dict[str, Any] | None, problem: str) -> None:
    (tmp_path / "text.avsc").write_text("no json")
    (tmp_path / "number.avsc").write_text("5")
    (tmp_path / "5.json").write_text('{"type": 5}')
    (tmp_path / "remote.json").write_text('{"$ref": "http://127.0.0.1:1/x.json"}')
    (tmp_path / "good.desc").write_bytes(proto_files().SerializeToString())
    given_ = section and {
        key: one.replace("FOLDER", str(tmp_path)) if isinstance(one, str) else one for key, one in section.items()
    }
    with pytest.raises(ConfigError) as caught:
        silver(tmp_path, form, given_)
    assert problem in str(caught.value)
    assert "silver[0]" in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_a_row_or_have_a_reason(payloads: list[bytes]) -> None:
    for decoder in _DECODERS:
        bad = Reasons(len(payloads))
        records = decoder.decode(pa.array(payloads, pa.binary()), bad)
        columns = [records.column(field, bad) for field in decoder.fields]
        assert {len(column) for column in [*columns, bad.to_arrow()]} == {len(payloads)}


def _decoders() -> list[Any]:
    from eyot_hub.jobs.payloads.payload_records import RecordDecoder
    from eyot_hub.jobs.payloads.payload_shape import Field, Shape
    from eyot_hub.jobs.payloads.schemas import SchemaSource

    files = proto_files().SerializeToString()
    avro_text, json_text = json.dumps(READING).encode(), json.dumps(JSON_SCHEMA).encode()
    sources = [
        ("avro", SchemaSource(text=avro_text)),
        ("avro", SchemaSource(numbered={0: avro_text})),
        ("json", SchemaSource(text=json_text)),
        ("protobuf", SchemaSource(text=files, message="acme.Reading")),
        ("protobuf", SchemaSource(numbered={0: files})),
    ]
    value = (Field("value", ("value",), "double"),)
    rest: dict[str, Any] = {"event_time": None, "required": (), "earliest": "", "earliest_us": 0, "ahead": ""}
    return [
        RecordDecoder(Shape(form, value, "stream", ahead_us=0, by_month=False, non_finite=False, schema=source, **rest))
        for form, source in sources
    ]


_DECODERS = _decoders()
