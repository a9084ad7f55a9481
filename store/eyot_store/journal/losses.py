"""What a damaged journal has lost, and what can be recovered.

Frames and messages are numbered: a missing frame shows as a gap in the sequences of its streams, and a lost end of the
journal shows by `journal.high`. Records have checksums of their own, so complete records in a damaged frame are
recovered. A sequence that was given is never given again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path

import msgspec

from eyot_store.changes import Changes, Operation
from eyot_store.journal.journal import HEADER, frames_in, read_segments
from eyot_store.records.record import decode_body, file_message_bytes, is_whole, salt_of, seq_of
from eyot_store.txn import AppendRun, Op

Item = tuple[bytes, bytes]
_KEY = b"\xc4\x08"
_BIN = {0xC4: 1, 0xC5: 2, 0xC6: 4}

GONE_KEY = b"eyot.gone."
"""Among a stream's positions, with the first sequence of a span that was lost behind it (u64): the value is the last one (u64). It
becomes durable along with the stream's new end, and stays until the stream's downstream tracker has recorded it."""


def gone_position(first: int, last: int) -> Item:
    """Return the position entry that records these sequences as lost."""
    return GONE_KEY + first.to_bytes(8, "big"), last.to_bytes(8, "big")


def gone_in(positions: Mapping[bytes, bytes]) -> list[tuple[int, int]]:
    """Return the spans of sequences that positions record as lost."""
    spans = ((key, value) for key, value in positions.items() if key.startswith(GONE_KEY))
    return sorted((int.from_bytes(key[-8:], "big"), int.from_bytes(value, "big")) for key, value in spans)


class Losses:
    """Receives the complete frames, in order, and fills the gaps between them. `lost`: (stream, first, last sequence)."""

    def __init__(self, last_seqs: dict[int, int], salvaged: dict[int, dict[int, Item]], applied: int = 0) -> None:
        """`last_seqs`: the streams' ends in LMDB, which holds the frames up to `applied`."""
        self._ends = dict(last_seqs)
        self._number = applied
        self._gaps = 0  # frames that were preceded by missing ones
        self._sure: dict[int, int] = {}  # stream id -> `_gaps` when its end was last known
        self._salvaged = salvaged
        self.lost: list[tuple[int, int, int]] = []
        self.doubtful: list[tuple[int, int, int]] = []
        """Spans after an unknown end, which may or may not have been given; they are noted like lost ones."""
        self.put_back = 0
        self._noted = 0

    def filled(self, number: int, changes: Changes) -> Changes:
        """Return the changes of the frame `number`, with those before them that were lost, as far as they can be put back.

        Where no frame is missing, sequences without a message never held one.
        """
        self._gaps += number > self._number + 1
        self._number = number
        out: Changes = []
        for stream_id, ops in changes:
            with_lost: list[Operation] = []
            for op, data in ops:
                if stream_id in self._ends and op is Op.APPEND and data.items:
                    with_lost += self._before(stream_id, seq_of(data.items[0][0]) - 1)
                    self._ends[stream_id] = seq_of(data.items[-1][0])
                elif stream_id in self._ends and op is Op.SKIP:
                    with_lost += self._before(stream_id, data)
                    self._ends[stream_id] = max(self._ends[stream_id], data)
                with_lost.append((op, data))
            out.append((stream_id, with_lost))
        return out

    def end(self, ends: dict[int, int]) -> Changes:
        """Return the missing changes at the end, up to the streams' known last sequences `ends`."""
        out: Changes = []
        for stream_id in sorted(self._ends):
            last = max([ends.get(stream_id, 0), *self._salvaged.get(stream_id, ())])
            if last > self._ends[stream_id]:
                ops = self._until(stream_id, last)
                if self._ends[stream_id] < last:
                    ops.append((Op.SKIP, last))
                    self._ends[stream_id] = last
                out.append((stream_id, ops))
        return out

    def unknown_end(self, count: int, exempt: Container[int]) -> Changes:
        """Return changes that keep the next `count` sequences of each stream from being given (again), except of `exempt`."""
        out: Changes = []
        for stream_id, last in sorted(self._ends.items()):
            if stream_id not in exempt:
                self.doubtful.append((stream_id, last + 1, last + count))
                noted: Operation = (Op.POSITION, gone_position(last + 1, last + count))
                out.append((stream_id, [(Op.SKIP, last + count), noted]))
        return out

    def notes(self) -> Changes:
        """Return entries for the streams' downstreams about losses since the last call."""
        new, self._noted = self.lost[self._noted :], len(self.lost)
        return [(stream_id, [(Op.POSITION, gone_position(first, last))]) for stream_id, first, last in new]

    def _before(self, stream_id: int, last: int) -> list[Operation]:
        """Do as `_until` where frames may be missing since the stream's end was last known, which it is from now on."""
        sure, self._sure[stream_id] = self._sure.get(stream_id, 0), self._gaps
        return self._until(stream_id, last) if sure < self._gaps else []

    def _until(self, stream_id: int, last: int) -> list[Operation]:
        """Recover records up to `last`, and note the missing ones."""
        first = self._ends[stream_id] + 1
        if first > last:
            return []
        found = self._salvaged.get(stream_id, {})
        seqs = sorted(seq for seq in found if first <= seq <= last)
        run = AppendRun()
        at = first
        for seq in seqs:
            key, record = found[seq]
            if seq > at:
                self.lost.append((stream_id, at, seq - 1))
            at = seq + 1
            message = decode_body(record[:-4])
            run.items.append((key, record))
            run.bytes += file_message_bytes(message.subject, message.header, message.payload)
            run.last_ts_ns = message.ts_ns
        if at <= last:
            self.lost.append((stream_id, at, last))
        if not run.items:
            return []
        self.put_back += len(run.items)
        self._ends[stream_id] = seqs[-1]
        return [(Op.APPEND, run)]


