"""Atomic batch publishing (ADR-50): messages that are stored together or not at all.

The messages of a batch stay in memory until its commit message arrives; then the stream stores them in one transaction.
A batch that stays silent, skips a number, or grows too large is dropped with an advisory.
"""

from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.messages.batch_budget import BatchBudget
from eyot_daemon.jetstream.messages.headers import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    REQUIRED_LEVEL,
    level_is_offered,
)
from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.error_codes import (
    JSAtomicPublishDisabledErr,
    JSAtomicPublishIncompleteBatchErr,
    JSAtomicPublishInvalidBatchCommitErr,
    JSAtomicPublishInvalidBatchIDErr,
    JSAtomicPublishMissingSeqErr,
    JSAtomicPublishTooLargeBatchErrF,
    JSAtomicPublishTooManyInflight,
    JSRequiredApiLevelErr,
)
from eyot_wire.jetstream.errors import ApiError, error

if TYPE_CHECKING:
    from eyot_daemon.jetstream.advisories import AbandonReason
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_wire.frames import Published

MESSAGES_MAX = 1000
ID_LENGTH_MAX = 64
#: Batches that one stream holds at a time; the server's bounds are in `batch_budget.py`.
OPEN_MAX = 50
#: How long a batch may be silent.
IDLE_S_MAX = 10.0


class Commit(NamedTuple):
    """A complete batch, to be stored now. `reply` receives the PubAck."""

    id: bytes
    messages: "list[Published]"
    reply: bytes


class Held(NamedTuple):
    """The message is held until its batch is complete; the publisher gets an empty answer."""


HELD = Held()


class _OpenBatch:
    __slots__ = ("heard_at", "messages", "size")

    def __init__(self) -> None:
        self.messages: list[Published] = []
        self.size = 0
        self.heard_at = 0.0


class AtomicBatches:
    """The open batches of one stream."""

    def __init__(self, stream: "StreamCore", budget: BatchBudget) -> None:
        self._stream = stream
        self._budget = budget
        self._open: dict[bytes, _OpenBatch] = {}
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def take(
        self, message: "Published", fields: dict[bytes, bytes], unfit: ApiError | None
    ) -> Commit | Held | ApiError:
        """Return the next message of a batch: `fields` are its `Nats-` headers, `Nats-Batch-Id` among them.

        `unfit`: why the stream refuses the message in any batch; None: it does not.
        """
        batch_id = fields[BATCH_ID]
        refused = unfit or self._refused(batch_id, fields.get(BATCH_SEQUENCE, b""))
        if refused is not None:
            return refused
        seq, commit = int(fields[BATCH_SEQUENCE]), fields.get(BATCH_COMMIT)
        # The end of a batch before its first message is too large as well.
        too_large = not 0 <= seq - (commit == b"eob") <= MESSAGES_MAX
        batch = self._open.get(batch_id)
        if batch is None:
            if seq != 1:
                return (
                    error(JSAtomicPublishTooLargeBatchErrF, size=MESSAGES_MAX)
                    if too_large
                    else error(JSAtomicPublishIncompleteBatchErr)
                )
            if len(self._open) >= OPEN_MAX or not self._budget.begin():
                return error(JSAtomicPublishTooManyInflight)
            batch = self._open[batch_id] = _OpenBatch()
        if commit is not None and commit not in (b"1", b"eob"):
            self._close(batch_id)
            return error(JSAtomicPublishInvalidBatchCommitErr)
        if not level_is_offered(message.header):
            self._drop(batch_id, "unsupported")
            return error(JSRequiredApiLevelErr)
        if seq != len(batch.messages) + 1 or (seq == 1 and commit == b"eob"):
            self._drop(batch_id, "incomplete")
            return error(JSAtomicPublishIncompleteBatchErr)
        if too_large:
            self._drop(batch_id, "large")
            return error(JSAtomicPublishTooLargeBatchErrF, size=MESSAGES_MAX)
        return self._add(batch_id, batch, message, commit)

    def _refused(self, batch_id: bytes, number: bytes) -> ApiError | None:
        """Return the error of a message that is refused before its batch is looked up; None: it is not."""
        if not self._stream.config.allow_atomic:
            return error(JSAtomicPublishDisabledErr)
        if len(batch_id) > ID_LENGTH_MAX:
            return error(JSAtomicPublishInvalidBatchIDErr)
        if parse_uint(number) is None:
            return error(JSAtomicPublishMissingSeqErr)
        return None

    def _add(
        self, batch_id: bytes, batch: _OpenBatch, message: "Published", commit: bytes | None
    ) -> Commit | Held | ApiError:
        message = message._replace(header=headers.remove(message.header, REQUIRED_LEVEL))
        if commit == b"eob":
            # This message only ends the batch: the message before it was the last.
            last = batch.messages[-1]
            batch.messages[-1] = last._replace(header=headers.add_field(last.header, BATCH_COMMIT, b"1"))
        else:
            size = len(message.subject) + len(message.header) + len(message.payload)
            if not self._budget.hold(size):
                self._drop(batch_id, "large")
                return error(JSAtomicPublishTooManyInflight)
            batch.size += size
            batch.messages.append(message._replace(reply=b""))
        if commit is None:
            batch.heard_at = self._stream.clock.monotonic()
            self._set_timer()
            return HELD
        self._close(batch_id)
        return Commit(batch_id, batch.messages, message.reply)

    def drop_all(self) -> None:
        """Drop all batches: the stream stops, or no longer accepts batches."""
        for batch_id in list(self._open):
            self._close(batch_id)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _drop(self, batch_id: bytes, reason: "AbandonReason") -> None:
        """Forget a batch and say so."""
        if self._close(batch_id):
            stream = self._stream
            advisories.batch_abandoned(stream.account, stream.name, batch_id, reason)

    def _close(self, batch_id: bytes) -> bool:
        batch = self._open.pop(batch_id, None)
        if batch is None:
            return False
        self._budget.end(batch.size)
        return True

    def _set_timer(self) -> None:
        if self._timer is None or not self._timer.active:
            oldest = min(batch.heard_at for batch in self._open.values())
            self._timer = self._stream.timers.call_at(oldest + IDLE_S_MAX, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self._stream.clock.monotonic()
        for batch_id, batch in list(self._open.items()):
            if now - batch.heard_at >= IDLE_S_MAX:
                self._drop(batch_id, "timeout")
        if self._open:
            self._set_timer()


#: A header block without these bytes is not of a batch; it need not be parsed.
MARK = b"\r\n" + BATCH_ID + b":"
