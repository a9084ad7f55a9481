"""Durations in Go's text form ("1h30m", "250ms", "-1.5s"), as configuration files and acknowledgements hold them."""

import re
from decimal import Decimal
from typing import Final

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_INT64_MAX: Final = 2**63 - 1


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a Go duration. Raises ValueError for malformed text and beyond 64 bits."""
    sign, body = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if body == "0":
        return 0
    total, at = 0, 0
    while at < len(body):
        part = _PART.match(body, at)
        if part is None:
            raise ValueError(f'time: invalid duration "{text}"')
        total += int(Decimal(part[1]) * _UNITS_NS[part[2]])
        at = part.end()
    if not body or total > _INT64_MAX:
        raise ValueError(f'time: invalid duration "{text}"')
    return sign * total


def format_duration(duration_ns: int) -> str:
    """Return a duration as Go prints it: "1h30m0s", "250ms", "0s"."""
    if duration_ns == 0:
        return "0s"
    sign, rest = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    for unit in ("ns", "µs", "ms"):
        if rest < _UNITS_NS[unit] * 1000:
            return f"{sign}{_decimal(rest, _UNITS_NS[unit])}{unit}"
    hours, rest = divmod(rest, _UNITS_NS["h"])
    minutes, rest = divmod(rest, _UNITS_NS["m"])
    lead = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{lead}{_decimal(rest, _UNITS_NS['s'])}s"


def _decimal(value: int, unit: int) -> str:
    whole, part = divmod(value, unit)
    if not part:
        return str(whole)
    return f"{whole}.{part:0{len(str(unit)) - 1}d}".rstrip("0")
