"""Retention: removes rows of the quarantine by their age, a day as a whole.

Silver and gold refer to bronze, never to the quarantine, so rows leave it without a trace elsewhere. How many rows left is kept
beside the table's positions, in the commit that removes them: a job killed at any moment neither removes nor counts twice.
`backfill` makes the quarantine again from bronze; its commit sets the count back to 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from eyot_hub.jobs.table import LakeTable


def removed_id(silver: str) -> str:
    """Return the transaction id of the number of rows that retention removed from one silver table's quarantine."""
    return f"eyot:retention/{silver}"


def removed_rows(quarantine: LakeTable, silver: Iterable[str]) -> int:
    """Return how many rows retention has removed from the quarantine of these silver tables."""
    return sum(quarantine.position(removed_id(name)) or 0 for name in silver)


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
    quarantine.commit([], positions, expired)
    return counts.total()
