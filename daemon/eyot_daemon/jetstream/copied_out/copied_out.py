"""How much of a stream has reached those who copy it, as far as they have confirmed: the origin's side of mirrors and sources.

Whoever copies a stream reads it through a hidden (`direct`) consumer with flow control. A reader answers a flow-control request
when it has taken everything that was sent before it (an Eyot reader when that is on flash), so an answer confirms every sequence
up to the request. It is asked when half of the window is full, as nats-server does, and besides that a second after something
was delivered. A reader that comes back asking for what it had confirmed (it was restored from a backup, say) has it no more: the
record goes back with it. Streams with work-queue or interest retention let go of a message when it is confirmed, not when it is delivered,
and keep it for a reader that is away. What was confirmed is kept among the stream's positions: it is known after a restart and while the link is down.

So is the deliver subject of each. A reader that still listens there although its consumer is gone (this server was restarted, or the
link was down longer than the consumer lived) would wait up to 20 s before it misses the heartbeats. It gets one, with a count of
deliveries that it cannot have: then it asks for a new consumer at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from eyot_daemon.jetstream.copied_out.behind import Behinds
from eyot_daemon.jetstream.copied_out.reader_doubts import doubts_of
from eyot_daemon.jetstream.copied_out.trouble import Standing, trouble
from eyot_daemon.jetstream.deliver_interest import interest_of
from eyot_daemon.jetstream.pull_request import idle_heartbeat
from eyot_store.errors import StoreError
from eyot_sync.copying.origin_life import LIFE_KEY
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.forget_reader import ForgetRequest
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.status import SyncStatus
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.consumer import Consumer
    from eyot_daemon.jetstream.messages.batch import Settled
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store import Log
    from eyot_store.txn import Txn

#: A delivery is confirmed no later than this after it, seconds, if its reader answers.
CONFIRM_WITHIN_S = 1.0
_KEY = b"eyot.out."
#: Longer ones are kept under their hash.
_KEY_MAX = 400
#: Who reads, by the middle token of its deliver subject.
_KINDS = {b"M": "mirror", b"S": "source"}
_LOCAL = "this server"
#: More deliveries than any consumer has made.
_NEVER_DELIVERED = 1 << 62


class Reader(msgspec.Struct, array_like=True):
    """One mirror or source elsewhere. `peer` is the server's name, or that of its cluster: the servers of a cluster share their streams,
    and today's leader asks from where yesterday's was. Of a server that is not linked itself, but reads through one that is (`via`), it is
    the name of its domain; `domain` is their JetStream domain; `deliver` the subject on which it
    listened last; `target` the stream there that copies, "" where it does not say (nats-server before 2.14): such copies at one
    server go by one record, which says what the one that is behind has. It was not sent what is up to `begun`: when it was met first
    it asked for what comes after, which says nothing about what it has (it may mean an earlier life of this stream). `is_cluster`: `peer`
    is a cluster. `ahead`: it asked for what comes after this when this stream ended before (it copied another life of it, or messages that
    this one lost); of what is stored here it then takes nothing after `ahead_from` up to there."""

    peer: str
    domain: str
    kind: str
    filters: tuple[bytes, ...]
    seq: int = 0
    at_ns: int = 0
    rate: float = 0.0
    deliver: bytes = b""
    target: str = ""
    begun: int = 0
    is_cluster: bool = False
    ahead_from: int = 0
    ahead: int = 0
    via: str = ""

    def takes(self, seq: int) -> bool:
        """May it have this message, or come to have it?"""
        return not self.ahead_from < seq <= self.ahead


log = logging.getLogger("eyot.sync")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reader).decode


class CopiedOut:
    """The readers of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        positions = stream.log.positions()
        self._readers = {key: _decode(value) for key, value in positions.items() if key.startswith(_KEY)}
        self._doubts = doubts_of(stream.store)
        # Of these it is not certain what they have: until they ask again.
        self._doubted = set(self._readers) if self._doubts.at_start else set()
        for key in self._doubted:
            self._doubts.begin((stream.log.id, key))
        self._watched: set[bytes] = set()
        self._told: set[bytes] = set()
        #: Who is asked once more, and what it had confirmed.
        self._asked_again: dict[bytes, int] = {}
        self._dirty = False
        self._has_mirror = any(reader.kind == "mirror" for reader in self._readers.values())
        self._behinds = Behinds(stream.log)

    @property
    def known(self) -> bool:
        """Has anybody confirmed anything?"""
        return bool(self._readers)

    @property
    def mirrored(self) -> bool:
        """Is there a mirror, which may come to take this stream's place?"""
        return self._has_mirror

    def asked_by_mirror(self) -> None:
        """One has come, and may not be listening yet."""
        self._has_mirror = True

    @property
    def missed(self) -> bool:
        """Does one of the readers have no consumer at the moment, or not listen to the one it has?"""
        return any(not self._reads(each) for each in self._readers.values())

    def wants(self, subject: bytes) -> bool:
        """Does one of the readers copy this subject?"""
        return any(_copies(reader, subject) for reader in self._readers.values())

    def needs(self, seq: int, subject: bytes) -> bool:
        """Does one of the readers copy this message and has not confirmed it?"""
        return any(
            (seq > reader.seq or key in self._doubted or not reader.takes(seq)) and _copies(reader, subject)
            for key, reader in self._readers.items()
        )

    def has(self, seq: int, subject: bytes) -> bool:
        """Has one of the readers confirmed this message?"""
        return any(
            seq <= reader.seq and reader.takes(seq) and _copies(reader, subject) for reader in self._readers.values()
        )

    def doubts(self, consumer: Consumer) -> bool:
        """Does somebody who listens on the deliver subject of a hidden consumer ask for what it has confirmed, and was not asked
        once more whether that is so (`asked_again.py`)? Until it has answered nothing of that counts as confirmed."""
        key, found = _reader(consumer)
        known = self._readers.get(key)
        begins_after = consumer.state.delivered_sseq
        had = self._asked_again.pop(key, None)
        if known is None or not found.is_cluster or found.kind != "source" or known.deliver == found.deliver:
            return False
        if had is not None and begins_after >= had:
            self._keep(key, replace(known, seq=had), self._stream.store.begin())
        if had is not None or begins_after >= known.seq:
            return False
        log.info(
            "%s: %s at %s asks for what comes after %d and had confirmed %d: asked once more",
            self._stream.name, known.kind, known.peer, begins_after, known.seq,
        )  # fmt: skip
        self._asked_again[key] = known.seq
        self._keep(key, replace(known, seq=begins_after), self._stream.store.begin())
        return True

    def reading(self, consumer: Consumer) -> None:
        """Somebody listens on the deliver subject of a hidden consumer, and is believed."""
        stream = self._stream
        key, found = _reader(consumer)
        begins_after = consumer.state.delivered_sseq
        known = self._readers.get(key)
        if known is None:
            found.seq = min(begins_after, self._nameless(found))
            found.begun = 0 if found.seq else begins_after
            found.at_ns = stream.broker.clock.now_ns()
            self._keep(key, _placed(found, consumer), stream.store.begin())
        elif known.deliver != found.deliver or key in self._doubted:
            # A new request; asked for again is what the reader has not (any more).
            self._doubted.discard(key)
            where = {"peer": found.peer, "via": found.via, "is_cluster": found.is_cluster}
            known = replace(known, deliver=found.deliver, seq=min(known.seq, begins_after), **where)
            self._keep(key, _placed(known, consumer), stream.store.begin())

    def _nameless(self, found: Reader) -> int:
        """What is known of a reader from the time before it said which stream it is; from now on it does."""
        known = self._readers.pop(_key(replace(found, target="")), None) if found.target else None
        if known is None:
            return 0
        txn = self._stream.store.begin()
        self._stream.log.delete_position(txn, _key(known))
        self._stream.store.submit(txn)
        return known.seq

    def forget(self, consumer: Consumer) -> None:
        """Whoever reads through this consumer says that it will not come back."""
        deliver = consumer.config.deliver_subject.encode()
        self._drop([key for key, reader in self._readers.items() if reader.deliver == deliver])

    def forget_those(self, asked: ForgetRequest, done: Callable[[int, int, StoreError | None], None]) -> None:
        """Those that fit will not come back. `done` hears how many were forgotten, and how many read at the moment and were left,
        when that is on flash."""
        fit = {key: reader for key, reader in self._readers.items() if _fits(reader, asked)}
        idle = [key for key, reader in fit.items() if not self._reads(reader)]
        self._drop(idle, lambda failure: done(len(idle), len(fit) - len(idle), failure))

    def _reads(self, reader: Reader) -> bool:
        return self._is_served(reader.deliver) and self._stream.account.has_interest(reader.deliver)

    def _drop(self, keys: list[bytes], done: Settled | None = None) -> None:
        """What was kept for these readers alone goes with them."""
        stream = self._stream
        dropped = {key: self._readers.pop(key) for key in keys}

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._readers = dropped | self._readers
                self.watch()
            for key in dropped if failure is None else ():
                if key not in self._readers:
                    self._doubted.discard(key)
                    self._doubts.end((stream.log.id, key))
            if done is not None:
                done(failure)

        txn = stream.store.begin()
        for key in keys:
            stream.log.delete_position(txn, key)
        if keys:
            stream.retention.drop_unneeded(txn)
            stream.store.submit(txn, settle)
            self.watch()
        else:
            stream.store.abort(txn)
            settle(None)

    def confirmed(self, consumer: Consumer, seq: int) -> None:
        """The reader behind this consumer has everything up to `seq`; what was kept for it alone goes in the same transaction."""
        stream = self._stream
        key, found = _reader(consumer)
        known = self._readers.get(key)
        if known is not None:
            if seq <= known.ahead:
                return  # it answers for messages that it passed over
            found.ahead_from, found.ahead = known.ahead_from, known.ahead
        settled = [each for each in consumer.acks.take_confirmed(seq) if found.takes(each)]
        found.seq, found.at_ns = self._all_alike_have(consumer, found, seq), stream.broker.clock.now_ns()
        done = found.seq
        if known is not None:
            if found.seq <= known.seq and stream.log.state.last_seq >= known.seq:
                if not settled:
                    return
                found = known
            else:
                done, found.begun = max(known.seq, known.begun), known.begun
                elapsed_s = (found.at_ns - known.at_ns) / 1e9
                found.rate = (found.seq - known.seq) / elapsed_s if elapsed_s > 0 and found.seq > known.seq else 0.0
        self._readers[key] = found
        txn = stream.store.begin()
        if settled:
            stream.consumer_acked(consumer, settled, txn)
        assert consumer.push is not None
        # What it was sent through earlier consumers, and has: it asked for what comes after.
        stream.retention.confirmed(done + 1, min(consumer.push.begun_after, found.seq), txn)
        self._keep(key, found, txn, lambda error: consumer.acks.give_back(settled) if error else None, before=known)

    def _all_alike_have(self, consumer: Consumer, found: Reader, seq: int) -> int:
        """Readers that cannot be told apart: what all of them that read at the moment have."""
        if found.target:
            return seq
        key = _key(found)
        for other in self._stream.consumers.values():
            if other is consumer or not isinstance(other, type(consumer)) or not other.config.direct:
                continue
            if other.push is not None and other.push.active and _reader(other)[0] == key:
                seq = min(seq, other.push.confirmed_sseq)
        return seq

    def _keep(
        self, key: bytes, reader: Reader, txn: Txn, done: Settled | None = None, before: Reader | None = None
    ) -> None:
        """Store a reader along with what `txn` already holds. `before`: what was known of it."""
        stream = self._stream
        before = before or self._readers.get(key)
        if before is not None and (reader.seq < before.seq or reader.ahead < before.ahead):
            self._doubts.begin((stream.log.id, key))
        self._readers[key] = reader
        self._has_mirror = self._has_mirror or reader.kind == "mirror"
        stream.log.put_position(txn, key, _encode(reader))

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self._readers.get(key) is reader:
                # What was confirmed is confirmed again; what the reader lost stays lost.
                reader.seq = min(reader.seq, before.seq if before is not None else 0)
            elif self._readers.get(key) is reader and key not in self._doubted:
                self._doubts.end((stream.log.id, key))
            if done is not None:
                done(failure)

        stream.store.submit(txn, settle)
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
        """The stream no longer lives here."""
        interest = interest_of(self._stream.account)
        for subject in self._watched:
            interest.unwatch(subject, self)
        self._watched = set()

    def deleted(self, failure: StoreError | None) -> None:
        """The stream is gone, and what was kept of its readers with it, unless that failed."""
        for key in self._readers if failure is None else ():
            self._doubts.end((self._stream.log.id, key))

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
                self.tell_to_ask(subject)

    def tell_to_ask(self, deliver: bytes) -> None:
        """A heartbeat that the reader behind a deliver subject must object to: it asks for a consumer anew, from where it stands."""
        stream = self._stream
        stream.account.publish(deliver, header=idle_heartbeat(_NEVER_DELIVERED, stream.log.committed_seq))

    def _is_served(self, deliver: bytes) -> bool:
        subject = deliver.decode("utf-8", "surrogateescape")
        consumers = self._stream.consumers.values()
        return any(each.config.direct and each.config.deliver_subject == subject for each in consumers)

    # -- what is told --------------------------------------------------------------------------------------------------

    def statuses(self) -> list[SyncStatus]:
        return [self._status(reader, key in self._doubted) for key, reader in sorted(self._readers.items())]

    def _status(self, reader: Reader, doubted: bool) -> SyncStatus:
        stream = self._stream
        log = stream.log
        seq = 0 if doubted else min(reader.seq, log.committed_seq)
        passed_over = _passed_over(reader, log)
        backlog, size, oldest_ns = self._behinds.of(_key(reader), reader, seq, passed_over)
        now_ns = stream.broker.clock.now_ns()
        links = [one for one in stream.broker.links.states() if one.account in ("", stream.account.name)]
        via = reader.via or reader.peer
        linked = reader.peer == _LOCAL or any(one.is_up and one.peer_group == via for one in links)
        waiting = next((one.waiting for one in links if one.waiting), "") if not linked else self._held(reader)
        error, remedy = trouble(
            Standing(
                stream=stream.name,
                reader=reader.peer,
                target=reader.target,
                link=None if linked else next((one for one in links if not one.is_up and one.last_error), None),
                linked=linked,
                reads=self._reads(reader),
                passed_over=passed_over,
                ahead=reader.ahead,
                through=reader.via,
                behind_s=(now_ns - max(reader.at_ns, oldest_ns)) / 1e9 if backlog and not waiting else 0.0,
            )
        )
        return SyncStatus(
            account=stream.account.name,
            stream=stream.name,
            peer=reader.peer,
            peer_domain=reader.domain,
            kind=reader.kind,
            target=reader.target,
            filters=[each.decode("utf-8", "replace") for each in reader.filters],
            linked=linked,
            confirmed_seq=seq,
            confirmed_at=None if doubted else ns_to_rfc3339(reader.at_ns),
            uncertain=doubted,
            last_seq=log.committed_seq,
            backlog=backlog,
            backlog_bytes=size,
            oldest_s=max(0.0, (now_ns - oldest_ns) / 1e9) if oldest_ns else None,
            rate=reader.rate,
            eta_s=backlog / reader.rate if backlog and linked and reader.rate and not error else None,
            error=error or None,
            remedy=remedy or None,
            waiting=waiting or None,
        )

    def _held(self, reader: Reader) -> str:
        """What a link's policy makes deliveries to a reader wait for."""
        for consumer in self._stream.consumers.values():
            held = getattr(getattr(consumer, "delivery", None), "held", "")
            if held and consumer.config.direct and _reader(cast("Consumer", consumer))[1].peer == reader.peer:
                return str(held)
        return ""


