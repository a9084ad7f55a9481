"""Payloads to typed columns by the configured schema; a row that does not fit gets a reason.

Tasks parse in Arrow batches (`payloads.py`). Reasons are: a payload that is not an object, a field of another type, a
missing device, required field or event time, and an impossible event time (before `earliest`, or further ahead of the
hub's clock than `ahead`). No row stops the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eyot_hub import columns
from eyot_hub.jobs.config.config import Silver
from eyot_hub.jobs.payloads.payloads import EVENT_DATE, PayloadParser
from eyot_hub.jobs.payloads.payloads import REASON as REASON

ARROW_TYPES: Final = {
    "string": pa.string(),
    "double": pa.float64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": columns.TIMESTAMP,
}
_WILDCARDS: Final = {"*": r"[^.]+", ">": r".+"}
_PLAIN_NAME: Final = re.compile(r"^[A-Za-z0-9_]+$")


def matches(subjects: Iterable[str]) -> Column:
    """Return whether the column `subject` matches one of the patterns."""
    return F.col("subject").rlike(subject_pattern(subjects))


def subject_pattern(subjects: Iterable[str]) -> str:
    """Return a regular expression (of Java and of Python) for subjects that match one of the patterns."""
    return "^(?:" + "|".join(_regex(pattern) for pattern in subjects) + ")$"


def parse(rows: DataFrame, silver: Silver, kept: Sequence[str], *, by_month: bool = False) -> DataFrame:
    """Return the columns `kept` of `rows` with `device`, `event_time`, `event_date`, the declared columns, and `reason`.

    `reason` is null for good rows; payload and headers, if kept, are null for these. `event_date` is the event's day in
    UTC, or the first of its month.
    """
    needed = ["subject", "payload", "stored_at"]
    if not silver.device.startswith(("$", "subject:")):
        needed.append(silver.device)
    read = rows.select(*dict.fromkeys([*kept, *needed]))
    found = [("device", pa.string()), ("event_time", columns.TIMESTAMP), (EVENT_DATE, pa.date32())]
    found += [(name, ARROW_TYPES[column.type]) for name, column in silver.typed.items()]
    made = from_arrow_schema(pa.schema([*found, (REASON, pa.string())]))
    schema = StructType([read.schema[name] for name in kept] + made.fields)
    return read.mapInArrow(PayloadParser(silver.shape(by_month=by_month), kept), schema)


def subject_token(named: str) -> Column:
    """Return token N of the column `subject`, named `subject:N`."""
    return F.get(F.split("subject", r"\."), F.lit(int(named.removeprefix("subject:")) - 1))


def _regex(pattern: str) -> str:
    """Return a subject pattern as a regular expression."""
    parts = []
    for part in pattern.split("."):
        if part in _WILDCARDS:
            parts.append(_WILDCARDS[part])
        else:
            parts.append(part if _PLAIN_NAME.match(part) else re.escape(part))
    return r"\.".join(parts)
