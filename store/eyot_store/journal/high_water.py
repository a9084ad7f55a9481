"""The journal's high-water mark, kept beside it: without the mark, a journal that lost its end looks like a shorter one.

`journal.high` is written after each frame and then not flushed: it never exceeds what is durable, and may lag after a
power cut. It holds sealed(array(salt: bin, number of the last frame, array of [stream id, last sequence])) of streams
with messages in the journal, in two places that are written in turn: a torn write leaves the one before.

The file is flushed when the store is opened, and LMDB records that it exists (`MarkRecord`). A mark that is missing then
means that the journal's end is unknown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from eyot_store.directories import flush_directory
from eyot_store.environment import MARK_RECORD_KEY
from eyot_store.errors import StoreError
from eyot_store.records.record import seal, unseal

FILE = "journal.high"
_KEY = b"journal.high"
_STREAMS_MAX = 200
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, int, list[tuple[int, int]]]).decode
_SLOT = 4096
_SLOTS = 2
_MESSAGE_BYTES_MIN = 32
"""Bytes of the smallest message in a frame, with its key."""


class Mark(NamedTuple):
    """The last known frame of a journal, and each stream's last sequence then."""

    number: int
    ends: dict[int, int]


class MarkRecord(msgspec.Struct, array_like=True):
    """What LMDB knows about the journal's mark."""

    salt: bytes
    """Of the journal that the mark is for."""
    capacity: int
    """Bytes of all segments of the journal."""
    closed: int
    """The last frame, when the store was closed in order; -1: the store is in use, and the mark exists."""

    def misses_mark(self, salt: bytes, applied: int, mark: Mark | None) -> bool:
        """Return whether a mark must exist and does not. `applied`: last frame in LMDB."""
        return mark is None and self.salt == salt and self.closed != applied

    @property
    def sequences_max(self) -> int:
        """Messages that a full journal can hold."""
        return self.capacity // _MESSAGE_BYTES_MIN


def decode_mark_record(value: bytes | None) -> MarkRecord | None:
    """Return what LMDB holds under MARK_RECORD_KEY, decoded; None if that is nothing, or damaged."""
    if value is None:
        return None
    try:
        return _decode_mark_record(unseal(MARK_RECORD_KEY, value, "record of the journal's mark"))
    except (StoreError, msgspec.MsgspecError):
        return None


def encode_mark_record(mark_record: MarkRecord) -> bytes:
    """Return the value for MARK_RECORD_KEY."""
    return seal(MARK_RECORD_KEY, _encode(mark_record))


_decode_mark_record = msgspec.msgpack.Decoder(MarkRecord).decode

UNKNOWN_END = f"journal: {FILE} is missing or damaged, so what the journal held at its end is not known"


class HighWater:
    """Writes the mark. `close` closes the file; `is_kept` says whether there is one."""

    def __init__(self, path: Path, salt: bytes, number: int, *, flush: bool) -> None:
        """Write the mark of an empty journal whose last frame was `number`; with `flush`, it is durable on return."""
        self._salt = salt
        self._ends: dict[int, tuple[int, int]] = {}  # stream id -> frame, last sequence
        self._next_ends = self._ends  # with the frame that is being written
        self._slot = 0
        self._fd = -1
        try:
            self._fd = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for self._slot in range(_SLOTS):
                os.pwrite(*self._place(number, {}))
            if flush:
                os.fsync(self._fd)
                flush_directory(path)
        except OSError:
            self.close()  # the mark only confirms the journal's end

    @property
    def is_kept(self) -> bool:
        return self._fd >= 0

    def reached(self, number: int, ends: list[tuple[int, int]], applied: int) -> None:
        """Record the durable frame `number`; `ends`: stream ids and their last sequences; `applied`: last frame in LMDB."""
        place = self.begin(number, ends, applied)
        if place is not None:
            try:
                os.pwrite(*place)
            except OSError:
                pass
        self.end()

    def begin(self, number: int, ends: list[tuple[int, int]], applied: int) -> tuple[int, bytes, int] | None:
        """As `reached`, for a frame that is yet to be written: return the file, the bytes and where they are written after it.

        None: there is no file. Without `end`, nothing has happened.
        """
        known = dict(self._ends)
        for stream_id, last_seq in ends:
            known[stream_id] = number, last_seq
        if len(known) > _STREAMS_MAX:
            for stream_id in [each for each, (frame, _) in known.items() if frame <= applied]:
                del known[stream_id]
            while len(known) > _STREAMS_MAX:
                del known[next(iter(known))]
        self._next_ends = known
        return self._place(number, known) if self._fd >= 0 else None

    def end(self) -> None:
        """Note that the frame of `begin` is durable."""
        self._ends = self._next_ends
        self._slot = (self._slot + 1) % _SLOTS

    def _place(self, number: int, ends: dict[int, tuple[int, int]]) -> tuple[int, bytes, int]:
        value = _encode((self._salt, number, [(stream_id, last) for stream_id, (_, last) in ends.items()]))
        sealed = len(value).to_bytes(4, "big") + seal(_KEY, value)
        return self._fd, sealed.ljust(_SLOT, b"\0"), self._slot * _SLOT

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_high(path: Path, salt: bytes) -> Mark | None:
    """Return the highest mark of the journal with this salt; None if there is none."""
    try:
        data = (path / FILE).read_bytes()
    except OSError:
        return None
    marks = [_mark(data[slot * _SLOT : (slot + 1) * _SLOT], salt) for slot in range(_SLOTS)]
    return max((mark for mark in marks if mark is not None), key=lambda mark: mark.number, default=None)


def _mark(data: bytes, salt: bytes) -> Mark | None:
    try:
        found, number, ends = _decode(unseal(_KEY, data[4 : 8 + int.from_bytes(data[:4], "big")], FILE))
    except (StoreError, msgspec.MsgspecError):
        return None
    return Mark(number, dict(ends)) if found == salt else None


def remove_high(path: Path) -> None:
    """Remove the mark together with the journal."""
    (path / FILE).unlink(missing_ok=True)
