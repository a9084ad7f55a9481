"""MessagePack and CBOR as JSON: what a device may send, and what it should not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_hub.jobs.payloads.binary_payloads import plain_value

ENCODERS = {"msgpack": msgspec.msgpack.encode, "cbor": cbor2.dumps}
FORMS = sorted(ENCODERS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def json_text(form: str, payload: bytes) -> str | None:
    try:
        return json.dumps(plain_value(form, payload))
    except Exception:
        return None


def decoded(form: str, payload: bytes) -> Any:
    text = json_text(form, payload)
    return None if text is None else json.loads(text)


@pytest.mark.parametrize("form", FORMS)
@given(value=VALUES)
def test_what_json_can_say_comes_through(form: str, value: Any) -> None:
    text = json_text(form, ENCODERS[form](value))
    assert text is not None
    assert json.loads(text) == value


@pytest.mark.parametrize("form", FORMS)
@given(payload=st.binary(max_size=200))
def test_nothing_raises(form: str, payload: bytes) -> None:
    json_text(form, payload)


@pytest.mark.parametrize("form", FORMS)
def test_what_json_has_no_word_for(form: str) -> None:
    at = datetime(2026, 1, 31, 8, 0, 0, 250_000, UTC)
    value = {"at": at, "raw": b"ab\xff", "d": Decimal("21.5"), 7: [b"x"]}
    if form == "msgpack":
        value["d"] = 21.5  # msgspec writes decimals as text
    assert decoded(form, ENCODERS[form](value)) == {
        "at": "2026-01-31T08:00:00.250000+00:00",
        "raw": "ab\ufffd",
        "d": 21.5,
        "7": ["x"],
    }


def test_cbors_own() -> None:
    assert decoded("cbor", cbor2.dumps({"none": cbor2.undefined, "tag": cbor2.CBORTag(4711, "inner")})) == {
        "none": None,
        "tag": "inner",
    }
    numbers = {"decimal": Decimal("-273.15"), "small": Decimal("1e-7"), "half": cbor2.CBORTag(5, [-1, 3])}
    assert decoded("cbor", cbor2.dumps(numbers)) == {"decimal": -273.15, "small": 1e-7, "half": 1.5}


def test_string_references_of_cbor() -> None:
    """Encoders write them for every key but the first: they are taken, also within keys that are no texts."""
    readings = [{"temperature": number, b"humidity": "temperature"} for number in range(200)]
    plain = [{"temperature": number, "humidity": "temperature"} for number in range(200)]
    assert decoded("cbor", cbor2.dumps(readings, string_referencing=True)) == plain
    keys = {("temperature", "humidity"): 1, ("temperature", "pressure"): 2}
    assert decoded("cbor", cbor2.dumps(keys, string_referencing=True)) == {
        '["temperature", "humidity"]': 1,
        '["temperature", "pressure"]': 2,
    }


def referenced(kind: int, parts: bytes, count: int, *, tag: str = "d90100") -> bytes:
    """A namespace with a text (kind 3) or byte string (2) of 50 kB, and an array of parts, which refer to it."""
    long = bytes([kind << 5 | 26]) + (50_000).to_bytes(4, "big") + b"x" * 50_000
    return bytes.fromhex(tag) + b"\x82" + long + b"\x99" + count.to_bytes(2, "big") + parts * count


def shared(levels: int) -> bytes:
    """A list of lists, each of which holds the one before it twice: 2**levels values, if one counts each place."""
    twice = [b"\xd8\x1c\x82" + 2 * (b"\xd8\x1d\x18" + bytes([number])) for number in range(levels)]
    return b"\x98" + bytes([levels + 1]) + b"\xd8\x1c\x81\x61x" + b"".join(twice)


@pytest.mark.parametrize(
    "poison",
    [
        b"",
        b"\xff",
        b"\xa1\x61",
        cbor2.dumps({"a": 1}) + b"\x18",
        cbor2.dumps({"a": "b" * 10_000}) + b"\x00",
        b"\x81" * 100_000,
        bytes.fromhex("9b7fffffffffffffff"),
        bytes.fromhex("5b7fffffffffffffff"),
        bytes.fromhex("d81c81d81d00"),  # an array that holds itself
        b"\xc2\x5a\x00\x00\xff\xff" + b"\xff" * 65535,  # a number of 150,000 digits
        b"\x61\xff",
        shared(60),
        b"\xc4\x82\x01\xc2\x5a\x00\x0d\xbb\xa0" + b"\xff" * 900_000,
        b"\xc5\x82\x01\xc2\x5a\x00\x0d\xbb\xa0" + b"\xff" * 900_000,
        bytes.fromhex("c5821a3b9aca0001"),
        bytes.fromhex("c482f901"),
        referenced(3, bytes.fromhex("d81900"), 60_000),
        referenced(2, bytes.fromhex("d81900"), 60_000),
        referenced(3, bytes.fromhex("a181d8190001"), 60_000),
        referenced(3, bytes.fromhex("a1a1d819000101"), 60_000),
        referenced(2, bytes.fromhex("a1c681d8190001"), 60_000),
        referenced(3, bytes.fromhex("a181d8190001"), 60_000, tag="db0000000000000100"),
    ],
    ids=[
        "empty",
        "break",
        "cut",
        "cut behind",
        "more behind",
        "deep",
        "long array",
        "long bytes",
        "cycle",
        "digits",
        "utf8",
        "shared",
        "long decimal",
        "long float",
        "far float",
        "cut decimal",
        "references",
        "references to bytes",
        "references in keys",
        "references in maps in keys",
        "references in tags in keys",
        "long tag of references",
    ],
)
def test_poison_in_cbor(poison: bytes) -> None:
    assert json_text("cbor", poison) is None


@pytest.mark.parametrize("poison", [b"", b"\xc1", b"\x81", b"\x01\x01", b"\x91" * 100_000], ids=range(5))
def test_poison_in_msgpack(poison: bytes) -> None:
    assert json_text("msgpack", poison) is None
