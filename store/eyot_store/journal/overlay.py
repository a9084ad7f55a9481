"""Records that are durable in the journal and not yet in LMDB, and a reader that serves both.

When a transaction is committed, the loop adds its operations to the stream's overlay with the number of their journal
frame. The overlay drops them when LMDB has applied that frame. Appends are ascending, so everything from the overlay's
first sequence on is in the overlay and everything below is in LMDB: a read is split there. It does no harm if LMDB
already holds an overlay's records. Overlays belong to the loop's thread. The journal's size bounds their memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from struct import unpack
from typing import Any

from eyot_store.errors import StoreError
from eyot_store.native import count_bytes
from eyot_store.reader import RECORDS_MAX, Reading, RecordReader, keep_within, read_without
from eyot_store.record_run import Weighed
from eyot_store.records.record import CRC_SIZE, ReadResult, StoredMessage, decode_body, decode_head, pack_u64, seq_of
from eyot_store.subjects.index_reader import IndexReading
from eyot_store.txn import Op
from eyot_wire.native import StoredRun

_NONE = 1 << 63
_CONFIG, _STATE, _POSITION = range(3)

Items = list[tuple[bytes, bytes]]


class Overlays:
    """A store's overlays that are not empty, and the last applied frame."""

    def __init__(self) -> None:
        self.applied = 0  # frame
        self.holding: set[OverlayReader] = set()

    def caught_up(self, applied: int) -> None:
        """LMDB holds everything up to this frame."""
        if applied > self.applied:
            self.applied = applied
            for reader in list(self.holding):
                if not reader.drop(applied):
                    self.holding.discard(reader)


