"""`STREAM.EYOT_RANGE`: many records of a stream in few messages, copied as they are stored (docs/packed-reads.md, ADR 0009).

A request names a range and a byte limit. It is answered by consecutive replies until the range or the limit is used up.
The server keeps nothing between requests. Records are read outside the loop (`ReadThread`), one reply at a time and
in turn among the open requests, so that neither the broker nor another request waits for a long range.
"""

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_store.errors import StoreError
from eyot_wire.jetstream import packed_range
from eyot_wire.jetstream.error_codes import (
    JSBadRequestErr,
    JSInsufficientResourcesErr,
    JSStreamGeneralErrorF,
    JSStreamNotFoundErr,
)
from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.packed_range import END, MORE, PAUSE, RangeHead, RangeOffer, RangeRequest, UnreadablePart
from eyot_wire.native import StoredRun
from eyot_wire.subject import is_valid

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

#: Byte limits of one request and of one reply. A reply is a copy on the loop's side: about 0.2 ms.
REQUEST_BYTES_MAX = 16 << 20
REPLY_BYTES_MAX = 1 << 20
#: Requests open at a time in the whole server; the next one is refused with 10023.
OPEN_MAX = 64
#: The rest of a request's bytes must exceed this part of a reply to justify another one.
_WORTH_A_REPLY = 16
#: A filtered read continues until a reply is at least this full, or the range ends.
_FULL_ENOUGH = 2


def _range(request: ApiRequest) -> None:
    stream = request.stream(request.tokens[4])
    if request.body_is_empty:
        request.respond(RangeOffer(max_bytes=REQUEST_BYTES_MAX))
        return
    asked = request.decode(RangeRequest)
    if not asked.first_seq or not all(is_valid(pattern.encode()) for pattern in asked.filters):
        raise fail(JSBadRequestErr)
    server = request.jsa.server
    if server.packed_reads_open >= OPEN_MAX:
        raise fail(JSInsufficientResourcesErr)
    server.packed_reads_open += 1
    job = _PackedRead(request, stream, asked)
    stream.after_commits(lambda _: job.go_on())


class _PackedRead:
    """One request on its way."""

    def __init__(self, request: ApiRequest, stream: "Stream", asked: RangeRequest) -> None:
        self._request = request
        self._stream = stream
        self._filters = tuple(pattern.encode() for pattern in asked.filters)
        self._first = self._next = asked.first_seq
        self._last = asked.last_seq or stream.log.state.last_seq
        self._left = min(asked.max_bytes or REQUEST_BYTES_MAX, REQUEST_BYTES_MAX)
        most = min(request.jsa.account.broker.options.max_payload, asked.max_reply or REPLY_BYTES_MAX, REPLY_BYTES_MAX)
        self._reply_bytes = max(most - packed_range.HEAD_BYTES_MAX, 1)
        self._run = StoredRun(packed_range.DIRECTORY_BYTES)
        self._held = 0  # messages of the run before the current read

    def go_on(self) -> None:
        """Read the rest of the next reply."""
        stream = self._stream
        if not stream.live:
            self._refuse_gone()
            return
        run = self._run
        self._held = len(run)
        room = max(self._room() - run.packed_size, 1)
        reading = stream.log.reading(run, self._next, up_to=self._last, max_bytes=room, filters=self._filters)
        self._request.jsa.server.beside.run(reading, self._read)

    def _room(self) -> int:
        return min(self._reply_bytes, self._left)

    def _read(self, next_seq: int | None, failure: StoreError | None) -> None:
        if not self._stream.live:
            self._refuse_gone()
            return
        if failure is not None and not self._held:
            self._close()
            self._request.refuse(
                error(JSStreamGeneralErrorF, err=failure.message), UnreadablePart(unreadable_seq=failure.seq)
            )
            return
        if next_seq is None:
            self._run.cut(self._held)
        elif next_seq > self._next:
            self._next = next_seq
            at_end = self._next > min(self._last, self._stream.log.committed_seq)
            if not at_end and self._run.packed_size * _FULL_ENOUGH < self._room():
                self.go_on()
                return
        self._reply()

    def _reply(self) -> None:
        """Send the gathered records; the reply ends before an unreadable record, which the next request reports."""
        log, payload = self._stream.log, self._run.packed()
        self._left -= len(payload)
        at_end = self._next > min(self._last, log.committed_seq)
        goes_on = self._left * _WORTH_A_REPLY > self._reply_bytes
        state = END if at_end else MORE if goes_on else PAUSE
        head = RangeHead(
            state=state,
            first_seq=self._first,
            last_seq=self._last if at_end else self._next - 1,
            count=len(self._run),
            stream_first=log.state.first_seq,
            created_ns=self._stream.created_ns,
        )
        request = self._request
        taken = request.jsa.account.publish(request.reply, header=head.encode(), payload=payload)
        self._first, self._run = self._next, StoredRun(packed_range.DIRECTORY_BYTES)
        if state == MORE and taken:
            self.go_on()
        else:
            self._close()

    def _refuse_gone(self) -> None:
        self._close()
        self._request.refuse(error(JSStreamNotFoundErr))

    def _close(self) -> None:
        self._request.jsa.server.packed_reads_open -= 1


ENDPOINTS = (Endpoint(packed_range.WORDS, "eyot_range_response", _range, quiet=True),)
