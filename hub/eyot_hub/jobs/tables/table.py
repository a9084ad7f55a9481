"""A table of the jobs: tasks write the files, the driver commits them together with the positions.

The position of the table's input is kept in the table itself: one commit holds new files, removed files and new
positions, or none of them. A lost checkpoint or a second writer therefore costs nothing: a starting job reads its position
from the table, and of two commits from the same position one is refused.

Tasks read the files of one version of the table by name; no format's jar and no file system of Spark is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from eyot_hub.errors import HubError
from eyot_hub.grouping import grouped
from eyot_hub.jobs.tables.clock_check import HOLD, JUMP_ID, TRUSTED_ID, ClockCheck, Readings, checked, newest_stored
from eyot_hub.jobs.tables.compaction import joined, small_files
from eyot_hub.jobs.tables.file_rows import FileRows, Range, row_groups
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table_format import Fenced as Fenced
from eyot_hub.jobs.tables.table_format import TableFile, TableLog, partition_text
from eyot_hub.jobs.tables.table_format import TableSpec as TableSpec

log = logging.getLogger(__name__)

T = TypeVar("T")
REPLACE_TRIES: Final = 20
UNEXPLAINED_MAX: Final = 5


class Refusals:
    """Tells whether a refused round is made again: as long as other jobs commit to its tables.

    A catalog may refuse commits though nobody else commits; a round that is repeated for ever would never tell.
    """

    def __init__(self, tables: Sequence[LakeTable]) -> None:
        self._tables = tables
        self._versions: list[int] = []
        self._left = UNEXPLAINED_MAX

    def allow(self, fenced: Fenced) -> None:
        """Refresh the tables. Raises `fenced` when they did not change between several refusals."""
        for table in self._tables:
            table.refresh()
        before, self._versions = self._versions, [table.version for table in self._tables]
        self._left = self._left - 1 if before == self._versions else UNEXPLAINED_MAX
        if not self._left:
            raise fenced


class LakeTable:
    """One table. Call `refresh` to see other writers' commits."""

    def __init__(self, spec: TableSpec, log: TableLog) -> None:
        """Add the columns that the table lacks. Raises HubError where it was made with other types or another partitioning."""
        self._log = log
        self.spec = spec
        self._files: list[TableFile] = []
        self._files_of = -1  # the version that `_files` lists
        self._fit_schema()
        self.spec = replace(spec, stored=log.stored(spec.schema))

    @classmethod
    def existing(cls, spec: TableSpec, log: TableLog) -> LakeTable:
        """Return a table with the columns and the partitioning that it has."""
        return cls(replace(spec, schema=log.schema, partition_by=log.partition_by), log)

    def _fit_schema(self) -> None:
        """Add the columns that the table lacks: null in existing rows. Raises HubError for other types."""
        have, by = self._log.schema, self._log.partition_by
        if by != self.spec.partition_by:
            raise HubError(
                f"table {self.root} is partitioned by {', '.join(by)}, not by {', '.join(self.spec.partition_by)}: "
                "give the table another name"
            )
        for column in self.spec.schema:
            if column.name in have.names and have.field(column.name).type != column.type:
                raise HubError(
                    f"table {self.root} was made with another configuration: its column '{column.name}' is "
                    f"{have.field(column.name).type}, not {column.type}. Give the column or the table another name"
                )
        missing = [column for column in self.spec.schema if column.name not in have.names]
        if missing:
            self._log.add_columns(missing)

    @property
    def root(self) -> str:
        return self.spec.root

    @property
    def version(self) -> int:
        return self._log.version

    @property
    def table_id(self) -> str:
        """The table's id, which distinguishes it from another table at the same place, before or after."""
        return self._log.table_id

    def refresh(self) -> None:
        self._log.refresh()

    def position(self, name: str) -> int | None:
        """Return the last position committed under this name, as of the last refresh or commit."""
        return self._log.position(name)

    def commit(
        self,
        added: Iterable[DataFile],
        positions: Mapping[str, int],
        removed: Iterable[TableFile] = (),
        *,
        changes: bool = True,
    ) -> None:
        """Commit files and positions together; `changes` False: the rows stay the same.

        Raises Fenced when another commit came in between: one of these positions, or any commit if files are removed.
        """
        files = list(added)
        try:
            self._log.commit(files, positions, list(removed), changes=changes)
        except Fenced as fenced:
            # A request whose answer was lost is sent again, and then meets its own commit.
            if not self._holds(files):
                raise
            log.info("table %s: the commit had succeeded, and its answer was lost: %s", self.root, fenced)
        except Exception:
            self._discard_failed(files)
            raise

    def _discard_failed(self, files: list[DataFile]) -> None:
        """Remove the files of a commit that failed and was certainly not made: on a full disk each try would leave more."""
        if not self._log.fails_for_good:
            return
        try:
            held = self._holds(files)
        except Exception as error:  # the files stay until a vacuum
            log.info("table %s: %s", self.root, error)
            return
        if not held:
            self.spec.writer().discard(files)

    def _holds(self, files: Sequence[DataFile]) -> bool:
        """Return whether the newest version has all of these files; False for none."""
        self.refresh()
        return bool(files) and {file.path for file in files} <= {file.path for file in self.files()}

    def replace(self, rows: list[dict[str, Any]], positions: Mapping[str, int] | None = None) -> None:
        """Make `rows` the whole content of the table, which is not partitioned; of two writers the later one wins.

        Raises Fenced where another writer has moved one of `positions`, which the rows were made by.
        """
        positions = positions or {}
        writer = self.spec.writer()
        if rows:
            writer.write(pa.Table.from_pylist(rows, schema=self.spec.schema), ())
        files = writer.finish()
        for _ in range(REPLACE_TRIES):
            try:
                return self.commit(files, positions, self.files())
            except Fenced as fenced:
                self.refresh()
                if any((self.position(name) or 0) != at for name, at in positions.items()):
                    writer.discard(files)
                    raise
                log.warning("again: %s", fenced)
        raise Fenced(f"table {self.root} is written by another job continuously")

    def files(self, **partition: Any) -> list[TableFile]:
        """Return the files of the current version; with arguments, those whose partition has one of the given values."""
        if self._files_of != self.version:
            self._files, self._files_of = self._log.files(), self.version
        return [
            file for file in self._files if all(file.partition[name] in wanted for name, wanted in partition.items())
        ]

    def dataframe(
        self,
        spark: SparkSession,
        files: Sequence[TableFile] | None = None,
        columns: Sequence[str] | None = None,
        ranges: Mapping[str, Sequence[Range]] | None = None,
        *,
        with_path: bool = False,
    ) -> DataFrame:
        """Return the rows of the given files (None: all) with the table's columns in order, or with `columns`.

        `ranges`: only rows in one of their stream's ranges (for a table partitioned by streams). `with_path`: and with
        `path`, the row's file. Tasks read the files as they write them, by the storage's own options, which Spark does not
        know.
        """
        wanted, of_file = self._columns(columns), self.spec.partition_by
        if with_path:
            wanted, of_file = wanted.append(pa.field("path", pa.string())), (*of_file, "path")
        schema = from_arrow_schema(wanted)
        chosen = self.files() if files is None else files
        if not chosen:
            return spark.createDataFrame([], schema)
        fields = [pa.field(name, pa.string()) for name in ("path", *self.spec.partition_by)]
        listed = pa.Table.from_pylist(self._named(chosen), pa.schema(fields))
        tasks = max(1, min(len(chosen), spark.sparkContext.defaultParallelism))
        frame = spark.createDataFrame(listed)
        frame = frame.coalesce(1) if tasks == 1 else frame.repartition(tasks)
        return frame.mapInArrow(FileRows(self.spec.place, wanted, of_file, ranges), schema)

    def collected(
        self,
        spark: SparkSession,
        task: Callable[[Iterator[pa.RecordBatch]], Iterator[T]],
        files: Sequence[TableFile],
        columns: Sequence[str],
        ranges: Mapping[str, Sequence[Range]] | None = None,
    ) -> list[T]:
        """Return what `task` makes of the rows that `dataframe` has of these files; each task gets whole files.

        Nothing of Spark SQL takes part: a cluster needs seconds for its first query.
        """
        if not files:
            return []
        read, context = (
            FileRows(self.spec.place, self._columns(columns), self.spec.partition_by, ranges),
            spark.sparkContext,
        )
        groups = grouped(self._named(files), [file.rows for file in files], context.defaultParallelism)
        found: list[T] = context.parallelize(groups, len(groups)).flatMap(lambda group: task(read.of(group))).collect()
        return found

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows of a small table that is not partitioned, read by this process alone."""
        groups = row_groups(self.spec.place, [file.path for file in self.files()], self.spec.schema)
        return [row for rows in groups for row in rows.to_pylist()]

    def _columns(self, columns: Sequence[str] | None) -> pa.Schema:
        return self.spec.schema if columns is None else pa.schema([self.spec.schema.field(name) for name in columns])

    def _named(self, files: Sequence[TableFile]) -> list[dict[str, str | None]]:
        """Return each file's path and the texts of its partition."""
        return [
            {"path": file.path, **{name: partition_text(file.partition.get(name)) for name in self.spec.partition_by}}
            for file in files
        ]

    def rows(self) -> int:
        return sum(file.rows for file in self.files())

    def maintain_when_due(self, before: int, every: int, vacuum_hours: float) -> None:
        """Maintain the table when a multiple of `every` versions was passed since version `before`.

        0 hours: remove nothing; 0 versions: never. Of two jobs that rewrite the same files one is refused; it succeeds the
        next time.
        """
        if every and self.version // every > before // every:
            try:
                self.compact()
                if self.check_clock(datetime.now(UTC)).steady:
                    self.remove_files(vacuum_hours or None)
            except Fenced as error:
                log.warning("table %s is not compacted this time: %s", self.root, error)
                self.refresh()

    def check_clock(self, now: datetime, newest: datetime | None = None) -> ClockCheck:
        """Return what may leave the table by age when the hub's clock shows `now` (UTC), and record the reading.

        `newest`: when the newest row was stored, for the first reading of all; None: by the table's own rows. Raises Fenced when another job recorded one meanwhile.
        """
        recorded = Readings.of_positions(self.position(TRUSTED_ID) or 0, self.position(JUMP_ID) or 0)
        before = recorded if recorded != Readings() else Readings(newest or newest_stored(self.files()))
        after = before.after(now)
        if after.differ(recorded):
            self._log.commit([], after.positions(), [], changes=False)
        if after.jump is not None and after.trusted is not None:
            log.warning(
                "table %s: the clock shows %s, and showed %s before: nothing leaves by this time until the clock has gone on for %s hours",
                self.root,
                now.isoformat(timespec="seconds"),
                after.trusted.isoformat(timespec="seconds"),
                HOLD // timedelta(hours=1),
            )
        return checked(before, after, now)

    def compact(self) -> None:
        """Join small files. Raises Fenced when another job committed meanwhile."""
        # All columns of the table, which may be more than this job's older configuration has.
        columns = self._log.schema
        spec = replace(self.spec, schema=columns, stored=self._log.stored(columns))
        for group in small_files(self.files()):
            files = joined(spec.place, spec.schema, spec.writer(), group)
            try:
                self.commit(files, {}, group, changes=False)
            except Fenced:
                spec.writer().discard(files)
                raise

    def remove_files(self, hours: float | None) -> int:
        """Remove files and entries of the log that no version newer than `hours` needs, orphans included; None: entries alone.

        Returns how many files were removed. Ages go by the clock: ask `check_clock` first.
        """
        self._log.tidy()
        return 0 if hours is None else self._log.vacuum(hours)
