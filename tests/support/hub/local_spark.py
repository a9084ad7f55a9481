"""What jobs use of a Spark session to run tasks, run in this process: tests of the jobs' logic need no JVM."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any


class LocalData:
    """Partitions of values, as an RDD has them. Values are pickled on the way to a task, as Spark does."""

    def __init__(self, parts: Iterable[list[Any]]) -> None:
        self._parts = [pickle.loads(pickle.dumps(part, pickle.HIGHEST_PROTOCOL)) for part in parts]

    def map(self, task: Callable[[Any], Any]) -> LocalData:
        return LocalData([[task(value) for value in part] for part in self._parts])

    def flatMap(self, task: Callable[[Any], Iterable[Any]]) -> LocalData:
        return LocalData([[made for value in part for made in task(value)] for part in self._parts])

    def mapPartitions(self, task: Callable[[Any], Iterable[Any]]) -> LocalData:
        return LocalData([list(task(value for _, value in enumerate(part))) for part in self._parts])

    def partitionBy(self, count: int, chosen: Callable[[Any], int]) -> LocalData:
        parts: dict[int, list[Any]] = defaultdict(list)
        for part in self._parts:
            for key, value in part:
                parts[chosen(key) % count].append((key, value))
        return LocalData([parts[number] for number in range(count)])

    def collect(self) -> list[Any]:
        return [value for part in self._parts for value in part]


class LocalContext:
    defaultParallelism = 2

    def setJobDescription(self, text: str) -> None:
        pass

    def parallelize(self, values: Iterable[Any], count: int) -> LocalData:
        return LocalData([[value] for value in values])


class LocalSpark:
    """Stands for a session; SQL needs a real one."""

    sparkContext = LocalContext()
