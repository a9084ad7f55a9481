"""A task's work on payloads: Arrow batches in; typed columns, and a reason for each row that does not fit, out.

Each silver table has one decoder, which is kept. It knows the declared fields, ignores all others, and accepts JSON as
in RFC 8259 (one value with nothing after it, no single quotes, no NaN). It guesses nothing: a number is not text that
looks like one, a time is a date and a time of day, and a value that is not at its path is of another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.columns import TIMESTAMP
from eyot_hub.errors import HubError
from eyot_hub.jobs.binary_payloads import DECODERS, plain_value
from eyot_hub.jobs.schema_payloads import Misfit, schema_decoder
from eyot_hub.jobs.schemas import SchemaSource

REASON: Final = "reason"
EVENT_DATE: Final = "event_date"
US_PER_UNIT: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
#: Times exist in the years 1 to 9999 only.
_TIME_US_MIN: Final = -62_135_596_800_000_000
_TIME_US_MAX: Final = 253_402_300_799_999_999
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
#: Times that Arrow parses: up to microseconds, in UTC.
_ISO_UTC: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z?$"
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NON_FINITE: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_ARROW: Final = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "boolean": pa.bool_()}

Ints = npt.NDArray[np.int64]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """A value in a payload: path and type; `unit` of times: iso, a number's unit, or a format of strptime."""

    name: str
    path: Path
    kind: str
    unit: str = "iso"


@dataclass(frozen=True)
class Shape:
    """What is extracted from the payloads of one silver table. Plain values: sent to the executors."""

    format: str  # json, msgpack, cbor, avro or protobuf
    columns: tuple[Field, ...]
    device: Field | str  # or subject:N, or a column's name
    event_time: Field | None  # None: stored_at
    required: tuple[str, ...]
    earliest: str
    earliest_us: int
    ahead: str
    ahead_us: int
    by_month: bool
    non_finite: bool
    schema: SchemaSource | None = None  # of avro and protobuf always, of json where it is checked


