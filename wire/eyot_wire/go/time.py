"""Times of the JetStream API: RFC 3339 text with nanoseconds on the wire, integers of nanoseconds in the code.

nats-server writes Go's RFC3339Nano: UTC with `Z`, the fraction without trailing zeros, and no fraction when it is zero.
Go's zero time `0001-01-01T00:00:00Z` means "never"; it is 0 here, since no stored message is from 1970-01-01T00:00:00Z.
"""

import re
from datetime import UTC, datetime, timedelta

from eyot_wire.digits import is_digits

NS_PER_S = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d?):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ns_to_rfc3339(ts_ns: int) -> str:
    """Return `ts_ns` (ns since 1970) as RFC 3339 text in UTC; 0 as Go's zero time."""
    if ts_ns == 0:
        return ZERO_TIME
    seconds, fraction = divmod(ts_ns, NS_PER_S)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def rfc3339_to_ns(text: str) -> int:
    """Parse RFC 3339 text (any offset) to ns since 1970; Go's zero time is 0. Raises ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f'parsing time "{text}" as RFC3339')
    if text == ZERO_TIME:
        return 0
    fraction = found[7] or ""
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    try:
        since_epoch = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError as err:
        raise ValueError(f'parsing time "{text}": {err}') from None
    seconds = since_epoch.days * 86_400 + since_epoch.seconds
    if found[9]:
        offset_s = int(found[10]) * 3600 + int(found[11]) * 60
        seconds -= offset_s if found[9] == "+" else -offset_s
    return seconds * NS_PER_S + int(fraction.ljust(9, "0") or 0)


_LAYOUT = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d?"), (":", ":"),
           ("04", r"\d\d"), (":", ":"), ("05", r"\d\d(?:[.,]\d+)?"), ("Z07:00", r"Z|[+-]\d\d:\d\d"))  # fmt: skip


def parse_words(text: str) -> str:
    """Return why `text` is not an RFC 3339 time, in Go's words; empty if it is one."""
    at = 0
    month_days = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    parts: list[int] = []
    for name, pattern in _LAYOUT:
        found = re.compile(pattern, re.ASCII).match(text, at)
        if found is None:
            rest = _quoted(text[at:])
            return f'parsing time "{_quoted(text)}" as "2006-01-02T15:04:05Z07:00": cannot parse "{rest}" as "{name}"'
        if is_digits(name):
            parts.append(int(found[0][:4] if name == "2006" else found[0][:2]))
            limits = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
            what, low, high = limits.get(name, ("", 0, 9999))
            if what and not low <= parts[-1] <= high:
                return f'parsing time "{_quoted(text)}": {what} out of range'
        at = found.end()
    if at < len(text):
        return f'parsing time "{_quoted(text)}": extra text: "{_quoted(text[at:])}"'
    year, month, day = parts[:3]
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= month_days[month - 1] or (month == 2 and day == 29 and not leap):
        return f'parsing time "{_quoted(text)}": day out of range'
    return ""


def _quoted(text: str) -> str:
    """Return text as Go's time package quotes it."""
    shown = (
        "".join(f"\\x{byte:02x}" for byte in letter.encode()) if not " " <= letter < "\x80" else letter
        for letter in text
    )
    return "".join("\\" + letter if letter in '"\\' else letter for letter in shown)


def as_go_writes(text: str | None) -> str | None:
    """Return an RFC 3339 time as Go writes it again: the fraction without trailing zeros, no offset as `Z`; None stays None.

    Raises ValueError.
    """
    if text is None:
        return None
    rfc3339_to_ns(text)
    found = _RFC3339.fullmatch(text)
    assert found is not None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction = (found[7] or "").rstrip("0")
    offset = f"{found[9]}{found[10]}:{found[11]}" if found[9] and (found[10], found[11]) != ("00", "00") else "Z"
    written = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    return f"{written}.{fraction}{offset}" if fraction else written + offset


def check_times(*texts: str | None) -> None:
    """Check that each text is an RFC 3339 time; None passes. Raises ValueError."""
    for text in texts:
        if text is not None:
            rfc3339_to_ns(text)
