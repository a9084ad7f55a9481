"""Delivery of a pull consumer's messages to receivers within the daemon: function calls, no subjects and no requests.

Each receiver has a credit of messages and bytes. Messages that were given back come first, in the order of the stream;
several receivers take turns, those that may receive it. A receiver acknowledges each message, or gives back all that it has not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.consumer.delivery import NEVER, TURN_MESSAGES_MAX, Delivery

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.acks import Acks
    from eyot_store import StoredMessage

#: (stream sequence, deliveries so far with this one, subject, header, payload)
OnMessage = Callable[[int, int, bytes, bytes, bytes], None]
#: subject
MayReceive = Callable[[bytes], bool]


class LocalReceiver:
    """One receiver. `held`: sizes in bytes of the messages that it has, by sequence, and has not acknowledged."""

    __slots__ = ("_local", "credit", "credit_bytes", "held", "may_receive", "on_message")

    def __init__(self, local: LocalDelivery, on_message: OnMessage, may_receive: MayReceive | None) -> None:
        self._local = local
        self.on_message = on_message
        #: None: every message
        self.may_receive = may_receive
        self.credit = 0
        self.credit_bytes = 0
        self.held: dict[int, int] = {}

    @property
    def wants(self) -> bool:
        return self.credit > 0 and self.credit_bytes > 0

    def pull(self, count: int, max_bytes: int) -> None:
        """Accept `count` more messages of together about `max_bytes` bytes; replaces the credit so far."""
        self.credit, self.credit_bytes = count, max_bytes
        if count > 0:
            self._local.mark()

    def assign(self, sseq: int, size: int) -> None:
        """Note a message that is about to be handed over."""
        self.held[sseq] = size
        self.credit -= 1
        self.credit_bytes -= size

    def ack(self, sseq: int) -> int:
        """Acknowledge a message; return its size in bytes, 0 if the receiver does not have it."""
        size = self.held.pop(sseq, 0)
        if size:
            self._local.acknowledge(sseq)
        return size

    def accept_instead(self, size: int) -> None:
        """Accept another message instead of one of `size` bytes that was handed over and takes no room."""
        self.credit += 1
        self.credit_bytes += size
        self._local.mark()

    def when_written(self, step: Callable[[], None]) -> None:
        """Call `step` when all acknowledgements so far are on flash; never, if the consumer ends before."""
        self._local.when_written(step)

    def give_back(self, keep: Container[int] = ()) -> None:
        """Return what is not acknowledged, but for the sequences in `keep`, and accept nothing until the next pull."""
        held, self.held = self.held, {sseq: size for sseq, size in self.held.items() if sseq in keep}
        self.credit = 0
        self._local.give_back({sseq: size for sseq, size in held.items() if sseq not in keep} if keep else held)


class LocalDelivery:
    """The receivers of one consumer. At its start everything that is pending counts as given back."""

    def __init__(self, delivery: Delivery, acks: Acks, sent: Callable[[float], None]) -> None:
        self._delivery = delivery
        self._acks = acks
        self._sent = sent
        self.receivers: list[LocalReceiver] = []
        delivery.state.give_back(delivery.state.pending)

    @property
    def idle(self) -> bool:
        """Return whether no receiver accepts messages."""
        return not any(receiver.wants for receiver in self.receivers)

    def join(self, on_message: OnMessage, may_receive: MayReceive | None = None) -> LocalReceiver:
        """Add a receiver."""
        receiver = LocalReceiver(self, on_message, may_receive)
        self.receivers.append(receiver)
        return receiver

    def leave(self, receiver: LocalReceiver) -> None:
        """Remove a receiver; others get what it has not acknowledged."""
        if receiver in self.receivers:
            self.receivers.remove(receiver)
            receiver.give_back()

    def mark(self) -> None:
        if not self._delivery.consumer.closed:
            self._delivery.consumer.mark()

    def acknowledge(self, sseq: int) -> None:
        if not self._delivery.consumer.closed:
            self._acks.received_plain([sseq])

    def when_written(self, step: Callable[[], None]) -> None:
        if not self._delivery.consumer.closed:
            self._acks.when_written(step)

    def give_back(self, sseqs: dict[int, int]) -> None:
        self._delivery.state.give_back(sseqs)
        self.mark()

    # -- delivering ------------------------------------------------------------------------------------------------

    def run(self, now: float) -> None:
        """Deliver what the receivers accept."""
        delivery = self._delivery
        budget = TURN_MESSAGES_MAX
        while delivery.resume_at == NEVER and not self.idle and not delivery.consumer.closed:
            if budget <= 0:
                delivery.resume_at = now
                break
            used = self._redeliver(now) if delivery.state.queued else self._deliver_new(budget, now)
            if not used:
                break
            budget -= used
        if budget < TURN_MESSAGES_MAX:
            self._sent(now)

    def _redeliver(self, now: float) -> int:
        delivery, state = self._delivery, self._delivery.state
        sseq = state.next_redelivery()
        message = delivery.read_again(sseq, now) if sseq else None
        if message is None:
            return 1
        receiver = self._next(message.subject)
        if receiver is None:
            return 0
        _, deliveries = delivery.account_again(sseq, now)
        receiver.assign(sseq, _size_of(message))
        receiver.on_message(sseq, deliveries, message.subject, message.header, message.payload)
        return 1

    def _deliver_new(self, budget: int, now: float) -> int:
        delivery, state = self._delivery, self._delivery.state
        demand = sum(receiver.credit for receiver in self.receivers if receiver.wants)
        room = min(state.room(), demand, budget)
        if not room:
            return 0
        messages, upto = delivery.read_new(room, now)
        if not messages:
            return delivery.found_nothing(upto)[0]
        given: list[tuple[LocalReceiver, StoredMessage]] = []
        for message in messages:
            receiver = self._next(message.subject)
            if receiver is None:
                break
            receiver.assign(message.seq, _size_of(message))
            given.append((receiver, message))
        if not given:
            return 0
        delivery.account_for([message.seq for _, message in given], upto, now, more=len(given) < len(messages))
        for receiver, message in given:
            # A receiver may give everything back while it gets a message: the others are delivered again, then.
            if message.seq in receiver.held:
                receiver.on_message(message.seq, 1, message.subject, message.header, message.payload)
        return len(given)

    def _next(self, subject: bytes) -> LocalReceiver | None:
        """Return the receiver whose turn it is for a message; None if all that may receive it have as much as they accept.

        A message that none may receive goes to any of them, which drops it.
        """
        denied: LocalReceiver | None = None
        is_awaited = False
        for _ in self.receivers:
            receiver = self.receivers[0]
            if len(self.receivers) > 1:
                self.receivers.append(self.receivers.pop(0))
            if receiver.may_receive is not None and not receiver.may_receive(subject):
                denied = receiver if denied is None and receiver.wants else denied
            elif receiver.wants:
                return receiver
            else:
                is_awaited = True
        return None if is_awaited else denied


def _size_of(message: StoredMessage) -> int:
    return len(message.subject) + len(message.header) + len(message.payload)
