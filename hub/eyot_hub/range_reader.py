"""Reads one range of a stream's sequences as Arrow batches, through an ephemeral consumer without acknowledgements.

With the option for packed reads, and a server that offers them, `packed_replies.py` returns the same rows in packed
form.

The consumer is a pull consumer. Each request asks for at most `fetch_bytes / 2` and two are open at a time. The server
always has something to send, and at most `fetch_bytes` are in flight, however slow the reader's output is. (A push
consumer with flow control was no faster in measurements, may have 32 MiB in flight, and the server ends the connection
when the reader pauses for longer than its write deadline.)

The range is complete when a message at or beyond its end arrives, or when the server reports nothing pending; never by
a time-out. Consumer sequences must be contiguous and stream sequences ascending. Otherwise, and whenever the connection
breaks, a new consumer continues after the last returned message, so that every message is returned exactly once and in
order.

Some messages of the range may be absent. Deleted ones are skipped silently, as by every consumer. It is data loss if
the stream's limits removed messages before they were read, if the stream's end moved back (a power cut of the server, a
restored backup), or if the stream is no longer the planned one. After a reconnect the reader checks that the last
message it read is unchanged.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from eyot_hub import columns
from eyot_hub.columns import StreamLabels
from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ApiFailure, ConnectionFailed, DataLoss, HubError, NoAnswer, NoResponders
from eyot_hub.frame_columns import LEAD, TAIL, Deliveries, FrameColumns, FrameError, Rows
from eyot_hub.jetstream import (
    NS_PER_S,
    STREAM_NOT_FOUND,
    ConsumerInfo,
    JetStream,
    StreamInfo,
    call,
    create_words,
    decoded,
)
from eyot_hub.offsets import LastRow
from eyot_hub.packed_replies import PackedReplies, Unreadable
from eyot_wire import frames, headers, subject
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream import packed_range
from eyot_wire.jetstream.packed_range import RangeHead
from eyot_wire.nuid import short_id
from eyot_wire.scanner import ProtocolError, Scanner

log = logging.getLogger(__name__)

READ_BYTES: Final = 1024 * 1024  # scanned at once
DEFAULT_FETCH_BYTES: Final = 4 * 1024 * 1024
OPEN_REQUESTS: Final = 2
FEW_MESSAGES: Final = 2000  # a remainder that one request covers
INACTIVE_S: Final = 300  # after this time the server removes the consumer of a dead reader
DRAIN_S: Final = 2.0
RETRY_PAUSE_S: Final = 0.5
FILTER_NOT_SUBSET: Final = 10093  # before 2.10: the filter exceeds the stream's subjects
DATA_SID: Final = b"d"

# Statuses that end one pull request; every other status of 4xx and 5xx ends the consumer.
_REQUEST_ENDED: Final = ("message size exceeds maxbytes", "batch completed", "request timeout", "no messages")


@dataclass(frozen=True)
class StreamRange:
    """Sequences `first_seq` to `last_seq` (inclusive) of a stream created at `created` (RFC 3339, as the server reports it)."""

    stream: str
    created: str
    first_seq: int
    last_seq: int

    def __str__(self) -> str:
        return f"{self.stream} {self.first_seq}..{self.last_seq}"


class Piece(NamedTuple):
    """A range that one task reads, and what its rows share."""

    span: StreamRange
    labels: StreamLabels


@dataclass(frozen=True)
class ReadOptions:
    """How ranges are read. Plain values: sent to the executors."""

    connect: ConnectOptions
    api_prefix: str
    subjects: tuple[str, ...] = ()
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    include_headers: bool = True
    header_columns: columns.HeaderColumns = ()
    fail_on_data_loss: bool = True
    packed: bool = False  # use packed reads where the server offers them


class _Interrupted(HubError):
    """The consumer cannot continue; a new one can."""


class RangeReader:
    """Reads one range; iterate over `batches()` once."""

    def __init__(self, options: ReadOptions, span: StreamRange, labels: StreamLabels) -> None:
        self._options = options
        self._span = span
        self._labels = labels
        self._next = span.first_seq
        self._missing_from: int | None = None  # the first sequence that was not delivered
        self._filter_here = False
        self.packed = False  # whether packed reads are in use
        self.last_row: LastRow | None = None  # the last message that was read
        self.rows = 0
        self.bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the range.

        Raises DataLoss, ApiFailure, Refused; ConnectionFailed after `retry_s` without success.
        """
        patience = self._options.connect.retry_s
        progress, give_up = self._next, time.monotonic() + patience
        while self._next <= self._span.last_seq:
            try:
                yield from self._read()
                break
            except (ConnectionFailed, NoAnswer, FrameError, _Interrupted) as error:
                if self._next > progress:
                    progress, give_up = self._next, time.monotonic() + patience
                elif time.monotonic() + RETRY_PAUSE_S > give_up:
                    raise HubError(f"reading {self._span} stopped at {self._next}: {error}") from error
                log.warning("reading %s continues at %d: %s", self._span, self._next, error)
                time.sleep(RETRY_PAUSE_S)
        self._check_missing()

    def _read(self) -> Iterator[pa.RecordBatch]:
        connection = Connection.open(self._options.connect)
        try:
            if not self._same_stream(connection):
                return
            if self.packed:
                yield from self._receive_packed(connection)
                return
            pull = _Pull(connection, self._options, self._span, self._create(connection))
            try:
                if pull.info.num_pending:
                    yield from self._receive(pull)
            finally:
                pull.finish()
        finally:
            connection.close()

    def _same_stream(self, connection: Connection) -> bool:
        """Return whether the stream is the planned one; also detect packed reads."""
        stream = self._span.stream
        subject = f"{self._options.api_prefix}.STREAM.INFO.{stream}"
        try:
            if self._options.packed:
                # A server with packed reads answers both requests in order: if only the second answer is here, it has
                # none.
                offer, answer = connection.request_behind(self._packed_subject, subject)
                info = decoded(subject, answer.payload, StreamInfo)
                self.packed = _is_offer(offer)
            else:
                info = call(connection, subject, None, StreamInfo)
        except ApiFailure as failure:
            if failure.error.err_code != STREAM_NOT_FOUND:
                raise
            return self._lost(f"stream {stream} was deleted")
        if info.created != self._span.created:
            return self._lost(f"stream {stream} was created again at {info.created}")
        return self._same_end(info)

    def _same_end(self, info: StreamInfo) -> bool:
        """Return whether the stream still holds what was planned and read; otherwise its end moved back."""
        stream, row = self._span.stream, self.last_row
        if row is not None and info.state.first_seq <= row.sequence <= info.state.last_seq and row != info.last_row:
            with JetStream(self._options.connect, self._options.api_prefix) as jetstream:
                stored_ns = jetstream.stored_ns(stream, row.sequence, self._options.subjects)
            if stored_ns not in (None, row.stored_ns):
                return self._lost(
                    f"message {row.sequence} of stream {stream} is not the one that was read: "
                    f"the stream's end moved back while {self._span} was read"
                )
        if info.state.last_seq < self._span.last_seq:
            # Read the remaining messages of the range.
            self._lost(f"stream {stream} ends at {info.state.last_seq}: its end moved back while {self._span} was read")
        return True

    @property
    def _packed_subject(self) -> str:
        return f"{self._options.api_prefix}.{packed_range.WORDS}.{self._span.stream}"

    def _receive_packed(self, connection: Connection) -> Iterator[pa.RecordBatch]:
        """Read packed replies. Missing messages show at once: each reply covers a range and holds the stream's first sequence."""
        options, stream, last_seq = self._options, self._span.stream, self._span.last_seq
        replies = PackedReplies(connection, self._packed_subject, last_seq, options.subjects, options.fetch_bytes)
        created_ns = rfc3339_to_ns(self._span.created)
        try:
            for head, data, rows in replies.replies(self._next):
                if head.created_ns != created_ns:
                    raise _Interrupted("the stream was replaced")
                self._check_expired(head, rows)
                self._next = head.last_seq + 1
                if len(rows):
                    yield self._batch(data, rows)
        except Unreadable as failure:
            self._lost(f"message {failure.sequence} of stream {stream} is damaged: {failure.error.description}")
            if failure.sequence < self._next:
                raise
            self._next = failure.sequence + 1
            raise _Interrupted(str(failure)) from None
        except ApiFailure as failure:
            if failure.error.err_code != STREAM_NOT_FOUND:
                raise
            self._next = last_seq + 1 if not self._lost(f"stream {stream} was deleted") else self._next

    def _check_expired(self, head: RangeHead, rows: Rows) -> None:
        """Detect messages of a packed reply that the stream's limits removed before they were read."""
        end = min(head.stream_first - 1, head.last_seq)
        below = rows.stream_seq[: int(np.searchsorted(rows.stream_seq, end, "right"))]
        if end < self._next or (not self._options.subjects and len(below) == end + 1 - self._next):
            return
        holes = np.flatnonzero(below != np.arange(self._next, self._next + len(below)))
        first = self._next + (int(holes[0]) if len(holes) else len(below))
        self._lost(f"messages {first} to {end} of stream {self._span.stream} are gone")

    def _create(self, connection: Connection) -> ConsumerInfo:
        """Create the consumer from `_next` on. Detects loss below its start."""
        config: dict[str, object] = {
            "name": f"eyot_spark_{short_id()}",
            "description": f"{self._options.connect.name} reads {self._span}",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "ack_policy": "none",
            "max_deliver": 1,
            "inactive_threshold": INACTIVE_S * NS_PER_S,
            "mem_storage": True,
            "num_replicas": 1,
        }
        subjects = self._options.subjects
        if len(subjects) == 1:
            config["filter_subject"] = subjects[0]
        elif subjects:
            config["filter_subjects"] = list(subjects)
        try:
            info = self._ask_for(connection, config)
        except ApiFailure as failure:
            if failure.error.err_code != FILTER_NOT_SUBSET:
                raise
            del config["filter_subject"]
            info = self._ask_for(connection, config)
        filtered = info.config is not None and bool(info.config.filter_subject or info.config.filter_subjects)
        self._filter_here = bool(subjects) and not filtered
        start = info.delivered.stream_seq + 1
        if start > self._next:
            last = min(start - 1, self._span.last_seq)
            self._lost(f"messages {self._next} to {last} of stream {self._span.stream} are gone")
            self._next = last + 1
        return info

    def _ask_for(self, connection: Connection, config: dict[str, object]) -> ConsumerInfo:
        subject = f"{self._options.api_prefix}.{create_words(self._span.stream, config)}"
        return call(connection, subject, {"stream_name": self._span.stream, "config": config}, ConsumerInfo)

    def _receive(self, pull: _Pull) -> Iterator[pa.RecordBatch]:
        scanner = FrameColumns(DATA_SID, self._span.stream.encode(), pull.info.name.encode())
        buffer = _ReadBuffer(pull.frame_bytes_max)
        consumer_seq = pull.info.delivered.consumer_seq
        while self._next <= self._span.last_seq:
            pull.ask(self._span.last_seq - self._next + 1)
            buffer.fill(pull.connection)
            scan = scanner.scan(buffer.data, buffer.begin, buffer.end)
            buffer.begin = scan.end
            rows = scan.rows
            for frame, before in zip(scan.others, scan.before, strict=True):
                pull.take(frame, before)
            pull.received += len(rows)
            if not len(rows):
                continue
            good = self._contiguous(rows, consumer_seq)
            consumer_seq += good
            whole, exhausted = good == len(rows), not rows.pending[-1]
            rows = rows.select(slice(0, min(good, int(np.searchsorted(rows.stream_seq, self._span.last_seq, "right")))))
            beyond = len(rows) < good
            if len(rows):
                self._note_missing(rows)
                self._next = int(rows.stream_seq[-1]) + 1
                yield self._batch(buffer.data, rows)
            if beyond:
                self._next = max(self._next, self._span.last_seq + 1)
            elif not whole:
                raise _Interrupted("messages were lost on the way")
            elif exhausted:
                break

    def _contiguous(self, rows: Deliveries, consumer_seq: int) -> int:
        """Return how many rows, from the first, continue the previous ones without a hole."""
        expected = np.arange(consumer_seq + 1, consumer_seq + 1 + len(rows))
        good = (rows.consumer_seq == expected) & (rows.delivered == 1)
        good &= np.diff(rows.stream_seq, prepend=self._next - 1) > 0
        return len(rows) if good.all() else int(np.argmin(good))

    def _note_missing(self, rows: Rows) -> None:
        if self._missing_from is None:
            holes = np.flatnonzero(np.diff(rows.stream_seq, prepend=self._next - 1) > 1)
            if len(holes):
                at = int(holes[0])
                self._missing_from = self._next if at == 0 else int(rows.stream_seq[at - 1]) + 1

    def _batch(self, data: bytearray, rows: Rows) -> pa.RecordBatch:
        batch = columns.batch(
            data,
            rows,
            self._labels,
            with_headers=self._options.include_headers,
            header_columns=self._options.header_columns,
        )
        if self._filter_here:
            coded = batch.column("subject").dictionary_encode()
            wanted = [
                any(subject.matches(pattern.encode(), one.encode()) for pattern in self._options.subjects)
                for one in coded.dictionary.to_pylist()
            ]
            batch = batch.filter(pa.array(wanted, pa.bool_()).take(coded.indices))
        self.last_row = LastRow(int(rows.stream_seq[-1]), int(rows.stored_ns[-1]))
        self.rows += batch.num_rows
        self.bytes += int((rows.payload_end - rows.subject_start).sum())
        return batch

    def _check_missing(self) -> None:
        """Check whether messages that were not delivered were deleted (which is allowed), or expired before they were read."""
        missing = self._missing_from
        if missing is None and self._next <= self._span.last_seq:
            missing = self._next
        if missing is None:
            return
        with JetStream(self._options.connect, self._options.api_prefix) as jetstream:
            info = jetstream.stream_or_none(self._span.stream)
        if info is None or info.created != self._span.created:
            return
        if info.state.last_seq < self._span.last_seq:
            self._same_end(info)
            return
        if info.state.first_seq > missing:
            last = min(info.state.first_seq - 1, self._span.last_seq)
            self._lost(f"messages from {missing} to at most {last} of {self._span.stream} expired while they were read")

    def _lost(self, what: str) -> bool:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}; with the option failOnDataLoss=false reading goes on behind them")
        log.warning("%s; going on behind them (failOnDataLoss=false)", what)
        return False


