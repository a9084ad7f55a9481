"""What a `SourceConsumer` does with each report of its owner: its waits, its counters, and what it says of its backlog."""

from __future__ import annotations

import json

import pytest

from eyot_sync.policy.stream_gate import LOOK_AGAIN_S
from eyot_sync.sourcing.actions import Answer, Release, Request, Skip, Subscribe, Unsubscribe, ack_position_header
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.phase import Phase
from eyot_sync.sourcing.source_consumer import REQUEST_SPACING_S, RETRY_MAX_S, SourceConsumer
from eyot_sync.sourcing.source_state import RequestTerms
from eyot_wire.frames import LeafMsg
from support.links.origin_model import FULL, ModelOrigin
from support.links.source_consumers import answered, make_source_consumer

FLOW = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


def origin_with(*seqs: int) -> ModelOrigin:
    return ModelOrigin({seq: b"m%d" % seq for seq in seqs}, max(seqs, default=0))


def active(last_seq: int = 0, *seqs: int, mirror: bool = False) -> SourceConsumer:
    """It has consumer `c1` of an origin with these messages, since 1.0."""
    source_consumer = make_source_consumer(last_seq, mirror=mirror)
    answered(source_consumer, origin_with(*seqs), 1.0)
    assert source_consumer.phase is Phase.ACTIVE
    return source_consumer


def reply(sseq: int, cseq: int, pending: int = 0, *, consumer: str = "c1", delivered: int = 1) -> bytes:
    return f"$JS.ACK.ORIGIN.{consumer}.{delivered}.{sseq}.{cseq}.{sseq * 1000}.{pending}".encode()


def receive(source_consumer: SourceConsumer, sseq: int, cseq: int, pending: int = 0, now: float = 1.1) -> list[object]:
    return list(source_consumer.message(reply(sseq, cseq, pending), b"readings.x", b"", b"m%d" % sseq, now))


def heartbeat(cseq: int, *more: bytes) -> bytes:
    fields = b"".join(each + b"\r\n" for each in (b"Nats-Last-Consumer: %d" % cseq, *more))
    return b"NATS/1.0 100 Idle Heartbeat\r\n" + fields + b"\r\n"


def gathered(source_consumer: SourceConsumer) -> list[int]:
    return [each.origin_seq for each in source_consumer.gathered]


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wait_s", "until"), [(0.0, 2.0 + REQUEST_SPACING_S), (7.0, 9.0), (900.0, 2.0 + LOOK_AGAIN_S)])
def test_a_policy_is_waited_for_and_named(wait_s: float, until: float) -> None:
    source_consumer = active(0, 1)
    actions = source_consumer.held("outside its windows", wait_s, 2.0)
    assert [type(each) for each in actions] == [Unsubscribe]
    assert (source_consumer.phase, source_consumer.waiting) == (Phase.WAITING, "outside its windows")
    assert source_consumer.deadline == pytest.approx(until)
    assert source_consumer.tick(until - 0.01) == []
    assert any(isinstance(each, Request) for each in source_consumer.tick(until))
    assert source_consumer.waiting == ""


def test_attempts_that_lead_to_nothing_are_ever_rarer_until_one_succeeds() -> None:
    source_consumer = make_source_consumer(0)
    origin, now, waits = origin_with(1), 1.0, []
    for _ in range(8):
        source_consumer.tick(now)
        assert source_consumer.phase is Phase.REQUESTED
        source_consumer.unreachable(now)
        assert source_consumer.phase is Phase.WAITING
        assert source_consumer.progress.error is not None
        assert "no interest in $JS.leaf.API" in source_consumer.progress.error.description
        waits.append(source_consumer.retry_at - now)
        now = source_consumer.retry_at
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, RETRY_MAX_S / 2, RETRY_MAX_S / 2, RETRY_MAX_S / 2]
    body = next(each.body for each in source_consumer.tick(now) if isinstance(each, Request))
    source_consumer.response(source_consumer.request.reply, origin.create(body), now + 1)
    assert source_consumer.progress.error is None
    source_consumer.link_down(now + 2)
    assert source_consumer.retry_at == now + 2.5
    source_consumer.link_down(now + 2.2)  # it waits already
    assert source_consumer.retry_at == now + 2.5


