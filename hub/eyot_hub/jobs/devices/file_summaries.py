"""The table `fleet_files`: what each file of silver holds of each device (`summary_table.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from eyot_hub import columns
from eyot_hub.grouping import grouped
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.summary_table import SummaryTable
from eyot_hub.jobs.silver.silver import silver_table
from eyot_hub.jobs.tables.file_rows import codes, row_groups
from eyot_hub.jobs.tables.files import Place
from eyot_hub.jobs.tables.table import LakeTable
from eyot_hub.jobs.tables.table_format import TableFile
from eyot_wire.quantities import counted

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
_READ: Final = pa.schema([("device", pa.string()), ("event_time", columns.TIMESTAMP), ("stored_at", columns.TIMESTAMP)])
#: Classes of delays: each is 2 % wider than the one before. Class 0: none, or an event ahead of the hub's clock.
_CLASS: Final = np.dtype([("number", "<i4"), ("count", "<i8")])
_WIDTH: Final = float(np.log(1.02))
_NUMBERS_MAX: Final = 1 << 12  # of classes
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class _DeviceSum(msgspec.Struct):
    """A row of a stored sum, by the columns of the table."""

    device: str
    readings: int
    first_event_us: int
    last_event_us: int
    last_stored_us: int
    delay_max_us: int
    late_readings: int
    delays: bytes


_DECODER: Final = msgspec.msgpack.Decoder(_DeviceSum)


class FileSummaries(SummaryTable[pa.Table]):
    """The summaries of all silver tables of a configuration. They add up to rows of which `by_device` makes the figures."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        super().__init__(spark, config, FLEET_FILES, SCHEMA)
        self._silver: list[LakeTable] = []

    def _sources(self) -> list[tuple[LakeTable, list[TableFile]]]:
        if not self._silver:
            self._silver = [silver_table(self._config, silver) for silver in self._config.silver]
        else:
            for table in self._silver:
                table.refresh()
        return [(table, table.files()) for table in self._silver]

    def _summarised(self, table: LakeTable, files: Sequence[TableFile]) -> pa.Table:
        context, place = self._spark.sparkContext, table.spec.place
        context.setJobDescription(f"fleet: {counted(len(files), 'new file')} of {table.root}")
        groups = grouped([file.path for file in files], [file.rows for file in files], context.defaultParallelism)
        rows: list[dict[str, Any]] = (
            context.parallelize(groups, len(groups)).flatMap(lambda paths: summaries(place, paths)).collect()
        )
        return pa.Table.from_pylist(rows, SCHEMA)

    def _total(self, rows: pa.Table) -> pa.Table:
        return merged(rows)

    def _added(self, total: pa.Table, fresh: pa.Table) -> pa.Table:
        return merged(pa.concat_tables([total, fresh]))

    def _packed(self, total: pa.Table) -> Iterator[tuple[str, bytes]]:
        for row in total.drop_columns(["path"]).to_pylist():
            yield row["device"], msgspec.msgpack.encode(row)

    def _unpacked(self, packed: Iterable[tuple[str, bytes]]) -> pa.Table:
        rows = [msgspec.structs.asdict(_DECODER.decode(one)) for _, one in packed]
        return pa.Table.from_pylist(rows, SCHEMA)


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
