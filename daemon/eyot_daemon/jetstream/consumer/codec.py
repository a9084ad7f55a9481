"""The stored form of a consumer's delivery state: one MessagePack array, compact enough to be written at every commit.

    [1, saved_ns, delivered_cseq, delivered_sseq, pending, queue, redelivered]

`saved_ns`     wall time of the writing, ns since the epoch.
`pending`      flat list of runs of four: messages with consecutive stream and consumer sequences that wait equally long
               [distance of the first sseq from the end of the run before, its cseq, number, remaining wait in ms].
`queue`        the redelivery queue in order: each stream sequence as distance from the one before (may be negative).
`redelivered`  flat pairs [distance of sseq from the one before, deliveries], ascending.

A batch that was delivered together is one run, so a consumer with a thousand pending messages usually needs a few
dozen bytes. When the record is read, the time that has passed since `saved_ns` is taken off the remaining waits, but
never more than they are and never less than nothing: a wall clock that jumped can make a redelivery early or late by
one wait, not lose it.
"""

import math
from itertools import pairwise

import msgspec

from eyot_daemon.jetstream.consumer.state import QUEUED, AckRules, ConsumerState

VERSION = 1

_Record = tuple[int, int, int, int, list[int], list[int], list[int]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


class StateFormatError(ValueError):
    """A stored consumer state that this release cannot read."""


def encode_state(state: ConsumerState, now: float, now_ns: int) -> bytes:
    """Return the record of `state`; `now` in monotonic seconds, `now_ns` in wall nanoseconds, both of this moment."""
    return _encoder.encode(
        (
            VERSION,
            now_ns,
            state.delivered_cseq,
            state.delivered_sseq,
            _pending_runs(state, now),
            _distances(state.queue_order()),
            _redelivered_pairs(state.redelivered),
        )
    )


def decode_state(data: bytes, rules: AckRules, now: float, now_ns: int) -> ConsumerState:
    """Return the state of a record, its waits reduced by the wall time since it was written. Raises StateFormatError."""
    try:
        version, saved_ns, delivered_cseq, delivered_sseq, runs, queue, redelivered = _decoder.decode(data)
    except msgspec.DecodeError as err:
        raise StateFormatError(f"consumer state is not readable: {err}") from err
    if version != VERSION:
        raise StateFormatError(f"consumer state has format {version}, this release reads {VERSION}")
    if len(runs) % 4 or len(redelivered) % 2:
        raise StateFormatError("consumer state is cut short")
    passed_s = max(0, now_ns - saved_ns) / 1e9
    state = ConsumerState(rules)
    state.restore(
        (delivered_cseq, delivered_sseq),
        _pending_of(runs, passed_s) if rules.policy != "none" else [],
        _sums(queue),
        _redelivered_of(redelivered),
        now,
    )
    return state


def _pending_runs(state: ConsumerState, now: float) -> list[int]:
    runs: list[int] = []
    end_sseq = 0
    next_cseq = -1
    run_due = math.nan
    for sseq, (cseq, due) in state.pending.items():
        if sseq == end_sseq and cseq == next_cseq and due == run_due:
            runs[-2] += 1
        else:
            remaining_ms = 0 if due == QUEUED else max(0, math.ceil((due - now) * 1000))
            runs += (sseq - end_sseq, cseq, 1, remaining_ms)
            run_due = due
        end_sseq = sseq + 1
        next_cseq = cseq + 1
    return runs


def _pending_of(runs: list[int], passed_s: float) -> list[tuple[int, int, float]]:
    pending: list[tuple[int, int, float]] = []
    end_sseq = 0
    for at in range(0, len(runs), 4):
        distance, cseq, number, remaining_ms = runs[at : at + 4]
        first = end_sseq + distance
        end_sseq = first + number
        remaining_s = max(0.0, remaining_ms / 1000 - passed_s)
        pending.extend((first + i, cseq + i, remaining_s) for i in range(number))
    return pending


def _redelivered_pairs(redelivered: dict[int, int]) -> list[int]:
    pairs: list[int] = []
    before = 0
    for sseq in sorted(redelivered):
        pairs += (sseq - before, redelivered[sseq])
        before = sseq
    return pairs


def _redelivered_of(pairs: list[int]) -> dict[int, int]:
    return dict(zip(_sums(pairs[::2]), pairs[1::2], strict=True))


def _distances(seqs: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *seqs])]


def _sums(distances: list[int]) -> list[int]:
    seqs: list[int] = []
    at = 0
    for distance in distances:
        at += distance
        seqs.append(at)
    return seqs
