"""The table `fleet_files`: what each file of silver holds of each device, so that `fleet` reads only files that are new.

Files never change, so a summary stays valid as long as its file is in silver. Late rows, compaction, retention, erasure and
backfill replace files; the summaries of files that are gone do not count, and leave with the next rewrite of the
table. The table is only a shortcut: when it is deleted, the next run reads all of silver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eyot_hub import columns
from eyot_hub.grouping import grouped
from eyot_hub.jobs.config import Config
from eyot_hub.jobs.erasures import named
from eyot_hub.jobs.file_rows import codes, row_groups
from eyot_hub.jobs.files import Place
from eyot_hub.jobs.lake import open_table
from eyot_hub.jobs.silver import silver_table
from eyot_hub.jobs.table import Fenced, LakeTable
from eyot_hub.jobs.table_format import TableFile

log = logging.getLogger(__name__)

FLEET_FILES: Final = "fleet_files"
LATE_S: Final = 60.0
SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),  # of the silver file; unique among all tables
        ("device", pa.string()),
        ("readings", pa.int64()),
        ("first_event_us", pa.int64()),
        ("last_event_us", pa.int64()),
        ("last_stored_us", pa.int64()),
        ("delay_max_us", pa.int64()),
        ("late_readings", pa.int64()),
        ("delays", pa.binary()),  # how many readings have a delay of each class, `_CLASS` each
    ]
)
FILES_MAX: Final = 8  # of the table, before it is rewritten: every run reads all of them
_READ: Final = pa.schema([("device", pa.string()), ("event_time", columns.TIMESTAMP), ("stored_at", columns.TIMESTAMP)])
#: Classes of delays: each is 2 % wider than the one before. Class 0: none, or an event ahead of the hub's clock.
_CLASS: Final = np.dtype([("number", "<i4"), ("count", "<i8")])
_WIDTH: Final = float(np.log(1.02))
_NUMBERS_MAX: Final = 1 << 12  # of classes
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class FileSummaries:
    """The summaries of all silver tables of a configuration."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self.table = open_table(config.lake, FLEET_FILES, SCHEMA)
        self.files_read = 0  # of silver, by the last `found`

    def found(self) -> pa.Table:
        """Return the summaries of silver's present files; read and keep those that are missing."""
        self.table.refresh()
        self.files_read = 0
        held = pa.concat_tables([SCHEMA.empty_table(), *self._kept_rows()])
        present: set[str] = set()
        fresh: list[pa.Table] = []
        known = set(pc.unique(held.column("path")).to_pylist())
        for silver in self._config.silver:
            table = silver_table(self._config, silver)
            files = table.files()
            present |= {file.path for file in files}
            fresh += self._summarised(table, [file for file in files if file.path not in known])
        kept = held.filter(pc.is_in(held.column("path"), pa.array(sorted(present), pa.string())))
        self._keep(held, kept, fresh)
        return pa.concat_tables([kept, *fresh])

    def _kept_rows(self) -> Iterator[pa.Table]:
        return row_groups(self.table.spec.place, [file.path for file in self.table.files()], SCHEMA)

    def _summarised(self, table: LakeTable, files: Sequence[TableFile]) -> list[pa.Table]:
        """Read files of silver in tasks; return their summaries."""
        self.files_read += len(files)
        if not files:
            return []
        context, place = self._spark.sparkContext, table.spec.place
        context.setJobDescription(f"fleet: {len(files)} new files of {table.root}")
        groups = grouped([file.path for file in files], [file.rows for file in files], context.defaultParallelism)
        rows: list[dict[str, Any]] = (
            context.parallelize(groups, len(groups)).flatMap(lambda paths: summaries(place, paths)).collect()
        )
        return [pa.Table.from_pylist(rows, SCHEMA)]

    def _keep(self, held: pa.Table, kept: pa.Table, fresh: list[pa.Table]) -> None:
        """Store new summaries; rewrite the table when half of it does not count, or when its files are many."""
        files = self.table.files()
        rewrite = held.num_rows > 2 * kept.num_rows or len(files) >= FILES_MAX
        if not fresh and not rewrite:
            return
        writer = self.table.spec.writer()
        for part in [*([kept] if rewrite else []), *fresh]:
            if part.num_rows:
                writer.write(part, ())
        written = writer.finish()
        try:
            # An erasure that came in between has removed its device's rows, which these may name.
            self.table.commit(written, named(self.table), files if rewrite else ())
        except Fenced as fenced:  # the next run reads these files again
            log.info("summaries are not kept this time: %s", fenced)
            self.table.spec.writer().discard(written)


