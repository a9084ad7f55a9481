"""A stream with storage=memory: the same log with its records in a dict, lost with the process.

A transaction that touches only such logs does not wait for the disk: it is committed at the loop's next pass, in submit
order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from eyot_store.reader import RECORDS_MAX, Reading, keep_within
from eyot_store.record_run import Weighed
from eyot_store.records.record import (
    CRC_SIZE,
    ReadResult,
    StoredMessage,
    decode_body,
    encode_body,
    memory_message_bytes,
    pack_u64,
    seq_of,
)
from eyot_store.subjects.index_reader import IndexReading
from eyot_store.txn import LogPart, Op
from eyot_wire.native import StoredRun


class MemoryRecords:
    """A `RecordReader` over committed records in memory."""

    def __init__(self) -> None:
        self._records: dict[int, StoredMessage] = {}
        self._seqs: list[int] = []  # ascending; may hold removed ones until compacted
        self._consumers: dict[str, tuple[bytes, bytes]] = {}
        self._positions: dict[bytes, bytes] = {}

    def get(self, seq: int) -> StoredMessage | None:
        return self._records.get(seq)

    def get_many(self, seqs: list[int], max_bytes: int) -> ReadResult:
        out: list[StoredMessage] = []
        size = 0
        for seq in seqs:
            message = self._records.get(seq)
            if message is not None:
                size += len(message.payload) + len(message.subject) + len(message.header)
                if size > max_bytes and out:
                    return ReadResult(out, seq)
                out.append(message)
        return ReadResult(out, seqs[-1] + 1 if seqs else 0)

    def count_bytes(self, seqs: Sequence[int], cost: int, header_cost: int) -> list[Weighed]:
        found = (self._records[seq] for seq in seqs if seq in self._records)
        return [
            (
                each.seq,
                each.subject,
                len(each.subject) + len(each.header) + len(each.payload) + cost + (header_cost if each.header else 0),
            )
            for each in found
        ]

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
        size, left = 0, max_messages
        seqs, records = self._seqs, self._records
        for scanned, index in enumerate(range(bisect_left(seqs, first), len(seqs)), 1):
            seq = seqs[index]
            if seq > last:
                break
            message = records.get(seq)
            if message is not None and (match is None or match(message.subject)):
                size += len(message.payload) + len(message.subject) + len(message.header)
                if size > max_bytes and out:
                    return ReadResult(out, seq)
                out.append(message)
                left -= 1
                if not left:
                    return ReadResult(out, seq + 1)
            if scanned >= max_scanned:
                return ReadResult(out, seq + 1)
        return ReadResult(out, last + 1)

    def gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        messages, next_seq = self.scan(first, last, count, max_bytes, count, None)
        pairs = [
            (pack_u64(each.seq), encode_body((each.ts_ns, each.subject, each.header, each.payload)))
            for each in messages
        ]
        return run.gather(pairs, last, count, max_bytes) or next_seq

    def reading(self, run: StoredRun, first: int, last: int, max_bytes: int) -> Reading:
        begun = len(run)
        next_seq = keep_within(run, begun, run.size + max_bytes, self.gather(run, first, last, RECORDS_MAX, max_bytes))
        return lambda: next_seq

    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        seqs = self.seqs(first, last, limit)
        out = [(seq, self._records[seq].subject) for seq in seqs]
        return out, [], seqs[-1] + 1 if len(seqs) == limit else last + 1

    def reading_much(self) -> None:
        """Do nothing: reads of memory disturb no other thread."""

    def index_some(self, reading: IndexReading, records: int) -> bool:
        """Return True: there is no index to load, since records in memory are scanned as quickly."""
        return True

    def index_rest(self, reading: IndexReading, floor: int, last: int, without: Collection[int]) -> int:
        return 0

    def next_seq(self, seq: int) -> int:
        for index in range(bisect_left(self._seqs, seq), len(self._seqs)):
            if self._seqs[index] in self._records:
                return self._seqs[index]
        return 0

    def seqs(self, first: int, last: int, limit: int) -> list[int]:
        out: list[int] = []
        for index in range(bisect_left(self._seqs, first), len(self._seqs)):
            seq = self._seqs[index]
            if seq > last or len(out) >= limit:
                break
            if seq in self._records:
                out.append(seq)
        return out

    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        return [(name, *self._consumers[name]) for name in sorted(self._consumers)]

    def positions(self) -> dict[bytes, bytes]:
        return dict(self._positions)

    def apply(self, part: LogPart) -> None:
        """Apply a part's operations."""
        for op, data in part.ops:
            if op is Op.APPEND:
                for key, record in data.items:
                    message = decode_body(record[:-CRC_SIZE])
                    message.seq = seq_of(key)
                    self._records[message.seq] = message
                    self._seqs.append(message.seq)
            elif op is Op.REMOVE:
                for key, _ in data:
                    self._records.pop(seq_of(key), None)
            elif op is Op.PURGE:
                for seq in self.seqs(0, data[0] - 1, len(self._seqs)):
                    del self._records[seq]
            elif op is Op.CONSUMER:
                name, config, state = data
                before = self._consumers.get(name, (b"", b""))
                self._consumers[name] = (before[0] if config is None else config, before[1] if state is None else state)
            elif op is Op.CONSUMER_GONE:
                self._consumers.pop(data, None)
            elif op is Op.POSITION:
                self._positions[data[0]] = data[1]
            elif op is Op.POSITION_GONE:
                self._positions.pop(data, None)
        if len(self._seqs) > 2 * len(self._records) + 64:
            self._seqs = [seq for seq in self._seqs if seq in self._records]


class MemoryBackend:
    """A `Backend` without a disk."""

    durable = False
    header_bytes = 0
    message_bytes = staticmethod(memory_message_bytes)

    def __init__(self) -> None:
        self.records = MemoryRecords()

    def committed(self, part: LogPart) -> None:
        self.records.apply(part)
