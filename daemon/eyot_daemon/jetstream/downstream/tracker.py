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
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from eyot_daemon.jetstream.deliver_interest import interest_of
from eyot_daemon.jetstream.downstream.backlog import Backlogs
from eyot_daemon.jetstream.downstream.never_arrived import OPEN_MAX, NeverArrived
from eyot_daemon.jetstream.downstream.problems import Standing, trouble
from eyot_daemon.jetstream.downstream.uncertainty_marker import uncertainty_of
from eyot_daemon.jetstream.pull_request import idle_heartbeat
from eyot_store.errors import StoreError
from eyot_sync.sourcing import told_time
from eyot_sync.sourcing.origin_epoch import EPOCH_KEY
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.forget_reader import ForgetRequest
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.status import SyncStatus
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.consumer import Consumer
    from eyot_daemon.jetstream.consumer.state import ConsumerState
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
#: A reader that asks again for what it had confirmed may do so again and again (its stream is full, say): for so long nothing is
#: certain, seconds. nats-server asks every two.
RETRACTION_S = 10.0
#: Of messages that are looked at one by one before they go.
_READ_BYTES = 4 << 20
#: More deliveries than any consumer has made.
_NEVER_DELIVERED = 1 << 62


class Downstream(msgspec.Struct, array_like=True):
    """One mirror or source elsewhere. `peer` is the server's name, or that of its cluster: the servers of a cluster share their streams,
    and today's leader asks from where yesterday's was. Of a server that is not linked itself, but reads through one that is (`via`), it is
    the name of its domain; `domain` is their JetStream domain; `deliver` the subject on which it
    listened last; `target` the stream there that copies, "" where it does not say (nats-server before 2.14): such copies at one
    server go by one record, which says what the one that is behind has. It was not sent what is up to `begun`: when it was met first
    it asked for what comes after, which says nothing about what it has (it may mean an earlier life of this stream). `is_cluster`: `peer`
    is a cluster. `ahead`: it asked for what comes after this when this stream ended before, or had never sent it that much (it copied
    another life of it, or messages that this one lost); of what is stored here it then takes nothing after `ahead_from` up to there.
    `sent`: the last sequence that it was sent; None while it reads: anything that is stored may have been sent, then."""

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
    sent: int | None = None

    def takes(self, seq: int) -> bool:
        """May it have this message, or come to have it?"""
        return not self.ahead_from < seq <= self.ahead


class Lacks(NamedTuple):
    """Messages from `first` to `last` that a reader has not confirmed, and whether they were sent to it."""

    first: int
    last: int
    messages: int
    sent: bool


log = logging.getLogger("eyot.sync")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Downstream).decode


class DownstreamTracker:
    """The readers of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        positions = stream.log.positions()
        self._downstreams = {key: _decode(value) for key, value in positions.items() if key.startswith(_KEY)}
        self._doubts = uncertainty_of(stream.store)
        # Of these it is not certain what they have: until they ask again.
        self._doubted = set(self._downstreams) if self._doubts.at_start else set()
        for key in self._doubted:
            self._doubts.begin((stream.log.id, key))
        self._watched: set[bytes] = set()
        self._told: set[bytes] = set()
        #: Who is asked once more, and what it had confirmed.
        self._suspect_resume: dict[bytes, int] = {}
        self._dirty = False
        self._has_mirror = any(downstream.kind == "mirror" for downstream in self._downstreams.values())
        self._backlogs = Backlogs(stream.log)
        # What each was sent before the consumers of `_sending`: before this start anything that is stored, if it was reading then.
        stored = stream.log.committed_seq
        self._sent = {key: stored if each.sent is None else each.sent for key, each in self._downstreams.items()}
        #: Of each the states of the consumers that it reads or read last.
        self._sending: dict[bytes, list[ConsumerState]] = {}
        #: When each took back what it had confirmed, monotonic seconds.
        self._retracted_at: dict[bytes, float] = {}
        self.never_arrived = NeverArrived(stream, self, self._downstreams)
        self.never_arrived.watch()

    def start(self) -> None:
        """The stream lives. Who was reading when this server ended was sent no more than what is stored now."""
        for key, downstream in self._downstreams.items():
            if downstream.sent is None:
                self._stage_record(key, replace(downstream, sent=self._sent[key]), self._stream.store.begin())
        self.never_arrived.start()
        self.watch()

    @property
    def known(self) -> bool:
        """Has anybody confirmed anything?"""
        return bool(self._downstreams)

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
        return any(not self._reads(each) for each in self._downstreams.values())

    def wants(self, subject: bytes) -> bool:
        """Does one of the readers copy this subject?"""
        return any(_copies(downstream, subject) for downstream in self._downstreams.values())

    def needs(self, seq: int, subject: bytes) -> bool:
        """Does one of the readers copy this message and has not confirmed it?"""
        return any(
            (seq > downstream.seq or key in self._doubted or not downstream.takes(seq)) and _copies(downstream, subject)
            for key, downstream in self._downstreams.items()
        )

    def has(self, seq: int, subject: bytes) -> bool:
        """Has one of the readers confirmed this message?"""
        return any(
            seq <= downstream.seq and downstream.takes(seq) and _copies(downstream, subject)
            for downstream in self._downstreams.values()
        )

    def doubts(self, consumer: Consumer) -> bool:
        """Does somebody who listens on the deliver subject of a hidden consumer ask for what it has confirmed, and was not asked
        once more whether that is so (`suspect_resume.py`)? Until it has answered nothing of that counts as confirmed."""
        key, found = _downstream(consumer)
        known = self._downstreams.get(key)
        begins_after = consumer.state.delivered_sseq
        had = self._suspect_resume.pop(key, None)
        if known is None or not found.is_cluster or found.kind != "source" or known.deliver == found.deliver:
            return False
        if had is not None and begins_after >= had:
            self._stage_record(key, replace(known, seq=had), self._stream.store.begin())
        if had is not None or begins_after >= known.seq:
            return False
        log.info(
            "%s: %s at %s asks for what comes after %d and had confirmed %d: asked once more",
            self._stream.name, known.kind, known.peer, begins_after, known.seq,
        )  # fmt: skip
        self._suspect_resume[key] = known.seq
        self._stage_record(key, replace(known, seq=begins_after), self._stream.store.begin())
        return True

    def reading(self, consumer: Consumer, go_on: Callable[[], None]) -> None:
        """Somebody listens on the deliver subject of a hidden consumer, and is believed. `go_on` is called when messages may be sent:
        when it is on flash that this reader reads, so that after a power cut nobody believes that it was not sent them."""
        stream = self._stream
        key, found = _downstream(consumer)
        begins_after = consumer.state.delivered_sseq
        known = self._downstreams.get(key)
        sent = self._sent[key] = self._sent_upto(key)
        if found.peer != _LOCAL:
            stream.jsa.engine.heard_time(consumer.config.metadata.get(told_time.KEY, ""))
        others = [each for each in self._still_sending(key) if each is not consumer.state]
        self._sending[key] = [*others, consumer.state]
        if known is not None and known.deliver == found.deliver and key not in self._doubted:
            self._begin(key, known, stream.store.begin(), go_on)
            return
        txn = stream.store.begin()
        if known is None:
            found.seq, sent = self._nameless(found, begins_after, txn)
            found.begun = 0 if found.seq else begins_after
            by_seq = consumer.config.deliver_policy in ("all", "by_start_sequence")
            self.never_arrived.met(key, min(_asked_after(consumer), begins_after) if by_seq else begins_after, txn)
            found.at_ns = stream.broker.clock.now_ns()
            self._stage_record(key, _with_location(found, consumer, sent), txn, lambda _: go_on())
            return
        # A new request; asked for again is what the reader has not (any more).
        self._doubted.discard(key)
        if begins_after < known.seq:
            self._retracted_at[key] = stream.broker.clock.monotonic()
        where = {"peer": found.peer, "via": found.via, "is_cluster": found.is_cluster}
        known = replace(known, deliver=found.deliver, seq=min(known.seq, begins_after), **where)
        self.never_arrived.asked_after(key, min(_asked_after(consumer), begins_after), txn)
        self._begin(key, _with_location(known, consumer, sent), txn, go_on)

    def _begin(self, key: bytes, downstream: Downstream, txn: Txn, go_on: Callable[[], None]) -> None:
        """Store that somebody reads, along with what `txn` holds."""
        if downstream.sent is None:
            self._stage_record(key, downstream, txn)
            go_on()
            return

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._doubts.begin((self._stream.log.id, key))  # what is on disk says that less was sent than will be
            go_on()

        self._stage_record(key, replace(downstream, sent=None), txn, settle)

    def left(self, consumer: Consumer) -> None:
        """Nobody listens any more: what is stored from now on was not sent to that reader."""
        stream = self._stream
        key = next((key for key, states in self._sending.items() if consumer.state in states), b"")
        downstream = self._downstreams.get(key)
        if downstream is not None and downstream.sent is None and stream.live and not self._still_sending(key):
            self._stage_record(key, replace(downstream, sent=self._sent_upto(key)), stream.store.begin())

    def _still_sending(self, key: bytes) -> list[ConsumerState]:
        """The states of the consumers that this reader reads at the moment."""
        hidden = [cast("Consumer", each) for each in self._stream.consumers.values() if each.config.direct]
        active = {id(each.state) for each in hidden if each.push is not None and each.push.active}
        return [state for state in self._sending.get(key, ()) if id(state) in active]

    def _sent_upto(self, key: bytes) -> int:
        """The last sequence that a reader was sent, as far as is known."""
        return max([self._sent.get(key, 0), *(state.delivered_sseq for state in self._sending.get(key, ()))])

    def _nameless(self, found: Downstream, begins_after: int, txn: Txn) -> tuple[int, int]:
        """What is known of a reader from the time before it said which stream it is; from now on it does. What it has, and what it
        was sent."""
        before = _key(replace(found, target=""))
        known = self._downstreams.pop(before, None) if found.target else None
        if known is None:
            return 0, 0
        self._stream.log.delete_position(txn, before)
        self.never_arrived.move(before, _key(found), txn)
        return min(begins_after, known.seq), self._sent_upto(before)

    # -- what readers lack -------------------------------------------------------------------------------------------

    def unconfirmed_from(self) -> Iterator[int]:
        """Of each reader the first sequence that it may lack."""
        for key, downstream in self._downstreams.items():
            yield min(first for first, _ in self._unconfirmed(key, downstream))

    def _unconfirmed(self, key: bytes, downstream: Downstream) -> list[tuple[int, int]]:
        """The sequences that a reader has not confirmed and will not be asked about again, as (first, last)."""
        if key in self._doubted:
            return [(1, _NEVER_DELIVERED)]
        rest = (max(downstream.seq, downstream.begun, downstream.ahead) + 1, _NEVER_DELIVERED)
        return [(downstream.ahead_from + 1, downstream.ahead), rest] if downstream.ahead else [rest]

    def lacking(self, first: int, last: int, subject: bytes | None) -> Iterator[tuple[bytes, Lacks]]:
        """What readers have not confirmed of the messages from `first` to `last`: one on `subject`, or all (None)."""
        for key, downstream in self._downstreams.items():
            if subject is not None and not _copies(downstream, subject):
                continue
            sent = self._stream.log.committed_seq if key in self._doubted else self._sent_upto(key)
            for low, high in self._unconfirmed(key, downstream):
                begin, end = max(first, low), min(last, high)
                sent_to = sent if begin > downstream.ahead else 0
                for one, other, was_sent in (begin, min(end, sent_to), True), (max(begin, sent_to + 1), end, False):
                    if one <= other:
                        yield from (
                            (key, each) for each in self._counted(downstream, Lacks(one, other, 0, was_sent), subject)
                        )

    def _counted(self, downstream: Downstream, lacks: Lacks, subject: bytes | None) -> Iterator[Lacks]:
        """How many there are, none if that is so; a few that were sent and are not all one by one: which of them arrived is known later."""
        if subject is not None:
            yield lacks._replace(messages=1)
            return
        log, (first, last, _, was_sent) = self._stream.log, lacks
        count = log.count(first, downstream.filters) - log.count(last + 1, downstream.filters)
        if was_sent and count < last + 1 - first and count <= OPEN_MAX:
            read = log.read(first, max_messages=count, max_bytes=_READ_BYTES, filters=downstream.filters, up_to=last)
            if len(read.messages) == count:
                yield from (Lacks(each.seq, each.seq, 1, True) for each in read.messages)
                return
        if count:
            yield lacks._replace(messages=count)

    def name_of(self, key: bytes) -> str:
        """A reader, for people."""
        downstream = self._downstreams.get(key)
        return (
            ""
            if downstream is None
            else f"{downstream.kind} {downstream.target} at {downstream.peer}".replace("  ", " ")
        )

    def forget(self, consumer: Consumer) -> None:
        """Whoever reads through this consumer says that it will not come back."""
        deliver = consumer.config.deliver_subject.encode()
        self._drop([key for key, downstream in self._downstreams.items() if downstream.deliver == deliver])

    def forget_those(self, asked: ForgetRequest, done: Callable[[int, int, StoreError | None], None]) -> None:
        """Those that fit will not come back. `done` hears how many were forgotten, and how many read at the moment and were left,
        when that is on flash. Or only what never arrived there is not to be told any more (`lost`)."""
        fit = {key: downstream for key, downstream in self._downstreams.items() if _matches_request(downstream, asked)}
        if asked.lost:
            self._forget_lost(fit, done)
            return
        idle = [key for key, downstream in fit.items() if not self._reads(downstream)]
        self._drop(idle, lambda failure: done(len(idle), len(fit) - len(idle), failure))

    def _forget_lost(
        self, readers: dict[bytes, Downstream], done: Callable[[int, int, StoreError | None], None]
    ) -> None:
        """Somebody knows that these lack what never arrived, and what they pass over."""
        txn = self._stream.store.begin()
        for key, downstream in readers.items():
            self.never_arrived.forget(key, txn)
            begun = max(downstream.begun, downstream.ahead)
            self._downstreams[key] = downstream = replace(downstream, begun=begun, ahead_from=0, ahead=0)
            self._stream.log.put_position(txn, key, _encode(downstream))
        self._stream.store.submit(txn, lambda failure: done(len(readers), 0, failure))
        self.watch()

    def _reads(self, downstream: Downstream) -> bool:
        return self._is_served(downstream.deliver) and self._stream.account.has_interest(downstream.deliver)

    def _drop(self, keys: list[bytes], done: Settled | None = None) -> None:
        """What was kept for these readers alone goes with them."""
        stream = self._stream
        dropped = {key: self._downstreams.pop(key) for key in keys}

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._downstreams = dropped | self._downstreams
                self.watch()
            for key in dropped if failure is None else ():
                if key not in self._downstreams:
                    self._doubted.discard(key)
                    self._doubts.end((stream.log.id, key))
            if done is not None:
                done(failure)

        txn = stream.store.begin()
        for key in keys:
            stream.log.delete_position(txn, key)
            self.never_arrived.forget(key, txn)
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
        key, found = _downstream(consumer)
        known = self._downstreams.get(key)
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
        self._downstreams[key] = found
        txn = stream.store.begin()
        self.never_arrived.confirmed(key, found.seq, txn)
        if settled:
            stream.consumer_acked(consumer, settled, txn)
        assert consumer.push is not None
        # What it was sent through earlier consumers, and has: it asked for what comes after.
        stream.retention.confirmed(done + 1, min(consumer.push.begun_after, found.seq), txn)
        self._stage_record(
            key, found, txn, lambda error: consumer.acks.give_back(settled) if error else None, before=known
        )

    def _all_alike_have(self, consumer: Consumer, found: Downstream, seq: int) -> int:
        """Readers that cannot be told apart: what all of them that read at the moment have."""
        if found.target:
            return seq
        key = _key(found)
        for other in self._stream.consumers.values():
            if other is consumer or not isinstance(other, type(consumer)) or not other.config.direct:
                continue
            if other.push is not None and other.push.active and _downstream(other)[0] == key:
                seq = min(seq, other.push.confirmed_sseq)
        return seq

    def _stage_record(
        self,
        key: bytes,
        downstream: Downstream,
        txn: Txn,
        done: Settled | None = None,
        before: Downstream | None = None,
    ) -> None:
        """Store a reader along with what `txn` already holds. `before`: what was known of it."""
        stream = self._stream
        before = before or self._downstreams.get(key)
        if before is not None and (downstream.seq < before.seq or downstream.ahead < before.ahead):
            self._doubts.begin((stream.log.id, key))
        self._downstreams[key] = downstream
        self._has_mirror = self._has_mirror or downstream.kind == "mirror"
        stream.log.put_position(txn, key, _encode(downstream))

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self._downstreams.get(key) is downstream:
                # What was confirmed is confirmed again; what the reader lost stays lost.
                downstream.seq = min(downstream.seq, before.seq if before is not None else 0)
            elif self._downstreams.get(key) is downstream and key not in self._doubted:
                self._doubts.end((stream.log.id, key))
            if done is not None:
                done(failure)

        stream.store.submit(txn, settle)
        self.watch()

    # -- readers whose consumer is gone ------------------------------------------------------------------------------

    def watch(self) -> None:
        """Hear of interest in the readers' deliver subjects, and of what is removed before they confirmed it."""
        self.never_arrived.watch()
        interest = interest_of(self._stream.account)
        wanted = {downstream.deliver for downstream in self._downstreams.values() if downstream.deliver}
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
        for key in self._downstreams if failure is None else ():
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
        return [self._status(key, downstream) for key, downstream in sorted(self._downstreams.items())]

    def _is_unsteady(self, key: bytes) -> bool:
        """Did this reader take back a moment ago what it had confirmed?"""
        return self._stream.broker.clock.monotonic() < self._retracted_at.get(key, -RETRACTION_S) + RETRACTION_S

    def _status(self, key: bytes, downstream: Downstream) -> SyncStatus:
        doubted = key in self._doubted
        stream = self._stream
        log = stream.log
        seq = 0 if doubted else min(downstream.seq, log.committed_seq)
        passed_over = _passed_over(downstream, log)
        backlog, size, oldest_ns = self._backlogs.of(key, downstream, seq, passed_over)
        now_ns = stream.broker.clock.now_ns()
        links = [one for one in stream.broker.links.states() if one.account in ("", stream.account.name)]
        via = downstream.via or downstream.peer
        linked = downstream.peer == _LOCAL or any(one.is_up and one.peer_group == via for one in links)
        waiting = (
            next((one.waiting for one in links if one.waiting), "") if not linked else self._policy_hold(downstream)
        )
        # Whoever is linked and has not asked since then may have been wiped, restored or deleted meanwhile.
        reads = self._reads(downstream)
        error, remedy = trouble(
            Standing(
                stream=stream.name,
                downstream=downstream.peer,
                target=downstream.target,
                link=None if linked else next((one for one in links if not one.is_up and one.last_error), None),
                linked=linked,
                reads=reads,
                passed_over=passed_over,
                ahead=downstream.ahead,
                through=downstream.via,
                behind_s=(now_ns - max(downstream.at_ns, oldest_ns)) / 1e9 if backlog and not waiting else 0.0,
            )
        )
        return SyncStatus(
            account=stream.account.name,
            stream=stream.name,
            peer=downstream.peer,
            peer_domain=downstream.domain,
            kind=downstream.kind,
            target=downstream.target,
            filters=[each.decode("utf-8", "replace") for each in downstream.filters],
            linked=linked,
            confirmed_seq=seq,
            confirmed_at=None if doubted else ns_to_rfc3339(downstream.at_ns),
            uncertain=doubted or (linked and not reads) or self._is_unsteady(key),
            last_seq=log.committed_seq,
            backlog=backlog + self.never_arrived.open_messages(key),
            backlog_bytes=size,
            never_arrived=self.never_arrived.of(key).messages,
            lost=self.never_arrived.statuses(key),
            unmatched=self._backlogs.unmatched(self._downstreams.values()),
            oldest_s=max(0.0, (now_ns - oldest_ns) / 1e9) if oldest_ns else None,
            rate=downstream.rate,
            eta_s=backlog / downstream.rate
            if backlog and linked and downstream.rate and not (error or waiting)
            else None,
            error=error or None,
            remedy=remedy or None,
            waiting=waiting or None,
        )

    def _policy_hold(self, downstream: Downstream) -> str:
        """What a link's policy makes deliveries to a reader wait for."""
        for consumer in self._stream.consumers.values():
            held = getattr(getattr(consumer, "delivery", None), "held", "")
            if held and consumer.config.direct and _downstream(cast("Consumer", consumer))[1].peer == downstream.peer:
                return str(held)
        return ""


