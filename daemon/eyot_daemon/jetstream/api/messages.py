"""The API of messages: `STREAM.MSG.GET` and `STREAM.MSG.DELETE` in JSON, and `DIRECT.GET` without (ADR-31).

A reply of `DIRECT.GET` is the stored message on the requester's inbox, its headers followed by where it is stored. Batches
end with a header-only `204 EOB`. Streams answer if they have `allow_direct`; a mirror with `mirror_direct` answers for its
origin.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint, attempt
from eyot_daemon.jetstream.nats_headers import level_is_offered
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_store import Log, StoredMessage
from eyot_store.errors import StoreError
from eyot_store.log.subjects import LastsBelow, LookingFor
from eyot_wire import headers
from eyot_wire.jetstream.error_codes import (
    JSBadRequestErr,
    JSNoMessageFoundErr,
    JSSequenceNotFoundErrF,
    JSStreamMsgDeleteFailedF,
    JSStreamSealedErr,
)
from eyot_wire.jetstream.errors import ApiError, error, fail
from eyot_wire.jetstream.model import (
    InvalidJson,
    MessagePart,
    MsgDeleteRequest,
    MsgGetRequest,
    StoredMsg,
    SuccessPart,
    decode,
    ns_to_rfc3339,
    rfc3339_to_ns,
)
from eyot_wire.subject import is_valid


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
    if asked.batch > 0 or asked.max_bytes > 0 or not is_one_message(asked):
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


#: Subjects that `multi_last` may lead to.
MULTI_LAST_MAX = 1024
#: Payload bytes of one batch when the request sets no limit: what a client can buffer.
BATCH_BYTES_MAX = 16 << 20
_READ_MESSAGES = 256
#: Messages of a batch that one turn sends: they take 3 ms.
BATCH_OF_A_TURN = 256
#: With more that goes on in later turns, a batch is sent at once.
BATCHES_MAX = 256

_NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"
_NO_RESULTS = b"NATS/1.0 404 No Results\r\n\r\n"
_EMPTY = b"NATS/1.0 408 Empty Request\r\n\r\n"
_MALFORMED = b"NATS/1.0 408 Malformed Request\r\n\r\n"
_BAD = b"NATS/1.0 408 Bad Request\r\n\r\n"
_TOO_MANY = b"NATS/1.0 413 Too Many Results\r\n\r\n"
_LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"


def _direct_get(request: ApiRequest) -> None:
    if len(request.tokens) < 5:
        return
    stream = _stream_for(request)
    if stream is None:
        request.no_responders()
        return
    if not level_is_offered(request.header):
        request.send_status(_LEVEL)
        return
    asked = MsgGetRequest()
    if not request.body_is_empty:
        try:
            asked = decode(request.body, MsgGetRequest, strict=False)
        except InvalidJson:
            request.send_status(_MALFORMED)
            return
    if len(request.tokens) > 5:
        if _asks_for_something(asked) or asked.batch or asked.up_to_seq or asked.up_to_time is not None:
            request.send_status(_BAD)
            return
        asked.last_by_subj = ".".join(request.tokens[5:])
    elif not _asks_for_something(asked):
        request.send_status(_EMPTY)
        return
    if _contradicts_itself(asked):
        request.send_status(_BAD)
        return
    stream.after_commits(
        lambda _: stream.subject_index_loader.for_get(asked, lambda: _answer_direct(request, stream, asked))
    )


def _asks_for_something(asked: MsgGetRequest) -> bool:
    return bool(
        asked.seq or asked.last_by_subj or asked.next_by_subj or asked.multi_last or asked.start_time is not None
    )


def _contradicts_itself(asked: MsgGetRequest) -> bool:
    """Ways to find a message that exclude each other."""
    if asked.last_by_subj and (asked.seq or asked.start_time is not None or asked.next_by_subj or asked.batch > 0):
        return True
    if asked.multi_last and (asked.last_by_subj or asked.next_by_subj):
        return True
    both_ends = asked.up_to_seq and asked.up_to_time is not None
    return bool(both_ends or (asked.seq and asked.start_time is not None))


def _stream_for(request: ApiRequest) -> Stream | None:
    """Return the subject's stream if it answers direct gets, or a local mirror that answers for it."""
    name = request.tokens[4]
    stream = request.jsa.streams.get(name)
    if stream is not None:
        return stream if stream.config.allow_direct else None
    for mirror in request.jsa.streams.values():
        config = mirror.config
        answers = config.mirror_direct and mirror.log.state.last_seq  # not before something has reached it
        if answers and config.mirror is not None and config.mirror.name == name:
            return mirror
    return None


