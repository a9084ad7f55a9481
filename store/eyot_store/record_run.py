"""Records by the hundred, in plain Python: encoding a run of messages, and noting the subjects of records read back.

`_record_run.pyx` does the same in C; this one runs where nothing was compiled, and is what the compiled one is tested
against (see `hot.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

from eyot_store.records import CRC_RESIDUE, CRC_SIZE, encode_body, pack_crc, pack_u64, subject_in, unpack_u64

Message = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, header, payload."""

Added = dict[int, tuple[bytes, int]]
"""Sequence to subject and the bytes that the message counts for."""

Subjects = dict[bytes, list[int]]
"""Subject to how many, the first sequence and the last."""

Entries = dict[bytes | None, list[int]]
"""As ``subject_index.Change`` keeps them: ``[count, first, last, 0, 0]``."""


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


def plain_size(messages: Sequence[Message], payload_max: int, mark: bytes) -> int:
    """Bytes of subjects and payloads together; -1 if a message has a header, a payload longer than ``payload_max`` or a reply
    that ends with ``mark``."""
    size = 0
    for subject, reply, header, payload in messages:
        if header or len(payload) > payload_max or reply.endswith(mark):
            return -1
        size += len(subject) + len(payload)
    return size


def pub_acks(messages: Sequence[Message], head: bytes, seq: int) -> list[tuple[bytes, bytes]]:
    """Reply subject and PubAck of each message that has a reply: ``head``, its sequence, counted from ``seq``, and ``}``."""
    return [(reply, b"%b%d}" % (head, at)) for at, (_, reply, _, _) in enumerate(messages, seq) if reply]


def note_records(
    records: Iterable[tuple[bytes, bytes]],
    limit: int,
    salt: int,
    opened: Callable[[bytes, bytes], bytes | None] | None,
    entries: Entries,
) -> tuple[int, int]:
    """Note the subjects of at most ``limit`` records (key, value) in ascending order; None stands for one that cannot be read.
    ``opened``: (key, value) to its MessagePack body, None if it cannot be opened; for records that are sealed. Returns how
    many there were, and the sequence of the last, 0 if there was none."""
    count = last = 0
    for key, value in records:
        last = unpack_u64(key)[0]
        count += 1
        body: bytes | None
        if opened is not None:
            body = opened(key, value)
        else:
            body = value[:-CRC_SIZE] if crc32(value, crc32(key, salt)) == CRC_RESIDUE else None
        subject = None if body is None else subject_in(body)
        entry = entries.get(subject)
        if entry is None:
            entries[subject] = [1, last, last, 0, 0]
        else:
            entry[0] += 1
            entry[1] = entry[1] or last
            entry[2] = last
        if count == limit:
            break
    return count, last
