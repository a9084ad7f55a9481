"""How much of a stream its downstreams have confirmed: the origin's side of mirrors and sources.

A downstream reads a stream through a hidden (`direct`) consumer with flow control. It answers a flow-control request
when it has everything that was sent before it (an Eyot downstream: on flash), so an answer confirms every sequence up
to the request. The request is sent when half of the window is full, as in nats-server, and also a second after a
delivery. A downstream that returns with a request for what it had confirmed (it was restored from a backup, for
example) no longer has it: its record is set back. Streams with work-queue or interest retention remove a message when
it is confirmed, not when it is delivered, and keep it for a downstream that is away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from msgspec.structs import replace

from eyot_daemon.jetstream.downstream.bridges import BridgeDownstreams
from eyot_daemon.jetstream.downstream.deliveries import Deliveries
from eyot_daemon.jetstream.downstream.downstream import (
    BRIDGE,
    LOCAL,
    Downstream,
    asked_after,
    downstream_behind,
    with_location,
)
from eyot_daemon.jetstream.downstream.never_arrived import Lacks, NeverArrived, counted_of
from eyot_daemon.jetstream.downstream.records import DownstreamRecords
from eyot_daemon.jetstream.downstream.status import DownstreamStatuses, Present
from eyot_daemon.jetstream.downstream.unserved import UnservedDownstreams
from eyot_store.errors import StoreError
from eyot_sync.sourcing import reported_time
from eyot_sync.sourcing.origin import DEREGISTERS_KEY
from eyot_wire.jetstream.forget_downstream import ForgetRequest
from eyot_wire.status import SyncStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.downstream import HiddenConsumer
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
        self.records = DownstreamRecords(stream, self.watch)
        self._deliveries = Deliveries(stream.log.committed_seq, consumers, self.records.items())
        self._unserved = UnservedDownstreams(stream, consumers, self._forget_listener)
        #: Downstreams that must resume again, with what they had confirmed.
        self._suspect_resume: dict[bytes, int] = {}
        #: When each withdrew its confirmation, monotonic seconds.
        self._retracted_at: dict[bytes, float] = {}
        #: Names of hidden consumers whose confirmation could not be stored, and is tried again.
        self._unconfirmed_consumers: set[str] = set()
        self.never_arrived = NeverArrived(stream, self, self._deliveries, [key for key, _ in self.records.items()])
        self.never_arrived.watch()
        self.bridges = BridgeDownstreams(stream, self.records, self._deliveries, self.never_arrived, self._release)
        self._statuses = DownstreamStatuses(stream, self.never_arrived)

    def start(self) -> None:
        """Start with the stream. Downstreams that were reading when this server stopped were sent at most what is stored now."""
        for key, downstream in self.records.items():
            if downstream.sent is None:
                self.records.stage(
                    key, replace(downstream, sent=self._deliveries.upto(key)), self._stream.store.begin()
                )
        self.never_arrived.start()
        self.watch()

    @property
    def created_ns(self) -> int:
        """Return when the stream was created, ns since 1970."""
        return self._stream.log.created_ns

    @property
    def missed(self) -> bool:
        """Return whether a downstream has no consumer at present, or is not subscribed to it."""
        return any(not self._reads(each) for each in self.records.values())

    def is_uncertain(self, consumer: HiddenConsumer) -> bool:
        """Return whether the subscriber of a hidden consumer must resume once more (`SuspectResume`).

        It must when it requests messages that it has confirmed. Until it has resumed, none of these counts as
        confirmed.
        """
        key, found = self._downstream(consumer)
        known = self.records.get(key)
        begins_after = consumer.state.delivered_sseq
        had = self._suspect_resume.pop(key, None)
        if known is None or not found.is_cluster or found.kind != "source" or known.deliver == found.deliver:
            return False
        if had is not None and begins_after >= had:
            self.records.stage(key, replace(known, seq=had), self._stream.store.begin())
        if had is not None or begins_after >= known.seq:
            return False
        log.info(
            "%s: %s at %s resumes after %d and had confirmed %d: asked to resume again",
            self._stream.name, known.kind, known.peer, begins_after, known.seq,
        )  # fmt: skip
        self._suspect_resume[key] = known.seq
        self.records.stage(key, replace(known, seq=begins_after), self._stream.store.begin())
        return True

    def reading(self, consumer: HiddenConsumer, go_on: Callable[[], None]) -> None:
        """Start serving the accepted subscriber of a hidden consumer.

        `go_on` is called when messages may be sent: when it is on flash that this downstream reads, so that after a
        power cut it does not count as never served.
        """
        stream = self._stream
        key, found = self._downstream(consumer)
        begins_after = consumer.state.delivered_sseq
        known = self.records.get(key)
        if found.peer != LOCAL:
            self._wall_clock.heard(consumer.config.metadata.get(reported_time.KEY, ""))
        sent = self._deliveries.begin(key, consumer.state)
        if known is not None and known.deliver == found.deliver and not self.records.is_doubted(key):
            self._begin(key, known, stream.store.begin(), go_on)
            return
        txn = stream.store.begin()
        if known is None:
            found.seq, sent = self._nameless(found, begins_after, txn)
            found.begun = 0 if found.seq else begins_after
            by_seq = consumer.config.deliver_policy in ("all", "by_start_sequence")
            self.never_arrived.met(key, min(asked_after(consumer), begins_after) if by_seq else begins_after, txn)
            found.at_ns = self._stream.clock.now_ns()
            self.records.stage(key, with_location(stream.log, found, consumer, sent), txn, lambda _: go_on())
            return
        # A new request; the downstream no longer has what it requests again.
        self.records.resumed(key)
        if begins_after < known.seq:
            self._retracted_at[key] = self._stream.clock.monotonic()
        where = {"peer": found.peer, "via": found.via, "is_cluster": found.is_cluster}
        known = replace(known, deliver=found.deliver, seq=min(known.seq, begins_after), **where)
        self._deliveries.requested(key, begins_after)
        self.never_arrived.asked_after(key, min(asked_after(consumer), begins_after), txn)
        self._begin(key, with_location(stream.log, known, consumer, sent), txn, go_on)

    def _begin(self, key: bytes, downstream: Downstream, txn: Txn, go_on: Callable[[], None]) -> None:
        """Record that a downstream reads, with the changes in `txn`."""
        if downstream.sent is None:
            self.records.stage(key, downstream, txn)
            go_on()
            return

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                self.records.doubt(key)  # the stored record has less than what will be sent
            go_on()

        self.records.stage(key, replace(downstream, sent=None), txn, settle)

    def left(self, consumer: HiddenConsumer) -> None:
        """Note that the subscriber left: later messages were not sent to that downstream."""
        stream = self._stream
        key = self._deliveries.reader_of(consumer.state)
        downstream = self.records.get(key)
        if downstream is not None and downstream.sent is None and stream.live and not self._deliveries.at_present(key):
            self.records.stage(key, replace(downstream, sent=self._deliveries.upto(key)), stream.store.begin())

    def _nameless(self, found: Downstream, begins_after: int, txn: Txn) -> tuple[int, int]:
        """Merge the record from before a downstream named its stream; return what it has, and what it was sent."""
        before = replace(found, target="").key
        known = self.records.renamed(before, txn) if found.target else None
        if known is None:
            return 0, 0
        self.never_arrived.move(before, found.key, txn)
        return min(begins_after, known.seq), self._deliveries.upto(before)

    # -- backlogs ----------------------------------------------------------------------------------------------------

    def unconfirmed_from(self) -> Iterator[int]:
        """Yield for each downstream the first sequence that it may lack."""
        for key, downstream in self.records.items():
            yield min(first for first, _ in self._unconfirmed(key, downstream))

    def _unconfirmed(self, key: bytes, downstream: Downstream) -> list[tuple[int, int]]:
        """Return the unconfirmed sequences of a downstream whose loss is still undecided, as (first, last)."""
        if self.records.is_doubted(key):
            return [(1, _NO_END)]
        rest = (max(downstream.seq, downstream.begun, downstream.ahead) + 1, _NO_END)
        return [(downstream.ahead_from + 1, downstream.ahead), rest] if downstream.ahead else [rest]

    def lacking(self, first: int, last: int, subject: bytes | None) -> Iterator[tuple[bytes, Lacks]]:
        """Yield what readers have not confirmed of the messages from `first` to `last`: one on `subject`, or all (None).

        b"": one that is damaged, which may be for each of them.
        """
        for key, downstream in self.records.items():
            if subject and not downstream.copies(subject):
                continue
            sent = (
                self._stream.log.committed_seq
                if self.records.is_doubted(key)
                else self._deliveries.upto(key, since_request=True)
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
        downstream = self.records.get(key)
        if key in self._deliveries.bridges:
            self._deliveries.bridges[key].read_again()
        elif downstream is not None:
            self.tell_to_ask(downstream.deliver)

    def name_of(self, key: bytes) -> str:
        """Return a downstream's name for people; "" if unknown."""
        downstream = self.records.get(key)
        return "" if downstream is None else downstream.name

    def deleted_on_request(self, consumer: HiddenConsumer) -> None:
        """Note that this consumer is being deleted: its downstream is forgotten if it stops listening, too.

        An Eyot mirror or source is not: it deregisters itself when it is removed.
        """
        config = consumer.config
        self._unserved.deleted(config.deliver_subject.encode(), deregisters=DEREGISTERS_KEY not in config.metadata)

    def _forget_listener(self, deliver: bytes) -> None:
        """Forget the downstream that has stopped listening here, unless its link was lost: then it may come back."""
        those = [(key, each) for key, each in self.records.items() if each.deliver == deliver]
        self._drop([key for key, each in those if not each.via and self._statuses.is_linked(each)], lambda _: None)

    def forget_those(self, asked: ForgetRequest, done: Callable[[int, int, StoreError | None], None]) -> None:
        """Forget matching downstreams that will not return.

        `done` receives how many were forgotten, and how many were kept because they read at present, when that is on
        flash. With `lost`, only their losses are cleared.
        """
        fit = {key: downstream for key, downstream in self.records.items() if downstream.is_meant_by(asked)}
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
            self.records.put(key, replace(downstream, begun=begun, ahead_from=0, ahead=0), txn)
        self._stream.store.submit(txn, lambda failure: done(len(readers), 0, failure))
        self.watch()

    def _downstream(self, consumer: HiddenConsumer) -> tuple[bytes, Downstream]:
        return downstream_behind(self._stream.account, consumer)

    def _reads(self, downstream: Downstream) -> bool:
        if downstream.kind == BRIDGE:
            return downstream.key in self._deliveries.bridges
        return self._unserved.is_served(downstream.deliver) and self._stream.account.has_interest(downstream.deliver)

    def _drop(self, keys: list[bytes], done: CommitCallback) -> None:
        """Remove these downstreams, and the messages that were kept for them only."""

        def also(txn: Txn) -> None:
            for key in keys:
                self.never_arrived.forget(key, txn)
            self.retention.drop_unneeded(txn)

        if keys:
            self.records.drop(keys, also, done)
        else:
            done(None)

    def _release(self, first: int, last: int, txn: Txn) -> None:
        self.retention.confirmed(first, last, txn)

    def confirmed(self, consumer: HiddenConsumer, seq: int) -> None:
        """Note that a consumer's downstream has everything up to `seq`.

        Messages kept for it only are removed in the same transaction.
        """
        stream = self._stream
        key, found = self._downstream(consumer)
        known = self.records.get(key)
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
        self.records.assume(key, found)
        txn = stream.store.begin()
        self.never_arrived.confirmed(key, found.seq, txn)
        if stream.config.retention != "limits":
            by = [consumer, *self._ended_consumers_of(found, consumer)]
            self.retention.copied(by, settled, txn)
            assert consumer.push is not None
            # What earlier consumers sent, which it has: it resumes after it.
            self.retention.confirmed(done + 1, min(consumer.push.begun_after, found.seq), txn, by)
        self.records.stage(key, found, txn, partial(self._confirmation_settled, consumer, settled), before=known)

    def passed_over(self, consumer: HiddenConsumer, seq: int) -> None:
        """Note that a consumer's downstream is not sent a damaged message, which never arrives there."""
        key, _ = self._downstream(consumer)
        txn = self._stream.store.begin()

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self._stream.live:
                self._stream.timers.call_later(CONFIRM_WITHIN_S, partial(self.passed_over, consumer, seq))

        self.never_arrived.damaged(key, seq, txn)
        self._stream.store.submit(txn, settle)

    def _confirmation_settled(self, consumer: HiddenConsumer, settled: list[int], failure: StoreError | None) -> None:
        """Try a confirmation again that could not be stored: without later messages the downstream gives no other."""
        if failure is None:
            return
        consumer.acks.give_back(settled)
        if consumer.name not in self._unconfirmed_consumers:
            self._unconfirmed_consumers.add(consumer.name)
            self._stream.timers.call_later(CONFIRM_WITHIN_S, partial(self._confirm_again, consumer))

    def _confirm_again(self, consumer: HiddenConsumer) -> None:
        self._unconfirmed_consumers.discard(consumer.name)
        push = consumer.push
        if push is None or not self._stream.live or self._consumers.get(consumer.name) is not consumer:
            return
        known = self.records.get(self._downstream(consumer)[0])
        if known is not None and known.deliver == consumer.config.deliver_subject.encode():
            self.confirmed(consumer, push.confirmed_sseq)

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

    def watch(self) -> None:
        """Watch interest in the deliver subjects, and removals of unconfirmed messages."""
        self.never_arrived.watch()
        self._unserved.watch({each.deliver for each in self.records.values() if each.deliver})

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
        self.records.stream_deleted()

    # -- status ------------------------------------------------------------------------------------------------------

    def statuses(self) -> list[SyncStatus]:
        """Return the status of each downstream, as `/eyot/syncz` shows it."""
        return [
            self._statuses.of(key, downstream, self._present(key, downstream), self.records.values())
            for key, downstream in sorted(self.records.items())
        ]

    def _is_unsteady(self, key: bytes) -> bool:
        """Return whether this downstream withdrew a confirmation recently."""
        return self._stream.clock.monotonic() < self._retracted_at.get(key, -RETRACTION_S) + RETRACTION_S

    def _present(self, key: bytes, downstream: Downstream) -> Present:
        return Present(
            doubted=self.records.is_doubted(key),
            unsteady=self._is_unsteady(key),
            reads=self._reads(downstream),
            held=self._policy_hold(downstream),
            bridge=self._deliveries.bridges.get(key),
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