def test_a_link_that_returns_begins_anew_with_waiting() -> None:
    source_consumer = make_source_consumer(0)
    for now in (1.0, 2.0, 4.0):
        source_consumer.tick(now)
        source_consumer.unreachable(now)
    source_consumer.link_up(5.0)
    source_consumer.unreachable(5.0)
    assert source_consumer.retry_at == 5.5


def test_requests_keep_their_distance() -> None:
    source_consumer = active(0, 1)
    assert not any(isinstance(each, Request) for each in source_consumer.link_up(1.0 + REQUEST_SPACING_S / 2))
    assert (source_consumer.phase, source_consumer.deadline) == (Phase.WAITING, 1.0 + REQUEST_SPACING_S)


@pytest.mark.parametrize(("heartbeat_s", "silent_s"), [(1.0, 5.0), (15.0, 45.0)])
def test_silence_is_measured_by_the_heartbeats_that_were_asked_for(heartbeat_s: float, silent_s: float) -> None:
    source_consumer = make_source_consumer(0)
    source_consumer.terms = RequestTerms(heartbeat_s=heartbeat_s)
    answered(source_consumer, origin_with(1), 1.0)
    receive(source_consumer, 1, 1, now=2.0)
    assert source_consumer.deadline == 2.0 + silent_s
    run = [LeafMsg(b"d", reply(2, 2), b"", b"m2", ())]
    assert source_consumer.messages(run, 3.0) <= 1
    assert source_consumer.deadline == 3.0 + silent_s
    assert any(isinstance(each, Request) for each in source_consumer.tick(3.0 + silent_s))
    assert source_consumer.progress.gaps == 1


def test_nothing_moves_what_is_stopped() -> None:
    source_consumer = active(0, 1)
    (release, unsubscribe) = source_consumer.stop(release=True)
    assert release == Release(b"$JS.leaf.API.CONSUMER.DELETE.ORIGIN.c1")
    assert isinstance(unsubscribe, Unsubscribe)
    for actions in (
        source_consumer.link_up(2.0),
        source_consumer.link_down(2.0),
        source_consumer.held("no", 1.0, 2.0),
        source_consumer.tick(1e9),
        source_consumer.refused(0, FULL, 2.0),
        receive(source_consumer, 1, 1),
    ):
        assert actions == []
    assert (source_consumer.phase, source_consumer.progress.error) == (Phase.STOPPED, None)


def test_only_a_consumer_that_was_made_is_deleted_and_only_for_good() -> None:
    assert [type(each) for each in active(0, 1).stop()] == [Unsubscribe]
    source_consumer = make_source_consumer(0)
    source_consumer.link_up(1.0)
    assert [type(each) for each in source_consumer.stop(release=True)] == [Unsubscribe]


# -- the origin's answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("received", "lag"), [(1, 2), (4, 0)])
def test_an_answer_says_the_backlog_and_the_time(received: int, lag: int) -> None:
    source_consumer = make_source_consumer(0)
    body = next(each.body for each in source_consumer.link_up(1.0) if isinstance(each, Request))
    created = json.loads(origin_with(1, 2, 3).create(body)) | {"ts": "2026-01-02T00:00:00Z"}
    for seq in range(1, received + 1):
        receive(source_consumer, seq, seq, pending=9)  # nats-server 2.9 sends before it answers
    source_consumer.response(source_consumer.request.reply, json.dumps(created).encode(), 1.2)
    progress = source_consumer.progress
    assert (progress.lag, progress.heard_at, source_consumer.reported_time) == (lag, 1.2, "2026-01-02T00:00:00Z")


