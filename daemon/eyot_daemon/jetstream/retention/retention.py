"""Interest and work-queue retention: which messages are still needed, and the walk that removes the others.

With limits retention acknowledgements do not matter to the stream. A work queue removes a message as soon as its
consumer has acknowledged it. With interest retention a message is removed when every consumer that it concerns has
acknowledged it; one that concerns none is not stored at all. A message of a work queue that a downstream has confirmed
is removed unless a consumer or another downstream still waits for it.

A downstream that has read the stream counts as a consumer permanently, also while its link is down and its hidden
consumer is deleted: messages that it has not confirmed are kept (`jetstream/downstream`).

After a changed configuration or a removed consumer, `Sweep` walks through the whole stream: one slice per transaction, the
next when that is on flash, so that other work continues; a small stream is done at once. The walk's progress is not stored,
only that it runs: after a restart it begins again. Tracking the log's subjects is such a walk, too.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.config.consumer import filters_of
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.stream_core import Batch, ConsumerPort
from eyot_store.errors import StoreError
from eyot_store.log.subjects import TRACKED_MESSAGES_MAX
from eyot_wire.sublist import SubList

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.records import DownstreamRecords
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log, Unwanted
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

#: Messages that one transaction removes.
SWEEP_SLICE = 4096
#: Among the stream's positions while a walk is under way.
KEY = b"eyot.sweep"
#: After a failure, the walk continues this much later, seconds.
RETRY_S = 1.0


class Sweep:
    """The walk through one stream.

    `unneeded` returns a predicate for messages that the retention does not need any more. `overdue` are subjects with
    more messages than allowed, whose oldest ones are still to be found.
    """

    def __init__(self, stream: "StreamCore", unneeded: "Callable[[], Unwanted]") -> None:
        self._stream = stream
        self._unneeded = unneeded
        self._log: Log = stream.log
        self._next = 0  # 0: no walk is under way
        self._last = 0
        self._tracking = False
        self.overdue: set[bytes] = set()
        self._log.index.on_slow = self._track_soon

    def start(self, *, has_leftovers: bool) -> None:
        """Start with the stream: resume the walk that the daemon's end interrupted. `has_leftovers`: begin one in any case."""
        if has_leftovers or KEY in self._log.positions():
            self._walk()

    def begin(self, txn: "Txn") -> list[int]:
        """Stage the removal of excess messages in a small stream, and return their sequences; in a large one, search from the next turn on."""
        state = self._log.state
        if state.messages <= SWEEP_SLICE:
            gone: list[int] = []
            seq, last = max(state.first_seq, 1), self._log.committed_seq
            while seq <= last:
                some, seq = self._log.sweep(txn, seq, last, self._unwanted(), SWEEP_SLICE)
                gone += some
            return gone
        self._log.put_position(txn, KEY, b"")
        self._walk()
        return []

    # -- walking ---------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        under_way = self._next
        self._next, self._last = max(self._log.state.first_seq, 1), self._log.state.last_seq
        if not under_way:
            self._soon(0.0)

    def _soon(self, seconds: float) -> None:
        self._stream.timers.call_later(seconds, self._slice)

    def _slice(self) -> None:
        stream, begun = self._stream, self._next
        if not stream.live:
            self._next = 0
            return
        batch = Batch()
        try:
            with stream.staging() as txn:
                batch.removed, self._next = self._log.sweep(txn, begun, self._last, self._unwanted(), SWEEP_SLICE)
                if self._next > min(self._last, self._log.committed_seq):
                    self._log.delete_position(txn, KEY)
        except StoreError as failure:
            self._on(begun, failure)
            return
        if txn.parts:
            batch.then.append(lambda failure: self._on(begun, failure))
            stream.submit(txn, batch)
        else:
            stream.store.abort(txn)
            self._soon(0.0)

    def _on(self, begun: int, failure: StoreError | None) -> None:
        """Continue after a slice that is committed, or has failed."""
        if failure is not None:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            self._next = min(begun, self._next)
            self._soon(RETRY_S)
        elif self._next <= min(self._last, self._log.committed_seq):
            self._soon(0.0)
        else:
            self._next = 0

    def _unwanted(self) -> "Unwanted":
        config, count = self._stream.config, self._log.subject_count
        most = config.max_msgs_per_subject
        unneeded = None if config.retention == "limits" else self._unneeded()

        def unwanted(seq: int, subject: bytes | None) -> bool:
            return (subject is not None and 0 < most < count(subject)) or (
                unneeded is not None and unneeded(seq, subject)
            )

        return unwanted

    # -- tracking --------------------------------------------------------------------------------------------------

    def _track_soon(self) -> None:
        """Start tracking the log soon: a search took long that a tracked log answers at once."""
        if not self._tracking:
            self._tracking = True
            self._stream.timers.call_later(0.0, self._track)

    def _track(self) -> None:
        stream = self._stream
        done = True
        try:
            if stream.live and self._log.state.messages <= TRACKED_MESSAGES_MAX:
                done = self._log.track_some()
            if done:
                self.enforce_overdue(begin=self._log.state.messages > TRACKED_MESSAGES_MAX)
        except StoreError as failure:
            log.warning("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            done = True
        if done:
            self._tracking = False
        else:
            stream.timers.call_later(0.0, self._track)

    def enforce_overdue(self, *, begin: bool = False) -> None:
        """Remove the excess messages of overdue subjects. `begin`: walk through all subjects."""
        stream = self._stream
        overdue, self.overdue = self.overdue, set()
        if not overdue or not stream.live:
            return
        batch = Batch()
        with stream.staging() as txn:
            if begin:
                batch.removed = self.begin(txn)
            else:
                batch.removed = limits.enforce(stream.config, self._log, txn, overdue, self.overdue)
        if not txn.parts:
            stream.store.abort(txn)
            return
        if self.overdue:
            batch.then.append(lambda _: self._track_soon())
        stream.submit(txn, batch)


#: Messages read in one go.
READ_MESSAGES_MAX = 1024
READ_BYTES_MAX = 4 << 20
#: No reason for a loss: every consumer of the message has acknowledged it.
_CONSUMED = ""


class _Filter:
    """One filter of a consumer; an entry of the index."""

    __slots__ = ("consumer", "queue", "subject")

    def __init__(self, consumer: ConsumerPort, subject: bytes) -> None:
        self.consumer = consumer
        self.subject = subject
        self.queue = b""


class ConsumerIndex:
    """A stream's consumers by filter, so that a message concerns only those that want it, out of very many.

    Built at its first use.
    """

    def __init__(self, consumers: Mapping[str, ConsumerPort]) -> None:
        self._consumers = consumers
        self._list: SubList[_Filter] | None = None
        self._filters: dict[ConsumerPort, list[_Filter]] = {}

    def matching(self, subject: bytes) -> Collection[ConsumerPort]:
        """Return the consumers whose filters match a literal subject, each once."""
        found = self._list
        if found is None:
            found = self._list = SubList()
            for consumer in self._consumers.values():
                self.add(consumer)
        return {each.consumer: None for each in found.match(subject).plain}

    def add(self, consumer: ConsumerPort) -> None:
        """Add a consumer, or follow its changed filters."""
        if self._list is None:
            return
        self.remove(consumer)
        filters = [_Filter(consumer, subject) for subject in filters_of(consumer.config) or (b">",)]
        self._filters[consumer] = filters
        for each in filters:
            self._list.insert(each)

    def remove(self, consumer: ConsumerPort) -> None:
        """Remove a consumer that ends."""
        if self._list is not None:
            for each in self._filters.pop(consumer, ()):
                self._list.remove(each)


class Retention:
    """The rules of one stream; reads its present configuration and consumers each time.

    `sweep(txn)` stages the removal of unneeded messages in a small stream; in a large one it starts a walk.
    """

    def __init__(
        self,
        stream: "StreamCore",
        consumers: Mapping[str, ConsumerPort],
        downstreams: "DownstreamRecords",
        sweep: "Callable[[Txn], object]",
    ) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._consumers = consumers
        self._downstreams = downstreams
        self._sweep = sweep
        self.index = ConsumerIndex(consumers)

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a message on `subject` must be stored."""
        if self._stream.config.retention != "interest":
            return True
        return bool(self.index.matching(subject)) or self._downstreams.wants(subject)

    def acked(self, consumer: ConsumerPort, seqs: Iterable[int], txn: "Txn") -> None:
        """Stage the removal of those of `seqs` that no consumer needs any more, now that `consumer` is done with them.

        In a work queue none does: a message has one consumer.
        """
        retention = self._stream.config.retention
        if retention == "limits":
            return
        if self._log.damaged:
            seqs = [seq for seq in seqs if seq not in self._log.damaged]
            self._drop_damaged(txn)
        if retention == "workqueue":
            for seq in seqs:
                self._log.remove(txn, seq, why=_CONSUMED)
        else:
            self._release((consumer,), seqs, txn, others=self._downstreams.known)

    def copied(self, by: Collection[ConsumerPort], seqs: Iterable[int], txn: "Txn") -> None:
        """Stage the removal of those of `seqs` that nothing else needs, now that the downstream of the hidden consumers `by` has them."""
        if self._stream.config.retention != "limits":
            self._release(by, seqs, txn, others=not self._downstreams.is_single)
            self._drop_damaged(txn)

    def _release(self, but: Collection[ConsumerPort], seqs: Iterable[int], txn: "Txn", *, others: bool) -> None:
        """Stage the removal of those of `seqs` that nothing `but` these consumers needs. `others`: downstreams may need them."""
        alone = not others and all(other in but for other in self._consumers.values())
        for seq in seqs:
            if alone or not self._needed(seq, but):
                self._log.remove(txn, seq, why=_CONSUMED)

    def _drop_damaged(self, txn: "Txn") -> None:
        """Stage the removal of damaged messages that are behind all consumers and downstreams: each may be for any of them."""
        for seq in self._log.damaged:
            if self._log.holds(seq) and not self._needed(seq, ()):
                self._log.remove(txn, seq, why=_CONSUMED)

    def is_leftover_of(self, consumer: ConsumerPort, seq: int) -> bool:
        """Return whether the stream holds a message that is for `consumer`, and that nothing else needs."""
        try:
            message = self._log.get(seq)
        except StoreError:
            return False  # a damaged message is reported when it is read
        return message is not None and consumer.wants(message.subject) and not self._needed(seq, (consumer,))

    def may_hold_leftovers(self) -> bool:
        """Return whether the stream may hold messages that a downstream has confirmed and nothing needs, at a start.

        They were kept for a consumer without a stored state, which ended with the daemon: a hidden one, for example.
        """
        held = self._log.state
        return (
            self._stream.config.retention != "limits"
            and held.messages > 0
            and held.first_seq <= self._downstreams.confirmed_seq
        )

    def confirmed(self, first: int, last: int, txn: "Txn", by: Collection[ConsumerPort] = ()) -> None:
        """Stage the removal of messages between that a downstream, with the hidden consumers `by`, turns out to have and nothing else needs."""
        if self._stream.config.retention == "limits":
            return
        out, seq = self._downstreams, max(first, self._log.state.first_seq)
        while seq <= min(last, self._log.committed_seq):
            read = self._log.read_on(seq, max_messages=READ_MESSAGES_MAX, max_bytes=READ_BYTES_MAX)
            for message in read.messages:
                at, subject = message.seq, message.subject
                if at > last or not out.has(at, subject):
                    continue
                if not self._consumer_needs(at, subject, by) and not out.needs(at, subject):
                    self._log.remove(txn, at, why=_CONSUMED)
            seq = read.next_seq

    def _needed(self, seq: int, but: Collection[ConsumerPort]) -> bool:
        """Return whether any consumer `but` these, or a downstream, needs a message; a damaged one may be for each of them."""
        try:
            message = self._log.get(seq)
        except StoreError as failure:
            if not failure.is_record_at(seq):
                return True
            subject = None
        else:
            if message is None:
                return False
            subject = message.subject
        return self._consumer_needs(seq, subject, but) or self._downstreams.needs(seq, subject)

    def _consumer_needs(self, seq: int, subject: bytes | None, but: Collection[ConsumerPort]) -> bool:
        consumers = self._concerned(subject)
        return any(consumer not in but and consumer.needs(seq, subject) for consumer in consumers)

    def _concerned(self, subject: bytes | None) -> Collection[ConsumerPort]:
        """Return the consumers that a message on `subject` is for; None: all that it may be for."""
        return self._consumers.values() if subject is None else self.index.matching(subject)

    def drop_unneeded(self, txn: "Txn") -> None:
        """Stage the removal of every committed message that no consumer needs; of many messages, some later.

        Called when a consumer was removed, or interest retention came into force. A work queue keeps what no downstream has
        for the next consumer.
        """
        retention, known = self._stream.config.retention, self._downstreams.known
        if retention == "interest" and not self._consumers and not known:
            self._log.purge(txn, why=_CONSUMED)
        elif retention == "interest" or (retention == "workqueue" and known):
            self._sweep(txn)

    def drop_unneeded_now(self) -> None:
        """Remove what no consumer needs in a transaction of its own: a consumer got other filters.

        A work queue keeps such messages for a later consumer.
        """
        if self._stream.config.retention != "interest":
            return
        store = self._stream.store
        txn = store.begin()
        self.drop_unneeded(txn)
        if txn.parts:
            store.submit(txn)
        else:
            store.abort(txn)

    def unneeded(self) -> "Unwanted":
        """Return whether no consumer needs a message, without limits retention; to be asked of many messages.

        A stream that got interest retention while it had no consumers keeps what it holds, as in nats-server.
        """
        out = self._downstreams
        if not self._consumers and not out.known:
            return lambda seq, subject: False
        queue = self._stream.config.retention == "workqueue"

        def unneeded(seq: int, subject: bytes | None) -> bool:
            if queue and not out.has(seq, subject):
                return False
            return not self._consumer_needs(seq, subject, ()) and not out.needs(seq, subject)

        return unneeded
