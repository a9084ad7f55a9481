"""The downstream behind a hidden consumer, and its position according to its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from eyot_daemon.jetstream.downstream.record import LOCAL, Downstream
from eyot_sync.sourcing.origin_epoch import EPOCH_KEY
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.stream_source import identity_of

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.hidden_consumer import HiddenConsumer
    from eyot_daemon.router.account import Account
    from eyot_store import Log

#: Who reads, by the middle token of its deliver subject.
_KINDS = {b"M": "mirror", b"S": "source"}


def with_location(log: Log, downstream: Downstream, consumer: HiddenConsumer, sent: int) -> Downstream:
    """Return a downstream that was sent messages up to `sent`, updated with the position in its request."""
    begins_after = consumer.state.delivered_sseq
    epoch = consumer.config.metadata.get(EPOCH_KEY)
    if epoch == identity_of(ns_to_rfc3339(log.created_ns)):
        return replace(downstream, ahead_from=0, ahead=0)  # it says that what it holds is of this epoch
    has = downstream.seq if epoch is None else 0  # of another epoch: nothing of this one
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
