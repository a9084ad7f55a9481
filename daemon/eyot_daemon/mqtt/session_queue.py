"""Queues of messages of QoS 1 and 2 for sessions, and for the groups of shared subscriptions.

A queue is a durable consumer of `$MQTT_msgs`: the messages are stored once, and interest retention removes them when the
last queue has them acknowledged. Nothing is delivered again while its receiver is connected [MQTT-4.4.0-1]: what it
gives back at its end comes first, in the order of the stream, at the next pull. After a restart that is everything that
was delivered and not acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.config.rules import INTERNAL
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.consumer.local_delivery import LocalReceiver, MayReceive, OnMessage
from eyot_store.errors import StoreError
from eyot_wire.jetstream.errors import JetStreamError
from eyot_wire.jetstream.model import ConsumerConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.consumer.consumers import Consumers
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.mqtt.counters import Drops
    from eyot_wire.sublist import SubList

log = logging.getLogger("eyot.mqtt")

Done = Callable[[str], None]
"""Called with the reason of a failure, "" when it is on flash."""

#: Queued messages have this before their subject.
QUEUE_PREFIX: Final = b"$MQTT.msgs."
#: The filter of a queue without filters; nothing is stored there.
NOTHING: Final = b"$MQTT.none"
#: Nothing falls due while a receiver is connected: a hundred years, ns.
_ACK_WAIT_NS: Final = 100 * 365 * 86_400 * 1_000_000_000


class QueueFilter:
    """A subject of `$MQTT_msgs` that a queue wants; an entry of the account's list of them."""

    __slots__ = ("owner", "queue", "subject")

    def __init__(self, subject: bytes, owner: Queue) -> None:
        self.subject = subject
        self.queue = b""
        self.owner = owner


class QueueContext:
    """What the queues of one account share: their stream, their filters, and their bounds (each queue's)."""

    def __init__(
        self, jsa: JetStreamAccount, consumers: Consumers, stream: Stream, filters: SubList[QueueFilter], drops: Drops
    ) -> None:
        self.jsa = jsa
        self.consumers = consumers
        self.stream = stream
        self.filters = filters
        self.drops = drops
        self.msgs_max = 0
        self.bytes_max = 0
        #: publishes that were refused because a queue was full
        self.refused = 0


