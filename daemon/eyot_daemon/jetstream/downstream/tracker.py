"""How much of a stream its downstreams have confirmed: the origin's side of mirrors and sources.

A downstream reads a stream through a hidden (`direct`) consumer with flow control. It answers a flow-control request
when it has everything that was sent before it (an Eyot downstream: on flash), so an answer confirms every sequence up
to the request. The request is sent when half of the window is full, as in nats-server, and also a second after a
delivery. A downstream that returns with a request for what it had confirmed (it was restored from a backup, for
example) no longer has it: its record is set back. Streams with work-queue or interest retention remove a message when
it is confirmed, not when it is delivered, and keep it for a downstream that is away. Confirmed positions are among the
stream's positions: they survive restarts and lost links.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from msgspec.structs import replace

from eyot_daemon.jetstream.downstream.downstream import (
    BRIDGE,
    LOCAL,
    RECORD_KEY,
    Downstream,
    asked_after,
    decode_record,
    downstream_behind,
    encode_record,
    with_location,
)
from eyot_daemon.jetstream.downstream.never_arrived import Lacks, NeverArrived, counted_of
from eyot_daemon.jetstream.downstream.status import DownstreamStatuses, Present
from eyot_daemon.jetstream.downstream.uncertainty import uncertainty_of
from eyot_daemon.jetstream.downstream.unserved import UnservedDownstreams
from eyot_store.errors import StoreError
from eyot_sync.sourcing import reported_time
from eyot_sync.sourcing.origin import DEREGISTERS_KEY
from eyot_wire.jetstream.forget_downstream import ForgetRequest
from eyot_wire.status import SyncStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.downstream import BridgeReader, Delivered, HiddenConsumer
    from eyot_daemon.jetstream.stream_core import CommitCallback, ConsumerPort, StreamCore
    from eyot_daemon.jetstream.wall_clock import WallClock
    from eyot_store.txn import Txn

#: A delivery is confirmed within this time, seconds, if its downstream answers.
CONFIRM_WITHIN_S = 1.0
#: A downstream that requests again what it had confirmed may repeat that (its stream is full, for example). For so long, seconds,
#: nothing is certain. nats-server requests every 2 seconds.
RETRACTION_S = 10.0
#: Above every sequence.
_NO_END = 1 << 62


log = logging.getLogger("eyot.sync")


class Releases(Protocol):
    """Removes messages that are no longer needed, in a transaction."""

    def drop_unneeded(self, txn: Txn) -> None:
        """Remove what was kept for a removed downstream only."""
        ...

    def confirmed(self, first: int, last: int, txn: Txn, by: Collection[ConsumerPort] = ()) -> None:
        """Note that a downstream has the messages between. `by`: its hidden consumers, which need none of them."""
        ...

    def copied(self, by: Collection[ConsumerPort], seqs: Iterable[int], txn: Txn) -> None:
        """Note that the downstream of these hidden consumers has these messages."""
        ...


class DownstreamTracker:
    """The downstreams of one stream."""

    #: set when both exist, since each uses the other
    retention: Releases

    def __init__(self, stream: StreamCore, consumers: Mapping[str, ConsumerPort], wall_clock: WallClock) -> None:
        self._stream = stream
        self._consumers = consumers
        self._wall_clock = wall_clock
        self._broker = stream.account.broker
        positions = stream.log.positions()
        self._downstreams = {
            key: decode_record(value) for key, value in positions.items() if key.startswith(RECORD_KEY)
        }
        #: Keys of the records that are on flash.
        self._written = set(self._downstreams)
        # Met while the disk was full.
        for key, value in stream.store.spare_positions.of(stream.log.id).items():
            if key.startswith(RECORD_KEY):
                self._downstreams.setdefault(key, decode_record(value))
        self._uncertain = uncertainty_of(stream.store)
        # Downstreams with an uncertain position, until they resume.
        self._to_confirm = set(self._downstreams) if self._uncertain.at_start else set()
        for key in self._to_confirm:
            self._uncertain.begin((stream.log.id, key))
        self._unserved = UnservedDownstreams(stream, consumers, self._forget_listener)
        #: Downstreams that must resume again, with what they had confirmed.
        self._suspect_resume: dict[bytes, int] = {}
        self._has_mirror = any(downstream.kind == "mirror" for downstream in self._downstreams.values())
        # What each was sent before the consumers of `_sending`: before this start anything stored, if it was reading
        # then.
        stored = stream.log.committed_seq
        self._sent = {key: stored if each.sent is None else each.sent for key, each in self._downstreams.items()}
        #: Of each the states of the consumers that it reads or read last.
        self._sending: dict[bytes, list[Delivered]] = {}
        #: Sequence after which each downstream requested messages last.
        self._requested_after: dict[bytes, int] = {}
        #: The bridges that read this stream at present.
        self._bridges: dict[bytes, BridgeReader] = {}
        #: When each withdrew its confirmation, monotonic seconds.
        self._retracted_at: dict[bytes, float] = {}
        self.never_arrived = NeverArrived(stream, self, self._downstreams)
        self.never_arrived.watch()
        self._statuses = DownstreamStatuses(stream, self.never_arrived)

    def start(self) -> None:
        """Start with the stream. Downstreams that were reading when this server stopped were sent at most what is stored now."""
        for key, downstream in self._downstreams.items():
            if downstream.sent is None:
                self._stage_record(key, replace(downstream, sent=self._sent[key]), self._stream.store.begin())
        self.never_arrived.start()
        self.watch()

    @property
    def known(self) -> bool:
        """Return whether any downstream has confirmed anything."""
        return bool(self._downstreams)

    @property
    def confirmed_seq(self) -> int:
        """Return the highest sequence that any downstream has confirmed."""
        return max((each.seq for each in self._downstreams.values()), default=0)

    @property
    def confirmed_at_ns(self) -> int:
        """Return when a downstream confirmed something last, ns since 1970; 0: never."""
        return max((each.at_ns for each in self._downstreams.values()), default=0)

    @property
    def created_ns(self) -> int:
        """Return when the stream was created, ns since 1970."""
        return self._stream.log.created_ns

    @property
    def is_single(self) -> bool:
        """Return whether there is one downstream, and its record is certain."""
        return len(self._downstreams) == 1 and not self._to_confirm

    @property
    def mirrored(self) -> bool:
        """Return whether there is a mirror, which may be promoted to this stream's place."""
        return self._has_mirror

    def asked_by_mirror(self) -> None:
        """Note a mirror's request; it may not be subscribed yet."""
        self._has_mirror = True

    @property
    def missed(self) -> bool:
        """Return whether a downstream has no consumer at present, or is not subscribed to it."""
        return any(not self._reads(each) for each in self._downstreams.values())

    def wants(self, subject: bytes) -> bool:
        """Return whether a downstream replicates this subject."""
        return any(downstream.copies(subject) for downstream in self._downstreams.values())

    def needs(self, seq: int, subject: bytes) -> bool:
        """Return whether a downstream replicates this message and has not confirmed it."""
        return any(
            (seq > downstream.seq or key in self._to_confirm or not downstream.takes(seq))
            and downstream.copies(subject)
            for key, downstream in self._downstreams.items()
        )

    def has(self, seq: int, subject: bytes) -> bool:
        """Return whether a downstream has confirmed this message."""
        return any(
            seq <= downstream.seq and downstream.takes(seq) and downstream.copies(subject)
            for downstream in self._downstreams.values()
        )

    def is_uncertain(self, consumer: HiddenConsumer) -> bool:
        """Return whether the subscriber of a hidden consumer must resume once more (`SuspectResume`).

        It must when it requests messages that it has confirmed. Until it has resumed, none of these counts as
        confirmed.
        """
        key, found = self._downstream(consumer)
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
            "%s: %s at %s resumes after %d and had confirmed %d: asked to resume again",
            self._stream.name, known.kind, known.peer, begins_after, known.seq,
        )  # fmt: skip
        self._suspect_resume[key] = known.seq
        self._stage_record(key, replace(known, seq=begins_after), self._stream.store.begin())
        return True

    def reading(self, consumer: HiddenConsumer, go_on: Callable[[], None]) -> None:
        """Start serving the accepted subscriber of a hidden consumer.

        `go_on` is called when messages may be sent: when it is on flash that this downstream reads, so that after a
        power cut it does not count as never served.
        """
        stream = self._stream
        key, found = self._downstream(consumer)
        begins_after = consumer.state.delivered_sseq
        known = self._downstreams.get(key)
        sent = self._sent[key] = self._sent_upto(key)
        if found.peer != LOCAL:
            self._wall_clock.heard(consumer.config.metadata.get(reported_time.KEY, ""))
        others = [each for each in self.still_sending(key) if each is not consumer.state]
        self._sending[key] = [*others, consumer.state]
        if known is not None and known.deliver == found.deliver and key not in self._to_confirm:
            self._begin(key, known, stream.store.begin(), go_on)
            return
        txn = stream.store.begin()
        if known is None:
            found.seq, sent = self._nameless(found, begins_after, txn)
            found.begun = 0 if found.seq else begins_after
            by_seq = consumer.config.deliver_policy in ("all", "by_start_sequence")
            self.never_arrived.met(key, min(asked_after(consumer), begins_after) if by_seq else begins_after, txn)
            found.at_ns = self._stream.clock.now_ns()
            self._stage_record(key, with_location(stream.log, found, consumer, sent), txn, lambda _: go_on())
            return
        # A new request; the downstream no longer has what it requests again.
        self._to_confirm.discard(key)
        if begins_after < known.seq:
            self._retracted_at[key] = self._stream.clock.monotonic()
        where = {"peer": found.peer, "via": found.via, "is_cluster": found.is_cluster}
        known = replace(known, deliver=found.deliver, seq=min(known.seq, begins_after), **where)
        self._requested_after[key] = begins_after
        self.never_arrived.asked_after(key, min(asked_after(consumer), begins_after), txn)
        self._begin(key, with_location(stream.log, known, consumer, sent), txn, go_on)

    def _begin(self, key: bytes, downstream: Downstream, txn: Txn, go_on: Callable[[], None]) -> None:
        """Record that a downstream reads, with the changes in `txn`."""
        if downstream.sent is None:
            self._stage_record(key, downstream, txn)
            go_on()
            return

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._uncertain.begin((self._stream.log.id, key))  # the stored record has less than what will be sent
            go_on()

        self._stage_record(key, replace(downstream, sent=None), txn, settle)

    def left(self, consumer: HiddenConsumer) -> None:
        """Note that the subscriber left: later messages were not sent to that downstream."""
        stream = self._stream
        key = next((key for key, states in self._sending.items() if consumer.state in states), b"")
        downstream = self._downstreams.get(key)
        if downstream is not None and downstream.sent is None and stream.live and not self.still_sending(key):
            self._stage_record(key, replace(downstream, sent=self._sent_upto(key)), stream.store.begin())

    def still_sending(self, key: bytes) -> list[Delivered]:
        """Return the states of the consumers that this downstream reads at present."""
        if key in self._bridges:
            return [self._bridges[key]]
        hidden = [cast("HiddenConsumer", each) for each in self._consumers.values() if each.config.direct]
        active = {id(each.state) for each in hidden if each.push is not None and each.push.active}
        return [state for state in self._sending.get(key, ()) if id(state) in active]

    def _sent_upto(self, key: bytes, *, since_request: bool = False) -> int:
        """Return the last sequence sent to a downstream, as far as is known.

        With `since_request`, what was sent before the last request counts only as far as that request confirms it.
        """
        known = self._requested_after if since_request and key in self._requested_after else self._sent
        return max([known.get(key, 0), *(state.delivered_sseq for state in self._sending.get(key, ()))])

    def _nameless(self, found: Downstream, begins_after: int, txn: Txn) -> tuple[int, int]:
        """Merge the record from before a downstream named its stream; return what it has, and what it was sent."""
        before = replace(found, target="").key
        known = self._downstreams.pop(before, None) if found.target else None
        if known is None:
            return 0, 0
        self._stream.log.delete_position(txn, before)
        self._written.discard(before)
        self.never_arrived.move(before, found.key, txn)
        return min(begins_after, known.seq), self._sent_upto(before)

    # -- bridges -----------------------------------------------------------------------------------------------------

    def bridge_reads(self, name: str, filters: tuple[bytes, ...], bridge: BridgeReader, begins_after: int) -> int:
        """Serve a bridge, which reads this stream's log itself; return after which sequence: `begins_after` if it is new."""
        stream, txn = self._stream, self._stream.store.begin()
        found = Downstream(name, "", BRIDGE, filters)
        key = found.key
        known = self._downstreams.get(key)
        if known is None:
            found.seq = found.begun = begins_after
            found.at_ns = stream.clock.now_ns()
            self.never_arrived.met(key, begins_after, txn)
        else:
            found = replace(known, filters=filters, seq=min(known.seq, stream.log.state.last_seq))
            self.never_arrived.asked_after(key, found.seq, txn)
        self._bridges[key] = bridge
        self._to_confirm.discard(key)
        self._sending[key] = [bridge]
        self._requested_after[key] = found.seq
        self._stage_record(key, found, txn)
        return found.seq

    def bridge_left(self, name: str) -> None:
        """Note that a bridge does not read any more. Its position stays until it is forgotten."""
        self._bridges.pop(Downstream(name, "", BRIDGE, ()).key, None)

    def bridge_confirmed(
        self,
        name: str,
        seq: int,
        skipped: Iterable[tuple[str, int]],
        stage: Callable[[Txn], None],
        done: CommitCallback,
    ) -> None:
        """Note that a bridge's remote has everything up to `seq`, but for `skipped`, each with the reason; `stage` adds to the transaction."""
        stream = self._stream
        key = Downstream(name, "", BRIDGE, ()).key
        known = self._downstreams.get(key) or Downstream(name, "", BRIDGE, ())
        now_ns, txn = stream.clock.now_ns(), stream.store.begin()
        for why, each in skipped:
            self.never_arrived.skipped(key, why, each, txn)
        found = replace(known, seq=max(seq, known.seq), at_ns=now_ns)
        elapsed_s = (now_ns - known.at_ns) / 1e9
        found.rate = (found.seq - known.seq) / elapsed_s if elapsed_s > 0 and found.seq > known.seq else 0.0
        # The retention asks whether the bridge has what is confirmed.
        self._downstreams[key] = found
        self.never_arrived.confirmed(key, found.seq, txn)
        self.retention.confirmed(max(known.seq, known.begun) + 1, found.seq, txn)
        stage(txn)
        self._stage_record(key, found, txn, done, before=known)

    # -- backlogs ----------------------------------------------------------------------------------------------------

    def unconfirmed_from(self) -> Iterator[int]:
        """Yield for each downstream the first sequence that it may lack."""
        for key, downstream in self._downstreams.items():
            yield min(first for first, _ in self._unconfirmed(key, downstream))

    def _unconfirmed(self, key: bytes, downstream: Downstream) -> list[tuple[int, int]]:
        """Return the unconfirmed sequences of a downstream whose loss is still undecided, as (first, last)."""
        if key in self._to_confirm:
            return [(1, _NO_END)]
        rest = (max(downstream.seq, downstream.begun, downstream.ahead) + 1, _NO_END)
        return [(downstream.ahead_from + 1, downstream.ahead), rest] if downstream.ahead else [rest]

    def lacking(self, first: int, last: int, subject: bytes | None) -> Iterator[tuple[bytes, Lacks]]:
        """Yield what readers have not confirmed of the messages from `first` to `last`: one on `subject`, or all (None)."""
        for key, downstream in self._downstreams.items():
            if subject is not None and not downstream.copies(subject):
                continue
            sent = (
                self._stream.log.committed_seq if key in self._to_confirm else self._sent_upto(key, since_request=True)
            )
            for low, high in self._unconfirmed(key, downstream):
                begin, end = max(first, low), min(last, high)
                sent_to = sent if begin > downstream.ahead else 0
                for one, other, was_sent in (begin, min(end, sent_to), True), (max(begin, sent_to + 1), end, False):
                    if one <= other:
                        lacks = Lacks(one, other, 0, was_sent)
                        counted = counted_of(self._stream.log, downstream.filters, lacks, subject)
                        yield from ((key, each) for each in counted)

    def request_again(self, key: bytes) -> None:
        """Make a downstream request messages again from where it stands."""
        if key in self._bridges:
            self._bridges[key].read_again()
        else:
            self.tell_to_ask(self._downstreams[key].deliver)

    def name_of(self, key: bytes) -> str:
        """Return a downstream's name for people; "" if unknown."""
        downstream = self._downstreams.get(key)
        return "" if downstream is None else downstream.name

    def deleted_on_request(self, consumer: HiddenConsumer) -> None:
        """Note that this consumer is being deleted: its downstream is forgotten if it stops listening, too.

        An Eyot mirror or source is not: it deregisters itself when it is removed.
        """
        config = consumer.config
        self._unserved.deleted(config.deliver_subject.encode(), deregisters=DEREGISTERS_KEY not in config.metadata)

    def _forget_listener(self, deliver: bytes) -> None:
        """Forget the downstream that has stopped listening here, unless its link was lost: then it may come back."""
        those = [(key, each) for key, each in self._downstreams.items() if each.deliver == deliver]
        self._drop([key for key, each in those if not each.via and self._statuses.is_linked(each)])

    def forget_those(self, asked: ForgetRequest, done: Callable[[int, int, StoreError | None], None]) -> None:
        """Forget matching downstreams that will not return.

        `done` receives how many were forgotten, and how many were kept because they read at present, when that is on
        flash. With `lost`, only their losses are cleared.
        """
        fit = {key: downstream for key, downstream in self._downstreams.items() if downstream.is_meant_by(asked)}
        if asked.lost:
            self._forget_lost(fit, done)
            return
        idle = [key for key, downstream in fit.items() if not self._reads(downstream)]
        self._drop(idle, lambda failure: done(len(idle), len(fit) - len(idle), failure))

    def _forget_lost(
        self, readers: dict[bytes, Downstream], done: Callable[[int, int, StoreError | None], None]
    ) -> None:
        """Clear the losses and skipped messages of these downstreams."""
        txn = self._stream.store.begin()
        for key, downstream in readers.items():
            self.never_arrived.forget(key, txn)
            begun = max(downstream.begun, downstream.ahead)
            self._downstreams[key] = downstream = replace(downstream, begun=begun, ahead_from=0, ahead=0)
            self._stream.log.put_position(txn, key, encode_record(downstream))
        self._stream.store.submit(txn, lambda failure: done(len(readers), 0, failure))
        self.watch()

    def _downstream(self, consumer: HiddenConsumer) -> tuple[bytes, Downstream]:
        return downstream_behind(self._stream.account, consumer)

    def _reads(self, downstream: Downstream) -> bool:
        if downstream.kind == BRIDGE:
            return downstream.key in self._bridges
        return self._unserved.is_served(downstream.deliver) and self._stream.account.has_interest(downstream.deliver)

    def _drop(self, keys: list[bytes], done: CommitCallback | None = None) -> None:
        """Remove these downstreams, and the messages that were kept for them only."""
        stream = self._stream
        dropped = {key: self._downstreams.pop(key) for key in keys}

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self._downstreams = dropped | self._downstreams
                self.watch()
            for key in dropped if failure is None else ():
                if key not in self._downstreams:
                    self._written.discard(key)
                    stream.store.spare_positions.remove(stream.log.id, key)
                    self._to_confirm.discard(key)
                    self._uncertain.end((stream.log.id, key))
            if done is not None:
                done(failure)

        txn = stream.store.begin()
        for key in keys:
            stream.log.delete_position(txn, key)
            self.never_arrived.forget(key, txn)
        if keys:
            self.retention.drop_unneeded(txn)
            stream.store.submit(txn, settle)
            self.watch()
        else:
            stream.store.abort(txn)
            settle(None)

    def confirmed(self, consumer: HiddenConsumer, seq: int) -> None:
        """Note that a consumer's downstream has everything up to `seq`.

        Messages kept for it only are removed in the same transaction.
        """
        stream = self._stream
        key, found = self._downstream(consumer)
        known = self._downstreams.get(key)
        if known is not None:
            if seq <= known.ahead or self.never_arrived.was_passed_over(consumer.state):
                return  # it answers for messages that it, or its consumer, skipped
            found.ahead_from, found.ahead = known.ahead_from, known.ahead
        settled = [each for each in consumer.acks.take_confirmed(seq) if found.takes(each)]
        found.seq, found.at_ns = self._all_alike_have(consumer, found, seq), self._stream.clock.now_ns()
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
        if stream.config.retention != "limits":
            by = [consumer, *self._ended_consumers_of(found, consumer)]
            self.retention.copied(by, settled, txn)
            assert consumer.push is not None
            # What earlier consumers sent, which it has: it resumes after it.
            self.retention.confirmed(done + 1, min(consumer.push.begun_after, found.seq), txn, by)
        self._stage_record(
            key, found, txn, lambda error: consumer.acks.give_back(settled) if error else None, before=known
        )

    def _ended_consumers_of(self, found: Downstream, but: HiddenConsumer) -> list[ConsumerPort]:
        """Return the hidden consumers that a downstream has left for `but`. They stay for a while, with what they had sent.

        Without a name one of them may be another downstream's.
        """
        if not found.target:
            return []
        hidden = [cast("HiddenConsumer", each) for each in self._consumers.values() if each.config.direct]
        left = [each for each in hidden if each is not but and (each.push is None or not each.push.active)]
        return [each for each in left if self._downstream(each)[0] == found.key]

    def _all_alike_have(self, consumer: HiddenConsumer, found: Downstream, seq: int) -> int:
        """Return the sequence up to which all present downstreams with the record of `found` have confirmed, at most `seq`."""
        if found.target:
            return seq
        key = found.key
        for other in self._consumers.values():
            if other is consumer or not other.config.direct:
                continue
            hidden = cast("HiddenConsumer", other)
            if hidden.push is not None and hidden.push.active and self._downstream(hidden)[0] == key:
                seq = min(seq, hidden.push.confirmed_sseq)
        return seq

    def _stage_record(
        self,
        key: bytes,
        downstream: Downstream,
        txn: Txn,
        done: CommitCallback | None = None,
        before: Downstream | None = None,
    ) -> None:
        """Store a downstream's record with the changes in `txn`. `before`: its previous record."""
        stream = self._stream
        before = before or self._downstreams.get(key)
        if before is not None and (downstream.seq < before.seq or downstream.ahead < before.ahead):
            self._uncertain.begin((stream.log.id, key))
        self._downstreams[key] = downstream
        self._has_mirror = self._has_mirror or downstream.kind == "mirror"
        stream.log.put_position(txn, key, encode_record(downstream))

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self._downstreams.get(key) is downstream:
                # Confirmed positions are confirmed again; losses stay.
                downstream.seq = min(downstream.seq, before.seq if before is not None else 0)
                self.never_arrived.watch()
                if key not in self._written:
                    self._keep_aside(key, downstream)
            elif self._downstreams.get(key) is downstream and key not in self._to_confirm:
                self._uncertain.end((stream.log.id, key))
            if failure is None:
                self._written.add(key)
                stream.store.spare_positions.remove(stream.log.id, key)
            if done is not None:
                done(failure)

        stream.store.submit(txn, settle)
        self.watch()

    def _keep_aside(self, key: bytes, downstream: Downstream) -> None:
        """Make a new downstream known after a power cut although its record cannot be stored: it lacks what leaves until it asks."""
        stream = self._stream
        if not stream.store.spare_positions.put(stream.log.id, key, encode_record(downstream)):
            log.warning("%s: %s is not known after a power cut: the disk is full", stream.name, downstream.name)

    def watch(self) -> None:
        """Watch interest in the deliver subjects, and removals of unconfirmed messages."""
        self.never_arrived.watch()
        self._unserved.watch({each.deliver for each in self._downstreams.values() if each.deliver})

    def tell_to_ask(self, deliver: bytes) -> None:
        """Make the downstream on a deliver subject request a new consumer from its position."""
        self._unserved.tell_to_ask(deliver)

    def stop(self) -> None:
        """Stop watching when the stream stops."""
        self._unserved.watch(set())

    def deleted(self, failure: StoreError | None) -> None:
        """Forget all downstreams with the deleted stream, unless the deletion failed."""
        if failure is not None:
            return
        for key in self._downstreams:
            self._uncertain.end((self._stream.log.id, key))
        self._stream.store.spare_positions.remove_stream(self._stream.log.id)

    # -- status ------------------------------------------------------------------------------------------------------

    def statuses(self) -> list[SyncStatus]:
        """Return the status of each downstream, as `/eyot/syncz` shows it."""
        return [
            self._statuses.of(key, downstream, self._present(key, downstream), self._downstreams.values())
            for key, downstream in sorted(self._downstreams.items())
        ]

    def _is_unsteady(self, key: bytes) -> bool:
        """Return whether this downstream withdrew a confirmation recently."""
        return self._stream.clock.monotonic() < self._retracted_at.get(key, -RETRACTION_S) + RETRACTION_S

    def _present(self, key: bytes, downstream: Downstream) -> Present:
        return Present(
            doubted=key in self._to_confirm,
            unsteady=self._is_unsteady(key),
            reads=self._reads(downstream),
            held=self._policy_hold(downstream),
            bridge=self._bridges.get(key),
        )

    def _policy_hold(self, downstream: Downstream) -> str:
        """Return the link's policy that holds back deliveries to a downstream; "" if none does."""
        for consumer in self._consumers.values():
            held = getattr(getattr(consumer, "delivery", None), "held", "")
            if (
                held
                and consumer.config.direct
                and self._downstream(cast("HiddenConsumer", consumer))[1].peer == downstream.peer
            ):
                return str(held)
        return ""
