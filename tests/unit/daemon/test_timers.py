"""Timers: order, cancelling, faults, and the task that serves them."""

import pytest
import trio
from trio.testing import MockClock

from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.timers import TIMERS_PER_TURN, Timers
from support.manual_clock import ManualClock


def test_timers_run_in_order_of_their_deadlines_and_of_their_making() -> None:
    timers, ran = Timers(ManualClock(monotonic_s=0.0)), list[str]()
    for deadline, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a2")):
        timers.call_at(deadline, lambda name=name: ran.append(name))  # type: ignore[misc]
    assert timers.next_deadline == 1.0
    assert timers.run_due(2.0) == 3
    assert ran == ["a", "a2", "b"]
    assert len(timers) == 1


def test_cancelled_timers_do_not_run_and_do_not_pile_up() -> None:
    timers, ran = Timers(ManualClock()), list[int]()
    kept = timers.call_at(5.0, lambda: ran.append(0))
    for number in range(10_000):
        handle = timers.call_at(4.0, lambda: ran.append(1))
        assert handle.active
        handle.cancel()
        handle.cancel()
        assert not handle.active, number
    assert len(timers) == 1
    assert len(timers._heap) < 1000
    assert timers.next_deadline == 5.0
    timers.run_due(10.0)
    assert ran == [0]
    assert not kept.active
    kept.cancel()
    assert len(timers) == 0


def test_a_timer_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    timers, ran = Timers(ManualClock()), list[int]()

    def fail() -> None:
        raise RuntimeError("boom")

    timers.call_at(1.0, fail)
    timers.call_at(2.0, lambda: ran.append(1))
    timers.run_due(3.0)
    assert ran == [1]
    assert timers.failures == 1
    assert "boom" in caplog.text


def test_a_turn_is_bounded() -> None:
    timers = Timers(ManualClock())
    for _ in range(TIMERS_PER_TURN + 5):
        timers.call_at(0.0, lambda: None)
    assert timers.run_due(1.0) == TIMERS_PER_TURN
    assert timers.run_due(1.0) == 5


async def test_the_task_wakes_for_the_earliest_and_ends_each_turn(autojump_clock: MockClock) -> None:
    timers, turns, ran = Timers(Clock()), list[float](), list[float]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run, lambda: turns.append(trio.current_time()))
        await trio.sleep(1)
        timers.call_later(100, lambda: ran.append(trio.current_time()))
        await trio.sleep(1)
        timers.call_later(3, lambda: ran.append(trio.current_time()))  # earlier than what it sleeps for
        timers.call_later(3, lambda: timers.call_later(0, lambda: ran.append(trio.current_time())))  # type: ignore[arg-type, return-value]
        await trio.sleep(200)
        nursery.cancel_scope.cancel()
    start = ran[0] - 5
    assert [moment - start for moment in ran] == [5, 5, 101]
    assert turns == [start + 5, start + 101]