class OverlayReader:
    """A `RecordReader` of one stream: `below` (LMDB), and on top what only the journal holds."""

    def __init__(self, below: RecordReader, overlays: Overlays) -> None:
        self._below = below
        self._overlays = overlays
        self._base = _NONE  # first sequence of the runs
        self._firsts: list[int] = []  # of each run: its first sequence,
        self._runs: list[Items] = []  # its records, ascending,
        self._frames: list[int] = []  # and its frame
        self._removed: dict[int, int] = {}  # sequence -> frame
        self._values: dict[
            tuple[int, bytes], tuple[int, bytes | None]
        ] = {}  # kind and key -> frame, value (None = gone)

    # -- content
    # -----------------------------------------------------------------------------------------------------------

    def absorb(self, ops: list[tuple[Op, Any]], frame: int) -> None:
        """Add operations that are durable in `frame`."""
        if frame <= self._overlays.applied:
            return
        values = self._values
        for op, data in ops:
            if op is Op.APPEND:
                self._firsts.append(seq_of(data.items[0][0]))
                self._runs.append(data.items)
                self._frames.append(frame)
                self._base = self._firsts[0]
            elif op is Op.REMOVE:
                seqs = unpack(f">{len(data)}Q", b"".join([key for key, _ in data]))
                self._removed.update(dict.fromkeys(seqs, frame))
            elif op is Op.CONSUMER:
                name = data[0].encode("utf-8", "surrogateescape")
                if data[1] is not None:
                    values[_CONFIG, name] = (frame, data[1])
                if data[2] is not None:
                    values[_STATE, name] = (frame, data[2])
            elif op is Op.CONSUMER_GONE:
                name = data.encode("utf-8", "surrogateescape")
                values[_CONFIG, name] = values[_STATE, name] = (frame, None)
            elif op is Op.POSITION:
                values[_POSITION, data[0]] = (frame, data[1])
            elif op is Op.POSITION_GONE:
                values[_POSITION, data] = (frame, None)
        self._overlays.holding.add(self)

    def passed(self, frame: int) -> None:
        """Drop what LMDB holds: a later direct write implies this frame, before the applier reports it."""
        self._overlays.caught_up(frame)

    def drop(self, applied: int) -> bool:
        """LMDB holds everything up to this frame; False when nothing is left."""
        done = bisect_right(self._frames, applied)
        if done:
            del self._firsts[:done], self._runs[:done], self._frames[:done]
            self._base = self._firsts[0] if self._firsts else _NONE
        if self._removed:
            self._removed = {seq: frame for seq, frame in self._removed.items() if frame > applied}
        if self._values:
            self._values = {key: value for key, value in self._values.items() if value[0] > applied}
        return bool(self._runs or self._removed or self._values)

    def _items(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield (sequence, record) of the runs in [first, last], ascending, without removed ones."""
        removed = self._removed
        for index in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._runs)):
            items = self._runs[index]
            if self._firsts[index] > last:
                return
            start = bisect_left(items, first, key=_item_seq) if self._firsts[index] < first else 0
            for key, record in items[start:] if start else items:
                seq = seq_of(key)
                if seq > last:
                    return
                if seq not in removed:
                    yield seq, record

    # -- RecordReader ------------------------------------------------------------------------------------------------------

    def get(self, seq: int) -> StoredMessage | None:
        if seq in self._removed:
            return None
        if seq < self._base:
            return self._below.get(seq)
        item = self._item(seq)
        return None if item is None else _message(seq, item[1])

    def get_many(self, seqs: list[int], max_bytes: int) -> ReadResult:
        split = bisect_left(seqs, self._base)
        below = seqs[:split]
        if self._removed:
            below = [seq for seq in below if seq not in self._removed]
        result = self._below.get_many(below, max_bytes) if below else ReadResult([], 0)
        if below and result.next_seq <= below[-1]:
            return result
        out = result.messages
        size = sum(_size(message) for message in out)
        for wanted in seqs[split:]:
            message = self.get(wanted)
            if message is None:
                continue
            size += _size(message)
            if size > max_bytes and out:
                return ReadResult(out, wanted)
            out.append(message)
        return ReadResult(out, seqs[-1] + 1 if seqs else 0)

    def count_bytes(self, seqs: Sequence[int], cost: int, header_cost: int) -> list[Weighed]:
        split = bisect_left(seqs, self._base)
        below, above = seqs[:split], seqs[split:]
        if self._removed:
            below = [seq for seq in below if seq not in self._removed]
            above = [seq for seq in above if seq not in self._removed]
        found = self._below.count_bytes(below, cost, header_cost) if below else []
        items = [item for seq in above if (item := self._item(seq)) is not None]
        return found + count_bytes(items, -1, None, cost, header_cost)

    def _item(self, seq: int) -> tuple[bytes, bytes] | None:
        """Return a run's record at `seq`; usually there is no gap before it."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0:
            return None
        items, at, key = self._runs[index], seq - self._firsts[index], pack_u64(seq)
        if at >= len(items) or items[at][0] != key:
            at = bisect_left(items, seq, key=_item_seq)
        return items[at] if at < len(items) and items[at][0] == key else None

    def scan(
        self,
        first: int,
        last: int,
        max_messages: int,
        max_bytes: int,
        max_scanned: int,
        match: Callable[[bytes], bool] | None,
    ) -> ReadResult:
        out: list[StoredMessage] = []
        size = 0
        if first < self._base:
            end = min(last, self._base - 1)
            try:
                out, next_seq = self._below.scan(first, end, max_messages, max_bytes, max_scanned, match)
            except StoreError as error:
                if error.seq in self._removed:
                    return ReadResult([], error.seq + 1)
                raise
            if next_seq <= end or last <= end or len(out) >= max_messages:
                return ReadResult(self._without_removed(out), next_seq)
            if self._base != _NONE:
                size = sum(_size(message) for message in out)
            out = self._without_removed(out)
        for scanned, (seq, record) in enumerate(self._items(first, last), 1):
            body = record[:-CRC_SIZE]
            if match is None or match(decode_head(body).subject):
                message = decode_body(body)
                message.seq = seq
                size += _size(message)
                if size > max_bytes and out:
                    return ReadResult(out, seq)
                out.append(message)
                if len(out) >= max_messages:
                    return ReadResult(out, seq + 1)
            if scanned >= max_scanned:
                return ReadResult(out, seq + 1)
        return ReadResult(out, last + 1)

    def gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        if first >= self._base:
            return self._gather(run, first, last, count, max_bytes)
        end, begun = min(last, self._base - 1), len(run)
        try:
            next_seq = self._below.gather(run, first, end, count, max_bytes)
        except StoreError as error:
            if error.seq in self._removed:
                return error.seq + 1
            raise
        if self._removed:
            run.without(self._removed, begun)
        return next_seq

    def _gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        """Append the runs' records of the range."""
        firsts, begun, end = self._firsts, len(run), run.size + max_bytes
        next_seq = 0
        for index in range(max(bisect_right(firsts, first) - 1, 0), len(firsts)):
            if firsts[index] > last:
                break
            if next_seq or len(run) - begun >= count or run.size >= end:
                next_seq = next_seq or firsts[index]
                break
            items = self._runs[index]
            start = bisect_left(items, first, key=_item_seq) if firsts[index] < first else 0
            before = len(run)
            next_seq = run.gather(items[start:] if start else items, last, count - before + begun, end - run.size)
            if next_seq and len(run) == before:
                if before == begun:
                    raise StoreError("corrupt", "record is malformed", seq=next_seq)
                break
        if self._removed:
            run.without(self._removed, begun)
        return next_seq or last + 1

    def reading(self, run: StoredRun, first: int, last: int, max_bytes: int) -> Reading:
        if first < self._base:
            last = min(last, self._base - 1)
            below = self._below.reading(run, first, last, max_bytes)
            removed = frozenset(seq for seq in self._removed if first <= seq <= last)
            return partial(read_without, below, run, len(run), removed) if removed else below
        begun, end = len(run), run.size + max_bytes
        next_seq = keep_within(run, begun, end, self._gather(run, first, last, RECORDS_MAX, max_bytes))
        return lambda: next_seq

    def _without_removed(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        removed = self._removed
        return [message for message in messages if message.seq not in removed] if removed else messages

    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        out: list[tuple[int, bytes]] = []
        corrupt: list[int] = []
        if first < self._base:
            end = min(last, self._base - 1)
            out, corrupt, next_seq = self._below.heads(first, end, limit)
            if self._removed:
                out = [head for head in out if head[0] not in self._removed]
                corrupt = [seq for seq in corrupt if seq not in self._removed]
            if next_seq <= end or last <= end:
                return out, corrupt, next_seq
        for seq, record in self._items(first, last):
            if len(out) + len(corrupt) >= limit:
                return out, corrupt, seq
            out.append((seq, decode_head(record[:-CRC_SIZE]).subject))
        return out, corrupt, last + 1

    def reading_much(self) -> None:
        self._below.reading_much()

    def index_some(self, reading: IndexReading, records: int) -> bool:
        return self._below.index_some(reading, records)

    def index_rest(self, reading: IndexReading, floor: int, last: int, without: Collection[int]) -> int:
        return self._below.index_rest(reading, floor, last, {*without, *self._removed})

    def next_seq(self, seq: int) -> int:
        while seq < self._base:
            found = self._below.next_seq(seq)
            if not found or found >= self._base:
                break
            if found not in self._removed:
                return found
            seq = found + 1
        return next((seq for seq, _ in self._items(seq, _NONE)), 0)

    def seqs(self, first: int, last: int, limit: int) -> list[int]:
        out: list[int] = []
        removed = self._removed
        end = min(last, self._base - 1)
        while first <= end:
            found = self._below.seqs(first, end, limit)
            out += [seq for seq in found if seq not in removed] if removed else found
            if len(out) >= limit:
                return out[:limit]
            if len(found) < limit:
                break
            first = found[-1] + 1
        if last >= self._base:
            out += islice((seq for seq, _ in self._items(first, last)), limit - len(out))
        return out

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        found = self._below.consumers()
        if not self._values:
            return found
        configs = {name: config for name, config, _ in found}
        states = {name: state for name, _, state in found}
        for (kind, key), (_, value) in self._values.items():
            if kind != _POSITION:
                half = configs if kind == _CONFIG else states
                name = key.decode("utf-8", "surrogateescape")
                if value is None:
                    half.pop(name, None)
                else:
                    half[name] = value
        names = sorted(configs, key=lambda name: name.encode("utf-8", "surrogateescape"))
        return [(name, configs[name], states.get(name, b"")) for name in names]

    def positions(self) -> dict[bytes, bytes]:
        positions = self._below.positions()
        for (kind, key), (_, value) in self._values.items():
            if kind == _POSITION:
                if value is None:
                    positions.pop(key, None)
                else:
                    positions[key] = value
        return positions


def _item_seq(item: tuple[bytes, bytes]) -> int:
    return seq_of(item[0])


def _message(seq: int, record: bytes) -> StoredMessage:
    message = decode_body(record[:-CRC_SIZE])
    message.seq = seq
    return message


def _size(message: StoredMessage) -> int:
    return len(message.payload) + len(message.subject) + len(message.header)
