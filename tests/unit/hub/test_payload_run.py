"""The compiled twin of payload_run.py: the same hashes, and the same columns and reasons as the decoder gives."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_hub import _payload_run, native, payload_run
from eyot_hub.jobs.payloads.payload_columns import PayloadColumns, bytes_of
from eyot_hub.jobs.payloads.payload_records import Reasons, RecordDecoder, raw_type
from eyot_hub.jobs.payloads.payload_shape import Field, Shape

FIELDS = (
    Field("metric", ("metric",), "string"),
    Field("value", ("value",), "double"),
    Field("number", ("number",), "bigint"),
    Field("ok", ("ok",), "boolean"),
    Field("seen", ("seen",), "timestamp", "iso"),
    Field("deep", ("a", "b", "c"), "double"),
    Field("text", ("a", "t"), "string"),
    Field("grad", ("°C",), "bigint"),
)
REST: dict[str, Any] = {"required": (), "earliest": "", "earliest_us": 0, "ahead": "", "ahead_us": 0, "by_month": False}
SHAPES = [
    Shape("json", FIELDS, Field("$.device", ("device",), "string"), Field("$.at", ("at",), "timestamp", "ms"), **REST, non_finite=False),
    Shape("json", FIELDS[:3], "subject:2", None, **REST, non_finite=True),
]  # fmt: skip


def offsets(payloads: list[bytes | None]) -> tuple[Any, Any]:
    return bytes_of(pa.array(payloads, pa.binary()))


def bits(column: pa.Array) -> list[Any]:
    """What a column holds; doubles bit by bit."""
    return [struct.pack("d", value) if isinstance(value, float) else value for value in column.to_pylist()]


def odd(shape: Shape, payloads: list[bytes]) -> list[int]:
    """The rows that the scanner leaves to the decoder."""
    fields = RecordDecoder(shape).fields
    kinds = {pa.string(): 0, pa.float64(): 1, pa.int64(): 2, pa.bool_(): 3}
    scanner = native.JsonScanner(
        [tuple(key.encode() for key in field.path) for field in fields], [kinds[raw_type(field)] for field in fields]
    )
    slots, present = (np.zeros((len(fields), len(payloads)), kind) for kind in (np.int64, np.uint8))
    left = np.zeros(len(payloads), np.uint8)
    scanner.scan(*offsets(list(payloads)), slots, present, left)
    return [int(row) for row in np.flatnonzero(left)]


def compare(shape: Shape, payloads: list[bytes]) -> None:
    array = pa.array(payloads, pa.binary())
    decoder, reader = RecordDecoder(shape), PayloadColumns(shape)
    expected_bad, bad = Reasons(len(payloads)), Reasons(len(payloads))
    records, fields = decoder.decode(array, expected_bad), reader.read(array, bad)
    for field in decoder.fields:
        expected, found = records.column(field, expected_bad), fields.column(field, bad)
        assert found.type == expected.type
        found.validate(full=True)
        assert bits(found) == bits(expected), (field, payloads)
    assert bad.to_arrow().to_pylist() == expected_bad.to_arrow().to_pylist(), payloads


def test_it_is_compiled() -> None:
    assert native.COMPILED
    assert native.JsonScanner is _payload_run.JsonScanner


@given(st.lists(st.integers(0, 400).flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=20))
def test_hashes_are_those_of_hashlib(payloads: list[bytes]) -> None:
    sizes = [bytes(size) for size in (0, 1, 127, 128, 129, 255, 256, 257, 1000)]
    for some in (payloads, [*payloads, *sizes], [*sizes, *payloads]):
        expected, found = np.empty(len(some), np.uint64), np.empty(len(some), np.uint64)
        payload_run.hash_payloads(*offsets(list(some)), expected)
        _payload_run.hash_payloads(*offsets(list(some)), found)
        assert found.tolist() == expected.tolist()


def test_slices_and_nulls_are_hashed_as_they_are() -> None:
    array = pa.array([b"one", None, b"", b"two", b"three"], pa.binary())
    for part in (array, array[1:], array[2:4], array[5:], array.cast(pa.large_binary())):
        found = np.empty(len(part), np.uint64)
        native.hash_payloads(*bytes_of(part), found)
        expected = np.empty(len(part), np.uint64)
        payload_run.hash_payloads(*offsets([value or b"" for value in part.to_pylist()]), expected)
        assert found.tolist() == expected.tolist()


NUMBERS = (
    "0", "-0", "-0.0", "0.0", "1", "-1", "1.5", "0.1", "-0.3", "1e0", "1E+2", "1e-2", "1e22", "1e23", "1e-22", "1e-23", "00", "01", "-", "+1",
    "1.", ".5", "1e", "1e+", "0e", "0x1", "123456789012345678", "1234567890123456789", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "9007199254740993",
    "9007199254740993.0", "9007199254740992e1", "21.537485921374556", "0.30000000000000004", "179769313486231570000e288",
    "1.7976931348623157e308", "1.8e308", "1e400", "-1e400", "5e-324", "1e-400", "2.2250738585072014e-308", "1e-280", "1e280", "1e-281", "1e281",
    "0.00000000000000000000000000000000000000012345678901234567", "123456789012345678901234567890.5", "0." + "0" * 1100 + "1", "1" * 400, "1" * 400 + ".5",
    "1e99999999999", "1e-99999999999", "0e99999999999", "true", "false", "null", "nul", "truee", '"NaN"', '"Infinity"', '"1.5"', '""', "[]", "{}", "NaN",
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("member", ["value", "number", "ok", "at", "metric", "seen", "other", "a"])
def test_numbers(member: str, shape: Shape) -> None:
    compare(shape, [f'{{"{member}":{number}{space}}}'.encode() for number in NUMBERS for space in ("", " ", "\n")])
    compare(shape, [f'{{"a":{{"b":{{"c":{number}}}}}, "device": "d"}}'.encode() for number in NUMBERS])


ODD = [
    b"", b" ", b"{", b"}", b"{}", b" {} ", b"{},", b"{}{}", b"[]", b"null", b"1", b'"x"', b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a" : 1 }',
    b'{"metric":"a","metric":"b"}', b'{"metric":1,"metric":"b"}', b'{"a":{"t":"x"},"a":{"b":{"c":1}}}', b'{"a":{"t":"x"},"a":null}', b'{"a":null}',
    b'{"a":[]}', b'{"a":{"b":null}}', b'{"a":{"b":{}}}', b'{"a":{"b":{"c":1,"d":[1,2,{"e":"\\""}]}}}', b'{"metric":"a\\nb"}', b'{"metric":"\\u0041"}',
    b'{"metr\\u0069c":"x"}', b'{"x":"\\u0041"}', b'{"x":"\\x"}', b'{"x":"\\"}', b'{"x":"\\\\"}', b'{"x":"a\x00b"}', b'{"metric":"a\x1fb"}', b'{"metric":"\x7f"}',
    b'{"metric":"\xc2\xb0"}', b'{"metric":"\xc2"}', b'{"x":"\xc2"}', b'{"x":"\xed\xa0\x80"}', b'{"x":"\xf4\x90\x80\x80"}', b'{"\xc2\xb0C":5}',
    b'{"\xc2":5}', b'{"metric":"\xf0\x9f\x98\x80"}', b'{"metric":"a",}', b'{"metric":"a"', b'{"metric":"a"}x', b'{"metric":"a"}\x00', b'\xef\xbb\xbf{}',
    b'{"metric":1.50}', b'{"metric":{"a": 1}}', b'{"metric":true}', b'{"device":17}', b'{"x":' + b"[" * 31 + b"]" * 31 + b"}",
    b'{"x":' + b"[" * 40 + b"]" * 40 + b"}", b'{"x":' + b'{"y":' * 40 + b"1" + b"}" * 40 + b"}", b'{"x":[1,]}', b'{"x":[,1]}', b'{"x":[1 2]}', b'{"x":{"y":1,}}',
    b'{"":1}', b'{"\\":1}', b'{x:1}', b"{'x':1}", b'{"x":tru}', b'{"x":nulls}', b'{"ok":true}', b'{"ok":1}', b'{"ok":"true"}', b'{"ok":true,"ok":false}',
    b'{"seen":"2026-05-01T11:00:00Z"}', b'{"seen":""}', b'{"at":"2026-05-01T11:00:00Z"}', b'{"at":1777633200000}', b'{"at":1777633200000.5}',
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_odd_payloads_together_and_alone(shape: Shape) -> None:
    compare(shape, ODD)
    for payload in ODD:
        compare(shape, [payload])


PLAIN = {
    "device": "d",
    "metric": "m",
    "at": 1777633200000,
    "value": 21.537485921374556,
    "number": -7,
    "ok": True,
    "a": {"b": {"c": 1e22}, "t": "°"},
}


def test_plain_payloads_are_not_left_to_the_decoder() -> None:
    other = {"more": [1, -2.5e3, None, True, {"x": 'a"\\/\n'}], "e": {}, "l": []}
    payloads = [
        json.dumps(one, ensure_ascii=False).encode()
        for one in (PLAIN, {**PLAIN, **other}, {**PLAIN, "value": None}, {})
    ]
    assert odd(SHAPES[0], payloads) == []
    assert odd(SHAPES[0], [b"poison", *payloads, b'{"metric":"\\n"}']) == [0, 5]
    compare(SHAPES[0], payloads)


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["2026-05-01T11:00:00Z", "m"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["b", "c", "t", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_NAMES = st.sampled_from(["device", "metric", "value", "number", "ok", "seen", "at", "a", "°C", "other", ""])


@st.composite
def _payloads(draw: st.DrawFn) -> bytes:
    value = draw(st.dictionaries(_NAMES, _VALUES, max_size=8))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    body = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"{", b"}", b'"', b"\\", b",", b"0", b".", b"e", b"\xff", b" "])
        )
    return bytes(body)


@settings(deadline=None)
@given(st.lists(_payloads(), max_size=12))
def test_random_payloads(payloads: list[bytes]) -> None:
    for shape in SHAPES:
        compare(shape, payloads)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 25))
def test_every_double_as_its_digits_say(value: float, digits: int) -> None:
    payloads = [
        f'{{"value":{text}}}'.encode()
        for text in (repr(value), f"{value:.{digits}e}", f"{math.fmod(value, 1e15):.{digits}f}")
    ]
    compare(SHAPES[0], payloads)


def test_tables_that_do_not_fit_are_refused() -> None:
    scanner = native.JsonScanner([(b"a",), (b"b",)], [0, 1])
    begins, data = offsets([b"{}", b"{}"])
    fitting = np.zeros((2, 2), np.int64), np.zeros((2, 2), np.uint8), np.zeros(2, np.uint8)
    scanner.scan(begins, data, *fitting)
    for wrong in (
        (begins[:2], data, *fitting),
        (begins + 3, data, *fitting),
        (begins, data, fitting[0][:1], *fitting[1:]),
        (begins, data, np.zeros((2, 1), np.int64), *fitting[1:]),
    ):
        with pytest.raises(ValueError):
            scanner.scan(*wrong)
    with pytest.raises(ValueError):
        native.hash_payloads(begins + 3, data, np.zeros(2, np.uint64))
    with pytest.raises(ValueError):
        native.copy_texts(np.array([7 << 32]), begins[:2], data, np.array([0, 4], np.int32), np.zeros(4, np.uint8))
    texts, expected = np.zeros(3, np.uint8), np.zeros(3, np.uint8)
    for twin, into in ((_payload_run, texts), (payload_run, expected)):
        _, both = offsets([b'{"a":"xyz"}'])
        twin.copy_texts(np.array([6 << 32 | 3]), np.array([0, 11], np.int32), both, np.array([0, 3], np.int32), into)
    assert bytes(texts) == bytes(expected) == b"xyz"
