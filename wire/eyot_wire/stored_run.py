"""A run of stored messages on its way to a subscriber, in plain Python: records in, frames out.

A consumer's plain deliveries are copies: subject, header and payload leave as they are stored, between ascending
numbers. A range of a stream is therefore gathered as unparsed records and written as the frames of one subscriber. The
compiled twin (`_stored_run.pyx`) makes no object and runs no Python code per message. This module runs without a
compiler, and tests compare both.

A record is a MessagePack array `[ts_ns, subject, header, payload]`; the bytes after it (usually a checksum) are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import accumulate
from typing import Final, NamedTuple
from zlib import crc32

#: The CRC-32 of any data followed by its own CRC-32 in little-endian order.
CRC_RESIDUE: Final = 0x2144DF1C
#: Subjects whose answer `matching` remembers.
KNOWN_SUBJECTS_MAX: Final = 4096
#: Bytes that `packed` adds to each message's array.
PACKED_COST: Final = 12

_ARRAY_OF_4: Final = 0x94
_COMMON_BEGINNING: Final = b"\x94\xcf"
_UNSIGNED: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_BINARY: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TS_MAX: Final = (1 << 63) - 1


class _Stored(NamedTuple):
    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes
    record: bytes
    end: int  # of the array in `record`


class StoredRun:
    """Stored messages in ascending order. Indexes count from 0; ranges exclude `stop`.

    `cost`: bytes that each record counts for besides its own.
    """

    __slots__ = ("_cost", "_rows", "_size")

    def __init__(self, cost: int = 0) -> None:
        self._rows: list[_Stored] = []
        self._cost = cost
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that all gathered records count for, dropped ones included."""
        return self._size

    def __len__(self) -> int:
        return len(self._rows)

    # -- taking up -----------------------------------------------------------------------------------------------------

    def gather(self, pairs: Iterable[tuple[bytes, bytes]], last: int, count: int, room: int, salt: int = -1) -> int:
        """Append records from `pairs` (key: the sequence, 8 bytes big-endian; value: the record), which ascend.

        Stops after `count` records (at least one), before the record with which the total would exceed `room` bytes
        (the first record is always appended), after sequence `last`, or before a damaged record: one without a record's
        shape, or, with a `salt`, one where CRC-32 started with `salt` over key and value does not give CRC_RESIDUE.

        Returns the sequence to continue at; 0 when `pairs` held nothing more up to `last`. If nothing was appended and
        the result is not 0, the record there is damaged.
        """
        rows = self._rows
        begun, cost = len(rows), self._cost
        for key, value in pairs:
            if len(key) != 8:
                raise ValueError("a key is not a sequence")
            seq = int.from_bytes(key, "big")
            if seq > last:
                return 0
            room -= len(value) + cost
            if room < 0 and len(rows) > begun:
                return seq
            fields = None
            if salt < 0 or crc32(value, crc32(key, salt)) == CRC_RESIDUE:
                fields = _fields_of(value)
            if fields is None:
                return seq
            rows.append(_Stored(seq, *fields[:4], value, fields[4]))
            self._size += len(value) + cost
            if len(rows) - begun >= count:
                return seq + 1
        return 0

    def without(self, seqs: Collection[int], start: int) -> None:
        """Drop the messages at `seqs` from index `start` on."""
        self._rows[start:] = [row for row in self._rows[start:] if row.seq not in seqs]

    def matching(self, wanted: Callable[[bytes], bool], known: dict[bytes, bool], start: int) -> None:
        """Keep, from index `start` on, only messages whose subject is wanted; `known`: remembered answers of the caller."""
        rows = self._rows
        kept = []
        for row in rows[start:]:
            answer = known.get(row.subject)
            if answer is None:
                answer = bool(wanted(row.subject))
                if len(known) >= KNOWN_SUBJECTS_MAX:
                    known.clear()
                known[row.subject] = answer
            if answer:
                kept.append(row)
        rows[start:] = kept

    def cut(self, count: int) -> None:
        """Keep the first `count` messages."""
        if count < 0:
            raise IndexError(count)
        del self._rows[count:]

    # -- what is in it -------------------------------------------------------------------------------------------------

    def seq(self, index: int) -> int:
        """Return the sequence of a message."""
        if not 0 <= index < len(self._rows):
            raise IndexError(index)
        return self._rows[index].seq

    def seqs(self) -> list[int]:
        """Return the sequences of all messages."""
        return [row.seq for row in self._rows]

    def sizes(self, extra: int) -> list[int]:
        """Return running totals of the messages' sizes in bytes: subject, header, payload and `extra` each."""
        return list(accumulate(len(row.subject) + len(row.header) + len(row.payload) + extra for row in self._rows))

    def delivery_sizes(self, prefix: bytes, cseq: int, pending: int) -> list[int]:
        """Return each message's size as a first delivery, bytes: subject, reply subject (see `write_msgs`), header and payload."""
        lead = len(prefix) + len(b"1....")
        return [
            len(row.subject)
            + len(row.header)
            + len(row.payload)
            + lead
            + len(b"%d%d%d%d" % (row.seq, cseq + at, row.ts_ns, pending - at - 1))
            for at, row in enumerate(self._rows)
        ]

    @property
    def packed_size(self) -> int:
        """Return the number of bytes that `packed` returns."""
        return sum(PACKED_COST + row.end for row in self._rows)

    def packed(self) -> bytes:
        """Return all messages as one payload (see `packed_range.py`).

        Sequences (8 bytes each, big-endian), lengths (4, little-endian), and the stored arrays without the bytes after
        them.
        """
        rows = self._rows
        keys = [row.seq.to_bytes(8, "big") for row in rows]
        lengths = [row.end.to_bytes(4, "little") for row in rows]
        return b"".join((*keys, *lengths, *(row.record[: row.end] for row in rows)))

    # -- frames --------------------------------------------------------------------------------------------------------

    def write_msgs(
        self, out: bytearray, start: int, stop: int, sid: bytes, prefix: bytes, cseq: int, pending: int
    ) -> int:
        """Append the messages' frames for a client, as first deliveries of a consumer: MSG, or HMSG with a header.

        The reply subject is `<prefix>1.<sseq>.<cseq>.<ts_ns>.<pending>`; `cseq` belongs to the first message, `pending`
        is the count before it. Returns the bytes of header and payload.
        """
        size = 0
        frames = []
        for row in self._chosen(start, stop):
            pending -= 1
            reply = b"%b1.%d.%d.%d.%d" % (prefix, row.seq, cseq, row.ts_ns, pending)
            cseq += 1
            total = len(row.header) + len(row.payload)
            size += total
            if row.header:
                frames.append(
                    b"HMSG %b %b %b %d %d\r\n%b%b\r\n"
                    % (row.subject, sid, reply, len(row.header), total, row.header, row.payload)
                )
            else:
                frames.append(b"MSG %b %b %b %d\r\n%b\r\n" % (row.subject, sid, reply, total, row.payload))
        out += b"".join(frames)
        return size

    def write_lmsgs(
        self,
        start: int,
        stop: int,
        subject: bytes,
        prefix: bytes,
        cseq: int,
        pending: int,
        size_max: int,
        chunk_bytes: int,
    ) -> list[tuple[bytes, int, int]]:
        """Return the same deliveries as frames for a leaf link: LMSG or HMSG on `subject`.

        In the reply, the message's own subject follows an `@`. Returns chunks of whole frames: their bytes, their
        number, and the bytes of header and payload in them. A chunk exceeds `chunk_bytes` only as a single frame.
        Messages of more than `size_max` bytes are left out, though counted in `cseq` and `pending`.
        """
        chunks: list[tuple[bytes, int, int]] = []
        frames: list[bytes] = []
        length = size = 0
        for row in self._chosen(start, stop):
            pending -= 1
            reply = b"%b1.%d.%d.%d.%d@%b" % (prefix, row.seq, cseq, row.ts_ns, pending, row.subject)
            cseq += 1
            total = len(row.header) + len(row.payload)
            if total > size_max:
                continue
            if row.header:
                sizes = b"HMSG %b %b %d %d\r\n%b%b\r\n"
                frame = sizes % (subject, reply, len(row.header), total, row.header, row.payload)
            else:
                frame = b"LMSG %b %b %d\r\n%b\r\n" % (subject, reply, total, row.payload)
            if frames and length + len(frame) > chunk_bytes:
                chunks.append((b"".join(frames), len(frames), size))
                frames, length, size = [], 0, 0
            frames.append(frame)
            length += len(frame)
            size += total
        if frames:
            chunks.append((b"".join(frames), len(frames), size))
        return chunks

    def header_holds(self, start: int, stop: int, text: bytes) -> bool:
        """Return whether the header of one of the messages contains `text`."""
        return any(text in row.header for row in self._chosen(start, stop))

    def opened(self, start: int, stop: int) -> list[tuple[int, int, bytes, bytes, bytes]]:
        """Return sequence, time in ns, subject, header and payload of each message."""
        return [(row.seq, row.ts_ns, row.subject, row.header, row.payload) for row in self._chosen(start, stop)]

    def _chosen(self, start: int, stop: int) -> list[_Stored]:
        if not 0 <= start <= stop <= len(self._rows):
            raise IndexError((start, stop))
        return self._rows[start:stop]


