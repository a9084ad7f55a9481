"""Days as positions of a table: days since 1970."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

#: Transaction id of the first day that has not left a table.
FIRST_DAY_ID: Final = "eyot:retention/first-day"
_EPOCH: Final = date(1970, 1, 1)


def day_position(day: date) -> int:
    """Return a day as a position: days since 1970."""
    return (day - _EPOCH).days


def day_of(position: int) -> date:
    """Return the day of a position."""
    return _EPOCH + timedelta(days=position)
