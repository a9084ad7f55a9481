"""What holds for every test.

A test that fails is not run again. One that drives real processes may ask for it, for what a machine that stands still does to
real clocks and nothing else: `@pytest.mark.rerun_on(nats.errors.TimeoutError)` names the errors, of waiting or connecting, after
which it runs again, at most twice; pytest's summary names every rerun ("R"). An assertion that fails is never one of them, and what
tests loss, repetition, order, trust or durability may not ask.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client
from nats.errors import TimeoutError as NatsTimeout

from eyot_store.store import Store
from support.skips import refuse_skip

RERUNS = 2
HERE = Path(__file__).parent
# How long an example takes says something about the machine only.
settings.register_profile("eyot", deadline=None)
settings.load_profile("eyot")
# The JVMs of Spark live for a minute or two here: a compiler that optimises for hours to come takes half of their processor time.
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_LIVED_JVM)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _SHORT_LIVED_JVM)
_flush_once = Client.flush


async def _flush(client: Client, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:
    """Wait until the server has processed everything sent before.

    nats-py writes the PING ahead of commands that are still pending (`Client._send_ping`), so its PONG says nothing of them.
    They are written before that PONG can be read; the second PING follows them.
    """
    await _flush_once(client, timeout)
    await _flush_once(client, timeout)


Client.flush = _flush


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow-machine", action="store_true", help="every look at the clock ends a search or a slice")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test compiled modules of another version of their sources: what they disagree on fails as lost messages."""
    top = HERE.parent
    stale = [
        str(source.relative_to(top))
        for source in top.glob("*/eyot_*/**/*.pyx")
        if not (module := source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))).exists()
        or module.stat().st_mtime < source.stat().st_mtime
    ]
    if stale:
        raise pytest.UsageError(
            f"compiled modules are missing or older than their sources ({', '.join(stale)}): pip install -e ."
        )
    if config.getoption("slow_machine"):
        from support import slow_machine  # it loads a part of the daemon

        slow_machine.apply()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report, os.environ)
    return report


@pytest.fixture(autouse=True)
def no_store_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let go of the stores that a test opened: thousands of them would bring the process to numbers of files that
    `select`, by which Spark's callbacks are waited for, does not know.
    """
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


#: What the words of a test or its module may not be for it to run again.
_NEVER_AGAIN = re.compile(
    r"lost|loss|duplicat|twice|order|permission|auth|trust|secret|tls|sigkill|power|cuts|crash|durab|sync"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("rerun_on"):
            _check_rerun(item, marker.args)
            errors = [error.__name__ for error in marker.args]
            item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=1, only_rerun=errors))


def _check_rerun(item: pytest.Item, errors: tuple[type[BaseException], ...]) -> None:
    """Raises UsageError for a test that may not run again, or for errors that are not of waiting or connecting."""
    if item.path.is_relative_to(HERE / "unit" / "store") or _NEVER_AGAIN.search(item.nodeid.lower()):
        raise pytest.UsageError(f"{item.nodeid}: what it tests has to hold at the first try")
    for error in errors or (BaseException,):
        if not issubclass(error, (TimeoutError, ConnectionError, NatsTimeout)):
            raise pytest.UsageError(f"{item.nodeid}: {error.__name__} is no error of waiting or connecting")
