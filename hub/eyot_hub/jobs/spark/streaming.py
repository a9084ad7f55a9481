"""Runs a job that is a streaming query of Spark's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eyot_hub.jobs.config.config import Config, seconds
from eyot_hub.progress import BatchProgress, batch_progress

log = logging.getLogger(__name__)

LOOK_S: Final = 1
#: Spark gives a source's Python process ten seconds to connect, and no setting changes that. Such a query goes on at its checkpoint.
SLOW_START: Final = "Python worker failed to connect back"
STARTS_MAX: Final = 10


def run_query(
    writer: DataStreamWriter,
    config: Config,
    *,
    once: bool,
    stop: Callable[[], bool],
    report: Callable[[BatchProgress], None],
) -> None:
    """Run the query until it has caught up (`once`) or `stop` returns True. Raises the query's failure.

    A query that ends because a Python process was slow to start is started again.
    """
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{seconds(config.bronze.poll):g} seconds")
    for left in reversed(range(STARTS_MAX)):
        try:
            return _run(writer, stop, report)
        except StreamingQueryException as failure:
            if not left or stop() or SLOW_START not in str(failure):
                raise
            log.warning("the query is started again: %s", SLOW_START)


def _run(writer: DataStreamWriter, stop: Callable[[], bool], report: Callable[[BatchProgress], None]) -> None:
    query, told = writer.start(), -1
    while query.isActive and not stop():
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
