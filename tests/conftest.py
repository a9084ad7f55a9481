"""What holds for every test: whoever drives real processes or sockets by real clocks may fail twice before it counts.

A client that waits five seconds for an answer gets none when the machine stands still for six (shared builders do). Such
a test runs again, at most twice, and pytest's summary names every rerun ("R"); a bug fails three times. Tests on mock
clocks and memory links, of the store and of what only decides are never run again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from eyot_store.store import Store
from support.server_process import ServerProcess

RERUNS = 2
HERE = Path(__file__).parent
# How long an example takes says something about the machine only.
settings.register_profile("eyot", deadline=None)
settings.load_profile("eyot")
CUT_THE_POWER = ("test_power_cuts.py", "test_consumer_power_cuts.py")
BY_REAL_CLOCKS = tuple(HERE / room for room in ("interop", "hub", "appliance", "unit/daemon"))


@pytest.fixture(autouse=True)
def no_store_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let go of the stores that a test opened: thousands of them would bring the process to numbers of files that `select`, by which
    Spark's callbacks are waited for, does not know."""
    opened: list[Store] = []
    open_store = Store.open.__func__  # type: ignore[attr-defined]

    def noted(cls: type[Store], *args: Any, **kwargs: Any) -> Store:
        store: Store = open_store(cls, *args, **kwargs)
        opened.append(store)
        return store

    monkeypatch.setattr(Store, "open", classmethod(noted))
    yield
    for store in opened:
        store.let_go()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE / "unit" / "store"):
            continue  # what the store loses once in a thousand times is lost
        if any(item.path.is_relative_to(room) for room in BY_REAL_CLOCKS) or _starts_processes(_module_of(item)):
            missing = ["AssertionError"] if item.path.name in CUT_THE_POWER else None
            item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=1, rerun_except=missing))


def _module_of(item: pytest.Item) -> ModuleType | None:
    found = getattr(item, "module", None)
    return found if isinstance(found, ModuleType) else None


def _starts_processes(module: ModuleType | None) -> bool:
    """Whether a test module names what starts processes: a server, or the standard library's way."""
    values = () if module is None else vars(module).values()
    return any(
        value is subprocess or (isinstance(value, type) and issubclass(value, ServerProcess)) for value in values
    )
