"""Requests of the JetStream API that come faster than they are answered: in slices of turns, in order, within a bound, and nobody else waits."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.api import request_queue
from eyot_daemon.jetstream.api.request_queue import HELD_FROM, SLICE_S, Queued, RequestQueue
from support.clients.destinations import Recorder
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.schemas import check_answer
from support.manual_clock import ManualClock

#: How many requests are answered in a slice: the clock moves on by a part of it whenever it is read.
OF_A_SLICE = 4


class PassingClock(ManualClock):
    """Each look at the clock takes its time."""

    looking = False

    def monotonic(self) -> float:
        if self.looking:
            self.advance(SLICE_S / OF_A_SLICE)
        return super().monotonic()


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


@pytest.fixture
def fixture(tmp_path: Path, clock: PassingClock) -> ConsumerFixture:
    made = ConsumerFixture(tmp_path / "store", clock=clock)
    made.create()
    made.commit()
    return made


def ask(fixture: ConsumerFixture, count: int) -> list[bytes]:
    """Make requests in one turn; return their inboxes."""
    return [fixture.publish(b"$JS.API.STREAM.INFO.S") for _ in range(count)]


def answered(fixture: ConsumerFixture) -> list[bytes]:
    return [got.subject for got in fixture.inbox.got if b"stream_info_response" in got.payload]


def run_later_turns(fixture: ConsumerFixture, clock: PassingClock, most: int = 10_000) -> int:
    """Run what was left for later turns, until nothing is due; return how many turns that took."""
    turns = 0
    while turns < most:
        due = fixture.broker.timers.run_due(ManualClock.monotonic(clock))
        fixture.broker.flush()
        if not due:
            break
        turns += 1
    return turns


def test_a_turn_answers_a_slice_and_later_turns_the_rest_in_order(
    fixture: ConsumerFixture, clock: PassingClock
) -> None:
    clock.looking = True
    asked = ask(fixture, 100)
    fixture.broker.flush()
    first = len(answered(fixture))
    assert 0 < first <= OF_A_SLICE + 1
    before = fixture.inbox.got[:]
    fixture.account.publish(b"_INBOX.other", payload=b"of another client")
    fixture.broker.flush()  # a turn of somebody else does not answer any
    assert [got.payload for got in fixture.inbox.got[len(before) :]] == [b"of another client"]
    assert run_later_turns(fixture, clock) >= (100 - first) // (OF_A_SLICE + 1)
    assert answered(fixture) == asked


def test_what_a_slice_has_room_for_is_answered_in_its_own_turn(fixture: ConsumerFixture) -> None:
    asked = ask(fixture, 3 * HELD_FROM)
    fixture.broker.flush()
    assert answered(fixture) == asked
    assert fixture.broker.take_gate() is None


def test_requests_that_come_meanwhile_wait_their_turn(fixture: ConsumerFixture, clock: PassingClock) -> None:
    clock.looking = True
    asked = ask(fixture, 50)
    fixture.broker.flush()
    asked += ask(fixture, 50)
    fixture.broker.flush()
    run_later_turns(fixture, clock)
    assert answered(fixture) == asked


def test_who_asks_for_more_is_not_read_until_few_wait(fixture: ConsumerFixture, clock: PassingClock) -> None:
    clock.looking = True
    asked = ask(fixture, HELD_FROM + 100)
    fixture.broker.flush()
    gate = fixture.broker.take_gate()
    assert gate is not None
    resumed: list[int] = []
    gate.wait(lambda: resumed.append(len(answered(fixture))), 3600.0)
    asked += ask(fixture, 1)
    fixture.broker.flush()
    assert fixture.broker.take_gate() is gate  # also for requests that are only added
    run_later_turns(fixture, clock)
    assert len(resumed) == 1
    assert 100 <= resumed[0] <= 102 + OF_A_SLICE
    assert answered(fixture) == asked


@pytest.mark.parametrize("bound", ["requests", "bytes"])
def test_what_finds_no_room_is_counted_and_told(
    tmp_path: Path, clock: PassingClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    room = 50
    options = JetStreamOptions(request_queue_limit=room if bound == "requests" else 0)
    fixture = ConsumerFixture(tmp_path / "store", clock=clock, options=options)
    fixture.create()
    if bound == "bytes":
        # `publish` numbers its inboxes: from 10 on they are of one length
        ask(fixture, 10)
        fixture.commit()
        fixture.inbox.got.clear()
        one = request_queue._size((b"$JS.API.STREAM.INFO.S", b"_INBOX.12", b"", b"", None))
        monkeypatch.setattr(request_queue, "BYTES_MAX", room * one)
    heard = Recorder()
    system = fixture.broker.system_account
    assert system is not None
    system.subscribe(b"$JS.EVENT.ADVISORY.API.LIMIT_REACHED", heard)
    total, errors = fixture.jsa.api_total, fixture.jsa.api_errors
    asked = ask(fixture, 80)
    with caplog.at_level(logging.WARNING, logger="eyot.jetstream"):
        fixture.broker.flush()
        run_later_turns(fixture, clock)
    assert answered(fixture) == asked[:room]
    assert fixture.jsa.api_errors - errors == 30
    assert fixture.jsa.api_total - total == 80
    [told] = [check_answer(json.loads(got.payload)) for got in heard.got]
    assert told["dropped"] == 30
    assert [record.message for record in caplog.records] == [
        "JetStream API queue limit reached, 30 requests of account $G dropped"
    ]
    assert len(ask(fixture, 1)) == 1
    fixture.broker.flush()
    assert len(answered(fixture)) == room + 1  # there is room again


def test_a_request_that_fails_does_not_keep_the_others(fixture: ConsumerFixture, clock: PassingClock) -> None:
    done: list[bytes] = []

    def answer(queued: Queued) -> None:
        if queued[0] == b"bad":
            raise RuntimeError("no answer")
        done.append(queued[0])

    def dropped(count: int) -> Any:
        raise AssertionError(count)

    queue = RequestQueue(fixture.broker, 0, answer, dropped)
    assert queue.add((b"one", b"", b"", b"", None))
    assert not queue.add((b"bad", b"", b"", b"", None))
    assert not queue.add((b"two", b"", b"", b"", None))
    with pytest.raises(RuntimeError):
        queue.run()
    assert done == [b"one"]
    run_later_turns(fixture, clock)
    assert done == [b"one", b"two"]
    assert not len(queue)
