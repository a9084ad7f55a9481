"""Scans the MSG and HMSG frames of a whole read into columns, with numpy and slices instead of an object per message.

How it works. Frames of the client protocol are `MSG <subject> <sid> <reply> <size>\\r\\n<payload>\\r\\n` and
`HMSG <subject> <sid> <reply> <header size> <size>\\r\\n<header><payload>\\r\\n`.

1. Every line feed of the read is found; a line that begins with `MSG ` or `HMSG` may be a frame. Its size, read from the
   end of its control line, says where the frame ends. A payload may hold such a line too, so the truth is the chain: a
   frame begins where the frame before it ends. Runs of candidates that agree with the chain are taken whole; only where
   they do not agree (a PING between frames, a payload that looks like a frame) is a line looked at by itself.
2. A JetStream delivery's reply is `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>`. Its numbers are
   read from the right, eight digits a step for all frames at once. What is left before them must be the one known text
   ` <sid> $JS.ACK.<stream>.<consumer>.`; a frame where it is not (a status, another form of the reply) is parsed alone.
3. Columns of bytes are cut out by Arrow: an array whose offsets are begin and end of each slice in turn is laid over the
   read without a copy, and `take` of its even elements copies the slices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eyot_wire.jetstream.ack import decode_ack_reply

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]

LEAD: Final = 64  # numbers are read up to so many bytes left of their end: a read must lie this deep in its buffer
TAIL: Final = 8  # and eight-byte words may reach so far beyond it

_LF: Final = np.uint8(10)
_MSG: Final = int.from_bytes(b"MSG ", "little")
_HMSG: Final = int.from_bytes(b"HMSG", "little")
_ASCII_ZEROS: Final = np.uint64(0x3030303030303030)
_LOW_7_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_CARRY_ABOVE_9: Final = np.uint64(0x7676767676767676)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LAST_BYTES: Final = np.array([((1 << (8 * n)) - 1) << (64 - 8 * n) for n in range(9)], dtype=np.uint64)
_TENS: Final = np.array([10**n for n in range(19)] + [0] * 8, dtype=np.int64)
_MAX_DIGITS: Final = 19
_INT64_MAX: Final = 2**63 - 1
# Steps that fold eight decimal digits, one a byte, into one number: pairs, then fours, then all eight.
_FOLDS: Final = (
    (np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(2561), np.uint64(8)),
    (np.uint64(0x00FF00FF00FF00FF), np.uint64(6553601), np.uint64(16)),
    (np.uint64(0x0000FFFF0000FFFF), np.uint64(42949672960001), np.uint64(32)),
)


class FrameError(ValueError):
    """What was received is not the client protocol."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """Messages of one read, in order; positions are offsets into the scanned buffer."""

    subject_start: Ints
    subject_end: Ints
    header_start: Ints
    header_end: Ints  # where it starts: there is none
    payload_start: Ints
    payload_end: Ints
    stream_seq: Ints
    stored_ns: Ints

    def __len__(self) -> int:
        return len(self.stream_seq)

    def select(self, choice: slice | npt.NDArray[np.bool_]) -> Self:
        return type(self)(**{field.name: getattr(self, field.name)[choice] for field in fields(self)})


@dataclass(slots=True, kw_only=True)
class Deliveries(Rows):
    """The same from a consumer."""

    delivered: Ints
    consumer_seq: Ints
    pending: Ints  # messages still to come, as the server saw it


@dataclass(slots=True)
class Scan:
    """What one read held."""

    rows: Deliveries
    others: list[bytes]  # every other frame whole, as received and in order: statuses, PING, INFO, -ERR
    before: list[int]  # how many of the rows came before each of them
    end: int  # where the first frame lies that is not complete yet


def slices(data: pa.Buffer, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """The bytes `data[starts[i]:ends[i]]` as an Arrow array; slices must be in order and not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    borders = np.empty(2 * count, dtype=np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    overlay = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(borders), data])
    return overlay.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


