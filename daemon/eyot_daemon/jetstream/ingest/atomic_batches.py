"""Atomic batch publishing (ADR-50): messages that are stored together or not at all.

The messages of a batch stay in memory until its commit message arrives; then the stream stores them in one transaction.
A batch that stays silent, skips a number, or grows too large is dropped with an advisory. The headers of a message in a
batch are checked in nats-server's order, which differs from that of single messages. `BatchBudget` limits the open batches
of the whole server, atomic and fast: a number of each kind, and bytes in memory.
"""

from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.ingest.headers import StreamFacts, Verdict, check_features, check_not_sourced, check_rollup
from eyot_daemon.jetstream.ingest.idle_batches import IdleBatches
from eyot_daemon.jetstream.ingest.schedules import check_schedule
from eyot_daemon.jetstream.nats_headers import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    INCREMENT,
    MSG_ID,
    REQUIRED_LEVEL,
    TTL,
    level_is_offered,
    parse_seq,
    parse_ttl,
)
from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.error_codes import (
    JSAtomicPublishContainsDuplicateMessageErr,
    JSAtomicPublishDisabledErr,
    JSAtomicPublishIncompleteBatchErr,
    JSAtomicPublishInvalidBatchCommitErr,
    JSAtomicPublishInvalidBatchIDErr,
    JSAtomicPublishMissingSeqErr,
    JSAtomicPublishTooLargeBatchErrF,
    JSAtomicPublishTooManyInflight,
    JSMessageIncrMissingErr,
    JSMessageTTLDisabledErr,
    JSMessageTTLInvalidErr,
    JSRequiredApiLevelErr,
    JSStreamExpectedLastSeqPerSubjectInvalid,
    JSStreamRollupFailedF,
    JSStreamWrongLastSequenceConstantErr,
    JSStreamWrongLastSequenceErrF,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.advisories import AbandonReason
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_wire.frames import Published

ATOMIC_MAX = 1000
FAST_MAX = 1000


class BatchBudget:
    """The budget of open batches; one object for the server, shared by its streams."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of messages of atomic batches, which wait in memory for their commit."""
        self.atomic = 0
        self.fast = 0
        self.bytes = 0
        self.bytes_max = bytes_max

    def begin(self) -> bool:
        """Count a new atomic batch; return False when the limit is reached."""
        if self.atomic >= ATOMIC_MAX:
            return False
        self.atomic += 1
        return True

    def hold(self, size: int) -> bool:
        """`size` more bytes wait in memory; False: there is no room for them."""
        if self.bytes + size > self.bytes_max:
            return False
        self.bytes += size
        return True

    def end(self, size: int) -> None:
        """Return the `size` bytes of a finished atomic batch to the budget."""
        self.atomic -= 1
        self.bytes -= size

    def begin_fast(self) -> bool:
        """Count a new fast batch; return False when the limit is reached."""
        if self.fast >= FAST_MAX:
            return False
        self.fast += 1
        return True

    def end_fast(self) -> None:
        self.fast -= 1


#: A message is in the stream already, or twice in its batch.
CONTAINS_DUPLICATE = JSAtomicPublishContainsDuplicateMessageErr


class BatchSoFar:
    """The messages of an atomic batch before this one: their subjects and ids (ADR-50).

    Also how full the stream would be with them if nothing were removed.
    """

    __slots__ = ("_bytes", "_messages", "msg_ids", "subjects")

    def __init__(self) -> None:
        self.subjects: set[bytes] = set()
        self.msg_ids: set[bytes] = set()
        self._messages = self._bytes = -1

    def with_one_more(self, messages: int, stored_bytes: int, size: int) -> tuple[int, int]:
        """Messages and bytes of the stream with another message; asked for each of them. The first says what was there before."""
        if self._messages < 0:
            self._messages, self._bytes = messages, stored_bytes
        self._messages += 1
        self._bytes += size
        return self._messages, self._bytes

    def touches(self, subject_filter: bytes) -> bool:
        """Return whether one of them is on a subject that the filter matches."""
        return subject_filter in self.subjects or any(matches(subject_filter, subject) for subject in self.subjects)


def check_in_batch(
    fields: dict[bytes, bytes], subject: bytes, facts: StreamFacts, payload: bytes, so_far: BatchSoFar
) -> Verdict:
    """Go through the headers of a message for `subject`, `so_far` being what the messages before it in the batch store.

    `Nats-Expected-Last-Msg-Id`, which atomic batches cannot have, is checked before.
    """
    refused = check_features(fields, facts.config, payload) or _check_ttl(fields, allowed=facts.config.allow_msg_ttl)
    if refused is not None:
        return Verdict(refused)
    msg_id = fields.get(MSG_ID, b"")
    if msg_id:
        duplicate = facts.duplicate_of(msg_id)
        if duplicate or msg_id in so_far.msg_ids:
            return Verdict(error(CONTAINS_DUPLICATE), duplicate=duplicate)
    refused = check_not_sourced(fields)
    if refused is not None:
        return Verdict(refused)
    if facts.config.allow_msg_counter and not fields.get(INCREMENT):
        return Verdict(error(JSMessageIncrMissingErr))
    refused = _check_expected(fields, subject, facts, so_far) or check_schedule(fields, subject, facts)
    if refused is not None:
        return Verdict(refused)
    verdict = check_rollup(fields, facts, msg_id)
    rollup = verdict.rollup
    if rollup and (subject in so_far.subjects if rollup == b"sub" else so_far.subjects):
        return Verdict(error(JSStreamRollupFailedF, err=f"batch rollup {rollup.decode()} invalid"))
    return verdict


def _check_ttl(fields: dict[bytes, bytes], *, allowed: bool) -> ApiError | None:
    try:
        if fields.get(TTL):
            parse_ttl(fields[TTL])
    except ValueError:
        return error(JSMessageTTLInvalidErr if allowed else JSMessageTTLDisabledErr)
    return None


def _check_expected(
    fields: dict[bytes, bytes], subject: bytes, facts: StreamFacts, so_far: BatchSoFar
) -> ApiError | None:
    expected = fields.get(EXPECTED_LAST_SEQ)
    if expected:
        if parse_seq(expected) != facts.last_seq:
            return error(JSStreamWrongLastSequenceErrF, seq=facts.last_seq)
        if so_far.subjects:
            return error(JSStreamWrongLastSequenceConstantErr)
    expected = fields.get(EXPECTED_LAST_SUBJECT_SEQ)
    filter_subject = fields.get(EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected:
        if so_far.touches(filter_subject or subject):
            return error(JSStreamWrongLastSequenceConstantErr)
        actual = facts.last_seq_for(filter_subject or subject)
        if parse_seq(expected) != actual:
            return error(JSStreamWrongLastSequenceErrF, seq=actual)
    elif filter_subject:
        return error(JSStreamExpectedLastSeqPerSubjectInvalid)
    return None


MESSAGES_MAX = 1000
ID_LENGTH_MAX = 64
#: Batches that one stream holds at a time; `BatchBudget` has the server's bounds.
OPEN_MAX = 50


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
        self._idle = IdleBatches(stream, self._open, lambda batch_id: self._drop(batch_id, "timeout"))

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
            self._idle.heard(batch)
            return HELD
        self._close(batch_id)
        return Commit(batch_id, batch.messages, message.reply)

    def drop_all(self) -> None:
        """Drop all batches: the stream stops, or no longer accepts batches."""
        for batch_id in list(self._open):
            self._close(batch_id)
        self._idle.stop()

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


#: A header block without these bytes is not of a batch; it need not be parsed.
MARK = b"\r\n" + BATCH_ID + b":"
