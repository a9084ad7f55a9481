"""One downstream: a mirror or source elsewhere that replicates a stream here.

Its stored record, its hidden (`direct`) consumer or bridge as the tracker sees it, and how it is recognized by its request.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from eyot_daemon.jetstream.stream_core import ConsumerPort
from eyot_store.log.log import Log
from eyot_sync.sourcing.origin_epoch import EPOCH_KEY, Claim
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.forget_downstream import ForgetRequest
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account


class Delivered(Protocol):
    """Its position."""

    @property
    def delivered_sseq(self) -> int: ...


class Filtered(Protocol):
    """Its filters."""

    @property
    def filters(self) -> Sequence[bytes]: ...


class Unconfirmed(Protocol):
    """Its deliveries that the downstream has not confirmed."""

    def take_confirmed(self, sseq: int) -> list[int]:
        """Return the messages up to `sseq`, which the downstream has confirmed, for removal from the stream."""
        ...

    def give_back(self, sseqs: Sequence[int]) -> None:
        """Take back messages that the stream could not remove."""
        ...


class PushSide(Protocol):
    """Its deliveries: whether there is a subscriber, where they began, and what was confirmed."""

    @property
    def active(self) -> bool: ...

    @property
    def begun_after(self) -> int: ...

    @property
    def confirmed_sseq(self) -> int: ...

    @property
    def held(self) -> str: ...


class HiddenConsumer(ConsumerPort, Protocol):
    """The hidden consumer of a downstream, as the downstream's tracker uses it."""

    @property
    def state(self) -> Delivered: ...

    @property
    def reader(self) -> Filtered: ...

    @property
    def acks(self) -> Unconfirmed: ...

    @property
    def push(self) -> PushSide | None: ...


class BridgeReader(Protocol):
    """A bridge as the tracker sees it: it reads the stream's log itself, without a consumer."""

    @property
    def delivered_sseq(self) -> int:
        """The last sequence that was sent to the remote."""
        ...

    @property
    def linked(self) -> bool:
        """Whether the bridge is connected with its remote."""
        ...

    @property
    def acknowledged(self) -> bool:
        """Whether the remote acknowledges what it has: with QoS 0 nobody knows."""
        ...

    @property
    def waiting(self) -> str:
        """The policy that holds the messages back; "": none does."""
        ...

    @property
    def trouble(self) -> tuple[str, str]:
        """Why nothing arrives, and what helps; empty where nothing is wrong."""
        ...

    def read_again(self) -> None:
        """Read again what is not confirmed: a removal failed, and what was passed over is still there."""
        ...


#: The records of a stream's downstreams stand under this and their own keys among its positions.
RECORD_KEY = b"eyot.out."
#: A longer key is kept as its hash, bytes.
_KEY_MAX = 400
#: The `peer` of a mirror or source at home.
LOCAL = "this server"
#: The `kind` of a bridge; its `peer` is the bridge's name.
BRIDGE = "bridge"


class Downstream(msgspec.Struct, array_like=True):
    """The stored record of one mirror or source elsewhere. Sequences are those of the stream here."""

    #: Name of its server, or of the server's cluster: the servers of a cluster share streams, and each leader continues where the
    #: one before stopped. Where its server is linked through another one (`via`): name of its domain.
    peer: str
    #: Its JetStream domain; "" where it has none.
    domain: str
    #: `mirror`, `source`, `bridge`, or `reader` where its deliver subject says neither.
    kind: str
    #: Its filter subjects; empty: everything.
    filters: tuple[bytes, ...]
    #: Highest sequence that the downstream has confirmed. It falls only when the downstream requests confirmed messages again.
    seq: int = 0
    #: Time of its last confirmation, or of its first request, ns since epoch.
    at_ns: int = 0
    #: Sequences a second between its last two confirmations; 0.0: not known.
    rate: float = 0.0
    #: The subject on which it listened last; b"": not known.
    deliver: bytes = b""
    #: The downstream's stream; "": not named in requests (nats-server before 2.14). Such mirrors and sources at one server share
    #: one record, with the position of the one that is furthest behind.
    target: str = ""
    #: Sequence after which its first request began. Messages up to here were never sent to it; it may have them from an earlier
    #: epoch of this stream.
    begun: int = 0
    #: `peer` is a cluster.
    is_cluster: bool = False
    #: The downstream accepts no message with a sequence above `ahead_from` and up to `ahead`. <= `ahead`.
    ahead_from: int = 0
    #: Sequence after which it requested messages although this stream ended before, or had not sent that many: the downstream has
    #: messages of another epoch, or messages that this stream lost. 0: none.
    ahead: int = 0
    #: The peer through which its server is linked; "": its server is linked itself.
    via: str = ""
    #: Last sequence sent to it; None while it reads: every stored message may have been sent.
    sent: int | None = None

    @property
    def key(self) -> bytes:
        """The key of the record among the stream's positions. A bridge keeps its position when its filters change."""
        who = self.domain or self.peer if self.target else self.peer
        key = f"{who} {self.kind} {self.target} ".encode()
        if self.kind != BRIDGE:
            key += b"\f".join(self.filters)
        return RECORD_KEY + (key if len(key) <= _KEY_MAX else sha256(key).hexdigest().encode())

    @property
    def name(self) -> str:
        """Name in pages and logs: kind, stream and peer."""
        return f"{self.kind} {self.target} at {self.peer}".replace("  ", " ")

    def takes(self, seq: int) -> bool:
        """Return whether the downstream has, or will accept, the message with this sequence."""
        return not self.ahead_from < seq <= self.ahead

    def copies(self, subject: bytes | None) -> bool:
        """Return whether its filters match this subject; they may match an unknown one (None)."""
        return not self.filters or subject is None or any(matches(each, subject) for each in self.filters)

    def passed_over(self, log: Log) -> int:
        """Return the number of stored messages that the downstream does not accept because it is ahead of this stream."""
        if not self.ahead:
            return 0
        return log.count(self.ahead_from + 1, self.filters) - log.count(self.ahead + 1, self.filters)

    def is_meant_by(self, asked: ForgetRequest) -> bool:
        """Return whether a request means this downstream, possibly among others."""
        filters = None if asked.filters is None else tuple(each.encode() for each in asked.filters)
        return (
            asked.server in (self.peer, self.domain)
            and asked.kind in ("", self.kind)
            and asked.target in ("", self.target)
            and filters in (None, self.filters)
        )


encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Downstream).decode

#: Who reads, by the middle token of its deliver subject.
_KINDS = {b"M": "mirror", b"S": "source"}


def with_location(log: Log, downstream: Downstream, consumer: HiddenConsumer, sent: int) -> Downstream:
    """Return a downstream that was sent messages up to `sent`, updated with the position in its request."""
    begins_after = consumer.state.delivered_sseq
    text = consumer.config.metadata.get(EPOCH_KEY)
    claim = None if text is None else Claim.read(text)
    if claim is not None and claim.identity == identity_of(ns_to_rfc3339(log.created_ns)):
        if claim.skipped <= downstream.ahead:
            return downstream if claim.skipped else replace(downstream, ahead_from=0, ahead=0)
        has = downstream.ahead_from if downstream.ahead else downstream.seq
        return replace(downstream, ahead_from=min(has, claim.skipped), ahead=claim.skipped)
    has = downstream.seq if claim is None else 0  # of another epoch: nothing of this one
    wanted_after = asked_after(consumer)
    if wanted_after > begins_after:
        return replace(downstream, ahead_from=min(has, begins_after), ahead=wanted_after)
    if wanted_after > max(sent, downstream.ahead) and _is_stored(log, sent, wanted_after, downstream.filters):
        # The downstream claims messages that it was never sent: they are of another epoch of this stream.
        return replace(downstream, ahead_from=min(has, sent), ahead=wanted_after)
    if begins_after < downstream.ahead:
        return replace(downstream, ahead_from=0, ahead=0)
    return downstream


def asked_after(consumer: HiddenConsumer) -> int:
    """Return the sequence that a request resumes after; 0 if it names none."""
    config = consumer.config
    return max(config.opt_start_seq - 1, 0) if config.deliver_policy == "by_start_sequence" else 0


def _is_stored(log: Log, after: int, upto: int, filters: tuple[bytes, ...]) -> bool:
    return log.count(after + 1, filters) > log.count(upto + 1, filters)


def downstream_behind(account: Account, consumer: HiddenConsumer) -> tuple[bytes, Downstream]:
    """Return the downstream that listens on a consumer's deliver subject, and the key of its record."""
    subject = consumer.config.deliver_subject.encode()
    tokens = subject.split(b".")
    kind = _KINDS.get(tokens[-2], "reader") if len(tokens) > 1 else "reader"
    peer, domain, is_cluster = _peer_of(account, subject)
    # Mirrors and sources of nats-server 2.14 and later, and Eyot's, name themselves, through any server of their cluster.
    metadata = consumer.config.metadata
    target, home = (
        metadata.get(f"_nats.mirror.{what}") or metadata.get(f"_nats.src.{what}") or "" for what in ("stream", "domain")
    )
    filters = tuple(consumer.reader.filters)
    found = Downstream(peer, home or domain, kind, filters, deliver=subject, target=target, is_cluster=is_cluster)
    if home not in ("", domain) and peer != LOCAL:
        found.peer, found.via = home, peer
    return found.key, found


def _peer_of(account: Account, deliver: bytes) -> tuple[str, str, bool]:
    """Return the peer behind which a subscriber of the deliver subject is, the peer's domain, and whether the peer is a cluster."""
    states = {id(link): link.state for link in account.broker.leaf_connections()}
    home = (LOCAL, "", False)
    for member in account.route(deliver).leaf_links:
        state = states.get(id(member.dest))
        if state is not None:
            home = (state.peer_group, state.peer_domain, state.is_cluster)
    return home
