"""How much of a stream has reached those who copy it, as far as they have confirmed: the origin's side of mirrors and sources.

Whoever copies a stream reads it through a hidden (`direct`) consumer with flow control. A reader answers a flow-control request
when it has taken everything that was sent before it (an Eyot reader when that is on flash), so an answer confirms every sequence
up to the request. It is asked when half of the window is full, as nats-server does, and besides that a second after something
was delivered. Streams with work-queue or interest retention let go of a message when it is confirmed, not when it is delivered,
and keep it for a reader that is away. What was confirmed is kept among the stream's positions: it is known after a restart and while the link is down.

So is the deliver subject of each. A reader that still listens there although its consumer is gone (this server was restarted, or the
link was down longer than the consumer lived) would wait up to 20 s before it misses the heartbeats. It gets one, with a count of
deliveries that it cannot have: then it asks for a new consumer at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from eyot_daemon.jetstream.deliver_interest import interest_of
from eyot_daemon.jetstream.pull_request import idle_heartbeat
from eyot_wire.js_time import ns_to_rfc3339
from eyot_wire.status import SyncStatus
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.batch import Settled
    from eyot_daemon.jetstream.consumer import Consumer
    from eyot_daemon.jetstream.stream import Stream
    from eyot_store.txn import Txn

#: A delivery is confirmed no later than this after it, seconds, if its reader answers.
CONFIRM_WITHIN_S = 1.0
#: Messages whose sizes are added up one by one; a larger backlog is reckoned from the stream's average.
_SUMMED_MAX = 1000
_SUMMED_BYTES = 16 << 20
_KEY = b"eyot.out."
#: Who reads, by the middle token of its deliver subject.
_KINDS = {b"M": "mirror", b"S": "source"}
_LOCAL = "this server"
#: More deliveries than any consumer has made.
_NEVER_DELIVERED = 1 << 62


class Reader(msgspec.Struct, array_like=True):
    """One mirror or source elsewhere. `peer` is the server's name, `domain` its JetStream domain; `deliver` the subject on which it
    listened last."""

    peer: str
    domain: str
    kind: str
    filters: tuple[bytes, ...]
    seq: int = 0
    at_ns: int = 0
    rate: float = 0.0
    deliver: bytes = b""


log = logging.getLogger("eyot.sync")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reader).decode


class CopiedOut:
    """The readers of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        positions = stream.log.positions()
        self._readers = {key: _decode(value) for key, value in positions.items() if key.startswith(_KEY)}
        self._watched: set[bytes] = set()
        self._told: set[bytes] = set()
        self._dirty = False

    @property
    def known(self) -> bool:
        """Has anybody confirmed anything?"""
        return bool(self._readers)

    @property
    def missed(self) -> bool:
        """Does one of the readers have no consumer at the moment?"""
        return any(not self._is_served(reader.deliver) for reader in self._readers.values())

    def wants(self, subject: bytes) -> bool:
        """Does one of the readers copy this subject?"""
        return any(_copies(reader, subject) for reader in self._readers.values())

    def needs(self, seq: int, subject: bytes) -> bool:
        """Does one of the readers copy this message and has not confirmed it?"""
        return any(seq > reader.seq and _copies(reader, subject) for reader in self._readers.values())

    def has(self, seq: int, subject: bytes) -> bool:
        """Has one of the readers confirmed this message?"""
        return any(seq <= reader.seq and _copies(reader, subject) for reader in self._readers.values())

    def reading(self, consumer: Consumer) -> None:
        """Somebody listens on the deliver subject of a hidden consumer. Where it began is what its reader has."""
        stream = self._stream
        key, found = _reader(consumer)
        known = self._readers.get(key)
        before = consumer.config.opt_start_seq - 1 if consumer.config.deliver_policy == "by_start_sequence" else 0
        if known is None:
            if stream.config.retention != "limits":
                found.seq, found.at_ns = before, stream.broker.clock.now_ns()
                self._readers[key] = found
                self._keep(key, stream.store.begin())
            return
        confirmed, known.seq = known.seq, max(known.seq, min(before, stream.log.committed_seq))
        if known.deliver != found.deliver or known.seq > confirmed:
            known.deliver = found.deliver
            txn = stream.store.begin()
            stream.retention.confirmed(confirmed + 1, known.seq, txn)
            self._keep(key, txn)

    def forget(self, consumer: Consumer) -> None:
        """Whoever reads through this consumer says that it will not come back."""
        deliver = consumer.config.deliver_subject.encode()
        stream = self._stream
        for key in [key for key, reader in self._readers.items() if reader.deliver == deliver]:
            del self._readers[key]
            txn = stream.store.begin()
            stream.log.delete_position(txn, key)
            stream.retention.drop_unneeded(txn)
            stream.store.submit(txn)
        self.watch()

    def confirmed(self, consumer: Consumer, seq: int) -> None:
        """The reader behind this consumer has everything up to `seq`; what was kept for it alone goes in the same transaction."""
        stream = self._stream
        settled = consumer.acks.take_confirmed(seq)
        key, found = _reader(consumer)
        known = self._readers.get(key)
        found.seq, found.at_ns = seq, stream.broker.clock.now_ns()
        if known is not None:
            if seq <= known.seq and stream.log.state.last_seq >= known.seq:
                if not settled:
                    return
                found = known
            else:
                elapsed_s = (found.at_ns - known.at_ns) / 1e9
                found.rate = (seq - known.seq) / elapsed_s if elapsed_s > 0 and seq > known.seq else 0.0
        self._readers[key] = found
        txn = stream.store.begin()
        if settled:
            stream.consumer_acked(consumer, settled, txn)
        self._keep(key, txn, lambda error: consumer.acks.give_back(settled) if error else None)

    def _keep(self, key: bytes, txn: Txn, done: Settled | None = None) -> None:
        """Store a reader along with what `txn` already holds."""
        stream = self._stream
        stream.log.put_position(txn, key, _encode(self._readers[key]))
        stream.store.submit(txn, done)
        self.watch()

    # -- readers whose consumer is gone ------------------------------------------------------------------------------

    def watch(self) -> None:
        """Hear of interest in the readers' deliver subjects."""
        interest = interest_of(self._stream.account)
        wanted = {reader.deliver for reader in self._readers.values() if reader.deliver}
        for subject in self._watched - wanted:
            interest.unwatch(subject, self)
        for subject in wanted - self._watched:
            interest.watch(subject, self)
        self._watched = wanted

    def stop(self) -> None:
        """The stream is no longer here."""
        interest = interest_of(self._stream.account)
        for subject in self._watched:
            interest.unwatch(subject, self)
        self._watched = set()

    def interest_changed(self) -> None:
        """Somebody listens, or no longer listens, on a deliver subject; looked at when the turn ends."""
        if not self._dirty:
            self._dirty = True
            self._stream.broker.mark_dirty(self)

    def flush(self) -> None:
        self._dirty = False
        account = self._stream.account
        for subject in self._watched:
            if not account.has_interest(subject):
                self._told.discard(subject)
            elif subject not in self._told and not self._is_served(subject):
                self._told.add(subject)
                log.info(
                    "%s: who listens on %s has no consumer any more and is told", self._stream.name, subject.decode()
                )
                account.publish(subject, header=idle_heartbeat(_NEVER_DELIVERED, self._stream.log.committed_seq))

    def _is_served(self, deliver: bytes) -> bool:
        subject = deliver.decode("utf-8", "surrogateescape")
        consumers = self._stream.consumers.values()
        return any(each.config.direct and each.config.deliver_subject == subject for each in consumers)

    # -- what is told --------------------------------------------------------------------------------------------------

    def statuses(self) -> list[SyncStatus]:
        return [self._status(reader) for _, reader in sorted(self._readers.items())]

    def _status(self, reader: Reader) -> SyncStatus:
        stream = self._stream
        log = stream.log
        seq = min(reader.seq, log.committed_seq)
        backlog = log.count(seq + 1, reader.filters)
        oldest_ns = 0
        size = 0
        if backlog:
            read = log.read(seq + 1, max_messages=_SUMMED_MAX, max_bytes=_SUMMED_BYTES, filters=reader.filters)
            sizes = [log.message_bytes(each.subject, each.header, each.payload) for each in read.messages]
            oldest_ns = read.messages[0].ts_ns if read.messages else 0
            size = sum(sizes)
            if len(sizes) < backlog and log.state.messages:
                size = max(size, log.state.bytes * backlog // log.state.messages)
        now_ns = stream.broker.clock.now_ns()
        links = [one for one in stream.broker.links.states() if one.account in ("", stream.account.name)]
        linked = reader.peer == _LOCAL or any(one.is_up and one.peer_name == reader.peer for one in links)
        failed = next((one for one in links if not one.is_up and one.last_error), None)
        return SyncStatus(
            account=stream.account.name,
            stream=stream.name,
            peer=reader.peer,
            peer_domain=reader.domain,
            kind=reader.kind,
            filters=[each.decode("utf-8", "replace") for each in reader.filters],
            linked=linked,
            confirmed_seq=seq,
            confirmed_at=ns_to_rfc3339(reader.at_ns),
            last_seq=log.committed_seq,
            backlog=backlog,
            backlog_bytes=size,
            oldest_s=max(0.0, (now_ns - oldest_ns) / 1e9) if oldest_ns else None,
            rate=reader.rate,
            eta_s=backlog / reader.rate if backlog and linked and reader.rate else None,
            error=failed.last_error if failed is not None and not linked else None,
            remedy=failed.remedy or None if failed is not None and not linked else None,
        )


def copies_missed(streams: Iterable[Stream]) -> bool:
    """Does somebody who copied one of these streams not read it now? Where nobody ever did, somebody may be about to begin."""
    copied = [copied_out_of(stream) for stream in streams]
    return any(one.missed for one in copied) or (bool(copied) and not any(one.known for one in copied))


def _copies(reader: Reader, subject: bytes) -> bool:
    return not reader.filters or any(matches(each, subject) for each in reader.filters)


def _reader(consumer: Consumer) -> tuple[bytes, Reader]:
    """Who listens on a consumer's deliver subject, and the key it is kept under."""
    subject = consumer.config.deliver_subject.encode()
    tokens = subject.split(b".")
    kind = _KINDS.get(tokens[-2], "reader") if len(tokens) > 1 else "reader"
    peer, domain = _LOCAL, ""
    states = {id(link): link.state for link in consumer.broker.links.connections.values()}
    for member in consumer.account.route(subject).leafs:
        state = states.get(id(member.dest))
        if state is not None:
            peer, domain = state.peer_name, state.peer_domain
    filters = tuple(consumer.reader.filters)
    # Copies of 2.14 and later, and Eyot's, say who they are, whatever server of theirs the link leads to.
    metadata = consumer.config.metadata
    target, home = (
        metadata.get(f"_nats.mirror.{what}") or metadata.get(f"_nats.src.{what}") or "" for what in ("stream", "domain")
    )
    key = _KEY + f"{home or peer} {kind} {target} ".encode() + b"\f".join(filters)
    return key, Reader(peer, domain, kind, filters, deliver=subject)


_by_stream: WeakKeyDictionary[Stream, CopiedOut] = WeakKeyDictionary()


def copied_out_of(stream: Stream) -> CopiedOut:
    """The stream's CopiedOut, made on first use."""
    found = _by_stream.get(stream)
    if found is None:
        found = _by_stream[stream] = CopiedOut(stream)
    return found
