"""The last day of each stream, one sample a minute, in a ring that is kept in one small file.

A minute has its slot (`minute % MINUTES`), so that a restart continues where the file ends. A row holds all streams: some minutes
are written at once, a few neighbouring kilobytes, and nothing is flushed. A row that power cut in half fails its checksum
and is left out; a file whose head is damaged is replaced.

    head    magic, length and CRC-32 of a JSON list of the columns; HEAD_BYTES in all
    rows    MINUTES rows: minute since 1970, CRC-32 of the row's other values, flags, COLUMNS_MAX cells (stored, backlog, oldest, state)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from eyot_daemon.net.heap import lazy_buffer

#: A day.
MINUTES = 1440
#: Streams in the history; further ones are counted.
COLUMNS_MAX = 32
FILE_NAME = "page-history"
MAGIC = b"EYOTHIS1"
HEAD_BYTES = 16 << 10
_HEAD = struct.Struct("<8sII")
_ROW = struct.Struct("<IIB3x")
_CELL = struct.Struct("<QQIB3x")
_CELLS_BYTES = COLUMNS_MAX * _CELL.size
ROW_BYTES = _ROW.size + _CELLS_BYTES
FILE_BYTES = HEAD_BYTES + MINUTES * ROW_BYTES
_OLDEST_MAX = 0xFFFFFFFE
_NONE = 0xFFFFFFFF
#: Flags of a row.
_LINKED = 1
#: States of a cell.
_ABSENT, _UNREAD, _CONFIRMED, _UNCERTAIN = range(4)

#: Points of five minutes: 288 a day are what a chart shows.
POINT = 5
#: Stored, backlog, oldest in a point.
_Cell = tuple[int | None, int | None, int | None]


class _Point(NamedTuple):
    """Five minutes: whether a link was up (None: no sample), and each column's values."""

    linked: bool | None
    cells: list[_Cell | None]


class Sample(NamedTuple):
    """A stream at one minute. `backlog` is None without a downstream; `oldest_s` without a backlog."""

    account: str
    stream: str
    stored: int
    backlog: int | None = None
    oldest_s: float | None = None
    uncertain: bool = False


class Column(Struct):
    """A stream's column; rows before the minute `since` belong to a stream that had the column before."""

    account: str
    stream: str
    since: int


class StreamHistory(Struct, frozen=True, kw_only=True):
    """One stream's points, oldest first; null: no sample, no downstream, or a position in doubt."""

    account: str
    name: str
    stored: list[int | None]
    backlog: list[int | None]
    #: age of the oldest unconfirmed message, seconds
    oldest_s: list[int | None]


class HistoryReport(Struct, frozen=True, kw_only=True):
    """`/eyot/history.json`: points of `step_s` seconds up to `until`, the largest value of each."""

    #: seconds since 1970: end of the last point
    until: int
    step_s: int
    streams: list[StreamHistory]
    #: whether a hub link was up at some time of the point; null without a sample
    linked: list[bool | None]
    #: streams that the history has no room for
    left_out: int


class Write(NamedTuple):
    """Bytes for the file, and the slots of their rows. `fresh`: the file is replaced first; `head`: the head is among them."""

    fresh: bool
    head: bool
    slots: frozenset[int]
    parts: tuple[tuple[int, bytes], ...]


