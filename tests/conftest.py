"""What holds for every test: whoever drives real processes by real clocks may fail twice before it counts.

A client that waits five seconds for an answer gets none when the machine stands still for six (shared builders do). Such
a test runs again, at most twice, and pytest's summary names every rerun ("R"); a bug fails three times. Tests in one
process, on mock clocks and memory links, are never run again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

RERUNS = 2
HERE = Path(__file__).parent
WITH_REAL_PROCESSES = tuple(HERE / room for room in ("interop", "hub", "appliance", "unit/cli"))
OTHER_FILES = (
    "test_process.py",
    "test_process_files.py",
    "test_auth_callout.py",
    "test_metrics.py",
    "test_https_monitoring.py",
    "test_sigkill.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in OTHER_FILES or any(item.path.is_relative_to(room) for room in WITH_REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=1))
