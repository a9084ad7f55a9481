"""Joins a table's small files: selects the files and writes the result.

delta-rs can compact, too, but does not detect that another job compacted or replaced the same files meanwhile: both
results would then stand. For Iceberg there is no such tool without Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import DataFile, FileWriter, Place
from eyot_hub.jobs.tables.table_format import TableFile, partition_text

SMALL_BYTES: Final = 32 * 1024 * 1024  # smaller files are joined
JOINED_BYTES: Final = 128 * 1024 * 1024  # approximate size of the result


def small_files(files: Iterable[TableFile]) -> list[list[TableFile]]:
    """Return groups of two and more small files of one partition; each group becomes one file."""
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
    """Write the rows of the files, which share a partition, into new files."""
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