def _answer_direct(request: ApiRequest, stream: Stream, asked: MsgGetRequest) -> None:
    try:
        if asked.multi_last:
            _answer_multi_last(request, stream, asked)
        elif asked.batch:
            _answer_batch(request, stream, asked)
        else:
            message = find_one(stream.log, asked)
            if message is None:
                request.send_status(_NOT_FOUND)
            else:
                _send(request, stream, message, (), no_header=asked.no_hdr)
    except StoreError:
        # The record is unreadable. The protocol has no error for that; for the client the message does not exist.
        request.send_status(_NOT_FOUND)


def _send(
    request: ApiRequest,
    stream: Stream,
    message: StoredMessage,
    more: tuple[tuple[bytes, bytes], ...],
    *,
    no_header: bool = False,
) -> None:
    header = b""
    if not no_header:
        header = message.header
        for name, value in (
            (b"Nats-Stream", stream.name.encode()),
            (b"Nats-Subject", message.subject),
            (b"Nats-Sequence", b"%d" % message.seq),
            (b"Nats-Time-Stamp", ns_to_rfc3339(message.ts_ns).encode()),
            *more,
        ):
            header = headers.add_field(header, name, value)
    request.jsa.account.publish(request.reply, header=header, payload=message.payload)


def _answer_batch(request: ApiRequest, stream: Stream, asked: MsgGetRequest) -> None:
    """Up to `batch` messages from `seq` or `start_time` on, on subjects that match `next_by_subj`."""
    log = stream.log
    seq = asked.seq or 1
    if asked.start_time is not None:
        seq = log.seq_at_time(rfc3339_to_ns(asked.start_time))
    filters = (asked.next_by_subj.encode(),) if asked.next_by_subj else ()
    pending = log.count(seq, filters)
    if not pending and asked.batch > 0:
        request.send_status(_NOT_FOUND)
        return
    batch = _Batch(request, stream, pending, with_header=not asked.no_hdr)
    if asked.batch > 0:
        batch.found = _limited(batch.read_on(seq, filters), asked.batch, asked.max_bytes)
    batch.go_on()


class _Batch:
    """A batch on its way: some of its messages in each turn, and its end behind them."""

    def __init__(
        self,
        request: ApiRequest,
        stream: Stream,
        pending: int,
        *,
        with_header: bool,
    ) -> None:
        self._request = request
        self._stream = stream
        #: The messages still to be sent; None: a long search is to go on in another turn.
        self.found: Iterator[StoredMessage | None] = iter(())
        self._pending = pending
        self._with_header = with_header
        self._last = 0

    def go_on(self) -> None:
        """Send what one turn may, and the rest in later turns."""
        request, stream = self._request, self._stream
        if not stream.live:
            return
        later = stream.broker.later_turns
        try:
            while not self._send_some():
                # With very many batches under way each is sent at once: what waits is bounded.
                if len(later) < BATCHES_MAX:
                    later.add(self.go_on)
                    return
        except StoreError:
            request.send_status(_NOT_FOUND)
            return
        request.send_status(
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n\r\n"
            % (max(self._pending, 0), self._last)
        )

    def read_on(self, seq: int, filters: tuple[bytes, ...]) -> Iterator[StoredMessage | None]:
        """Yield messages from `seq` on; None after a long search without one. For a client a damaged message does not exist."""
        log = self._stream.log
        while seq <= log.committed_seq:
            read = log.read_on(seq, max_messages=_READ_MESSAGES, max_bytes=BATCH_BYTES_MAX, filters=filters)
            if not read.messages:
                yield None
            yield from read.messages
            seq = read.next_seq
        if self._with_header:
            self._pending = 0  # damaged messages were counted

    def _send_some(self) -> bool:
        """Send some messages; return True at the end."""
        for count, message in enumerate(self.found, 1):
            if message is not None:
                self._pending -= self._with_header  # a header carries it; without headers nats-server does not keep it
                progress = _progress(self._pending, self._last)
                _send(self._request, self._stream, message, progress, no_header=not self._with_header)
                self._last = message.seq
            if message is None or count == BATCH_OF_A_TURN:
                return False
        return True


