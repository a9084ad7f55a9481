"""Parquet files of a table, written by tasks, one per partition value, with statistics.

A file does not count until the driver commits it (`table.py`); a vacuum removes what a killed task leaves behind.

Jobs and tasks access the storage in one way: delta-rs, with the options of the configuration. Local folders are written
by Arrow itself, which is equivalent and allows flushes.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext

log = logging.getLogger(__name__)

#: Of requests to object storage. delta-rs's own default is ten tries, which may be over in two seconds. The time ends them instead.
PATIENCE: Final = {"max_retries": "10000", "retry_timeout": "180s"}
#: Spark runs a task that failed up to four times, so that its requests are repeated for as long.
TASK_PATIENCE: Final = {**PATIENCE, "retry_timeout": "45s"}
#: Of requests that remove what a failed task wrote: the vacuum does it, too.
_HASTE: Final = {"max_retries": "1", "retry_timeout": "5s", "timeout": "5s", "connect_timeout": "5s"}
PartitionValues: TypeAlias = tuple[tuple[str, str], ...]  # (column, value) in the table's order

ROW_GROUP_ROWS: Final = 256 * 1024
ROW_GROUP_BYTES: Final = 128 * 1024 * 1024  # in memory
# Spark holds this many rows of a row group at once, so large payloads need small groups.
READ_ROWS: Final = 4096
READ_BYTES: Final = 32 * 1024 * 1024
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
TEXT_MAX: Final = 128  # characters of a text in the statistics; a column with a longer one has none
OPEN_FILES_MAX: Final = 64  # beyond this many, a task closes its files and starts new ones


@dataclass(frozen=True)
class DataFile:
    """One written file, relative to the table."""

    path: str
    size: int
    rows: int
    partition: PartitionValues
    written_ms: int
    #: Smallest and largest values by column (integers, times in UTC, short texts), and the number of nulls of these columns.
    least: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A table's location and delta-rs's storage options. Sent to the executors; repr() shows no secrets."""

    root: str  # a folder or a URL
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def local(self) -> bool:
        return "://" not in self.root


class FileWriter:
    """Writes the files of one task."""

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        compression: str,
        stored: pa.Schema | None = None,
    ) -> None:
        """Open the storage. `stored`: the files' own columns, if partition columns are among them; None: the others."""
        self._filesystem, self._root = filesystem(place)
        self._place = place
        self._local = place.local
        self._away = False  # object storage did not answer the last request that removes a file
        self._schema = pa.schema([field for field in schema if field.name not in partition_by])
        self._stored = self._schema if stored is None else stored
        self._compression = compression
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._done: list[DataFile] = []

    def write(self, batch: pa.RecordBatch | pa.Table, partition: PartitionValues) -> None:
        """Append rows: the table's columns without its partition columns. An error removes all files, as `abandon` does."""
        try:
            file = self._open.get(partition)
            if file is None:
                if len(self._open) >= OPEN_FILES_MAX:
                    self._close(next(iter(self._open)))
                file = self._open[partition] = _OpenFile(self, partition)
            file.write(batch)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> list[DataFile]:
        """Close and flush all files; return what was written. An error removes all files, as `abandon` does."""
        try:
            for partition in list(self._open):
                self._close(partition)
        except BaseException:
            self.abandon()
            raise
        return self._done

    def abandon(self) -> None:
        """Close and remove the files of a failed task: a full disk must not keep what no commit names."""
        for file in self._open.values():
            if not self._local:
                self._remove(file.path)  # it is not there yet; this asks whether the storage is
            if not self._away:
                file.drop()
                self._remove(file.path)
            else:
                file.writer.is_open = False
        self.discard(self._done)
        self._open, self._done = {}, []

    def discard(self, files: list[DataFile]) -> None:
        """Remove files that will not be committed."""
        for file in files:
            self._remove(f"{self._root}{file.path}")

    def _remove(self, path: str) -> None:
        """Remove a file, if the storage is there; else a vacuum will. Of a storage that is away only one answer is awaited."""
        if self._away:
            return
        try:
            self._remover().delete_file(path)
        except OSError:
            self._away = not self._local

    def _remover(self) -> pafs.FileSystem:
        if self._local:
            return self._filesystem
        hasty = {**dict(self._place.storage), **_HASTE}
        return filesystem(replace(self._place, storage=tuple(hasty.items())))[0]

    def _close(self, partition: PartitionValues) -> None:
        self._done.append(self._open[partition].close())
        del self._open[partition]  # until here an error leaves the file to `abandon`


