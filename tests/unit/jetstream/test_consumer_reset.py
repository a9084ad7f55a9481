"""Consumers that begin anew (2.14), and flow control that acknowledges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.js_consumers import Box, ConsumerWorld
from support.schemas import check_answer


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    world = ConsumerWorld(tmp_path)
    world.create()
    world.fill(10)
    return world


def reset(world: ConsumerWorld, seq: int = 0, name: str = "C") -> Any:
    return world.request(f"CONSUMER.RESET.S.{name}", {"seq": seq} if seq else b"")


def listen(world: ConsumerWorld, subject: bytes = b"d") -> Box:
    box = Box()
    world.account.subscribe(subject, box)
    world.commit()
    return box


def settle(world: ConsumerWorld, box: Box, sseq: int) -> None:
    """Answer the last flow-control request: everything up to `sseq` is settled."""
    asked = [got.reply for got in box.got if got.reply.startswith(b"$JS.FC.")][-1]
    header = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (sseq, sseq)
    world.account.publish(asked, header=header, origin=world.client)
    world.commit()


def test_a_push_consumer_begins_anew_after_it_has_said_so(world: ConsumerWorld) -> None:
    box = listen(world)
    world.add(deliver_subject="d", ack_policy="explicit")
    assert box.seqs == list(range(1, 11))
    box.take()
    answer = check_answer(reset(world, 9))
    assert answer["reset_seq"] == 9
    assert answer["delivered"] == {"consumer_seq": 0, "stream_seq": 8}
    assert answer["num_ack_pending"] == 0
    assert [(ack.stream_seq, ack.consumer_seq, ack.delivered) for ack in box.acks] == [(9, 1, 1), (10, 2, 1)]


def test_where_it_goes_on_outlives_a_restart(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create()
    world.fill(10)
    world.add(ack_policy="explicit")
    reset(world, 7)
    world.js.stop()
    world.store.close()
    again = ConsumerWorld(tmp_path, clock=world.clock)
    assert again.info()["delivered"] == {"consumer_seq": 0, "stream_seq": 6}
    assert again.info()["num_pending"] == 4


def test_without_a_sequence_it_goes_on_after_its_ack_floor(world: ConsumerWorld) -> None:
    box = listen(world)
    world.add(deliver_subject="d", ack_policy="explicit")
    for got in box.take()[:3]:
        world.account.publish(got.reply, origin=world.client)
    world.commit()
    assert reset(world)["reset_seq"] == 4
    assert box.seqs == list(range(4, 11))


@pytest.mark.parametrize(
    ("config", "seq", "words"),
    [
        ({"deliver_policy": "new"}, 3, "not allowed"),
        ({"deliver_policy": "last"}, 3, "not allowed"),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.x"}, 3, "not allowed"),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, 4, "below start seq"),
    ],
)
def test_what_a_delivery_policy_does_not_allow(
    world: ConsumerWorld, config: dict[str, Any], seq: int, words: str
) -> None:
    world.add(**config)
    answer = check_answer(reset(world, seq))
    assert answer["error"] == {"code": 400, "err_code": 10204, "description": f"invalid reset: {words}"}
    assert answer["reset_seq"] == 0


def test_nobody_answers_for_a_consumer_that_is_not_there(world: ConsumerWorld) -> None:
    assert reset(world) is None


def test_flow_control_acknowledges_up_to_where_the_reader_is(world: ConsumerWorld) -> None:
    box = listen(world)
    answer = check_answer(world.add(deliver_subject="d", ack_policy="flow_control", max_ack_pending=100))
    assert answer["config"]["flow_control"]
    assert answer["config"]["idle_heartbeat"] == 1_000_000_000
    assert "ack_wait" not in answer["config"]
    assert world.info()["num_ack_pending"] == 10
    world.advance(1.1)
    assert box.statuses == ["100 Idle Heartbeat", "100 FlowControl Request"]
    settle(world, box, 6)
    info = world.info()
    assert info["num_ack_pending"] == 4
    assert info["ack_floor"]["stream_seq"] == 6
    world.advance(86_400)
    assert box.seqs == list(range(1, 11)), "nothing is delivered twice"


def test_flow_control_asks_before_there_is_no_room_left(world: ConsumerWorld) -> None:
    box = listen(world)
    world.add(deliver_subject="d", ack_policy="flow_control", max_ack_pending=8)
    assert box.seqs == list(range(1, 9))
    assert box.statuses == ["100 FlowControl Request"]
    settle(world, box, 8)
    assert box.seqs == list(range(1, 11))


def test_flow_control_drops_what_is_settled_from_a_work_queue(tmp_path: Path) -> None:
    world = ConsumerWorld(tmp_path)
    world.create(retention="workqueue")
    world.fill(4)
    box = listen(world)
    world.add(deliver_subject="d", ack_policy="flow_control")
    world.advance(1.1)
    settle(world, box, 3)
    assert [seq for seq, _ in world.held()] == [4]


def test_acknowledgements_of_single_messages_mean_nothing_there(world: ConsumerWorld) -> None:
    box = listen(world)
    world.add(deliver_subject="d", ack_policy="flow_control")
    world.account.publish(box.messages[4].reply, payload=b"+ACK", origin=world.client)
    world.commit()
    assert world.info()["num_ack_pending"] == 10
