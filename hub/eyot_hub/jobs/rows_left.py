"""Which rows of silver and quarantine a rebuild keeps: those whose messages retention has removed from bronze."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.jobs.bronze import position_id
from eyot_hub.jobs.file_rows import row_groups
from eyot_hub.jobs.files import DataFile
from eyot_hub.jobs.retention import removed, removed_until
from eyot_hub.jobs.table import LakeTable
from eyot_hub.jobs.table_format import TableFile, partition_text


def rows_without_bronze(table: LakeTable, bronze: LakeTable, files: Iterable[TableFile]) -> list[DataFile]:
    """Write those rows of the table's `files` whose messages have left bronze to new files; nothing is committed."""
    if not removed(bronze):
        return []
    writer = table.spec.writer()
    try:
        for file in files:
            partition = tuple((name, partition_text(value) or "") for name, value in file.partition.items())
            inside = pa.schema([one for one in table.spec.schema if one.name not in file.partition])
            for rows in row_groups(table.spec.place, [file.path], inside):
                left = _have_left(rows, bronze)
                if left.any():
                    writer.write(rows.filter(pa.array(left)), partition)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _have_left(rows: pa.Table, bronze: LakeTable) -> npt.NDArray[np.bool_]:
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for stream in pc.unique(rows.column("stream")).to_pylist():
        own = pc.equal(rows.column("stream"), stream).to_numpy()
        for epoch in np.unique(created[own]).tolist():
            until = removed_until(bronze, position_id(stream, epoch))
            found |= own & (created == epoch) & (sequence <= until)
    return found
