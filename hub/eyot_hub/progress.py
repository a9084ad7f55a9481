"""A streaming query's progress in the streams it reads.

Spark requests metrics only from JVM sources (`ReportsSourceMetrics`), so `sources[].metrics` stays empty for this
source (PySpark 4.3). The source therefore reports its metrics within `sources[].latestOffset`: for each stream, the
messages that the query has not read (`behind`) and the age of the oldest of them in seconds (`oldestSeconds`). This
module reads them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from eyot_hub import offsets
from eyot_wire.quantities import counted

log = logging.getLogger(__name__)

Progress = StreamingQueryProgress | Mapping[str, Any]


@dataclass(frozen=True)
class BatchProgress:
    """One batch of a query. Rates are rows/s; `seconds`: duration of the whole batch."""

    query: str  # its name, or its id
    batch: int
    rows: int
    arriving_per_s: float
    processed_per_s: float
    seconds: float
    behind: dict[str, int]  # by stream
    oldest_s: dict[str, float]  # by stream: the age of the oldest message beyond the batch, where it is known

    def __str__(self) -> str:
        behind = ", ".join(f"{stream} {count} behind" for stream, count in sorted(self.behind.items()))
        return f"batch {self.batch}: {counted(self.rows, 'row')}, {self.seconds:.2f} s, {self.processed_per_s:,.0f} rows/s, {behind}"


def batch_progress(progress: Progress) -> BatchProgress:
    """Return the figures of `query.lastProgress`, of one of `query.recentProgress`, or of a listener's event."""
    return BatchProgress(
        query=str(_field(progress, "name") or _field(progress, "id")),
        batch=int(_field(progress, "batchId")),
        rows=int(_field(progress, "numInputRows")),
        arriving_per_s=float(_field(progress, "inputRowsPerSecond")),
        processed_per_s=float(_field(progress, "processedRowsPerSecond")),
        seconds=_field(progress, "durationMs").get("triggerExecution", 0) / 1000,
        behind=lag(progress),
        oldest_s=oldest_s(progress),
    )


def lag(progress: Progress) -> dict[str, int]:
    """Return the messages in each stream beyond the query's last batch, from `query.lastProgress` or a listener's event.

    The result counts sequences, so messages that were deleted meanwhile count as well.
    """
    behind: dict[str, int] = {}
    for end, latest in _reports(progress):
        try:
            read, there = offsets.from_json(end), offsets.from_json(latest)
        except ValueError:
            continue  # another kind of source
        for stream, at in there.items():
            done = read.get(stream)
            behind[stream] = at.sequence - (done.sequence if done is not None and done.created == at.created else 0)
    return behind


def oldest_s(progress: Progress) -> dict[str, float]:
    """Return the age in seconds of the oldest message beyond the query's last batch, by stream; 0 without any.

    A stream whose age is unknown is absent: the message was deleted meanwhile, or 20 other streams are further behind.
    """
    found: dict[str, float] = {}
    for _, latest in _reports(progress):
        if isinstance(latest, Mapping):
            ages = {stream: at.get("oldestSeconds") for stream, at in latest.items() if isinstance(at, Mapping)}
            found |= {stream: float(age) for stream, age in ages.items() if isinstance(age, int | float)}
    return found


def _reports(progress: Progress) -> Iterator[tuple[Any, Any]]:
    """Yield the end and the latest offset of each source that reports them."""
    for source in _field(progress, "sources"):
        end, latest = _field(source, "endOffset"), _field(source, "latestOffset")
        if end and latest:
            yield _parsed(end), _parsed(latest)


class ProgressListener(StreamingQueryListener):
    """Reports each batch of queries that read JetStream: `spark.streams.addListener(ProgressListener())`."""

    def __init__(self, report: Callable[[BatchProgress], None] | None = None) -> None:
        """Create a listener. `report` is called in a thread of Spark's; without it a line goes to the log, at INFO."""
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        done = batch_progress(event.progress)
        if not done.behind:
            return
        if self._report is None:
            log.info("%s: %s", done.query, done)
        else:
            self._report(done)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)


def _parsed(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset
