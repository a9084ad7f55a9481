"""A streaming query that ends because a Python process was slow to start is started again; any other failure is the job's."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from pyspark.errors import StreamingQueryException

from eyot_hub.jobs.spark.streaming import SLOW_START, STARTS_MAX, run_query
from support.hub.jobs_config import jobs_config


def query(failure: str | None = None) -> Mock:
    error = None if failure is None else StreamingQueryException(failure)
    return Mock(isActive=False, recentProgress=[], exception=Mock(return_value=error))


def started(folder: Path, *queries: Mock) -> int:
    """Run these queries, one for each start; return how many were started."""
    writer = MagicMock()
    writer.trigger.return_value = writer
    writer.start.side_effect = queries
    config = jobs_config("nats://127.0.0.1", folder)
    try:
        run_query(writer, config, once=True, stop=lambda: False, report=lambda _: None)
    finally:
        count: int = writer.start.call_count
    return count


def test_a_slow_start_is_repeated(tmp_path: Path) -> None:
    slow = f"[STREAM_FAILED] Query terminated with exception: {SLOW_START}."
    assert started(tmp_path, query(slow), query(slow), query()) == 3
    with pytest.raises(StreamingQueryException, match=SLOW_START):
        started(tmp_path, *[query(slow) for _ in range(STARTS_MAX)])


def test_another_failure_is_raised(tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="no such stream"):
        started(tmp_path, query("no such stream"), query())


@pytest.mark.parametrize("once", [True, False])
def test_a_stop_ends_the_query(tmp_path: Path, once: bool) -> None:
    """Also one that would end by itself, with a long backlog hours later."""
    running = Mock(isActive=True, recentProgress=[], exception=Mock(return_value=None))
    writer = MagicMock()
    writer.trigger.return_value = writer
    writer.start.return_value = running
    looks = iter([False, True])
    config = jobs_config("nats://127.0.0.1", tmp_path)
    run_query(writer, config, once=once, stop=lambda: next(looks), report=lambda _: None)
    running.stop.assert_called_once_with()
