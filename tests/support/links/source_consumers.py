"""Source consumers whose turns a test drives, alone or with a model of origin and target."""

from __future__ import annotations

import random

from eyot_sync.sourcing.actions import (
    Action,
    Request,
)
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import ResumeState, SourceConfig
from eyot_wire.jetstream.stream import External, StreamSource
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
        self.now += self.chance.choices((0.01, 0.1, 0.3, 1.0, 6.0), (10, 6, 4, 1, 1))[0]
        for _ in range(self.chance.randint(1, 3) if what in ("respond", "send") else 1):
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
            # An Eyot origin also asks now and then: what was confirmed up to where the consumer begins?
            if not consumer.awaited and (consumer.unanswered >= 3 or self.chance.random() < 0.1):
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


def answered(source_consumer: SourceConsumer, origin: ModelOrigin, now: float) -> list[Action]:
    """The origin gives the copier its consumer, and does not tell its life."""
    body = next(action.body for action in source_consumer.link_up(now) if isinstance(action, Request))
    actions = source_consumer.response(source_consumer.request.reply, origin.create(body), now)
    return [*actions, *source_consumer.unidentified(now)]
