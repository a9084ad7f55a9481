"""Consumers wait for removals that are under way: what is removed comes back when that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.consumer.removal_wait import WAIT_S_MAX, RemovalWait
from support.jetstream.consumers import Box, ConsumerFixture
from support.jetstream.full_disk import fill_disk


def begin(fixture: ConsumerFixture, kind: str) -> Box:
    """A consumer begins to read, in the same turn in which what it would get first is removed."""
    box = Box()
    box.sub = fixture.account.subscribe(b"deliver", box, sid=b"7")
    if kind == "pull":
        request = b'{"batch":10,"expires":60000000000}'
        fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"deliver", b"", request, origin=fixture.client)
    fixture.broker.flush()
    return box


@pytest.mark.parametrize("kind", ["pull", "push"])
@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
@pytest.mark.parametrize("way", ["limit", "purge", "delete"])
def test_what_was_to_go_is_delivered_when_the_disk_is_full(tmp_path: Path, kind: str, retention: str, way: str) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(max_msgs=3, retention=retention)
    config: dict[str, Any] = {"deliver_subject": "deliver"} if kind == "push" else {}
    fixture.add("C", ack_policy="explicit", **config)
    fixture.fill(3)
    with pytest.MonkeyPatch.context() as during:
        fill_disk(fixture, during)
        if way == "limit":
            fixture.publish(b"s.refused")
        elif way == "purge":
            fixture.publish(b"$JS.API.STREAM.PURGE.S", b'{"keep":1}')
        else:
            fixture.publish(b"$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1}')
        fixture.broker.flush()
        box = begin(fixture, kind)
        assert box.seqs == []
        fixture.commit()
    assert box.seqs == [1, 2, 3]


@pytest.mark.parametrize("kind", ["pull", "push"])
def test_what_is_gone_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(max_msgs=3)
    fixture.add("C", ack_policy="explicit", **({"deliver_subject": "deliver"} if kind == "push" else {}))
    fixture.fill(3)
    fixture.publish(b"s.x")
    fixture.broker.flush()
    box = begin(fixture, kind)
    assert box.seqs == []
    fixture.commit()
    assert box.seqs == [2, 3, 4]


def test_what_waits_to_be_redelivered_is_not_forgotten_while_it_is_removed(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fixture.add("C", ack_policy="explicit")
    fixture.fill(3)
    first = fixture.pull(batch=3)
    with pytest.MonkeyPatch.context() as during:
        fill_disk(fixture, during)
        fixture.publish(b"$JS.API.STREAM.PURGE.S")
        for got in first.messages:
            fixture.answer_to(got, b"-NAK")
        fixture.broker.flush()
        box = begin(fixture, "pull")
        fixture.commit()
    assert box.seqs == [1, 2, 3]


@pytest.mark.parametrize("why", ["removal", "pause"])
def test_a_consumer_that_waits_sleeps(tmp_path: Path, why: str) -> None:
    """No timer is set for what is past, which would run again and again."""
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    box = fixture.listen(b"deliver")
    fixture.add("C", deliver_subject="deliver", ack_policy="none", rate_limit_bps=8000)
    fixture.fill(100, size=1000)
    assert 0 < len(box.seqs) < 100
    if why == "pause":
        fixture.request("CONSUMER.PAUSE.S.C", {"pause_until": "2040-01-01T00:00:00Z"})
    else:
        fixture.publish(b"$JS.API.STREAM.PURGE.S")
        fixture.broker.flush()
    turns, timers = 0, fixture.broker.timers
    for _ in range(10):
        fixture.clock.advance(0.5)
        while turns < 1000 and timers.run_due(fixture.clock.monotonic(), limit=1):
            fixture.broker.flush()
            turns += 1
    assert turns <= 20


def test_a_stream_that_is_always_at_its_limit_stops_no_consumer() -> None:
    """After each removal that is on flash a consumer delivers once; also when the disk does not answer for long."""
    wait = RemovalWait(3, 1.0)
    assert [wait.holds(3, 1.0), wait.holds(4, 2.0), wait.holds(4, 2.0)] == [True, False, True]
    late = 2.0 + WAIT_S_MAX
    assert [wait.holds(4, late - 0.1), wait.holds(4, late), wait.holds(4, late)] == [True, False, True]