def messages_missed(streams: Iterable[Stream]) -> bool:
    """Does somebody who copied one of these streams not read it now? Where nobody ever did, somebody may be about to begin."""
    copied = [downstreams_of(stream) for stream in streams]
    return any(one.missed for one in copied) or (bool(copied) and not any(one.known for one in copied))


def _copies(downstream: Downstream, subject: bytes) -> bool:
    return not downstream.filters or any(matches(each, subject) for each in downstream.filters)


def _with_location(downstream: Downstream, consumer: Consumer, sent: int) -> Downstream:
    """A reader that was sent what is up to `sent`, along with what its request says about where it stands."""
    begins_after = consumer.state.delivered_sseq
    epoch = consumer.config.metadata.get(EPOCH_KEY)
    if epoch == identity_of(ns_to_rfc3339(consumer.stream.created_ns)):
        return replace(downstream, ahead_from=0, ahead=0)  # it says that what it holds is of this life
    has = downstream.seq if epoch is None else 0  # of another life: nothing of this one
    asked_after = _asked_after(consumer)
    if asked_after > begins_after:
        return replace(downstream, ahead_from=min(has, begins_after), ahead=asked_after)
    if asked_after > max(sent, downstream.ahead) and _is_stored(
        consumer.stream.log, sent, asked_after, downstream.filters
    ):
        # It believes to have what it was never sent: it speaks of another life of this stream.
        return replace(downstream, ahead_from=min(has, sent), ahead=asked_after)
    if begins_after < downstream.ahead:
        return replace(downstream, ahead_from=0, ahead=0)
    return downstream


