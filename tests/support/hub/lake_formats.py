"""The formats of a lake: tests that hold for each run once with each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from eyot_hub.jobs.config.config import Config

FORMATS = ("delta", "iceberg")
#: Names the format of the lakes of `jobs_config`, in this process and in those that a test starts.
VARIABLE = "EYOT_TESTS_LAKE_FORMAT"


def lake_format() -> str:
    return os.environ.get(VARIABLE, FORMATS[0])


def delete_table(config: Config, name: str) -> None:
    """Delete a table as an operator does: its files, and with Iceberg its entry in the catalog."""
    if config.lake.format == "iceberg":
        from eyot_hub.jobs.lake.iceberg_catalog import catalog_of
        from eyot_hub.jobs.lake.lake import identifier

        catalog_of(config.lake).drop_table(identifier(config.lake, name))
    shutil.rmtree(config.folder(name))


def file_uris(lake: Path, name: str) -> list[str]:
    """The files of a table's present version, as a plain reader of the format finds them; none where there is no table yet."""
    if DeltaTable.is_deltatable(str(lake / name)):
        return [str(uri) for uri in DeltaTable(str(lake / name)).file_uris()]
    if not (lake / "catalog.db").exists():
        return []
    catalog = load_catalog("eyot", type="sql", uri=f"sqlite:///{lake}/catalog.db")
    try:
        table = catalog.load_table(f"eyot.{name.replace('/', '_')}")
    except NoSuchTableError:
        return []
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
