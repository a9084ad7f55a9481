"""Stages additions to a log, and applies the results when their group is done.

The live counters (`LogView.state`, and those per subject) change at once when an operation is staged, so that later
operations of the same turn see them. The disk follows with the group commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from eyot_store.added import Added
from eyot_store.errors import StoreError
from eyot_store.log.backend import Backend
from eyot_store.log.subjects import SubjectIndex
from eyot_store.log.view import LogView
from eyot_store.native import encode_run
from eyot_store.record_run import Message
from eyot_store.records.record import encode_body, pack_crc, pack_u64, salt_of
from eyot_store.txn import OPEN, AppendRun, LogPart, Op, StagedLog, Txn

JUMP_MAX = 1 << 62
"""The highest sequence that a stream may be set to: sequences have 63 bits, and later messages need some."""


class LogStager:
    """Stages messages, consumers and positions of one log, and applies the results of its parts of transactions."""

    __slots__ = (
        "_appender",
        "_committed_ts_ns",
        "_durable",
        "_encode_cost",
        "_epoch",
        "_header_bytes",
        "_index",
        "_owner",
        "_salt",
        "_size_of",
        "_stream_id",
        "_view",
    )

    def __init__(self, owner: StagedLog, stream_id: int, view: LogView, index: SubjectIndex, backend: Backend) -> None:
        self._owner = owner
        self._stream_id = stream_id
        self._view = view
        self._index = index
        self._durable = backend.durable
        self._header_bytes = backend.header_bytes
        self._size_of: Callable[[bytes, bytes, bytes], int] = backend.message_bytes
        self._encode_cost = backend.message_bytes(b"", b"", b"")
        self._salt = salt_of(stream_id)
        #: Number of failed parts: all staged before the last of them fails with it (see `txn.FailureScope`).
        self._epoch = 0
        #: The pending part that gave the last sequence. While its transaction is open, no other part may give one.
        self._appender: LogPart | None = None
        #: Stored time of the last committed message, ns since epoch.
        self._committed_ts_ns = view.state.last_ts_ns

    # -- messages --------------------------------------------------------------------------------------------------

    def append(
        self, txn: Txn, subject: bytes, header: bytes, payload: bytes, ts_ns: int, seq: int | None = None
    ) -> int:
        """Stage one message and return its sequence. `seq` may skip ahead; skipped sequences count as deleted."""
        state = self._view.state
        if seq is None:
            seq = state.last_seq + 1
        elif seq <= state.last_seq:
            raise ValueError(f"sequence {seq} is not above the last one, {state.last_seq}")
        elif seq > JUMP_MAX:
            self._check_jump(seq)
        part = txn.parts.get(self._stream_id) or self.join(txn)
        run = part.appends or self._append_run(part)
        size = self._size_of(subject, header, payload)
        run.bytes += size
        run.last_ts_ns = ts_ns
        txn.bytes += self._record(run.items, seq, ts_ns, subject, header, payload)
        part.added.came(run.items, len(run.items) - 1)
        part.last_seq = state.last_seq = seq
        part.last_ts_ns = state.last_ts_ns = ts_ns
        if not state.messages:
            state.first_is(seq)
        state.messages += 1
        state.bytes += size
        if self._index.loaded is not None:
            before = self._index.loaded.add(subject, seq)
            if subject not in part.before:
                part.before[subject] = before
        return seq

    def append_all(self, txn: Txn, messages: Sequence[Message], ts_ns: int, times: list[int] | None = None) -> int:
        """Stage consecutive messages, the first stored at `ts_ns`, each 1 ns after the previous one, or at `times`.

        Returns the first one's sequence. Equals `append` for each, at a fraction of its cost.
        """
        state = self._view.state
        first = state.last_seq + 1
        part = txn.parts.get(self._stream_id) or self.join(txn)
        run = part.appends or self._append_run(part)
        subjects = self._index.loaded
        begin = len(run.items)
        counted, written = encode_run(
            messages, first, ts_ns, self._salt, self._encode_cost, self._header_bytes, run.items, times
        )
        part.added.came(run.items, begin)
        if subjects is not None:
            if subjects.tracked:
                for seq, (subject, *_) in enumerate(messages, first):
                    part.before.setdefault(subject, subjects.add(subject, seq))
            else:
                subjects.table.came_run(messages, first, part.before)
        if not state.messages:
            state.first_is(first)
        run.bytes += counted
        txn.bytes += written
        last_ts_ns = ts_ns + len(messages) - 1 if times is None else times[-1]
        run.last_ts_ns = part.last_ts_ns = state.last_ts_ns = last_ts_ns
        part.last_seq = state.last_seq = first + len(messages) - 1
        state.messages += len(messages)
        state.bytes += counted
        return first

    def skip_to(self, txn: Txn, seq: int) -> None:
        """Make `seq` the last sequence without storing anything (a gap in a mirror, a stream's first sequence)."""
        if seq <= self._view.state.last_seq:
            return
        self._check_jump(seq)
        part = txn.parts.get(self._stream_id) or self.join(txn)
        self._take_turn(part)
        part.push(Op.SKIP, seq)
        part.last_seq = self._view.state.last_seq = seq

    def depend(self, txn: Txn) -> None:
        """Have `txn` fail with any earlier transaction that gave a sequence here and is not committed yet."""
        self.join(txn).push(Op.SKIP, self._view.state.last_seq)

    def _check_jump(self, seq: int) -> None:
        if seq > JUMP_MAX and seq != self._view.state.last_seq + 1:
            raise StoreError("full", f"sequence {seq} is above {JUMP_MAX}", stream=self._view.stream, seq=seq)

    # -- consumers and positions -------------------------------------------------------------------------------------

    def put_consumer(self, txn: Txn, name: str, config: bytes, state: bytes) -> None:
        self.join(txn).push(Op.CONSUMER, (name, config, state))
        txn.bytes += len(config) + len(state)

    def put_consumer_state(self, txn: Txn, name: str, state: bytes) -> None:
        self.join(txn).push(Op.CONSUMER, (name, None, state))
        txn.bytes += len(state)

    def delete_consumer(self, txn: Txn, name: str) -> None:
        self.join(txn).push(Op.CONSUMER_GONE, name)

    def put_position(self, txn: Txn, key: bytes, value: bytes) -> None:
        """Stage a mirror's or source's position (`key` at most 480 bytes)."""
        self.join(txn).push(Op.POSITION, (key, value))
        txn.bytes += len(key) + len(value)

    def delete_position(self, txn: Txn, key: bytes) -> None:
        self.join(txn).push(Op.POSITION_GONE, key)

    # -- settling ----------------------------------------------------------------------------------------------------

    def committed(self, part: LogPart) -> None:
        """`part` is on disk."""
        view = self._view
        view.parts.remove(part)
        view.taken += part.takes_upto > 0
        if self._appender is part:
            self._appender = None
        if part.last_seq > view.committed_seq:
            view.committed_seq = part.last_seq
        if part.last_ts_ns:
            self._committed_ts_ns = part.last_ts_ns
        if part.removed:
            view.untold.append(part)
            for seq in part.removed:
                del view.hidden[seq]
        for hidden in part.ranges:
            view.hidden_ranges.remove(hidden)
            view.floor = max(view.floor, hidden.last + 1)
        if not view.state.messages and not view.parts:
            view.state.bytes = 0  # as the committer does: what damaged records counted for is forgotten

    def take_back(self, part: LogPart) -> None:
        """`part` will not reach the disk: counters go back by arithmetic, ends of ranges are looked for again."""
        if part.txn.state != OPEN:
            self._epoch += 1  # one that was not handed in broke nothing: what is under way may still fail
        view, state, index = self._view, self._view.state, self._index
        view.failures += 1
        view.parts.remove(part)
        if self._appender is part:
            self._appender = None
        state.sequences_fell_back()
        for seq, subject, size in part.added:
            remover = view.hidden.pop(seq, None)
            if remover is not None:
                del remover.removed[seq]  # staged and removed: nothing left to count
                continue
            state.messages -= 1
            state.bytes -= size
            state.first_gone(seq)
            if index.loaded is not None:
                index.loaded.discard(subject, seq)
        index.take_back(part)
        for hidden in part.ranges:
            view.hidden_ranges.remove(hidden)
            self._give_back(hidden.last, hidden.messages, hidden.bytes)
            state.first_may_be(max(view.floor, 1))
            index.reload(None)
        for seq, (subject, size) in part.removed.items():
            view.hidden.pop(seq, None)
            self._put_back(seq, subject, size)
        if part.last_seq:
            state.last_seq = max([view.committed_seq, *(other.last_seq for other in view.parts)])
            times = (other.last_ts_ns for other in reversed(view.parts) if other.last_ts_ns)
            state.last_ts_ns = next(times, self._committed_ts_ns)

    def _put_back(self, seq: int, subject: bytes, size: int) -> None:
        if self._give_back(seq, 1, size):
            self._view.state.first_may_be(seq)
            if subject:
                self._index.restore(subject, seq)
            else:
                self._index.reload(None)  # it is damaged

    def _give_back(self, last: int, messages: int, bytes_: int) -> bool:
        """Count messages up to `last` again; return False if a later purge, which fails, too, still covers them."""
        covering = self._view.range_over(last)
        counted = self._view.state if covering is None else covering
        counted.messages += messages
        counted.bytes += bytes_
        return covering is None

    # -- parts -------------------------------------------------------------------------------------------------------

    def join(self, txn: Txn) -> LogPart:
        """Return this log's part of `txn`; a log that is part of it fails with it, and fails it (see `txn.FailureScope`)."""
        part = txn.parts.get(self._stream_id)
        if part is None:
            if txn.state != OPEN:
                raise RuntimeError("the transaction was handed in already")
            part = txn.parts[self._stream_id] = LogPart(
                txn, self._owner, self._epoch, Added(self._encode_cost, self._header_bytes)
            )
            self._view.parts.append(part)
            txn.durable = txn.durable or self._durable
        return part

    def _take_turn(self, part: LogPart) -> None:
        """Reserve the sequences for `part`: they are given in submit order, so only one open transaction may give them."""
        appender = self._appender
        if appender is not None and appender is not part and appender.txn.state == OPEN:
            raise RuntimeError(f"{self._owner!r}: another open transaction appends to this log")
        self._appender = part

    def _append_run(self, part: LogPart) -> AppendRun:
        self._take_turn(part)
        run = AppendRun()
        part.push(Op.APPEND, run)
        part.appends = run
        return run

    def _record(
        self, items: list[tuple[bytes, bytes]], seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes
    ) -> int:
        """Add one encoded record to the run; returns its bytes."""
        key = pack_u64(seq)
        body = encode_body((ts_ns, subject, header, payload))
        record = body + pack_crc(crc32(body, crc32(key, self._salt)))
        items.append((key, record))
        return len(record)
