"""Destinations that remember what they got, for tests of routing."""

from __future__ import annotations

from dataclasses import dataclass, field

from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_sync.policy.stream_gate import UNLIMITED, Hold
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.frames import FrameLine


@dataclass
class Got:
    """One delivered message."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes
    sub: Subscription | None = None
    queues: tuple[bytes, ...] = ()


@dataclass(eq=False)
class Recorder:
    """A local destination: a client, a stream, a service."""

    kind: Kind = Kind.JETSTREAM
    refuses: bool = False
    got: list[Got] = field(default_factory=list)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        if self.refuses:
            return False
        self.got.append(Got(subject, reply, header, payload, sub))
        return True

    def flush(self) -> None:
        pass

    @property
    def subjects(self) -> list[bytes]:
        return [got.subject for got in self.got]

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.got]


@dataclass(eq=False)
class LeafRecorder(Recorder):
    """A leaf link that accepts what it is told to."""

    kind: Kind = Kind.LEAF
    denied: frozenset[bytes] = frozenset()

    def accepts(self, subject: bytes, origin: Origin | None) -> bool:
        return subject not in self.denied

    def deliver_leaf(
        self,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        queues: tuple[bytes, ...],
        origin: Origin | None,
    ) -> bool:
        self.got.append(Got(subject, reply, header, payload, queues=queues))
        return True

    def deliver_all_of(self, stream: bytes, subject: bytes, messages: list[tuple[bytes, bytes, bytes]]) -> int:
        return sum(self.deliver_leaf(subject, *message, (), None) for message in messages)

    def deliver_stored(self, stream: bytes, subject: bytes, messages: FirstDeliveries) -> tuple[int, int] | None:
        return None

    def deliver_run(self, subject: bytes, line: FrameLine, tails: list[bytes]) -> int:
        return -1

    def hold(self, stream: bytes) -> Hold | None:
        return None

    def allowance(self, stream: bytes) -> int:
        return UNLIMITED


@dataclass(eq=False)
class Client:
    """An origin that is a client."""

    kind: Kind = Kind.CLIENT
