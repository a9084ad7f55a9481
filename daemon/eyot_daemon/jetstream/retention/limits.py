"""A stream's own limits: refusal when it is full (discard new), removal to make room (discard old), age, and purges.

Counts and bytes are those of the log, staged messages included. A message's age is wall time minus its stored time, which is
corrected by jumps of the clock.

A long purge is one slice per transaction, the next when that is on flash, so that other work continues. A slice reads the
messages that it removes, because byte counts and subjects change. A purge that the store does at once, or a small one, is
one transaction. Messages published meanwhile are never affected: the purge's end is fixed at its start.

`MemoryBound` limits streams in memory where none is configured: three quarters of the machine's memory, as in nats-server.
A control group of the daemon (systemd's `MemoryMax=`) bounds the machine's memory. The overhead of a message in this
process counts, too: it is most of a small message. Adding up all streams for every message would be slow: a part of the
room is handed out before the streams are added up again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from eyot_daemon.jetstream.stream_core import Batch
from eyot_daemon.jetstream.wall_clock import ClockCredits
from eyot_store.errors import StoreError
from eyot_store.subjects.eviction import remove_oldest
from eyot_wire.jetstream.error_codes import JSStreamStoreFailedF
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import StreamConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.atomic_batches import BatchSoFar
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log
    from eyot_store.log.removals import FromEnd
    from eyot_store.txn import Txn

#: Overhead of a message in memory beside subject, header and payload, bytes.
MESSAGE_OVERHEAD: Final = 640


class MemoryBound:
    """`bytes_max`: limit in bytes; below 0: none. `taken` counts the bytes used; it is called when the last allowance is used up."""

    def __init__(self, bytes_max: int, taken: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._taken = taken
        self._handed_out = 0

    def has_room(self, size: int, messages: int) -> bool:
        """Return whether `size` bytes in `messages` messages may be stored, and count them as stored."""
        if self.bytes_max < 0:
            return True
        size += messages * MESSAGE_OVERHEAD
        if size > self._handed_out:
            room = self.bytes_max - self._taken()
            if room < size:
                return False
            self._handed_out = max(room // 16, size)
        self._handed_out -= size
        return True


#: Messages that one transaction reads (a few milliseconds).
PURGE_SLICE = 1024

Done = Callable[[int, StoreError | None], None]


def is_long(log: Log, below_seq: int, subject_filter: bytes, keep: int) -> bool:
    """Return whether a purge has to read more than a slice of messages."""
    state = log.state
    if state.messages <= PURGE_SLICE:
        return False
    if subject_filter not in (b"", b">"):
        return True
    if keep:
        return PURGE_SLICE < keep < state.messages - PURGE_SLICE
    return bool(below_seq) and state.first_seq + PURGE_SLICE < below_seq < state.last_seq - PURGE_SLICE


class Purge:
    """One long purge under way; `done(removed, error)` at its end."""

    def __init__(self, stream: StreamCore, below_seq: int, subject_filter: bytes, keep: int, done: Done) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._filter = b"" if subject_filter == b">" else subject_filter
        self._done = done
        self._removed = 0
        self._last = 0
        self._seeking: FromEnd | None = None  # where the purge is to end
        state = self._log.state
        self._next = max(state.first_seq, 1)
        self._left = state.messages
        if self._filter:
            self._left = max(self._log.subject_total(self._filter) - keep, 0)
            self._last = min(below_seq - 1, state.last_seq) if below_seq else state.last_seq
        elif keep:
            self._seeking = self._log.from_end(keep)
        else:
            self._last = below_seq - 1

    def run(self, failure: StoreError | None = None) -> None:
        """Take away the next slice."""
        if self._seeking is not None and failure is None and self._stream.live:
            try:
                if not self._seeking.step():
                    self._stream.timers.call_at(self._stream.clock.monotonic(), self.run)
                    return
            except StoreError as error:
                failure = error
            self._last, self._seeking = self._seeking.seq - 1, None
        if failure is None and self._next <= self._last and self._left > 0 and self._stream.live:
            try:
                self._slice()
                return
            except StoreError as error:
                failure = error
        self._done(self._removed, failure)

    def _slice(self) -> None:
        batch = Batch()
        with self._stream.staging() as txn:
            if self._filter:
                gone, self._next = self._log.purge_some(txn, self._next, self._last, self._filter, self._left)
            else:
                end = min(self._last, self._log.state.first_seq + PURGE_SLICE)
                gone = self._log.purge(txn, below_seq=end + 1)
                self._next = end + 1
        self._removed += gone
        self._left -= gone
        if not txn.parts:
            # Nothing to write: continue in another turn.
            self._stream.store.abort(txn)
            self._stream.timers.call_at(self._stream.clock.monotonic(), self.run)
            return
        batch.purged, batch.singly = True, False
        batch.then.append(self.run)
        self._stream.submit(txn, batch)


#: Messages that go in one transaction because the stream's limits were lowered: 1,024 take 5 to 10 ms, and others wait meanwhile.
ENFORCED_MAX = 1024


def refusal(config: StreamConfig, log: Log, subject: bytes, size: int, *, rollup: bool = False) -> ApiError | None:
    """Return why a stream that discards new messages refuses one of `size` counted bytes; None: it does not.

    A message that will replace an older one of its subject (max_msgs_per_subject, a rollup) does not make the stream longer.
    """
    replaces = False
    if 0 < config.max_msgs_per_subject <= log.subject_count(subject):
        if config.discard_new_per_subject and not rollup:
            return error(JSStreamStoreFailedF, err="maximum messages per subject exceeded")
        replaces = True
    if 0 < config.max_msgs <= log.state.messages and not replaces:
        return error(JSStreamStoreFailedF, err="maximum messages exceeded")
    if 0 < config.max_bytes < log.state.bytes + size and not (replaces and _makes_room(config, log, subject, size)):
        return error(JSStreamStoreFailedF, err="maximum bytes exceeded")
    return None


def refusal_in_batch(
    config: StreamConfig, log: Log, subject: bytes, size: int, so_far: BatchSoFar, *, rollup: bool
) -> ApiError | None:
    """Return why a message of a batch is refused; None: it is not. All messages of the batch count, also those that replace others."""
    messages, stored_bytes = so_far.with_one_more(log.state.messages, log.state.bytes, size)
    if 0 < config.max_msgs < messages:
        return error(JSStreamStoreFailedF, err="maximum messages exceeded")
    if 0 < config.max_bytes < stored_bytes:
        return error(JSStreamStoreFailedF, err="maximum bytes exceeded")
    if config.discard_new_per_subject and not rollup and 0 < config.max_msgs_per_subject <= log.subject_count(subject):
        return error(JSStreamStoreFailedF, err="maximum messages per subject exceeded")
    return None


def _makes_room(config: StreamConfig, log: Log, subject: bytes, size: int) -> bool:
    """Return whether the message that a new one on `subject` replaces frees enough bytes for it.

    One that is not larger takes its place in a stream that holds more than a lowered limit allows, too.
    """
    try:
        oldest = log.get(log.first_seq_for(subject))
    except StoreError as failure:
        freed = failure.size
    else:
        if oldest is None:
            return False
        freed = log.message_bytes(oldest.subject, oldest.header, oldest.payload)
    return size <= freed or log.state.bytes + size - freed <= config.max_bytes


def enforce(
    config: StreamConfig, log: Log, txn: Txn, subjects: Collection[bytes], overdue: set[bytes] | None = None
) -> list[int]:
    """Stage the removal of messages over the limits after messages on `subjects` were staged; return the removed sequences, in order.

    A stream that discards new messages keeps its messages when its limits are lowered below them. At most ENFORCED_MAX
    messages are removed at a time, besides one for each staged message: lowered limits come into force slice by slice.
    `overdue` receives the subjects that are postponed, and those whose oldest message is slow to find.
    """
    gone: list[int] = []
    most = ENFORCED_MAX + log.state.last_seq - log.committed_seq
    if config.max_msgs_per_subject > 0 and subjects:
        gone += remove_oldest(log, txn, subjects, config.max_msgs_per_subject, most, overdue)
    if config.discard == "new":
        return gone
    if config.max_msgs > 0:
        while (excess := log.state.messages - config.max_msgs) > 0 and len(gone) < most:
            gone += _remove_first(log, txn, min(excess, most - len(gone)), "max_msgs")
    if config.max_bytes > 0:
        while (excess := log.state.bytes - config.max_bytes) > 0 and log.state.messages and len(gone) < most:
            expected = 1 + excess * log.state.messages // log.state.bytes
            gone += _remove_first(log, txn, min(expected, most - len(gone)), "max_bytes", excess)
    return gone


def exceeded(config: StreamConfig, log: Log) -> bool:
    """Return whether the stream is over limits that older messages make room for: there is more to enforce."""
    state = log.state
    if config.discard == "new":
        return False
    return 0 < config.max_msgs < state.messages or (0 < config.max_bytes < state.bytes and state.messages > 0)


def _remove_first(log: Log, txn: Txn, at_most: int, why: str, excess_bytes: int = 0) -> list[int]:
    gone = log.remove_first(txn, at_most, why, excess_bytes)
    if not gone:
        raise RuntimeError(f"{log!r}: sequence {log.state.first_seq} is counted but cannot be removed")
    return gone


def expire(log: Log, txn: Txn, horizon_ns: int, credits: ClockCredits) -> tuple[int, bool]:
    """Stage the removal of expired messages, at most a slice; return how many, and whether there are more.

    Expired are committed messages stored at or before `horizon_ns`, with their times corrected for jumps of the clock
    (`credits`). A message that cannot be read has expired when the next one that can be read has.
    """
    first = below = log.state.first_seq
    for last_seq, credit_ns in credits.segments(first, log.committed_seq):
        below = log.seq_at_time(horizon_ns - credit_ns + 1, from_seq=below, up_to=last_seq)
        if below <= last_seq:
            if oldest_ns(log, below, credits) > horizon_ns:
                break
            below = last_seq + 1
    if below <= first:
        return 0, False
    more = first + PURGE_SLICE < below <= log.committed_seq
    return log.purge(txn, below_seq=first + PURGE_SLICE if more else below, why="max_age"), more


def oldest_ns(log: Log, seq: int, credits: ClockCredits) -> int:
    """Return the corrected time of the first message at or after `seq` that can be read; without one, of the last that was stored."""
    message = log.readable(seq)
    at, ts_ns = (log.state.last_seq, log.state.last_ts_ns) if message is None else (message.seq, message.ts_ns)
    return ts_ns + credits.of(at)