def _asked_after(consumer: Consumer) -> int:
    """The sequence that a request says its reader has come to; 0 where it names none."""
    config = consumer.config
    return max(config.opt_start_seq - 1, 0) if config.deliver_policy == "by_start_sequence" else 0


def _is_stored(log: Log, after: int, upto: int, filters: tuple[bytes, ...]) -> bool:
    return log.count(after + 1, filters) > log.count(upto + 1, filters)


def _passed_over(downstream: Downstream, log: Log) -> int:
    """How many messages there are that the reader does not take, because it is ahead of this stream."""
    if not downstream.ahead:
        return 0
    return log.count(downstream.ahead_from + 1, downstream.filters) - log.count(
        downstream.ahead + 1, downstream.filters
    )


def _matches_request(downstream: Downstream, asked: ForgetRequest) -> bool:
    filters = None if asked.filters is None else tuple(each.encode() for each in asked.filters)
    return (
        asked.server in (downstream.peer, downstream.domain)
        and asked.kind in ("", downstream.kind)
        and asked.target in ("", downstream.target)
        and filters in (None, downstream.filters)
    )


def _downstream(consumer: Consumer) -> tuple[bytes, Downstream]:
    """Who listens on a consumer's deliver subject, and the key it is kept under."""
    subject = consumer.config.deliver_subject.encode()
    tokens = subject.split(b".")
    kind = _KINDS.get(tokens[-2], "reader") if len(tokens) > 1 else "reader"
    peer, domain, is_cluster = _peer_of(consumer, subject)
    # Copies of 2.14 and later, and Eyot's, say who they are, whatever server of theirs the link leads to.
    metadata = consumer.config.metadata
    target, home = (
        metadata.get(f"_nats.mirror.{what}") or metadata.get(f"_nats.src.{what}") or "" for what in ("stream", "domain")
    )
    filters = tuple(consumer.reader.filters)
    found = Downstream(peer, home or domain, kind, filters, deliver=subject, target=target, is_cluster=is_cluster)
    if home not in ("", domain) and peer != _LOCAL:
        found.peer, found.via = home, peer
    return _key(found), found


def _peer_of(consumer: Consumer, deliver: bytes) -> tuple[str, str, bool]:
    """Behind which peer somebody listens on a deliver subject, that peer's domain, and whether it is a cluster."""
    states = {id(link): link.state for link in consumer.broker.links.connections.values()}
    home = (_LOCAL, "", False)
    for member in consumer.account.route(deliver).leaf_links:
        state = states.get(id(member.dest))
        if state is not None:
            home = (state.peer_group, state.peer_domain, state.is_cluster)
    return home


def _key(downstream: Downstream) -> bytes:
    """What a reader's record is kept under; a long one under its hash."""
    who = downstream.domain or downstream.peer if downstream.target else downstream.peer
    key = f"{who} {downstream.kind} {downstream.target} ".encode() + b"\f".join(downstream.filters)
    return _KEY + (key if len(key) <= _KEY_MAX else sha256(key).hexdigest().encode())


def downstreams_of(stream: Stream) -> DownstreamTracker:
    """The stream's DownstreamTracker, made on first use."""
    found = stream.downstream
    if found is None:
        found = stream.downstream = DownstreamTracker(stream)
    return found
