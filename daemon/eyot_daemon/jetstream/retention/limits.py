"""A stream's own limits: refusal when it is full (discard new), removal to make room (discard old), and age.

Counts and bytes are those of the log, staged messages included. A message's age is wall time minus its stored time, which is
corrected by jumps of the clock.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.retention.purging import PURGE_SLICE
from eyot_daemon.jetstream.wall_clock import ClockCredits
from eyot_store.subjects.eviction import remove_oldest
from eyot_wire.jetstream.error_codes import JSStreamStoreFailedF
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import StreamConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.messages.batch_headers import BatchSoFar
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn


#: Messages that go in one transaction because the stream's limits were lowered.
ENFORCED_MAX = 4096


def refusal(config: StreamConfig, log: "Log", subject: bytes, size: int, *, rollup: bool = False) -> ApiError | None:
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
    config: StreamConfig, log: "Log", subject: bytes, size: int, so_far: "BatchSoFar", *, rollup: bool
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


def _makes_room(config: StreamConfig, log: "Log", subject: bytes, size: int) -> bool:
    """Return whether the message that a new one on `subject` replaces frees enough bytes for it."""
    oldest = log.get(log.first_seq_for(subject))
    if oldest is None:
        return False
    freed = log.message_bytes(oldest.subject, oldest.header, oldest.payload)
    return log.state.bytes + size - freed <= config.max_bytes


def enforce(
    config: StreamConfig, log: "Log", txn: "Txn", subjects: Collection[bytes], overdue: set[bytes] | None = None
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
        while log.state.messages > config.max_msgs and len(gone) < most:
            _remove(log, txn, log.state.first_seq, gone, "max_msgs")
    if config.max_bytes > 0:
        while log.state.bytes > config.max_bytes and log.state.messages and len(gone) < most:
            _remove(log, txn, log.state.first_seq, gone, "max_bytes")
    return gone


def exceeded(config: StreamConfig, log: "Log") -> bool:
    """Return whether the stream is over limits that older messages make room for: there is more to enforce."""
    state = log.state
    if config.discard == "new":
        return False
    return 0 < config.max_msgs < state.messages or (0 < config.max_bytes < state.bytes and state.messages > 0)


def _remove(log: "Log", txn: "Txn", seq: int, gone: list[int], why: str) -> None:
    if not log.remove(txn, seq, why):
        raise RuntimeError(f"{log!r}: sequence {seq} is counted but cannot be removed")
    gone.append(seq)


def expire(log: "Log", txn: "Txn", horizon_ns: int, credits: ClockCredits) -> tuple[int, bool]:
    """Stage the removal of expired messages, at most a slice; return how many, and whether there are more.

    Expired are committed messages stored at or before `horizon_ns`, with their times corrected for jumps of the clock
    (`credits`).
    """
    first = below = log.state.first_seq
    for last_seq, credit_ns in credits.segments(first, log.committed_seq):
        below = log.seq_at_time(horizon_ns - credit_ns + 1, from_seq=below, up_to=last_seq)
        if below <= last_seq:
            break
    if below <= first:
        return 0, False
    more = first + PURGE_SLICE < below <= log.committed_seq
    return log.purge(txn, below_seq=first + PURGE_SLICE if more else below, why="max_age"), more
