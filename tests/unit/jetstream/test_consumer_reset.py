"""Resets of consumers (2.14), and flow control that acknowledges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.jetstream.consumers import Box, ConsumerFixture
from support.jetstream.schemas import check_answer


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fixture.fill(10)
    return fixture


def reset(fixture: ConsumerFixture, seq: int = 0, name: str = "C") -> Any:
    return fixture.request(f"CONSUMER.RESET.S.{name}", {"seq": seq} if seq else b"")


def listen(fixture: ConsumerFixture, subject: bytes = b"d") -> Box:
    box = Box()
    fixture.account.subscribe(subject, box)
    fixture.commit()
    return box


def settle(fixture: ConsumerFixture, box: Box, sseq: int) -> None:
    """Answer the last flow-control request: everything up to `sseq` is settled."""
    asked = [got.reply for got in box.got if got.reply.startswith(b"$JS.FC.")][-1]
    header = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (sseq, sseq)
    fixture.account.publish(asked, header=header, origin=fixture.client)
    fixture.commit()


def test_a_push_consumer_begins_anew_after_it_has_said_so(fixture: ConsumerFixture) -> None:
    box = listen(fixture)
    fixture.add(deliver_subject="d", ack_policy="explicit")
    assert box.seqs == list(range(1, 11))
    box.take()
    answer = check_answer(reset(fixture, 9))
    assert answer["reset_seq"] == 9
    assert answer["delivered"] == {"consumer_seq": 0, "stream_seq": 8}
    assert answer["num_ack_pending"] == 0
    assert [(ack.stream_seq, ack.consumer_seq, ack.delivered) for ack in box.acks] == [(9, 1, 1), (10, 2, 1)]


def test_where_it_goes_on_outlives_a_restart(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fixture.fill(10)
    fixture.add(ack_policy="explicit")
    reset(fixture, 7)
    fixture.js.stop()
    fixture.store.close()
    again = ConsumerFixture(tmp_path, clock=fixture.clock)
    assert again.info()["delivered"] == {"consumer_seq": 0, "stream_seq": 6}
    assert again.info()["num_pending"] == 4


def test_without_a_sequence_it_goes_on_after_its_ack_floor(fixture: ConsumerFixture) -> None:
    box = listen(fixture)
    fixture.add(deliver_subject="d", ack_policy="explicit")
    for got in box.take()[:3]:
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.commit()
    assert reset(fixture)["reset_seq"] == 4
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
    fixture: ConsumerFixture, config: dict[str, Any], seq: int, words: str
) -> None:
    fixture.add(**config)
    answer = check_answer(reset(fixture, seq))
    assert answer["error"] == {"code": 400, "err_code": 10204, "description": f"invalid reset: {words}"}
    assert answer["reset_seq"] == 0


def test_nobody_answers_for_a_consumer_that_is_not_there(fixture: ConsumerFixture) -> None:
    assert reset(fixture) is None


def test_flow_control_acknowledges_up_to_where_the_reader_is(fixture: ConsumerFixture) -> None:
    box = listen(fixture)
    answer = check_answer(fixture.add(deliver_subject="d", ack_policy="flow_control", max_ack_pending=100))
    assert answer["config"]["flow_control"]
    assert answer["config"]["idle_heartbeat"] == 1_000_000_000
    assert "ack_wait" not in answer["config"]
    assert fixture.info()["num_ack_pending"] == 10
    fixture.advance(1.1)
    assert box.statuses == ["100 Idle Heartbeat", "100 FlowControl Request"]
    settle(fixture, box, 6)
    info = fixture.info()
    assert info["num_ack_pending"] == 4
    assert info["ack_floor"]["stream_seq"] == 6
    fixture.advance(86_400)
    assert box.seqs == list(range(1, 11)), "nothing is delivered twice"


def test_flow_control_asks_before_there_is_no_room_left(fixture: ConsumerFixture) -> None:
    box = listen(fixture)
    fixture.add(deliver_subject="d", ack_policy="flow_control", max_ack_pending=8)
    assert box.seqs == list(range(1, 9))
    assert box.statuses == ["100 FlowControl Request"]
    settle(fixture, box, 8)
    assert box.seqs == list(range(1, 11))


def test_flow_control_drops_what_is_settled_from_a_work_queue(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(retention="workqueue")
    fixture.fill(4)
    box = listen(fixture)
    fixture.add(deliver_subject="d", ack_policy="flow_control")
    fixture.advance(1.1)
    settle(fixture, box, 3)
    assert [seq for seq, _ in fixture.held()] == [4]


def test_acknowledgements_of_single_messages_mean_nothing_there(fixture: ConsumerFixture) -> None:
    box = listen(fixture)
    fixture.add(deliver_subject="d", ack_policy="flow_control")
    fixture.account.publish(box.messages[4].reply, payload=b"+ACK", origin=fixture.client)
    fixture.commit()
    assert fixture.info()["num_ack_pending"] == 10
