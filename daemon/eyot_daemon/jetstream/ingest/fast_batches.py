"""Fast batch publishing (2.14, ADR-50): a publisher streams messages, and receives their progress now and then.

A message's role in its batch is in its reply subject:

    <prefix>.<batch>.<flow>.<ok|fail>.<sequence>.<operation>.$FI

Operations: 0 begin, 1 append, 2 the last message, 3 the end (not stored), 4 a query. `flow`: how many messages may be
unacknowledged. A gap or a refused message ends a `fail` batch; an `ok` batch continues. Every answer leaves after the
transaction that it describes. A service import replaces the reply subject, and names it in `Nats-Request-Info`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eyot_daemon.jetstream.ingest.atomic_batches import ID_LENGTH_MAX, BatchBudget
from eyot_daemon.jetstream.ingest.idle_batches import IdleBatches
from eyot_daemon.jetstream.nats_headers import REQUEST_INFO, level_is_offered
from eyot_daemon.router.service_replies import REPLY_PREFIX
from eyot_wire import headers
from eyot_wire.jetstream.ack import FAST_BATCH_END
from eyot_wire.jetstream.error_codes import (
    JSBatchPublishInvalidBatchIDErr,
    JSBatchPublishInvalidPatternErr,
    JSBatchPublishTooManyInflight,
    JSBatchPublishUnknownBatchIDErr,
    JSRequiredApiLevelErr,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import encode
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_wire.frames import Published

MARK = FAST_BATCH_END
FLOW_DEFAULT = 10
#: Most messages that a stream's batches leave unacknowledged together, even where publishers ask for more.
FLOW_MAX = 500
_UINT16_MAX = 65_535

BEGIN, APPEND, COMMIT, END, PING = range(5)


class FastReply(NamedTuple):
    """A parsed reply subject of a message in a fast batch."""

    batch: bytes
    flow: int
    goes_on: bool
    seq: int
    op: int


class _Ack(msgspec.Struct, tag_field="type", tag="ack"):
    seq: int
    msgs: int


class _Gap(msgspec.Struct, tag_field="type", tag="gap"):
    last_seq: int
    seq: int


class _Err(msgspec.Struct, tag_field="type", tag="err"):
    seq: int
    error: ApiError


class Duplicate(NamedTuple):
    """The message was stored before, at `seq`."""

    seq: int


class _OpenBatch:
    """An open batch.

    `last`: the last accepted number. `settled`: the last number that is stored, now or before. `stored`: stream
    sequence of the last stored message (0: none). `flow`: messages that may be unacknowledged at present, at most
    `flow_max`, the publisher's limit.
    """

    __slots__ = ("acked", "flow", "flow_max", "goes_on", "heard_at", "last", "settled", "stored")

    def __init__(self, asked: FastReply, *, alone: bool) -> None:
        self.goes_on = asked.goes_on
        self.flow_max = asked.flow
        # One of several begins slowly.
        self.flow = min(FLOW_MAX, asked.flow) if alone else 1
        self.last = 0
        self.settled = 0
        self.acked = 0
        self.stored = 0
        self.heard_at = 0.0


#: Stages a message; returns its sequence, or why it is refused.
Store = Callable[["Published"], int | Duplicate | ApiError]


class _Requester(msgspec.Struct):
    reply: str = ""


def reply_of(message: "Published") -> bytes:
    """Return the reply subject that describes a message of a fast batch; b"": it is in none."""
    reply = message.reply
    if reply.endswith(MARK):
        return reply
    if not reply.startswith(REPLY_PREFIX) or REQUEST_INFO not in message.header:
        return b""
    try:
        said = decode_json(headers.get(message.header, REQUEST_INFO) or b"", _Requester).reply.encode()
    except msgspec.DecodeError:
        return b""
    return said if said.endswith(MARK) else b""


def parse_reply(reply: bytes) -> FastReply | None:
    """None: it does not follow the pattern."""
    tokens = reply.split(b".")
    if len(tokens) < 7 or tokens[-4] not in (b"ok", b"fail"):
        return None
    batch, flow, gap, seq, op = tokens[-6:-1]
    if not (bytes.isdigit(seq) and len(seq) < 20 and op in (b"0", b"1", b"2", b"3", b"4")) or seq.strip(b"0") == b"":
        return None
    number, operation = int(seq), int(op)
    if (operation == BEGIN and number != 1) or (operation in (APPEND, END) and number == 1):
        return None
    wanted = int(flow) if bytes.isdigit(flow) and len(flow) < 20 else 0
    return FastReply(batch, min(wanted or FLOW_DEFAULT, _UINT16_MAX), gap == b"ok", number, operation)


class FastBatches:
    """The open batches of one stream."""

    def __init__(self, stream: "StreamCore", budget: BatchBudget) -> None:
        self._stream = stream
        self._budget = budget
        self._open: dict[bytes, _OpenBatch] = {}
        self._idle = IdleBatches(stream, self._open, self._close)

    def __len__(self) -> int:
        return len(self._open)

    def take(self, message: "Published", reply: bytes, store: Store) -> list[bytes] | ApiError:
        """Take the next message of a batch, which `reply` describes; return the answers to it, in order, or why nothing was done."""
        asked = parse_reply(reply)
        if asked is None:
            return error(JSBatchPublishInvalidPatternErr)
        if len(asked.batch) > ID_LENGTH_MAX:
            return error(JSBatchPublishInvalidBatchIDErr)
        batch = self._open.get(asked.batch)
        if batch is None:
            if asked.seq != 1:
                return error(JSBatchPublishUnknownBatchIDErr)
            if not self._budget.begin_fast():
                return error(JSBatchPublishTooManyInflight)
            batch = self._open[asked.batch] = _OpenBatch(asked, alone=not self._open)
        if message.header and not level_is_offered(message.header):
            self._close(asked.batch)
            return error(JSRequiredApiLevelErr)
        self._idle.heard(batch)
        if asked.op == PING:
            return self._ping(batch, asked)
        return self._next(batch, asked, message, store)

    def drop_all(self) -> None:
        """Drop all batches: the stream stops, no longer accepts batches, or cannot store. Publishers find them unknown."""
        for batch_id in list(self._open):
            self._close(batch_id)
        self._idle.stop()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ping(self, batch: _OpenBatch, asked: FastReply) -> list[bytes]:
        """Return a question how far the batch is; the messages up to its number have been sent."""
        answers: list[bytes] = []
        if asked.seq > batch.last:
            answers.append(encode(_Gap(batch.last + 1, asked.seq + 1)))
            if not batch.goes_on:
                return [*answers, self._end(asked.batch, batch)]
            batch.last = batch.settled = asked.seq
            if self._tell_progress(batch, answers):
                return answers
        return [*answers, encode(_Ack(batch.acked, batch.flow))]

    def _next(self, batch: _OpenBatch, asked: FastReply, message: "Published", store: Store) -> list[bytes]:
        answers: list[bytes] = []
        if asked.seq != batch.last + 1:
            ahead = asked.seq > batch.last
            if ahead:
                answers.append(encode(_Gap(batch.last + 1, asked.seq)))
            if not (ahead and batch.goes_on):
                # A gap, a restart or a repetition: what the batch has sent so far is all there is.
                return [*answers, self._end(asked.batch, batch)]
        batch.last = asked.seq
        if asked.op == END:
            batch.last = asked.seq - 1
            return [*answers, self._end(asked.batch, batch)]
        # As in nats-server: with `no_ack` the first acknowledgement is left out, and later ones are sent.
        if asked.seq == 1 and asked.op != COMMIT and not self._stream.config.no_ack:
            answers.append(encode(_Ack(0, batch.flow)))
        stored = store(message)
        if isinstance(stored, Duplicate):
            return answers + self._repeated(batch, asked, stored.seq)
        if isinstance(stored, ApiError):
            return answers + self._refused(batch, asked, stored)
        batch.stored, batch.settled = stored, batch.last
        if asked.op == COMMIT:
            return [*answers, self._end(asked.batch, batch)]
        self._tell_progress(batch, answers)
        return answers

    def _repeated(self, batch: _OpenBatch, asked: FastReply, seq: int) -> list[bytes]:
        """Skip a message that the stream already holds. The answer to a batch of nothing else names the held message's sequence."""
        answers: list[bytes] = []
        batch.settled = asked.seq
        self._tell_progress(batch, answers)
        if asked.op != COMMIT:
            return answers
        if not asked.goes_on and batch.last == 1:
            self._close(asked.batch)
            name = encode(asked.batch.decode("utf-8", "replace"))
            tail = b'%d,"duplicate": true,"batch":%b,"count":%d}' % (seq, name, asked.seq)
            return [*answers, self._stream.ack_head + tail]
        return [*answers, self._end(asked.batch, batch)]

    def _refused(self, batch: _OpenBatch, asked: FastReply, refusal: ApiError) -> list[bytes]:
        self._stream.reject(refusal)
        if not asked.goes_on and batch.last == 1:
            self._close(asked.batch)
            return [self._stream.refusal(refusal)]
        told = encode(_Err(asked.seq, refusal))
        if asked.goes_on and asked.op != COMMIT:
            return [told]
        batch.last -= 1
        return [told, self._end(asked.batch, batch)]

    def _tell_progress(self, batch: _OpenBatch, answers: list[bytes]) -> bool:
        """Say how far the batch is settled, if that is `flow` messages further than was said last.

        The flow doubles or halves towards the batch's share.
        """
        steps = (batch.settled - batch.acked) // batch.flow
        if steps <= 0:
            return False
        batch.acked += steps * batch.flow
        share = min(max(FLOW_MAX // len(self._open), 1), batch.flow_max)
        batch.flow = min(batch.flow * 2, share) if batch.flow < share else max(batch.flow // 2, share)
        answers.append(encode(_Ack(batch.acked, batch.flow)))
        return True

    def _end(self, batch_id: bytes, batch: _OpenBatch) -> bytes:
        """End a batch; return its PubAck."""
        self._close(batch_id)
        name = encode(batch_id.decode("utf-8", "replace"))
        return self._stream.ack_head + b'%d,"batch":%b,"count":%d}' % (batch.stored, name, batch.last)

    def _close(self, batch_id: bytes) -> None:
        if self._open.pop(batch_id, None) is not None:
            self._budget.end_fast()