class _ReadBuffer:
    """Received bytes that are not scanned yet; `data[begin:end]` begins at a frame."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._limit = frame_bytes_max + READ_BYTES
        self.data = bytearray(LEAD + READ_BYTES + TAIL)
        self.begin = self.end = LEAD

    def fill(self, connection: Connection) -> None:
        """Wait for bytes, then read what has arrived, up to the buffer's room."""
        rest = self.end - self.begin
        fresh = self.data
        if rest > len(self.data) // 2:
            if rest > self._limit:
                raise FrameError(f"a frame of more than {self._limit} bytes")
            fresh = bytearray(2 * len(self.data))
        fresh[LEAD : LEAD + rest] = self.data[self.begin : self.end]
        self.data, self.begin, self.end = fresh, LEAD, LEAD + rest
        with memoryview(self.data) as view:
            sock = connection.sock
            sock.settimeout(connection.options.timeout_s)
            try:
                self.end += _some(sock.recv_into(view[self.end : -TAIL]), connection)
                sock.setblocking(False)
                while self.end < len(view) - TAIL:
                    self.end += _some(sock.recv_into(view[self.end : -TAIL]), connection)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            except TimeoutError:
                raise NoAnswer(f"nothing came from {connection.peer}") from None
            except OSError as error:
                raise ConnectionFailed(f"the connection to {connection.peer} broke: {error}") from None


