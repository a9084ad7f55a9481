"""The table `retention_lists`: the lists of patterns by which retention has removed rows of some devices.

Which devices a pattern stands for depends on those before it, and a configuration forgets what it was. A list is noted
here before the first removal by it. Silver records how many lists there are in the commit of a removal, and what each one
removed (`device_days.py`). So no job brings a row back after the list has changed. Only a list that is not the only one costs a look
into this table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from eyot_hub import columns
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import existing_table, open_table
from eyot_hub.jobs.removals.device_days import DeviceDays, device_day_ids, recorded_days
from eyot_hub.jobs.tables.table import LakeTable

LISTS: Final = "retention_lists"
#: Transaction ids: how many lists are noted; with the id of a list behind it, that list's number.
LISTS_ID: Final = "eyot:retention/lists"
SCHEMA: Final = pa.schema(
    [
        ("list", pa.int64()),  # counted from 1
        ("position", pa.int64()),  # of the pattern in its list, from 1
        ("pattern", pa.string()),
        ("noted_at", columns.TIMESTAMP),
    ]
)


def noted_lists(config: Config) -> list[list[str]]:
    """Return the lists in the order in which they were noted."""
    table = existing_table(config.lake, LISTS)
    return [] if table is None else _lists_in(table)


def note_list(config: Config, patterns: Sequence[str]) -> dict[str, int]:
    """Note a list, unless it is there; return what a removal by it records. Raises Fenced when another one was noted meanwhile."""
    table = open_table(config.lake, LISTS, SCHEMA)
    lists, wanted = _lists_in(table), list(patterns)
    if wanted not in lists:
        lists.append(wanted)
        at = datetime.now(UTC)
        rows = [
            {"list": len(lists), "position": position, "pattern": pattern, "noted_at": at}
            for position, pattern in enumerate(wanted, 1)
        ]
        writer = table.spec.writer()
        writer.write(pa.Table.from_pylist(rows, schema=SCHEMA), ())
        table.commit(writer.finish(), {LISTS_ID: len(lists)})
    return {LISTS_ID: len(lists), _own_id(wanted): lists.index(wanted) + 1}


def device_days(table: LakeTable, config: Config) -> DeviceDays:
    """Return what a silver table has recorded of the present list of patterns, and of all others."""
    present = config.retention.patterns
    count = table.position(LISTS_ID) or 0
    alone = count == 1 and bool(present) and table.position(_own_id(present)) == 1
    others = [one for one in noted_lists(config) if one != present] if count and not alone else []
    return DeviceDays(recorded_days(table, present).first, tuple(recorded_days(table, one).first for one in others))


def _lists_in(table: LakeTable) -> list[list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for row in sorted(table.to_pylist(), key=lambda row: (row["list"], row["position"])):
        found[row["list"]].append(row["pattern"])
    return list(found.values())


def _own_id(patterns: Sequence[str]) -> str:
    return f"{LISTS_ID}/{device_day_ids(patterns)[-1].rpartition('/')[2]}"