class Queue:
    """One durable consumer of `$MQTT_msgs`. `messages` and `bytes`: what is stored for it and not acknowledged.

    After a restart `bytes` is estimated from the stream's average until the queue is empty once.
    """

    __slots__ = ("_consumer", "_context", "_filters", "bytes", "drops", "messages", "name", "refused")

    def __init__(self, context: QueueContext, name: str) -> None:
        self.name = name
        self.messages = 0
        self.bytes = 0
        #: publishes that were refused because this queue was full
        self.refused = 0
        #: where messages count that expire in the queue
        self.drops = context.drops
        self._context = context
        self._filters: dict[bytes, QueueFilter] = {}
        self._consumer: Consumer | None = None
        existing = context.stream.consumers.get(name)
        if isinstance(existing, Consumer):
            self._adopt(existing)
            self.recount()

    # -- life cycle --------------------------------------------------------------------------------------------------

    def configure(self, filters: Sequence[bytes], window: int, done: Done) -> None:
        """Create the queue, or change it: it gets messages on `filters` from now on.

        `window`: how many messages may be unacknowledged. Filters may overlap; each message comes once.
        """
        wanted = list(dict.fromkeys(filters)) or [NOTHING]
        limits = self._context.jsa.server.options.limits
        bounds = [window, limits.ack_pending_max]
        if self._context.jsa.limits is not None:
            bounds.append(self._context.jsa.limits.ack_pending_max)
        config = ConsumerConfig(
            durable_name=self.name,
            name=self.name,
            deliver_policy="new",
            ack_policy="explicit",
            ack_wait=_ACK_WAIT_NS,
            max_deliver=-1,
            max_ack_pending=min(bound for bound in bounds if bound > 0),
            filter_subjects=[each.decode() for each in wanted],
            metadata={INTERNAL: "mqtt"},
        )
        before = list(self._filters)
        self._set_filters([each for each in wanted if each != NOTHING])

        def settled(consumer: Consumer, failure: StoreError | None) -> None:
            if failure is None:
                self._forget_unwanted(before)
                done("")
                return
            self._set_filters(before)
            done(failure.message)

        try:
            self._context.consumers.configure_internal(self._context.jsa, self._context.stream, config, settled)
        except JetStreamError as refused:
            self._set_filters(before)
            done(refused.api_error.description)
            return
        made = self._context.stream.consumers.get(self.name)
        if isinstance(made, Consumer) and made is not self._consumer:
            self._adopt(made)

    @property
    def consumer(self) -> Consumer | None:
        """The queue's consumer; None before the queue is configured."""
        return self._consumer

    def _adopt(self, consumer: Consumer) -> None:
        """Take up the queue's consumer."""
        self._consumer = consumer

    def _set_filters(self, wanted: Sequence[bytes]) -> None:
        filters = self._context.filters
        kept = frozenset(wanted)
        for subject in [each for each in self._filters if each not in kept]:
            filters.remove(self._filters.pop(subject))
        for subject in wanted:
            if subject not in self._filters:
                entry = self._filters[subject] = QueueFilter(subject, self)
                filters.insert(entry)

    def _forget_unwanted(self, before: Sequence[bytes]) -> None:
        """Have the stream remove what no queue wants any more, after this one lost filters."""
        if all(subject in self._filters for subject in before):
            return
        self._context.stream.retention.drop_unneeded_now()
        self.recount()

    def close(self) -> Consumer | None:
        """Take no more publishes; return the consumer that is to be deleted, if there is one."""
        self._set_filters(())
        return self._consumer

    def delete(self, done: Done) -> None:
        """Delete the queue and what is stored for it alone."""
        consumer = self.close()
        if consumer is None:
            done("")
        else:
            consumer.delete(lambda failure: done("" if failure is None else failure.message))

    # -- bounds ------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> bool:
        """Whether another message may be stored for the queue."""
        context = self._context
        return self.messages < context.msgs_max and self.bytes < context.bytes_max

    def has_room(self, messages: int, size: int) -> bool:
        """Return whether there would be room up to the last of so many messages of `size` bytes together."""
        context = self._context
        return self.messages + messages <= context.msgs_max and self.bytes + size <= context.bytes_max

    @property
    def backlog(self) -> tuple[int, int]:
        """Messages and bytes that are stored for it and not acknowledged."""
        return self.messages, self.bytes

    def note_refused(self) -> None:
        self.refused += 1
        self._context.refused += 1

    def count(self, messages: int, size: int) -> None:
        """Count what was stored for it, or was not after all (negative)."""
        self.messages = max(0, self.messages + messages)
        self.bytes = max(0, self.bytes + size) if self.messages else 0

    def recount(self) -> None:
        """Count what the consumer has to deliver; bytes by the stream's average where they are not known."""
        consumer = self._consumer
        if consumer is None:
            return
        state, log_state = consumer.state, self._context.stream.log.state
        try:
            messages = consumer.reader.pending(state.delivered_sseq) + state.num_ack_pending
        except StoreError as failure:
            log.warning("MQTT queue %s cannot be counted: %s", self.name, failure)
            return
        average = log_state.bytes // log_state.messages if log_state.messages else 0
        self.bytes = self.bytes * messages // self.messages if self.messages else average * messages
        self.messages = messages

    # -- receivers ---------------------------------------------------------------------------------------------------

    def pending(self) -> list[int]:
        """Return the sequences that were delivered and not acknowledged, in order."""
        return [] if self._consumer is None else list(self._consumer.state.pending)

    @property
    def handed_over(self) -> int:
        """Return the highest sequence that was handed over to a client, or passed over; it is written a while later."""
        return 0 if self._consumer is None else self._consumer.state.delivered_sseq

    def owes(self, sseq: int) -> bool:
        """Return whether a message is still to be acknowledged: it was not handed over yet, or has no acknowledgement."""
        consumer = self._consumer
        return consumer is not None and (sseq > consumer.state.delivered_sseq or sseq in consumer.state.pending)

    def joined(self, on_message: OnMessage, may_receive: MayReceive | None) -> LocalReceiver | None:
        """Return a new receiver; None before the queue is configured."""
        if self._consumer is None or self._consumer.pull is None:
            return None
        may = None if may_receive is None else lambda subject: may_receive(subject[len(QUEUE_PREFIX) :])
        return self._consumer.pull.receivers().join(_without_prefix(on_message), may)

    def left(self, receiver: LocalReceiver) -> None:
        """Remove a receiver; what it has goes to the others."""
        if self._consumer is not None and self._consumer.pull is not None:
            self._consumer.pull.receivers().leave(receiver)

    def wake(self) -> None:
        """Deliver: a message for the queue is on flash."""
        if self._consumer is not None:
            self._consumer.wake()

    def acked(self, size: int) -> None:
        if size:
            self.count(-1, -size)

    def expired(self, sseq: int, size: int) -> None:
        """Count a message out that has left the stream for its age; called before the consumer knows."""
        if not self.owes(sseq):
            return
        self.count(-1, -size)
        if not self._forget(sseq):
            self.drops.count("expired")

    def _forget(self, sseq: int) -> bool:
        """Return whether a client was sent the message: it may be completed, and needs no acknowledgement any more."""
        pull = None if self._consumer is None else self._consumer.pull
        return pull is not None and any(receiver.held.pop(sseq, 0) for receiver in pull.receivers().receivers)