def numbers_before(words: Words, ends: Ints) -> tuple[Ints, Ints]:
    """Decimal numbers that end right before `ends`: their values and how many digits they have (0: none there).

    `words[i]` is the little-endian word of the bytes i..i+7. Numbers of more than 19 digits are not numbers here.
    """
    values = np.zeros(len(ends), dtype=np.int64)
    digits = np.zeros(len(ends), dtype=np.int64)
    at = ends
    while len(ends):
        word = words[at - 8] ^ _ASCII_ZEROS
        not_digit = (((word & _LOW_7_BITS) + _CARRY_ABOVE_9) | word) & _HIGH_BITS
        # The exponent of the float tells the highest byte that is no digit.
        exponent = np.frexp(not_digit.astype(np.float64))[1]
        here = 8 - (exponent >> 3)
        word &= _LAST_BYTES[here]
        for mask, factor, shift in _FOLDS:
            word = ((word & mask) * factor) >> shift
        part = word.astype(np.int64)
        if at is ends:
            values, digits, open_ = part, here.astype(np.int64), here == 8
        else:
            values = values + np.where(open_, part * _TENS[digits], 0)
            digits = digits + np.where(open_, here, 0)
            open_ &= here == 8
        if not open_.any() or digits.max() > _MAX_DIGITS:
            break
        at = at - 8
    return values, digits


class FrameColumns:
    """Scans reads that belong to one subscription on one consumer."""

    def __init__(self, sid: bytes, stream: bytes, consumer: bytes) -> None:
        self._before_reply = b" %b " % sid
        self._names = b".%b.%b." % (stream, consumer)
        # The text between subject and numbers; the v2 form has domain and account hash in it and is learnt when seen.
        self._lead = b" %b $JS.ACK.%b.%b." % (sid, stream, consumer)

    def scan(self, buffer: bytearray, begin: int, end: int) -> Scan:
        """Scan `buffer[begin:end]`, which begins at a frame; `begin >= LEAD` and `len(buffer) >= end + TAIL`."""
        octets = np.frombuffer(buffer, dtype=np.uint8)
        words: Words = np.ndarray((len(octets) - 7,), "<u8", octets, 0, (1,))
        feeds = np.flatnonzero(octets[begin:end] == _LF) + begin
        lines = np.concatenate((np.array([begin], dtype=np.int64), feeds[:-1] + 1)) if len(feeds) else feeds
        quads: npt.NDArray[np.uint32] = np.ndarray((len(octets) - 3,), "<u4", octets, 0, (1,))
        opening = quads[lines]
        headed = opening == _HMSG
        which = np.flatnonzero(headed | (opening == _MSG))
        starts, line_ends, headed = lines[which], feeds[which] - 1, headed[which]
        sizes, size_digits = numbers_before(words, line_ends)
        frame_ends = line_ends + sizes + 4
        chosen, spots, stop = _follow(buffer, begin, end, starts, frame_ends, size_digits > 0)
        frames = _Frames(words, starts[chosen], line_ends[chosen], headed[chosen], sizes[chosen], size_digits[chosen])
        rows = self._deliveries(buffer, frames, spots)
        spots.sort()
        before = np.searchsorted(rows.payload_start, [at for at, _ in spots]).tolist() if spots else []
        return Scan(rows, [bytes(memoryview(buffer)[a:b]) for a, b in spots], before, stop)

    def _deliveries(self, buffer: bytearray, frames: _Frames, others: list[tuple[int, int]]) -> Deliveries:
        """The deliveries among the frames; where the others are is added to `others`."""
        rows = frames.rows(len(self._lead))
        leads: npt.NDArray[np.bytes_] = np.ndarray(
            (len(buffer) - len(self._lead) + 1,), f"S{len(self._lead)}", buffer, 0, (1,)
        )
        good = (leads[rows.subject_end] == self._lead) & (frames.starts < rows.subject_start)
        good &= rows.subject_start < rows.subject_end
        if good.all():
            return rows
        for index in np.flatnonzero(~good).tolist():
            place = int(frames.starts[index]), int(frames.frame_ends[index])
            frame = bytes(memoryview(buffer)[place[0] : place[1]])
            if self._one(rows, index, frame, int(frames.starts[index])):
                good[index] = True
            else:
                others.append(place)
        return rows.select(good)

    def _one(self, rows: Deliveries, index: int, frame: bytes, start: int) -> bool:
        """Parse one frame alone into row `index`; False when it is no delivery of this consumer."""
        line = frame[: frame.index(b"\r\n")]
        tokens = line.split()
        sizes = 2 if tokens[0] == b"HMSG" else 1
        if len(tokens) != 4 + sizes or not all(size.isdigit() for size in tokens[-sizes:]):
            return False
        _, subject, _, reply = tokens[:4]
        ack = decode_ack_reply(reply)
        if ack is None or self._names != b".%b.%b." % (ack.stream, ack.consumer):
            return False
        if max(ack.delivered, ack.stream_seq, ack.consumer_seq, ack.ts_ns, ack.pending) > _INT64_MAX:
            return False
        parts = reply.split(b".")
        if len(parts) == 11:
            self._lead = self._before_reply + b".".join(parts[:6]) + b"."
        rows.subject_start[index] = start + line.index(subject, 4)
        rows.subject_end[index] = rows.subject_start[index] + len(subject)
        total = int(tokens[-1])
        rows.header_start[index] = start + len(line) + 2
        rows.payload_start[index] = rows.header_start[index] + (int(tokens[-2]) if sizes == 2 else 0)
        rows.header_end[index] = rows.payload_start[index]
        rows.payload_end[index] = rows.header_start[index] + total
        rows.delivered[index] = ack.delivered
        rows.stream_seq[index] = ack.stream_seq
        rows.consumer_seq[index] = ack.consumer_seq
        rows.stored_ns[index] = ack.ts_ns
        rows.pending[index] = ack.pending
        return True


