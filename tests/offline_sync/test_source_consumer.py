"""`SourceConsumer` against a model of its origin: cuts, losses, crashes, full disks in random order; exactly once at the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_sync.sourcing.actions import (
    Answer,
    Identify,
    Request,
    Skip,
    Subscribe,
    ack_position_header,
)
from eyot_sync.sourcing.phase import TRANSITIONS, Phase
from support.links.origin_model import FULL, ModelOrigin
from support.links.source_consumers import Run, answered, make_source_consumer

#: A link mostly works: sessions are long enough for messages to be lost in the middle of them.
STEPS = (
    ("publish",) * 4 + ("respond",) * 14 + ("send",) * 12 + ("receive",) * 12 + ("commit",) * 6 + ("restore",) * 6
    + ("lose",) * 4 + ("fail", "crash", "cut", "expire", "publish_amid", "refuse")
)  # fmt: skip


@pytest.mark.parametrize("mirror", [False, True])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(STEPS), min_size=40, max_size=120))
def test_exactly_once_in_order_whatever_happens(mirror: bool, seed: int, steps: list[str]) -> None:
    run = Run(seed, mirror=mirror)
    run.publish()
    for what in steps:
        run.step(what)
    run.settle()
    sequences = [seq for seq, _ in run.target.stored]
    assert sequences == list(range(1, run.origin.last_seq + 1))
    assert all(payload in (f"m{seq}".encode(), b"?") for seq, payload in run.target.stored)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("copied", [0, 3])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_message_that_is_stored_while_the_consumer_is_made(copied: int, mirror: bool, is_last: bool) -> None:
    """nats-server 2.9 begins after it and does not say so; with `is_last` no later message shows it either."""
    run = Run(1, mirror=mirror)
    for _ in range(copied):
        run.publish()
    run.settle()
    before = run.origin.last_seq
    run.publish_amid()
    run.cut()
    run.now += 10
    run.restore()
    assert run.origin.last_seq == before + 1
    if not is_last:
        run.publish()
    run.settle()
    assert [seq for seq, _ in run.target.stored] == list(range(1, run.origin.last_seq + 1))


def test_removed_messages_cost_one_more_request_and_no_more() -> None:
    run = Run(1, mirror=True)
    run.publish()
    run.settle()
    run.cut()
    last = run.origin.last_seq
    for _ in range(3):
        run.publish()
    run.origin.delete(last + 1)
    run.restore()
    before = len(run.wire.asked_from)
    run.settle()
    assert run.target.stored[last][0] == last + 2
    assert len(run.wire.asked_from) == before + 1


def test_a_link_that_returns_is_used_at_once() -> None:
    source_consumer = make_source_consumer(41)
    source_consumer.unreachable(10.0)
    assert source_consumer.phase is Phase.WAITING
    actions = source_consumer.link_up(10.3)
    assert [type(action) for action in actions] == [Subscribe, Request, Identify]
    request = actions[1]
    assert isinstance(request, Request)
    assert request.subject == b"$JS.leaf.API.CONSUMER.CREATE.ORIGIN"
    assert b'"opt_start_seq":42' in request.body


def test_flow_control_waits_for_the_flash() -> None:
    source_consumer = make_source_consumer(0)
    answered(source_consumer, ModelOrigin(), 1.0)
    source_consumer.message(b"$JS.ACK.ORIGIN.c1.1.1.1.1000.0", b"readings.x", b"", b"one", 1.1)
    current = source_consumer.request.reply
    asked = source_consumer.message(b"$JS.FC.ORIGIN.c1.1", b"", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"", 1.2)
    assert asked == []
    batch, mark = source_consumer.take_batch()
    assert [each.payload for each in batch] == [b"one"]
    assert source_consumer.committed(mark, 1, 1, current) == [
        Answer(b"$JS.FC.ORIGIN.c1.1", ack_position_header("c1", 1, 1))
    ]


def test_a_stalled_heartbeat_is_answered_when_all_is_on_flash() -> None:
    source_consumer = make_source_consumer(0)
    body = next(action.body for action in source_consumer.link_up(1.0) if isinstance(action, Request))
    source_consumer.response(source_consumer.request.reply, ModelOrigin().create(body), 1.0)
    header = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Consumer-Stalled: $JS.FC.O.c1.9\r\n\r\n"
    assert source_consumer.message(b"", b"", header, b"", 1.1) == []  # what it has may be of another life of the origin
    source_consumer.unidentified(1.1)
    assert Answer(b"$JS.FC.O.c1.9", ack_position_header("c1", 0, 0)) in source_consumer.message(
        b"", b"", header, b"", 1.1
    )


def test_a_heartbeat_tells_of_the_last_message_that_was_lost() -> None:
    source_consumer = make_source_consumer(0)
    source_consumer.link_up(1.0)
    lost = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    assert any(isinstance(action, Request) for action in source_consumer.message(b"", b"", lost, b"", 2.0))


def test_silence_asks_again() -> None:
    source_consumer = make_source_consumer(7)
    source_consumer.link_up(1.0)
    origin = ModelOrigin({8: b"m8"}, 8)
    body = next(action.body for action in source_consumer.link_up(2.0) if isinstance(action, Request))
    source_consumer.response(source_consumer.request.reply, origin.create(body), 2.1)
    assert source_consumer.phase is Phase.VERIFYING
    assert source_consumer.tick(7.0) == []
    assert source_consumer.deadline is not None
    assert any(isinstance(action, Request) for action in source_consumer.tick(7.2))


def test_a_refusal_is_kept_and_tried_again_later() -> None:
    source_consumer = make_source_consumer(0)
    source_consumer.link_up(1.0)
    error = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}'
    source_consumer.response(source_consumer.request.reply, error, 1.1)
    assert source_consumer.progress.error is not None
    assert source_consumer.progress.error.err_code == 10059
    assert source_consumer.phase is Phase.WAITING
    assert any(isinstance(action, Request) for action in source_consumer.tick(1.1 + 2.0))


def test_an_empty_mirror_begins_where_the_origin_does() -> None:
    source_consumer = make_source_consumer(0, mirror=True)
    assert answered(source_consumer, ModelOrigin({10: b"m10"}, 10), 1.0) == [Skip(9)]


def test_an_origin_that_went_back_is_said() -> None:
    source_consumer = make_source_consumer(100)
    answered(source_consumer, ModelOrigin({1: b"new"}, 1), 2.0)
    assert source_consumer.progress.behind
    assert source_consumer.progress.error is not None
    assert "re-created or lost messages" in source_consumer.progress.error.description


def test_what_is_stopped_stays_stopped() -> None:
    """A batch that was under way may fail after its mirror was taken out of the configuration: nothing is asked for again."""
    source_consumer = make_source_consumer(0)
    answered(source_consumer, ModelOrigin(), 1.0)
    source_consumer.message(b"$JS.ACK.ORIGIN.c1.1.1.1.1000.0", b"readings.x", b"", b"one", 1.1)
    source_consumer.take_batch()
    source_consumer.stop(release=True)
    assert source_consumer.failed(0, FULL, 1.2) == []
    assert source_consumer.unreachable(1.2) == []
    assert source_consumer.phase is Phase.STOPPED
    assert source_consumer.deadline is None


def test_every_phase_but_the_last_leads_to_a_stop_and_the_last_nowhere() -> None:
    assert all(Phase.STOPPED in following for following in TRANSITIONS.values())
    assert TRANSITIONS[Phase.STOPPED] == {Phase.STOPPED}
    with pytest.raises(AssertionError, match="WAITING does not lead to ACTIVE"):
        make_source_consumer(0)._enter(Phase.ACTIVE)
