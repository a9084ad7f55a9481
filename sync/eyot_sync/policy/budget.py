"""The monthly budget of a metered link, and what it has used.

Usage is counted in bytes as a carrier counts them: bytes written and read below TLS and WebSocket, plus an estimate of
the IP and TCP headers around them and of the packets that open and close a connection. It is kept by month (from
`reset_day` to the day before it, local time), so that a clock that jumps and returns finds its usage. A clock that was
never set (before 2020) uses the latest known month.

The saved value exceeds the usage by a lease, and is saved again once that is used up: a crash costs at most one lease
of the budget, and loses only what was used between `must_save` and the following save. Time is an argument (seconds
since the epoch), local time another (`tz`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, tzinfo

#: Bytes of IP and TCP headers (with timestamps) per packet, and the payload of a packet.
PACKET_OVERHEAD = 52
PACKET_PAYLOAD = 1400
#: Packets without payload that open and close a connection.
CONNECTION_BYTES = 6 * PACKET_OVERHEAD
#: Of the budget, saved ahead of being spent; never less than `_LEASE_MIN`.
_LEASE_SHARE = 1000
_LEASE_MIN = 16 * 1024
_MONTHS_KEPT = 4
_CLOCK_SET = datetime(2020, 1, 1).timestamp()


def carried(size: int) -> int:
    """Return the cost of `size` bytes of one write or read: packets, and an acknowledgement for every second one."""
    packets = -(-size // PACKET_PAYLOAD)
    return size + packets * PACKET_OVERHEAD + (packets + 1) // 2 * PACKET_OVERHEAD


class Budget:
    """The budget of one link. `spent` is by month, named by its first day."""

    def __init__(
        self, limit: int, *, reset_day: int = 1, saved: Mapping[str, int] | None = None, tz: tzinfo | None = None
    ) -> None:
        self.limit = limit
        self.reset_day = reset_day
        self.spent: dict[str, int] = dict(saved or {})
        self._tz = tz
        self._lease = max(_LEASE_MIN, limit // _LEASE_SHARE)
        self._saved = dict(self.spent)
        self._month = ""
        self._start_s = self._end_s = 0.0

    def spend(self, size: int, now_s: float) -> None:
        """`size` bytes (see `carried`) crossed the link."""
        self._turn_to(now_s)
        self.spent[self._month] = self.spent.get(self._month, 0) + size

    def spent_at(self, now_s: float) -> int:
        """Bytes spent in the month of `now_s`."""
        self._turn_to(now_s)
        return self.spent.get(self._month, 0)

    def left_at(self, now_s: float) -> int:
        return max(0, self.limit - self.spent_at(now_s))

    def resets_at(self, now_s: float) -> float:
        """Return when the next month begins, seconds since the epoch."""
        self._turn_to(now_s)
        return self._end_s

    @property
    def must_save(self) -> bool:
        """Return whether the usage exceeds the saved value."""
        return any(size > self._saved.get(month, 0) for month, size in self.spent.items())

    def to_save(self, *, exact: bool = False) -> dict[str, int]:
        """Return the values to save, a lease above the usage (`exact`, at a clean stop: the usage itself)."""
        ahead = 0 if exact else self._lease
        self._saved = {month: size + (ahead if month == self._month else 0) for month, size in self.spent.items()}
        return dict(self._saved)

    def _turn_to(self, now_s: float) -> None:
        if self._start_s <= now_s < self._end_s:
            return
        self._start_s, self._end_s = _month_around(now_s, self.reset_day, self._tz)
        self._month = datetime.fromtimestamp(self._start_s, self._tz).date().isoformat()
        if now_s < _CLOCK_SET and self.spent:
            self._month = max(self.spent)
        self.spent.setdefault(self._month, 0)
        for month in sorted(self.spent)[:-_MONTHS_KEPT]:
            if month != self._month:
                del self.spent[month]


def _month_around(now_s: float, reset_day: int, tz: tzinfo | None) -> tuple[float, float]:
    """First moment of the month that holds `now_s`, and of the next one."""
    today = datetime.fromtimestamp(now_s, tz).date()
    first = today.replace(day=reset_day) if today.day >= reset_day else _month_before(today, reset_day)
    year, month = (first.year + 1, 1) if first.month == 12 else (first.year, first.month + 1)
    return _midnight(first, tz), _midnight(date(year, month, reset_day), tz)


def _month_before(day: date, reset_day: int) -> date:
    return date(day.year - 1, 12, reset_day) if day.month == 1 else date(day.year, day.month - 1, reset_day)


def _midnight(day: date, tz: tzinfo | None) -> float:
    return datetime.combine(day, time(), tz).timestamp()