def summaries(place: Place, paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each device of each file, in a task."""
    for path in paths:
        rows = pa.concat_tables([_READ.empty_table(), *row_groups(place, [path], _READ)])
        devices = codes(rows.column("device").dictionary_encode())
        event, stored = (rows.column(name).cast(pa.int64()).to_numpy() for name in ("event_time", "stored_at"))
        device, delay = devices.indices.to_numpy().astype(np.int64), stored - event
        order = np.lexsort((delay, device))
        device, event, stored, delay = device[order], event[order], stored[order], delay[order]
        starts = np.flatnonzero(np.diff(device, prepend=-1))
        ends = np.append(starts[1:], len(device))
        names = devices.dictionary.to_pylist()
        for start, end in zip(starts.tolist(), ends[: len(starts)].tolist(), strict=True):
            numbers, counts = np.unique(classes(delay[start:end]), return_counts=True)
            packed = np.empty(len(numbers), _CLASS)
            packed["number"], packed["count"] = numbers, counts
            yield {
                "path": path,
                "device": names[device[start]],
                "readings": end - start,
                "first_event_us": int(event[start:end].min()),
                "last_event_us": int(event[start:end].max()),
                "last_stored_us": int(stored[start:end].max()),
                "delay_max_us": int(delay[end - 1]),
                "late_readings": int((delay[start:end] > LATE_S * 1e6).sum()),
                "delays": packed.tobytes(),
            }


def classes(delays_us: Ints) -> Ints:
    """Return the class of each delay."""
    positive = np.maximum(delays_us, 1)
    found: Ints = np.where(delays_us <= 0, 0, 1 + (np.log(positive) / _WIDTH).astype(np.int64))
    return found


def by_device(found: pa.Table, fractions: Sequence[float]) -> pa.Table:
    """Return one row for each device: the sums, and `delay_p<i>` in seconds for the i-th fraction, within 1 %."""
    devices = codes(found.column("device").dictionary_encode())
    sums = found.select(["device", *(name for name, _ in _SUMS)]).group_by("device").aggregate(_SUMS)
    packed = found.column("delays")
    entries = np.frombuffer(b"".join(packed.to_pylist()), _CLASS)
    lengths = pc.binary_length(packed).to_numpy() // _CLASS.itemsize
    device = np.repeat(devices.indices.to_numpy().astype(np.int64), lengths)
    delays = percentiles(device, entries["number"].astype(np.int64), entries["count"].astype(np.int64), fractions)
    made = {name: sums.column(f"{name}_{how}") for name, how in _SUMS} | {"device": sums.column("device")}
    at = pc.index_in(sums.column("device"), devices.dictionary).to_numpy()
    most = made["delay_max_us"].to_numpy() / 1e6
    for index, values in enumerate(delays):
        made[f"delay_p{index}"] = pa.array(np.minimum(values[at], np.maximum(most, 0.0)))
    return pa.table(made)


_SUMS: Final = [
    ("readings", "sum"),
    ("first_event_us", "min"),
    ("last_event_us", "max"),
    ("last_stored_us", "max"),
    ("delay_max_us", "max"),
    ("late_readings", "sum"),
]


def percentiles(device: Ints, number: Ints, count: Ints, fractions: Sequence[float]) -> list[Floats]:
    """Return for each fraction the delay of each device (numbered from 0), in seconds."""
    keys, where = np.unique(device * _NUMBERS_MAX + number, return_inverse=True)
    counts = np.bincount(where, weights=count, minlength=len(keys))
    owner = keys // _NUMBERS_MAX
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    running = np.cumsum(counts)
    before = np.concatenate([[0.0], running])[starts]
    total = np.add.reduceat(counts, starts) if len(starts) else counts
    found = []
    for fraction in fractions:
        at = np.searchsorted(running, before + np.maximum(fraction * total, 1), side="left")
        classes_ = keys[np.minimum(at, len(keys) - 1)] % _NUMBERS_MAX
        found.append(np.where(classes_ == 0, 0.0, np.exp((classes_ - 0.5) * _WIDTH) / 1e6))
    return found
