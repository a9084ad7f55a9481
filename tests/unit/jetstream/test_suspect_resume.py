"""A copy that asks for what it has confirmed is asked once more before it gets everything again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from support.js_consumers import Box, ConsumerWorld

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}
OBJECTIONABLE = b"Nats-Last-Consumer: 4611686018427387904"


def asking(world: ConsumerWorld, deliver: str, after: int) -> Box:
    box = world.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    world.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start})
    world.commit()
    return box


def confirmed(world: ConsumerWorld) -> int:
    (status,) = downstreams_of(world.stream("S")).statuses()
    return status.confirmed_seq


def told(box: Box) -> bool:
    return any(OBJECTIONABLE in got.header for got in box.got)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    """A source at a cluster has confirmed 5 of 5 messages, and is gone."""
    return cluster_or_server(tmp_path, monkeypatch, is_cluster=True)


def cluster_or_server(path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cluster: bool) -> ConsumerWorld:
    monkeypatch.setattr("eyot_daemon.jetstream.downstream.tracker._peer_of", lambda *_: ("HUBS", "hub", is_cluster))
    made = ConsumerWorld(path)
    made.create()
    box = asking(made, "$JS.S.first", 0)
    made.fill(5)
    confirm(made, box)
    assert confirmed(made) == 5
    made.leave(box)
    return made


def confirm(world: ConsumerWorld, box: Box) -> None:
    world.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        world.account.publish(got.reply, origin=world.client)
    world.commit()


def test_a_leader_that_had_not_looked_where_it_stands_gets_nothing_twice(world: ConsumerWorld) -> None:
    hasty = asking(world, "$JS.S.hasty", 0)
    world.advance(0.9, 0.1)
    assert not hasty.messages
    assert not told(hasty)
    assert confirmed(world) == 0
    world.advance(0.5, 0.1)
    assert not hasty.messages
    assert told(hasty)
    world.leave(hasty)
    right = asking(world, "$JS.S.right", 5)
    assert confirmed(world) == 5
    world.fill(2)
    assert right.seqs == [6, 7]
    assert confirmed(world) == 5


def test_who_asks_again_for_the_same_gets_it(world: ConsumerWorld) -> None:
    emptied = asking(world, "$JS.S.once", 0)
    world.advance(1.5, 0.5)
    world.leave(emptied)
    again = asking(world, "$JS.S.twice", 0)
    assert again.seqs == [1, 2, 3, 4, 5]
    assert confirmed(world) == 0


def test_who_does_not_ask_again_gets_it_late(world: ConsumerWorld) -> None:
    deaf = asking(world, "$JS.S.deaf", 2)
    world.advance(5.5, 0.5)
    assert not deaf.messages
    world.advance(1.0, 0.5)
    assert deaf.seqs == [3, 4, 5]
    assert confirmed(world) == 2


def test_who_was_right_is_doubted_again_the_next_time(world: ConsumerWorld) -> None:
    world.leave(asking(world, "$JS.S.hasty", 0))
    world.leave(asking(world, "$JS.S.right", 5))
    assert not asking(world, "$JS.S.third", 0).messages


def test_a_server_alone_knows_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster_or_server(tmp_path, monkeypatch, is_cluster=False)
    assert asking(world, "$JS.S.again", 0).seqs == [1, 2, 3, 4, 5]


def test_mirrors_know_where_they_stand(world: ConsumerWorld) -> None:
    first = asking(world, "$JS.M.first", 0)
    confirm(world, first)
    world.leave(first)
    assert asking(world, "$JS.M.again", 0).seqs == [1, 2, 3, 4, 5]
