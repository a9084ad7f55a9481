"""A table's versions in Apache Iceberg, by pyiceberg, in a REST or an SQL catalog.

Every commit is one snapshot, and the catalog accepts it only on the version that it was made for. Positions are properties
of the table, set in the same commit: `eyot.position.<name>` is the position and the snapshot that set it. A commit
without files therefore has a snapshot, too, and shows to others which positions it named.

An append that another commit overtook is made again on the newer version, unless that commit named one of its positions.
Tasks write the files as for Delta, with the ids of Iceberg's fields and with the partition's columns.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.fs as pafs
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestamptzType

from eyot_hub.errors import HubError
from eyot_hub.jobs.tables.catalog_errors import catalog_errors
from eyot_hub.jobs.tables.files import DataFile, filesystem
from eyot_hub.jobs.tables.iceberg_commit import POSITION, Commit, made_at
from eyot_hub.jobs.tables.iceberg_schema import arrow_schema, iceberg_schema, iceberg_type, with_field_ids
from eyot_hub.jobs.tables.kept_format import check_new_table
from eyot_hub.jobs.tables.table_format import Fenced, TableFile, TableSpec

log = logging.getLogger(__name__)

#: Of the snapshots of the last ten minutes all stay, of the last day one for each ten minutes, of earlier ones one an hour:
#: every commit writes them all.
EVERY_SNAPSHOT: Final = timedelta(minutes=10)
STEPS: Final = ((timedelta(days=1), timedelta(minutes=10)), (timedelta.max, timedelta(hours=1)))  # age, step
PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Manifest:
    """The files that a manifest adds to a table. It never changes."""

    def __init__(self, files: list[tuple[TableFile, IcebergFile]]) -> None:
        self.files = files


#: All manifests in use in this process, by path: jobs open the same tables.
_manifests: WeakValueDictionary[str, _Manifest] = WeakValueDictionary()


class _Column(NamedTuple):
    """A column, and how the metadata writes its values."""

    name: str
    kind: IcebergType

    def plain(self, value: Any) -> Any:
        """Return a value of the metadata as Python has it: days and microseconds become dates and times."""
        if isinstance(self.kind, DateType) and isinstance(value, int):
            return _EPOCH.date() + timedelta(days=value)
        if isinstance(self.kind, TimestamptzType) and isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value)
        return value


class IcebergLog:
    """The metadata of one Iceberg table."""

    def __init__(self, spec: TableSpec, catalog: Catalog, identifier: tuple[str, ...], *, placed: bool = False) -> None:
        """Open the table. `placed`: the catalog says where it is, not `spec`. Raises CatalogFailed, also without the table."""
        self._catalog = catalog
        self._identifier = identifier
        with catalog_errors(catalog):
            self._table: Table = catalog.load_table(identifier)
        if placed:
            spec = replace(spec, root=self._table.location().removeprefix("file://").rstrip("/"))
        self._spec = spec
        if not placed and self._table.location().rstrip("/") != location(spec):
            raise HubError(
                f"table {'.'.join(identifier)} of the catalog is at {self._table.location()}, not at {location(spec)}: "
                "give lake.path or lake.catalog another value"
            )
        self._manifests: dict[str, _Manifest] = {}  # of the version that `files` has listed, by path
        self._data: dict[str, IcebergFile] = {}  # of `_data_of`, by path
        self._data_of: int | None = None  # a snapshot's id

    @classmethod
    def created(
        cls, spec: TableSpec, catalog: Catalog, identifier: tuple[str, ...], *, placed: bool = False
    ) -> IcebergLog:
        """Open the table; create it when missing. Raises HubError where a table of another format is."""
        if not cls.exists(catalog, identifier):
            if not placed:
                check_new_table(spec, "iceberg")
            schema = iceberg_schema(spec.schema)
            by = [
                PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
                for number, name in enumerate(spec.partition_by)
            ]
            with catalog_errors(catalog):
                _create_namespace(catalog, identifier[:-1])
                try:
                    place = None if placed else location(spec)
                    catalog.create_table(identifier, schema, place, PartitionSpec(*by), properties=PROPERTIES)
                except TableAlreadyExistsError:
                    log.info("table %s was created by another job", ".".join(identifier))
        return cls(spec, catalog, identifier, placed=placed)

    @staticmethod
    def exists(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
        with catalog_errors(catalog):
            try:
                return catalog.table_exists(identifier)
            except NoSuchTableError:
                return False

    @property
    def spec(self) -> TableSpec:
        """The table's settings, with its place."""
        return self._spec

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._table.schema())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return _partition_names(self._table)

    @property
    def version(self) -> int:
        return int(getattr(self._table.metadata, "last_sequence_number", 0))  # format 1 has none

    @property
    def table_id(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def fails_for_good(self) -> bool:
        return str(self._catalog.properties.get("uri", "")).startswith("sqlite:")

    def stored(self, schema: pa.Schema) -> pa.Schema | None:
        return with_field_ids(schema, self._table.schema())

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        with catalog_errors(self._catalog), self._table.update_schema() as update:
            for column in columns:
                update.add_column(column.name, iceberg_type(column.type))
        self.refresh()

    def refresh(self) -> None:
        with catalog_errors(self._catalog):
            self._table.refresh()

    def position(self, name: str) -> int | None:
        text = self._table.metadata.properties.get(f"{POSITION}{name}")
        return None if text is None else int(text.partition("@")[0])

    def commit(
        self, added: Sequence[DataFile], positions: Mapping[str, int], removed: Sequence[TableFile], *, changes: bool
    ) -> None:
        if removed and self._data_of != _snapshot_id(self._table):
            self.files()
        gone = [self._data[file.path] for file in removed if file.path in self._data]
        if len(gone) < len(removed):
            raise Fenced(f"table {self._spec.root}: files were removed by another commit")
        commit = Commit(self._table, positions, rebase=not removed, operation=_operation(added, removed))
        for file in added:
            commit.append(self._iceberg_file(file))
        for one in gone:
            commit.remove(one)
        with catalog_errors(self._catalog):
            try:
                commit.run({"eyot.changes": str(changes).lower()})
            except (CommitFailedException, ValidationException) as error:
                raise Fenced(f"table {self._spec.root}: {error}") from error

    def files(self) -> list[TableFile]:
        snapshot = self._table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(self._table.io)
        self._manifests = {one.manifest_path: self._manifest(one) for one in manifests}
        entries = [entry for part in self._manifests.values() for entry in part.files]
        self._data, self._data_of = {file.path: data for file, data in entries}, _snapshot_id(self._table)
        return [file for file, _ in entries]

    def tidy(self) -> None:
        """Expire old snapshots between others."""
        self._expire(between_others(self._table.metadata.snapshots, _now()))

    def vacuum(self, hours: float) -> int:
        """Expire the snapshots that were replaced `hours` ago, and remove what none of the others needs.

        A file that no snapshot needs stays for `hours`: a job may be about to commit it.
        """
        before = _now() - timedelta(hours=max(0, int(hours)))
        self._expire(replaced(self._table.metadata.snapshots, before))
        self.refresh()
        needed = self._needed()
        files, root = filesystem(self._spec.place)
        removed = 0
        for info in files.get_file_info(pafs.FileSelector(root, recursive=True)):
            path = info.path.removeprefix(root).lstrip("/")
            if info.type == pafs.FileType.File and path not in needed and info.mtime < before:
                files.delete_file(info.path)
                removed += 1
        return removed

    # -- inside --------------------------------------------------------------------------------------------------------

    def _manifest(self, manifest: ManifestFile) -> _Manifest:
        """Return the files of a manifest, as they were written once."""
        path = manifest.manifest_path
        held = _manifests.get(path)
        if held is None:
            columns = {field.field_id: _Column(field.name, field.field_type) for field in self._table.schema().fields}
            by = [columns[field.source_id] for field in self._table.spec().fields]
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
            data = [entry.data_file for entry in entries if entry.data_file.content == DataFileContent.DATA]
            held = _manifests[path] = _Manifest([(self._table_file(file, columns, by), file) for file in data])
        return held

    def _table_file(self, data: IcebergFile, columns: Mapping[int, _Column], by: Sequence[_Column]) -> TableFile:
        return TableFile(
            uri=data.file_path.removeprefix("file://"),
            path=self._relative(data.file_path),
            size=data.file_size_in_bytes,
            rows=data.record_count,
            partition={one.name: one.plain(data.partition[number]) for number, one in enumerate(by)},
            least=_bounds(columns, data.lower_bounds),
            most=_bounds(columns, data.upper_bounds),
        )

    def _iceberg_file(self, file: DataFile) -> IcebergFile:
        schema, values = self._table.schema(), dict(file.partition)
        ids = {name: schema.find_field(name).field_id for name in file.least}
        partition = [_partition_value(schema, name, values[name]) for name in self.partition_by]
        made = IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location(self._spec)}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            value_counts={ids[name]: file.rows for name in ids},
            null_value_counts={ids[name]: file.nulls.get(name, 0) for name in ids},
            nan_value_counts={},
            lower_bounds={ids[name]: _bytes(schema, name, value) for name, value in file.least.items()},
            upper_bounds={ids[name]: _bytes(schema, name, value) for name, value in file.most.items()},
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        made.spec_id = self._table.metadata.default_spec_id
        return made

    def _expire(self, snapshots: Iterable[Snapshot]) -> None:
        """Remove snapshots from the metadata, but not the present one. Their files stay until a vacuum."""
        kept = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        ids = [one.snapshot_id for one in snapshots if one.snapshot_id not in kept]
        if ids:
            try:
                with catalog_errors(self._catalog):
                    self._expire_ids(ids)
            except Fenced as error:
                log.info("table %s: old snapshots stay until the next time: %s", self._spec.root, error)
                self.refresh()

    def _expire_ids(self, ids: list[int]) -> None:
        try:
            self._table.maintenance.expire_snapshots().by_ids(ids).commit()
        except (ForbiddenError, BadRequestError) as error:
            # Some catalogs let nobody else expire snapshots, others nobody while their clock is behind the last snapshot.
            log.info("table %s: old snapshots stay until the catalog expires them: %s", self._spec.root, error)
            self.refresh()

    def _needed(self) -> set[str]:
        """Return the paths of all files that the metadata refers to, relative to the table."""
        table = self._table
        names = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
        manifests: dict[str, ManifestFile] = {}
        for snapshot in table.metadata.snapshots:
            names.add(snapshot.manifest_list)
            manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
        for path, manifest in manifests.items():
            names.add(path)
            held = self._manifests.get(path)
            if held is not None:
                names |= {data.file_path for _, data in held.files}
            else:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                names |= {entry.data_file.file_path for entry in entries}
        return set(map(self._relative, names))

    def _relative(self, path: str) -> str:
        """Return a file's path relative to the table. A catalog may name local files with or without their scheme."""
        root, whole = f"{location(self._spec).removeprefix('file://')}/", path.removeprefix("file://")
        if not whole.startswith(root):
            raise HubError(f"table {self._spec.root}: its metadata names a file elsewhere, {path}")
        return whole.removeprefix(root).lstrip("/")


