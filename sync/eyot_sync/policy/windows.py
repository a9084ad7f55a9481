"""Recurring times for replication: `mon-fri 22:00-06:00`.

A window begins on each of its days at `start` and ends at `end`, both minutes after local midnight; one whose end is
not after its start extends into the next day. Local time is an argument (`tz`; None: the system's). On days of a clock
change, a window that begins at a nonexistent time begins after the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, time, timedelta, tzinfo

from msgspec import Struct

from eyot_wire.digits import is_digits

DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))
_MINUTES = 24 * 60
# All windows repeat weekly, so nothing new follows.
_AHEAD_DAYS = 8


class Window(Struct, frozen=True):
    """Days (0 Monday) and minutes after midnight; `end` 1440 is midnight."""

    days: frozenset[int] = EVERY_DAY
    start: int = 0
    end: int = _MINUTES

    def __str__(self) -> str:
        days = "" if self.days == EVERY_DAY else ",".join(DAY_NAMES[day] for day in sorted(self.days)) + " "
        return f"{days}{_clock(self.start)}-{_clock(self.end)}"


class Opening(Struct, frozen=True):
    """Whether it is time, and until when that holds, seconds since the epoch (infinity: always)."""

    is_open: bool
    until_s: float


ALWAYS = Opening(True, math.inf)


def parse_window(text: str) -> Window:
    """Parse `[days] [HH:MM-HH:MM]`, with days `mon-fri` or `sat,sun` or `daily`. Raises ValueError with the expected form."""
    words = text.lower().split()
    if not 1 <= len(words) <= 2:
        raise ValueError(_EXPECTED)
    days, minutes = EVERY_DAY, (0, _MINUTES)
    if ":" in words[-1]:
        minutes = _minutes_of(words.pop())
    if words:
        days = _days_of(words.pop())
    if words:
        raise ValueError(_EXPECTED)
    return Window(days, *minutes)


def opening(windows: Sequence[Window], now_s: float, tz: tzinfo | None = None) -> Opening:
    """Is `now_s` (seconds since the epoch) within one of the windows? No windows: always."""
    if not windows:
        return ALWAYS
    spans = _spans(windows, now_s, tz)
    for start, end in spans:
        if start <= now_s < end:
            return Opening(True, end if end < spans[-1][1] or end - now_s < 86_400 * (_AHEAD_DAYS - 2) else math.inf)
        if now_s < start:
            return Opening(False, start)
    return Opening(False, math.inf)


class Timetable:
    """Windows with a cached answer, for frequent checks."""

    __slots__ = ("_asked_s", "_last", "_tz", "windows")

    def __init__(self, windows: tuple[Window, ...], tz: tzinfo | None = None) -> None:
        self.windows = windows
        self._tz = tz
        self._last = ALWAYS
        self._asked_s = math.inf if windows else -math.inf

    def at(self, now_s: float) -> Opening:
        if not self._asked_s <= now_s < self._last.until_s:
            self._last, self._asked_s = opening(self.windows, now_s, self._tz), now_s
        return self._last


def _spans(windows: Sequence[Window], now_s: float, tz: tzinfo | None) -> list[tuple[float, float]]:
    """Return when windows begin and end in the days around `now_s`, joined where they touch, ascending."""
    today = datetime.fromtimestamp(now_s, tz).date()
    found = []
    for offset in range(-1, _AHEAD_DAYS):
        date = today + timedelta(days=offset)
        for window in windows:
            if date.weekday() not in window.days:
                continue
            over = window.end <= window.start
            start = _moment(datetime.combine(date, time(), tz), window.start)
            end = _moment(datetime.combine(date + timedelta(days=over), time(), tz), window.end)
            if start < end:
                found.append((start, end))
    joined: list[tuple[float, float]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _moment(midnight: datetime, minutes: int) -> float:
    """Seconds since the epoch of a time on a day's clock. Adding to a datetime moves its clock, not the time that passes."""
    return (midnight + timedelta(minutes=minutes)).timestamp()


def _minutes_of(text: str) -> tuple[int, int]:
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError(_EXPECTED)
    found = _minute(start), _minute(end)
    if found[0] == _MINUTES or found[0] == found[1]:
        raise ValueError(f"{text} is no span of time: {_EXPECTED}")
    return found


def _minute(text: str) -> int:
    hours, colon, minutes = text.partition(":")
    if not (colon and is_digits(hours) and is_digits(minutes) and len(hours) <= 2 and len(minutes) == 2):
        raise ValueError(_EXPECTED)
    found = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or found > _MINUTES:
        raise ValueError(f"{text} is no time of day: {_EXPECTED}")
    return found


def _days_of(text: str) -> frozenset[int]:
    if text == "daily":
        return EVERY_DAY
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAY_NAMES or (dash and last not in DAY_NAMES):
            raise ValueError(f"{part or text} is no day: {_EXPECTED}")
        start = DAY_NAMES.index(first)
        end = DAY_NAMES.index(last) if dash else start
        days |= {(start + step) % 7 for step in range((end - start) % 7 + 1)}
    return frozenset(days)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


_EXPECTED = 'expected days, a span of time, or both, as in "mon-fri 22:00-06:00"'
