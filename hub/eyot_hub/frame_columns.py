r"""Scans the MSG and HMSG frames of a whole read into columns, with numpy and slices instead of an object per message.

Frames of the client protocol are `MSG <subject> <sid> <reply> <size>\r\n<payload>\r\n` and `HMSG <subject> <sid>
<reply> <header size> <size>\r\n<header><payload>\r\n`.

1. The scan finds every line feed of the read. A line that begins with `MSG ` or `HMSG` is a candidate; the size at the
   end of its control line gives the frame's end. A payload may hold such a line, too, so the chain decides: a frame
   begins where the frame before it ends. Runs of candidates that agree with the chain are accepted together. Where they
   disagree (a PING between frames, a payload that looks like a frame), lines are checked one by one.
2. A JetStream delivery's reply is `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>`. Its numbers
   are read from the right, eight digits a step for all frames at once. The text before them must be ` <sid>
   $JS.ACK.<stream>.<consumer>.`; a frame where it is not (a status, another form of the reply) is parsed alone.
3. Arrow slices columns of bytes: an array whose offsets alternate between begin and end of each slice refers to the
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

LEAD: Final = 64  # numbers are read up to this many bytes left of their end: a read must start this deep in its buffer
TAIL: Final = 8  # eight-byte words may reach this far beyond the read

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
    """Received bytes that are not the client protocol."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """Messages of one read, in order; positions are offsets into the scanned buffer."""

    subject_start: Ints
    subject_end: Ints
    header_start: Ints
    header_end: Ints  # equal to its start: no header
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
    """Messages of one read with the numbers of their consumer."""

    delivered: Ints
    consumer_seq: Ints
    pending: Ints  # messages still to come, as counted by the server


@dataclass(slots=True)
class Scan:
    """The content of one read."""

    rows: Deliveries
    others: list[bytes]  # every other frame whole, in order: statuses, PING, INFO, -ERR
    before: list[int]  # for each of them, the number of rows before it
    end: int  # start of the first incomplete frame


def slices(data: pa.Buffer, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return the bytes `data[starts[i]:ends[i]]` as an Arrow array; slices must be in order and not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    borders = np.empty(2 * count, dtype=np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    overlay = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(borders), data])
    return overlay.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


def numbers_before(words: Words, ends: Ints) -> tuple[Ints, Ints]:
    """Read decimal numbers that end right before `ends`; return their values and digit counts (0: no number).

    `words[i]` is the little-endian word of the bytes i..i+7. Numbers of more than 19 digits do not count as numbers.
    """
    values = np.zeros(len(ends), dtype=np.int64)
    digits = np.zeros(len(ends), dtype=np.int64)
    at = ends
    while len(ends):
        word = words[at - 8] ^ _ASCII_ZEROS
        not_digit = (((word & _LOW_7_BITS) + _CARRY_ABOVE_9) | word) & _HIGH_BITS
        # The exponent of the float gives the highest byte that is not a digit.
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
        if not open_.any() or np.max(digits) > _MAX_DIGITS:
            break
        at = at - 8
    return values, digits


class FrameColumns:
    """Scans reads of one subscription to one consumer."""

    def __init__(self, sid: bytes, stream: bytes, consumer: bytes) -> None:
        self._before_reply = b" %b " % sid
        self._names = b".%b.%b." % (stream, consumer)
        # The text between subject and numbers. The v2 form also holds domain and account hash; the first delivery shows
        # it.
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
        """Return the deliveries among the frames, and add the positions of all other frames to `others`."""
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
        """Parse one frame alone into row `index`; return False unless it is a delivery of this consumer."""
        line = frame[: frame.index(b"\r\n")]
        tokens = line.split()
        sizes = 2 if tokens[0] == b"HMSG" else 1
        if len(tokens) != 4 + sizes or not all(bytes.isdigit(size) for size in tokens[-sizes:]):
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
    """The frames of a read that are on the chain."""

    words: Words
    starts: Ints
    line_ends: Ints  # position of the control line's carriage return
    headed: npt.NDArray[np.bool_]
    sizes: Ints
    size_digits: Ints

    @property
    def frame_ends(self) -> Ints:
        return self.line_ends + self.sizes + 4

    def rows(self, lead: int) -> Deliveries:
        """Read all frames as deliveries whose text between subject and numbers has `lead` bytes."""
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
    """Follow the chain of frames from `begin`; return the candidates on it, other lines on it, and its end."""
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
            if ends[last] > end:  # only the last frame of a run can end beyond `end`
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
