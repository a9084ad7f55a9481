"""The configuration and state of a `SourceConsumer`: where it resumes, and the present request.

Sequences are those of the origin unless a field says otherwise. Times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from eyot_sync.sourcing import upstream_positions
from eyot_sync.sourcing.origin import Origin, Start, start_of
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_wire.go.time import ns_to_rfc3339

#: The origin's heartbeat interval, seconds, unless `RequestTerms` ask for another.
HEARTBEAT_S = 1.0


class SourceConfig(Struct, frozen=True):
    """The configuration of a mirror or source; immutable."""

    origin: Origin
    #: The stream keeps the origin's sequences, and is as long as the origin.
    mirror: bool
    #: A mirror continues beyond its own end where the origin lost messages that it holds; otherwise it waits. For
    #: `OriginEpoch`.
    skip_lost: bool = False
    #: The origin is asked for the positions of its own mirror and sources.
    asks_origins: bool = False

    @property
    def metadata(self) -> Mapping[str, str]:
        """Return the metadata of every request besides those of the consumer."""
        return {upstream_positions.KEY: upstream_positions.ASKED} if self.asks_origins else {}


class RequestTerms(NamedTuple):
    """Terms of the next request; policies change them."""

    #: Bits per second; 0: no limit.
    rate_limit_bps: int = 0
    #: Seconds between two heartbeats.
    heartbeat_s: float = HEARTBEAT_S


class ResumeState(Struct):
    """Where the next request begins. The owner stores it with the messages and gives it back after a restart."""

    #: The last accepted message, in the batch or handed on; `seq` 0: none of the present epoch. The next request begins after it.
    last: OriginPosition = field(default_factory=OriginPosition)
    #: The epoch of the origin that `last` belongs to, as its `created`; "": never known. `OriginEpoch.identity` starts
    #: from it.
    identity: str = ""
    #: Latest stored time of this epoch's messages that were passed on; 0: unknown. >= `last.ts_ns` of the stored state.
    newest_ns: int = 0
    #: Sequences and stored times of the last messages that were handed on, ascending; at most `CHECKPOINTS_MAX` + 1.
    checkpoints: list[tuple[int, int]] = field(default_factory=list)
    #: When the target last stored a message; a start by time does not go back before it. 0: never.
    last_stored_ns: int = 0
    #: One more than where a mirror's origin ended when it was found to have lost messages; 0: it was not. For `OriginEpoch`.
    held_at: int = 0
    #: A mirror holds messages of this epoch only, and never continued beyond its own end. For `OriginEpoch`.
    whole: bool = False
    #: Up to this sequence a mirror holds other messages than its origin may have; 0: unknown. For `OriginEpoch`.
    skipped: int = 0
    #: Further sequences whose stored times at the origin are requested with each request.
    others: Sequence[int] = ()
    #: Not 0: the origin was set back. While `last.seq` is 0, messages stored after this time are requested.
    newer_than_ns: int = 0
    #: Up to this sequence the origin may hold messages, out of order, that are not newer than `newer_than_ns`. 0 if that is 0.
    old_upto: int = 0

    def start_over(self, newer_than_ns: int, old_upto: int) -> None:
        """Start over: the origin's sequences have another meaning from now on."""
        self.newer_than_ns = newer_than_ns
        self.old_upto = old_upto if newer_than_ns else 0
        self.checkpoints = []
        self.last = OriginPosition()

    def is_old(self, seq: int, ts_ns: int) -> bool:
        """Return whether this message was stored before the origin was set back, and copied then.

        A request by time also returns later sequences with earlier times.
        """
        return seq <= self.old_upto and ts_ns <= self.newer_than_ns

    def start(self, origin: Origin, *, epochs: int) -> Start:
        """Return where the next consumer begins. `epochs`: number of times that the origin was re-created since the owner started."""
        if self.last.seq == 0 and self.newer_than_ns:
            return Start(time=ns_to_rfc3339(self.newer_than_ns + 1))
        if self.last.seq == 0 and epochs:
            return Start(time=origin.start_time)
        return start_of(origin, self.last.seq, self.last_stored_ns)


class CurrentRequest(Struct):
    """The latest request and the consumer that answers it. Each request makes a new one; without a request all fields are empty."""

    #: The subject of the messages. Not empty if and only if there is a subscription on it.
    deliver: bytes = b""
    #: The inbox of the answer; it names the request.
    reply: bytes = b""
    #: How long the consumer may be silent, as `HEARTBEAT_S`.
    heartbeat_s: float = HEARTBEAT_S
    #: `OriginEpoch.skipped` when it was sent.
    skipped: int = 0
    #: The consumer's name; "" until the origin has answered.
    consumer: str = ""
    #: The consumer of the first message; b"": unknown. Once the origin has answered, it equals `consumer`.
    heard_first: bytes = b""
    #: Consumer sequence of the last message without a gap; 0: none was received.
    consumer_seq: int = 0
    #: The same message's sequence.
    delivered_seq: int = 0
    #: The sequence of the consumer's first message; 0: none was received.
    first_seq: int = 0
    #: The origin's report about its own origins, oldest first, until the owner reads it.
    told: list[str] = field(default_factory=list)

    def is_from(self, consumer: bytes) -> bool:
        """Return whether a message comes from the present consumer; b"": unknown.

        Another server of the origin's domain may answer the request as well, and send to the same subject: the first
        one counts until the answer names the consumer.
        """
        if not consumer:
            return True
        if not self.heard_first:
            self.heard_first = consumer
        return consumer == (self.consumer.encode() or self.heard_first)