_namespaces = threading.Lock()


def _create_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    with _namespaces:
        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass


def location(spec: TableSpec) -> str:
    """Return the table's place as Iceberg writes it."""
    files = spec.place
    return f"file://{filesystem(files)[1].rstrip('/')}" if files.local else spec.root.rstrip("/")


def _operation(added: Sequence[DataFile], removed: Sequence[TableFile]) -> Operation:
    if not removed:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def between_others(snapshots: Sequence[Snapshot], now: datetime) -> list[Snapshot]:
    """Return the snapshots that need not stay, since a later one has the same step of time."""
    ages = {one.snapshot_id: now - made_at(one) for one in snapshots}
    slots = {one.snapshot_id: _slot(one, ages[one.snapshot_id]) for one in snapshots}
    last_in = {slots[one.snapshot_id]: one.snapshot_id for one in snapshots}
    return [
        one
        for one in snapshots
        # One of a time to come was made when the clock was ahead. Each commit would write it for years.
        if ages[one.snapshot_id] < -EVERY_SNAPSHOT
        or (ages[one.snapshot_id] > EVERY_SNAPSHOT and last_in[slots[one.snapshot_id]] != one.snapshot_id)
    ]


def _slot(snapshot: Snapshot, age: timedelta) -> tuple[timedelta, int]:
    step = next(step for limit, step in STEPS if age <= limit)
    return step, (made_at(snapshot) - _EPOCH) // step


