"""The table `fleet_files`: what each file of silver holds of each device, so that `fleet` reads only files that are new.

Files never change, so a summary stays valid as long as its file is in silver. Compaction, retention, erasure and
backfill replace files; the summaries of files that are gone do not count, and leave with the next rewrite of the
table. The table is only a shortcut: when it is deleted, the next run reads all of silver.

A process that goes on keeps the sums of each device, and adds new files to them. It adds up the whole table again when a
file of the sums has left silver, or when another process has written to the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Sums:
    """The sums of all silver files that a version of the table had summaries of."""

    rows: pa.Table  # one for each device, with the columns of the table but no path
    paths: frozenset[str]
    table_id: str
    version: int
    rewrite: bool = False  # most rows of the table are of files that have left


class FileSummaries:
    """The summaries of all silver tables of a configuration; each call of `found` continues the one before."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self.table = open_table(config.lake, FLEET_FILES, SCHEMA)
        self._silver: list[LakeTable] = []
        self._sums: _Sums | None = None
        self.files_read = 0  # of silver, by the last `found`
        self.recounted = False  # whether the last `found` added up the whole table

    def found(self) -> pa.Table:
        """Return rows of which `by_device` makes the figures of silver's present files; read and keep those that are missing."""
        self.table.refresh()
        self.files_read = 0
        files = [(table, table.files()) for table in self._silver_tables()]
        present = frozenset(file.path for _, held in files for file in held)
        sums, self._sums = self._sums, None
        self.recounted = sums is None or not self._holds(sums, present)
        if sums is None or self.recounted:
            sums = self._recount(present)
        fresh: list[pa.Table] = []
        for table, held in files:
            fresh += self._summarised(table, [file for file in held if file.path not in sums.paths])
        rows = merged(pa.concat_tables([sums.rows, *fresh])) if fresh else sums.rows
        if self._keep(fresh, present, everything=sums.rewrite):
            self._sums = _Sums(rows, present, self.table.table_id, self.table.version)
        return rows

    def _silver_tables(self) -> list[LakeTable]:
        """Return silver's tables as they are now."""
        if not self._silver:
            self._silver = [silver_table(self._config, silver) for silver in self._config.silver]
        else:
            for table in self._silver:
                table.refresh()
        return self._silver

    def _holds(self, sums: _Sums, present: frozenset[str]) -> bool:
        """Return whether the sums are of present files only, and nobody else has written to the table."""
        same = (sums.table_id, sums.version) == (self.table.table_id, self.table.version)
        return same and sums.paths <= present

    def _recount(self, present: frozenset[str]) -> _Sums:
        """Return the sums of the present files that the table has summaries of."""
        held = self._rows(self.table.files())
        kept = _of_files(held, present)
        paths = frozenset(pc.unique(kept.column("path")).to_pylist())
        rewrite = held.num_rows > 2 * kept.num_rows
        return _Sums(merged(kept), paths, self.table.table_id, self.table.version, rewrite)

    def _rows(self, files: Sequence[TableFile]) -> pa.Table:
        """Return the rows of files of the table."""
        read = row_groups(self.table.spec.place, [file.path for file in files], SCHEMA)
        return pa.concat_tables([SCHEMA.empty_table(), *read])

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

    def _keep(self, fresh: list[pa.Table], present: frozenset[str], *, everything: bool) -> bool:
        """Store new summaries, and write files of the table again, when they are many or `everything`.

        What does not count leaves with them. Returns whether the table has all summaries of present files.
        """
        files = self.table.files()
        old = files if everything else _joinable(files) if len(files) >= FILES_MAX else []
        if not fresh and not old:
            return True
        writer = self.table.spec.writer()
        for part in [_of_files(self._rows(old), present), *fresh]:
            if part.num_rows:
                writer.write(part, ())
        written = writer.finish()
        try:
            # An erasure that came in between has removed its device's rows, which these may name.
            self.table.commit(written, named(self.table), old)
        except Fenced as fenced:  # the next run reads these files again
            log.info("summaries are not kept this time: %s", fenced)
            self.table.spec.writer().discard(written)
            return False
        return True


def _of_files(rows: pa.Table, present: frozenset[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows.column("path"), pa.array(sorted(present), pa.string())))


