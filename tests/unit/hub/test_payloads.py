"""Payloads to columns: accepted values, their types, and the reason for every refusal; random JSON beside Python's own parser."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from eyot_hub.columns import TIMESTAMP
from eyot_hub.jobs.config.config import ConfigError, Silver
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.payloads.payload_shape import field_path
from eyot_hub.jobs.payloads.payloads import PayloadParser, times_us
from support.hub.jobs_config import SILVER, jobs_config

STORED = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
AT = "2026-05-01T11:00:00Z"
ISO = {**SILVER, "event_time_unit": "iso"}
GOOD = {"device": "d", "metric": "m", "at": AT, "value": 1.5}
MISTYPED, NO_JSON = "payload is not json of the declared types", "payload is not json"


def silver(tmp: Path = Path("/tmp"), **changed: Any) -> Silver:
    base = to_builtins(jobs_config("nats://127.0.0.1", tmp))
    return convert({**base, "silver": [{**ISO, **changed}], "gold": []}, "tests").silver[0]


def parsed(payloads: list[bytes], by_month: bool = False, **changed: Any) -> list[dict[str, Any]]:
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["readings.boiler.t"] * len(payloads)),
            pa.array(payloads, pa.binary()),
            pa.array([STORED] * len(payloads), TIMESTAMP),
            pa.array(["edge"] * len(payloads)),
        ],
        ["subject", "payload", "stored_at", "origin_domain"],
    )
    (batch,) = PayloadParser(silver(**changed).shape(by_month=by_month), ["payload", "subject"])(iter([rows]))
    found: list[dict[str, Any]] = batch.to_pylist()
    for row, payload in zip(found, payloads, strict=True):
        assert row["payload"] == (payload if row["reason"] else None)
    return found


def one(payload: bytes | dict[str, Any], **changed: Any) -> dict[str, Any]:
    (row,) = parsed([payload if isinstance(payload, bytes) else json.dumps(payload).encode()], **changed)
    return row


def reason(payload: bytes | dict[str, Any], **changed: Any) -> str | None:
    found: str | None = one(payload, **changed)["reason"]
    return found


def test_a_good_one() -> None:
    row = one(GOOD)
    assert row == {
        "payload": None,
        "subject": "readings.boiler.t",
        "device": "d",
        "event_time": datetime(2026, 5, 1, 11, tzinfo=UTC),
        "event_date": date(2026, 5, 1),
        "metric": "m",
        "value": 1.5,
        "reason": None,
    }
    assert one({**GOOD, "at": "2026-04-30T23:59:59.999999Z"}, by_month=True)["event_date"] == date(2026, 4, 1)
    assert one({**GOOD, "more": {"deep": [1, {"x": None}]}, "value": None})["reason"] is None


TEXT = json.dumps(GOOD).encode()


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (TEXT + TEXT, NO_JSON),
        (TEXT + b" xyz", NO_JSON),
        (TEXT + b" ]", NO_JSON),
        (TEXT + b"\n \t\r", None),
        (b" " + TEXT, None),
        (b"\xef\xbb\xbf" + TEXT, NO_JSON),
        (TEXT.replace(b'"', b"'"), NO_JSON),
        (TEXT.replace(b"1.5", b"NaN"), NO_JSON),
        (TEXT.replace(b"1.5", b"Infinity"), NO_JSON),
        (TEXT.replace(b"1.5", b"-Infinity"), NO_JSON),
        (TEXT.replace(b"1.5", b"01.5"), NO_JSON),
        (TEXT.replace(b"1.5", b"+1.5"), NO_JSON),
        (TEXT.replace(b"1.5", b"0x10"), NO_JSON),
        (TEXT.replace(b"1.5", b"1e400"), MISTYPED),
        (TEXT.replace(b"1.5", b"1.5,"), NO_JSON),
        (TEXT.replace(b'"m"', b'"m\n"'), NO_JSON),
        (TEXT.replace(b'"m"', b'"m\xff"'), "payload is not UTF-8"),
        (TEXT[:-1] + b', "other": "\xff"}', "payload is not UTF-8"),
        (b"/* */" + TEXT, NO_JSON),
        (TEXT[:-1], NO_JSON),
        (b"", NO_JSON),
        (b"poison", NO_JSON),
        (b"[1]", "payload is no json object"),
        (b"null", "payload is no json object"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", NO_JSON),
    ],
)
def test_json_is_json(payload: bytes, why: str | None) -> None:
    assert reason(payload) == why


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("value", "1.5", MISTYPED),
        ("value", "NaN", MISTYPED),
        ("value", "Infinity", MISTYPED),
        ("value", True, MISTYPED),
        ("value", [1.5], MISTYPED),
        ("value", 2, None),
        ("value", 10**25, None),
        ("metric", 7, None),
        ("metric", None, "metric is missing"),
        ("device", None, "no device in $.device"),
        ("at", None, "no event time in $.at"),
        ("at", 1.5, MISTYPED),
        ("at", "1999-12-31T23:59:59Z", "event time before 2000-01-01T00:00:00Z"),
        ("at", "2026-05-02T12:00:00.000001Z", "event time more than 24h ahead of the hub"),
    ],
)
def test_members(member: str, value: Any, why: str | None) -> None:
    assert reason({**GOOD, member: value}) == why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01T11:00:00Z", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        ("2026-05-01t11:00:00z", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        ("2026-05-01 11:00:00", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        ("2026-05-01T11:00:00.25", datetime(2026, 5, 1, 11, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-05-01T11:00:00.123456789Z", datetime(2026, 5, 1, 11, 0, 0, 123_456, tzinfo=UTC)),
        ("2026-05-01T13:30:00+02:30", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        ("2026-05-01T03:00:00-08:00", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        *[
            (text, None)
            for text in (
                "11:00:00", "T11:00:00Z", "11:00", "2026", "2026-05", "2026-05-01", "2026-05-01T11", "2026-05-01T11:00",
                "2026-5-1T11:00:00Z", "20260501T110000Z", "2026-W18-5T11:00:00", "2026-02-30T11:00:00Z",
                "2026-05-01T24:00:00Z", "2026-05-01T11:60:00Z", "2026-05-01T11:00:60Z", "2026-05-01T11:00:00+0200",
                "2026-05-01T11:00:00+25:00", "2026-05-01T11:00:00 Europe/Berlin", "2026-05-01T11:00:00.", "now", "today",
                "1777633200", " 2026-05-01T11:00:00Z", "2026-05-01T11:00:00Z ", "２026-05-01T11:00:00Z", "",
                "0000-01-01T00:00:00Z", "+2026-05-01T11:00:00Z",
            )
        ],
    ],
)  # fmt: skip
def test_times_are_dates_with_times_of_day(text: str, expected: datetime | None) -> None:
    found = one({**GOOD, "at": text})
    assert found["event_time"] == expected
    assert (found["reason"] is None) == (expected is not None)
    # Among others, of which one has an offset, and as a column.
    (us,) = times_us(pa.array([text, "2026-05-01T00:00:00+01:00"]), "iso").slice(0, 1).to_pylist()
    assert us == (None if expected is None else round(expected.timestamp() * 1e6))
    columns = {"metric": "string", "value": "double", "seen": "timestamp"}
    assert reason({**GOOD, "seen": text}, columns=columns) == (None if expected else MISTYPED)


@given(st.lists(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), min_size=1, max_size=20))
def test_times_there_and_back(times: list[datetime]) -> None:
    expected = [(time - datetime(1970, 1, 1)) // timedelta(microseconds=1) for time in times]
    assert times_us(pa.array([time.isoformat() + "Z" for time in times]), "iso").to_pylist() == expected
    texts = [time.strftime("%d.%m.") + f"{time.year:04} {time:%H:%M:%S.%f}" for time in times]
    assert times_us(pa.array(texts), "%d.%m.%Y %H:%M:%S.%f").to_pylist() == expected


def test_units() -> None:
    for unit, factor in {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}.items():
        row = one({**GOOD, "at": 1_777_633_200 * factor}, event_time_unit=unit)
        assert row["event_time"] == datetime(2026, 5, 1, 11, tzinfo=UTC)
    for at in (1e300, -1e300, 3e14):
        assert reason({**GOOD, "at": at}, event_time_unit="ms") == "no event time in $.at"
    form = "%d.%m.%Y %H:%M:%S %z"
    row = one({**GOOD, "at": "01.05.2026 13:00:00 +0200"}, event_time_unit=form)
    assert row["event_time"] == datetime(2026, 5, 1, 11, tzinfo=UTC)
    assert reason({**GOOD, "at": AT}, event_time_unit=form) == "no event time in $.at"


def test_paths_and_names() -> None:
    columns = {
        "metric": {"type": "string", "path": "$.what"},
        "value": {"type": "double", "path": "$.now.t.v"},
        "dotted": {"type": "bigint", "path": "$['a.b'].c"},
        "since": {"type": "timestamp", "path": "$.now.since", "unit": "s"},
        "device_again": {"type": "string", "path": "$.dev.id"},
        "stamp": {"type": "bigint", "path": "$.now.at"},
    }
    config: dict[str, Any] = {
        "columns": columns,
        "device": "$.dev.id",
        "event_time": "$.now.at",
        "event_time_unit": "s",
    }
    body = {
        "what": "m",
        "dev": {"id": "d7", "x": 1},
        "now": {"t": {"v": 2.5}, "since": 60, "at": 1_777_633_200},
        "a.b": {"c": 3},
    }
    row = one(body, **config)
    assert row["reason"] is None
    assert (row["device"], row["device_again"], row["metric"], row["value"], row["dotted"]) == ("d7", "d7", "m", 2.5, 3)
    assert (row["since"], row["stamp"]) == (datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 1_777_633_200)
    assert one({**body, "a.b": None}, **config)["dotted"] is None
    assert reason({**body, "a.b": 5}, **config) == MISTYPED
    assert reason({**body, "dev": "d7"}, **config) == MISTYPED
    assert reason({**body, "dev": {}}, **config) == "no device in $.dev.id"
    assert reason({**body, "now": {**body["now"], "at": 1_777_633_200.5}}, **config) == MISTYPED  # type: ignore[dict-item]
    assert one(GOOD, device="subject:2")["device"] == "boiler"
    assert reason(GOOD, device="subject:4") == "no device in subject:4"
    assert one(GOOD, device="origin_domain")["device"] == "edge"
    assert field_path("$.a['b.c'].d") == ("a", "b.c", "d")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"device": "$.a..b"}, "device: must be"),
        ({"columns": {"metric": {"type": "string", "path": "a"}}}, "columns.metric: has the path 'a'"),
        (
            {"columns": {"metric": {"type": "string", "path": "$.device.x"}}},
            "columns: 'device' cannot be a value and hold others",
        ),
        ({"columns": {"metric": {"type": "text"}}}, "columns.metric: has type 'text'"),
        ({"columns": {"metric": {"type": "timestamp", "unit": "%H:%M"}}}, "columns.metric: '%H:%M' is neither iso"),
        ({"columns": {"metric": "string", "payload": "string"}}, "columns.payload: is one of the table's own"),
        ({"event_time_unit": "%Y-%m-%d"}, "event_time_unit: '%Y-%m-%d' is neither iso"),
        ({"event_time_unit": "%d %H:%M"}, "event_time_unit: '%d %H:%M' is neither"),
        ({"event_time_unit": "%Y-%m-%d %I:%M"}, "event_time_unit: "),
        ({"event_time_unit": "hours"}, "event_time_unit: 'hours' is neither"),
    ],
)
def test_mistakes_in_the_configuration(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        silver(**changed)


@pytest.mark.parametrize(("form", "encode"), [("msgpack", msgspec.msgpack.encode), ("cbor", cbor2.dumps)])
def test_numbers_that_are_not_finite(form: str, encode: Any) -> None:
    for value in (math.nan, math.inf, -math.inf):
        body = encode({**GOOD, "value": value})
        assert reason(body, format=form) == "value is not finite"
        found = one(body, format=form, non_finite=True)
        assert (found["reason"], str(found["value"])) == (None, str(value))
    for text, value in (("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)):
        assert str(one({**GOOD, "value": text}, non_finite=True)["value"]) == str(value)
    assert one({**GOOD, "value": 2}, non_finite=True)["value"] == 2.0
    for text in ("nan", "inf", "1.5"):
        assert reason({**GOOD, "value": text}, non_finite=True) == MISTYPED
    assert reason(encode({**GOOD, "at": 7}), format=form) == f"payload is not {form} of the declared types"
    assert reason(encode([1]), format=form) == f"payload is no {form} object"
    assert reason(b"\xc1", format=form) == f"payload is not {form}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["device", "metric", "at", "value", "x"]), JSON | st.just(AT)), min_size=1
    ),
    st.data(),
)
def test_random_payloads_are_what_python_says(bodies: list[dict[str, Any]], data: st.DataObject) -> None:
    """A payload is good exactly if Python finds the declared members of the declared types; cut ones never are."""
    payloads = [json.dumps({**GOOD, **body}).encode() for body in bodies]
    for payload, row in zip(payloads, parsed(payloads), strict=True):
        body = json.loads(payload)
        number = body["value"]
        fits = number is None or (isinstance(number, int | float) and not isinstance(number, bool))
        fits = fits and body["device"] is not None and body["metric"] is not None and body["at"] == AT
        if fits and isinstance(number, int) and abs(number) > 10**300:
            continue  # Python has larger integers than any double
        assert (row["reason"] is None) == fits, (payload, row["reason"])
        if fits:
            assert row["value"] == (None if number is None else float(number))
            assert not isinstance(body["device"], str) or row["device"] == body["device"]
    payload = data.draw(st.sampled_from(payloads))
    cut = data.draw(st.integers(0, len(payload) - 1))
    assert reason(payload[:cut])