class History:
    """The ring in memory; the owner reads and writes the file (`read_file`, `write_file`) beside the loop."""

    def __init__(self) -> None:
        self._rows = lazy_buffer(MINUTES * ROW_BYTES)
        self._columns: list[Column] = []
        self._left_out = 0
        self._points: dict[int, _Point] = {}  # past ones, by their first minute
        self._unwritten: set[int] = set()
        self._head_changed = True
        self._fresh = True

    def load(self, image: bytes) -> bool:
        """Take over a file's content; False: it is damaged or of another kind, and the history begins empty."""
        columns = _columns(image)
        if columns is None:
            return False
        self._columns = columns
        rows = memoryview(image)[HEAD_BYTES:]
        self._rows[: len(rows)] = rows
        self._rows[len(rows) :] = bytes(len(self._rows) - len(rows))
        self._unwritten.clear()
        self._points.clear()
        self._head_changed = self._fresh = False
        return True

    def add(self, minute: int, samples: Iterable[Sample], *, linked: bool) -> None:
        """Take the samples of a minute (since 1970); a second call for the same minute replaces the first."""
        cells = bytearray(_CELLS_BYTES)
        listed = list(samples)
        places = self._places(minute, listed)
        self._points.pop(minute - minute % POINT, None)
        for sample, place in zip(listed, places, strict=True):
            if place is not None:
                _CELL.pack_into(cells, place * _CELL.size, *_cell(sample))
        flags = _LINKED if linked else 0
        slot = minute % MINUTES
        _ROW.pack_into(self._rows, slot * ROW_BYTES, minute, _checksum(minute, flags, cells), flags)
        start = slot * ROW_BYTES + _ROW.size
        self._rows[start : start + _CELLS_BYTES] = cells
        self._unwritten.add(slot)
        self._left_out = places.count(None)

    def _places(self, minute: int, samples: list[Sample]) -> list[int | None]:
        """Return a column for each sample; a column whose stream is gone is used again."""
        known = {(column.account, column.stream): place for place, column in enumerate(self._columns)}
        wanted = {(sample.account, sample.stream) for sample in samples}
        free = [place for name, place in known.items() if name not in wanted]
        places: list[int | None] = []
        for sample in samples:
            name = (sample.account, sample.stream)
            place = known.get(name)
            if place is None and len(self._columns) < COLUMNS_MAX:
                place = len(self._columns)
                self._assign(place, Column(*name, since=minute))
            elif place is None and free:
                place = free.pop(0)
                self._assign(place, Column(*name, since=minute))
            if place is not None and self._columns[place].since > minute:  # the clock went back
                self._assign(place, Column(*name, since=minute))
                self._points.clear()
            places.append(place)
        return places

    def _assign(self, place: int, column: Column) -> None:
        self._columns[place : place + 1] = [column]
        self._head_changed = True
        for point in self._points.values():  # past ones, which the stream was not in
            point.cells[place : place + 1] = [None]

    # -- the file --------------------------------------------------------------------------------------------------

    def take_unwritten(self) -> Write:
        """Return what the file lacks, which is to be written now; neighbouring rows are one part."""
        parts: list[tuple[int, bytes]] = []
        if self._head_changed:
            parts.append((0, _head(self._columns)))
        for first, last in _runs(sorted(self._unwritten)):
            row = bytes(self._rows[first * ROW_BYTES : (last + 1) * ROW_BYTES])
            parts.append((HEAD_BYTES + first * ROW_BYTES, row))
        write = Write(self._fresh, self._head_changed, frozenset(self._unwritten), tuple(parts))
        self._unwritten.clear()
        self._head_changed = self._fresh = False
        return write

    def not_written(self, write: Write) -> None:
        """Note that a write failed: the next one has its rows, too."""
        self._unwritten |= write.slots
        self._head_changed |= write.head
        self._fresh |= write.fresh

    # -- the page --------------------------------------------------------------------------------------------------

    def report(self, minute: int) -> HistoryReport:
        """Return the day that ends with `minute`. Later rows (the clock went back) are left out."""
        last = minute - minute % POINT + POINT  # the end of the point that holds `minute`
        starts = range(last - MINUTES, last, POINT)
        self._points = {start: point for start, point in self._points.items() if start in starts}
        points = [self._point_at(start, minute) for start in starts]
        streams = []
        for place, column in enumerate(self._columns):
            cells = [point.cells[place] for point in points]
            if any(cell is not None for cell in cells):
                shown = [cell or (None, None, None) for cell in cells]
                stored, backlog, oldest = (list(values) for values in zip(*shown, strict=True))
                streams.append(
                    StreamHistory(
                        account=column.account, name=column.stream, stored=stored, backlog=backlog, oldest_s=oldest
                    )
                )
        linked = [point.linked for point in points]
        return HistoryReport(
            until=last * 60, step_s=POINT * 60, streams=streams, linked=linked, left_out=self._left_out
        )

    def prepare(self, minute: int) -> Iterator[None]:
        """Compute the past points of a day, one a step, so that the first report after a restart does not hold up the loop."""
        last = minute - minute % POINT
        for start in range(last - MINUTES + POINT, last, POINT):
            yield
            self._point_at(start, minute)

    def _point_at(self, start: int, now: int) -> _Point:
        """Return the point that begins with the minute `start`. A past one is computed once: a day is 46,000 cells."""
        point = self._points.get(start)
        if point is None:
            point = self._computed(range(start, min(start + POINT, now + 1)))
            if start + POINT <= now:
                self._points[start] = point
        return point

    def _computed(self, minutes: range) -> _Point:
        linked: bool | None = None
        cells: list[_Cell | None] = [None] * len(self._columns)
        for minute in minutes:
            start = minute % MINUTES * ROW_BYTES
            at, checksum, flags = _ROW.unpack_from(self._rows, start)
            start += _ROW.size
            if at != minute or checksum != _checksum(at, flags, self._rows[start : start + _CELLS_BYTES]):
                continue
            linked = bool(linked) or bool(flags & _LINKED)
            for place, column in enumerate(self._columns):
                if at >= column.since:
                    cells[place] = _larger(cells[place], _CELL.unpack_from(self._rows, start + place * _CELL.size))
        return _Point(linked, cells)