def copies_missed(streams: Iterable[Stream]) -> bool:
    """Does somebody who copied one of these streams not read it now? Where nobody ever did, somebody may be about to begin."""
    copied = [copied_out_of(stream) for stream in streams]
    return any(one.missed for one in copied) or (bool(copied) and not any(one.known for one in copied))


def _copies(reader: Reader, subject: bytes) -> bool:
    return not reader.filters or any(matches(each, subject) for each in reader.filters)


def _placed(reader: Reader, consumer: Consumer) -> Reader:
    """A reader along with what its request says about where it stands."""
    begins_after = consumer.state.delivered_sseq
    if consumer.config.metadata.get(LIFE_KEY) == identity_of(ns_to_rfc3339(consumer.stream.created_ns)):
        return replace(reader, ahead_from=0, ahead=0)  # it says that what it holds is of this life
    asked_after = consumer.config.opt_start_seq - 1 if consumer.config.deliver_policy == "by_start_sequence" else 0
    if asked_after > begins_after:
        return replace(reader, ahead_from=min(reader.seq, begins_after), ahead=asked_after)
    if begins_after < reader.ahead:
        return replace(reader, ahead_from=0, ahead=0)
    return reader


def _passed_over(reader: Reader, log: Log) -> int:
    """How many messages there are that the reader does not take, because it is ahead of this stream."""
    if not reader.ahead:
        return 0
    return log.count(reader.ahead_from + 1, reader.filters) - log.count(reader.ahead + 1, reader.filters)


