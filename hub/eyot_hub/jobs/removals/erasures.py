"""The table `erasures`: which devices were erased, when and from how many rows; and the number of the last erasure of a table.

Every table that an erasure has finished records its number in the commit that removed the last rows. A round that reads a
table made before, and writes to one made after, would bring rows back: the jobs compare the numbers and refresh what
is behind. Every commit of theirs names the number, so that of a round and an erasure at the same time one is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from eyot_hub import columns
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import existing_table, open_table
from eyot_hub.jobs.tables.table import LakeTable

ERASURES: Final = "erasures"
ERASURE_ID: Final = "eyot:erasure"
REQUESTED, COMPLETED = "requested", "completed"
SCHEMA: Final = pa.schema(
    [
        ("erasure", pa.int64()),  # counted from 1
        ("event", pa.string()),  # requested or completed
        ("device", pa.string()),
        ("subjects", pa.string()),  # patterns, with a space between
        ("at", columns.TIMESTAMP),
        ("table", pa.string()),  # completed: one row for each table, and one without a table for all
        ("rows", pa.int64()),
    ]
)


def last_erasure(table: LakeTable) -> int:
    """Return the number of the last erasure that a table has finished; 0: none."""
    return table.position(ERASURE_ID) or 0


def rows_id(erasure: int) -> str:
    """Return the transaction id of the number of rows that an erasure has removed from a table."""
    return f"{ERASURE_ID}/{erasure}"


def named(table: LakeTable) -> dict[str, int]:
    """Return what a round's commit to the table names, so that an erasure at the same time refuses it."""
    return {ERASURE_ID: last_erasure(table)}


def keep_up(behind: LakeTable, ahead: LakeTable) -> None:
    """Refresh the table that a round reads where the one that it writes has finished a later erasure."""
    if last_erasure(behind) < last_erasure(ahead):
        behind.refresh()


def erasures_table(config: Config) -> LakeTable:
    return open_table(config.lake, ERASURES, SCHEMA)


def note(config: Config, erasure: int, event: str, device: str, subjects: list[str], rows: dict[str, int]) -> None:
    """Append what happened, in one commit. Raises Fenced when another erasure was noted meanwhile."""
    table, at = erasures_table(config), datetime.now(UTC)
    every = {"": sum(rows.values()), **rows} if event == COMPLETED else {"": 0}
    made = [
        {
            "erasure": erasure,
            "event": event,
            "device": device,
            "subjects": " ".join(subjects),
            "at": at,
            "table": name or None,
            "rows": count,
        }
        for name, count in every.items()
    ]
    writer = table.spec.writer()
    writer.write(pa.Table.from_pylist(made, schema=SCHEMA), ())
    table.commit(writer.finish(), {ERASURE_ID: erasure})


def noted(config: Config) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of the erasures."""
    table = existing_table(config.lake, ERASURES)
    return [] if table is None else sorted(table.to_pylist(), key=lambda row: (row["erasure"], row["at"]))


def unfinished(config: Config) -> list[dict[str, Any]]:
    """Return the requests that have not been completed, the first one first."""
    rows = noted(config)
    done = {row["erasure"] for row in rows if row["event"] == COMPLETED}
    return [row for row in rows if row["event"] == REQUESTED and row["erasure"] not in done]
