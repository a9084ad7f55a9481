"""Joins a table's small files: which ones, and the file they become.

(delta-rs has this as well, but does not see that another job compacted or replaced the same files meanwhile; then both results
would stand.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pyarrow as pa

from eyot_hub.jobs.file_rows import row_groups
from eyot_hub.jobs.files import DataFile, FileWriter, Place

SMALL_BYTES: Final = 32 * 1024 * 1024  # files below are joined
JOINED_BYTES: Final = 128 * 1024 * 1024  # into files of about this


@dataclass(frozen=True)
class TableFile:
    """A file of the table: where it is, its partition, and what its statistics say."""

    uri: str
    path: str  # relative to the table
    size: int
    rows: int
    partition: Mapping[str, Any]
    least: Mapping[str, Any]
    most: Mapping[str, Any]


def small_files(files: Iterable[TableFile]) -> list[list[TableFile]]:
    """Groups of two and more small files of one partition, each group a file to be."""
    partitions: dict[tuple[Any, ...], list[TableFile]] = defaultdict(list)
    for file in files:
        if file.size < SMALL_BYTES:
            partitions[tuple(file.partition.values())].append(file)
    groups = []
    for held in partitions.values():
        group: list[TableFile] = []
        for file in held:
            group.append(file)
            if sum(one.size for one in group) >= JOINED_BYTES:
                groups.append(group)
                group = []
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def joined(place: Place, schema: pa.Schema, writer: FileWriter, files: Sequence[TableFile]) -> list[DataFile]:
    """The rows of the files, which are of one partition, in a file of their own."""
    values = files[0].partition
    partition = tuple((name, partition_text(values[name]) or "") for name in schema.names if name in values)
    rest = pa.schema([field for field in schema if field.name not in values])
    try:
        for rows in row_groups(place, [file.path for file in files], rest):
            writer.write(rows, partition)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def partition_text(value: Any) -> str | None:
    """A partition's value as Delta writes it."""
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)
