"""A clock that leaps between two runs: nothing expires by that until the clock is known to be right."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.turn import kernel_clock
from eyot_wire.go.time import ns_to_rfc3339
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.fixture import Fixture

S = 1_000_000_000
YEAR_S = 365 * 86_400
HOUR_NS = 3600 * S


@pytest.fixture(params=["plain", "with TTLs"])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Fixture:
    """An hour for each message; one is half an hour old, and no time server is in reach."""
    fixture = Fixture(tmp_path)
    fixture.clock.synchronized = False
    fixture.create(max_age=HOUR_NS, allow_msg_ttl=request.param != "plain")
    fixture.put(b"s.a", b"one", {"Nats-TTL": "1h"} if request.param != "plain" else b"")
    wait(fixture, 30)
    return fixture


def payloads(fixture: Fixture) -> list[bytes]:
    return [payload for _, payload in fixture.held()]


def wait(fixture: Fixture, minutes: int) -> None:
    for _ in range(minutes):
        fixture.advance(60)


def again(fixture: Fixture, years: float) -> Fixture:
    """Off, and on again with a clock that leapt."""
    fixture.js.stop()
    fixture.store.close()
    fixture.clock.jump(years * YEAR_S)
    return Fixture(fixture.path, options=fixture.js.options, clock=fixture.clock)


@pytest.mark.parametrize("years", [14, 0.1, -50])
def test_a_leap_between_two_runs_is_no_age(fixture: Fixture, years: float) -> None:
    fixture = again(fixture, years)
    wait(fixture, 25)
    fixture.put(b"s.a", b"two")
    assert payloads(fixture) == [b"one", b"two"]
    wait(fixture, 10)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 60)
    assert payloads(fixture) == []


@pytest.mark.parametrize("years", [14, -50])
def test_nor_one_there_and_back(fixture: Fixture, years: float) -> None:
    """It starts in 2040 (or 1975) once, and is right again the next time."""
    fixture = again(fixture, years)
    wait(fixture, 10)
    fixture.put(b"s.a", b"two")
    fixture.clock.synchronized = True
    fixture = again(fixture, -years)
    wait(fixture, 15)
    assert payloads(fixture) == [b"one", b"two"]
    wait(fixture, 6)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 30)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 10)
    assert payloads(fixture) == []


@pytest.mark.parametrize("years", [14, 0.1])
def test_nor_when_the_power_goes_before_that_is_on_flash(fixture: Fixture, years: float) -> None:
    fixture = again(fixture, years).crash()
    wait(fixture, 25)
    assert payloads(fixture) == [b"one"]
    wait(fixture, 10)
    assert payloads(fixture) == []


@pytest.mark.parametrize("years", [14, -50])
def test_a_clock_that_is_set_right_while_it_runs(fixture: Fixture, years: float) -> None:
    fixture = again(fixture, years)
    wait(fixture, 10)
    fixture.put(b"s.a", b"two")
    fixture.clock.jump(-years * YEAR_S)
    fixture.clock.synchronized = True
    wait(fixture, 15)
    assert payloads(fixture) == [b"one", b"two"]
    wait(fixture, 6)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 41)
    assert payloads(fixture) == []


def test_time_that_the_server_was_off_counts_when_the_clock_is_right(fixture: Fixture) -> None:
    fixture = again(fixture, 0.01)
    wait(fixture, 10)
    fixture.put(b"s.a", b"two")
    assert payloads(fixture) == [b"one", b"two"]
    fixture.clock.synchronized = True
    wait(fixture, 2)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 49)
    assert payloads(fixture) == [b"two"]
    wait(fixture, 11)
    assert payloads(fixture) == []


def test_or_when_a_linked_server_says_so(fixture: Fixture) -> None:
    fixture = again(fixture, 0.01)
    fixture.js.server.wall_clock.heard(ns_to_rfc3339(fixture.clock.now_ns() + 10 * YEAR_S * S))
    wait(fixture, 2)
    assert payloads(fixture) == [b"one"]
    fixture.js.server.wall_clock.heard("no time")
    fixture.js.server.wall_clock.heard(ns_to_rfc3339(fixture.clock.now_ns() + 60 * S))
    fixture.commit()
    fixture = fixture.restart()  # it is on flash
    wait(fixture, 2)
    assert payloads(fixture) == []


def test_a_time_to_live_counts_the_time_off_too(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.clock.synchronized = False
    fixture.create(allow_msg_ttl=True)
    fixture.put(b"s.a", b"an hour", {"Nats-TTL": "1h"})
    fixture = again(fixture, 0.01)
    wait(fixture, 2)
    assert payloads(fixture) == [b"an hour"]
    fixture.clock.synchronized = True
    wait(fixture, 2)
    assert payloads(fixture) == []


def test_a_clock_that_a_time_server_set_is_believed_at_once(fixture: Fixture) -> None:
    fixture.clock.synchronized = True
    fixture = again(fixture, 0.01)
    wait(fixture, 1)
    assert payloads(fixture) == []


def test_a_quiet_stream_does_not_make_a_restart_a_leap(fixture: Fixture) -> None:
    wait(fixture, 20)
    fixture = again(fixture, 0)
    wait(fixture, 11)
    assert payloads(fixture) == []


def test_a_short_time_off_is_believed(fixture: Fixture) -> None:
    fixture = again(fixture, 1800 / YEAR_S)
    wait(fixture, 2)
    assert payloads(fixture) == []


def test_a_store_whose_clock_file_cannot_be_written_knows_its_messages(fixture: Fixture, tmp_path: Path) -> None:
    file = tmp_path / "clock"
    fixture.js.stop()
    fixture.store.close()
    file.unlink()
    fixture.clock.jump(14 * YEAR_S)
    fixture = Fixture(fixture.path, options=fixture.js.options, clock=fixture.clock)
    wait(fixture, 20)
    assert payloads(fixture) == [b"one"]


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
    monkeypatch.setattr("eyot_daemon.jetstream.downstream.downstream._peer_of", lambda *_: (peer, "hub", False))
    fixture = ConsumerFixture(tmp_path)
    fixture.clock.synchronized = False
    fixture.create()
    fixture.fill(1)
    fixture.js.stop()
    fixture.store.close()
    fixture.clock.jump(0.01 * YEAR_S)
    fixture = ConsumerFixture(fixture.path, options=fixture.js.options, clock=fixture.clock)
    assert fixture.js.server.wall_clock.trust.is_doubted
    now = ns_to_rfc3339(fixture.clock.now_ns() + 5 * S)
    fixture.listen(b"$JS.S.hub")
    fixture.add_ephemeral(**COPY, deliver_subject="$JS.S.hub", metadata={"eyot.now": now})
    fixture.commit()
    assert fixture.js.server.wall_clock.trust.is_doubted is (peer == "this server")
