"""Runs a job that is a streaming query of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eyot_hub.jobs.config import Config, seconds
from eyot_hub.progress import BatchProgress, batch_progress

LOOK_S: Final = 1


def run_query(
    writer: DataStreamWriter,
    config: Config,
    *,
    once: bool,
    stop: Callable[[], bool],
    report: Callable[[BatchProgress], None],
) -> None:
    """Run the query until it has caught up (`once`), or until `stop` returns True. Raises the query's failure."""
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{seconds(config.bronze.poll):g} seconds")
    query, told = writer.start(), -1
    while query.isActive and (once or not stop()):
        query.awaitTermination(LOOK_S)
        told = _tell(query, told, report)
    query.stop()
    _tell(query, told, report)
    failure = query.exception()
    if failure is not None:
        raise failure


def _tell(query: StreamingQuery, told: int, report: Callable[[BatchProgress], None]) -> int:
    """Report the batches after `told` that had rows (Spark keeps the last hundred); return the last one's number."""
    for done in map(batch_progress, query.recentProgress):
        if done.batch > told and done.rows:
            told = done.batch
            report(done)
    return told