def _joinable(files: Sequence[TableFile]) -> list[TableFile]:
    """Return small files, so that a row is written again a number of times that grows by the logarithm of all rows."""
    joined: list[TableFile] = []
    rows = 0
    for file in sorted(files, key=lambda one: one.rows):
        if len(joined) > len(files) // 2 and file.rows > rows:
            break
        joined.append(file)
        rows += file.rows
    return joined


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
        if not len(starts):
            continue
        # Sorted by device and delay, so that a class of a device is a run, too.
        runs = np.flatnonzero(np.diff(device * _NUMBERS_MAX + classes(delay), prepend=-1))
        packed = np.empty(len(runs), _CLASS)
        packed["number"], packed["count"] = classes(delay[runs]), np.diff(runs, append=len(delay))
        delays, bounds = packed.tobytes(), np.searchsorted(runs, np.append(starts, len(delay))) * _CLASS.itemsize
        names = devices.dictionary.to_pylist()
        figures = {
            "readings": np.diff(starts, append=len(delay)),
            "first_event_us": np.minimum.reduceat(event, starts),
            "last_event_us": np.maximum.reduceat(event, starts),
            "last_stored_us": np.maximum.reduceat(stored, starts),
            "delay_max_us": np.maximum.reduceat(delay, starts),
            "late_readings": np.add.reduceat((delay > LATE_S * 1e6).astype(np.int64), starts),
        }
        each = zip(*(values.tolist() for values in figures.values()), strict=True)
        for one, begin, end, values in zip(device[starts].tolist(), bounds[:-1], bounds[1:], each, strict=True):
            row = {"path": path, "device": names[one], "delays": delays[begin:end]}
            yield row | dict(zip(figures, values, strict=True))


def classes(delays_us: Ints) -> Ints:
    """Return the class of each delay."""
    positive = np.maximum(delays_us, 1)
    found: Ints = np.where(delays_us <= 0, 0, 1 + (np.log(positive) / _WIDTH).astype(np.int64))
    return found


def merged(found: pa.Table) -> pa.Table:
    """Return one row for each device, with the columns of the table but no path, of which `by_device` makes the same figures."""
    if not found.num_rows:
        return SCHEMA.empty_table()
    devices = codes(found.column("device").dictionary_encode())
    sums = found.select(["device", *(name for name, _ in _SUMS)]).group_by("device").aggregate(_SUMS)
    sums = sums.take(pc.index_in(devices.dictionary, sums.column("device").combine_chunks()))
    owner, number, count = _counted(*_delays(found, devices))
    packed = np.empty(len(owner), _CLASS)
    packed["number"], packed["count"] = number, count
    ends = np.searchsorted(owner, np.arange(len(devices.dictionary) + 1)) * _CLASS.itemsize
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(packed)]
    made = {name: sums.column(f"{name}_{how}") for name, how in _SUMS}
    made |= {"path": pa.nulls(len(sums), pa.string()), "device": devices.dictionary}
    made["delays"] = pa.Array.from_buffers(pa.binary(), len(sums), buffers)
    return pa.table([made[name] for name in SCHEMA.names], schema=SCHEMA)


def by_device(found: pa.Table, fractions: Sequence[float]) -> pa.Table:
    """Return one row for each device: the sums, and `delay_p<i>` in seconds for the i-th fraction, within 1 %."""
    devices = codes(found.column("device").dictionary_encode())
    sums = found.select(["device", *(name for name, _ in _SUMS)]).group_by("device").aggregate(_SUMS)
    delays = percentiles(*_delays(found, devices), fractions)
    made = {name: sums.column(f"{name}_{how}") for name, how in _SUMS} | {"device": sums.column("device")}
    at = pc.index_in(sums.column("device"), devices.dictionary).to_numpy()
    most = made["delay_max_us"].to_numpy() / 1e6
    for index, values in enumerate(delays):
        made[f"delay_p{index}"] = pa.array(np.minimum(values[at], np.maximum(most, 0.0)))
    return pa.table(made)


def _delays(found: pa.Table, devices: pa.DictionaryArray) -> tuple[Ints, Ints, Ints]:
    """Return device (numbered from 0), class and count of each entry of `delays`."""
    packed = found.column("delays")
    entries = np.frombuffer(b"".join(packed.to_pylist()), _CLASS)
    lengths = pc.binary_length(packed).to_numpy() // _CLASS.itemsize
    device = np.repeat(devices.indices.to_numpy().astype(np.int64), lengths)
    return device, entries["number"].astype(np.int64), entries["count"].astype(np.int64)


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
    owner, number, counts = _counted(device, number, count)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    running = np.cumsum(counts)
    before = np.concatenate([[0.0], running])[starts]
    total = np.add.reduceat(counts, starts) if len(starts) else counts
    found = []
    for fraction in fractions:
        at = np.searchsorted(running, before + np.maximum(fraction * total, 1), side="left")
        classes_ = number[np.minimum(at, len(number) - 1)]
        found.append(np.where(classes_ == 0, 0.0, np.exp((classes_ - 0.5) * _WIDTH) / 1e6))
    return found


def _counted(device: Ints, number: Ints, count: Ints) -> tuple[Ints, Ints, Ints]:
    """Add up entries of the same device and class; return the entries in order."""
    keys, where = np.unique(device * _NUMBERS_MAX + number, return_inverse=True)
    # Exact: numbers of readings are far below 2**53.
    counts = np.bincount(where, weights=count, minlength=len(keys)).astype(np.int64)
    return keys // _NUMBERS_MAX, keys % _NUMBERS_MAX, counts
