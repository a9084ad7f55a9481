"""Plain JSON to columns without an object for each row; the decoder (`payload_records.py`) reads what is not plain.

Both give the same columns and the same reasons: the decoder is the rule, and the test's oracle.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import native, payload_run
from eyot_hub.jobs.payloads.payload_records import Reasons, ReasonsOfSome, RecordDecoder, Records, raw_type
from eyot_hub.jobs.payloads.payload_shape import Field, Shape

_KINDS: Final = {
    pa.string(): payload_run.TEXT,
    pa.float64(): payload_run.DOUBLE,
    pa.int64(): payload_run.INTEGER,
    pa.bool_(): payload_run.BOOLEAN,
}

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Fields(Protocol):
    """The fields of a batch of payloads."""

    def column(self, field: Field, bad: Reasons) -> pa.Array:
        """Return a field with the type in which payloads have it; null for a missing value."""


class PayloadColumns:
    """Payloads of one silver table to columns."""

    def __init__(self, shape: Shape) -> None:
        self._decoder = RecordDecoder(shape)
        self.mistyped = self._decoder.mistyped
        self._numbers: dict[Field, int] = {}
        self._scanner: payload_run.JsonScanner | None = None
        if native.COMPILED and self._decoder.is_plain_json:
            fields = self._decoder.fields
            self._numbers = {field: number for number, field in enumerate(fields)}
            paths = [tuple(key.encode() for key in field.path) for field in fields]
            self._scanner = native.JsonScanner(paths, [_KINDS[raw_type(field)] for field in fields])

    def read(self, payloads: pa.BinaryArray, bad: Reasons) -> Fields:
        """Read a batch. A row that is no payload of the declared fields gets a reason."""
        if self._scanner is None:
            return self._decoder.decode(payloads, bad)
        count = len(payloads)
        begins, data = bytes_of(payloads)
        slots = np.empty((len(self._numbers), count), np.int64)
        present = np.zeros((len(self._numbers), count), np.uint8)
        odd = np.zeros(count, np.uint8)
        self._scanner.scan(begins, data, slots, present, odd)
        rows = np.flatnonzero(odd)
        if len(rows) == count:
            return self._decoder.decode(payloads, bad)
        scanned = _Scanned(begins, data, slots, present.view(np.bool_))
        if not len(rows):
            return _Batch(self._numbers, scanned)
        some = ReasonsOfSome(bad, rows)
        left = _Left(self._decoder.decode(payloads.take(pa.array(rows)), some), some, pa.array(odd.view(np.bool_)))
        return _Batch(self._numbers, scanned, left)


def bytes_of(payloads: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return where each payload begins (and the last one ends), and the bytes of all; of a null: none."""
    if payloads.type != pa.binary():
        payloads = payloads.cast(pa.binary())  # Spark may hand over 64-bit offsets
    if payloads.null_count:
        payloads = payloads.fill_null(b"")
    _, offsets, data = payloads.buffers()
    if not len(payloads):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    begins = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    return begins, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


class _Scanned:
    """What the scanner found."""

    def __init__(self, begins: npt.NDArray[np.int32], data: Bytes, slots: Ints, present: npt.NDArray[np.bool_]) -> None:
        self._begins, self._data, self._slots, self._present = begins, data, slots, present

    def column(self, number: int, kind: pa.DataType) -> pa.Array:
        """Return a field; null in the rows that are left."""
        slots, present = self._slots[number], self._present[number]
        if kind == pa.string():
            return self._texts(slots, present)
        mask = None if present.all() else ~present
        if kind == pa.float64():
            return pa.array(slots.view(np.float64), mask=mask)
        return pa.array(slots if kind == pa.int64() else slots == 1, kind, mask=mask)

    def _texts(self, slots: Ints, present: npt.NDArray[np.bool_]) -> pa.StringArray:
        offsets = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(np.where(present, slots & 0xFFFFFFFF, 0), out=offsets[1:])
        texts = np.empty(offsets[-1], np.uint8)
        native.copy_texts(slots, self._begins, self._data, offsets, texts)
        valid = None if present.all() else pa.array(present).buffers()[1]
        return pa.StringArray.from_buffers(len(slots), pa.py_buffer(offsets), pa.py_buffer(texts), valid)


class _Left:
    """The rows that the decoder has read."""

    def __init__(self, records: Records, bad: ReasonsOfSome, rows: pa.BooleanArray) -> None:
        """Keep the records; `rows`: which rows of the batch they are."""
        self._records, self._bad, self._rows = records, bad, rows

    def put_into(self, column: pa.Array, field: Field) -> pa.Array:
        """Return the column with the values of these rows."""
        return pc.replace_with_mask(column, self._rows, self._records.column(field, self._bad))


class _Batch:
    """The fields of a batch, of the scanner and of the decoder."""

    def __init__(self, numbers: dict[Field, int], scanned: _Scanned, left: _Left | None = None) -> None:
        self._numbers, self._scanned, self._left = numbers, scanned, left

    def column(self, field: Field, bad: Reasons) -> pa.Array:
        """Return a field with the type in which payloads have it; null for a missing value."""
        column = self._scanned.column(self._numbers[field], raw_type(field))
        return column if self._left is None else self._left.put_into(column, field)
