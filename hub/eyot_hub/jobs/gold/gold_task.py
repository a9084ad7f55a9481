"""A task of gold: recomputes the windows of one partition that new silver rows fall into, and rewrites the partition.

Files are read and written in Arrow; nothing passes through Spark's rows. There is no shuffle, because all readings of a
window lie in one partition of silver. A large partition is divided among tasks by device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eyot_hub import columns
from eyot_hub.jobs.gold.window_values import Floats, WindowValues, window_values
from eyot_hub.jobs.silver.window_keys import NONE, Ints, WindowKeys, begin_of, found_in
from eyot_hub.jobs.tables.file_rows import codes, row_groups
from eyot_hub.jobs.tables.files import DataFile, Place
from eyot_hub.jobs.tables.increments import Span
from eyot_hub.jobs.tables.table_format import TableSpec


@dataclass(frozen=True)
class Readings:
    """The silver columns of a gold table's readings: one for the metric's name and one for its value, or one per metric."""

    schema: pa.Schema  # silver's columns that are read
    metric: str
    value: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """Settings that all tasks of a round share."""

    silver: Place  # the silver table
    gold: TableSpec
    readings: Readings
    spans: tuple[Span, ...]
    window_us: int
    percentiles: tuple[float, ...]
    keep: bool  # keep the partition's windows that are not affected


@dataclass(frozen=True)
class Portion:
    """One task: files of one partition, and its share of the devices."""

    day: str
    fresh: tuple[str, ...]  # may hold new rows
    others: tuple[str, ...]
    before: tuple[str, ...]  # gold's files of the partition
    share: int
    shares: int


@dataclass(frozen=True)
class Computed:
    """A task's result: `rows` new readings in `windows`, of which `corrected` existed in gold."""

    day: str
    files: list[DataFile]
    rows: int
    windows: int
    corrected: int


class _Read(NamedTuple):
    keys: Ints
    values: Floats
    new: npt.NDArray[np.bool_]


def compute(work: Work, portion: Portion) -> Computed:
    """Write the partition (for one share of the devices) in its new state; nothing is committed."""
    keys = WindowKeys(begin_of(portion.day), work.window_us, portion.share, portion.shares)
    read = list(_read(work, keys, portion.fresh, of_new=True))
    touched = np.unique(np.concatenate([part.keys[part.new] for part in read] or [np.zeros(0, np.int64)]))
    rows = sum(int(part.new.sum()) for part in read)
    if not len(touched) and portion.shares == 1:
        return Computed(portion.day, [], 0, 0, 0)
    wanted = [_chosen(part, touched) for part in read]
    wanted += [_chosen(part, touched) for part in _read(work, keys, portion.others, of_new=False)]
    values = window_values(
        np.concatenate([keys_of for keys_of, _ in wanted] or [touched]),
        np.concatenate([values_of for _, values_of in wanted] or [np.zeros(0)]),
        work.percentiles,
    )
    revisions, kept = _before(work, keys, portion, touched)
    table = pa.concat_tables([_table(work, keys, values, revisions + 1), *kept])
    table = table.sort_by([("device", "ascending"), ("metric", "ascending"), ("window_start", "ascending")])
    writer = work.gold.writer()
    try:
        if table.num_rows:
            writer.write(table, (("event_date", portion.day),))
        return Computed(portion.day, writer.finish(), rows, len(touched), int((revisions > 0).sum()))
    except BaseException:
        writer.abandon()
        raise


def _read(work: Work, keys: WindowKeys, paths: tuple[str, ...], *, of_new: bool) -> Iterator[_Read]:
    """Yield the readings of silver's files. `of_new`: also mark the rows that gold has not processed yet."""
    asked = work.readings
    schema = pa.schema([*asked.schema, *_PLACE]) if of_new else asked.schema
    coded = [field.name for field in schema if field.name in ("device", "stream", asked.metric) and _is_text(field)]
    for rows in row_groups(work.silver, paths, schema, coded):
        new = rows_in(rows, work.spans) if of_new else np.zeros(rows.num_rows, np.bool_)
        devices = codes(rows.column("device"))
        times_us = rows.column("event_time").cast(pa.int64()).to_numpy()
        for metric, column in _metrics(rows, asked):
            found = keys.of(devices, metric, times_us) if of_new else keys.known(devices, metric, times_us)
            good = column.is_valid().to_numpy() & (found != NONE)
            values = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
            yield _Read(found[good], values[good], new[good])


