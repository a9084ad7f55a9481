"""What summaries add up to, stored for the next process: `fleet_files_sum` and `fleet_statuses_sum`.

A sum is of certain files, and of one version of the table of summaries. Whoever writes to that table makes the stored sum
void; then the summaries are added up again. Such a table is only a shortcut, too: it may be deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import pyarrow as pa

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.lake.lake import open_table
from eyot_hub.jobs.removals.erasures import named
from eyot_hub.jobs.tables.table import Fenced

log = logging.getLogger(__name__)
T = TypeVar("T")
SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),  # of a file that the sum counts; null in rows of devices
        ("device", pa.string()),
        ("sum", pa.binary()),  # of a device; without device and path: `_Of`
    ]
)


@dataclass(frozen=True)
class Sum(Generic[T]):
    """What the summaries of some files add up to, as a version of the table had them."""

    total: T
    paths: frozenset[str]
    table_id: str
    version: int


class _Of(msgspec.Struct, frozen=True):
    """Which summaries a stored sum is of."""

    table_id: str
    version: int
    definition: str


class StoredSum:
    """The sum of one table of summaries."""

    def __init__(self, config: Config, summaries: str, definition: str) -> None:
        """`summaries`: the table's name. `definition`: what decides what a summary is."""
        self._definition = definition
        self._table = open_table(config.lake, f"{summaries}_sum", SCHEMA)
        self._erasure = named(self._table)

    def begin(self) -> None:
        """Note the last erasure, before summaries are added up: what is stored must not name its device."""
        self._table.refresh()
        self._erasure = named(self._table)

    def load(self, unpacked: Callable[[Iterable[tuple[str, bytes]]], T]) -> Sum[T] | None:
        """Return the sum; None: there is none, or it is another version's."""
        self.begin()
        rows: list[dict[str, Any]] = self._table.to_pylist()
        try:
            of = next((msgspec.msgpack.decode(row["sum"], type=_Of) for row in rows if _is_of(row)), None)
            if of is None or of.definition != self._definition:
                return None
            total = unpacked((row["device"], row["sum"]) for row in rows if row["device"] is not None)
        except msgspec.DecodeError as error:
            log.info("the stored sum is added up again: %s", error)
            return None
        return Sum(total, frozenset(row["path"] for row in rows if row["path"] is not None), of.table_id, of.version)

    def store(self, found: Sum[T], packed: Callable[[T], Iterable[tuple[str, bytes]]]) -> None:
        """Store a sum, unless a device was erased since `begin` or `load`, which it may name."""
        of = _Of(found.table_id, found.version, self._definition)
        rows: list[dict[str, Any]] = [{"sum": msgspec.msgpack.encode(of)}]
        rows += [{"path": path} for path in sorted(found.paths)]
        rows += [{"device": device, "sum": one} for device, one in packed(found.total)]
        try:
            self._table.replace(rows, self._erasure)
        except Fenced as fenced:
            log.info("the sum is not stored this time: %s", fenced)


def _is_of(row: dict[str, Any]) -> bool:
    return row["path"] is None and row["device"] is None
