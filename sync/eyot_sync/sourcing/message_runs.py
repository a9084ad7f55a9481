"""Many messages of one consumer at once: the usual case, read straight from the subjects that would acknowledge them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eyot_sync.sourcing.actions import Copied, Delivered

#: The largest valid sequence and time.
_NUMBER_MAX = (1 << 63) - 1


def read_run(
    run: Sequence[Delivered],
    consumer: bytes,
    consumer_seq: int,
    last_seq: int,
    is_old: Callable[[int, int], bool],
    into: list[Copied],
) -> tuple[int, int]:
    """Append to `into` the first messages of `run` that are first deliveries of `consumer` without a gap after `consumer_seq`.

    Their sequences exceed `last_seq`, and `is_old(sequence, stored time)` is False. Returns their number, and how many
    further messages the origin had after the last of them.
    """
    append = into.append
    taken = 0
    pending = b"0"
    for delivered in run:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>@<subject, which may hold dots>
        tokens = delivered.reply.split(b".", 8)
        if len(tokens) != 9 or tokens[3] != consumer or tokens[4] != b"1":
            break
        left, mark, subject = tokens[8].partition(b"@")
        if not (mark and left.isdigit() and tokens[5].isdigit() and tokens[6].isdigit() and tokens[7].isdigit()):
            break
        seq = int(tokens[5])
        ts_ns = int(tokens[7])
        if int(tokens[6]) != consumer_seq + taken + 1 or not last_seq < seq <= _NUMBER_MAX or ts_ns > _NUMBER_MAX:
            break
        if is_old(seq, ts_ns):
            break
        last_seq = seq
        pending = left
        taken += 1
        append(Copied(seq, ts_ns, subject, delivered.header, delivered.payload))
    return taken, int(pending)
