"""`STREAM.MSG.GET` and `STREAM.MSG.DELETE`: single messages, in JSON."""

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_store import Log, StoredMessage
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import (
    JSBadRequestErr,
    JSNoMessageFoundErr,
    JSSequenceNotFoundErrF,
    JSStreamMsgDeleteFailedF,
    JSStreamSealedErr,
)
from eyot_wire.jetstream.errors import ApiError, error, fail
from eyot_wire.jetstream.model import (
    MessagePart,
    MsgDeleteRequest,
    MsgGetRequest,
    StoredMsg,
    SuccessPart,
    ns_to_rfc3339,
    rfc3339_to_ns,
)


def is_one_message(asked: MsgGetRequest) -> bool:
    """Return whether the request names exactly one way to find one message."""
    if asked.start_time is not None:
        return not asked.seq and not asked.last_by_subj
    if asked.last_by_subj:
        return not asked.seq and not asked.next_by_subj
    return bool(asked.seq or asked.next_by_subj)


def find_one(log: Log, asked: MsgGetRequest) -> StoredMessage | None:
    """Return the committed message that a checked request selects."""
    if asked.last_by_subj:
        return log.last_for(asked.last_by_subj.encode())
    seq = asked.seq
    if asked.start_time is not None:
        seq = log.seq_at_time(rfc3339_to_ns(asked.start_time))
        return log.next_for(asked.next_by_subj.encode(), seq)
    if asked.next_by_subj:
        return log.next_for(asked.next_by_subj.encode(), seq)
    return log.get(seq)


def _get(request: ApiRequest) -> None:
    if request.body_is_empty:
        raise fail(JSBadRequestErr)
    asked = request.decode(MsgGetRequest)
    if asked.batch or asked.max_bytes or asked.multi_last or not is_one_message(asked):
        raise fail(JSBadRequestErr)
    stream = request.stream(request.tokens[5])

    stream.after_commits(
        lambda _: stream.subject_index_loader.for_get(asked, lambda: attempt(request, _answer, stream, asked))
    )


def _answer(request: ApiRequest, stream: Stream, asked: MsgGetRequest) -> None:
    message = find_one(stream.log, asked)
    if message is None:
        raise fail(JSNoMessageFoundErr)
    request.respond(
        MessagePart(
            message=StoredMsg(
                subject=message.subject.decode("utf-8", "replace"),
                seq=message.seq,
                hdrs=b"" if asked.no_hdr else message.header,
                data=message.payload,
                time=ns_to_rfc3339(message.ts_ns),
            )
        )
    )


def _delete(request: ApiRequest) -> None:
    if request.body_is_empty:
        raise fail(JSBadRequestErr)
    asked = request.decode(MsgDeleteRequest)
    stream = request.stream(request.tokens[5])
    if stream.config.sealed:
        raise fail(JSStreamSealedErr)
    if stream.config.deny_delete:
        raise fail(JSStreamMsgDeleteFailedF, err="message delete not permitted")

    def done(failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSStreamMsgDeleteFailedF, err=failure.message), counts=False)
        else:
            request.respond(SuccessPart(success=True))

    beyond = _beyond(stream, asked.seq)
    if beyond is not None or not stream.delete_message(asked.seq, done):
        request.refuse(beyond or error(JSSequenceNotFoundErrF, seq=asked.seq), counts=False)


def _beyond(stream: Stream, seq: int) -> ApiError | None:
    """Return nats-server's error for a message beyond the ends of the stream; its two stores differ."""
    state = stream.log.state
    first = state.first_seq or state.last_seq + 1
    if stream.config.storage != "memory":
        if seq > state.last_seq:
            return error(JSStreamMsgDeleteFailedF, err="stream store EOF")
        if seq < first:
            return error(JSStreamMsgDeleteFailedF, err="no message found")
    return None if first <= seq <= state.last_seq else error(JSSequenceNotFoundErrF, seq=seq)


ENDPOINTS = (
    Endpoint("STREAM.MSG.GET", "stream_msg_get_response", _get, quiet=True),
    Endpoint("STREAM.MSG.DELETE", "stream_msg_delete_response", _delete),
)
