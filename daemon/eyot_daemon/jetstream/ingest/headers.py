"""The `Nats-` headers by which a publisher controls how a stream stores a message, and their checks.

`check` evaluates them in nats-server 2.15's order and returns the verdict: store the message, it is a duplicate, or the
error that refuses it. `StreamFacts` supplies the facts about the stream.
Source: ADR-1, ADR-22, ADR-43 and their order as observed.
"""

import re
from typing import Protocol

from eyot_daemon.jetstream.ingest.schedules import SCHEDULE, check_schedule
from eyot_daemon.jetstream.nats_headers import (
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    EXPECTED_STREAM,
    INCREMENT,
    MSG_ID,
    ROLLUP,
    TTL,
    has_ttl,
    parse_seq,
)
from eyot_wire.jetstream import stream_source
from eyot_wire.jetstream.error_codes import (
    JSMessageIncrDisabledErr,
    JSMessageIncrInvalidErr,
    JSMessageIncrPayloadErr,
    JSMessageSourceHdrNotAllowedErr,
    JSMessageTTLDisabledErr,
    JSStreamExpectedLastSeqPerSubjectInvalid,
    JSStreamNotMatchErr,
    JSStreamRollupFailedF,
    JSStreamWrongLastMsgIDErrF,
    JSStreamWrongLastSequenceErrF,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import StreamConfig
from eyot_wire.quoting import quoted

HEADER_BYTES_MAX = 65_535
#: What a message that adds to a counter must not ask for (ADR-49).
_NOT_WITH_COUNTERS = (
    ROLLUP,
    EXPECTED_STREAM,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    EXPECTED_LAST_MSG_ID,
)
# Short enough that no sum of such numbers reaches the length that Python refuses to write (4,300 digits).
_INCREMENT = re.compile(rb"[+-]?[0-9]{1,4000}")


class StreamFacts(Protocol):
    """Facts of a stream for the checks; staged messages count everywhere."""

    @property
    def config(self) -> StreamConfig: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def now_ns(self) -> int:
        """The time that the message is stored with."""
        ...

    def last_msg_id(self) -> bytes:
        """`Nats-Msg-Id` of the newest message, b"" when it had none."""
        ...

    def last_seq_for(self, subject_filter: bytes) -> int: ...

    def ends_with_schedule(self, subject: bytes) -> bool:
        """Return whether the last message on `subject` is a schedule, or there is none."""
        ...

    def duplicate_of(self, msg_id: bytes) -> int:
        """Return the sequence of a message with this id within the window; 0: none."""
        ...


class Verdict:
    """The verdict on a message: `error` (refused), `duplicate` (its sequence), or it is stored.

    `rollup`: b"sub", b"all" or b"".
    """

    __slots__ = ("duplicate", "error", "msg_id", "rollup")

    def __init__(
        self, error: ApiError | None = None, duplicate: int = 0, msg_id: bytes = b"", rollup: bytes = b""
    ) -> None:
        self.error = error
        self.duplicate = duplicate
        self.msg_id = msg_id
        self.rollup = rollup


STORE = Verdict()


def check(
    fields: dict[bytes, bytes],
    subject: bytes,
    facts: StreamFacts,
    payload: bytes = b"",
    *,
    scheduled: bool = False,
) -> Verdict:
    """Return the verdict on the headers of a message for `subject`.

    Size, limits and interest are checked elsewhere, afterwards. `scheduled`: the stream's own schedule made the
    message. Messages of atomic batches: `atomic_batches.check_in_batch`.
    """
    if not fields:
        return STORE
    refused = (
        check_features(fields, facts.config, payload)
        or _check_expected(fields, subject, facts)
        or check_schedule(fields, subject, facts, scheduled=scheduled)
        or check_not_sourced(fields)
    )
    if refused is not None:
        return Verdict(refused)
    msg_id = fields.get(MSG_ID, b"")
    if msg_id:
        duplicate = facts.duplicate_of(msg_id)
        if duplicate:
            return Verdict(duplicate=duplicate)
    expected_id = fields.get(EXPECTED_LAST_MSG_ID)
    if expected_id:
        last_id = facts.last_msg_id()
        if last_id != expected_id:
            return Verdict(error(JSStreamWrongLastMsgIDErrF, id=last_id.decode("utf-8", "replace")))
    return check_rollup(fields, facts, msg_id)


def check_rollup(fields: dict[bytes, bytes], facts: StreamFacts, msg_id: bytes) -> Verdict:
    """Return whether the message may take the place of others; the last check of the headers."""
    rollup = fields.get(ROLLUP, b"").lower()
    if fields.get(SCHEDULE):
        rollup = b"sub"  # a new schedule replaces the subject's last one
    if rollup:
        if not facts.config.allow_rollup_hdrs or facts.config.deny_purge:
            return Verdict(error(JSStreamRollupFailedF, err="rollup not permitted"))
        if rollup not in (b"sub", b"all"):
            return Verdict(error(JSStreamRollupFailedF, err=f"rollup value invalid: {quoted(rollup)}"))
    return Verdict(msg_id=msg_id, rollup=rollup)


def check_not_sourced(fields: dict[bytes, bytes]) -> ApiError | None:
    """Refuse a published message that says which message of an origin it is: mirrors and sources resume from that."""
    return error(JSMessageSourceHdrNotAllowedErr) if fields.get(stream_source.HEADER) else None


def check_features(fields: dict[bytes, bytes], config: StreamConfig, payload: bytes) -> ApiError | None:
    """Headers of features that the stream has to allow."""
    if fields.get(INCREMENT):
        if not _INCREMENT.fullmatch(fields[INCREMENT]):
            return error(JSMessageIncrInvalidErr)
        if not config.allow_msg_counter:
            return error(JSMessageIncrDisabledErr)
        if payload:
            return error(JSMessageIncrPayloadErr)
        if any(fields.get(name) for name in _NOT_WITH_COUNTERS):
            return error(JSMessageIncrInvalidErr)
    expected_stream = fields.get(EXPECTED_STREAM)
    if expected_stream and expected_stream != config.name.encode():
        return error(JSStreamNotMatchErr)
    if fields.get(TTL) and not config.allow_msg_ttl and has_ttl(fields[TTL]):
        return error(JSMessageTTLDisabledErr)
    return None


def _check_expected(fields: dict[bytes, bytes], subject: bytes, facts: StreamFacts) -> ApiError | None:
    """Compare the last sequences that the publisher expects with the stream's; return the error if they differ."""
    expected = fields.get(EXPECTED_LAST_SUBJECT_SEQ)
    filter_subject = fields.get(EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected:
        actual = facts.last_seq_for(filter_subject or subject)
        if parse_seq(expected) != actual:
            return error(JSStreamWrongLastSequenceErrF, seq=actual)
    elif filter_subject:
        return error(JSStreamExpectedLastSeqPerSubjectInvalid)
    expected = fields.get(EXPECTED_LAST_SEQ)
    if expected and parse_seq(expected) != facts.last_seq:
        return error(JSStreamWrongLastSequenceErrF, seq=facts.last_seq)
    return None