def replaced(snapshots: Sequence[Snapshot], before: datetime) -> list[Snapshot]:
    """Return the snapshots after which another one was made `before` then.

    A table that rests for weeks has an old snapshot, which readers opened until the next commit all the same.
    """
    return [one for one, following in pairwise(snapshots) if made_at(following) < before]


def _snapshot_id(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _partition_names(table: Table) -> tuple[str, ...]:
    return tuple(table.schema().find_column_name(field.source_id) or "" for field in table.spec().fields)


def _partition_value(schema: Schema, name: str, text: str) -> Any:
    return _number(date.fromisoformat(text)) if str(schema.find_field(name).field_type) == "date" else text


def _number(value: Any) -> Any:
    """Return a date as days, a time as microseconds since 1970, and any other value as it is."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


def _bytes(schema: Schema, name: str, value: Any) -> bytes:
    return to_bytes(_primitive(schema.find_field(name).field_type), _number(value))


def _bounds(columns: Mapping[int, _Column], bounds: Mapping[int, bytes] | None) -> dict[str, Any]:
    known = ((columns[number], value) for number, value in (bounds or {}).items() if number in columns)
    return {one.name: one.plain(from_bytes(_primitive(one.kind), value)) for one, value in known}


def _primitive(kind: IcebergType) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise TypeError(f"there are no statistics of {kind}")
    return kind


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