def read_file(path: Path) -> bytes:
    """Return a file's content, at most the size of a whole one; empty without a file. Raises OSError. In any thread."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES)
    except FileNotFoundError:
        return b""


def write_file(path: Path, write: Write) -> None:
    """Write without a flush. Raises OSError. In any thread."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if write.fresh else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        for offset, data in write.parts:
            if os.pwrite(descriptor, data, offset) != len(data):
                raise OSError("written in part")
    finally:
        os.close(descriptor)


def _cell(sample: Sample) -> tuple[int, int, int, int]:
    if sample.backlog is None:
        return sample.stored, 0, _NONE, _UNREAD
    oldest = _NONE if sample.oldest_s is None else max(0, min(int(sample.oldest_s), _OLDEST_MAX))
    return sample.stored, sample.backlog, oldest, _UNCERTAIN if sample.uncertain else _CONFIRMED


def _checksum(minute: int, flags: int, cells: bytearray | memoryview) -> int:
    return crc32(cells, minute ^ flags << 24)


def _head(columns: list[Column]) -> bytes:
    """Return the head; columns whose names do not fit are unknown after a restart."""
    kept = list(columns)
    while len(text := msgspec.json.encode(kept)) > HEAD_BYTES - _HEAD.size:
        kept.pop()
    return (_HEAD.pack(MAGIC, len(text), crc32(text)) + text).ljust(HEAD_BYTES, b"\0")


def _columns(image: bytes) -> list[Column] | None:
    """Return the columns that a file's head names; None: it is damaged."""
    if len(image) < HEAD_BYTES or len(image) > FILE_BYTES:
        return None
    magic, length, checksum = _HEAD.unpack_from(image)
    text = image[_HEAD.size : _HEAD.size + length]
    if magic != MAGIC or length > HEAD_BYTES - _HEAD.size or crc32(text) != checksum:
        return None
    try:
        columns = msgspec.json.decode(text, type=list[Column])
    except msgspec.MsgspecError:
        return None
    return columns if len(columns) <= COLUMNS_MAX else None


def _larger(before: _Cell | None, cell: tuple[int, int, int, int]) -> _Cell | None:
    """Return the largest values of the minutes so far and of one more."""
    stored, backlog, oldest, state = cell
    if state == _ABSENT:
        return before
    known = state == _CONFIRMED
    values: _Cell = (stored, backlog if known else None, (0 if oldest == _NONE else oldest) if known else None)
    if before is None:
        return values
    first, second, third = (
        one if other is None or (one is not None and one > other) else other
        for one, other in zip(before, values, strict=True)
    )
    return first, second, third


def _runs(slots: list[int]) -> Iterable[tuple[int, int]]:
    """Yield the first and last of each run of neighbours."""
    while slots:
        end = 0
        while end + 1 < len(slots) and slots[end + 1] == slots[end] + 1:
            end += 1
        yield slots[0], slots[end]
        slots = slots[end + 1 :]
