"""Windows as numbers: device, metric and window of the partition in one integer that numpy can sort and look up.

A partition is a day or a month, which windows divide, so a reading and its window lie in the same partition.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Series = tuple[str, str]  # device and metric

WINDOWS_MAX: Final = 1 << 22  # in a partition: seconds of a month
NONE: Final = -1
_DENSE_MAX: Final = 1 << 22


class WindowKeys:
    """The keys of one partition; series are numbered in order of appearance."""

    def __init__(self, begin_us: int, window_us: int, share: int = 0, shares: int = 1) -> None:
        """Create the keys; `begin_us`: midnight of the partition's first day. Devices of other shares than `share` have no keys."""
        self._begin_us, self._window_us = begin_us, window_us
        self._share, self._shares = share, shares
        self._numbers: dict[Series, int] = {}

    def of(self, devices: pa.DictionaryArray, metrics: pa.DictionaryArray, times_us: Ints) -> Ints:
        """Return the key of each reading; NONE where device or metric is null or the device belongs to another task."""
        windows = (times_us - self._begin_us) // self._window_us
        return self._keyed(devices, metrics, windows, known_only=False)

    def known(self, devices: pa.DictionaryArray, metrics: pa.DictionaryArray, times_us: Ints) -> Ints:
        """Return the key of each reading without numbering new series: those are NONE as well."""
        windows = (times_us - self._begin_us) // self._window_us
        return self._keyed(devices, metrics, windows, known_only=True)

    def series(self, keys: Ints) -> tuple[pa.StringArray, pa.StringArray]:
        """Return device and metric of keys."""
        numbers = pa.array(keys // WINDOWS_MAX)
        names = list(self._numbers)
        devices = pa.array([device for device, _ in names], pa.string())
        metrics = pa.array([metric for _, metric in names], pa.string())
        return devices.take(numbers), metrics.take(numbers)

    def start_us(self, keys: Ints) -> Ints:
        """Return the start of the windows of keys."""
        return self._begin_us + keys % WINDOWS_MAX * self._window_us

    def mine(self, devices: pa.DictionaryArray) -> npt.NDArray[np.bool_]:
        """Return whether each row's device belongs to this task."""
        if self._shares == 1:
            return np.ones(len(devices), dtype=np.bool_)
        ours = [zlib.crc32(name.encode()) % self._shares == self._share for name in devices.dictionary.to_pylist()]
        return np.array([*ours, False])[_indices(devices)]

    def _keyed(
        self, devices: pa.DictionaryArray, metrics: pa.DictionaryArray, windows: Ints, *, known_only: bool
    ) -> Ints:
        width = len(metrics.dictionary) + 1
        pairs = _indices(devices) * width + _indices(metrics)
        size = (len(devices.dictionary) + 1) * width
        device_names, metric_names = devices.dictionary.to_pylist(), metrics.dictionary.to_pylist()
        ours = self.mine(pa.DictionaryArray.from_arrays(pa.array(np.arange(len(device_names))), devices.dictionary))
        numbers = []
        present, positions = _distinct(pairs, size)
        for pair in present.tolist():
            device, metric = pair // width, pair % width
            if device == len(device_names) or metric == len(metric_names) or not ours[device]:
                numbers.append(NONE)
                continue
            series = (device_names[device], metric_names[metric])
            if known_only:
                numbers.append(self._numbers.get(series, NONE))
            else:
                numbers.append(self._numbers.setdefault(series, len(self._numbers)))
        series_numbers = np.array(numbers, dtype=np.int64)[positions]
        return np.where(series_numbers == NONE, NONE, series_numbers * WINDOWS_MAX + windows)


def _indices(coded: pa.DictionaryArray) -> Ints:
    """Return positions in the dictionary; one beyond its end for null."""
    found: Ints = coded.indices.fill_null(len(coded.dictionary)).to_numpy().astype(np.int64)
    return found


def _distinct(values: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the distinct values (below `size`), and for each value its position among them."""
    if size > _DENSE_MAX:
        present, positions = np.unique(values, return_inverse=True)
        return present, positions
    seen = np.zeros(size, dtype=np.bool_)
    seen[values] = True
    found = np.flatnonzero(seen)
    at = np.zeros(size, dtype=np.int64)
    at[found] = np.arange(len(found))
    return found, at[values]


def found_in(keys: Ints, among: Ints) -> Ints:
    """Return for each key its position in the sorted `among`, or NONE."""
    if not len(among):
        return np.full(len(keys), NONE, dtype=np.int64)
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return np.where(among[at] == keys, at, NONE)


def begin_of(day: str) -> int:
    """Return the microseconds since 1970 at midnight (UTC) of a day such as 2026-01-31."""
    return int(np.datetime64(day, "us").astype(np.int64))
