"""One commit to an Iceberg table: a snapshot with files and positions, made once, or again on a newer version.

pyiceberg makes an append again after any other commit. Here that is so only where the other commits named none of its
positions.

Readers refuse a table whose snapshots step back in time by more than a minute. After the clock was set back, a snapshot
therefore follows the last one by a millisecond, and says in its summary when it was made.

The parts of pyiceberg that this needs are not part of its documented interface: its version is bounded in
pyproject.toml.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, SnapshotLogEntry
from pyiceberg.table.update import AddSnapshotUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import IcebergBaseModel

POSITION: Final = "eyot.position."
#: In a snapshot's summary: the time of the writer's clock, in ms since 1970, where the snapshot bears a later one.
MADE_AT: Final = "eyot.made-at"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: More manifests than these are joined, the smallest ones, until half as many are left: every reader of the table opens each.
MANIFESTS_MAX: Final = 16


def _itself(held: IcebergBaseModel, _memo: object) -> IcebergBaseModel:
    return held


# A commit copies the metadata deeply four times. These parts never change, and are as many as the snapshots that are kept.
for _part in (Snapshot, SnapshotLogEntry, MetadataLogEntry):
    _part.__deepcopy__ = _itself  # type: ignore[method-assign,assignment]


class Commit:
    """Call `append` and `remove`, then `run`."""

    def __init__(self, table: Table, positions: Mapping[str, int], *, rebase: bool, operation: Operation) -> None:
        """`rebase`: make the commit again after others that named none of these positions."""
        self._positions = positions
        self._transaction = _Transaction(table, positions, rebase=rebase)
        self._snapshot = _Snapshot(operation, self._transaction, table.io)

    def append(self, file: DataFile) -> None:
        self._snapshot.append_data_file(file)

    def remove(self, file: DataFile) -> None:
        self._snapshot.delete_data_file(file)

    def run(self, summary: dict[str, str]) -> None:
        """Commit. Raises CommitFailedException or ValidationException; then nothing of it is in the table."""
        self._snapshot.snapshot_properties = summary
        self._snapshot.commit()
        mark = self._snapshot.snapshot_id
        if self._positions:
            self._transaction.set_properties(
                {f"{POSITION}{name}": f"{at}@{mark}" for name, at in self._positions.items()}
            )
        self._transaction.commit_transaction()


class _Transaction(Transaction):
    """A transaction that is repeated only where no other writer named one of its positions."""

    _known: tuple[TableMetadata, Any, TableMetadata] | None = None  # base, updates, both together

    def __init__(self, table: Table, positions: Mapping[str, int], *, rebase: bool) -> None:
        super().__init__(table)
        self._rebase = rebase
        self._named = [f"{POSITION}{name}" for name in positions]
        self._seen = self._texts()

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far. pyiceberg would copy it with all snapshots at each of fifteen looks."""
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = (base, updates, super().table_metadata if updates else base)
        return self._known[2]

    def _texts(self) -> list[str | None]:
        held = self._table.metadata.properties
        return [held.get(name) for name in self._named]

    def _rebuild_snapshot_updates(self) -> None:
        """Prepare the next try, after a refresh."""
        if not self._rebase:
            raise CommitFailedException("another commit came in between")
        if self._texts() != self._seen:
            raise CommitFailedException("another commit named the same position")
        super()._rebuild_snapshot_updates()


class _Snapshot(_OverwriteFiles):
    """A snapshot that adds and removes files, and joins manifests when they are many."""

    def _commit(self) -> UpdatesAndRequirements:
        # Not the metadata with the transaction's updates: these say another time.
        earliest_ms = self._transaction._table.metadata.last_updated_ms + 1
        now_ms = time.time_ns() // 1_000_000
        if now_ms >= earliest_ms:
            return super()._commit()
        self.snapshot_properties = {**self.snapshot_properties, MADE_AT: str(now_ms)}
        updates, requirements = super()._commit()
        later = {"timestamp_ms": earliest_ms}
        return tuple(
            update.model_copy(update={"snapshot": update.snapshot.model_copy(update=later)})
            if isinstance(update, AddSnapshotUpdate)
            else update
            for update in updates
        ), requirements

    def _validate_concurrency(self) -> None:
        """Nothing more: what may follow another commit is decided in `_Transaction`."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return super()._deleted_entries() if self._deleted_data_files else []

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return the manifests that stay. Where no file is removed, pyiceberg would look for it in each."""
        if self._deleted_data_files:
            return super()._existing_manifests()
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        return [] if snapshot is None else snapshot.manifests(self._io)

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        held = [
            one
            for one in manifests
            if one.added_snapshot_id == self._snapshot_id or one.has_added_files() or one.has_existing_files()
        ]
        if len(held) <= MANIFESTS_MAX:
            return held
        data = sorted((one for one in held if one.content == ManifestContent.DATA), key=_entries)
        small, large = data[: -MANIFESTS_MAX // 2], data[-MANIFESTS_MAX // 2 :]
        manager = _ManifestMergeManager(TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT, 2, True, self)
        return [*manager.merge_manifests(small), *large, *(one for one in held if one.content != ManifestContent.DATA)]


def made_at(snapshot: Snapshot) -> datetime:
    """Return when a snapshot was made, by its writer's clock."""
    told = None if snapshot.summary is None else snapshot.summary.get(MADE_AT)
    return _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms if told is None else int(told))


def _entries(manifest: ManifestFile) -> int:
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    return sum(count or 0 for count in counts)
