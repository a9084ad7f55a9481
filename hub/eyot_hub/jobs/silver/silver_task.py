"""A task of silver: drops rows (of `silver_input.py`) that exist already, and writes the rest, sorted.

A repeat has the hash and the origin sequence of the first occurrence. Only the few rows whose 64-bit hash occurs twice
need a full comparison. Of the existing files, only those with overlapping origin sequences are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.jobs.removals.device_days import EVERY_DAY, DeviceDays
from eyot_hub.jobs.silver.silver_input import Block, Written, unpacked
from eyot_hub.jobs.silver.window_keys import NONE, Ints, found_in
from eyot_hub.jobs.tables.file_rows import row_groups
from eyot_hub.jobs.tables.files import DataFile, FileWriter, by_partition
from eyot_hub.jobs.tables.table_format import TableSpec

KEY: Final = ("origin_domain", "origin_stream", "origin_sequence", "content_hash")
_KEY_SCHEMA: Final = pa.schema(
    [(KEY[0], pa.string()), (KEY[1], pa.string()), (KEY[2], pa.int64()), (KEY[3], pa.int64())]
)


@dataclass(frozen=True)
class KnownFile:
    """A file of silver, and its origin sequences."""

    path: str
    day: str
    first: int
    last: int


@dataclass(frozen=True)
class SilverTask:
    """A task's settings. `known`: silver's files; `any_day`: a repeat may have another event time than the first occurrence.

    `first_day`: rows of earlier partitions are left out, because retention has removed these; "": none are. `devices`: the
    same for some devices.
    """

    silver: TableSpec
    known: tuple[KnownFile, ...]
    any_day: bool
    first_day: str = ""
    devices: DeviceDays = EVERY_DAY

    def __call__(self, blocks: Iterable[Block]) -> Written:
        """Write the rows of this task's blocks. Files of the quarantine among the blocks are handed on."""
        writer = self.silver.writer()
        try:
            tables: list[pa.Table] = []
            bad: list[DataFile] = []
            bad_expired = 0
            for _, block in blocks:
                if isinstance(block, Written):
                    bad += block.bad
                    bad_expired += block.bad_expired
                else:
                    tables.append(unpacked(block))
            read, expired = self._write(tables, writer)
            return Written(read, writer.finish(), bad, expired, bad_expired)
        except BaseException:
            writer.abandon()
            raise

    def _write(self, tables: list[pa.Table], writer: FileWriter) -> tuple[int, int]:
        """Return how many rows were read, and how many of them belong to days that have left."""
        if not tables:
            return 0, 0
        rows = pa.concat_tables(tables).combine_chunks()
        tables.clear()
        read, expired = int(rows.num_rows), 0
        if self.any_day and read:
            rows = self._fresh(rows, "")
        for partition, part in by_partition(rows, self.silver.partition_by):
            if partition[0][1] < self.first_day:
                expired += part.num_rows
                continue
            old = self.devices.old(part.column("device"), partition[0][1])
            if old.any():
                expired += int(old.sum())
                part = part.filter(pa.array(~old))
                if not part.num_rows:
                    continue
            fresh = part if self.any_day else self._fresh(part, partition[0][1])
            if fresh.num_rows:
                writer.write(self._plain(_sorted(fresh)), partition)
        return read, expired

    def _fresh(self, rows: pa.Table, day: str) -> pa.Table:
        """Return the rows that repeat neither an earlier row nor silver."""
        hashes = rows.column("content_hash").to_numpy()
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(twice) else ordered
        suspects = np.unique(np.concatenate([twice, *self._repeated(rows, distinct, day)]))
        if not len(suspects):
            return rows
        keep = np.ones(rows.num_rows, np.bool_)
        seen = self._keys_of(rows, suspects, day)
        for index in np.flatnonzero(found_in(hashes, suspects) != NONE).tolist():
            key = tuple(rows.column(name)[index].as_py() for name in KEY)
            keep[index] = key not in seen
            seen.add(key)
        return rows.filter(pa.array(keep))

    def _plain(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the table's types, in the table's order of columns."""
        schema = pa.schema([field for field in self.silver.schema if field.name in rows.column_names])
        return rows.select(schema.names).cast(schema)

    def _overlapping(self, rows: pa.Table, day: str) -> list[str]:
        bounds = pc.min_max(rows.column("origin_sequence")).as_py()
        return [
            file.path
            for file in self.known
            if (self.any_day or file.day == day) and file.first <= bounds["max"] and file.last >= bounds["min"]
        ]

    def _repeated(self, rows: pa.Table, hashes: Ints, day: str) -> Iterator[Ints]:
        """Yield the hashes of the rows that silver's files contain as well."""
        schema = pa.schema([_KEY_SCHEMA.field("content_hash")])
        for group in row_groups(self.silver.place, self._overlapping(rows, day), schema):
            held = group.column("content_hash").to_numpy()
            yield held[found_in(held, hashes) != NONE]

    def _keys_of(self, rows: pa.Table, suspects: Ints, day: str) -> set[tuple[Any, ...]]:
        """Return the keys in silver with one of these hashes."""
        found: set[tuple[Any, ...]] = set()
        for group in row_groups(self.silver.place, self._overlapping(rows, day), _KEY_SCHEMA):
            hit: npt.NDArray[np.bool_] = found_in(group.column("content_hash").to_numpy(), suspects) != NONE
            if hit.any():
                found.update(zip(*[group.column(name).filter(pa.array(hit)).to_pylist() for name in KEY], strict=True))
        return found


def _sorted(rows: pa.Table) -> pa.Table:
    """Sort by device and event time, so that one device's rows lie together."""
    devices = rows.column("device").combine_chunks().dictionary_encode()
    devices = devices.combine_chunks() if isinstance(devices, pa.ChunkedArray) else devices
    rank = np.empty(len(devices.dictionary), np.int64)
    rank[pc.array_sort_indices(devices.dictionary).to_numpy()] = np.arange(len(rank))
    order = np.lexsort((rows.column("event_time").cast(pa.int64()).to_numpy(), rank[devices.indices.to_numpy()]))
    return rows.take(pa.array(order))
