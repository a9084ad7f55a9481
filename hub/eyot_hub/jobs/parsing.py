"""Payloads to typed columns, by the schema that the configuration declares; what does not fit gets a reason instead.

JSON is parsed by Spark itself; MessagePack and CBOR become JSON in Arrow batches (`binary_payloads.py`), so that one parser judges
all of them. A payload that is no object, a field of another type,
a missing device, required field or event time, and an event time that cannot be true (before `earliest`, or further ahead of
the hub's clock than `ahead`) are reasons; no row stops the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eyot_hub.jobs.binary_payloads import DECODERS, json_text
from eyot_hub.jobs.config import Silver, seconds
from eyot_wire.go.time import rfc3339_to_ns

PARSED: Final = "_parsed"
CORRUPT: Final = "_corrupt"
REASON: Final = "reason"
US_PER_UNIT: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_WILDCARDS: Final = {"*": r"[^.]+", ">": r".+"}
_PLAIN_NAME: Final = re.compile(r"^[A-Za-z0-9_]+$")


def matches(subjects: Iterable[str]) -> Column:
    """Whether the column `subject` matches one of the patterns."""
    return F.col("subject").rlike("^(?:" + "|".join(_regex(pattern) for pattern in subjects) + ")$")


def parse(rows: DataFrame, silver: Silver) -> DataFrame:
    """`rows` with `device`, `event_time`, the declared columns, and `reason`, which is null for rows that are good."""
    fields = _fields(silver)
    schema = ", ".join(f"`{name}` {kind.upper()}" for name, kind in fields.items())
    if silver.format in DECODERS:
        rows = _as_json(rows, silver.format)
    else:
        rows = rows.withColumn("_text", F.col("payload").cast("string")).withColumn(
            CORRUPT + "_utf8", ~F.expr("is_valid_utf8(cast(payload as string))")
        )
    parsed = F.from_json(
        F.col("_text"),
        f"{schema}, `{CORRUPT}` STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
    )
    rows = rows.withColumn(PARSED, parsed)
    rows = rows.withColumn("device", _device(silver)).withColumn("event_time", _event_time(silver))
    rows = rows.withColumn(REASON, _reason(silver))
    columns = [F.col(f"{PARSED}.`{name}`").alias(name) for name in silver.columns]
    return rows.select("*", *columns).drop(PARSED, "_text", CORRUPT + "_utf8")


def _fields(silver: Silver) -> dict[str, str]:
    """Everything that is taken from the payload, with its type."""
    fields = dict(silver.columns)
    if silver.device.startswith("$."):
        fields.setdefault(silver.device[2:], "string")
    if silver.event_time.startswith("$."):
        fields.setdefault(silver.event_time[2:], "string" if silver.event_time_unit == "iso" else "double")
    return fields


def _device(silver: Silver) -> Column:
    if silver.device.startswith("$."):
        return F.col(f"{PARSED}.`{silver.device[2:]}`").cast("string")
    if silver.device.startswith("subject:"):
        return subject_token(silver.device)
    return F.col(silver.device)


def subject_token(named: str) -> Column:
    """Token N of the column `subject`, named `subject:N`."""
    return F.get(F.split("subject", r"\."), F.lit(int(named.removeprefix("subject:")) - 1))


def _event_time(silver: Silver) -> Column:
    if silver.event_time == "stored_at":
        return F.col("stored_at")
    value = F.col(f"{PARSED}.`{silver.event_time[2:]}`")
    if silver.event_time_unit == "iso":
        return F.try_to_timestamp(value.cast("string"))
    microseconds = value * F.lit(US_PER_UNIT[silver.event_time_unit])
    possible = microseconds.between(F.lit(-6.2e16), F.lit(2.5e17))
    return F.when(possible, F.timestamp_micros(F.round(microseconds).cast("bigint")))


def _reason(silver: Silver) -> Column:
    """The first thing that is wrong with a row, or null."""
    corrupt = F.col(f"{PARSED}.{CORRUPT}")
    reason = F.when(F.col(CORRUPT + "_utf8"), F.lit("payload is not UTF-8"))
    reason = reason.when(F.col("_text").isNull() | (F.length("_text") == 0), F.lit(f"payload is not {silver.format}"))
    reason = reason.when(
        F.col(PARSED).isNull() | (corrupt.isNotNull() & ~F.ltrim(F.col("_text")).startswith("{")),
        F.lit(f"payload is no {silver.format} object"),
    )
    reason = reason.when(corrupt.isNotNull(), F.lit(f"payload is not {silver.format} of the declared types"))
    reason = reason.when(F.col("device").isNull(), F.lit(f"no device in {silver.device}"))
    for name in silver.required:
        reason = reason.when(F.col(f"{PARSED}.`{name}`").isNull(), F.lit(f"{name} is missing"))
    reason = reason.when(F.col("event_time").isNull(), F.lit(f"no event time in {silver.event_time}"))
    earliest = F.timestamp_micros(F.lit(rfc3339_to_ns(silver.earliest) // 1000))
    reason = reason.when(F.col("event_time") < earliest, F.lit(f"event time before {silver.earliest}"))
    ahead = F.timestamp_micros(F.unix_micros("stored_at") + F.lit(int(seconds(silver.ahead) * 1_000_000)))
    return reason.when(F.col("event_time") > ahead, F.lit(f"event time more than {silver.ahead} ahead of the hub"))


def _as_json(rows: DataFrame, form: str) -> DataFrame:
    """Binary payloads as JSON text; null where a payload is not of that form."""
    names = rows.columns
    schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema.fields)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = pa.array([json_text(form, payload) for payload in batch.column("payload").to_pylist()], pa.string())
            bad = pa.array([False] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, texts, bad], [*names, "_text", CORRUPT + "_utf8"])

    return rows.mapInArrow(convert, f"{schema}, `_text` STRING, `{CORRUPT}_utf8` BOOLEAN")


def _regex(pattern: str) -> str:
    """A subject pattern as a regular expression."""
    parts = []
    for part in pattern.split("."):
        if part in _WILDCARDS:
            parts.append(_WILDCARDS[part])
        else:
            parts.append(part if _PLAIN_NAME.match(part) else re.escape(part))
    return r"\.".join(parts)
