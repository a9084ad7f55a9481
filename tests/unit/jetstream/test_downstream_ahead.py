"""A copy that stands ahead of the stream it reads (the device was set up anew, its hub is a nats-server): what it passes over is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.status import SyncStatus
from support.js_consumers import Box, ConsumerWorld

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


def asking(world: ConsumerWorld, deliver: str, after: int, **says: str) -> Box:
    box = world.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    metadata = {"metadata": {f"eyot.{key}": value for key, value in says.items()}} if says else {}
    world.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start, **metadata})
    world.commit()
    return box


def confirm(world: ConsumerWorld, box: Box) -> None:
    world.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        world.account.publish(got.reply, origin=world.client)
    world.commit()


def status(world: ConsumerWorld) -> SyncStatus:
    (found,) = downstreams_of(world.stream("S")).statuses()
    return found


@pytest.fixture(params=["limits", "workqueue"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> ConsumerWorld:
    """4 messages of a new life; the hub holds 10 of the one before."""
    made = ConsumerWorld(tmp_path)
    made.create(retention=request.param)
    made.fill(4)
    return made


def test_what_is_passed_over_is_not_called_confirmed(world: ConsumerWorld) -> None:
    box = asking(world, "$JS.S.hub", 10)
    world.fill(3)
    assert box.seqs == [5, 6, 7]  # a nats-server passes over what it believes to have
    confirm(world, box)
    found = status(world)
    assert (found.confirmed_seq, found.backlog, found.eta_s) == (0, 7, None)
    assert found.oldest_s is not None
    assert "up to 10 of an earlier S" in (found.error or "")
    assert "first_seq 11" in (found.remedy or "")
    assert world.request("STREAM.INFO.S")["state"]["messages"] == 7


def test_nor_when_the_copy_has_gone_past_it(world: ConsumerWorld) -> None:
    box = asking(world, "$JS.S.hub", 10)
    world.fill(8)
    confirm(world, box)
    found = status(world)
    assert (found.confirmed_seq, found.backlog) == (12, 10)
    assert "the 10 messages" in (found.error or "")
    world = world.restart()
    world.leave(asking(world, "$JS.S.again", 12))
    world.commit()
    assert (status(world).confirmed_seq, status(world).backlog) == (12, 10)
    world.request("STREAM.PURGE.S", {"seq": 11})
    world.commit()
    assert status(world).backlog == 0
    assert "earlier" not in (status(world).error or "")


def test_a_copy_that_begins_anew_gets_everything(world: ConsumerWorld) -> None:
    world.leave(asking(world, "$JS.S.ahead", 10))
    box = asking(world, "$JS.S.anew", 0)
    assert box.seqs == [1, 2, 3, 4]
    confirm(world, box)
    found = status(world)
    assert (found.confirmed_seq, found.backlog, found.error) == (4, 0, None)


def test_a_copy_that_says_that_it_is_of_this_life_has_what_it_confirms(world: ConsumerWorld) -> None:
    """It began anew, and this server could not write that down."""
    world.leave(asking(world, "$JS.S.ahead", 10))
    world.fill(8)
    life = identity_of(world.request("STREAM.INFO.S")["created"])
    other = asking(world, "$JS.S.other", 12, life="another1")
    confirm(world, other)
    world.leave(other)
    assert "earlier S" in (status(world).error or "")
    asking(world, "$JS.S.back", 12, life=life)
    world.fill(1)
    world.commit()
    assert "earlier S" not in (status(world).error or "")


def test_who_does_not_read_is_told_of(world: ConsumerWorld) -> None:
    box = asking(world, "$JS.S.hub", 0)
    confirm(world, box)
    world.leave(box)
    world.fill(1)
    found = status(world)
    assert "does not read S at the moment" in (found.error or "")
    assert "eyot sync forget S" in (found.remedy or "")
    assert found.eta_s is None


def test_who_confirms_nothing_is_told_of(world: ConsumerWorld) -> None:
    asking(world, "$JS.S.hub", 0)
    world.advance(20.0, 1.0)
    assert status(world).error is None
    world.advance(15.0, 1.0)
    assert "has confirmed nothing for 3" in (status(world).error or "")


def test_a_copy_that_says_that_it_is_of_another_life_has_nothing_of_this_one(world: ConsumerWorld) -> None:
    """The hub had copied this life, and was restored from a backup of the time before."""
    box = asking(world, "$JS.S.first", 0)
    confirm(world, box)
    assert status(world).confirmed_seq == 4
    world.leave(box)
    asking(world, "$JS.S.restored", 10, life="another1")
    held = world.request("STREAM.INFO.S")["state"]["messages"]
    assert status(world).backlog == held
    assert not held or "earlier S" in (status(world).error or "")
