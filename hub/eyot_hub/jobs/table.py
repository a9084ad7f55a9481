"""A Delta table of the jobs: tasks write the files, the driver commits them together with the positions.

The position of the table's input is kept in the table's own transactions (Delta's `txn` actions): one commit holds new
files, removed files and new positions, or none of them. A lost checkpoint or a second writer therefore costs nothing: a
starting job reads its position from the table, and of two commits from the same position one is refused.

Tasks read the files of one version of the table by name; no Delta jar and no file system of Spark is needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from eyot_hub.errors import HubError
from eyot_hub.grouping import grouped
from eyot_hub.jobs.compaction import TableFile, joined, partition_text, small_files
from eyot_hub.jobs.file_rows import FileRows, Range, row_groups
from eyot_hub.jobs.files import DataFile, FileWriter, Place, filesystem, sync

log = logging.getLogger(__name__)

T = TypeVar("T")
DEFAULT_COMPRESSION: Final = "zstd"
# For commits that remove files. delta-rs does not detect that an intervening commit removed the same files, and both
# replacements would stand. Such a commit is refused after any intervening commit.
NO_RETRY: Final = 0
REPLACE_TRIES: Final = 20
LOG_ENTRIES_MAX: Final = 100  # beyond, positions are asked for again


class _Txn(msgspec.Struct):
    appId: str  # Delta's name
    version: int


class _Action(msgspec.Struct):
    """A line of Delta's log."""

    txn: _Txn | None = None


class Fenced(HubError):
    """Another writer committed since the positions were read; nothing of this commit is in the table."""


@dataclass(frozen=True)
class TableSpec:
    """Everything that a task needs to write for the table."""

    root: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    compression: str = DEFAULT_COMPRESSION
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # delta-rs's options for the storage

    @property
    def place(self) -> Place:
        return Place(self.root, self.storage)

    def writer(self) -> FileWriter:
        return FileWriter(self.place, self.schema, self.partition_by, self.compression)


