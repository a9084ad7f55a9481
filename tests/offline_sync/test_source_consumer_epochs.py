"""`SourceConsumer` and an origin that was set back, lost its end or was created again: what is copied, and what holds still."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eyot_sync.sourcing.actions import (
    FetchLastMessage,
    Request,
    Skip,
)
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.phase import Phase
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import ResumeState, SourceConfig
from eyot_wire.jetstream.stream import External, StreamSource
from eyot_wire.jetstream.stream_source import identity_of
from support.links.origin_model import FULL, ModelOrigin, ModelTarget, Wire
from support.links.source_consumers import Run, make_source_consumer


def resumed(
    origin: ModelOrigin,
    *,
    mirror: bool,
    last: OriginPosition,
    identity: str,
    skip_lost: bool = False,
    held_at: int = 0,
    whole: bool = False,
) -> Wire:
    """A copier with a position, and what it said until nothing more was to be said."""
    source = StreamSource(name="ORIGIN", external=External(api="$JS.leaf.API", deliver=""))
    ids = iter(range(10_000_000, 99_999_999))
    source_consumer = SourceConsumer(
        SourceConfig(Origin.of(source), mirror, skip_lost=skip_lost),
        ResumeState(last=last, identity=identity, held_at=held_at, whole=whole),
        make_id=lambda length: str(next(ids)),
    )
    wire = Wire(source_consumer, origin, ModelTarget())
    now = 1.0
    wire.restore(now)
    for _ in range(4):
        while wire.responses:
            reply, body = wire.responses.pop(0)
            wire.do(source_consumer.response(reply, body, now), now)
        now += 0.5
        wire.do(source_consumer.tick(now), now)
    return wire


def test_a_source_copies_the_new_life_of_its_origin_from_its_beginning() -> None:
    origin = ModelOrigin()
    origin.recreate()
    for number in range(200):
        origin.publish(b"m%d" % number)
    wire = resumed(origin, mirror=False, last=OriginPosition(100, 100_000), identity="2026-01-01T00:00:00Z")
    assert wire.source_consumer.phase is Phase.ACTIVE
    assert [consumer.next_seq for consumer in origin.consumers.values()] == [1]
    progress = wire.source_consumer.progress
    assert (progress.last_seq, progress.committed_seq, wire.source_consumer.resume.newest_ns) == (0, 0, 0)
    assert wire.source_consumer.identity == origin.created
    assert "was re-created" in wire.source_consumer.progress.note


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("searched", [False, True], ids=["handed on", "behind a roll-up"])
def test_a_batch_of_the_former_epoch_says_nothing_of_the_new_one(fails: bool, searched: bool) -> None:
    """It is still on its way to a slow flash, or not even handed on, when the origin, created again, has answered."""
    run = Run(1, mirror=False)
    run.publish()
    run.publish()
    while run.wire.responses:
        run.respond()
    run.send()
    run.send()
    while run.wire.under_way:
        run.receive()
    if not searched:
        run.wire.gather()
    run.cut()
    former = run.origin.created
    run.origin.recreate()
    run.publish()
    run.publish()
    run.now += 10
    run.restore()
    while run.wire.responses:
        run.respond()
    source_consumer = run.wire.source_consumer
    if searched:
        assert source_consumer.identity == former, "what it belongs to is stored with it"
        run.wire.gather(run.now)
    assert [each.origin_seq for each in run.target.waiting[0][0]] == [1, 2]
    assert source_consumer.progress.epochs == 1
    if not fails:
        run.now += 0.5
        run.wire.do(source_consumer.tick(run.now), run.now)
        while run.wire.responses:
            run.respond()
        run.send()
        run.receive()
        assert [each.origin_seq for each in source_consumer.take_batch()[0]] == [1]
        run.wire.do(source_consumer.refused(0, FULL, run.now), run.now)
        assert source_consumer.resume.last.seq == 0
        batch, mark, asked = run.target.waiting.pop()
        run.wire.do(source_consumer.committed(mark, 2, len(batch), asked), run.now)
        assert source_consumer.progress.committed_seq == 0
        run.settle()
        assert source_consumer.progress.committed_seq == run.origin.last_seq
        return
    run.target.waiting.clear()
    run.wire.do(source_consumer.failed(1, FULL, run.now), run.now)
    run.settle()
    assert [seq for seq, _ in run.target.stored] == list(range(1, run.origin.last_seq + 1))


def test_a_mirror_holds_still_when_its_origin_was_recreated() -> None:
    origin = ModelOrigin()
    origin.recreate()
    for number in range(200):
        origin.publish(b"m%d" % number)
    wire = resumed(origin, mirror=True, last=OriginPosition(100), identity="2026-01-01T00:00:00Z")
    assert not wire.source_consumer.is_connected
    assert wire.source_consumer.progress.lag == 200
    assert wire.source_consumer.progress.error is not None
    assert "delete the mirror and create it again" in wire.source_consumer.progress.error.description


def test_an_origin_that_lost_its_end_is_asked_for_what_is_newer() -> None:
    origin = ModelOrigin({90: b"old", 91: b"new"}, 91)
    wire = resumed(origin, mirror=False, last=OriginPosition(100, 1_700_000_000_000_000_000), identity=origin.created)
    assert wire.asked_from == ["by_start_sequence", "by_start_time"]


@pytest.mark.parametrize("before_the_answer", [False, True])
def test_an_origin_that_lost_its_end_is_followed_from_there_where_no_time_is_known(before_the_answer: bool) -> None:
    origin = ModelOrigin({91: b"m91"}, 91)
    source_consumer = make_source_consumer(100)
    wire = Wire(source_consumer, origin, ModelTarget())
    wire.restore(1.0)
    origin.publish(b"m92")
    arrives = [origin.deliver(consumer) for consumer in origin.consumers.values()]
    if not before_the_answer:
        wire.do(
            [action for reply, body in wire.responses for action in source_consumer.response(reply, body, 1.1)], 1.1
        )
    for message in arrives:
        assert message is not None
        source_consumer.message(*message, 1.2)
    if before_the_answer:
        wire.do(
            [action for reply, body in wire.responses for action in source_consumer.response(reply, body, 1.3)], 1.3
        )
        assert wire.asked_from == ["by_start_sequence"] * 2
        assert [consumer.next_seq for consumer in origin.consumers.values()] == [92]
    else:
        assert source_consumer.phase is Phase.ACTIVE
        assert [each.origin_seq for each in source_consumer.gathered] == [92]
        assert wire.asked_from == ["by_start_sequence"]


def set_back() -> ModelOrigin:
    """Copied up to 100, set back to 90, grown to 120 since."""
    origin = ModelOrigin()
    for number in range(1, 101):
        origin.publish(b"m%d" % number)
    origin.set_back(90)
    for number in range(91, 121):
        origin.publish(b"M%d" % number)
    return origin


@pytest.mark.parametrize("tells_times", [True, False], ids=["eyot", "nats-server"])
def test_a_source_copies_what_an_origin_stored_since_it_was_set_back(tells_times: bool) -> None:
    origin = set_back()
    origin.tells_times = tells_times
    wire = resumed(origin, mirror=False, last=OriginPosition(100, 100_000, 10), identity=origin.created)
    assert wire.asked_from == ["by_start_sequence", "by_start_time"]
    assert [consumer.next_seq for consumer in origin.consumers.values()] == [91]
    assert "restored or lost messages" in wire.source_consumer.progress.note


def test_what_a_clock_that_was_set_back_as_well_stores_after_a_source_found_out_is_copied() -> None:
    """The source asked by time once, before anything new was stored; a request by time would leave it out."""
    origin = set_back()
    origin.set_back(90)
    wire = resumed(origin, mirror=False, last=OriginPosition(100, 100_000, 10), identity=origin.created)
    assert wire.asked_from == ["by_start_sequence", "by_start_time"]
    wire.cut(5.0)
    for number in range(91, 121):
        origin.publish(b"M%d" % number)
        origin.timelines[number] = -90_000
    wire.restore(7.0)
    assert wire.asked_from[2:] == ["by_start_sequence"]
    assert [consumer.next_seq for consumer in origin.consumers.values()] == [91]


@pytest.mark.parametrize("tells_times", [True, False], ids=["eyot", "nats-server"])
def test_a_mirror_holds_still_when_its_origin_was_set_back(tells_times: bool) -> None:
    origin = set_back()
    origin.tells_times = tells_times
    last = OriginPosition(100, 100_000, 10)
    held = resumed(origin, mirror=True, last=last, identity=origin.created).source_consumer
    assert not held.is_connected
    assert held.progress.lag == 1
    assert held.progress.error is not None
    assert "another message under 100" in held.progress.error.description
    assert held.epoch.held_at == 100
    goes_on = resumed(origin, mirror=True, last=last, identity=origin.created, skip_lost=True).source_consumer
    assert goes_on.phase is Phase.ACTIVE
    assert "is not copied" in goes_on.progress.note


@pytest.mark.parametrize("tells_times", [True, False], ids=["eyot", "nats-server"])
@pytest.mark.parametrize(
    "reached", [OriginPosition(100, 100_000, 10), OriginPosition(100, 100_000, 1 << 20), OriginPosition(100)]
)
@pytest.mark.parametrize("gone", [False, True])
def test_an_origin_that_is_as_it_was_is_gone_on_with(tells_times: bool, reached: OriginPosition, gone: bool) -> None:
    """Also where the last message is gone there, too large to be asked for, or its time was never known."""
    origin = ModelOrigin(dict.fromkeys(range(1, 121), b"m"), 120, tells_times=tells_times)
    if gone:
        origin.delete(100)
    wire = resumed(origin, mirror=False, last=reached, identity=origin.created)
    assert wire.source_consumer.phase is Phase.ACTIVE
    assert wire.asked_from == ["by_start_sequence"]
    assert wire.source_consumer.progress.error is None


def test_an_origin_that_does_not_answer_for_a_message_is_gone_on_with() -> None:
    """Its STREAM.MSG.GET may be denied: it holds up one request for as long as an answer may take, and is not asked again."""
    origin = ModelOrigin(dict.fromkeys(range(1, 121), b"m"), 120)
    source_consumer = make_source_consumer(OriginPosition(100, 100_000, 10))
    now = 1.0
    for proves in (True, False):
        body = next(action.body for action in source_consumer.link_up(now) if isinstance(action, Request))
        assert (
            any(
                isinstance(each, FetchLastMessage)
                for each in source_consumer.response(source_consumer.request.reply, origin.create(body), now)
            )
            is proves
        )
        source_consumer.response(source_consumer.verifier.identity_reply, origin.info(), now)
        source_consumer.message(
            b"$JS.ACK.ORIGIN.%b.1.101.1.101000.0" % source_consumer.request.consumer.encode(), b"in.x", b"", b"m", now
        )
        source_consumer.tick(now + 3.1)
        assert len(source_consumer.take_batch()[0]) == 1
        source_consumer.failed(100, FULL, now + 3.1)
        now += 10


def mirrored(origin: ModelOrigin, **options: Any) -> SourceConsumer:
    return resumed(origin, mirror=True, last=OriginPosition(100), identity=origin.created, **options).source_consumer


def test_a_mirror_whose_origin_lost_its_end_holds_still() -> None:
    source_consumer = mirrored(ModelOrigin({90: b"old", 91: b"new"}, 91))
    assert not source_consumer.is_connected
    assert source_consumer.progress.lag == 9
    assert source_consumer.progress.error is not None
    assert "ended at 91" in source_consumer.progress.error.description
    assert source_consumer.epoch.held_at == 92


def test_it_holds_still_when_the_origin_has_grown_again() -> None:
    """Under 92 to 100 the origin now has other messages than the mirror: nobody would notice later."""
    origin = ModelOrigin(dict.fromkeys(range(92, 121), b"other"), 120)
    source_consumer = mirrored(origin, held_at=92)
    assert not source_consumer.is_connected
    assert source_consumer.progress.error is not None
    assert "ended at 91" in source_consumer.progress.error.description


def test_it_goes_on_where_the_policy_says_so() -> None:
    source_consumer = mirrored(ModelOrigin({90: b"old", 91: b"new"}, 91), skip_lost=True)
    assert source_consumer.phase is Phase.ACTIVE
    assert source_consumer.progress.error is None
    assert "up to 100 is not copied" in source_consumer.progress.note
    grown = mirrored(ModelOrigin(dict.fromkeys(range(92, 121), b"other"), 120), skip_lost=True, held_at=92)
    assert grown.phase is Phase.ACTIVE
    assert grown.epoch.held_at == 0


def test_a_mirror_follows_a_recreated_origin_where_the_policy_says_so() -> None:
    origin = ModelOrigin()
    origin.recreate()
    for number in range(200):
        origin.publish(b"m%d" % number)
    wire = resumed(origin, mirror=True, last=OriginPosition(100), identity="2026-01-01T00:00:00Z", skip_lost=True)
    assert wire.source_consumer.phase is Phase.ACTIVE
    assert wire.source_consumer.identity == origin.created
    assert [consumer.next_seq for consumer in origin.consumers.values()] == [101]


def _epoch_action(source_consumer: SourceConsumer) -> str | None:
    """With its next request."""
    body = next(action.body for action in source_consumer.link_up(100.0) if isinstance(action, Request))
    told = json.loads(body)["config"].get("metadata", {}).get("eyot.life")
    assert told is None or isinstance(told, str)
    return told


def test_a_copy_says_of_which_life_it_has_what_comes_before() -> None:
    """But a mirror that went on behind its own end does not have it, and of one that may have, nobody knows."""
    origin = ModelOrigin()
    for number in range(200):
        origin.publish(b"m%d" % number)
    epoch = identity_of(origin.created)
    assert (
        _epoch_action(resumed(origin, mirror=False, last=OriginPosition(100), identity=origin.created).source_consumer)
        == epoch
    )
    assert _epoch_action(resumed(origin, mirror=False, last=OriginPosition(0), identity="").source_consumer) is None
    assert _epoch_action(mirrored(origin, whole=True)) == epoch
    assert _epoch_action(mirrored(origin)) is None
    back = ModelOrigin({90: b"old", 91: b"new"}, 91)
    assert _epoch_action(mirrored(back, whole=True)) is None, "it holds still"
    skipped = mirrored(back, whole=True, skip_lost=True)
    assert _epoch_action(skipped) == f"{identity_of(back.created)} 100"
    assert not skipped.epoch.whole


def test_a_mirror_that_begins_is_whole() -> None:
    origin = ModelOrigin()
    origin.publish(b"m")
    assert resumed(origin, mirror=True, last=OriginPosition(0), identity="").source_consumer.epoch.whole


def test_an_origin_that_does_not_clamp_tells_its_end_by_its_info() -> None:
    """nats-server 2.15 answers with the sequence that was asked for, also where it has not come so far."""
    source_consumer = make_source_consumer(100, mirror=True)
    body = next(action.body for action in source_consumer.link_up(1.0) if isinstance(action, Request))
    source_consumer.response(source_consumer.request.reply, ModelOrigin({}, 100).create(body), 1.1)
    assert source_consumer.phase is Phase.VERIFYING
    info = {"created": "2026-01-01T00:00:00Z", "state": {"messages": 91, "last_seq": 91}}
    source_consumer.response(source_consumer.verifier.identity_reply, json.dumps(info).encode(), 1.2)
    assert not source_consumer.is_connected
    assert source_consumer.progress.lag == 9


@pytest.mark.parametrize("told", [(0, 100), (100, 200)])
def test_a_mirror_skips_only_what_it_was_told_is_gone(told: tuple[int, int]) -> None:
    """An origin that began to deliver before it answered tells how far it is, and what it sent is still on its way."""
    source_consumer = make_source_consumer(50, mirror=True)
    body = next(action.body for action in source_consumer.link_up(1.0) if isinstance(action, Request))
    origin = ModelOrigin(last_seq=200, messages=dict.fromkeys(range(101, 201), b""))
    answer = json.loads(origin.create(body))
    answer["delivered"] = {"consumer_seq": told[0], "stream_seq": told[1]}
    actions = source_consumer.response(source_consumer.request.reply, json.dumps(answer).encode(), 1.0)
    actions += source_consumer.unidentified(1.0)
    assert [action.seq for action in actions if isinstance(action, Skip)] == ([] if told[0] else [100])
    for number, seq in enumerate(range(101, 201), 1):
        source_consumer.message(b"$JS.ACK.ORIGIN.c1.1.%d.%d.1000.0" % (seq, number), b"readings.x", b"", b"", 1.1)
    batch, _ = source_consumer.take_batch()
    assert [each.origin_seq for each in batch] == list(range(101, 201))
    assert not source_consumer.progress.behind
