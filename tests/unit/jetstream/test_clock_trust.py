"""A clock that leaps between two runs: nothing expires by that until the clock is known to be right."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.turn import kernel_clock
from eyot_wire.go.time import ns_to_rfc3339
from support.js_consumers import ConsumerWorld
from support.js_fixture import World

S = 1_000_000_000
YEAR_S = 365 * 86_400
HOUR_NS = 3600 * S


@pytest.fixture(params=["plain", "with TTLs"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An hour for each message; one is half an hour old, and no time server is in reach."""
    world = World(tmp_path)
    world.clock.synchronized = False
    world.create(max_age=HOUR_NS, allow_msg_ttl=request.param != "plain")
    world.put(b"s.a", b"one", {"Nats-TTL": "1h"} if request.param != "plain" else b"")
    wait(world, 30)
    return world


def payloads(world: World) -> list[bytes]:
    return [payload for _, payload in world.held()]


def wait(world: World, minutes: int) -> None:
    for _ in range(minutes):
        world.advance(60)


def again(world: World, years: float) -> World:
    """Off, and on again with a clock that leapt."""
    world.js.stop()
    world.store.close()
    world.clock.jump(years * YEAR_S)
    return World(world.path, options=world.js.options, clock=world.clock)


@pytest.mark.parametrize("years", [14, 0.1, -50])
def test_a_leap_between_two_runs_is_no_age(world: World, years: float) -> None:
    world = again(world, years)
    wait(world, 25)
    world.put(b"s.a", b"two")
    assert payloads(world) == [b"one", b"two"]
    wait(world, 10)
    assert payloads(world) == [b"two"]
    wait(world, 60)
    assert payloads(world) == []


@pytest.mark.parametrize("years", [14, -50])
def test_nor_one_there_and_back(world: World, years: float) -> None:
    """It starts in 2040 (or 1975) once, and is right again the next time."""
    world = again(world, years)
    wait(world, 10)
    world.put(b"s.a", b"two")
    world.clock.synchronized = True
    world = again(world, -years)
    wait(world, 15)
    assert payloads(world) == [b"one", b"two"]
    wait(world, 6)
    assert payloads(world) == [b"two"]
    wait(world, 30)
    assert payloads(world) == [b"two"]
    wait(world, 10)
    assert payloads(world) == []


@pytest.mark.parametrize("years", [14, -50])
def test_a_clock_that_is_set_right_while_it_runs(world: World, years: float) -> None:
    world = again(world, years)
    wait(world, 10)
    world.put(b"s.a", b"two")
    world.clock.jump(-years * YEAR_S)
    world.clock.synchronized = True
    wait(world, 15)
    assert payloads(world) == [b"one", b"two"]
    wait(world, 6)
    assert payloads(world) == [b"two"]
    wait(world, 41)
    assert payloads(world) == []


def test_time_that_the_server_was_off_counts_when_the_clock_is_right(world: World) -> None:
    world = again(world, 0.01)
    wait(world, 10)
    world.put(b"s.a", b"two")
    assert payloads(world) == [b"one", b"two"]
    world.clock.synchronized = True
    wait(world, 2)
    assert payloads(world) == [b"two"]
    wait(world, 49)
    assert payloads(world) == [b"two"]
    wait(world, 11)
    assert payloads(world) == []


def test_or_when_a_linked_server_says_so(world: World) -> None:
    world = again(world, 0.01)
    world.js.heard_time(ns_to_rfc3339(world.clock.now_ns() + 10 * YEAR_S * S))
    wait(world, 2)
    assert payloads(world) == [b"one"]
    world.js.heard_time("no time")
    world.js.heard_time(ns_to_rfc3339(world.clock.now_ns() + 60 * S))
    wait(world, 2)
    assert payloads(world) == []


def test_a_clock_that_a_time_server_set_is_believed_at_once(world: World) -> None:
    world.clock.synchronized = True
    world = again(world, 0.01)
    wait(world, 1)
    assert payloads(world) == []


def test_a_quiet_stream_does_not_make_a_restart_a_leap(world: World) -> None:
    wait(world, 20)
    world = again(world, 0)
    wait(world, 11)
    assert payloads(world) == []


def test_a_short_time_off_is_believed(world: World) -> None:
    world = again(world, 1800 / YEAR_S)
    wait(world, 2)
    assert payloads(world) == []


def test_a_store_whose_clock_file_cannot_be_written_knows_its_messages(world: World, tmp_path: Path) -> None:
    file = tmp_path / "clock"
    world.js.stop()
    world.store.close()
    file.unlink()
    world.clock.jump(14 * YEAR_S)
    world = World(world.path, options=world.js.options, clock=world.clock)
    wait(world, 20)
    assert payloads(world) == [b"one"]


def test_the_kernel_vouches_for_its_own_time_only() -> None:
    now_ns = time.time_ns()
    assert kernel_clock._kernel_clock()[1] == pytest.approx(now_ns // S, abs=2)
    assert not kernel_clock.is_synchronized(now_ns + 14 * YEAR_S * S)


@pytest.mark.parametrize(("state", "file", "right"), [(0, False, True), (5, False, False), (5, True, True)])
def test_what_the_kernel_and_timesyncd_say(
    state: int, file: bool, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "synchronized"
    if file:
        flag.touch()
    monkeypatch.setattr(kernel_clock, "_TIMESYNC", flag)
    monkeypatch.setattr(kernel_clock, "_kernel_clock", lambda: (state, 1000))
    assert kernel_clock.is_synchronized(1000 * S) is right
    assert os.path.exists(flag) is file


COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


@pytest.mark.parametrize("peer", ["hub", "this server"])
def test_a_hub_tells_the_time_with_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str) -> None:
    """Whoever asks from behind a link is believed, not a client of this server."""
    monkeypatch.setattr("eyot_daemon.jetstream.downstream.tracker._peer_of", lambda *_: (peer, "hub", False))
    world = ConsumerWorld(tmp_path)
    world.clock.synchronized = False
    world.create()
    world.fill(1)
    world.js.stop()
    world.store.close()
    world.clock.jump(0.01 * YEAR_S)
    world = ConsumerWorld(world.path, options=world.js.options, clock=world.clock)
    assert world.js.clock_trust.is_doubted
    now = ns_to_rfc3339(world.clock.now_ns() + 5 * S)
    world.listen(b"$JS.S.hub")
    world.add_ephemeral(**COPY, deliver_subject="$JS.S.hub", metadata={"eyot.now": now})
    world.commit()
    assert world.js.clock_trust.is_doubted is (peer == "this server")
