"""Which rows of silver and quarantine a rebuild keeps: those whose messages retention has removed from bronze.

Of the quarantine it also keeps, until silver has them, those rows that the present rules take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.jobs.bronze.bronze import position_id
from eyot_hub.jobs.removals.retention import removed, removed_until
from eyot_hub.jobs.silver.replays import sequences_by_stream
from eyot_hub.jobs.silver.window_keys import Ints
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import DataFile
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.jobs.tables.table_format import TableFile, partition_text

AnyFile = TableFile | DataFile
Mask = npt.NDArray[np.bool_]
_MESSAGE: Final = pa.schema([("stream", pa.string()), ("stream_created_ns", pa.int64()), ("sequence", pa.int64())])


def rows_without_bronze(table: LakeTable, bronze: LakeTable, files: Iterable[TableFile]) -> list[DataFile]:
    """Write those rows of the table's `files` whose messages have left bronze to new files; nothing is committed."""
    if not removed(bronze):
        return []
    return _written(table, files, lambda rows: _have_left(rows, bronze))


def rows_beside(table: LakeTable, files: Iterable[AnyFile], others: Iterable[AnyFile]) -> list[DataFile]:
    """Write those rows of the table's `files` whose messages `others` lack to new files; nothing is committed."""
    known: dict[tuple[str, int], list[Ints]] = defaultdict(list)
    for rows in row_groups(table.spec.place, [file.path for file in others], _MESSAGE):
        for place, sequences in sequences_by_stream(rows).items():
            known[place].append(sequences)
    held = {place: np.concatenate(parts) for place, parts in known.items()}
    return _written(table, files, lambda rows: ~_are_in(rows, held))


def _are_in(rows: pa.Table, held: dict[tuple[str, int], Ints]) -> Mask:
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    stream = rows.column("stream").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for (name, epoch), sequences in held.items():
        found |= (stream == name) & (created == epoch) & np.isin(sequence, sequences)
    return found


def _have_left(rows: pa.Table, bronze: LakeTable) -> Mask:
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for stream in pc.unique(rows.column("stream")).to_pylist():
        own = pc.equal(rows.column("stream"), stream).to_numpy()
        for epoch in np.unique(created[own]).tolist():
            until = removed_until(bronze, position_id(stream, epoch))
            found |= own & (created == epoch) & (sequence <= until)
    return found


def _written(table: LakeTable, files: Iterable[AnyFile], wanted: Callable[[pa.Table], Mask]) -> list[DataFile]:
    writer = table.spec.writer()
    try:
        for file in files:
            partition = tuple((name, partition_text(value) or "") for name, value in dict(file.partition).items())
            inside = pa.schema([one for one in table.spec.schema if one.name not in table.spec.partition_by])
            for rows in row_groups(table.spec.place, [file.path], inside):
                chosen = wanted(rows)
                if chosen.any():
                    writer.write(rows.filter(pa.array(chosen)), partition)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
