"""Runs of records, in plain Python: scanning messages, encoding a run of them, and counting its bytes.

`_record_run.pyx` is the compiled twin. This module runs without a compiler, and tests compare both (see `native.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from eyot_store.records.record import (
    CRC_RESIDUE,
    CRC_SIZE,
    LARGE_RECORD,
    decode_body,
    encode_body,
    pack_crc,
    pack_u64,
    seq_of,
)

Message = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header, payload."""

Weighed = tuple[int, bytes, int]
"""A message's sequence, subject, and the bytes that it counts for."""

Buffer = bytes | memoryview

Opened = Callable[[bytes, Buffer], bytes | None]
"""(key, sealed record) to its body; None if it cannot be opened."""


def checksum(data: Buffer, before: int = 0) -> int:
    """Return the CRC-32 (zlib's) of `data`, continued from that of what is before it."""
    return crc32(data, before)


class FastPathRules(NamedTuple):
    """Rules for messages of which only sizes, an id, and expectations matter."""

    size_max: int
    """Largest size of header and payload together, bytes."""
    header_max: int
    reply_end: bytes
    """Messages whose reply ends with this are not for the fast path."""
    special: bytes
    """Beginning of header fields with an effect, line end included; only those in `fields` are for the fast path."""
    fields: tuple[bytes, bytes, bytes, bytes, bytes]
    """Header fields of the fast path, each with line end, name and colon: the id; the expected stream, last sequence, last sequence of
    the subject, and last id."""
    stream: bytes
    """The stream's name, which an expected stream must equal."""
    cost: int
    """Counted bytes of each message beyond its own bytes."""
    header_cost: int
    """Counted bytes of each header beyond its own bytes."""


Expected = tuple[int, int, int, bytes]
"""Place of a message in its run, what it expects as the last sequence and as the last one of its subject (-1: anything), and as the id of
the last message (b"": anything)."""

_DIGITS_MAX = 18


def encode_run(
    messages: Sequence[Message],
    seq: int,
    ts_ns: int,
    salt: int,
    cost: int,
    header_cost: int,
    items: list[tuple[bytes, bytes]],
    times: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Encode messages as records from `seq` and `ts_ns` on, each 1 ns after the previous one, or stored at `times`.

    Appends (key, record) to `items`. Returns the counted bytes (their own, `cost` each, and `header_cost` each with a
    header) and the bytes of the records.
    """
    counted = written = 0
    for at, (subject, _, header, payload) in enumerate(messages):
        key = pack_u64(seq + at)
        body = encode_body((ts_ns + at if times is None else times[at], subject, header, payload))
        record = body + pack_crc(crc32(body, crc32(key, salt)))
        items.append((key, record))
        written += len(record)
        counted += len(subject) + len(header) + len(payload) + cost + (header_cost if header else 0)
    return counted, written


def scan_batch(messages: Sequence[Message], rules: FastPathRules) -> tuple[int, list[bytes], list[Expected]]:
    """Check whether all messages follow the fast path's rules.

    Returns the counted bytes, -1 if a message does not follow the rules; the ids, b"" for messages without one (an
    empty list if no message has a header); and the expectations of messages that have some.
    """
    counted = 0
    ids: list[bytes] = []
    expected: list[Expected] = []
    for at, (subject, reply, header, payload) in enumerate(messages):
        size = len(header) + len(payload)
        if size > rules.size_max or len(header) > rules.header_max or reply.endswith(rules.reply_end):
            return -1, [], []
        counted += len(subject) + size + rules.cost
        if header:
            found = _values_in(header, rules)
            if found is None:
                return -1, [], []
            msg_id, stream, last_seq, subject_seq, last_id = found
            numbers = _number(last_seq), _number(subject_seq)
            if (stream and stream != rules.stream) or None in numbers:
                return -1, [], []
            if last_seq or subject_seq or last_id:
                expected.append((at, *numbers, last_id))  # type: ignore[arg-type]
            counted += rules.header_cost
            ids = ids or [b""] * at
            ids.append(msg_id)
        elif ids:
            ids.append(b"")
    return counted, ids, expected


def _values_in(header: bytes, rules: FastPathRules) -> list[bytes] | None:
    """Return the first of each of the usual fields, b"" for one that is not there; None if there is another that begins with `special`."""
    found: list[bytes | None] = [None] * 5
    at = header.find(rules.special)
    while at >= 0:
        index = next((index for index, field in enumerate(rules.fields) if header.startswith(field, at)), -1)
        if index < 0:
            return None
        if found[index] is None:
            start = at + len(rules.fields[index])
            end = header.find(b"\r\n", start)
            found[index] = header[start : end if end >= 0 else len(header)].lstrip(b" ")
        at = header.find(rules.special, at + 2)
    return [value or b"" for value in found]


def _number(text: bytes) -> int | None:
    """Return the number in a header value; -1 without one, None for a malformed number or one too large for a sequence."""
    if not text:
        return -1
    return int(text) if len(text) <= _DIGITS_MAX and bytes.isdigit(text) else None


def pub_acks(messages: Sequence[Message], head: bytes, seq: int) -> list[tuple[bytes, bytes]]:
    """Reply subject and PubAck of each message that has a reply: `head`, its sequence, counted from `seq`, and `}`."""
    return [(reply, b"%b%d}" % (head, at)) for at, (_, reply, _, _) in enumerate(messages, seq) if reply]


def count_bytes(
    records: Iterable[tuple[Buffer, Buffer]], salt: int, opened: Opened | None, cost: int, header_cost: int
) -> list[Weighed]:
    """Return the counted sizes of records (key, value), without unreadable ones.

    `salt`: of their checksums; negative: do not check them. `opened`: decrypts sealed ones. `cost`,
    `header_cost`: as in `encode_run`.
    """
    out: list[Weighed] = []
    for key, value in records:
        body: Buffer | None
        if opened is not None:
            body = opened(bytes(key), value)
        else:
            unsummed = salt < 0 or len(value) > LARGE_RECORD
            body = value[:-CRC_SIZE] if unsummed or crc32(value, crc32(key, salt)) == CRC_RESIDUE else None
        try:
            message = None if body is None else decode_body(body)
        except msgspec.MsgspecError:
            message = None
        if message is not None:
            size = len(message.subject) + len(message.header) + len(message.payload) + cost
            out.append((seq_of(key), message.subject, size + (header_cost if message.header else 0)))
    return out