def _metrics(rows: pa.Table, asked: Readings) -> Iterator[tuple[pa.DictionaryArray, pa.ChunkedArray]]:
    """Yield names and values of the readings in the rows."""
    if asked.metric:
        names = rows.column(asked.metric)
        if not pa.types.is_dictionary(names.type):
            names = names.cast(pa.string()).dictionary_encode()
        yield codes(names), rows.column(asked.value)
    for name in asked.metrics:
        index = pa.array(np.zeros(rows.num_rows, np.int32))
        yield pa.DictionaryArray.from_arrays(index, pa.array([name])), rows.column(name)


def rows_in(rows: pa.Table, spans: tuple[Span, ...]) -> npt.NDArray[np.bool_]:
    """Return which rows lie in one of the spans."""
    created, sequence = rows.column("stream_created_ns").to_numpy(), rows.column("sequence").to_numpy()
    streams = codes(rows.column("stream"))
    names = {name: number for number, name in enumerate(streams.dictionary.to_pylist())}
    index = streams.indices.to_numpy()
    found = np.zeros(rows.num_rows, np.bool_)
    for span in spans:
        if span.stream in names:
            held = (created == span.created_ns) & (sequence > span.after) & (sequence <= span.until)
            found |= held & (index == names[span.stream])
    return found


def _chosen(part: _Read, touched: Ints) -> tuple[Ints, Floats]:
    wanted = found_in(part.keys, touched) != NONE
    return part.keys[wanted], part.values[wanted]


def _before(work: Work, keys: WindowKeys, portion: Portion, touched: Ints) -> tuple[Ints, list[pa.Table]]:
    """Return the revision of each affected window (0: new), and the rows of all other windows."""
    revisions = np.zeros(len(touched), np.int64)
    kept = []
    schema = pa.schema([field for field in work.gold.schema if field.name not in work.gold.partition_by])
    for rows in row_groups(work.gold.place, portion.before, schema, ("device", "metric")):
        devices, metrics = codes(rows.column("device")), codes(rows.column("metric"))
        at = found_in(keys.known(devices, metrics, rows.column("window_start").cast(pa.int64()).to_numpy()), touched)
        old = rows.column("revision").to_numpy()
        np.maximum.at(revisions, at[at != NONE], old[at != NONE])
        if work.keep:
            kept.append(rows.filter(pa.array((at == NONE) & keys.mine(devices))).cast(schema))
    return revisions, kept


def _table(work: Work, keys: WindowKeys, values: WindowValues, revisions: Ints) -> pa.Table:
    """Return rows of gold."""
    devices, metrics = keys.series(values.keys)
    start_us, count = keys.start_us(values.keys), len(values.keys)
    fields = {
        "device": devices,
        "metric": metrics,
        "window_start": pa.array(start_us).cast(columns.TIMESTAMP),
        "window_end": pa.array(start_us + work.window_us).cast(columns.TIMESTAMP),
        "count": pa.array(values.count),
        "min": pa.array(values.least),
        "max": pa.array(values.most),
        "mean": pa.array(values.mean),
        "revision": pa.array(revisions),
        "computed_at": pa.array(np.full(count, time.time_ns() // 1000)).cast(columns.TIMESTAMP),
    }
    for fraction, percentile in zip(work.percentiles, values.percentiles, strict=True):
        fields[columns.percentile_name(fraction)] = pa.array(percentile)
    schema = pa.schema([field for field in work.gold.schema if field.name not in work.gold.partition_by])
    return pa.Table.from_arrays([fields[name] for name in schema.names], schema=schema)


def _is_text(field: pa.Field) -> bool:
    return bool(field.type == pa.string())


_PLACE: Final = (
    pa.field("stream", pa.string()),
    pa.field("stream_created_ns", pa.int64()),
    pa.field("sequence", pa.int64()),
)
