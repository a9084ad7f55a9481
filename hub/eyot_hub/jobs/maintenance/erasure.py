"""The command `erase`: removes the rows of one device from every table, for good.

An erasure is noted in the table `erasures` first, and has a number. It works on bronze, then on the tables that are made
from bronze, in the order in which rows flow. Each commit replaces some files by files without the device's rows; the last
one of a table records the erasure's number. A killed erasure is finished by the next run: what was removed stays removed,
and the counts are kept beside the files.

Bronze loses a row only after `gaps` has recorded its sequence, so that no erased row is told as missing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from eyot_hub.grouping import grouped
from eyot_hub.jobs.bronze.bronze import BRONZE
from eyot_hub.jobs.bronze.coverage import REPEAT_COLUMNS, coverage
from eyot_hub.jobs.bronze.segments import Segments
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import existing_table
from eyot_hub.jobs.maintenance.erasure_task import Erased, EraseFiles, Selection, Sender
from eyot_hub.jobs.payloads.payload_shape import Field, Shape
from eyot_hub.jobs.removals.erasures import (
    COMPLETED,
    ERASURE_ID,
    REQUESTED,
    erasures_table,
    last_erasure,
    note,
    rows_id,
    unfinished,
)
from eyot_hub.jobs.silver import parsing
from eyot_hub.jobs.silver.silver import QUARANTINE
from eyot_hub.jobs.tables.table import Fenced, LakeTable
from eyot_hub.jobs.tables.table_format import TableFile
from eyot_wire.quantities import counted

log = logging.getLogger(__name__)

FILES_AT_ONCE: Final = 256  # of one commit
TRIES: Final = 100  # of a commit that other jobs overtake


@dataclass
class Erasure:
    """The result. `rows`: what each table has lost, in all runs of this erasure."""

    erasure: int
    device: str
    subjects: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    #: When the vacuum of `maintain` may have removed the files of older versions, too; None: it never does.
    files_until: datetime | None = None


class Eraser:
    """Erases devices; needs a Spark session for the work on files."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config

    def erase(self, device: str, subjects: Sequence[str] = ()) -> Erasure:
        """Finish what is unfinished, then erase the device. `subjects`: patterns of more messages of bronze and quarantine."""
        self.resume()
        number = last_erasure(erasures_table(self._config)) + 1
        note(self._config, number, REQUESTED, device, list(subjects), {})
        return self._run(Erasure(number, device, list(subjects)))

    def resume(self) -> list[Erasure]:
        """Finish erasures that were killed."""
        return [
            self._run(Erasure(row["erasure"], row["device"], row["subjects"].split()))
            for row in unfinished(self._config)
        ]

    def _run(self, done: Erasure) -> Erasure:
        messages = Selection(
            done.device,
            messages=True,
            senders=senders(self._config),
            subjects=parsing.subject_pattern(done.subjects) if done.subjects else "",
        )
        rows = Selection(done.device, messages=False)
        for name, selection in self._tables(messages, rows):
            table = existing_table(self._config.lake, name)
            if table is None:
                continue
            if last_erasure(table) < done.erasure:
                if name == BRONZE:
                    self._record_sequences(table)
                self._erase_from(table, selection, done.erasure)
            done.rows[name] = table.position(rows_id(done.erasure)) or 0
        note(self._config, done.erasure, COMPLETED, done.device, done.subjects, done.rows)
        hours = self._config.bronze.vacuum_hours
        done.files_until = datetime.now(UTC) + timedelta(hours=hours) if hours else None
        return done

    def _tables(self, messages: Selection, rows: Selection) -> list[tuple[str, Selection]]:
        """Return the tables in the order in which rows flow."""
        return [
            (BRONZE, messages),
            (QUARANTINE, messages),
            *((f"silver/{one.name}", rows) for one in self._config.silver),
            *((f"gold/{one.name}", rows) for one in self._config.gold),
            ("fleet_files", rows),
            ("fleet_statuses", rows),
            ("fleet_files_sum", rows),
            ("fleet_statuses_sum", rows),
            ("fleet", rows),
            ("devices", rows),
        ]

    def _record_sequences(self, bronze: LakeTable) -> None:
        """Bring `segments` up to bronze, as `gaps` does."""
        for _ in range(TRIES):
            try:
                segments = Segments(self._spark, self._config, bronze)
                found = segments.found()
                repeats = coverage(found, lambda: bronze.dataframe(self._spark, columns=REPEAT_COLUMNS)).repeats
                return segments.decide(found, repeats)
            except Fenced as fenced:
                log.info("again: %s", fenced)
        raise Fenced("table segments is written by another job continuously")

    def _erase_from(self, table: LakeTable, selection: Selection, number: int) -> None:
        """Remove the rows, and record the erasure in a version that has none of them."""
        clean: set[str] = set()
        for _ in range(TRIES):
            table.refresh()
            if table.root.endswith(f"/{BRONZE}"):
                self._record_sequences(table)
            while files := self._unclean(table, selection, clean)[:FILES_AT_ONCE]:
                self._erase_files(table, selection, number, files, clean)
            try:
                # Of the version that is known here all files are clean; a round that committed since refuses this.
                return table.commit([], {ERASURE_ID: number, rows_id(number): table.position(rows_id(number)) or 0})
            except Fenced as fenced:
                log.info("again: %s", fenced)
        raise Fenced(f"table {table.root} is written by another job continuously: run erase --resume")

    @staticmethod
    def _unclean(table: LakeTable, selection: Selection, clean: set[str]) -> list[TableFile]:
        return [file for file in table.files() if file.path not in clean and selection.may_lie_in(file)]

    def _erase_files(
        self, table: LakeTable, selection: Selection, number: int, files: list[TableFile], clean: set[str]
    ) -> None:
        """Replace those of the files that hold such rows; add to `clean` what holds none, and what was written."""
        context = self._spark.sparkContext
        context.setJobDescription(f"erase from {counted(len(files), 'file')} of {table.root}")
        groups = grouped(files, [file.rows for file in files], context.defaultParallelism)
        task = EraseFiles(table.spec, selection)
        found: list[Erased] = context.parallelize(groups, len(groups)).flatMap(task).collect()
        clean.update(one.path for one in found if not one.rows)
        held = [one for one in found if one.rows]
        by_path = {file.path: file for file in files}
        for _ in range(TRIES):
            present = {file.path for file in table.files()}
            stale = [one for one in held if one.path not in present]  # replaced by another job, and looked at again
            held = [one for one in held if one.path in present]
            for one in stale:
                table.spec.writer().discard(one.files)
            if not held:
                return
            removed = (table.position(rows_id(number)) or 0) + sum(one.rows for one in held)
            added = [file for one in held for file in one.files]
            try:
                table.commit(added, {rows_id(number): removed}, [by_path[one.path] for one in held])
                clean.update(file.path for file in added)
                return
            except Fenced as fenced:
                log.info("again: %s", fenced)
                table.refresh()
        raise Fenced(f"table {table.root} is written by another job continuously: run erase --resume")


def senders(config: Config) -> tuple[Sender, ...]:
    """Return how messages name their devices: by each silver table, and the devices' own statuses."""
    found = [
        Sender(parsing.subject_pattern(silver.subjects), _only_device(silver.shape(by_month=False)))
        for silver in config.silver
    ]
    if config.fleet.subjects:
        found.append(Sender(parsing.subject_pattern(config.fleet.subjects), _status_shape(config.fleet.device)))
    return tuple(found)


def _only_device(shape: Shape) -> Shape:
    """Return a shape of nothing but the device, so that it is found in a message that lacks the rest."""
    schema = None if shape.format == "json" else shape.schema  # JSON of another schema names its device, too
    return replace(shape, columns=(), required=(), event_time=None, non_finite=True, schema=schema)


def _status_shape(device: str) -> Shape:
    """Return where a status names its device; `device`: a member of the object, or `subject:N`."""
    return Shape(
        format="json",
        columns=(),
        device=device if device.startswith("subject:") else Field("device", (device,), "string"),
        event_time=None,
        required=(),
        earliest="",
        earliest_us=0,
        ahead="",
        ahead_us=0,
        by_month=False,
        non_finite=True,
    )
