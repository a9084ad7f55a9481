"""Work-queue and interest streams that are copied: a message goes when the copy has confirmed it, not when it was delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.js_consumers import Box, ConsumerWorld

COPY: dict[str, Any] = {
    "deliver_subject": "$JS.S.aaaaaaaa",
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


@pytest.fixture(params=["workqueue", "interest"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> ConsumerWorld:
    made = ConsumerWorld(tmp_path)
    made.create(retention=request.param)
    return made


def sourcing(world: ConsumerWorld, deliver: str = "$JS.S.aaaaaaaa", **config: Any) -> Box:
    box = world.listen(deliver.encode())
    world.add_ephemeral(**{**COPY, "deliver_subject": deliver, **config})
    world.commit()
    return box


def confirm(world: ConsumerWorld, box: Box) -> None:
    """Answers every flow-control request so far, as a copy does when it has stored what came before."""
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        world.account.publish(got.reply, origin=world.client)
    world.commit()


def messages(world: ConsumerWorld) -> int:
    return int(world.request("STREAM.INFO.S")["state"]["messages"])


def test_delivered_messages_stay_until_they_are_confirmed(world: ConsumerWorld) -> None:
    box = sourcing(world)
    world.fill(5)
    assert len(box.messages) == 5
    assert messages(world) == 5
    world.advance(1.5, 0.5)
    confirm(world, box)
    assert messages(world) == 0


def test_a_copy_that_was_cut_off_finds_what_it_has_not_confirmed(world: ConsumerWorld) -> None:
    box = sourcing(world)
    world.fill(3)
    world.advance(1.5, 0.5)
    confirm(world, box)
    world.fill(2)
    world.leave(box)
    world.advance(30.0, 1.0)
    world.fill(2)
    assert messages(world) == 4
    again = sourcing(world, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=4)
    assert again.seqs == [4, 5, 6, 7]
    world.advance(1.5, 0.5)
    confirm(world, again)
    assert messages(world) == 0


def test_what_a_copy_took_before_it_was_cut_off_goes_when_it_confirms_what_follows(world: ConsumerWorld) -> None:
    """The answer to flow control was lost with the link. The position in the next request does not stand for it: what comes before
    may still be on its way to the copy's flash."""
    box = sourcing(world)
    world.fill(3)
    world.advance(1.5, 0.5)
    confirm(world, box)
    world.fill(4)
    world.leave(box)
    world.advance(30.0, 1.0)
    assert messages(world) == 4
    again = sourcing(world, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=7)
    assert messages(world) == 4
    world.advance(1.5, 0.5)
    confirm(world, again)
    assert messages(world) == 0


def test_a_restart_forgets_no_copy(world: ConsumerWorld) -> None:
    box = sourcing(world)
    world.fill(3)
    world.advance(1.5, 0.5)
    confirm(world, box)
    world.fill(2)
    restarted = world.restart()
    restarted.fill(1)
    assert messages(restarted) == 3
    again = sourcing(restarted, "$JS.S.bbbbbbbb", deliver_policy="by_start_sequence", opt_start_seq=4)
    assert again.seqs == [4, 5, 6]


def test_other_consumers_of_an_interest_stream_keep_theirs(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(retention="interest")
    world.add("C", ack_policy="explicit")
    box = sourcing(world)
    world.fill(2)
    world.advance(1.5, 0.5)
    confirm(world, box)
    assert messages(world) == 2
    world.ack(*world.pull(batch=2).take())
    assert messages(world) == 0
    world.leave(box)
    world.advance(30.0, 1.0)
    world.fill(1)
    world.ack(*world.pull(batch=1).take())
    assert messages(world) == 1, "the copy that is away has not confirmed it"


def test_a_copy_that_is_given_up_keeps_nothing(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(retention="interest")
    box = sourcing(world, name="COPY")
    world.fill(2)
    world.advance(1.5, 0.5)
    assert messages(world) == 2
    world.request("CONSUMER.DELETE.S.COPY")
    world.leave(box)
    world.fill(2)
    assert messages(world) == 0