def _fits(reader: Reader, asked: ForgetRequest) -> bool:
    filters = None if asked.filters is None else tuple(each.encode() for each in asked.filters)
    return (
        asked.server in (reader.peer, reader.domain)
        and asked.kind in ("", reader.kind)
        and asked.target in ("", reader.target)
        and filters in (None, reader.filters)
    )


def _reader(consumer: Consumer) -> tuple[bytes, Reader]:
    """Who listens on a consumer's deliver subject, and the key it is kept under."""
    subject = consumer.config.deliver_subject.encode()
    tokens = subject.split(b".")
    kind = _KINDS.get(tokens[-2], "reader") if len(tokens) > 1 else "reader"
    peer, domain, is_cluster = _home(consumer, subject)
    # Copies of 2.14 and later, and Eyot's, say who they are, whatever server of theirs the link leads to.
    metadata = consumer.config.metadata
    target, home = (
        metadata.get(f"_nats.mirror.{what}") or metadata.get(f"_nats.src.{what}") or "" for what in ("stream", "domain")
    )
    filters = tuple(consumer.reader.filters)
    found = Reader(peer, home or domain, kind, filters, deliver=subject, target=target, is_cluster=is_cluster)
    if home not in ("", domain) and peer != _LOCAL:
        found.peer, found.via = home, peer
    return _key(found), found


def _home(consumer: Consumer, deliver: bytes) -> tuple[str, str, bool]:
    """Behind which peer somebody listens on a deliver subject, that peer's domain, and whether it is a cluster."""
    states = {id(link): link.state for link in consumer.broker.links.connections.values()}
    home = (_LOCAL, "", False)
    for member in consumer.account.route(deliver).leafs:
        state = states.get(id(member.dest))
        if state is not None:
            home = (state.peer_group, state.peer_domain, state.is_cluster)
    return home


def _key(reader: Reader) -> bytes:
    """What a reader's record is kept under; a long one under its hash."""
    who = reader.domain or reader.peer if reader.target else reader.peer
    key = f"{who} {reader.kind} {reader.target} ".encode() + b"\f".join(reader.filters)
    return _KEY + (key if len(key) <= _KEY_MAX else sha256(key).hexdigest().encode())


def copied_out_of(stream: Stream) -> CopiedOut:
    """The stream's CopiedOut, made on first use."""
    found = stream.copied_out
    if found is None:
        found = stream.copied_out = CopiedOut(stream)
    return found
