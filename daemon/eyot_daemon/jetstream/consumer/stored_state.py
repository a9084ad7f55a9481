"""The stored form of a consumer's state, and when it is written: many acknowledgements, few writes.

The form is one MessagePack array, compact enough to be written at every commit.

    [1, saved_ns, delivered_cseq, delivered_sseq, pending, queue, redelivered]

`saved_ns`     wall time of the writing, ns since the epoch.
`pending`      flat list of runs of four: messages with consecutive stream and consumer sequences that wait equally long
               [distance of the first sseq from the end of the run before, its cseq, number, remaining wait in ms].
`queue`        the redelivery queue in order: each stream sequence as distance from the one before (may be negative).
`redelivered`  flat pairs [distance of sseq from the one before, deliveries], ascending.

A batch that was delivered together is one run, so a consumer with a thousand pending messages usually needs a few
dozen bytes. When the record is read, the time that has passed since `saved_ns` is taken off the remaining waits, but
never more than they are and never less than nothing: a wall clock that jumped can make a redelivery early or late by
one wait, not lose it.

At the end of a turn the whole state is staged as one record in one transaction, together with the messages that the
stream removes because of acknowledgements. While that transaction is pending nothing more is submitted: what gathers
meanwhile goes with the next one, so the disk sets the pace. Answers to double acknowledgements wait for the transaction
with their acknowledgement.

Deliveries alone are no promise: they are written along with acknowledgements, or `DELIVERED_DELAY_S` later. After a
crash within that time, messages are delivered again as if for the first time.

Consumers in memory (`mem_storage`, `direct`) write nothing; they still wait for the removal of messages.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.consumer.state import QUEUED, AckRules, ConsumerState
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

VERSION = 1

_Record = tuple[int, int, int, int, list[int], list[int], list[int]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


class StateFormatError(ValueError):
    """A stored consumer state that this release cannot read."""


def encode_state(state: ConsumerState, now: float, now_ns: int) -> bytes:
    """Return the record of `state`; `now` in monotonic seconds, `now_ns` in wall nanoseconds, both of this moment."""
    return _encoder.encode(
        (
            VERSION,
            now_ns,
            state.delivered_cseq,
            state.delivered_sseq,
            _pending_runs(state, now),
            _distances(state.queue_order()),
            _redelivered_pairs(state.redelivered),
        )
    )


def decode_state(data: bytes, rules: AckRules, now: float, now_ns: int) -> ConsumerState:
    """Return the state of a record, its waits reduced by the wall time since it was written. Raises StateFormatError."""
    try:
        version, saved_ns, delivered_cseq, delivered_sseq, runs, queue, redelivered = _decoder.decode(data)
    except msgspec.DecodeError as err:
        raise StateFormatError(f"consumer state is not readable: {err}") from err
    if version != VERSION:
        raise StateFormatError(f"consumer state has format {version}, this release reads {VERSION}")
    if len(runs) % 4 or len(redelivered) % 2:
        raise StateFormatError("consumer state is cut short")
    passed_s = max(0, now_ns - saved_ns) / 1e9
    state = ConsumerState(rules)
    state.restore(
        (delivered_cseq, delivered_sseq),
        _pending_of(runs, passed_s) if rules.policy != "none" else [],
        _sums(queue),
        _redelivered_of(redelivered),
        now,
    )
    return state


def _pending_runs(state: ConsumerState, now: float) -> list[int]:
    runs: list[int] = []
    end_sseq = 0
    next_cseq = -1
    run_due = math.nan
    for sseq, (cseq, due) in state.pending.items():
        if sseq == end_sseq and cseq == next_cseq and due == run_due:
            runs[-2] += 1
        else:
            remaining_ms = 0 if due == QUEUED else max(0, math.ceil((due - now) * 1000))
            runs += (sseq - end_sseq, cseq, 1, remaining_ms)
            run_due = due
        end_sseq = sseq + 1
        next_cseq = cseq + 1
    return runs


def _pending_of(runs: list[int], passed_s: float) -> list[tuple[int, int, float]]:
    pending: list[tuple[int, int, float]] = []
    end_sseq = 0
    for at in range(0, len(runs), 4):
        distance, cseq, number, remaining_ms = runs[at : at + 4]
        first = end_sseq + distance
        end_sseq = first + number
        remaining_s = max(0.0, remaining_ms / 1000 - passed_s)
        pending.extend((first + i, cseq + i, remaining_s) for i in range(number))
    return pending


def _redelivered_pairs(redelivered: dict[int, int]) -> list[int]:
    pairs: list[int] = []
    before = 0
    for sseq in sorted(redelivered):
        pairs += (sseq - before, redelivered[sseq])
        before = sseq
    return pairs


def _redelivered_of(pairs: list[int]) -> dict[int, int]:
    return dict(zip(_sums(pairs[::2]), pairs[1::2], strict=True))


def _distances(seqs: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *seqs])]


def _sums(distances: list[int]) -> list[int]:
    seqs: list[int] = []
    at = 0
    for distance in distances:
        at += distance
        seqs.append(at)
    return seqs


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
        self._waiting: list[Callable[[], None]] = []
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

    def when_written(self, step: "Callable[[], None]") -> None:
        """Call `step` as soon as everything so far is on flash; never, if the consumer ends before."""
        self._waiting.append(step)

    def flush(self, now: float) -> None:
        """Submit the changes at the end of a turn, unless a transaction is pending."""
        if self._in_flight or not self._pending(now):
            return
        if not self._persistent and not self._releases:
            self._urgent = False
            self._send_answers(self._take_replies())
            self._run(self._take_waiting())
            return
        if now < self._not_before:
            return
        self._submit(now)

    def _pending(self, now: float) -> bool:
        return self._urgent or bool(self._replies) or bool(self._waiting) or now >= self.due_at

    @property
    def _releases(self) -> bool:
        """Return whether the stream may let go of messages: acknowledged ones, or damaged ones that the consumer is past."""
        stream = self._consumer.stream
        return bool(self._acked) or (stream.config.retention != "limits" and len(stream.log.damaged) > 0)

    @property
    def next_deadline(self) -> float:
        """When `flush` should be called again even if nothing happens."""
        if self._in_flight:
            return float("inf")
        if self._urgent or self._replies or self._waiting:
            return self._not_before
        return max(self.due_at, self._not_before)

    def _submit(self, now: float) -> None:
        consumer = self._consumer
        stream = consumer.stream
        txn = stream.store.begin()
        releases = self._releases
        acked, self._acked = self._acked, []
        replies, waiting = self._take_replies(), self._take_waiting()
        if self._persistent:
            state = encode_state(consumer.state, now, consumer.clock.now_ns())
            stream.log.put_consumer_state(txn, consumer.name, state)
        if releases:
            self._release(acked, txn)
        self._urgent = False
        self.due_at = float("inf")
        self._in_flight = True
        stream.store.submit(txn, lambda error: self._done(error, acked, replies, waiting))

    def _done(
        self, error: StoreError | None, acked: list[int], replies: list[bytes], waiting: "list[Callable[[], None]]"
    ) -> None:
        self._in_flight = False
        consumer = self._consumer
        if error is None:
            self._retry_s = RETRY_S_MIN
            self._send_answers(replies)
            self._run(waiting)
        elif error.reason == "closed" or consumer.closed:
            return
        else:
            # No client is informed: the acknowledgements are in memory and will be written again.
            self.failures += 1
            log.warning("consumer %s: state was not written: %s", consumer.path, error)
            self._acked = acked + self._acked
            self._urgent = True
            self._replies = replies + self._replies
            self._waiting = waiting + self._waiting
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

    def _take_waiting(self) -> "list[Callable[[], None]]":
        waiting, self._waiting = self._waiting, []
        return waiting

    @staticmethod
    def _run(steps: "list[Callable[[], None]]") -> None:
        for step in steps:
            step()

    def _send_answers(self, replies: list[bytes]) -> None:
        publish = self._consumer.account.publish
        for reply in replies:
            publish(reply)
