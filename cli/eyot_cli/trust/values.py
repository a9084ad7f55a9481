"""Values of nsc's flags: dates and spans, sizes, durations, lists."""

from __future__ import annotations

import calendar
import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.values.numbers import INT64_MAX
from eyot_wire.quoting import printable

_SPAN: Final = re.compile(r"(-?[0-9]{1,30})([mhdMyw])")
_NUMBER: Final = re.compile(r"(-?)([0-9][0-9,]*(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
#: Powers of ten and two, as nsc reads them: `1k` is 1000, `1KiB` is 1024.
_UNITS: Final = {"": 1, "b": 1} | {
    unit: base**power
    for power, letter in enumerate("kmgtpe", start=1)
    for unit, base in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}i", 1024), (f"{letter}ib", 1024))
}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_NANOSECONDS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DAYS: Final = {"d": 1, "w": 7}
_SECONDS: Final = {"m": 60, "h": 3600}


def parse_time(text: str, now_s: float) -> int:
    """Return seconds since the epoch of `yyyy-mm-dd`, of `yyyy-mm-dd hh:mm:ss UTC` or of a span from now; 0: always.

    Spans: `#m` minutes, `#h` hours, `#d` days, `#w` weeks, `#M` months, `#y` years. Raises Failure.
    """
    text = text.strip()
    if text in ("", "0"):
        return 0
    for form in ("%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp())
        except ValueError:
            continue
    match = _SPAN.fullmatch(text)
    if match is None:
        raise Failure(
            f"{printable(text)} is no time: write 2027-01-31, 0 for always, or a span: 30m, 12h, 90d, 4w, 6M, 1y"
        )
    count, unit = int(match[1]), match[2]
    if count == 0:
        return 0
    try:
        now = datetime.fromtimestamp(int(now_s), UTC)
        if unit in _SECONDS:
            return int((now + timedelta(seconds=count * _SECONDS[unit])).timestamp())
        moved = (
            now + timedelta(days=count * _DAYS[unit])
            if unit in _DAYS
            else _months(now, count * (12 if unit == "y" else 1))
        )
    except (ValueError, OverflowError):
        raise Failure(f"{text} is beyond the calendar: name a nearer time") from None
    return int(moved.timestamp())


def _months(moment: datetime, count: int) -> datetime:
    month = moment.month - 1 + count
    year, month = moment.year + month // 12, month % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


def parse_number(text: str) -> int:
    """Return a count or a size in bytes: `-1`, `1000`, `10M`, `2GiB`. Raises Failure."""
    match = _NUMBER.fullmatch(text.strip())
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise Failure(f"{printable(text)} is no number: write -1 for unlimited, 1000, 10M or 2GiB")
    value = int(Decimal(match[2].replace(",", "")) * unit)
    if value > INT64_MAX:
        raise Failure(f"{printable(text)} is beyond 64 bits: write -1 for unlimited")
    return -value if match[1] else value


def parse_duration(text: str) -> int:
    """Return nanoseconds of a duration as in `2s`, `1m30s`, `500ms`. Raises Failure."""
    parts = _DURATION.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise Failure(f"{printable(text)} is no duration: write 500ms, 2s, 1m30s or 1h")
    length_ns = int(sum(Decimal(number) * _NANOSECONDS[unit] for number, unit in parts))
    if length_ns > INT64_MAX:
        raise Failure(f"{printable(text)} is longer than 292 years")
    return length_ns


def split_list(values: tuple[str, ...]) -> list[str]:
    """Return the members of a flag given several times, or once with commas."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def show_time(seconds: int) -> str:
    """Format a time of a token in UTC; 0: `never`."""
    if not seconds:
        return "never"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return str(seconds)
