"""Records by the hundred, in plain Python: looking over messages, encoding a run of them, and acknowledging it.

`_record_run.pyx` does the same in C; this one runs where nothing was compiled, and is what the compiled one is tested
against (see `hot.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from eyot_store.records.record import CRC_RESIDUE, CRC_SIZE, decode_body, encode_body, pack_crc, pack_u64, seq_of

Message = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header, payload."""

Added = dict[int, tuple[bytes, int]]
"""Sequence to subject and the bytes that the message counts for."""

Weighed = tuple[int, bytes, int]
"""A message's sequence, subject, and the bytes that it counts for."""

Buffer = bytes | memoryview

Opened = Callable[[bytes, Buffer], bytes | None]
"""(key, sealed record) to its body; None if it cannot be opened."""

Subjects = dict[bytes, list[int]]
"""Subject to how many, the first sequence and the last."""


class FastPathRules(NamedTuple):
    """What messages are like of which nothing has to be known but their sizes, an id, and what they expect."""

    size_max: int
    """Of header and payload together."""
    header_max: int
    reply_end: bytes
    """No reply ends with it."""
    special: bytes
    """With it, line end and all, begin the fields that ask for something ..."""
    fields: tuple[bytes, bytes, bytes, bytes, bytes]
    """... of which only these are usual, line end, name and colon each: the id; the stream, the last sequence, the last sequence of the
    subject, and the id of the last message that are expected."""
    stream: bytes
    """The only one that may be expected."""
    cost: int
    """What each message counts for beyond its bytes ..."""
    header_cost: int
    """... and what each that has a header."""


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
    added: Added,
    subjects: Subjects | None,
) -> tuple[int, int]:
    """Encode messages as records from ``seq`` and ``ts_ns`` on, each 1 ns after the one before: (key, record) go to ``items``,
    what each counts for to ``added``, and per subject to ``subjects``, if it is given. Returns the bytes they count for
    (their own, ``cost`` each, and ``header_cost`` each that has a header) and the bytes of the records."""
    counted = written = 0
    for at, (subject, _, header, payload) in enumerate(messages):
        key = pack_u64(seq + at)
        body = encode_body((ts_ns + at, subject, header, payload))
        record = body + pack_crc(crc32(body, crc32(key, salt)))
        items.append((key, record))
        written += len(record)
        size = len(subject) + len(header) + len(payload) + cost + (header_cost if header else 0)
        counted += size
        added[seq + at] = (subject, size)
        if subjects is not None:
            entry = subjects.get(subject)
            if entry is None:
                subjects[subject] = [1, seq + at, seq + at]
            else:
                entry[0] += 1
                entry[2] = seq + at
    return counted, written


def scan_batch(messages: Sequence[Message], rules: FastPathRules) -> tuple[int, list[bytes], list[Expected]]:
    """Whether messages are usual in all respects: the bytes they count for, -1 if one of them is not; their ids, b"" for those that have
    none (an empty list if no message has a header); and what those expect that expect something."""
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
    """The first of each of the usual fields, b"" for one that is not there; None if there is another that begins with ``special``."""
    found: list[bytes | None] = [None] * 5
    at = header.find(rules.special)
    while at >= 0:
        index = next((index for index, field in enumerate(rules.fields) if header.startswith(field, at)), -1)
        if index < 0:
            return None
        if found[index] is None:
            start = at + len(rules.fields[index])
            end = header.find(b"\r\n", start)
            found[index] = header[start : end if end >= 0 else len(header)].strip(b" \t")
        at = header.find(rules.special, at + 2)
    return [value or b"" for value in found]


def _number(text: bytes) -> int | None:
    """-1 where there is none; None: it is none that could be a sequence, or a very large one."""
    if not text:
        return -1
    return int(text) if len(text) <= _DIGITS_MAX and text.isdigit() else None


def pub_acks(messages: Sequence[Message], head: bytes, seq: int) -> list[tuple[bytes, bytes]]:
    """Reply subject and PubAck of each message that has a reply: ``head``, its sequence, counted from ``seq``, and ``}``."""
    return [(reply, b"%b%d}" % (head, at)) for at, (_, reply, _, _) in enumerate(messages, seq) if reply]


def count_bytes(
    records: Iterable[tuple[Buffer, Buffer]], salt: int, opened: Opened | None, cost: int, header_cost: int
) -> list[Weighed]:
    """What records (key, value) count for; those that cannot be read are left out. ``salt``: of their checksums; negative: nobody looks
    at those. ``opened``: what opens those that are sealed. ``cost``, ``header_cost``: as ``encode_run`` takes them."""
    out: list[Weighed] = []
    for key, value in records:
        body: Buffer | None
        if opened is not None:
            body = opened(bytes(key), value)
        else:
            body = value[:-CRC_SIZE] if salt < 0 or crc32(value, crc32(key, salt)) == CRC_RESIDUE else None
        try:
            message = None if body is None else decode_body(body)
        except msgspec.MsgspecError:
            message = None
        if message is not None:
            size = len(message.subject) + len(message.header) + len(message.payload) + cost
            out.append((seq_of(key), message.subject, size + (header_cost if message.header else 0)))
    return out
