"""Retention: what tables record of the rows that left them by age.

How many rows left is kept beside the table's positions, in the commit that removes them: a job killed at any moment
neither removes nor counts twice. `expiry.py` selects the rows of bronze, silver and gold; those of the quarantine, to
which no other table refers, leave by their day alone.

- Bronze records for each epoch of a stream up to which sequence its rows left (`removed_until`). `backfill` keeps the rows
  of silver and quarantine whose messages are not in bronze any more.
- Silver, gold and quarantine record the first day that has not left (`first_day`). No job makes rows of earlier days, neither
  late readings (they would replace a window of many readings by one of the few late ones) nor again out of bronze.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from eyot_hub.jobs.removals.erasures import named
from eyot_hub.jobs.tables.day_positions import FIRST_DAY_ID, day_of, day_position
from eyot_hub.jobs.tables.table import LakeTable

#: Transaction id of the number of rows that retention removed from a table.
REMOVED_ID: Final = "eyot:retention/rows"


def removed_id(silver: str) -> str:
    """Return the transaction id of the number of rows that retention removed from one silver table's quarantine."""
    return f"eyot:retention/{silver}"


def removed_until_id(position: str) -> str:
    """Return the transaction id of the last sequence that retention removed of an epoch; `position`: its position's id."""
    return f"{position}/removed"


def removed_until(bronze: LakeTable, position: str) -> int:
    """Return the sequence up to which retention removed all rows of an epoch from bronze; 0: none."""
    return bronze.position(removed_until_id(position)) or 0


def removed(table: LakeTable) -> int:
    """Return how many rows retention has removed from bronze, or from a silver or gold table."""
    return table.position(REMOVED_ID) or 0


def removed_rows(quarantine: LakeTable, silver: Iterable[str]) -> int:
    """Return how many rows retention has removed from the quarantine of these silver tables."""
    return sum(quarantine.position(removed_id(name)) or 0 for name in silver)


def first_day(table: LakeTable) -> str:
    """Return the first day that has not left a silver or gold table, or the quarantine (2026-01-31); "": no day has."""
    days = table.position(FIRST_DAY_ID) or 0
    return str(day_of(days)) if days else ""


def remove_expired(quarantine: LakeTable, age: timedelta, now: datetime) -> int:
    """Remove the rows of days (UTC) that ended at least `age` ago, in one commit; return how many.

    `now`: in UTC. Raises Fenced when another job committed meanwhile; then nothing is removed.
    """
    first_kept = (now - age).date()
    expired = [file for file in quarantine.files() if file.partition["date"] < first_kept]
    if not expired:
        return 0
    counts: Counter[str] = Counter()
    for file in expired:
        counts[file.partition["silver"]] += file.rows
    positions = {removed_id(name): (quarantine.position(removed_id(name)) or 0) + rows for name, rows in counts.items()}
    # The last erasure is named, too: that refuses a round of `aggregate` that does not know the new first day.
    positions |= {FIRST_DAY_ID: day_position(first_kept), **named(quarantine)}
    quarantine.commit([], positions, expired)
    return counts.total()
