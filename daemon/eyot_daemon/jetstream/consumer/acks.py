"""Applies messages on a consumer's acknowledgement subject to its state.

Payloads: none, `+ACK`, `+OK` acknowledge; `-NAK` with an optional delay; `+WPI` resets the wait; `+TERM` with an
optional reason; `+NXT` acknowledges and requests more. A reply subject (double acknowledgement) is answered when the
new state is on flash; for `+NXT` it receives the next messages.

Without acknowledgements a message is finished when it is delivered. One that was delivered to a mirror or source is
finished when flow control confirms it: until then it may be lost with the link.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.config.consumer import sample_percent
from eyot_wire.digits import parse_uint
from eyot_wire.frames import PLAIN_ACKS
from eyot_wire.jetstream.ack import AckKind, parse_ack_payload

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_daemon.jetstream.consumer.stored_state import StateWriter
    from eyot_daemon.router.ack_sinks import Ack

#: Position of the stream sequence among the tokens of a v1 acknowledgement subject.
_SSEQ = 5
#: Payloads with this prefix confirm, and are not answered when there is nothing to confirm.
CONFIRMING = (b"+NXT", b"+TERM")


class _AckedDelivery(NamedTuple):
    """The delivery in an acknowledgement subject."""

    deliveries: int
    sseq: int
    cseq: int


def _parse_ack_subject(subject: bytes, sseq: int) -> _AckedDelivery:
    tokens = subject.split(b".")[_SSEQ - 1 : _SSEQ + 2]
    deliveries, _, cseq = (parse_uint(token) or 0 for token in (*tokens, b"", b"")[:3])
    return _AckedDelivery(deliveries, sseq, cseq)


class Acks:
    """Acknowledgements of one consumer."""

    def __init__(
        self,
        consumer: "ConsumerCore",
        writer: "StateWriter",
        request_next: "Callable[[bytes, bytes, bytes], None]",
        is_leftover: Callable[[int], bool],
    ) -> None:
        """`request_next(reply, header, body)` takes a pull request.

        `is_leftover(sseq)`: the stream holds a message for this consumer, and no other consumer needs it.
        """
        self._consumer = consumer
        self._writer = writer
        self._request_next = request_next
        self._is_leftover = is_leftover
        self.moved = False
        self._percent = 0
        self._sent_at: dict[int, float] = {}
        self._drops = False
        #: Delivered to a mirror or source and not confirmed, in order of sequence; flow control bounds their bytes.
        self._unconfirmed: dict[int, None] = {}
        self.config_changed()

    def config_changed(self) -> None:
        consumer = self._consumer
        self._percent = sample_percent(consumer.config) if consumer.config.ack_policy == "explicit" else 0
        self._drops = consumer.stream.config.retention != "limits"

    @property
    def takes_plain(self) -> bool:
        """Return whether `received_plain` is enough: a sample also tells which delivery was acknowledged."""
        return not self._percent

    def sent(self, sseqs: Sequence[int], now: float) -> None:
        """Note deliveries; without acknowledgements they are finished."""
        consumer = self._consumer
        if consumer.state.rules.policy == "none":
            if self._drops and consumer.config.direct and consumer.config.flow_control:
                self._unconfirmed.update(dict.fromkeys(sseqs))
            elif self._drops:
                self._writer.acknowledged(list(sseqs), drop=True)
        elif self._percent:
            for sseq in sseqs:
                self._sent_at[sseq] = now

    def passed_damaged(self) -> None:
        """Have the stream let go of damaged messages that the consumer is past: nobody will acknowledge them."""
        if self._drops:
            self._writer.acknowledged((), drop=True)

    def received(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        """Process a message on the consumer's acknowledgement subject."""
        consumer = self._consumer
        try:
            sseq = int(subject.split(b".", _SSEQ + 1)[_SSEQ])
        except (ValueError, IndexError):
            return
        if sseq > consumer.state.delivered_sseq:
            # Another consumer's (or a former one's of this name, or from before a reset): nothing is confirmed. A
            # payload that confirms nothing is answered anyway, and who asks for more gets it.
            ack = parse_ack_payload(payload) if payload.startswith(CONFIRMING) else None
            if ack is not None and ack.kind is AckKind.TERM:
                self._terminated(_parse_ack_subject(subject, sseq), ack.reason)
            elif ack is not None and ack.kind is AckKind.NEXT:
                self._request_next(reply, b"", ack.request)
            if reply and payload not in PLAIN_ACKS and not payload.startswith(CONFIRMING):
                self._writer.answer(reply)
                consumer.mark()
            return
        if payload in PLAIN_ACKS:
            self._acknowledge(sseq, _parse_ack_subject(subject, sseq) if self._percent else None)
        elif self._special(_parse_ack_subject(subject, sseq), reply, payload):
            return
        if reply:
            self._writer.answer(reply)
        consumer.mark()

    def received_all(self, acks: "Sequence[Ack]") -> None:
        """Messages on the acknowledgement subject, in their order; plain ones are applied together."""
        consumer = self._consumer
        state = consumer.state
        if self._percent or state.rules.policy != "explicit":
            for ack in acks:
                self.received(*ack)
            return
        plain: list[int] = []
        for subject, reply, payload in acks:
            if reply or payload not in PLAIN_ACKS:
                self._acknowledge_each(plain)
                plain = []
                self.received(subject, reply, payload)
                continue
            try:
                sseq = int(subject.split(b".", _SSEQ + 1)[_SSEQ])
            except (ValueError, IndexError):
                continue
            plain.append(sseq)
        self._acknowledge_each(plain)
        consumer.mark()

    def received_plain(self, sseqs: list[int]) -> None:
        """Process plain acknowledgements of these messages, in order of arrival."""
        consumer = self._consumer
        state = consumer.state
        if self._percent or state.rules.policy != "explicit":
            for sseq in sseqs:
                if sseq <= state.delivered_sseq:
                    # A receiver within the daemon does not say which delivery it acknowledges.
                    told = _AckedDelivery(state.deliveries(sseq), sseq, state.pending.get(sseq, (0,))[0])
                    self._acknowledge(sseq, told)
        else:
            self._acknowledge_each(sseqs)
        consumer.mark()

    def when_written(self, step: Callable[[], None]) -> None:
        """Call `step` when all acknowledgements so far are on flash; never, if the consumer ends before."""
        self._writer.when_written(step)
        self._consumer.mark()

    def _acknowledge_each(self, sseqs: list[int]) -> None:
        taken = self._consumer.state.ack_each(sseqs) if sseqs else ()
        if taken:
            if self._sent_at:
                self.forget(taken)
            self.moved = True
            self._writer.acknowledged(taken, drop=self._drops)
        if self._drops and len(taken) < len(sseqs):
            self._drop_leftovers(set(sseqs).difference(taken))

    def _acknowledge(self, sseq: int, told: "_AckedDelivery | None" = None) -> None:
        """`told`: the delivery, for a sample."""
        consumer = self._consumer
        if self._percent and told is not None:
            self._sample(told)
        taken = consumer.state.ack(sseq)
        if taken:
            if self._sent_at:
                self.forget(taken)
            self.moved = True
            self._writer.acknowledged(taken, drop=self._drops)
        if self._drops and sseq not in taken:
            self._drop_leftovers((sseq,))

    def _drop_leftovers(self, sseqs: Iterable[int]) -> None:
        """Have the stream let go of messages that were given up, and are acknowledged after all."""
        delivered = self._consumer.state.delivered_sseq
        leftovers = [sseq for sseq in sorted(sseqs) if sseq <= delivered and self._is_leftover(sseq)]
        if leftovers:
            self._writer.acknowledged(leftovers, drop=True)

    def received_up_to(self, sseq: int) -> None:
        """Process the receiver's confirmation of everything up to `sseq` (acknowledging flow control)."""
        self._acknowledge(min(sseq, self._consumer.state.delivered_sseq))

    def take_confirmed(self, sseq: int) -> list[int]:
        """Return the messages up to `sseq`, which the mirror or source has confirmed, for removal from the stream."""
        done = []
        for each in self._unconfirmed:
            if each > sseq:
                break
            done.append(each)
        for each in done:
            del self._unconfirmed[each]
        return done

    def give_back(self, sseqs: Sequence[int]) -> None:
        """Take back messages that the stream could not remove: the next confirmation tries them again."""
        self._unconfirmed = dict.fromkeys([*sseqs, *self._unconfirmed])

    def is_unconfirmed(self, sseq: int) -> bool:
        return sseq in self._unconfirmed

    def _now(self) -> float:
        return self._consumer.clock.monotonic()

    def _special(self, told: "_AckedDelivery", reply: bytes, payload: bytes) -> bool:
        """Anything but a plain acknowledgement; True if `reply` is not to be answered."""
        consumer, sseq = self._consumer, told.sseq
        state = consumer.state
        ack = parse_ack_payload(payload)
        if ack is None:
            return False
        match ack.kind:
            case AckKind.ACK:
                self._acknowledge(sseq, told)
            case AckKind.NAK:
                self._nak(told, ack.delay_ns / 1e9)
            case AckKind.PROGRESS:
                state.progress(sseq, self._now())
            case AckKind.TERM:
                self._terminate(told, ack.reason)
            case AckKind.NEXT:
                self._acknowledge(sseq, told)
                self._request_next(reply, b"", ack.request)
                return True
        return False

    def _nak(self, told: "_AckedDelivery", delay_s: float) -> None:
        consumer = self._consumer
        if told.sseq not in consumer.state.pending:
            return
        consumer.advisories.naked(told.cseq, told.sseq, told.deliveries)
        consumer.state.nak(told.sseq, delay_s, self._now())
        self._writer.acknowledged((), drop=False)

    def _terminate(self, told: "_AckedDelivery", reason: str) -> None:
        consumer = self._consumer
        taken = list(consumer.state.ack(told.sseq))
        if taken:
            self.moved = True
            self._writer.acknowledged(taken, drop=self._drops)
        elif self._drops:
            self._drop_leftovers((told.sseq,))
        self._terminated(told, reason)

    def _terminated(self, told: "_AckedDelivery", reason: str) -> None:
        self._consumer.advisories.terminated(told.cseq, told.sseq, told.deliveries, reason)

    def removed(self, sseqs: Sequence[int], reason: str) -> None:
        """Drop pending messages that left the stream: they need no acknowledgement any more."""
        consumer = self._consumer
        state = consumer.state
        for sseq in sseqs:
            held = state.pending.get(sseq)
            if held is None:
                continue
            deliveries = state.deliveries(sseq)
            state.remove(sseq)
            self.forget((sseq,))
            consumer.advisories.terminated(held[0], sseq, deliveries, reason)
            self._writer.acknowledged((), drop=False)

    def forget(self, sseqs: Sequence[int]) -> None:
        """Drop ack samples of messages that will not be acknowledged."""
        for sseq in sseqs:
            self._sent_at.pop(sseq, None)

    def forget_all(self) -> None:
        """Drop everything after a reset of the consumer."""
        self._sent_at.clear()

    def _sample(self, told: "_AckedDelivery") -> None:
        consumer = self._consumer
        sent_at = self._sent_at.pop(told.sseq, None)
        if told.sseq not in consumer.state.pending or sent_at is None:
            return
        if consumer.broker.random() * 100 < self._percent:
            waited_ns = int((self._now() - sent_at) * 1e9)
            consumer.advisories.acked(told.cseq, told.sseq, waited_ns, told.deliveries)