def test_messages_before_the_answer_are_no_reason_to_skip() -> None:
    """nats-server 2.9 sends before it answers: the mirror has a message already when it hears where the consumer begins."""
    source_consumer = make_source_consumer(0, mirror=True)
    body = next(each.body for each in source_consumer.link_up(1.0) if isinstance(each, Request))
    created = origin_with(10, 11).create(body)
    receive(source_consumer, 10, 1)
    source_consumer.response(source_consumer.request.reply, created, 1.2)
    assert source_consumer.unidentified(1.2) == []
    assert (gathered(source_consumer), source_consumer.progress.last_seq) == ([10], 10)
    receive(source_consumer, 11, 2)
    assert gathered(source_consumer) == [10, 11]


def test_a_mirror_that_skips_stands_where_it_skipped_to() -> None:
    source_consumer = make_source_consumer(0, mirror=True)
    assert answered(source_consumer, origin_with(10), 1.0) == [Skip(9)]
    assert (source_consumer.progress.last_seq, source_consumer.resume.last) == (9, OriginPosition(9))


def test_an_answer_to_another_request_is_ignored() -> None:
    source_consumer = make_source_consumer(0)
    body = next(each.body for each in source_consumer.link_up(1.0) if isinstance(each, Request))
    assert source_consumer.response(b"$JSC.R.another", origin_with(1).create(body), 1.1) == []
    assert source_consumer.phase is Phase.REQUESTED
    answered(source_consumer, origin_with(1), 2.0)
    again = source_consumer.request.reply
    source_consumer.response(again, b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}', 2.1)
    assert source_consumer.phase is Phase.ACTIVE, "a second server's answer"


def test_of_two_servers_that_answer_the_one_whose_messages_came_counts() -> None:
    source_consumer = make_source_consumer(0)
    body = next(each.body for each in source_consumer.link_up(1.0) if isinstance(each, Request))
    source_consumer.message(reply(1, 1, consumer="other"), b"readings.x", b"", b"m1", 1.1)
    source_consumer.message(reply(7, 1), b"readings.x", b"", b"m7", 1.1)
    assert gathered(source_consumer) == [1]
    actions = source_consumer.response(source_consumer.request.reply, origin_with(1).create(body), 1.5)
    assert any(isinstance(each, Request) for each in actions)
    assert (gathered(source_consumer), source_consumer.progress.gaps) == ([], 1)


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_count_once_and_in_order() -> None:
    source_consumer = active(0, 1, 2, 3)
    receive(source_consumer, 1, 1, pending=2)
    assert source_consumer.progress.lag == 2
    for again in (reply(1, 1), reply(2, 2, delivered=2), reply(2, 2, consumer="c9"), b"$JS.ACK.no"):
        assert source_consumer.message(again, b"readings.x", b"", b"?", 1.1) == []
    assert (gathered(source_consumer), source_consumer.progress.gaps) == ([1], 0)
    actions = receive(source_consumer, 3, 3, now=2.0)
    assert [type(each) for each in actions][:3] == [Unsubscribe, Subscribe, Request]
    assert (gathered(source_consumer), source_consumer.progress.gaps) == ([1], 1)
    assert receive(source_consumer, 2, 1, now=2.1) == []
    assert receive(source_consumer, 1, 2, now=2.1) == []
    assert (gathered(source_consumer), source_consumer.progress.dropped_old) == ([1, 2], 1)
    assert source_consumer.progress.last_seq == 2