@dataclass(slots=True)
class _Frames:
    """The frames of a read that lie on the chain."""

    words: Words
    starts: Ints
    line_ends: Ints  # the carriage return of the control line
    headed: npt.NDArray[np.bool_]
    sizes: Ints
    size_digits: Ints

    @property
    def frame_ends(self) -> Ints:
        return self.line_ends + self.sizes + 4

    def rows(self, lead: int) -> Deliveries:
        """All frames as if each were a delivery whose text between subject and numbers has `lead` bytes."""
        before_size = self.line_ends - self.size_digits - 1
        header_sizes = np.zeros_like(self.sizes)
        if self.headed.any():
            header_sizes, header_digits = numbers_before(self.words, before_size)
            header_sizes = np.where(self.headed, header_sizes, 0)
            before_size = before_size - np.where(self.headed, header_digits + 1, 0)
        numbers = []
        at = before_size
        for _ in range(5):
            values, digits = numbers_before(self.words, at)
            numbers.append(values)
            at = at - digits - 1
        pending, stored_ns, consumer_seq, stream_seq, delivered = numbers
        body = self.line_ends + 2
        return Deliveries(
            subject_start=self.starts + np.where(self.headed, 5, 4),
            subject_end=np.maximum(at + 1 - lead, 0),
            header_start=body,
            header_end=body + header_sizes,
            payload_start=body + header_sizes,
            payload_end=body + self.sizes,
            delivered=delivered,
            stream_seq=stream_seq,
            consumer_seq=consumer_seq,
            stored_ns=stored_ns,
            pending=pending,
        )


def _follow(
    buffer: bytearray, begin: int, end: int, starts: Ints, ends: Ints, whole: npt.NDArray[np.bool_]
) -> tuple[Ints, list[tuple[int, int]], int]:
    """Follow the chain of frames from `begin`: which candidates are on it, other lines on it, where it stops."""
    count = len(starts)
    breaks = np.flatnonzero(ends[:-1] != starts[1:]) if count else np.zeros(0, dtype=np.int64)
    runs: list[Ints] = []
    spots: list[tuple[int, int]] = []
    at, upcoming = begin, 0
    while at < end:
        upcoming += int(np.searchsorted(starts[upcoming:], at))
        if upcoming < count and starts[upcoming] == at:
            turn = int(np.searchsorted(breaks, upcoming))
            last = int(breaks[turn]) if turn < len(breaks) else count - 1
            if not whole[upcoming : last + 1].all():
                raise FrameError("a control line does not end in a size")
            if ends[last] > end:  # only the last of a run can be
                runs.append(np.arange(upcoming, last))
                at = int(starts[last])
                break
            runs.append(np.arange(upcoming, last + 1))
            at, upcoming = int(ends[last]), last + 1
            continue
        feed = buffer.find(b"\n", at, end)
        if feed < 0:
            break
        spots.append((at, feed + 1))
        at = feed + 1
    chosen = np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    return chosen, spots, at