def field_path(text: str) -> Path:
    """Return the keys of `$.a.b`; a key with a dot or a bracket is written `$['a.b']`. Raises ValueError."""
    if not text.startswith("$"):
        raise ValueError(text)
    keys, at = [], 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(text)
        keys.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    if not keys:
        raise ValueError(text)
    return tuple(keys)


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\['([^']+)'\]")


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
        decoder = RecordDecoder(self._shape)
        return lambda batch: self._parsed(batch, decoder)

    def _parsed(self, batch: pa.RecordBatch, decoder: RecordDecoder) -> pa.RecordBatch:
        shape, count = self._shape, batch.num_rows
        records, reasons = decoder.records(batch.column("payload"))
        bad = _Reasons(reasons)
        values = {field.name: decoder.column(field, records, bad) for field in shape.columns}
        device = self._device(batch, decoder, records, bad)
        bad.where(~_present(device), f"no device in {_named(shape.device)}")
        for name in shape.required:
            bad.where(~_present(values[name]), f"{name} is missing")
        for field in shape.columns:
            if field.kind == "double" and not shape.non_finite:
                numbers = values[field.name].fill_null(0.0).to_numpy()
                bad.where(~np.isfinite(numbers), f"{field.name} is not finite")
        time_us, timed = self._event_time(batch, decoder, records, bad)
        bad.where(~timed, f"no event time in {_named(shape.event_time)}")
        bad.where(time_us < shape.earliest_us, f"event time before {shape.earliest}")
        stored_us = batch.column("stored_at").cast(pa.int64()).to_numpy()
        bad.where(time_us > stored_us + shape.ahead_us, f"event time more than {shape.ahead} ahead of the hub")
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= values
        columns["device"] = device
        columns["event_time"] = pa.array(time_us, mask=~timed).cast(TIMESTAMP)
        columns[EVENT_DATE] = pa.array(self._dates(time_us), pa.date32(), mask=~timed)
        columns[REASON] = reason = pa.array(bad.reasons, pa.string())
        poison = pa.array(np.arange(count), mask=~_present(reason))
        for name in {"payload", "headers"} & set(self._kept):
            columns[name] = columns[name].take(poison)
        names = [*self._kept, "device", "event_time", EVENT_DATE, *values, REASON]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _device(
        self, batch: pa.RecordBatch, decoder: RecordDecoder, records: list[Any], bad: _Reasons
    ) -> pa.StringArray:
        named = self._shape.device
        if isinstance(named, Field):
            return decoder.column(named, records, bad)
        if named.startswith("subject:"):
            index = int(named.removeprefix("subject:")) - 1
            coded = batch.column("subject").dictionary_encode()
            tokens = [subject.split(".") for subject in coded.dictionary.to_pylist()]
            known = pa.array([token[index] if index < len(token) else None for token in tokens], pa.string())
            return known.take(coded.indices)
        return batch.column(named)

    def _event_time(
        self, batch: pa.RecordBatch, decoder: RecordDecoder, records: list[Any], bad: _Reasons
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return microseconds since 1970, and which rows have an event time."""
        field = self._shape.event_time
        if field is None:
            return batch.column("stored_at").cast(pa.int64()).to_numpy(), np.ones(batch.num_rows, np.bool_)
        found = times_us(decoder.values(field, records, bad), field.unit)
        return found.fill_null(0).to_numpy(), _present(found)

    def _dates(self, time_us: Ints) -> npt.NDArray[np.int32]:
        days = time_us // 86_400_000_000
        if self._shape.by_month:
            days = days.astype("datetime64[D]").astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return days.astype(np.int32)


class _Reasons:
    """The first defect of each row."""

    def __init__(self, reasons: list[str | None]) -> None:
        self.reasons = reasons

    def where(self, wrong: npt.NDArray[np.bool_], reason: str) -> None:
        for index in np.flatnonzero(wrong).tolist():
            if self.reasons[index] is None:
                self.reasons[index] = reason

    def set(self, index: int, reason: str) -> None:
        if self.reasons[index] is None:
            self.reasons[index] = reason


class RecordDecoder:
    """Decodes payloads to records with the declared fields, and records to columns."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        fields = [*shape.columns]
        fields += [one for one in (shape.device, shape.event_time) if isinstance(one, Field)]
        tree: dict[str, Any] = {}
        self._shared: set[Path] = set()  # wanted as more than one type: decoded untyped, checked afterwards
        for field in fields:
            if _grow(tree, field.path, _decoded_type(field, non_finite=shape.non_finite)):
                self._shared.add(field.path)
        kind, self._places = _record_type(tree)
        self._empty = kind()
        self._json = msgspec.json.Decoder(kind).decode
        self._kind = kind
        self._mistyped = f"payload is not {shape.format} of the declared types"
        self._untyped = _untyped(shape)

    def records(self, payloads: pa.BinaryArray) -> tuple[list[Any], list[str | None]]:
        """Return a record for each payload (an empty one where there is a reason), and the reasons."""
        decode = self._json if self._untyped is None else self._binary
        records: list[Any] = []
        reasons: list[str | None] = [None] * len(payloads)
        decoded = map(decode, payloads.fill_null(b"").to_pylist())
        while len(records) < len(payloads):
            error: Exception = StopIteration()  # of a decoder: it ends `extend` without an error
            try:
                records.extend(decoded)  # up to a payload that does not decode; the map goes on behind it
            except HubError:
                raise  # of a registry that cannot be asked: the row may be good
            except Exception as raised:  # whatever a decoder raises for a device's payload: the row is bad, not the job
                error = raised
            if (at := len(records)) < len(payloads):
                records.append(self._empty)
                reasons[at] = self._why(error)
        if self._untyped is None:
            for index in _not_utf8(payloads):
                reasons[index] = "payload is not UTF-8"
        return records, reasons

    def _binary(self, payload: bytes) -> Any:
        assert self._untyped is not None
        return msgspec.convert(self._untyped(payload), self._kind)

    def _why(self, error: Exception) -> str:
        if isinstance(error, Misfit):
            return f"payload {error}"
        if not isinstance(error, msgspec.ValidationError):
            return f"payload is not {self._shape.format}"
        return self._mistyped if " - at `$" in str(error) else f"payload is no {self._shape.format} object"

    def values(self, field: Field, records: list[Any], bad: _Reasons) -> list[Any]:
        """Return the records' values of a field; None for a missing value or another type."""
        first, *rest = self._places[field.path]
        values = list(map(attrgetter(first), records))
        for name in rest:
            values = [None if value is None else getattr(value, name) for value in values]
        if field.path in self._shared:
            wanted = _decoded_type(field, non_finite=self._shape.non_finite)
            values = [self._converted(value, wanted, index, bad) for index, value in enumerate(values)]
        return values

    def _converted(self, value: Any, wanted: Any, index: int, bad: _Reasons) -> Any:
        try:
            return msgspec.convert(value, wanted)
        except msgspec.ValidationError:
            bad.set(index, self._mistyped)
            return None

    def column(self, field: Field, records: list[Any], bad: _Reasons) -> pa.Array:
        """Return a field of all records with its column's type."""
        values = self.values(field, records, bad)
        if field.kind == "timestamp":
            times = times_us(values, field.unit)
            for index in np.flatnonzero(_present(pa.array([value is not None or None for value in values]))).tolist():
                if not times[index].is_valid:
                    bad.set(index, self._mistyped)
            return times.cast(TIMESTAMP)
        if field.kind == "string":
            try:
                return pa.array(values, pa.string())
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return pa.array([_text(value) for value in values], pa.string())
        if field.kind == "double" and self._shape.non_finite:
            values = [self._number(value, index, bad) for index, value in enumerate(values)]
        return pa.array(values, _ARROW[field.kind])

    def _number(self, value: Any, index: int, bad: _Reasons) -> float | None:
        if isinstance(value, str):
            if value not in _NON_FINITE:
                bad.set(index, self._mistyped)
            return _NON_FINITE.get(value)
        return None if value is None else float(value)


def _untyped(shape: Shape) -> Callable[[bytes], Any] | None:
    """Return what decodes payloads to JSON values; None for JSON, which is decoded to its record at once."""
    if shape.schema is not None:
        return schema_decoder(shape.format, shape.schema)
    return partial(plain_value, shape.format) if shape.format in DECODERS else None


def times_us(values: list[Any], unit: str) -> pa.Int64Array:
    """Return microseconds since 1970; null for values that are not times of this unit."""
    if unit in US_PER_UNIT:
        numbers = pa.array(values, pa.float64())
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.rint(numbers.fill_null(np.nan).to_numpy() * US_PER_UNIT[unit])
            possible = (found >= _TIME_US_MIN) & (found <= _TIME_US_MAX)
        return pa.array(np.where(possible, found, 0).astype(np.int64), mask=~possible)
    texts = [value if isinstance(value, str) else None for value in values]
    if unit != "iso":
        return pa.array([_by_format(text, unit) for text in texts], pa.int64())
    array = pa.array(texts, pa.string())
    if pc.all(pc.match_substring_regex(array, _ISO_UTC)).as_py():  # nulls aside
        try:
            whole: pa.Int64Array = pc.utf8_rtrim(array, "Z").cast(pa.timestamp("us")).cast(pa.int64())
            if (pc.min(whole).as_py() or 0) >= _TIME_US_MIN:
                return whole
        except pa.ArrowInvalid:
            pass  # such as February 30th
    return pa.array([_by_iso(text) for text in texts], pa.int64())


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


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _named(place: Field | str | None) -> str:
    if isinstance(place, Field):
        return place.name
    return place or "stored_at"


def _not_utf8(payloads: pa.BinaryArray) -> list[int]:
    try:
        payloads.cast(pa.string())
        return []
    except pa.ArrowInvalid:
        return [index for index, payload in enumerate(payloads.to_pylist()) if not _is_utf8(payload or b"")]


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
        return True
    except UnicodeDecodeError:
        return False


def _decoded_type(field: Field, *, non_finite: bool) -> Any:
    """Return the decoder's type for a field; text may be declared for numbers, whose digits are kept as they are."""
    if field.kind == "timestamp":
        return float | None if field.unit in US_PER_UNIT else str | None
    if field.kind == "double":
        return float | str | None if non_finite else float | None
    return {"string": Any, "bigint": _INT64 | None, "boolean": bool | None}[field.kind]


def _grow(tree: dict[str, Any], path: Path, kind: Any) -> bool:
    """Add a leaf to the tree of fields; return whether it exists there as another type (then its type becomes Any).

    Raises ValueError where an object and a value would share a path.
    """
    *above, last = path
    for key in above:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ValueError(f"{key!r} cannot be a value and hold others")  # noqa: TRY004 - of the configuration
    if isinstance(tree.get(last), dict):
        raise ValueError(f"{last!r} cannot be a value and hold others")  # noqa: TRY004
    other = bool(tree.get(last, kind) != kind)
    tree[last] = Any if other else kind
    return other


def _record_type(tree: dict[str, Any]) -> tuple[type[msgspec.Struct], dict[Path, tuple[str, ...]]]:
    """Return a Struct for the tree, and the attribute path of each leaf."""
    members: list[tuple[str, Any, Any]] = []
    renamed: dict[str, str] = {}
    places: dict[Path, tuple[str, ...]] = {}
    for number, (key, below) in enumerate(tree.items()):
        name = f"m{number}"
        renamed[name] = key
        if isinstance(below, dict):
            inner, inside = _record_type(below)
            members.append((name, inner | None, None))
            places |= {(key, *path): (name, *attributes) for path, attributes in inside.items()}
        else:
            members.append((name, below, None))
            places[key,] = (name,)
    return msgspec.defstruct("Record", members, rename=renamed, gc=False), places
