"""A device's own day: its backlog and the age of its oldest message, in steps of ten minutes. Bounded: 1.8 KB a device."""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final

from msgspec import Struct

STEP_S: Final = 600
STEPS: Final = 144
#: Not known: the device said nothing of it in this step.
_UNKNOWN: Final = 0xFFFFFFFF
_MOST: Final = _UNKNOWN - 1
_FIELDS: Final = 3
_HEARD, _LINKED, _SYNCED = 1, 2, 4
_HEAD: Final = struct.Struct("<4sQ")
_MAGIC: Final = b"EDH1"


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """One step. `at`: its beginning, seconds since 1970. Figures are the greatest that were reported in it."""

    at: float
    backlog: int | None
    oldest_s: float | None
    #: the device said something in this step
    heard: bool
    linked: bool
    synced: bool


class DayHistory:
    """The last day of one device."""

    def __init__(self) -> None:
        self._last = 0
        self._values = array("I", [_UNKNOWN, _UNKNOWN, 0]) * STEPS

    def note(self, at: float, backlog: int | None, oldest_s: float | None, *, linked: bool, synced: bool) -> bool:
        """Keep what a device said at `at`; return whether that is within the day before the latest."""
        step = int(at // STEP_S)
        if step <= self._last - STEPS or step < 0:
            return False
        self._move_to(step)
        index = step % STEPS * _FIELDS
        values = self._values
        values[index] = _greatest(values[index], backlog)
        values[index + 1] = _greatest(values[index + 1], None if oldest_s is None else int(oldest_s))
        values[index + 2] |= _HEARD | (_LINKED if linked else 0) | (_SYNCED if synced else 0)
        return True

    def points(self, now: float) -> list[HistoryPoint]:
        """Return the steps of the day that ends at `now`, the oldest first."""
        last = int(now // STEP_S)
        found = []
        for step in range(last - STEPS + 1, last + 1):
            known = self._last - STEPS < step <= self._last
            index = step % STEPS * _FIELDS
            backlog, oldest, flags = self._values[index : index + _FIELDS] if known else (_UNKNOWN, _UNKNOWN, 0)
            found.append(
                HistoryPoint(
                    at=float(step * STEP_S),
                    backlog=None if backlog == _UNKNOWN else backlog,
                    oldest_s=None if oldest == _UNKNOWN else float(oldest),
                    heard=bool(flags & _HEARD),
                    linked=bool(flags & _LINKED),
                    synced=bool(flags & _SYNCED),
                )
            )
        return found

    def encode(self) -> bytes:
        """Return the history as bytes."""
        values = self._values
        if sys.byteorder == "big":
            values = array("I", values)
            values.byteswap()
        return _HEAD.pack(_MAGIC, self._last) + values.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> DayHistory | None:
        """Return a history from its bytes; None for anything else."""
        made = cls()
        if len(data) != _HEAD.size + STEPS * _FIELDS * 4 or made._values.itemsize != 4:
            return None
        magic, made._last = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            return None
        made._values = array("I", data[_HEAD.size :])
        if sys.byteorder == "big":
            made._values.byteswap()
        return made

    def _move_to(self, step: int) -> None:
        for each in range(max(self._last + 1, step - STEPS + 1), step + 1):
            index = each % STEPS * _FIELDS
            self._values[index : index + _FIELDS] = array("I", (_UNKNOWN, _UNKNOWN, 0))
        self._last = max(self._last, step)


def _greatest(before: int, value: int | None) -> int:
    if value is None:
        return before
    value = min(_MOST, max(0, value))
    return value if before == _UNKNOWN else max(before, value)
