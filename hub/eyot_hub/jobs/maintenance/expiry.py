"""Retention of bronze, silver and gold: removes the rows of old days, once every table that is made from them has read them.

The readers of a table record how far they have read it. Bronze is read by silver, quarantine, gold (whose rounds go by
bronze's streams) and `gaps`; silver is read by gold. Rows that one of them has not read stay until a later round. A
removal is one commit, which also records what it removed (`retention.py`).

From an epoch of a stream, bronze loses its first sequences only. Days that overlap in sequence, because the hub's clock
was set back or a mirror keeps the times of its origin, therefore leave together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from eyot_hub.jobs.bronze.bronze import BRONZE, position_id
from eyot_hub.jobs.bronze.segments import SEGMENTS, decided_id
from eyot_hub.jobs.config.config import Config, Gold, Silver
from eyot_hub.jobs.lake.lake import ExistingTables
from eyot_hub.jobs.maintenance.erasure_task import EraseFiles
from eyot_hub.jobs.removals.device_days import (
    DeviceDays,
    OldRows,
    at_most,
    first_days,
    moved,
    positions_of,
    recorded_days,
)
from eyot_hub.jobs.removals.device_lists import note_list
from eyot_hub.jobs.removals.retention import (
    REMOVED_ID,
    removed,
    removed_rows,
    removed_until,
    removed_until_id,
)
from eyot_hub.jobs.silver.replays import REPLAY_ID, last_replay
from eyot_hub.jobs.silver.silver import ANY, QUARANTINE
from eyot_hub.jobs.tables.day_positions import FIRST_DAY_ID, day_position
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile

Epoch: TypeAlias = tuple[str, int]  # a stream and its creation time in ns
_EPOCH_COLUMNS: Final = pa.schema([("stream_created_ns", pa.int64()), ("sequence", pa.int64())])


@dataclass
class Expired:
    """What a removal did: how many rows left, and the tables that must read more before others can leave."""

    rows: int = 0
    waits_for: list[str] = field(default_factory=list)


class _Reader(NamedTuple):
    """A table that is made from another one; `position`: up to which sequence of an epoch it has read."""

    name: str
    position: Callable[[Epoch], int]


class Expiry:
    """Removes the expired rows of a configuration's tables. What it read of files is kept for the next try."""

    def __init__(self, config: Config, tables: ExistingTables) -> None:
        """`tables`: in which the removals look what has been read. All times are in UTC."""
        self._config = config
        self._tables = tables
        self._last: dict[str, dict[Epoch, int]] = {}  # by file: the last sequence of each epoch

    def bronze(self, table: LakeTable, now: datetime) -> Expired:
        """Remove rows by the day when the hub stored them. Raises Fenced when another job committed meanwhile."""
        age = self._config.retention.age("bronze")
        first = (now - age).date()
        expired = [file for file in table.files() if file.partition["date"] < first] if age else []
        if not expired:
            return Expired()
        expired += self._overtaken(table, expired, now.date())
        chosen, waits_for = self._read_by(table, expired, self._readers_of_bronze(table))
        chosen = self._beginnings(table, chosen)
        if chosen:
            positions = {REMOVED_ID: removed(table) + sum(file.rows for file in chosen)}
            for epoch, last in self._last_of(table, chosen).items():
                position = position_id(*epoch)
                positions[removed_until_id(position)] = max(last, removed_until(table, position))
            table.commit([], positions, chosen)
        return Expired(sum(file.rows for file in chosen), waits_for)

    def silver(self, table: LakeTable, silver: Silver, now: datetime) -> Expired:
        """Remove rows by their event's day (month) and device. Raises Fenced when another job committed meanwhile."""
        golds = [gold for gold in self._config.gold if gold.silver == silver.name]
        readers = [self._gold_reader(gold, replays=last_replay(table)) for gold in golds]
        age = self._config.retention.age("silver", silver.keep)
        return self._days(table, now - age if age else None, readers, self._device_days(table, now))

    def gold(self, table: LakeTable, gold: Gold, now: datetime) -> Expired:
        """Remove windows by their day (month) and device. Raises Fenced when another job committed meanwhile."""
        # A late reading in silver would bring a device's window back: silver has to lose its rows first.
        silver = self._tables.get(f"silver/{gold.silver}")
        patterns = self._config.retention.patterns
        known = recorded_days(table if silver is None else silver, patterns)
        devices = at_most(self._device_days(table, now), known)
        age = self._config.retention.age("gold", gold.keep)
        return self._days(table, now - age if age else None, [], devices)

    def _device_days(self, table: LakeTable, now: datetime) -> DeviceDays:
        """Return from which day on a table is to keep the rows of some devices."""
        ages = self._config.retention.device_ages
        recorded = recorded_days(table, [pattern for pattern, _ in ages])
        return first_days(recorded, ages, now.date(), by_month=self._by_month)

    @property
    def _by_month(self) -> bool:
        return self._config.lake.partition == "month"

    def _days(
        self, table: LakeTable, before: datetime | None, readers: Sequence[_Reader], devices: DeviceDays
    ) -> Expired:
        """Remove all days that ended `before` then, and the old rows of `devices`; none where some have not been read."""
        first = date.min if before is None else before.date()
        if self._by_month:
            first = first.replace(day=1)
        whole = [file for file in table.files() if file.partition["event_date"] < first]
        partly = self._moved(table, devices, {file.path for file in whole})
        chosen, waits_for = self._read_by(table, [*whole, *partly], readers)
        if not chosen or waits_for:
            return Expired(0, waits_for)
        noted = note_list(self._config, self._config.retention.patterns) if partly else {}
        rewritten = list(EraseFiles(table.spec, OldRows(devices))(partly))
        lost = [file for file, new in zip(partly, rewritten, strict=True) if new.rows]
        rows = sum(file.rows for file in whole) + sum(new.rows for new in rewritten)
        # The number of replays is the table's own: it refuses a round of `aggregate` that does not know the new first day.
        positions = {REMOVED_ID: removed(table) + rows, REPLAY_ID: last_replay(table)}
        positions |= {FIRST_DAY_ID: day_position(first)} if whole else {}
        positions |= positions_of(devices) | noted if partly else {}
        made = [file for new in rewritten for file in new.files]
        try:
            table.commit(made, positions, [*whole, *lost])
        except Fenced:
            table.spec.writer().discard(made)
            raise
        return Expired(rows)

    def _moved(self, table: LakeTable, devices: DeviceDays, whole: set[str]) -> list[TableFile]:
        """Return the files of days in which rows of `devices` became old since the table's last removal."""
        recorded = recorded_days(table, [pattern for pattern, _ in devices.first])
        return [
            file
            for file in table.files()
            if file.path not in whole and moved(recorded, devices, str(file.partition["event_date"]))
        ]

    def _readers_of_bronze(self, bronze: LakeTable) -> list[_Reader]:
        quarantine = self._tables.get(QUARANTINE)
        readers = [self._reader(SEGMENTS, lambda epoch: decided_id(bronze.table_id, *epoch))]
        for silver in self._config.silver:
            readers.append(_reader(QUARANTINE, quarantine, _quarantine_id(silver.name)))
            readers.append(self._reader(f"silver/{silver.name}", lambda epoch: position_id(*epoch)))
        return readers + [self._gold_reader(gold) for gold in self._config.gold]

    def _gold_reader(self, gold: Gold, replays: int = 0) -> _Reader:
        """`replays`: of silver, which gold must have counted."""
        name = f"gold/{gold.name}"
        table = self._tables.get(name)
        behind = table is None or last_replay(table) < replays
        return _reader(name, None if behind else table, lambda epoch: position_id(*epoch))

    def _reader(self, name: str, position: Callable[[Epoch], str]) -> _Reader:
        return _reader(name, self._tables.get(name), position)

    def _read_by(
        self, table: LakeTable, files: Iterable[TableFile], readers: Sequence[_Reader]
    ) -> tuple[list[TableFile], list[str]]:
        """Return the files that every reader has read as a whole, and the names of the readers that lack some."""
        chosen, waits_for = [], set[str]()
        for file in files:
            last_of = self._last_in(table, file) if readers else {}
            late = {
                reader.name
                for reader in readers
                if any(reader.position(epoch) < last for epoch, last in last_of.items())
            }
            waits_for |= late
            if not late:
                chosen.append(file)
        return chosen, sorted(waits_for)

    def _overtaken(self, bronze: LakeTable, expired: Sequence[TableFile], today: date) -> list[TableFile]:
        """Return the files of days to come whose messages all precede expired ones: the hub's clock was ahead when it stored them.

        They are as old as those after them, and nothing after them could leave before their day.
        """
        ahead = [file for file in bronze.files() if file.partition["date"] > today + timedelta(days=1)]
        lasts = self._last_of(bronze, expired) if ahead else {}
        return [
            file
            for file in ahead
            if all(last < lasts.get(epoch, 0) for epoch, last in self._last_in(bronze, file).items())
        ]

    def _beginnings(self, bronze: LakeTable, chosen: Sequence[TableFile]) -> list[TableFile]:
        """Return those of the chosen files after which no earlier sequence of their epochs stays."""
        leaving = {file.path for file in chosen}
        by_stream: dict[str, list[TableFile]] = defaultdict(list)
        for file in bronze.files():
            by_stream[file.partition["stream"]].append(file)
        for files in by_stream.values():
            stays = [file for file in files if file.path not in leaving]
            while stays:  # a file that has to stay may hold others
                stays = [file for file in files if file.path in leaving and self._precedes(bronze, stays, file)]
                leaving -= {file.path for file in stays}
        return [file for file in chosen if file.path in leaving]

    def _precedes(self, bronze: LakeTable, stays: Sequence[TableFile], file: TableFile) -> bool:
        """Return whether one of `stays` may hold a sequence before the last ones of `file`."""
        last_of = self._last_in(bronze, file)
        return any(_begins(other, epoch) < last for other in stays for epoch, last in last_of.items())

    def _last_of(self, table: LakeTable, files: Iterable[TableFile]) -> dict[Epoch, int]:
        found: dict[Epoch, int] = {}
        for file in files:
            for epoch, last in self._last_in(table, file).items():
                found[epoch] = max(last, found.get(epoch, 0))
        return found

    def _last_in(self, table: LakeTable, file: TableFile) -> dict[Epoch, int]:
        """Return the last sequence of each epoch that a file of bronze or silver holds."""
        if file.path not in self._last:
            inside = [] if "stream" in file.partition else [pa.field("stream", pa.string())]
            found: dict[Epoch, int] = {}
            for rows in row_groups(table.spec.place, [file.path], pa.schema([*_EPOCH_COLUMNS, *inside])):
                keys = [name for name in rows.column_names if name != "sequence"]
                for row in rows.group_by(keys, use_threads=False).aggregate([("sequence", "max")]).to_pylist():
                    epoch = file.partition.get("stream", row.get("stream")), row["stream_created_ns"]
                    found[epoch] = max(row["sequence_max"], found.get(epoch, 0))
            self._last[file.path] = found
        return self._last[file.path]