def _is_offer(answer: frames.Msg | None) -> bool:
    if answer is None or answer.header:
        return False
    try:
        return msgspec.json.decode(answer.payload, type=_Offer).version == packed_range.VERSION
    except msgspec.DecodeError:
        return False


class _Offer(msgspec.Struct):
    version: int = 0


def _some(count: int, connection: Connection) -> int:
    if not count:
        raise ConnectionFailed(f"{connection.peer} closed the connection")
    return count


class _Pull:
    """The pull requests of one consumer: at most two open, each for half of the bytes in flight.

    A larger message gets a request of its own: one message, whatever its size.
    """

    def __init__(self, connection: Connection, options: ReadOptions, span: StreamRange, info: ConsumerInfo) -> None:
        self.connection = connection
        self.info = info
        self._prefix = options.api_prefix
        self._stream = span.stream
        self._inbox = b"_INBOX.eyot.%b" % short_id(length=16).encode()
        self._next_subject = f"{options.api_prefix}.CONSUMER.MSG.NEXT.{span.stream}.{info.name}".encode()
        self._expires_ns = int(options.connect.timeout_s * NS_PER_S / 2)
        self._max_bytes = max(options.fetch_bytes // OPEN_REQUESTS, 1024)
        self._open: dict[bytes, int] = {}  # by reply subject: `received` at the time of the request
        self._asked = 0
        self._full_at = -1  # `received` when a message last did not fit into a request
        self._oversized = False  # the next message is larger than a request's limit
        self._single = b""  # the only open request, for such a message
        self.received = 0  # messages
        connection.settle()
        connection.send(frames.encode_sub(self._inbox + b".*", DATA_SID))

    @property
    def frame_bytes_max(self) -> int:
        return max(self.connection.info.max_payload, self._max_bytes)

    def ask(self, remaining: int) -> None:
        """Open requests for the rest of the range: two, or one when little is left."""
        if self._single and self._open.get(self._single) != self.received:
            # It delivered its message (which ends a request without a status), or ended.
            self._open.pop(self._single, None)
            self._single = b""
        if self._single or (self._oversized and self._open):
            return
        wanted = OPEN_REQUESTS if remaining > FEW_MESSAGES else 1
        out = []
        while len(self._open) < wanted and not self._single:
            self._asked += 1
            reply = b"%b.%d" % (self._inbox, self._asked)
            self._open[reply] = self.received
            body = {"batch": remaining, "max_bytes": self._max_bytes, "expires": self._expires_ns}
            if self._oversized:
                body = {"batch": 1, "expires": self._expires_ns}
                self._single, self._oversized = reply, False
            out.append(frames.encode_pub(self._next_subject, reply, b"", msgspec.json.encode(body)))
        if out:
            self.connection.send(b"".join(out))

    def take(self, frame: bytes, deliveries: int) -> None:
        """Handle a frame that is not a delivery: a status, or a message about the connection.

        `deliveries`: preceding deliveries of the read that are not counted yet.
        """
        try:
            ops = Scanner("client").feed(frame)
        except ProtocolError as error:
            raise ConnectionFailed(f"{self.connection.peer} does not speak the NATS protocol: {error}") from None
        for op in ops:
            if isinstance(op, frames.Msg):
                self._status(op, self.received + deliveries)
            else:
                self.connection.answer(op)

    def _status(self, message: frames.Msg, received: int) -> None:
        code, text = headers.status(message.header) or (0, "")
        if message.sid != DATA_SID or code == 100 or not code:
            return
        if text.lower() not in _REQUEST_ENDED:
            raise _Interrupted(f"the server ended the requests: {code} {text}")
        received_before = self._open.pop(message.subject, received)
        if code == 408 and received_before == received:
            # Not just slow: nothing came while the request was open, although messages were pending.
            raise _Interrupted("messages that were pending did not come")
        if text.lower() == "message size exceeds maxbytes":
            # Twice without a message in between: the next message is larger than a request's limit.
            self._oversized = self._full_at == received
            self._full_at = received

    def finish(self) -> None:
        """Remove the consumer, and read what is in flight, so that the server reads the removal."""
        deadline = time.monotonic() + DRAIN_S
        try:
            delete = f"{self._prefix}.CONSUMER.DELETE.{self._stream}.{self.info.name}".encode()
            self.connection.send(
                frames.encode_unsub(DATA_SID) + frames.encode_pub(delete, self._inbox + b".0") + frames.PING
            )
            tail = b""
            self.connection.sock.settimeout(DRAIN_S)
            while not tail.endswith(frames.PONG) and time.monotonic() < deadline:
                data = self.connection.sock.recv(READ_BYTES)
                if not data:
                    break
                tail = (tail + data)[-len(frames.PONG) :]
        except (ConnectionFailed, OSError):
            pass  # the server removes the consumer after INACTIVE_S of inactivity


__all__ = ["NoResponders", "RangeReader", "ReadOptions", "StreamRange"]
