"""Many messages of one origin at once, in plain Python: from what a link delivers to what the stream stores.

`_copied_run.pyx` is the compiled twin. This module runs without a compiler, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from eyot_wire.frames import LeafMsg

#: The largest valid sequence and time.
# More digits end a run, leading zeros or not: `int` itself refuses more than 4,300.
_DIGITS_MAX = 100
_NUMBER_MAX = (1 << 63) - 1


class CopiedMessage(NamedTuple):
    """A message of an origin. For a mirror `origin_seq` and `ts_ns` (stored time) are its own; a source gives it new ones."""

    origin_seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


def other_kind(items: Sequence[object], at: int, kind: type) -> int:
    """Return the index of the first item from `at` on whose type is not `kind`; the number of items if there is none."""
    while at < len(items) and type(items[at]) is kind:
        at += 1
    return at


def content_bytes(messages: Iterable[LeafMsg]) -> int:
    """Return the bytes of all headers and payloads."""
    return sum(len(message.header) + len(message.payload) for message in messages)


def same_subject(messages: Sequence[LeafMsg], at: int, mark: bytes) -> int:
    """Return the end of the run that begins at `at`: messages with the subject of the first.

    After the first, none has `mark` in its header.
    """
    subject = messages[at].subject
    at += 1
    while at < len(messages) and messages[at].subject == subject and mark not in messages[at].header:
        at += 1
    return at


def has_headers(batch: Iterable[CopiedMessage]) -> bool:
    """Return whether any message has a header."""
    return any(each.header for each in batch)


def newest_ns(batch: Iterable[CopiedMessage]) -> int:
    """Return the newest stored time, 0 without any."""
    return max((each.ts_ns for each in batch), default=0)


def mirrored_run(
    messages: Sequence[CopiedMessage], at: int, last_seq: int, field: bytes, known: tuple[bytes, ...]
) -> tuple[list[tuple[bytes, bytes, bytes, bytes]], list[int]]:
    """Return the messages from `at` on that follow `last_seq` without a gap, and their stored times (ns).

    Each is subject, no reply, header, payload. A message ends the run if `field` is in its header more often than members of
    `known` are there.
    """
    run: list[tuple[bytes, bytes, bytes, bytes]] = []
    times: list[int] = []
    for message in messages[at:]:
        header = message.header
        last_seq += 1
        if message.origin_seq != last_seq or (header and header.count(field) > sum(name in header for name in known)):
            break
        run.append((message.subject, b"", header, message.payload))
        times.append(message.ts_ns)
    return run, times


def sourced_run(
    messages: Sequence[CopiedMessage], field: bytes, needed: bytes
) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return the first messages, up to one whose header lacks `needed` or has `field` more than once.

    Each is subject, no reply, header, payload.
    """
    run: list[tuple[bytes, bytes, bytes, bytes]] = []
    for message in messages:
        header = message.header
        if header.count(field) > 1 or needed not in header:
            break
        run.append((message.subject, b"", header, message.payload))
    return run


def read_run(
    run: Sequence[LeafMsg],
    consumer: bytes,
    consumer_seq: int,
    last_seq: int,
    is_old: Callable[[int, int], bool] | None,
    into: list[CopiedMessage],
) -> tuple[int, int]:
    """Append to `into` the first messages of `run` that are first deliveries of `consumer` without a gap after `consumer_seq`.

    Their sequences exceed `last_seq`, and `is_old(sequence, stored time)` is False. A copied message's reply is
    `<ack subject>@<subject at the origin>`. Returns their number, and how many further messages the origin had after the
    last of them.
    """
    append = into.append
    taken = pending = 0
    for delivered in run:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>@<subject, which may hold dots>
        tokens = delivered.reply.split(b".", 8)
        if len(tokens) != 9 or tokens[3] != consumer or tokens[4] != b"1":
            break
        left, mark, subject = tokens[8].partition(b"@")
        if (
            not (mark and all(map(bytes.isdigit, (left, *tokens[5:8]))))
            or max(map(len, (left, *tokens[5:8]))) > _DIGITS_MAX
        ):
            break
        seq, ts_ns, more = int(tokens[5]), int(tokens[7]), int(left)
        if int(tokens[6]) != consumer_seq + taken + 1 or not last_seq < seq or max(seq, ts_ns, more) > _NUMBER_MAX:
            break
        if is_old is not None and is_old(seq, ts_ns):
            break
        last_seq = seq
        pending = more
        taken += 1
        append(CopiedMessage(seq, ts_ns, subject, delivered.header, delivered.payload))
    return taken, pending


def stamp_run(
    batch: Sequence[CopiedMessage],
    before_seq: bytes,
    after_seq: bytes,
    stamp: Callable[[bytes, int, bytes], bytes],
) -> list[CopiedMessage]:
    """Return the messages with the header of a source's copy.

    Where there was none, it is `before_seq`, the sequence, `after_seq`, the subject and the end of a header block.
    Elsewhere `stamp` returns it for a header, sequence and subject.
    """
    return [
        CopiedMessage(
            seq,
            each.ts_ns,
            subject,
            stamp(each.header, seq, subject)
            if each.header
            else b"%b%d%b%b\r\n\r\n" % (before_seq, seq, after_seq, subject),
            each.payload,
        )
        for each in batch
        for seq, subject in ((each.origin_seq, each.subject),)
    ]