class _OpenFile:
    def __init__(self, task: FileWriter, partition: PartitionValues) -> None:
        self._task = task
        self._partition = partition
        folders = [partition_folder(name, value) for name, value in partition]
        self._relative = "/".join([*folders, f"part-{uuid.uuid4()}.parquet"])
        self.path = f"{task._root}{self._relative}"
        self._parent = self.path.rpartition("/")[0]
        task._filesystem.create_dir(self._parent, recursive=True)
        self._metadata: list[pq.FileMetaData] = []
        try:
            self._sink = task._filesystem.open_output_stream(self.path)
            self.writer = pq.ParquetWriter(
                self._sink,
                task._stored,
                compression=task._compression,
                metadata_collector=self._metadata,
                **encodings(task._stored),
            )
        except BaseException:  # the file may exist, without its first bytes
            task._remove(self.path)
            raise
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        self._waiting += [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches()
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._full:
            self._write_group()

    @property
    def _full(self) -> bool:
        if self._waiting_rows <= READ_ROWS:
            return self._waiting_bytes >= READ_BYTES
        return self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES

    def _write_group(self) -> None:
        if self._waiting:
            self.writer.write_table(self._complete(pa.Table.from_batches(self._waiting, self._task._schema)))
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Add the partition's columns where the files hold them."""
        stored = self._task._stored
        if stored is self._task._schema:
            return rows
        values = dict(self._partition)
        columns = [
            pa.repeat(pa.scalar(values[field.name]).cast(field.type), rows.num_rows)
            if field.name in values
            else rows.column(field.name)
            for field in stored
        ]
        return pa.Table.from_arrays(columns, names=stored.names)

    def drop(self) -> None:
        """Close the file, whatever is in it: a file that is removed takes up space until it is closed."""
        for close in (self.writer.close, self._sink.close):
            try:
                close()
            except Exception as error:  # the error of the write before, or the same again
                log.debug("%s: %s", self.path, error)
        self.writer.is_open = False  # it would try again when it is collected, and print the error

    def close(self) -> DataFile:
        self._write_group()
        self.writer.close()
        size = self._sink.tell()  # asked of object storage, it would be two requests
        self._sink.close()
        if isinstance(self._task._filesystem, pafs.LocalFileSystem):
            sync(self.path)
            sync(self._parent)
        (metadata,) = self._metadata
        least, most, nulls = _statistics(metadata)
        return DataFile(
            path=self._relative,
            size=size,
            rows=metadata.num_rows,
            partition=self._partition,
            written_ms=time.time_ns() // 1_000_000,
            least=least,
            most=most,
            nulls=nulls,
        )


def encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return how a file's columns are encoded: integers and times by their differences, all others by a list of distinct values.

    Sequences and times grow in small steps. A list of them is as long as the column, and is built only to be dropped.
    """
    steps = [field.name for field in schema if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)]
    listed = [path for field in schema if field.name not in steps for path in _leaves(field)]
    return {"use_dictionary": listed, "column_encoding": dict.fromkeys(steps, "DELTA_BINARY_PACKED")}


def _leaves(field: pa.Field) -> list[str]:
    """Return the paths of a field's values in a file."""
    return (
        [f"{field.name}.key_value.{part}" for part in ("key", "value")] if pa.types.is_map(field.type) else [field.name]
    )


def partition_folder(name: str, value: str) -> str:
    """Return `name=value` as a folder's name, in ASCII, whatever the locale of readers."""
    text = quote(value, safe="")
    # Spark would read the plain form as null.
    return f"{name}=" + (text.replace("__", "%5F%5F", 1) if value == _HIVE_NULL else text)


def filesystem(place: Place) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a table, and the prefix of its files' paths there."""
    if place.local:
        return pafs.LocalFileSystem(), f"{Path(place.root).absolute()}/"
    from deltalake.fs import DeltaStorageHandler  # a task that writes to a folder needs none of delta-rs

    storage = dict(place.storage)
    if TaskContext.get() is not None and PATIENCE.items() <= storage.items():
        storage |= TASK_PATIENCE
    return pafs.PyFileSystem(DeltaStorageHandler(place.root, storage)), ""


def sync(path: str) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def by_partition(table: pa.Table, columns: tuple[str, ...]) -> list[tuple[PartitionValues, pa.Table]]:
    """Return the rows of `table` for each combination of partition values, without those columns."""
    keys = table.select(list(columns)).group_by(list(columns), use_threads=False).aggregate([])
    rest = [name for name in table.column_names if name not in columns]
    found = []
    for key in keys.to_pylist():
        values = tuple((name, _partition_text(key[name])) for name in columns)
        rows = table
        if keys.num_rows > 1:
            mask = None
            for name in columns:
                equal = pa.compute.equal(table.column(name), pa.scalar(key[name], table.schema.field(name).type))
                mask = equal if mask is None else pa.compute.and_(mask, equal)
            rows = table.filter(mask)
        found.append((values, rows.select(rest)))
    return found


def _partition_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _statistics(metadata: pq.FileMetaData) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Return smallest and largest values, and nulls, of the columns that hold integers, times or short texts."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown = set[str]()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if "." in name or statistics is None:
                continue
            nulls[name] = nulls.get(name, 0) + (statistics.null_count or 0)
            if not statistics.has_min_max:
                if statistics.num_values:  # they are not nulls only
                    unknown.add(name)
                continue
            low, high = statistics.min, statistics.max
            if not _counts(low) or not _counts(high):
                unknown.add(name)
                continue
            least[name], most[name] = min(least.get(name, low), low), max(most.get(name, high), high)
    for name in unknown:
        for found in (least, most):
            found.pop(name, None)
    return least, most, {name: nulls[name] for name in least}


def _counts(value: Any) -> bool:
    """Return whether statistics are kept of a value of this type and length."""
    if isinstance(value, str):
        return len(value) <= TEXT_MAX
    return isinstance(value, int | datetime | date) and not isinstance(value, bool)
