"""The `Nats-` headers by which a publisher controls how a stream stores a message, and their checks.

`check` evaluates them in nats-server 2.12's order and returns the verdict: store the message, it is a duplicate, or the
error that refuses it. `StreamFacts` supplies the facts about the stream.
Source: ADR-1, ADR-22, ADR-43 and their order as observed.
"""

import re
from typing import Protocol

from eyot_daemon.jetstream.messages.message_ttl import has_ttl
from eyot_daemon.jetstream.messages.schedule import SCHEDULE, check_schedule
from eyot_daemon.version import API_LEVEL
from eyot_wire import headers
from eyot_wire.jetstream.error_codes import (
    JSMessageIncrDisabledErr,
    JSMessageIncrInvalidErr,
    JSMessageIncrPayloadErr,
    JSMessageTTLDisabledErr,
    JSStreamExpectedLastSeqPerSubjectInvalid,
    JSStreamNotMatchErr,
    JSStreamRollupFailedF,
    JSStreamWrongLastMsgIDErrF,
    JSStreamWrongLastSequenceErrF,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import StreamConfig

MSG_ID = b"Nats-Msg-Id"
EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID = b"Nats-Expected-Last-Msg-Id"
ROLLUP = b"Nats-Rollup"
TTL = b"Nats-TTL"
MARKER_REASON = b"Nats-Marker-Reason"
INCREMENT = b"Nats-Incr"
COUNTER_SOURCES = b"Nats-Counter-Sources"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQUENCE = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"
REQUIRED_LEVEL = b"Nats-Required-Api-Level"
REQUEST_INFO = b"Nats-Request-Info"

HEADER_BYTES_MAX = 65_535
_LEVEL = re.compile(rb"[+-]?[0-9]{1,20}")

#: A number that no sequence has: the value of an unreadable expectation, as in nats-server.
NO_SEQ = (1 << 64) - 1

#: What a field that asks for something begins with, with the line end before it.
NATS_MARK = b"\r\nNats-"
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


def nats_fields(header: bytes) -> dict[bytes, bytes]:
    """First value of every field whose name begins with `Nats-`; names are case-sensitive."""
    fields: dict[bytes, bytes] = {}
    at = header.find(NATS_MARK)
    while at >= 0:
        end = header.find(b"\r\n", at + 2)
        name, colon, value = header[at + 2 : end if end >= 0 else len(header)].partition(b":")
        if colon:
            fields.setdefault(name, value.strip(b" \t"))
        at = header.find(NATS_MARK, at + 2)
    return fields


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
    message. Messages of atomic batches: `batch_headers.py`.
    """
    if not fields:
        return STORE
    refused = (
        check_features(fields, facts.config, payload)
        or _check_expected(fields, subject, facts)
        or check_schedule(fields, subject, facts, scheduled=scheduled)
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
            return Verdict(
                error(JSStreamRollupFailedF, err=f'rollup value invalid: "{rollup.decode("utf-8", "replace")}"')
            )
    return Verdict(msg_id=msg_id, rollup=rollup)


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


def parse_seq(text: bytes) -> int:
    """Return a sequence as text; NO_SEQ when it is none."""
    return int(text) if text.isdigit() and len(text) <= 20 else NO_SEQ


def level_is_offered(header: bytes) -> bool:
    """Return False if a request or message requires an API level that this server does not have (ADR-44)."""
    if not header:
        return True
    wanted = headers.get(header, REQUIRED_LEVEL)
    if not wanted:
        return True
    return _LEVEL.fullmatch(wanted) is not None and int(wanted) <= API_LEVEL