@pytest.mark.parametrize("phase", ["requested", "verifying", "active"])
def test_runs_count_as_single_messages_do(phase: str) -> None:
    source_consumer = make_source_consumer(0)
    body = next(each.body for each in source_consumer.link_up(1.0) if isinstance(each, Request))
    run = [LeafMsg(b"d", reply(seq, seq, 5 - seq) + b"@readings.x", b"", b"m%d" % seq, ()) for seq in (1, 2, 3, 5)]
    if phase != "requested":
        source_consumer.response(source_consumer.request.reply, origin_with(1, 2, 3, 4, 5).create(body), 1.1)
    if phase == "active":
        source_consumer.unidentified(1.1)
    assert source_consumer.messages(run, 1.2) == 0, "the first message of a consumer is looked at by itself"
    receive(source_consumer, 1, 1)
    taken = source_consumer.messages(run[1:], 1.3)
    assert taken == (0 if phase == "requested" else 2)
    if taken:
        progress, request = source_consumer.progress, source_consumer.request
        assert (progress.last_seq, progress.lag, progress.heard_at) == (3, 2, 1.3)
        assert (request.consumer_seq, request.delivered_seq) == (3, 3)
        assert source_consumer.messages(run[3:], 1.4) == 0
        assert gathered(source_consumer) == [1, 2, 3]
        assert source_consumer.resume.last == OriginPosition(3, 3000, 2)


def test_a_heartbeat_says_what_the_origin_holds_back() -> None:
    source_consumer = active(0, 1, 2, 3)
    assert source_consumer.progress.lag == 3
    for header, lag in ((heartbeat(0, b"Nats-Pending-Messages: 7"), 7), (heartbeat(0), 0)):
        assert source_consumer.message(b"", b"", header, b"", 1.2) == []
        assert (source_consumer.progress.lag, source_consumer.progress.held_back) == (lag, lag > 0)
    source_consumer.message(b"", b"", heartbeat(0, b"Nats-Pending-Messages: 7"), b"", 1.2)
    receive(source_consumer, 1, 1, pending=6)
    assert (source_consumer.progress.lag, source_consumer.progress.held_back) == (6, False)


def test_a_message_with_the_headers_of_a_heartbeat_is_a_message() -> None:
    source_consumer = active(0, 1)
    source_consumer.message(reply(1, 1), b"readings.x", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"x", 1.1)
    assert gathered(source_consumer) == [1]


def test_what_another_server_asks_is_not_answered() -> None:
    source_consumer = active(0, 1)
    assert source_consumer.message(b"$JS.FC.ORIGIN.c9.1", b"", FLOW, b"", 1.1) == []
    stalled = heartbeat(0, b"Nats-Consumer-Stalled: $JS.FC.ORIGIN.c9.1")
    assert source_consumer.message(b"", b"", stalled, b"", 1.1) == []
    assert len(source_consumer.message(b"$JS.FC.ORIGIN.c1.1", b"", FLOW, b"", 1.1)) == 1


def test_a_heartbeat_reveals_a_lost_message() -> None:
    source_consumer = active(0, 1, 2)
    receive(source_consumer, 1, 1)
    assert source_consumer.message(b"", b"", heartbeat(1), b"", 1.5) == []
    assert source_consumer.message(b"", b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"", 1.5) == []
    assert any(isinstance(each, Request) for each in source_consumer.message(b"", b"", heartbeat(2), b"", 1.5))
    assert source_consumer.progress.gaps == 1


# -- commits -----------------------------------------------------------------------------------------------------------


def test_an_empty_batch_confirms_nothing_that_is_under_way() -> None:
    source_consumer = active(0, 1, 2)
    receive(source_consumer, 1, 1)
    current = source_consumer.request.reply
    _, mark = source_consumer.take_batch()
    receive(source_consumer, 1, 2)  # one that it has: nothing to store
    assert source_consumer.message(b"$JS.FC.ORIGIN.c1.1", b"", FLOW, b"", 1.2) == []
    batch, empty_mark = source_consumer.take_batch()
    assert (batch, source_consumer.committed(empty_mark, 0, 0, current)) == ([], [])
    assert source_consumer.committed(mark, 1, 1, current) == []
    _, mark = source_consumer.take_batch()
    assert source_consumer.committed(mark, 0, 0, current) == [
        Answer(b"$JS.FC.ORIGIN.c1.1", ack_position_header("c1", 2, 1))
    ]
    progress = source_consumer.progress
    assert (progress.copied, progress.committed_seq) == (1, 1)


