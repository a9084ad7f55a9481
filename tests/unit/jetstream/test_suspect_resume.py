"""A downstream that requests confirmed messages must repeat its request before it receives them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.jetstream.consumers import Box, ConsumerFixture

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}
OBJECTIONABLE = b"Nats-Last-Consumer: 4611686018427387904"


def asking(fixture: ConsumerFixture, deliver: str, after: int) -> Box:
    box = fixture.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    fixture.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start})
    fixture.commit()
    return box


def confirmed(fixture: ConsumerFixture) -> int:
    (status,) = fixture.stream("S").downstream.statuses()
    return status.confirmed_seq


def told(box: Box) -> bool:
    return any(OBJECTIONABLE in got.header for got in box.got)


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerFixture:
    """A source at a cluster has confirmed 5 of 5 messages, and is gone."""
    return cluster_or_server(tmp_path, monkeypatch, is_cluster=True)


def cluster_or_server(path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cluster: bool) -> ConsumerFixture:
    monkeypatch.setattr("eyot_daemon.jetstream.downstream.downstream._peer_of", lambda *_: ("HUBS", "hub", is_cluster))
    made = ConsumerFixture(path)
    made.create()
    box = asking(made, "$JS.S.first", 0)
    made.fill(5)
    confirm(made, box)
    assert confirmed(made) == 5
    made.leave(box)
    return made


def confirm(fixture: ConsumerFixture, box: Box) -> None:
    fixture.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.commit()


def test_a_leader_that_had_not_looked_where_it_stands_gets_nothing_twice(fixture: ConsumerFixture) -> None:
    hasty = asking(fixture, "$JS.S.hasty", 0)
    fixture.advance(0.9, 0.1)
    assert not hasty.messages
    assert not told(hasty)
    assert confirmed(fixture) == 0
    fixture.advance(0.5, 0.1)
    assert not hasty.messages
    assert told(hasty)
    fixture.leave(hasty)
    right = asking(fixture, "$JS.S.right", 5)
    assert confirmed(fixture) == 5
    fixture.fill(2)
    assert right.seqs == [6, 7]
    assert confirmed(fixture) == 5


def test_who_asks_again_for_the_same_gets_it(fixture: ConsumerFixture) -> None:
    emptied = asking(fixture, "$JS.S.once", 0)
    fixture.advance(1.5, 0.5)
    fixture.leave(emptied)
    again = asking(fixture, "$JS.S.twice", 0)
    assert again.seqs == [1, 2, 3, 4, 5]
    assert confirmed(fixture) == 0


def test_who_does_not_ask_again_gets_it_late(fixture: ConsumerFixture) -> None:
    deaf = asking(fixture, "$JS.S.deaf", 2)
    fixture.advance(5.5, 0.5)
    assert not deaf.messages
    fixture.advance(1.0, 0.5)
    assert deaf.seqs == [3, 4, 5]
    assert confirmed(fixture) == 2


def test_who_was_right_is_doubted_again_the_next_time(fixture: ConsumerFixture) -> None:
    fixture.leave(asking(fixture, "$JS.S.hasty", 0))
    fixture.leave(asking(fixture, "$JS.S.right", 5))
    assert not asking(fixture, "$JS.S.third", 0).messages


def test_a_server_alone_knows_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = cluster_or_server(tmp_path, monkeypatch, is_cluster=False)
    assert asking(fixture, "$JS.S.again", 0).seqs == [1, 2, 3, 4, 5]


def test_mirrors_know_where_they_stand(fixture: ConsumerFixture) -> None:
    first = asking(fixture, "$JS.M.first", 0)
    confirm(fixture, first)
    fixture.leave(first)
    assert asking(fixture, "$JS.M.again", 0).seqs == [1, 2, 3, 4, 5]
