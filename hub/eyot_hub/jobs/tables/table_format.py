"""What a table's format provides: versions of a list of files, with the positions of the table's input in the same commits.

`delta_log.py` and `iceberg_log.py` implement it. Everything above (`table.py` and the jobs) knows no format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Protocol

import pyarrow as pa

from eyot_hub.errors import HubError
from eyot_hub.jobs.tables.files import DataFile, FileWriter, Place

DEFAULT_COMPRESSION: Final = "zstd"


class Fenced(HubError):
    """Another writer committed since the positions were read; nothing of this commit is in the table."""


@dataclass(frozen=True)
class TableFile:
    """A file of the table: path, partition, and statistics."""

    uri: str
    path: str  # relative to the table
    size: int
    rows: int
    partition: Mapping[str, Any]
    least: Mapping[str, Any]
    most: Mapping[str, Any]


@dataclass(frozen=True)
class TableSpec:
    """Everything that a task needs to write for the table."""

    root: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    compression: str = DEFAULT_COMPRESSION
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # delta-rs's options for the storage
    #: The columns of the files, where these are more than the table's without its partition columns.
    stored: pa.Schema | None = field(default=None, repr=False)

    @property
    def place(self) -> Place:
        return Place(self.root, self.storage)

    def writer(self) -> FileWriter:
        return FileWriter(self.place, self.schema, self.partition_by, self.compression, self.stored)


class TableLog(Protocol):
    """One table's versions; `refresh` sees other writers' commits."""

    @property
    def schema(self) -> pa.Schema:
        """All columns of the present version."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""

    @property
    def version(self) -> int:
        """The number of the present version; each commit adds one."""

    @property
    def table_id(self) -> str:
        """The table's id, which distinguishes it from another table at the same place, before or after."""

    @property
    def fails_for_good(self) -> bool:
        """Whether a commit that raised an error and is not in the newest version cannot be made later, by a server that was slow."""

    def stored(self, schema: pa.Schema) -> pa.Schema | None:
        """Return the columns of files that hold `schema`, columns of the table; None: those that are no partition columns."""

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns: null in existing rows."""

    def refresh(self) -> None:
        """Load the newest version."""

    def position(self, name: str) -> int | None:
        """Return the last position committed under this name, as of the last refresh or commit."""

    def commit(
        self, added: Sequence[DataFile], positions: Mapping[str, int], removed: Sequence[TableFile], *, changes: bool
    ) -> None:
        """Commit files and positions together; `changes` False: the rows stay the same.

        Raises Fenced when another commit came in between: one of these positions, or any commit if files are removed.
        """

    def files(self) -> list[TableFile]:
        """Return the files of the present version."""

    def tidy(self) -> None:
        """Remove what is old, by the clock, from what every commit has to write or a reader to list."""

    def vacuum(self, hours: float) -> int:
        """Remove files that no version of the last hours needs, orphans included; return how many."""


def partition_text(value: Any) -> str | None:
    """Return a partition's value as a text; None: null."""
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)
