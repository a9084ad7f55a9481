"""Streaming queries of Spark on a machine that is slow to start a process.

A query's source runs in a Python process that has to connect within 10 seconds. No setting of Spark changes that. A query
that ends for it has read nothing, so it is started again from its checkpoint, as whatever watches over queries does.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

SLOW_START = "Python worker failed to connect back"
STARTS_MAX = 10


def catch_up(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query that reads what there is and ends. Raises StreamingQueryException."""
    return _run(start, lambda query: query.awaitTermination())


def begin(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that goes on, and wait until it has read what there is. Raises StreamingQueryException."""
    return _run(start, lambda query: query.processAllAvailable())


def _run(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    for _ in range(STARTS_MAX - 1):
        query = start()
        try:
            wait(query)
        except StreamingQueryException as error:
            if SLOW_START not in str(error):
                raise
        else:
            return query
    query = start()
    wait(query)
    return query
