"""A task's work on payloads: Arrow batches in; typed columns, and a reason for each row that does not fit, out.

Each silver table has one decoder, which is kept. It knows the declared fields, ignores all others, and accepts JSON as
in RFC 8259 (one value with nothing after it, no single quotes, no NaN). It guesses nothing: a number is not text that
looks like one, a time is a date and a time of day, and a value that is not at its path is of another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.columns import TIMESTAMP
from eyot_hub.jobs.payloads.payload_columns import Fields, PayloadColumns
from eyot_hub.jobs.payloads.payload_records import Reasons
from eyot_hub.jobs.payloads.payload_shape import US_PER_UNIT, Field, Shape

REASON: Final = "reason"
EVENT_DATE: Final = "event_date"
#: Times exist in the years 1 to 9999 only.
_TIME_US_MIN: Final = -62_135_596_800_000_000
_TIME_US_MAX: Final = 253_402_300_799_999_999
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
#: Times that Arrow parses: up to microseconds, in UTC.
_ISO_UTC: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z?$"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Ints = npt.NDArray[np.int64]


class PayloadParser:
    """For mapInArrow: adds device, event time, date, declared columns and `reason`, which is null for good rows.

    `kept`: input columns in the output; payload and headers among them are kept for bad rows only.
    """

    def __init__(self, shape: Shape, kept: Sequence[str]) -> None:
        self._shape = shape
        self._kept = tuple(kept)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(self.start(), batches)

    def start(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return the function that parses a batch, with a decoder that it keeps."""
        reader = PayloadColumns(self._shape)
        return lambda batch: self._parsed(batch, reader)

    def _parsed(self, batch: pa.RecordBatch, reader: PayloadColumns) -> pa.RecordBatch:
        shape, count = self._shape, batch.num_rows
        bad = Reasons(count)
        fields = reader.read(batch.column("payload"), bad)
        values = {field.name: _column(field, fields, bad, reader.mistyped) for field in shape.columns}
        device = self._device(batch, fields, bad)
        bad.where(~_present(device), f"no device in {_named(shape.device)}")
        for name in shape.required:
            bad.where(~_present(values[name]), f"{name} is missing")
        for field in shape.columns:
            if field.kind == "double" and not shape.non_finite:
                numbers = values[field.name].fill_null(0.0).to_numpy()
                bad.where(~np.isfinite(numbers), f"{field.name} is not finite")
        time_us, timed = self._event_time(batch, fields, bad)
        bad.where(~timed, f"no event time in {_named(shape.event_time)}")
        bad.where(time_us < shape.earliest_us, f"event time before {shape.earliest}")
        stored_us = batch.column("stored_at").cast(pa.int64()).to_numpy()
        bad.where(time_us > stored_us + shape.ahead_us, f"event time more than {shape.ahead} ahead of the hub")
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= values
        columns["device"] = device
        columns["event_time"] = pa.array(time_us, mask=~timed).cast(TIMESTAMP)
        columns[EVENT_DATE] = pa.array(self._dates(time_us), pa.date32(), mask=~timed)
        columns[REASON] = reason = bad.to_arrow()
        for name in {"payload", "headers"} & set(self._kept):
            if bad.any:
                columns[name] = columns[name].take(pa.array(np.arange(count), mask=~_present(reason)))
            else:
                columns[name] = pa.nulls(count, columns[name].type)
        names = [*self._kept, "device", "event_time", EVENT_DATE, *values, REASON]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _device(self, batch: pa.RecordBatch, fields: Fields, bad: Reasons) -> pa.StringArray:
        named = self._shape.device
        if isinstance(named, Field):
            return fields.column(named, bad)
        if named.startswith("subject:"):
            index = int(named.removeprefix("subject:")) - 1
            coded = batch.column("subject").dictionary_encode()
            tokens = [subject.split(".") for subject in coded.dictionary.to_pylist()]
            known = pa.array([token[index] if index < len(token) else None for token in tokens], pa.string())
            return known.take(coded.indices)
        return batch.column(named)

    def _event_time(self, batch: pa.RecordBatch, fields: Fields, bad: Reasons) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return microseconds since 1970, and which rows have an event time."""
        field = self._shape.event_time
        if field is None:
            return batch.column("stored_at").cast(pa.int64()).to_numpy(), np.ones(batch.num_rows, np.bool_)
        found = times_us(fields.column(field, bad), field.unit)
        return found.fill_null(0).to_numpy(), _present(found)

    def _dates(self, time_us: Ints) -> npt.NDArray[np.int32]:
        days = time_us // 86_400_000_000
        if self._shape.by_month:
            days = days.astype("datetime64[D]").astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return days.astype(np.int32)


def _column(field: Field, fields: Fields, bad: Reasons, mistyped: str) -> pa.Array:
    """Return a declared field with its column's type."""
    found = fields.column(field, bad)
    if field.kind != "timestamp":
        return found
    times = times_us(found, field.unit)
    bad.where(_present(found) & ~_present(times), mistyped)
    return times.cast(TIMESTAMP)


def times_us(values: pa.Array, unit: str) -> pa.Int64Array:
    """Return microseconds since 1970 of numbers or texts; null for values that are not times of this unit."""
    if unit in US_PER_UNIT:
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.rint(values.fill_null(np.nan).to_numpy() * US_PER_UNIT[unit])
            possible = (found >= _TIME_US_MIN) & (found <= _TIME_US_MAX)
        return pa.array(np.where(possible, found, 0).astype(np.int64), mask=~possible)
    if unit != "iso":
        return pa.array([_by_format(text, unit) for text in values.to_pylist()], pa.int64())
    if pc.all(pc.match_substring_regex(values, _ISO_UTC)).as_py():  # nulls aside
        try:
            whole: pa.Int64Array = pc.utf8_rtrim(values, "Z").cast(pa.timestamp("us")).cast(pa.int64())
            if (pc.min(whole).as_py() or 0) >= _TIME_US_MIN:
                return whole
        except pa.ArrowInvalid:
            pass  # such as February 30th
    return pa.array([_by_iso(text) for text in values.to_pylist()], pa.int64())


def _by_iso(text: str | None) -> int | None:
    """Parse a date and a time of day, with an offset or in UTC."""
    if text is None or not _ISO.fullmatch(text):
        return None
    try:
        return _us(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        return None


def _by_format(text: str | None, form: str) -> int | None:
    try:
        return None if text is None else _us(datetime.strptime(text, form))
    except (ValueError, OverflowError):
        return None


def _us(when: datetime) -> int:
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _named(place: Field | str | None) -> str:
    if isinstance(place, Field):
        return place.name
    return place or "stored_at"
