"""The job `quality`: evaluates the rules of hub.toml over silver, and replaces the table `quality` with the results.

It needs no Spark and may run beside all other jobs. Files whose statistics show that they hold no row of the period are
not read, so that a run does not grow with history ("0s" and `freshness` without `forget` read everything).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub import columns
from eyot_hub.jobs.config.config import Config, Silver
from eyot_hub.jobs.config.rules import Rule
from eyot_hub.jobs.lake.lake import existing_table, open_table
from eyot_hub.jobs.reports.rule_checks import Check, Finding, make_check
from eyot_hub.jobs.silver.silver import silver_schema
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.table_format import TableFile

QUALITY: Final = "quality"
PASSED, WARNED, FAILED, NO_DATA = "passed", "warned", "failed", "no_data"
QUALITY_SCHEMA: Final = pa.schema(
    [
        ("silver", pa.string()),
        ("name", pa.string()),
        ("rule", pa.string()),  # required, range, regex, unique, freshness or rate
        ("columns", pa.string()),
        ("status", pa.string()),  # passed, warned, failed or no_data
        ("checked", pa.int64()),  # rows; freshness: devices; rate: windows of devices
        ("violations", pa.int64()),
        ("share", pa.float64()),  # of violations; null where nothing was checked
        ("allow", pa.float64()),
        ("devices", pa.int64()),  # that violate; null for unique
        ("examples", pa.string()),
        ("since", columns.TIMESTAMP),  # first run of those in a row that did not pass
        ("period_start", columns.TIMESTAMP),  # null: all rows
        ("checked_at", columns.TIMESTAMP),
    ]
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Run:
    """One check with the rule and the table that it belongs to."""

    silver: Silver
    rule: Rule
    check: Check


class Quality:
    """The rules of a configuration; call `run` repeatedly."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.table = open_table(config.lake, QUALITY, QUALITY_SCHEMA)

    def run(self, now_us: int | None = None) -> list[dict[str, Any]]:
        """Evaluate all rules, at `now_us` since 1970 (None: now), and replace the table; return its rows.

        Rows come in the order of the configuration. A silver table that does not exist yet has no data.
        """
        now_us = time.time_ns() // 1000 if now_us is None else now_us
        period_us = self._config.quality.period_us
        self.table.refresh()
        before = {(row["silver"], row["name"]): row for row in quality_rows(self._config)}
        rows: list[dict[str, Any]] = []
        for silver in self._config.silver:
            runs = [_Run(silver, rule, make_check(rule, period_us, now_us)) for rule in silver.quality]
            if runs:
                self._read(silver, [run.check for run in runs])
            rows += [_row(run, before.get((silver.name, run.rule.title), {}), now_us) for run in runs]
        self.table.replace(rows)
        return rows

    def _read(self, silver: Silver, checks: list[Check]) -> None:
        table = existing_table(self._config.lake, f"silver/{silver.name}")
        if table is None:
            return
        schema = silver_schema(silver)
        for file in table.files():
            wanted = [check for check in checks if _may_hold(file, check)]
            names = {name for check in wanted for name in [check.by, *check.columns]}
            if wanted:
                needed = pa.schema([field for field in schema if field.name in names])
                for rows in row_groups(table.spec.place, [file.path], needed):
                    _feed(rows, wanted)


def quality_rows(config: Config) -> list[dict[str, Any]]:
    """Return the table's rows, in the order in which they were written; none where the job has not run yet."""
    table = existing_table(config.lake, QUALITY)
    if table is None:
        return []
    groups = row_groups(table.spec.place, [file.path for file in table.files()], QUALITY_SCHEMA)
    return [row for rows in groups for row in rows.to_pylist()]


def failed(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a rule of severity error does not pass."""
    return any(row["status"] == FAILED for row in rows)


def _may_hold(file: TableFile, check: Check) -> bool:
    """Return whether the file's statistics allow for rows of the check's time."""
    newest = file.most.get(check.by)
    if check.since_us is None or newest is None:
        return True
    newest = newest if newest.tzinfo else newest.replace(tzinfo=UTC)
    return bool(newest >= _at(check.since_us))


def _feed(rows: pa.Table, checks: Iterable[Check]) -> None:
    """Give each check its columns of the rows of its time; checks of the same time share the selection."""
    chosen: dict[tuple[str, int | None], pa.Table] = {}
    for check in checks:
        time_of = (check.by, check.since_us)
        if time_of not in chosen:
            chosen[time_of] = rows
            if check.since_us is not None:
                times = rows.column(check.by)
                since = pa.scalar(check.since_us, pa.int64()).cast(times.type)
                chosen[time_of] = rows.filter(pc.greater_equal(times, since))
        if chosen[time_of].num_rows:
            check.add(chosen[time_of].select(check.columns))


def _row(run: _Run, before: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """Return the row of the table for a finding; `before`: the row of the last run."""
    found, rule, now = run.check.result(), run.rule, _at(now_us)
    status = _status(found, rule)
    bad = status in (WARNED, FAILED)
    return {
        "silver": run.silver.name,
        "name": rule.title,
        "rule": rule.kind,
        "columns": ", ".join(rule.named),
        "status": status,
        "checked": found.checked,
        "violations": found.violations,
        "share": found.violations / found.checked if found.checked else None,
        "allow": rule.allow,
        "devices": None if rule.kind == "unique" else found.devices,
        "examples": "; ".join(found.examples),
        "since": min(before.get("since") or now, now) if bad else None,
        "period_start": None if run.check.since_us is None else _at(run.check.since_us),
        "checked_at": now,
    }


def _status(found: Finding, rule: Rule) -> str:
    if not found.checked:
        return NO_DATA
    if found.violations <= rule.allow * found.checked:
        return PASSED
    return FAILED if rule.severity == "error" else WARNED


def _at(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)