def salvage(
    path: Path, salt: bytes, last_seqs: dict[int, int], *, skip_unreadable: bool = False
) -> dict[int, dict[int, Item]]:
    """Return complete records in damaged frames, by stream and sequence; only those that LMDB lacks.

    `skip_unreadable`: as in `read_segments`.
    """
    salts = {stream_id: salt_of(stream_id) for stream_id in last_seqs}
    found: dict[int, dict[int, Item]] = {}
    for data in read_segments(path, skip_unreadable=skip_unreadable):
        at = 0
        for frame in frames_in(data, salt):
            start = data.find(frame.body, at) - HEADER.size
            _scan(data, at, start, salts, last_seqs, found)
            at = start + HEADER.size + len(frame.body)
        _scan(data, at, len(data), salts, last_seqs, found)
    return found


def _scan(
    data: bytes,
    at: int,
    end: int,
    salts: dict[int, int],
    last_seqs: dict[int, int],
    found: dict[int, dict[int, Item]],
) -> None:
    at = data.find(_KEY, at, end)
    while at >= 0:
        key, head = data[at + 2 : at + 10], data[at + 10 : at + 15]
        width = _BIN.get(head[0], 0) if head else 0
        if len(key) == 8 and width and len(head) > width:
            start = at + 11 + width
            record = data[start : start + int.from_bytes(head[1 : 1 + width], "big")]
            for stream_id, salt in salts.items():
                if start + len(record) <= end and is_whole(salt, key, record) and seq_of(key) > last_seqs[stream_id]:
                    try:
                        decode_body(record[:-4])
                    except msgspec.MsgspecError:
                        break
                    found.setdefault(stream_id, {})[seq_of(key)] = key, record
                    break
        at = data.find(_KEY, at + 1, end)


def in_words(lost: Iterable[tuple[int, int, int]], name_of: Callable[[int], str], verb: str = "are lost") -> list[str]:
    """Sentences, a stream each."""
    by_stream: dict[int, list[str]] = {}
    for stream_id, first, last in lost:
        by_stream.setdefault(stream_id, []).append(str(first) if first == last else f"{first} to {last}")
    return [
        f"stream {name_of(stream_id)}: sequences {', '.join(spans)} {verb}" for stream_id, spans in by_stream.items()
    ]
