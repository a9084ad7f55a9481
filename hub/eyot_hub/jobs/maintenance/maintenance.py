"""The job `maintain`: removes expired rows, joins the small files of every table, removes files that no recent version needs.

It needs no Spark and may run beside all other jobs. A compaction is one commit, which holds the joined file and the
removal of its parts, or neither; it is refused when another job committed meanwhile, and made again. A vacuum removes
only what no version of the last hours names. Expired rows leave a table in one commit (`expiry.py`, `retention.py`). A job killed at any moment therefore leaves every row once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

from eyot_hub.jobs.bronze.bronze import BRONZE
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import ExistingTables
from eyot_hub.jobs.maintenance.expiry import Expired, Expiry
from eyot_hub.jobs.removals.retention import remove_expired
from eyot_hub.jobs.silver.silver import QUARANTINE
from eyot_hub.jobs.tables.clock_check import ClockCheck, newest_stored
from eyot_hub.jobs.tables.table import Fenced, LakeTable

log = logging.getLogger(__name__)

T = TypeVar("T")
TRIES: Final = 3
#: Tables that a lake holds beside silver and gold, where their jobs have run.
_OTHERS: Final = (
    BRONZE,
    QUARANTINE,
    "segments",
    "gaps",
    "origins",
    "fleet",
    "fleet_files",
    "fleet_files_sum",
    "fleet_statuses",
    "fleet_statuses_sum",
    "devices",
    "quality",
    "replays",
    "erasures",
    "retention_lists",
)


@dataclass
class Maintained:
    """What was done to one table. `refused`: other jobs committed all the time, so rows or files are left for the next round."""

    table: str
    files_before: int = 0
    files: int = 0
    removed: int = 0  # files that the vacuum removed, those of killed tasks included
    refused: bool = False
    expired: int = 0  # rows that retention removed
    #: Tables that have not read all expired rows of this one yet; until then these rows stay.
    waits_for: list[str] = field(default_factory=list)
    clock_jumped: bool = False  # nothing leaves by this reading of the clock yet (`clock_check.py`)


class _Clock(NamedTuple):
    """The hub's clock, and when the newest row of bronze was stored, if that is known."""

    now: datetime
    newest: datetime | None


class Maintenance:
    """All tables of a configuration that exist; call `round` repeatedly."""

    def __init__(
        self,
        config: Config,
        *,
        compact: bool = True,
        vacuum: bool = True,
        retention: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`vacuum`, `retention`: unless the configured times are 0. `now`: the hub's clock, in UTC."""
        self._config = config
        self._compact = compact
        self._vacuum_hours = config.bronze.vacuum_hours if vacuum else 0.0
        self._retention = retention
        self._now = now

    def round(
        self, stop: Callable[[], bool] = lambda: False, tables: ExistingTables | None = None
    ) -> Iterator[Maintained]:
        """Maintain one table after the other and yield the results. `tables`: for what else the caller reads of them."""
        tables = tables or ExistingTables(self._config.lake)
        expiry, now, bronze = Expiry(self._config, tables), self._now(), tables.get(BRONZE)
        newest = None if bronze is None else newest_stored(bronze.files())
        for name in self._names():
            if stop():
                return
            table = tables.get(name)
            if table is not None:
                yield self._maintain(name, table, expiry, _Clock(now, newest))

    def _names(self) -> list[str]:
        silver = [f"silver/{one.name}" for one in self._config.silver]
        return [*_OTHERS, *silver, *(f"gold/{one.name}" for one in self._config.gold)]

    def _maintain(self, name: str, table: LakeTable, expiry: Expiry, shown: _Clock) -> Maintained:
        done = Maintained(name, files_before=len(table.files()))
        clock = self._repeat(table, done, lambda: table.check_clock(*shown)) or ClockCheck(None, steady=False)
        done.clock_jumped = clock.jumped
        if self._retention and clock.ages_from is not None:
            step = self._removal(name, table, expiry, clock.ages_from)
            self._repeat(table, done, lambda: self._expire(step, done))
        if self._compact:
            self._repeat(table, done, table.compact)
        if clock.steady and (self._compact or self._vacuum_hours):
            done.removed = table.remove_files(self._vacuum_hours or None)
        done.files = len(table.files())
        return done

    def _removal(self, name: str, table: LakeTable, expiry: Expiry, now: datetime) -> Callable[[], Expired]:
        """Return what removes the rows of a table that are expired at `now`."""
        age = self._config.retention.age("quarantine")
        if name == QUARANTINE and age:
            return lambda: Expired(remove_expired(table, age, now))
        if name == BRONZE:
            return lambda: expiry.bronze(table, now)
        for silver in self._config.silver:
            if name == f"silver/{silver.name}":
                return partial(expiry.silver, table, silver, now)
        for gold in self._config.gold:
            if name == f"gold/{gold.name}":
                return partial(expiry.gold, table, gold, now)
        return Expired

    @staticmethod
    def _expire(step: Callable[[], Expired], done: Maintained) -> None:
        found = step()
        done.expired, done.waits_for = found.rows, found.waits_for

    def _repeat(self, table: LakeTable, done: Maintained, step: Callable[[], T]) -> T | None:
        """Do a step, again when another job committed meanwhile; None: others committed each time."""
        for _ in range(TRIES):
            try:
                return step()
            except Fenced as error:
                log.info("table %s is written by another job: %s", table.root, error)
                table.refresh()
        done.refused = True
        return None
