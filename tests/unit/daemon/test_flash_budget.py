"""The flash budget: when the window grows and shrinks, what it is applied to, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from eyot_cli.device import status as cli_status
from eyot_daemon.config.read import read_options
from eyot_daemon.monitor.flash import FlashService
from eyot_daemon.monitor.flash_pacer import CREDIT_S, STEP_S, WINDOW_S_FIRST, FlashPacer
from eyot_daemon.process.service import Runtime
from eyot_daemon.router.broker import Broker
from eyot_wire.conf import ConfError, parse_text
from eyot_wire.status import FlashStatus
from support.manual_clock import ManualClock

MIB = 1 << 20
#: A budget of 100 bytes a second.
BUDGET = 8_640_000
STEP = int(100 * STEP_S)


class Paced:
    """A pacer with its counters."""

    def __init__(self, window_s_max: float = 1.0) -> None:
        self.pacer, self.written, self.now_s, self.window_s_max = FlashPacer(), 5000, 10.0, window_s_max
        self.step(0)

    def step(self, spent: int, budget: int = BUDGET) -> float:
        """A minute, in which `spent` bytes are written."""
        self.written += spent
        self.now_s += STEP_S
        return self.pacer.step(self.now_s, self.written, budget, self.window_s_max)

    def exceed(self) -> None:
        """Use up the credit, and no more."""
        self.step(int(100 * CREDIT_S) + STEP)


def test_within_the_budget_nothing_waits() -> None:
    paced = Paced()
    assert [paced.step(STEP) for _ in range(500)] == [0.0] * 500


def test_a_burst_within_the_credit_is_not_paced() -> None:
    paced = Paced()
    assert paced.step(int(100 * CREDIT_S)) == 0.0
    assert paced.step(STEP) == 0.0


def test_the_window_doubles_up_to_its_bound_while_more_is_written() -> None:
    paced = Paced()
    paced.exceed()
    windows = [paced.step(2 * STEP) for _ in range(9)]
    assert windows[:4] == [WINDOW_S_FIRST, 2 * WINDOW_S_FIRST, 4 * WINDOW_S_FIRST, 8 * WINDOW_S_FIRST]
    assert windows[-3:] == [1.0, 1.0, 1.0]


def test_the_window_stays_while_a_debt_is_paid_and_goes_with_credit() -> None:
    paced = Paced()
    paced.exceed()
    for _ in range(3):
        paced.step(2 * STEP)
    assert [paced.step(0) for _ in range(3)] == [4 * WINDOW_S_FIRST] * 3
    assert [paced.step(0) for _ in range(4)] == [2 * WINDOW_S_FIRST, WINDOW_S_FIRST, 0.0, 0.0]


def test_a_debt_is_bounded() -> None:
    """A budget that was exceeded a thousandfold is kept again after an hour."""
    paced = Paced()
    paced.step(1000 * STEP * 60)
    windows = [paced.step(0) for _ in range(64)]
    assert windows[0] == windows[58] == WINDOW_S_FIRST
    assert windows[-1] == 0.0


def test_a_lower_bound_holds_at_once() -> None:
    paced = Paced()
    paced.exceed()
    for _ in range(8):
        paced.step(2 * STEP)
    paced.window_s_max = 0.1
    assert paced.step(2 * STEP) == 0.1


def test_without_a_budget_or_a_counter_there_is_no_window() -> None:
    paced = Paced()
    paced.exceed()
    assert paced.step(2 * STEP) > 0
    assert paced.step(2 * STEP, budget=0) == 0.0
    assert paced.pacer.step(1e6, None, BUDGET, 1.0) == 0.0
    assert paced.step(100 * STEP) == 0.0  # begins anew, with full credit


class Box:
    """A daemon's flash service on a manual clock, with the kernel's counter in a file."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        options = read_options(parse_text(f"eyot {{ flash {{ budget: {BUDGET}, max_window: 500ms }} }}")).options
        self.broker = Broker(options, clock=self.clock)
        self.io, self.windows, self.written = folder / "io", list[float](), 0
        self.wrote(0)
        self.service = FlashService(self.broker, lambda: folder, self.windows.append, self.io)
        begin: list[Any] = []
        self.service.start(None, cast(Runtime, type("R", (), {"when_open": staticmethod(begin.append)})))
        for step in begin:
            step()

    def wrote(self, count: int) -> None:
        self.written += count
        self.io.write_text(f"write_bytes: {self.written}\n")

    def minute(self, count: int) -> None:
        self.wrote(count)
        self.clock.advance(STEP_S)
        self.broker.timers.run_due(self.clock.monotonic())


def test_the_store_is_told_the_window_and_the_report_says_it(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.minute(int(100 * CREDIT_S) + STEP)
    box.minute(2 * STEP)
    for _ in range(8):
        box.minute(2 * STEP)
    assert box.windows[:4] == [0.0, 0.0, WINDOW_S_FIRST, 2 * WINDOW_S_FIRST]
    assert box.windows[-1] == 0.5
    told = box.broker.providers.flash()
    assert told is not None
    assert (told.budget_bytes, told.window_s) == (BUDGET, 0.5)
    box.service.stop()
    count = len(box.windows)
    box.minute(0)
    assert len(box.windows) == count


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2GB/day", 2 << 30),
        ('"2GB/day"', 2 << 30),
        ('"500 MiB/day"', 500 << 20),
        ('"3G"', 3 << 30),
        ("2GB", 2 << 30),
        ("8640000", 8_640_000),
    ],
)
def test_spellings_of_a_budget(text: str, budget: int) -> None:
    flash = read_options(parse_text(f"eyot {{ flash {{ budget: {text} }} }}")).options.eyot.flash
    assert (flash.budget_bytes, flash.max_window_s) == (budget, 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('budget: "2GB/hour"', "expected a size"),
        ("budget: 12", "expected a size"),
        ("budget: -1", "expected a size"),
        ("budget: true", "expected a size"),
        ("max_window: 10s", "at most 4s"),
        ("max_window: 1ms", "at least 0.01s"),
    ],
)
def test_budgets_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfError, match=words):
        read_options(parse_text(f"eyot {{ flash {{ {text} }} }}"))


def test_the_tool_tells_budget_and_window(capsys: pytest.CaptureFixture[str]) -> None:
    cli_status._flash(FlashStatus(budget_bytes=512 * MIB, window_s=0.25))
    cli_status._flash(FlashStatus(budget_bytes=512 * MIB))
    paced, not_paced = capsys.readouterr().out.splitlines()
    assert paced == "Flash of the store: budget 512.0 MiB per day, commits wait up to 0.25 s"
    assert not_paced == "Flash of the store: budget 512.0 MiB per day"
