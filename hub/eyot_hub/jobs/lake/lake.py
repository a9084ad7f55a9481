"""Opens the tables of a lake in the format that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from eyot_hub.errors import HubError
from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.tables.delta_log import DeltaLog
from eyot_hub.jobs.tables.table import LakeTable, TableSpec

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from eyot_hub.jobs.tables.iceberg_log import IcebergLog


def open_table(lake: Lake, name: str, schema: pa.Schema, partition_by: tuple[str, ...] = ()) -> LakeTable:
    """Return the table of this name (`silver/readings`); it is created, or gets the columns that it lacks.

    Raises HubError where it was made with columns of other types or with another partitioning.
    """
    spec = TableSpec(root_of(lake, name), schema, partition_by, lake.compression, _storage(lake))
    if lake.format == "delta":
        return LakeTable(spec, DeltaLog.created(spec))
    made = _iceberg_log().created(spec, _catalog(lake), identifier(lake, name), placed=_catalog_assigns(lake))
    return LakeTable(made.spec, made)


def table_exists(lake: Lake, name: str) -> bool:
    """Return whether a job has made the table of this name."""
    if lake.format == "delta":
        return DeltaLog.exists(root_of(lake, name), lake.storage)
    return _iceberg_log().exists(_catalog(lake), identifier(lake, name))


def existing_table(lake: Lake, name: str) -> LakeTable | None:
    """Return the table of this name with the columns that it has; None: there is none."""
    if not table_exists(lake, name):
        return None
    spec = TableSpec(root_of(lake, name), pa.schema([]), (), lake.compression, _storage(lake))
    if lake.format == "delta":
        return LakeTable.existing(spec, DeltaLog(spec))
    found = _iceberg_log()(spec, _catalog(lake), identifier(lake, name), placed=_catalog_assigns(lake))
    return LakeTable.existing(found.spec, found)


class ExistingTables:
    """The tables of a lake that jobs have made, each opened once: to open one reads its log since the last checkpoint.

    For one round of a job. A later round may meet other tables of the same names.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._opened: dict[str, LakeTable] = {}

    def get(self, name: str) -> LakeTable | None:
        """Return the table of this name (`silver/readings`) as it is now; None: there is none."""
        if name in self._opened:
            self._opened[name].refresh()
            return self._opened[name]
        table = existing_table(self._lake, name)
        if table is not None:
            self._opened[name] = table
        return table


def root_of(lake: Lake, name: str) -> str:
    """Return where the files of a table are."""
    return f"{lake.path.rstrip('/')}/{name}"


def identifier(lake: Lake, name: str) -> tuple[str, ...]:
    """Return a table's name in an Iceberg catalog: `silver/readings` is `silver_readings` of the namespace."""
    return *lake.catalog.namespace.split("."), name.replace("/", "_")


def check_format(lake: Lake) -> None:
    """Raise HubError without the packages that the lake's format needs."""
    if lake.format == "iceberg":
        _iceberg_log()


def _catalog_assigns(lake: Lake) -> bool:
    return lake.catalog.places == "catalog"


def _storage(lake: Lake) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(lake.storage.items()))


def _iceberg_log() -> type[IcebergLog]:
    """Import pyiceberg, which takes a second, and which a lake of Delta does not need. Raises HubError without it."""
    try:
        from eyot_hub.jobs.tables.iceberg_log import IcebergLog
    except ModuleNotFoundError as error:
        raise HubError(f"lake.format: iceberg needs {error.name}: install eyot[hub,iceberg]") from None
    return IcebergLog


def _catalog(lake: Lake) -> Catalog:
    from eyot_hub.jobs.lake.iceberg_catalog import catalog_of

    return catalog_of(lake)
