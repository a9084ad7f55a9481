"""A wall clock that jumps: nothing expires by it, and what is stored expires when its time has passed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from eyot_daemon.jetstream.wall_clock import JUMPS_MAX, ClockCredits, ClockWatch
from support.jetstream.fixture import Fixture
from support.manual_clock import ManualClock

S = 1_000_000_000
YEAR_S = 365 * 86_400
HOUR_NS = 3600 * S


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create(max_age=HOUR_NS)
    return fixture


def payloads(fixture: Fixture) -> list[bytes]:
    return [payload for _, payload in fixture.held()]


def wait(fixture: Fixture, minutes: int) -> None:
    for _ in range(minutes):
        fixture.advance(60)


@pytest.mark.parametrize("years", [30, -2])
def test_a_jump_is_no_age(fixture: Fixture, years: int) -> None:
    fixture.put(b"s.a", b"before")
    wait(fixture, 30)
    fixture.clock.jump(years * YEAR_S)
    wait(fixture, 20)
    fixture.put(b"s.a", b"after")
    assert payloads(fixture) == [b"before", b"after"]
    wait(fixture, 12)
    assert payloads(fixture) == [b"after"]
    wait(fixture, 40)
    assert payloads(fixture) == [b"after"]
    wait(fixture, 12)
    assert payloads(fixture) == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("years", [30, -2])
def test_an_age_limit_that_comes_later_knows_the_jumps_before_it(tmp_path: Path, years: int, restarts: bool) -> None:
    fixture = Fixture(tmp_path)
    fixture.create()
    fixture.put(b"s.a", b"before")
    wait(fixture, 30)
    fixture.clock.jump(years * YEAR_S)
    wait(fixture, 1)
    fixture.put(b"s.a", b"after")
    if restarts:
        fixture = fixture.restart()
    config = {"name": "S", "subjects": ["s.>"], "max_age": HOUR_NS}
    assert "error" not in fixture.request("STREAM.UPDATE.S", config)
    wait(fixture, 27)
    assert payloads(fixture) == [b"before", b"after"]
    wait(fixture, 5)
    assert payloads(fixture) == [b"after"]
    wait(fixture, 29)
    assert payloads(fixture) == []


def test_to_the_future_and_back(fixture: Fixture) -> None:
    fixture.put(b"s.a", b"one")
    fixture.clock.jump(YEAR_S)
    wait(fixture, 10)
    fixture.put(b"s.a", b"two")
    fixture.clock.jump(-YEAR_S)
    wait(fixture, 10)
    fixture.put(b"s.a", b"three")
    wait(fixture, 38)
    assert payloads(fixture) == [b"one", b"two", b"three"]
    wait(fixture, 4)
    assert payloads(fixture) == [b"two", b"three"]
    wait(fixture, 10)
    assert payloads(fixture) == [b"three"]
    wait(fixture, 10)
    assert payloads(fixture) == []


def test_a_restart_remembers_the_jump(fixture: Fixture) -> None:
    fixture.put(b"s.a", b"before")
    fixture.clock.jump(YEAR_S)
    wait(fixture, 1)
    fixture = fixture.restart()
    wait(fixture, 30)
    assert payloads(fixture) == [b"before"]
    wait(fixture, 31)
    assert payloads(fixture) == []


@pytest.mark.parametrize("minutes", [30, 59, 600])
def test_a_power_cut_before_the_jump_is_on_flash(fixture: Fixture, minutes: int) -> None:
    """Its correction was staged and is lost; that it jumped is known."""
    fixture.put(b"s.a", b"before")
    wait(fixture, 50)
    fixture.clock.jump(minutes * 60)
    fixture.js.server.wall_clock.look()
    fixture = fixture.crash()
    wait(fixture, 9)
    assert payloads(fixture) == [b"before"]
    fixture = fixture.restart()
    assert payloads(fixture) == [b"before"]
    wait(fixture, 2)
    assert payloads(fixture) == []


def test_a_power_cut_after_it_is_on_flash_corrects_once(fixture: Fixture) -> None:
    fixture.put(b"s.a", b"before")
    wait(fixture, 50)
    fixture.clock.jump(1800)
    wait(fixture, 1)
    fixture = fixture.crash()
    wait(fixture, 8)
    assert payloads(fixture) == [b"before"]
    wait(fixture, 2)
    assert payloads(fixture) == []


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("stored", [False, True], ids=["quiet", "stored meanwhile"])
def test_a_power_cut_right_after_a_clock_that_was_wrong_for_a_moment(
    fixture: Fixture, noticed: bool, stored: bool
) -> None:
    """It was set to 1976 and back: the first jump is on flash, the second is not, or nobody has looked."""
    fixture.put(b"s.a", b"before")
    wait(fixture, 10)
    fixture.clock.jump(-50 * YEAR_S)
    wait(fixture, 1)
    if stored:
        fixture.put(b"s.a", b"meanwhile")
    fixture.clock.jump(50 * YEAR_S)
    if noticed:
        fixture.js.server.wall_clock.look()
    fixture = fixture.crash()
    wait(fixture, 45)
    assert payloads(fixture) == [b"before"] + [b"meanwhile"] * stored
    wait(fixture, 20)
    assert payloads(fixture) == []


def test_a_jump_back_that_follows_before_the_first_is_settled(fixture: Fixture) -> None:
    """A stream that waits for the disk keeps a jump unsettled: the next one must not cancel it in the record."""
    trust = fixture.js.server.wall_clock.trust
    fixture.put(b"s.a", b"before")
    trust.jumped(-50 * YEAR_S * S)
    trust.jumped(50 * YEAR_S * S)
    assert f"jumped {50 * YEAR_S * S}" in (fixture.path / "clock").read_text()
    trust.settled(-50 * YEAR_S * S)
    assert f"jumped {50 * YEAR_S * S}" in (fixture.path / "clock").read_text()
    trust.settled(50 * YEAR_S * S)
    assert (fixture.path / "clock").read_text() == ""


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_with_a_time_to_live(tmp_path: Path, restarts: bool) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(max_age=2 * HOUR_NS, allow_msg_ttl=True)
    fixture.put(b"s.a", b"an hour", {"Nats-TTL": "1h"})
    fixture.put(b"s.a", b"two")
    fixture.clock.jump(YEAR_S)
    wait(fixture, 1)
    if restarts:
        fixture = fixture.restart()
    wait(fixture, 50)
    assert payloads(fixture) == [b"an hour", b"two"]
    wait(fixture, 11)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 61)
    assert payloads(fixture) == []


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


def test_very_many_jumps_let_no_message_leave_early() -> None:
    chance = Random(7)
    credits, jumps = ClockCredits(), [(seq, chance.randint(-100, 100)) for seq in range(1, 2 * JUMPS_MAX)]
    for jump in jumps:
        credits.jumped(*jump)
    assert len(list(credits.segments(1, 3 * JUMPS_MAX))) == JUMPS_MAX + 1
    for seq in range(1, 2 * JUMPS_MAX):
        exact = sum(ns for last_seq, ns in jumps if seq <= last_seq)
        assert credits.of(seq) == exact if seq > JUMPS_MAX else credits.of(seq) >= exact


ID = {"Nats-Msg-Id": "one"}


def is_duplicate(fixture: Fixture, **header: str) -> bool:
    return bool(fixture.put(b"s.a", b"again", header or ID).get("duplicate"))


@pytest.mark.parametrize("years", [30, -2])
@pytest.mark.parametrize("max_age", [0, 10 * HOUR_NS])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_jump_does_not_empty_the_duplicate_window(tmp_path: Path, years: int, max_age: int, restarted: bool) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(max_age=max_age, duplicate_window=HOUR_NS)
    fixture.put(b"s.a", b"first", ID)
    wait(fixture, 10)
    fixture.clock.jump(years * YEAR_S)
    if restarted:
        wait(fixture, 1)  # the jump is noticed
        fixture = fixture.restart()
    wait(fixture, 20)
    assert is_duplicate(fixture)
    wait(fixture, 40)
    assert not is_duplicate(fixture)
    assert is_duplicate(fixture)


def test_there_and_back(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(duplicate_window=HOUR_NS)
    fixture.put(b"s.a", b"first", ID)
    fixture.clock.jump(YEAR_S)
    wait(fixture, 1)
    fixture.put(b"s.a", b"second", {"Nats-Msg-Id": "two"})
    fixture.clock.jump(-YEAR_S)
    wait(fixture, 1)
    fixture.put(b"s.a", b"third", {"Nats-Msg-Id": "three"})
    for _ in range(2):
        for name in ("one", "two", "three"):
            assert is_duplicate(fixture, **{"Nats-Msg-Id": name}), name
        fixture = fixture.restart()


def test_a_leap_while_the_server_was_off_does_not_empty_it(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(duplicate_window=HOUR_NS)
    fixture.put(b"s.a", b"first", ID)
    wait(fixture, 1)
    fixture.clock.synchronized = False
    fixture.js.stop()
    fixture.store.close()
    fixture.clock.jump(14 * YEAR_S)
    fixture = Fixture(tmp_path, clock=fixture.clock)
    assert is_duplicate(fixture)
