"""A wall clock that jumps: nothing expires by it, and what is stored expires when its time has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.jetstream.clock_watch import ClockCredits, ClockWatch
from eyot_daemon.turn.clock import ManualClock
from support.js_fixture import World

S = 1_000_000_000
YEAR_S = 365 * 86_400
HOUR_NS = 3600 * S


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(max_age=HOUR_NS)
    return world


def payloads(world: World) -> list[bytes]:
    return [payload for _, payload in world.held()]


def wait(world: World, minutes: int) -> None:
    for _ in range(minutes):
        world.advance(60)


@pytest.mark.parametrize("years", [30, -2])
def test_a_jump_is_no_age(world: World, years: int) -> None:
    world.put(b"s.a", b"before")
    wait(world, 30)
    world.clock.jump(years * YEAR_S)
    wait(world, 20)
    world.put(b"s.a", b"after")
    assert payloads(world) == [b"before", b"after"]
    wait(world, 12)
    assert payloads(world) == [b"after"]
    wait(world, 40)
    assert payloads(world) == [b"after"]
    wait(world, 12)
    assert payloads(world) == []


def test_to_the_future_and_back(world: World) -> None:
    world.put(b"s.a", b"one")
    world.clock.jump(YEAR_S)
    wait(world, 10)
    world.put(b"s.a", b"two")
    world.clock.jump(-YEAR_S)
    wait(world, 10)
    world.put(b"s.a", b"three")
    wait(world, 38)
    assert payloads(world) == [b"one", b"two", b"three"]
    wait(world, 4)
    assert payloads(world) == [b"two", b"three"]
    wait(world, 10)
    assert payloads(world) == [b"three"]
    wait(world, 10)
    assert payloads(world) == []


def test_a_restart_remembers_the_jump(world: World) -> None:
    world.put(b"s.a", b"before")
    world.clock.jump(YEAR_S)
    wait(world, 1)
    world = world.restart()
    wait(world, 30)
    assert payloads(world) == [b"before"]
    wait(world, 31)
    assert payloads(world) == []


def test_messages_with_a_time_to_live(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(max_age=2 * HOUR_NS, allow_msg_ttl=True)
    world.put(b"s.a", b"an hour", {"Nats-TTL": "1h"})
    world.put(b"s.a", b"two")
    world.clock.jump(YEAR_S)
    wait(world, 1)
    world = world.restart()
    wait(world, 50)
    assert payloads(world) == [b"an hour", b"two"]
    wait(world, 11)
    assert payloads(world) == [b"two"]
    wait(world, 61)
    assert payloads(world) == []


def test_time_that_passes_is_no_jump() -> None:
    clock = ManualClock()
    watch = ClockWatch(clock)
    for _ in range(1000):
        clock.advance(3600)
        clock.jump(0.2)
        assert watch.jumped_ns() == 0
    clock.jump(11)
    assert round(watch.jumped_ns() / S) == 11
    assert watch.jumped_ns() == 0


def test_credits_add_up_and_are_forgotten() -> None:
    credits = ClockCredits()
    credits.jumped(10, 5)
    credits.jumped(20, 7)
    credits.jumped(20, -3)
    assert [credits.of(seq) for seq in (1, 10, 11, 20, 21)] == [9, 9, 4, 4, 0]
    assert list(credits.segments(1, 30)) == [(10, 9), (20, 4), (30, 0)]
    assert list(credits.segments(11, 20)) == [(20, 4)]
    assert ClockCredits(credits.encode()).of(15) == 4
    credits.forget_below(11)
    assert list(credits.segments(11, 30)) == [(20, 4), (30, 0)]
    credits.forget_below(21)
    assert not credits


ID = {"Nats-Msg-Id": "one"}


def is_duplicate(world: World, **header: str) -> bool:
    return bool(world.put(b"s.a", b"again", header or ID).get("duplicate"))


@pytest.mark.parametrize("years", [30, -2])
@pytest.mark.parametrize("max_age", [0, 10 * HOUR_NS])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_jump_does_not_empty_the_duplicate_window(tmp_path: Path, years: int, max_age: int, restarted: bool) -> None:
    world = World(tmp_path)
    world.create(max_age=max_age, duplicate_window=HOUR_NS)
    world.put(b"s.a", b"first", ID)
    wait(world, 10)
    world.clock.jump(years * YEAR_S)
    if restarted:
        wait(world, 1)  # the jump is noticed
        world = world.restart()
    wait(world, 20)
    assert is_duplicate(world)
    wait(world, 40)
    assert not is_duplicate(world)
    assert is_duplicate(world)


def test_there_and_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(duplicate_window=HOUR_NS)
    world.put(b"s.a", b"first", ID)
    world.clock.jump(YEAR_S)
    wait(world, 1)
    world.put(b"s.a", b"second", {"Nats-Msg-Id": "two"})
    world.clock.jump(-YEAR_S)
    wait(world, 1)
    world.put(b"s.a", b"third", {"Nats-Msg-Id": "three"})
    for _ in range(2):
        for name in ("one", "two", "three"):
            assert is_duplicate(world, **{"Nats-Msg-Id": name}), name
        world = world.restart()


def test_a_leap_while_the_server_was_off_does_not_empty_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(duplicate_window=HOUR_NS)
    world.put(b"s.a", b"first", ID)
    wait(world, 1)
    world.clock.synchronized = False
    world.js.stop()
    world.store.close()
    world.clock.jump(14 * YEAR_S)
    world = World(tmp_path, clock=world.clock)
    assert is_duplicate(world)