def _fields_of(record: bytes) -> tuple[int, bytes, bytes, bytes, int] | None:
    """Return the fields of a record and the end of its array; None without a record's shape."""
    if not record or record[0] != _ARRAY_OF_4:
        return None
    if record.startswith(_COMMON_BEGINNING) and len(record) > 13 and record[2] < 0x80 and record[10] == 0xC4:
        # The common case: a present time and a short subject, then mostly a short header and payload.
        end = 12 + record[11]
        if len(record) > end + 1 and record[end] == 0xC4:
            header = end + 2 + record[end + 1]
            if len(record) > header + 1 and record[header] == 0xC4 and len(record) >= header + 2 + record[header + 1]:
                payload = header + 2 + record[header + 1]
                ts_ns = int.from_bytes(record[2:10], "big")
                return ts_ns, record[12:end], record[end + 2 : header], record[header + 2 : payload], payload
    found_ts_ns, at = _integer(record, 1)
    if found_ts_ns is None:
        return None
    found = []
    for _ in range(3):
        width = _BINARY.get(record[at]) if at < len(record) else None
        if width is None or at + 1 + width > len(record):
            return None
        size = int.from_bytes(record[at + 1 : at + 1 + width], "big")
        at += 1 + width
        if at + size > len(record):
            return None
        found.append(record[at : at + size])
        at += size
    return found_ts_ns, found[0], found[1], found[2], at


def _integer(record: bytes, at: int) -> tuple[int | None, int]:
    """Return the integer at `at` and its end; None unless it is an integer of 64 bits with sign."""
    if at >= len(record):
        return None, at
    kind = record[at]
    if kind < 0x80 or kind >= 0xE0:
        return (kind if kind < 0x80 else kind - 256), at + 1
    width = _UNSIGNED.get(kind) or _SIGNED.get(kind)
    end = at + 1 + (width or 0)
    if width is None or end > len(record):
        return None, at
    value = int.from_bytes(record[at + 1 : end], "big", signed=kind in _SIGNED)
    return (value if value <= _TS_MAX else None), end