@pytest.mark.parametrize("handed_on", ["at once", "when verified", "with more"])
def test_flow_control_of_another_consumer_waits_for_what_came_before_it(handed_on: str) -> None:
    """The origin takes an answer for everything that the request resumes after: a work queue lets go of it."""
    source_consumer = active(0, 1, 2, 3)
    receive(source_consumer, 1, 1)
    body = next(each.body for each in receive(source_consumer, 3, 3, now=2.0) if isinstance(each, Request))
    taken = source_consumer.take_batch() if handed_on == "at once" else None
    source_consumer.response(source_consumer.request.reply, origin_with(1, 2, 3).create(body), 2.1)
    source_consumer.unidentified(2.1)
    source_consumer.unproven(2.1)
    assert source_consumer.phase is (Phase.ACTIVE if taken else Phase.VERIFYING)
    assert taken or source_consumer.deadline is None, "it waits for what was received before"
    answer = Answer(b"$JS.FC.ORIGIN.c1.1", ack_position_header("c1", 0, 0))
    assert source_consumer.message(answer.subject, b"", FLOW, b"", 2.2) == []
    if handed_on == "with more":
        receive(source_consumer, 2, 1, now=2.2)
    batch, mark = taken or source_consumer.take_batch()
    assert [each.origin_seq for each in batch] == [1]
    assert source_consumer.passed_on(2.3) == []
    assert source_consumer.phase is Phase.ACTIVE
    actions = source_consumer.committed(mark, batch[-1].origin_seq, len(batch), source_consumer.request.reply)
    assert [each.subject for each in actions if isinstance(each, Answer)] == [answer.subject]


def test_a_mirror_that_holds_still_keeps_what_it_received_before() -> None:
    """What is not handed on yet waits for its roll-ups, for example; the origin, set back meanwhile, has it no more."""
    source_consumer = active(0, 1, 2, mirror=True)
    receive(source_consumer, 1, 1)
    receive(source_consumer, 2, 2)
    answered(source_consumer, ModelOrigin(), 3.0)
    source_consumer.unproven(3.0)
    assert [each.origin_seq for each in source_consumer.take_batch()[0]] == [1, 2]
    source_consumer.passed_on(3.0)
    assert source_consumer.phase is Phase.WAITING
    assert source_consumer.progress.behind
    assert source_consumer.progress.last_seq == 2
    assert source_consumer.progress.lag == 2


def test_a_refused_batch_is_requested_again_whatever_came_behind_it() -> None:
    source_consumer = active(0, 1, 2, 3)
    receive(source_consumer, 1, 1)
    body = next(each.body for each in receive(source_consumer, 3, 3, now=2.0) if isinstance(each, Request))
    source_consumer.response(source_consumer.request.reply, origin_with(1, 2, 3).create(body), 2.1)
    receive(source_consumer, 2, 1, now=2.2)
    batch, _ = source_consumer.take_batch()
    assert [each.origin_seq for each in batch] == [1], "2 waits until the origin is verified"
    source_consumer.refused(0, FULL, 2.3)
    assert (source_consumer.resume.last.seq, source_consumer.progress.last_seq, gathered(source_consumer)) == (0, 0, [])
    assert source_consumer.progress.error == FULL


def test_what_was_handed_on_is_known_by_its_times() -> None:
    source_consumer = active(0, *range(1, 9))
    for seq in range(1, 7):
        receive(source_consumer, seq, seq)
        source_consumer.take_batch()
    resume = source_consumer.resume
    assert resume.newest_ns == 6000
    assert resume.checkpoints == [(3, 3000), (4, 4000), (5, 5000), (6, 6000)]
    source_consumer.failed(2, FULL, 2.0)
    assert (resume.last, source_consumer.progress.last_seq) == (OriginPosition(2, 2000, 2), 2)
