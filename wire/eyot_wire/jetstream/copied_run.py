"""Many messages of one origin at once, in plain Python: read from what its consumer delivers, and given the header of a source's copy.

`_copied_run.pyx` is the compiled twin. This module runs without a compiler, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
#: The largest valid sequence and time.
_NUMBER_MAX = (1 << 63) - 1


class Delivered(Protocol):
    """A message as it arrives over a leaf link: its reply is `<ack subject>@<subject at the origin>`."""

    @property
    def reply(self) -> bytes: ...

    @property
    def header(self) -> bytes: ...

    @property
    def payload(self) -> bytes: ...


class CopiedMessage(Protocol):
    """A message of an origin with its sequence and stored time there."""

    @property
    def origin_seq(self) -> int: ...

    @property
    def ts_ns(self) -> int: ...

    @property
    def subject(self) -> bytes: ...

    @property
    def header(self) -> bytes: ...

    @property
    def payload(self) -> bytes: ...


def read_run(
    run: Sequence[Delivered],
    consumer: bytes,
    consumer_seq: int,
    last_seq: int,
    is_old: Callable[[int, int], bool] | None,
    make: Callable[[int, int, bytes, bytes, bytes], T],
    into: list[T],
) -> tuple[int, int]:
    """Append to `into` the first messages of `run` that are first deliveries of `consumer` without a gap after `consumer_seq`.

    Their sequences exceed `last_seq`, and `is_old(sequence, stored time)` is False. Each is made of its sequence, stored
    time (ns), subject, header and payload. Returns their number, and how many further messages the origin had after the
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
        if not (mark and left.isdigit() and tokens[5].isdigit() and tokens[6].isdigit() and tokens[7].isdigit()):
            break
        seq, ts_ns, more = int(tokens[5]), int(tokens[7]), int(left)
        if int(tokens[6]) != consumer_seq + taken + 1 or not last_seq < seq or max(seq, ts_ns, more) > _NUMBER_MAX:
            break
        if is_old is not None and is_old(seq, ts_ns):
            break
        last_seq = seq
        pending = more
        taken += 1
        append(make(seq, ts_ns, subject, delivered.header, delivered.payload))
    return taken, pending


def stamp_run(
    batch: Sequence[CopiedMessage],
    before_seq: bytes,
    after_seq: bytes,
    stamp: Callable[[bytes, int, bytes], bytes],
    make: Callable[[int, int, bytes, bytes, bytes], T],
) -> list[T]:
    """Return the messages with the header of a source's copy.

    Where there was none, it is `before_seq`, the sequence, `after_seq`, the subject and the end of a header block.
    Elsewhere `stamp` returns it for a header, sequence and subject.
    """
    return [
        make(
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
