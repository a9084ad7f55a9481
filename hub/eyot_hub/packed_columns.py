"""Finds the fields of packed records (docs/packed-reads.md) in a reply's payload, with numpy instead of an object per message.

The directory before the records gives each one's begin and end. A record is MessagePack `[ts_ns, subject, header,
payload]`: nearly always `94 cf <8 bytes>` and three times `c4 <1 byte>`, `c5 <2>` or `c6 <4>` and the bytes. All
records are first read in that form, field by field for all of them at once; a record is valid when its last field ends
where the record does. Records of another form (a clock in 1970 makes the time a shorter integer) are parsed
individually.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from eyot_hub.frame_columns import FrameError, Ints, Rows
from eyot_wire.jetstream.packed_range import KEY_BYTES, LENGTH_BYTES

Quads = npt.NDArray[np.uint32]

_ARRAY_OF_4: Final = 0x94
_UINT64: Final = 0xCF
_TIME_END: Final = 10  # in a record with a uint64 time
_BIN8, _BIN16, _BIN32 = 0xC4, 0xC5, 0xC6
_INT_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_BIN_BYTES: Final = {_BIN8: 1, _BIN16: 2, _BIN32: 4}


def packed_rows(buffer: bytearray, begin: int, end: int, count: int) -> Rows:
    """Return the records of the payload `buffer[begin:end]`; the buffer has eight bytes more. Raises FrameError."""
    lengths_at = begin + count * KEY_BYTES
    records_at = lengths_at + count * LENGTH_BYTES
    if records_at > end:
        raise FrameError("a packed reply is shorter than its directory")
    sequences = np.frombuffer(buffer, ">u8", count, begin).astype(np.int64)
    lengths = np.frombuffer(buffer, "<u4", count, lengths_at).astype(np.int64)
    ends = np.cumsum(lengths) + records_at
    if (int(ends[-1]) if count else records_at) != end:
        raise FrameError("the records of a packed reply do not fill it")
    return _fields(buffer, sequences, ends - lengths, ends)


def _fields(buffer: bytearray, sequences: Ints, starts: Ints, ends: Ints) -> Rows:
    octets = np.frombuffer(buffer, np.uint8)
    quads: Quads = np.ndarray((len(octets) - 3,), ">u4", buffer, 0, (1,))
    times: npt.NDArray[np.uint64] = np.ndarray((len(octets) - 7,), ">u8", buffer, 0, (1,))
    good = (octets[starts] == _ARRAY_OF_4) & (octets[np.minimum(starts + 1, ends)] == _UINT64)
    stored_ns = times[np.minimum(starts + 2, ends)].astype(np.int64)
    at = np.minimum(starts + _TIME_END, ends)
    borders = []
    for _ in range(3):
        start, size, known = _binary(quads, at)
        good &= known
        at = np.minimum(start + size, ends)
        borders.append((start, at))
    good &= start + size == ends
    rows = Rows(
        subject_start=borders[0][0],
        subject_end=borders[0][1],
        header_start=borders[1][0],
        header_end=borders[1][1],
        payload_start=borders[2][0],
        payload_end=borders[2][1],
        stream_seq=sequences,
        stored_ns=stored_ns,
    )
    for index in np.flatnonzero(~good).tolist():
        _one(buffer, rows, index, int(starts[index]), int(ends[index]))
    return rows


def _binary(quads: Quads, at: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return where the bytes of the binary fields at `at` begin, their lengths, and whether they are binary fields."""
    quad = quads[at].astype(np.int64)
    tag = quad >> 24
    short = tag == _BIN8
    if short.all():
        return at + 2, quad >> 16 & 0xFF, short
    middle, long = tag == _BIN16, tag == _BIN32
    size = np.where(short, quad >> 16 & 0xFF, quad >> 8 & 0xFFFF)
    if long.any():
        size = np.where(long, quads[np.minimum(at + 1, len(quads) - 1)].astype(np.int64), size)
    return at + np.where(short, 2, np.where(middle, 3, 5)), size, short | middle | long


def _one(buffer: bytearray, rows: Rows, index: int, start: int, end: int) -> None:
    """Parse one record of any form. Raises FrameError."""
    record = bytes(memoryview(buffer)[start:end])
    try:
        if record[0] != _ARRAY_OF_4:
            raise IndexError
        stored_ns, at = _integer(record, 1)
        borders = []
        for _ in range(3):
            width = _BIN_BYTES[record[at]]
            at += 1 + width
            size = int.from_bytes(record[at - width : at], "big")
            borders.append((start + at, start + at + size))
            at += size
        if at != len(record):
            raise IndexError
    except (IndexError, KeyError):
        raise FrameError(f"the record of sequence {int(rows.stream_seq[index])} is malformed") from None
    rows.stored_ns[index] = stored_ns
    rows.subject_start[index], rows.subject_end[index] = borders[0]
    rows.header_start[index], rows.header_end[index] = borders[1]
    rows.payload_start[index], rows.payload_end[index] = borders[2]


def _integer(record: bytes, at: int) -> tuple[int, int]:
    """Return the integer at `at` and its end."""
    tag = record[at]
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 0x100), at + 1
    behind = at + 1 + _INT_BYTES[tag]
    return int.from_bytes(record[at + 1 : behind], "big", signed=tag >= 0xD0), behind