class LakeTable:
    """One Delta table; created when missing. Call `refresh` to see other writers' commits."""

    def __init__(self, spec: TableSpec, storage_options: Mapping[str, str] | None = None) -> None:
        self.spec = replace(spec, storage=tuple(sorted((storage_options or {}).items())))
        self._storage = dict(storage_options or {}) or None
        self._local = self.spec.place.local
        self._delta = self._open()
        self._positions: dict[str, int | None] = {}
        self._positions_of = self.version
        self._files: list[TableFile] = []
        self._files_of = -1  # the version that `_files` lists
        self._fit_schema()

    @classmethod
    def exists(cls, root: str, storage_options: Mapping[str, str] | None = None) -> bool:
        return bool(DeltaTable.is_deltatable(root, storage_options=dict(storage_options or {}) or None))

    @classmethod
    def existing(cls, root: str, storage_options: Mapping[str, str], compression: str) -> LakeTable:
        """Return a table with the columns and the partitioning that it has. Raises TableNotFoundError."""
        delta = DeltaTable(root, storage_options=dict(storage_options) or None)
        by = tuple(delta.metadata().partition_columns)
        return cls(TableSpec(root, pa.schema(delta.schema().to_arrow()), by, compression), storage_options)

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.spec.root, storage_options=self._storage)
        except TableNotFoundError:
            if self._local:
                os.makedirs(self.spec.root, exist_ok=True)
            DeltaTable.create(
                self.spec.root,
                schema=Schema.from_arrow(self.spec.schema),
                partition_by=list(self.spec.partition_by),
                mode="ignore",
                storage_options=self._storage,
            )
            return DeltaTable(self.spec.root, storage_options=self._storage)

    def _fit_schema(self) -> None:
        """Add the columns that the table lacks: null in existing rows. Raises HubError for other types."""
        have = pa.schema(self._delta.schema().to_arrow())
        by = list(self._delta.metadata().partition_columns)
        if by != list(self.spec.partition_by):
            raise HubError(
                f"table {self.root} is partitioned by {', '.join(by)}, not by {', '.join(self.spec.partition_by)}: "
                "give the table another name"
            )
        wanted = {field.name: field for field in Schema.from_arrow(self.spec.schema).fields}
        held = {field.name: field for field in self._delta.schema().fields}
        for name, column in wanted.items():
            if name in held and held[name].type != column.type:
                raise HubError(
                    f"table {self.root} was made with another configuration: its column '{name}' is "
                    f"{have.field(name).type}, not {self.spec.schema.field(name).type}. Give the column or the table another name"
                )
        missing = [field for name, field in wanted.items() if name not in held]
        if missing:
            self._delta.alter.add_columns(missing)
            self.refresh()

    @property
    def root(self) -> str:
        return self.spec.root

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def table_id(self) -> str:
        """The table's id, which distinguishes it from another table at the same place, before or after."""
        return str(self._delta.metadata().id)

    def refresh(self) -> None:
        self._delta.update_incremental()
        if self.version != self._positions_of:
            newer = self._committed_since(self._positions_of)
            self._positions = {} if newer is None else {**self._positions, **newer}
            self._positions_of = self.version

    def _committed_since(self, version: int) -> dict[str, int] | None:
        """Return the positions of the commits after `version`, read from the log; None: they are too many, or gone."""
        if not 0 < self.version - version <= LOG_ENTRIES_MAX:
            return None
        files, root = filesystem(self.spec.place)
        found: dict[str, int] = {}
        for number in range(version + 1, self.version + 1):
            try:
                with files.open_input_stream(f"{root}_delta_log/{number:020}.json") as entry:
                    lines = entry.read().splitlines()
            except OSError:
                return None
            for line in lines:
                action = msgspec.json.decode(line, type=_Action)
                if action.txn is not None:
                    found[action.txn.appId] = action.txn.version
        return found

    def position(self, app_id: str) -> int | None:
        """Return the last position committed under this name, as of the last refresh or commit."""
        # delta-rs needs milliseconds for each: thousands of streams are read once, and then the commits of other writers.
        if app_id not in self._positions:
            found = self._delta.transaction_version(app_id)
            self._positions[app_id] = None if found is None else int(found)
        return self._positions[app_id]

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
        order = self.spec.partition_by
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, dict(file.partition), file.written_ms, changes, file.stats)
            for file in added
        ]
        added_count = len(actions)
        now_ms = int(datetime.now().timestamp() * 1000)
        actions += [
            RemoveAction(
                file.path, changes, now_ms, file.size, {name: partition_text(file.partition[name]) for name in order}
            )
            for file in removed
        ]
        properties = CommitProperties(
            app_transactions=[Transaction(name, at) for name, at in sorted(positions.items())],
            max_commit_retries=NO_RETRY if len(actions) > added_count else None,
        )
        try:
            self._delta.create_write_transaction(
                actions, "append", self._delta.schema(), list(order), commit_properties=properties
            )
        except CommitFailedError as error:
            raise Fenced(f"table {self.root}: {error}") from error
        before = self._positions_of
        self._delta.update_incremental()
        if self.version == before + 1:  # no other commit came in between
            self._positions_of = self.version
            self._positions |= positions
        self.refresh()
        if self._local:
            log = os.path.join(self.root, "_delta_log")
            sync(os.path.join(log, f"{self.version:020}.json"))
            sync(log)

    def replace(self, rows: list[dict[str, Any]]) -> None:
        """Make `rows` the whole content of the table, which is not partitioned; of two writers the later one wins."""
        writer = self.spec.writer()
        if rows:
            writer.write(pa.Table.from_pylist(rows, schema=self.spec.schema), ())
        files = writer.finish()
        for _ in range(REPLACE_TRIES):
            try:
                return self.commit(files, {}, self.files())
            except Fenced as fenced:
                log.warning("again: %s", fenced)
                self.refresh()
        raise Fenced(f"table {self.root} is written by another job continuously")

    def files(self, **partition: Any) -> list[TableFile]:
        """Return the files of the current version; with arguments, those whose partition has one of the given values."""
        if self._files_of != self.version:
            self._files, self._files_of = self._listed(), self.version
        return [
            file for file in self._files if all(file.partition[name] in wanted for name, wanted in partition.items())
        ]

    def _listed(self) -> list[TableFile]:
        actions = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        found = []
        for action in actions:
            values = _prefixed(action, "partition.")
            path = unquote(action["path"])
            found.append(
                TableFile(
                    uri=f"{self.root.rstrip('/')}/{path}",
                    path=path,
                    size=action["size_bytes"],
                    rows=action["num_records"],
                    partition=values,
                    least=_prefixed(action, "min."),
                    most=_prefixed(action, "max."),
                )
            )
        return found

    def dataframe(
        self,
        spark: SparkSession,
        files: Sequence[TableFile] | None = None,
        columns: Sequence[str] | None = None,
        ranges: Mapping[str, Sequence[Range]] | None = None,
    ) -> DataFrame:
        """Return the rows of the given files (None: all) with the table's columns in order, or with `columns`.

        `ranges`: only rows in one of their stream's ranges (for a table partitioned by streams). Tasks read the files
        as they write them, by the storage's own options, which Spark does not know.
        """
        wanted = self._columns(columns)
        schema = from_arrow_schema(wanted)
        chosen = self.files() if files is None else files
        if not chosen:
            return spark.createDataFrame([], schema)
        fields = [pa.field(name, pa.string()) for name in ("path", *self.spec.partition_by)]
        listed = pa.Table.from_pylist(self._named(chosen), pa.schema(fields))
        tasks = max(1, min(len(chosen), spark.sparkContext.defaultParallelism))
        frame = spark.createDataFrame(listed)
        frame = frame.coalesce(1) if tasks == 1 else frame.repartition(tasks)
        return frame.mapInArrow(FileRows(self.spec.place, wanted, self.spec.partition_by, ranges), schema)

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
                self.maintain(compact=True, vacuum_hours=vacuum_hours or None)
            except (DeltaError, Fenced) as error:
                log.warning("table %s is not compacted this time: %s", self.root, error)
                self.refresh()

    def _compact(self) -> None:
        # All columns of the table, which may be more than this job's older configuration has.
        spec = replace(self.spec, schema=pa.schema(self._delta.schema().to_arrow()))
        for group in small_files(self.files()):
            files = joined(spec.place, spec.schema, spec.writer(), group)
            try:
                self.commit(files, {}, group, changes=False)
            except Fenced:
                spec.writer().discard(files)
                raise

    def maintain(self, *, compact: bool, vacuum_hours: float | None) -> int:
        """Join small files, and remove files that no version newer than `vacuum_hours` needs, orphans included.

        Returns how many files were removed.
        """
        if compact:
            self._compact()
        if vacuum_hours is None:
            return 0
        removed = self._delta.vacuum(
            retention_hours=max(0, int(vacuum_hours)), dry_run=False, enforce_retention_duration=False, full=True
        )
        self.refresh()
        return len(removed)


def _prefixed(action: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in action.items() if name.startswith(prefix)}
