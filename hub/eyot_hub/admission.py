"""Admission control of streaming reads: how much the next micro-batch reads, and whether it waits for more.

The terms are those of Spark's Kafka source: at most so many messages or bytes, at least so many messages unless the
last batch began too long ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from eyot_hub import offsets
from eyot_hub.jetstream import StreamInfo
from eyot_hub.offsets import Positions
from eyot_hub.options import Limits


@dataclass
class Admission:
    """Applies the limits of one query, and remembers when its last batch was admitted."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._admitted_s: float | None = None  # None: no batch yet; the first one never waits

    def read_limit(self) -> ReadLimit:
        """Return what Spark passes back to each call of latestOffset.

        Spark's data sources in Python know one limit at a time; `limited` and `waits` apply all of them.
        """
        limits = self.limits
        if limits.max_messages is not None:
            return ReadMaxRows(limits.max_messages)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_messages is None else ReadMinRows(limits.min_messages)

    def waits(self, start: Positions, latest: Positions) -> bool:
        """Return whether the next batch waits, because there is too little to read and the last one was not long ago."""
        least, now = self.limits.min_messages, self.clock()
        if least is None:
            return False
        recent = self._admitted_s is not None and now - self._admitted_s < self.limits.max_delay_s
        if recent and sum(left for left in offsets.backlog(start, latest).values() if left > 0) < least:
            return True
        self._admitted_s = now
        return False

    def limited(self, start: Positions, latest: Positions, streams: Mapping[str, StreamInfo]) -> Positions:
        """Return `latest`, limited in messages and bytes beyond `start`."""
        most = self.limits.max_messages
        if self.limits.max_bytes is not None:
            waiting = {name: left for name, left in offsets.backlog(start, latest).items() if left > 0}
            total_bytes = sum(left * _mean_bytes(streams.get(name)) for name, left in waiting.items())
            if total_bytes > self.limits.max_bytes:
                fitting = int(sum(waiting.values()) * self.limits.max_bytes / total_bytes)
                most = fitting if most is None else min(most, fitting)
        return latest if most is None else offsets.limited(start, latest, most)


def _mean_bytes(info: StreamInfo | None) -> float:
    """Return the mean size of the stream's messages, as the server counts them."""
    if info is None or not info.state.messages:
        return 0.0
    return info.state.bytes / info.state.messages
