"""Headers of a message in an atomic batch, checked in nats-server's order, which differs from that of single messages.

Within a batch, only expectations about what the batch itself does not change can be checked. Source: ADR-50, and nats-server's
order as observed.
"""

from eyot_daemon.jetstream.messages.headers import (
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    INCREMENT,
    MSG_ID,
    TTL,
    StreamFacts,
    Verdict,
    check_features,
    check_rollup,
    parse_seq,
)
from eyot_daemon.jetstream.messages.message_ttl import parse_ttl
from eyot_daemon.jetstream.messages.schedule import check_schedule
from eyot_wire.jetstream.error_codes import (
    JSAtomicPublishContainsDuplicateMessageErr,
    JSMessageIncrMissingErr,
    JSMessageTTLInvalidErr,
    JSStreamExpectedLastSeqPerSubjectInvalid,
    JSStreamRollupFailedF,
    JSStreamWrongLastSequenceConstantErr,
    JSStreamWrongLastSequenceErrF,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.subject import matches

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
    refused = check_features(fields, facts.config, payload) or _check_ttl(fields)
    if refused is not None:
        return Verdict(refused)
    msg_id = fields.get(MSG_ID, b"")
    if msg_id:
        duplicate = facts.duplicate_of(msg_id)
        if duplicate or msg_id in so_far.msg_ids:
            return Verdict(error(CONTAINS_DUPLICATE), duplicate=duplicate)
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


def _check_ttl(fields: dict[bytes, bytes]) -> ApiError | None:
    try:
        if fields.get(TTL):
            parse_ttl(fields[TTL])
    except ValueError:
        return error(JSMessageTTLInvalidErr)
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
