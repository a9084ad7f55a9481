"""A table's versions in Delta Lake, by delta-rs.

Positions are Delta's own transactions (`txn` actions): one commit holds new files, removed files and new positions, or
none of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from eyot_hub.causes import cause
from eyot_hub.errors import HubError
from eyot_hub.jobs.tables.files import DataFile, filesystem, sync
from eyot_hub.jobs.tables.kept_format import check_new_table
from eyot_hub.jobs.tables.table_format import Fenced, TableFile, TableSpec, partition_text

# For commits that remove files. delta-rs does not detect that an intervening commit removed the same files, and both
# replacements would stand. Such a commit is refused after any intervening commit.
NO_RETRY: Final = 0
LOG_ENTRIES_MAX: Final = 100  # beyond, positions are asked for again
#: A commit and a refresh cost delta-rs time for each commit since the last checkpoint of the log.
CHECKPOINT_INTERVAL: Final = 25


class _Txn(msgspec.Struct):
    appId: str  # Delta's name
    version: int


class _Action(msgspec.Struct):
    """A line of Delta's log."""

    txn: _Txn | None = None


class DeltaLog:
    """The log of one Delta table."""

    def __init__(self, spec: TableSpec) -> None:
        """Open the table. Raises TableNotFoundError, HubError for a damaged log."""
        self._spec = spec
        self._local = spec.place.local
        try:
            self._delta = DeltaTable(spec.root, storage_options=_options(spec.storage))
        except TableNotFoundError:
            raise
        except DeltaError as error:  # of the log's content, which does not say whose
            raise HubError(f"table {spec.root}: {cause(error)}") from error
        self._positions: dict[str, int | None] = {}
        self._positions_of = self.version
        self._files: dict[str, TableFile] = {}  # by the path in the log: a file and its statistics never change

    @classmethod
    def created(cls, spec: TableSpec) -> DeltaLog:
        """Open the table; create it when missing. Raises HubError where a table of another format is."""
        try:
            return cls(spec)
        except TableNotFoundError:
            check_new_table(spec, "delta")
            if spec.place.local:
                os.makedirs(spec.root, exist_ok=True)
            DeltaTable.create(
                spec.root,
                schema=Schema.from_arrow(spec.schema),
                partition_by=list(spec.partition_by),
                mode="ignore",
                configuration={"delta.checkpointInterval": str(CHECKPOINT_INTERVAL)},
                storage_options=_options(spec.storage),
            )
            return cls(spec)

    @staticmethod
    def exists(root: str, storage: Mapping[str, str]) -> bool:
        return bool(DeltaTable.is_deltatable(root, storage_options=dict(storage) or None))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._delta.metadata().partition_columns)

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def table_id(self) -> str:
        return str(self._delta.metadata().id)

    @property
    def fails_for_good(self) -> bool:
        return self._local

    def stored(self, schema: pa.Schema) -> pa.Schema | None:
        return None

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        self._delta.alter.add_columns(Schema.from_arrow(pa.schema(columns)).fields)
        self.refresh()

    def refresh(self) -> None:
        if not self._is_newest():
            self._delta.update_incremental()
        self._update_positions()

    def _update_positions(self) -> None:
        """Bring the positions to the known version."""
        if self.version != self._positions_of:
            newer = self._committed_since(self._positions_of)
            self._positions = {} if newer is None else {**self._positions, **newer}
            self._positions_of = self.version

    def _is_newest(self) -> bool:
        """Return whether a local log ends with the known version: two looks at the folder instead of its listing."""
        if not self._local:
            return False
        known, following = (
            os.path.join(self._spec.root, "_delta_log", f"{self.version + one:020}.json") for one in (0, 1)
        )
        return os.path.exists(known) and not os.path.exists(following)

    def _committed_since(self, version: int) -> dict[str, int] | None:
        """Return the positions of the commits after `version`, read from the log; None: they are too many, or gone."""
        if not 0 < self.version - version <= LOG_ENTRIES_MAX:
            return None
        files, root = filesystem(self._spec.place)
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

    def position(self, name: str) -> int | None:
        # delta-rs needs milliseconds for each: thousands of streams are read once, and then the commits of other writers.
        if name not in self._positions:
            found = self._delta.transaction_version(name)
            self._positions[name] = None if found is None else int(found)
        return self._positions[name]

    def commit(
        self, added: Sequence[DataFile], positions: Mapping[str, int], removed: Sequence[TableFile], *, changes: bool
    ) -> None:
        order = list(self._spec.partition_by)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, dict(file.partition), file.written_ms, changes, statistics(file))
            for file in added
        ]
        now_ms = int(datetime.now().timestamp() * 1000)
        actions += [
            RemoveAction(
                file.path, changes, now_ms, file.size, {name: partition_text(file.partition[name]) for name in order}
            )
            for file in removed
        ]
        properties = CommitProperties(
            app_transactions=[Transaction(name, at) for name, at in sorted(positions.items())],
            max_commit_retries=NO_RETRY if removed else None,
        )
        # Old entries leave by the clock, which only `tidy` may believe. To look for them is a listing of the whole log, too.
        hooks = PostCommitHookProperties(cleanup_expired_logs=False)
        try:
            self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                order,
                commit_properties=properties,
                post_commithook_properties=hooks,
            )
        except CommitFailedError as error:
            raise Fenced(f"table {self._spec.root}: {error}") from error
        before = self._positions_of
        self._delta.update_incremental()
        if self.version == before + 1:  # no other commit came in between
            self._positions_of = self.version
            self._positions |= positions
        self._update_positions()
        if self._local:
            log = os.path.join(self._spec.root, "_delta_log")
            sync(os.path.join(log, f"{self.version:020}.json"))
            sync(log)

    def files(self) -> list[TableFile]:
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        paths = actions.column("path").to_pylist()
        unknown = [number for number, path in enumerate(paths) if path not in self._files]
        fresh = {action["path"]: self._file(action) for action in actions.take(unknown).to_pylist()} if unknown else {}
        self._files = {path: self._files.get(path) or fresh[path] for path in paths}
        return list(self._files.values())

    def _file(self, action: Mapping[str, Any]) -> TableFile:
        path = unquote(action["path"])
        return TableFile(
            uri=f"{self._spec.root.rstrip('/')}/{path}",
            path=path,
            size=action["size_bytes"],
            rows=action["num_records"],
            partition=_prefixed(action, "partition."),
            least=_prefixed(action, "min."),
            most=_prefixed(action, "max."),
        )

    def tidy(self) -> None:
        """Remove entries of the log that are summed up by a checkpoint, and older than Delta's thirty days."""
        self._delta.cleanup_metadata()

    def vacuum(self, hours: float) -> int:
        removed = self._delta.vacuum(
            retention_hours=max(0, int(hours)), dry_run=False, enforce_retention_duration=False, full=True
        )
        self.refresh()
        return len(removed)


def statistics(file: DataFile) -> str:
    """Return a file's statistics as Delta's JSON."""
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {name: _value(value, up=False) for name, value in file.least.items()},
            "maxValues": {name: _value(value, up=True) for name, value in file.most.items()},
            "nullCount": dict(file.nulls),
        }
    )


def _options(storage: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    return dict(storage) or None


def _prefixed(action: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in action.items() if name.startswith(prefix)}


def _value(value: Any, *, up: bool) -> Any:
    """Round a time to Delta's milliseconds: down in a minimum, up in a maximum."""
    if not isinstance(value, datetime):
        return partition_text(value) if not isinstance(value, int) else value
    whole_ms = value.microsecond // 1000 * 1000
    rounded = value.replace(microsecond=whole_ms, tzinfo=UTC)
    if up and value.microsecond != whole_ms:
        rounded = datetime.fromtimestamp(rounded.timestamp() + 0.001, UTC)
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
