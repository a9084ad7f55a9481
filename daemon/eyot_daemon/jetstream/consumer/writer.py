"""Writes a consumer's state to flash: many acknowledgements, few writes.

At the end of a turn the whole state is staged as one record in one transaction, together with the messages that the
stream removes because of acknowledgements. While that transaction is pending nothing more is submitted: what gathers
meanwhile goes with the next one, so the disk sets the pace. Answers to double acknowledgements wait for the transaction
with their acknowledgement.

Deliveries alone are no promise: they are written along with acknowledgements, or `DELIVERED_DELAY_S` later. After a
crash within that time, messages are delivered again as if for the first time.

Consumers in memory (`mem_storage`, `direct`) write nothing; they still wait for the removal of messages.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.consumer.codec import encode_state
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

#: How long deliveries may stay unwritten, seconds.
DELIVERED_DELAY_S = 0.1
#: After a failed write the next attempt waits, at first and at most, seconds.
RETRY_S_MIN = 0.25
RETRY_S_MAX = 30.0


class StateWriter:
    """Writes for one consumer. `due_at` is when deliveries not yet written must be (infinity: there are none)."""

    def __init__(
        self, consumer: "ConsumerCore", release: "Callable[[Iterable[int], Txn], None]", *, persistent: bool
    ) -> None:
        """`release(seqs, txn)` has the stream let go of acknowledged messages."""
        self._consumer = consumer
        self._release = release
        self._persistent = persistent
        self._acked: list[int] = []
        self._replies: list[bytes] = []
        self._urgent = False
        self._in_flight = False
        self._retry_s = RETRY_S_MIN
        self._not_before = 0.0
        self.due_at = float("inf")
        self.failures = 0

    def delivered(self, now: float) -> None:
        """Note a changed delivery state."""
        if self._persistent and self.due_at == float("inf"):
            self.due_at = now + DELIVERED_DELAY_S

    def acknowledged(self, seqs: Sequence[int], *, drop: bool) -> None:
        """Note a changed acknowledgement state; `drop`: the stream may remove `seqs`."""
        self._urgent = True
        if drop:
            self._acked.extend(seqs)

    def answer(self, reply: bytes) -> None:
        """Answer a double acknowledgement as soon as everything so far is on flash."""
        self._replies.append(reply)

    def flush(self, now: float) -> None:
        """Submit the changes at the end of a turn, unless a transaction is pending."""
        if self._in_flight or not self._pending(now):
            return
        if not self._persistent and not self._acked:
            self._urgent = False
            self._send_answers(self._take_replies())
            return
        if now < self._not_before:
            return
        self._submit(now)

    def _pending(self, now: float) -> bool:
        return self._urgent or bool(self._replies) or now >= self.due_at

    @property
    def next_deadline(self) -> float:
        """When `flush` should be called again even if nothing happens."""
        if self._in_flight:
            return float("inf")
        if self._urgent or self._replies:
            return self._not_before
        return max(self.due_at, self._not_before)

    def _submit(self, now: float) -> None:
        consumer = self._consumer
        stream = consumer.stream
        txn = stream.store.begin()
        acked, self._acked = self._acked, []
        replies = self._take_replies()
        if self._persistent:
            state = encode_state(consumer.state, now, consumer.clock.now_ns())
            stream.log.put_consumer_state(txn, consumer.name, state)
        if acked:
            self._release(acked, txn)
        self._urgent = False
        self.due_at = float("inf")
        self._in_flight = True
        stream.store.submit(txn, lambda error: self._done(error, acked, replies))

    def _done(self, error: StoreError | None, acked: list[int], replies: list[bytes]) -> None:
        self._in_flight = False
        consumer = self._consumer
        if error is None:
            self._retry_s = RETRY_S_MIN
            self._send_answers(replies)
        elif error.reason == "closed" or consumer.closed:
            return
        else:
            # No client is informed: the acknowledgements are in memory and will be written again.
            self.failures += 1
            log.warning("consumer %s: state was not written: %s", consumer.path, error)
            self._acked = acked + self._acked
            self._urgent = True
            self._replies = replies + self._replies
            self._not_before = consumer.clock.monotonic() + self._retry_s
            self._retry_s = min(self._retry_s * 2, RETRY_S_MAX)
        # Deliveries since then have no timer yet.
        if not consumer.closed and self.next_deadline != float("inf"):
            consumer.mark()

    def close(self, now: float) -> None:
        """Submit the last state when the daemon stops."""
        if self._persistent and (self._urgent or self._replies or self._acked or self.due_at != float("inf")):
            self._submit(now)

    def _take_replies(self) -> list[bytes]:
        replies, self._replies = self._replies, []
        return replies

    def _send_answers(self, replies: list[bytes]) -> None:
        publish = self._consumer.account.publish
        for reply in replies:
            publish(reply)
