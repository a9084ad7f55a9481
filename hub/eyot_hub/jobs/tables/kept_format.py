"""A table keeps the format in which it was made: the vacuum of each format would remove the other's files."""

from __future__ import annotations

from typing import Final

import pyarrow.fs as pafs

from eyot_hub.errors import HubError
from eyot_hub.jobs.tables.files import filesystem
from eyot_hub.jobs.tables.table_format import TableSpec

#: The folder in a table by which its format is known.
MARKS: Final = {"delta": "_delta_log", "iceberg": "metadata"}


def check_new_table(spec: TableSpec, wanted: str) -> None:
    """Raise HubError where the place of a new table of format `wanted` holds a table of another format."""
    files, prefix = filesystem(spec.place)
    for name, mark in MARKS.items():
        if name != wanted and files.get_file_info(pafs.FileSelector(f"{prefix}{mark}", allow_not_found=True)):
            raise HubError(f"lake.format: {spec.root} holds a table of format {name}; name another lake.path")
