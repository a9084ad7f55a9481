"""`SourceConsumer` against a model of its origin: cuts, losses, crashes, full disks in random order; exactly once at the end."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_sync.sourcing.actions import (
    Action,
    Answer,
    FetchLastMessage,
    Identify,
    Request,
    Skip,
    Subscribe,
    ack_position_header,
)
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.phase import TRANSITIONS, Phase
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import ResumeState, SourceConfig
from eyot_wire.jetstream.stream import External, StreamSource
from eyot_wire.jetstream.stream_source import identity_of
from support.links.origin_model import FULL, ModelOrigin, ModelTarget, Wire


def make_source_consumer(last: int | OriginPosition, *, mirror: bool = False, seed: int = 1) -> SourceConsumer:
    chance = random.Random(seed)
    source = StreamSource(name="ORIGIN", external=External(api="$JS.leaf.API", deliver=""))
    return SourceConsumer(
        SourceConfig(Origin.of(source), mirror),
        ResumeState(last=last if isinstance(last, OriginPosition) else OriginPosition(last)),
        make_id=lambda length: "".join(chance.choices("abcdefgh", k=length)),
    )


class Run:
    """A copier, its origin and its target, moved on by named steps."""

    def __init__(self, seed: int, *, mirror: bool) -> None:
        self.chance = random.Random(seed)
        self.mirror = mirror
        self.now = 0.0
        self.origin = ModelOrigin()
        self.target = ModelTarget()
        self.seed = seed
        self.start()

    def start(self) -> None:
        """The daemon starts (again): only what is on flash is known."""
        self.seed += 1
        self.origin.consumers.clear()
        self.target.waiting.clear()
        source_consumer = make_source_consumer(self.target.position, mirror=self.mirror, seed=self.seed)
        self.wire = Wire(source_consumer, self.origin, self.target)
        self.wire.restore(self.now)

    def step(self, what: str) -> None:
        self.now += self.chance.choice((0.01, 0.1, 1.0, 6.0))
        getattr(self, what)()
        self.wire.do(self.wire.source_consumer.tick(self.now), self.now)
        self.wire.gather(self.now)

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.origin.publish(f"m{self.origin.last_seq + 1}".encode())

    def publish_amid(self) -> None:
        """A message is stored while the next consumer is made."""
        self.origin.amid = b"?"  # numbered when it is stored

    def respond(self) -> None:
        if self.wire.responses:
            reply, body = self.wire.responses.pop(0)
            self.wire.do(self.wire.source_consumer.response(reply, body, self.now), self.now)

    def send(self) -> None:
        """Consumers at the origin put something on the link."""
        for deliver, consumer in list(self.origin.consumers.items()):
            if not self.wire.up or deliver not in self.wire.listening:
                continue
            message = self.origin.deliver(consumer)
            self.wire.under_way.append((deliver, message or self.origin.heartbeat(consumer)))
            if consumer.unanswered >= 3:
                self.wire.under_way.append((deliver, self.origin.flow_control(consumer)))

    def receive(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            if not self.wire.under_way:
                return
            deliver, message = self.wire.under_way.pop(0)
            if deliver in self.wire.listening:
                self.wire.do(self.wire.source_consumer.message(*message, self.now), self.now)

    def lose(self) -> None:
        """The link drops one thing that was under way and goes on."""
        if self.wire.under_way:
            self.wire.under_way.pop(self.chance.randrange(len(self.wire.under_way)))

    def commit(self) -> None:
        self.wire.commit(self.now)

    def fail(self) -> None:
        """The disk is full: nothing of what was staged reaches it."""
        if self.target.waiting:
            self.target.waiting.clear()
            self.wire.do(self.wire.source_consumer.failed(self.target.position, FULL, self.now), self.now)

    def refuse(self) -> None:
        """The target is full when the next batch comes: what was handed on before is still on its way."""
        for _ in range(2):
            while self.wire.responses:
                self.respond()
            self.wire.gather(self.now)
            self.publish()
            self.send()
            self.send()
            self.receive()
        self.wire.room = self.chance.randint(0, 1)

    def crash(self) -> None:
        self.start()

    def cut(self) -> None:
        if self.wire.up:
            self.wire.cut(self.now)

    def restore(self) -> None:
        if not self.wire.up:
            self.wire.restore(self.now)

    def expire(self) -> None:
        """A limit at the origin takes its oldest message; what was not copied yet is a gap from now on."""
        oldest = min(self.origin.messages, default=0)
        if oldest and self.target.position >= oldest:
            self.origin.delete(oldest)

    def settle(self) -> None:
        """The faults are over: everything must arrive in a bounded number of steps."""
        self.restore()
        for _ in range(60 * (self.origin.last_seq + 4)):
            for what in ("respond", "send", "receive", "commit"):
                self.now += 0.2
                getattr(self, what)()
                self.wire.do(self.wire.source_consumer.tick(self.now), self.now)
                self.wire.gather(self.now)
            if self.target.position >= self.origin.last_seq:
                return
        raise AssertionError(
            f"stuck at {self.target.position} of {self.origin.last_seq}, {self.wire.source_consumer.phase}"
        )


STEPS = (
    "publish", "publish", "respond", "send", "send", "receive", "receive", "commit", "commit",
    "lose", "fail", "crash", "cut", "restore", "expire", "publish_amid", "refuse",
)  # fmt: skip


@pytest.mark.parametrize("mirror", [False, True])
@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(STEPS), max_size=120))
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


def answered(source_consumer: SourceConsumer, origin: ModelOrigin, now: float) -> list[Action]:
    """The origin gives the copier its consumer, and does not tell its life."""
    body = next(action.body for action in source_consumer.link_up(now) if isinstance(action, Request))
    actions = source_consumer.response(source_consumer.request.reply, origin.create(body), now)
    return [*actions, *source_consumer.unidentified(now)]


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
    wire = resumed(origin, mirror=False, last=OriginPosition(100), identity="2026-01-01T00:00:00Z")
    assert wire.source_consumer.phase is Phase.ACTIVE
    assert [consumer.next_seq for consumer in origin.consumers.values()] == [1]
    assert wire.source_consumer.identity == origin.created
    assert "was re-created" in wire.source_consumer.progress.note


def test_a_batch_of_the_former_epoch_that_fails_says_nothing_of_the_new_one() -> None:
    """It is still on its way to a slow flash when the origin, created again, has answered; only its first message is stored."""
    run = Run(1, mirror=False)
    run.publish()
    run.publish()
    while run.wire.responses:
        run.respond()
    run.send()
    run.send()
    while run.wire.under_way:
        run.receive()
    run.wire.gather()
    assert [each.origin_seq for each in run.target.waiting[0][0]] == [1, 2]
    run.cut()
    run.origin.recreate()
    run.publish()
    run.publish()
    run.now += 10
    run.restore()
    while run.wire.responses:
        run.respond()
    source_consumer = run.wire.source_consumer
    assert source_consumer.progress.epochs == 1
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
