"""Requests a range of a stream in packed form (docs/packed-reads.md) and reads whole replies from the socket.

A request allows half of `fetch_bytes`. When its last reply has arrived, the next request leaves before that reply is
processed, so that the server reads ahead while the rows are written. At most `fetch_bytes` are in flight or unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from eyot_hub.connection import Connection
from eyot_hub.errors import ApiFailure, ConnectionFailed, NoAnswer, NoResponders
from eyot_hub.frame_columns import TAIL, FrameError, Rows
from eyot_hub.packed_columns import packed_rows
from eyot_wire import frames, headers
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.packed_range import END, MORE, RangeHead, RangeRequest, decode_head
from eyot_wire.nuid import short_id
from eyot_wire.scanner import ProtocolError, Scanner

SID: Final = b"p"
LINE_BYTES: Final = 512  # read first, to learn the reply's size
UNREADABLE: Final = 10051  # error code for damage in the server's store
LINE_BYTES_MAX: Final = 64 * 1024
REPLY_BYTES_MAX: Final = 256 * 1024 * 1024  # larger replies are malformed


class Unreadable(ApiFailure):
    """The server cannot read the record at `sequence` (0: unknown)."""

    def __init__(self, request: str, error: ApiError, sequence: int) -> None:
        super().__init__(request, error)
        self.sequence = sequence


class PackedReply(NamedTuple):
    """One reply; positions of `rows` are offsets into `data`, which the next reply overwrites."""

    head: RangeHead
    data: bytearray
    rows: Rows


class _Refusal(msgspec.Struct):
    error: ApiError | None = None
    unreadable_seq: int = 0


class PackedReplies:
    """The replies to one range of one stream over a connection of its own."""

    def __init__(
        self, connection: Connection, subject: str, last_seq: int, subjects: tuple[str, ...], fetch_bytes: int
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._last_seq = last_seq
        self._filters = list(subjects)
        self._max_bytes = max(fetch_bytes // 2, 1)
        self._inbox = b"_INBOX.eyot.%b" % short_id(length=16).encode()
        self._asked = 0
        self._data = bytearray(LINE_BYTES + TAIL)
        self._begin = self._end = 0  # bounds of bytes that were read and not used yet
        connection.settle()
        connection.send(frames.encode_sub(self._inbox + b".*", SID))

    def replies(self, first_seq: int) -> Iterator[PackedReply]:
        """Yield the replies. Raises ApiFailure, Unreadable, FrameError, ConnectionFailed, NoAnswer."""
        upcoming = first_seq
        self._ask(upcoming)
        while True:
            reply = self._reply()
            head = reply.head
            if head.first_seq != upcoming or head.last_seq < head.first_seq - 1:
                raise FrameError(f"a reply begins at {head.first_seq}, not at {upcoming}")
            upcoming = head.last_seq + 1
            done = head.state == END
            if not done and head.state != MORE:
                self._ask(upcoming)
            yield reply
            if done:
                return

    def _ask(self, first_seq: int) -> None:
        self._asked += 1
        body = RangeRequest(
            first_seq=first_seq,
            last_seq=self._last_seq,
            filters=self._filters,
            max_bytes=self._max_bytes,
            max_reply=self._connection.info.max_payload,
        )
        reply = b"%b.%d" % (self._inbox, self._asked)
        self._connection.publish(self._subject.encode(), msgspec.json.encode(body), reply)

    def _reply(self) -> PackedReply:
        wanted = b"%b.%d" % (self._inbox, self._asked)
        while True:
            line = self._line()
            tokens = line.split()
            if tokens[0] not in (b"MSG", b"HMSG"):
                self._other(line + b"\r\n")
                continue
            header_size = int(tokens[-2]) if tokens[0] == b"HMSG" else 0
            begin, end = self._body(int(tokens[-1]))
            if tokens[1] != wanted:
                continue
            header = bytes(memoryview(self._data)[begin : begin + header_size])
            try:
                head = decode_head(header)
            except ValueError as mistake:
                raise FrameError(f"a packed reply is malformed: {mistake}") from None
            if head is None:
                self._refused(header, bytes(memoryview(self._data)[begin + header_size : end]))
            else:
                return PackedReply(head, self._data, packed_rows(self._data, begin + header_size, end, head.count))

    def _refused(self, header: bytes, body: bytes) -> None:
        status = headers.status(header)
        if status is not None and status[0] == 503:
            raise NoResponders(f"no responders on {self._subject}")
        try:
            refusal = msgspec.json.decode(body, type=_Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError) as mistake:
            raise ConnectionFailed(f"the answer on {self._subject} is malformed: {mistake}") from None
        if refusal.error is None:
            raise ConnectionFailed(f"the answer on {self._subject} is malformed")
        if refusal.error.err_code == UNREADABLE:
            raise Unreadable(self._subject, refusal.error, refusal.unreadable_seq)
        if refusal.error.code == 503:  # busy: the request may be repeated
            raise NoAnswer(f"{self._subject}: {refusal.error.description}")
        raise ApiFailure(self._subject, refusal.error)

    def _other(self, frame: bytes) -> None:
        """Handle what the server says of the connection."""
        try:
            for op in Scanner("client").feed(frame):
                self._connection.answer(op)
        except ProtocolError as error:
            raise ConnectionFailed(f"{self._connection.peer} does not speak the NATS protocol: {error}") from None

    # -- the socket --------------------------------------------------------------------------------------------------

    def _line(self) -> bytes:
        """Return the next control line, without its end."""
        while True:
            feed = self._data.find(b"\r\n", self._begin, self._end)
            if feed >= 0:
                line = bytes(memoryview(self._data)[self._begin : feed])
                self._begin = feed + 2
                if line:
                    return line
                continue
            if self._end - self._begin > LINE_BYTES_MAX:
                raise FrameError("a control line without an end")
            self._make_room(self._end - self._begin + LINE_BYTES)
            self._take(LINE_BYTES)

    def _body(self, size: int) -> tuple[int, int]:
        """Return where the next `size` bytes lie, once all have arrived; their CRLF is consumed as well."""
        if size > REPLY_BYTES_MAX:
            raise FrameError(f"a reply of {size} bytes")
        self._make_room(size + 2)
        while self._end - self._begin < size + 2:
            self._take(size + 2 - (self._end - self._begin))
        begin = self._begin
        self._begin = begin + size + 2
        return begin, begin + size

    def _make_room(self, size: int) -> None:
        """Make room for `size` bytes from the start of the unused ones."""
        if self._begin + size + TAIL <= len(self._data):
            return
        rest = self._data[self._begin : self._end]
        if size + TAIL > len(self._data):
            self._data = bytearray(size + size // 4 + TAIL)
        self._data[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)

    def _take(self, size: int) -> None:
        """Wait for up to `size` bytes."""
        connection = self._connection
        connection.sock.settimeout(connection.options.timeout_s)
        with memoryview(self._data) as view:
            try:
                count = connection.sock.recv_into(view[self._end : self._end + size])
            except TimeoutError:
                raise NoAnswer(f"nothing came from {connection.peer}") from None
            except OSError as error:
                raise ConnectionFailed(f"the connection to {connection.peer} broke: {error}") from None
        if not count:
            raise ConnectionFailed(f"{connection.peer} closed the connection")
        self._end += count