def _answer_multi_last(request: ApiRequest, stream: Stream, asked: MsgGetRequest) -> None:
    """Send the last message of each subject that matches a filter, from `seq` up to `up_to_seq` or `up_to_time`."""
    # An invalid filter has no messages, and hides those of no other filter.
    filters = [encoded for subject in asked.multi_last if is_valid(encoded := subject.encode())]
    if not filters:
        request.send_status(_NO_RESULTS)
        return
    log = stream.log
    up_to = log.committed_seq
    if asked.up_to_time is not None:
        up_to = min(up_to, log.seq_at_time(rfc3339_to_ns(asked.up_to_time)) - 1)
    elif asked.up_to_seq > up_to:
        request.send_status(_NO_RESULTS)  # readers move `up_to_seq` on until nothing is found
        return
    elif asked.up_to_seq:
        up_to = asked.up_to_seq
    _look_for_subjects(request, stream, asked, log.looking_for(filters, MULTI_LAST_MAX), up_to)


def _look_for_subjects(
    request: ApiRequest, stream: Stream, asked: MsgGetRequest, subjects: LookingFor, up_to: int
) -> None:
    """Search the subjects, a slice per turn, and then their last messages."""
    if not stream.live:
        return
    try:
        if not subjects.step():
            again = partial(_look_for_subjects, request, stream, asked, subjects, up_to)
            stream.broker.timers.call_later(0.0, again)
        elif len(subjects.found) > MULTI_LAST_MAX:
            request.send_status(_TOO_MANY)
        else:
            _find_lasts(request, stream, asked, stream.log.lasts_below(subjects.found, up_to), up_to)
    except StoreError:
        request.send_status(_NOT_FOUND)


def _find_lasts(request: ApiRequest, stream: Stream, asked: MsgGetRequest, lasts: LastsBelow, up_to: int) -> None:
    """Search the last messages, a slice per turn, and send them."""
    if not stream.live:
        return
    try:
        if lasts.step():
            _send_lasts(request, stream, asked, sorted(lasts.found.values()), up_to)
        else:
            stream.broker.timers.call_later(0.0, lambda: _find_lasts(request, stream, asked, lasts, up_to))
    except StoreError:
        request.send_status(_NOT_FOUND)


def _send_lasts(request: ApiRequest, stream: Stream, asked: MsgGetRequest, lasts: list[int], up_to: int) -> None:
    if not lasts:
        request.send_status(_NO_RESULTS)
        return
    wanted = lasts[bisect_left(lasts, asked.seq) :]
    found = (stream.log.get_readable(seq) for seq in wanted)
    pending, last = len(wanted), 0
    for message in list(_limited(found, asked.batch, asked.max_bytes)):
        pending -= 1
        if message is None:
            continue
        _send(request, stream, message, _progress(pending, last))
        last = message.seq
    request.send_status(
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\nNats-UpTo-Sequence: %d\r\n\r\n"
        % (pending, last, up_to)
    )


def _limited(messages: Iterator[StoredMessage | None], batch: int, max_bytes: int) -> Iterator[StoredMessage | None]:
    """At most `batch` messages (0: any number), until they are `max_bytes` (0: the default) of subject, header and payload."""
    left = max_bytes or BATCH_BYTES_MAX  # below 0: one message
    count = 0
    for message in messages:
        yield message
        if message is None:
            continue
        count += 1
        left -= len(message.subject) + len(message.header) + len(message.payload)
        if left <= 0 or count == batch:
            return


def _progress(pending: int, last: int) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Nats-Num-Pending", b"%d" % max(pending, 0)), (b"Nats-Last-Sequence", b"%d" % last))


ENDPOINTS = (
    Endpoint("STREAM.MSG.GET", "stream_msg_get_response", _get, quiet=True),
    Endpoint("STREAM.MSG.DELETE", "stream_msg_delete_response", _delete),
    Endpoint("DIRECT.GET", "", _direct_get, extra=None, bare=True),
)
