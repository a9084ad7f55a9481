"""Payloads to records of the declared fields, one by one, by kept decoders; records to columns.

The decoder knows the declared fields, ignores all others, and accepts JSON as in RFC 8259 (one value with nothing after
it, no single quotes, no NaN).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eyot_hub.errors import HubError
from eyot_hub.jobs.payloads.binary_payloads import DECODERS, plain_value
from eyot_hub.jobs.payloads.payload_shape import US_PER_UNIT, Field, Path, Shape
from eyot_hub.jobs.payloads.schema_payloads import Misfit, schema_decoder

_INT64: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_NON_FINITE: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_ARROW: Final = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "boolean": pa.bool_()}


class Reasons:
    """The first defect of each row."""

    def __init__(self, rows: int) -> None:
        self._reasons: list[str | None] = [None] * rows
        self.any = False  # whether a row has a defect

    def set(self, index: int, reason: str) -> None:
        """Note a row's defect, unless it has one."""
        if self._reasons[index] is None:
            self._reasons[index] = reason
            self.any = True

    def where(self, wrong: npt.NDArray[np.bool_], reason: str) -> None:
        """Note the same defect for the rows that `wrong` marks."""
        for index in np.flatnonzero(wrong).tolist():
            self.set(index, reason)

    def to_arrow(self) -> pa.StringArray:
        return pa.array(self._reasons, pa.string()) if self.any else pa.nulls(len(self._reasons), pa.string())


class ReasonsOfSome:
    """Notes the defects of some rows of a batch, which are numbered among themselves."""

    def __init__(self, reasons: Reasons, rows: npt.NDArray[np.int64]) -> None:
        """Create the view; `rows`: the number of each row in the batch."""
        self._reasons, self._rows = reasons, rows.tolist()

    def set(self, index: int, reason: str) -> None:
        """Note a row's defect, unless it has one."""
        self._reasons.set(self._rows[index], reason)


class Defects(Protocol):
    """Takes the first defect of each row."""

    def set(self, index: int, reason: str) -> None:
        """Note a row's defect, unless it has one."""


class RecordDecoder:
    """Decodes payloads to records with the declared fields, and records to columns."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        fields = [*shape.columns]
        fields += [one for one in (shape.device, shape.event_time) if isinstance(one, Field)]
        tree: dict[str, Any] = {}
        self._shared: set[Path] = set()  # wanted as more than one type: decoded untyped, checked afterwards
        self.fields = tuple(fields)
        for field in fields:
            if _grow(tree, field.path, _decoded_type(field, non_finite=shape.non_finite)):
                self._shared.add(field.path)
        kind, self._places = _record_type(tree)
        self._empty = kind()
        self._json = msgspec.json.Decoder(kind).decode
        self._kind = kind
        self.mistyped = f"payload is not {shape.format} of the declared types"
        self._untyped = _untyped(shape)

    @property
    def is_plain_json(self) -> bool:
        """Whether payloads are JSON, and no place is wanted as more than one type."""
        return self._untyped is None and not self._shared

    def decode(self, payloads: pa.BinaryArray, bad: Defects) -> Records:
        """Return a record for each payload: an empty one where there is a defect."""
        decode = self._json if self._untyped is None else self._binary
        records: list[Any] = []
        not_utf8 = dict.fromkeys(_not_utf8(payloads), True) if self._untyped is None else {}
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
                if at not in not_utf8:
                    bad.set(at, self._why(error))
        for index in not_utf8:
            bad.set(index, "payload is not UTF-8")
        return Records(self, records)

    def _binary(self, payload: bytes) -> Any:
        assert self._untyped is not None
        return msgspec.convert(self._untyped(payload), self._kind)

    def _why(self, error: Exception) -> str:
        if isinstance(error, Misfit):
            return f"payload {error}"
        if not isinstance(error, msgspec.ValidationError):
            return f"payload is not {self._shape.format}"
        return self.mistyped if " - at `$" in str(error) else f"payload is no {self._shape.format} object"

    def values(self, field: Field, records: list[Any], bad: Defects) -> list[Any]:
        """Return the records' values of a field; None for a missing value or another type."""
        first, *rest = self._places[field.path]
        values = list(map(attrgetter(first), records))
        for name in rest:
            values = [None if value is None else getattr(value, name) for value in values]
        if field.path in self._shared:
            wanted = _decoded_type(field, non_finite=self._shape.non_finite)
            values = [self._converted(value, wanted, index, bad) for index, value in enumerate(values)]
        return values

    def _converted(self, value: Any, wanted: Any, index: int, bad: Defects) -> Any:
        try:
            return msgspec.convert(value, wanted)
        except msgspec.ValidationError:
            bad.set(index, self.mistyped)
            return None

    def column(self, field: Field, records: list[Any], bad: Defects) -> pa.Array:
        """Return a field of all records with the type in which payloads have it."""
        values = self.values(field, records, bad)
        kind = raw_type(field)
        if kind == pa.string():
            try:
                return pa.array(values, kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return pa.array([_text(value) for value in values], kind)
        if field.kind == "double" and self._shape.non_finite:
            values = [self._number(value, index, bad) for index, value in enumerate(values)]
        return pa.array(values, kind)

    def _number(self, value: Any, index: int, bad: Defects) -> float | None:
        if isinstance(value, str):
            if value not in _NON_FINITE:
                bad.set(index, self.mistyped)
            return _NON_FINITE.get(value)
        return None if value is None else float(value)


class Records:
    """A batch of decoded payloads."""

    def __init__(self, decoder: RecordDecoder, records: list[Any]) -> None:
        self._decoder, self._records = decoder, records

    def column(self, field: Field, bad: Defects) -> pa.Array:
        """Return a field with the type in which payloads have it; null for a missing value."""
        return self._decoder.column(field, self._records, bad)


def raw_type(field: Field) -> pa.DataType:
    """Return the type in which payloads have a field: of times, a number or a text."""
    if field.kind == "timestamp":
        return pa.float64() if field.unit in US_PER_UNIT else pa.string()
    return _ARROW[field.kind]


def _untyped(shape: Shape) -> Callable[[bytes], Any] | None:
    """Return what decodes payloads to JSON values; None for JSON, which is decoded to its record at once."""
    if shape.schema is not None:
        return schema_decoder(shape.format, shape.schema)
    return partial(plain_value, shape.format) if shape.format in DECODERS else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


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