class QueueMember:
    """One receiver of a queue: a session. Made before or after the queue is configured.

    `may_receive`: whether others are to get a message on a subject instead; None: there are no others.
    """

    __slots__ = ("_consumer", "_may_receive", "_on_message", "_receiver", "queue")

    def __init__(self, queue: Queue, on_message: OnMessage, may_receive: MayReceive | None = None) -> None:
        self.queue = queue
        self._on_message = on_message
        self._may_receive = may_receive
        self._receiver: LocalReceiver | None = None
        self._consumer: Consumer | None = None

    def pull(self, count: int, max_bytes: int) -> None:
        """Have at most `count` messages, of together about `max_bytes` bytes, handed over; replaces the last pull."""
        # The creation of the consumer that it joined may have failed.
        if self._receiver is None or self._consumer is not self.queue.consumer:
            self._receiver = self.queue.joined(self._on_message, self._may_receive)
            self._consumer = self.queue.consumer
        if self._receiver is not None:
            self._receiver.pull(count, max_bytes)

    def ack(self, sseq: int) -> bool:
        """Note that the client has the message, written soon after; False: it was not handed over, or was taken back."""
        size = self._receiver.ack(sseq) if self._receiver is not None else 0
        self.queue.acked(size)
        return size > 0

    def skip(self, sseq: int, *, ack: bool = True) -> None:
        """Note that a message was handed over and not sent: another one may come in its place."""
        if self._receiver is not None and sseq in self._receiver.held:
            size = self._receiver.held[sseq]
            if ack:
                self.ack(sseq)
            self._receiver.accept_instead(size)

    def when_written(self, step: Callable[[], None]) -> None:
        """Call `step` when all acknowledgements so far are on flash; never, if the queue ends before."""
        if self._receiver is not None:
            self._receiver.when_written(step)

    def give_back(self, keep: Container[int] = ()) -> None:
        """Note that the connection ended: what is not acknowledged comes first at the next pull, or goes to another member.

        `keep`: sequences that no other member may get.
        """
        if self._receiver is not None:
            self._receiver.give_back(keep)

    def leave(self) -> None:
        """Give back, and receive nothing any more."""
        if self._receiver is not None:
            self.queue.left(self._receiver)
            self._receiver = None


class SessionQueue(Queue):
    """The queue of one session. `on_message` is called in the order of the stream."""

    __slots__ = ("_member",)

    def __init__(self, context: QueueContext, name: str, on_message: OnMessage) -> None:
        super().__init__(context, name)
        self._member = QueueMember(self, on_message)

    def pull(self, count: int, max_bytes: int) -> None:
        """Have at most `count` messages, of together about `max_bytes` bytes, handed over; replaces the last pull."""
        self._member.pull(count, max_bytes)

    def ack(self, sseq: int) -> bool:
        """Note that the client has the message; False: it was not handed over, or was taken back."""
        return self._member.ack(sseq)

    def skip(self, sseq: int, *, ack: bool = True) -> None:
        """Note that a message was handed over and not sent: another one may come in its place."""
        self._member.skip(sseq, ack=ack)

    def when_written(self, step: Callable[[], None]) -> None:
        """Call `step` when all acknowledgements so far are on flash; never, if the queue ends before."""
        self._member.when_written(step)

    def give_back(self) -> None:
        """Note that the connection ended: what is not acknowledged comes first at the next pull."""
        self._member.give_back()


class SharedQueue(Queue):
    """The queue of one group with one filter; its members take turns, each with its own credit."""

    __slots__ = ("_emptied", "_members")

    def __init__(self, context: QueueContext, name: str, emptied: Callable[[SharedQueue, Done], None]) -> None:
        """`emptied(self, done)` is called when the last member has gone."""
        super().__init__(context, name)
        self._emptied = emptied
        self._members: list[QueueMember] = []

    def __len__(self) -> int:
        return len(self._members)

    def join(self, on_message: OnMessage, may_receive: MayReceive | None = None) -> QueueMember:
        """Add a session; it receives messages when it pulls, and those that no member may receive, too."""
        member = QueueMember(self, on_message, may_receive)
        self._members.append(member)
        return member

    def remove(self, member: QueueMember, done: Done) -> None:
        """Remove a session that no longer has the subscription; the queue ends with its last member."""
        member.leave()
        if member in self._members:
            self._members.remove(member)
        if self._members:
            done("")
        else:
            self._emptied(self, done)


def _without_prefix(on_message: OnMessage) -> OnMessage:
    def handed_over(sseq: int, deliveries: int, subject: bytes, header: bytes, payload: bytes) -> None:
        on_message(sseq, deliveries, subject[len(QUEUE_PREFIX) :], header, payload)

    return handed_over