def expired_rows(config: Config, tables: ExistingTables | None = None) -> dict[str, int]:
    """Return for each existing table with retention how many rows have left it by age."""
    tables, found = tables or ExistingTables(config.lake), dict[str, int]()
    names = [BRONZE, *(f"silver/{one.name}" for one in config.silver), *(f"gold/{one.name}" for one in config.gold)]
    for name in names:
        table = tables.get(name)
        if table is not None:
            found[name] = removed(table)
    quarantine = tables.get(QUARANTINE)
    if quarantine is not None:
        found[QUARANTINE] = removed_rows(quarantine, [one.name for one in config.silver])
    return found


def _reader(name: str, table: LakeTable | None, position: Callable[[Epoch], str]) -> _Reader:
    """`table` None: it does not exist, or has not read everything for another reason."""
    return _Reader(name, lambda epoch: -1 if table is None else table.position(position(epoch)) or 0)


def _quarantine_id(silver: str) -> Callable[[Epoch], str]:
    return lambda epoch: f"{silver}/{position_id(*epoch)}"


def _begins(file: TableFile, epoch: Epoch) -> int:
    """Return at which sequence of an epoch a file of its stream may begin, by its statistics."""
    least, most = file.least.get("stream_created_ns"), file.most.get("stream_created_ns")
    if least is not None and most is not None and not least <= epoch[1] <= most:
        return ANY
    return int(file.least.get("sequence") or 0)
