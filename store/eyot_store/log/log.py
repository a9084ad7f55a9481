"""A stream's log as the loop's thread sees it: staging operations, and settling them when their group is through.

The numbers in ``state`` (and the per-subject numbers) move at once when an operation is staged, so that a later operation
of the same turn sees them. What is on disk follows with the group commit. When a transaction succeeds, its part is dropped
and ``committed_seq`` moves up; when it fails, its part is taken back: counters by arithmetic, ends of ranges by looking
again. Operations that were staged on top of a failed one fail too (see ``txn.Fate``): nobody's answer may rest on
something that never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from eyot_store.errors import StoreError
from eyot_store.log.directory import Directory
from eyot_store.log.removals import LogRemovals
from eyot_store.log.removals import Unwanted as Unwanted
from eyot_store.native import encode_run
from eyot_store.points import Points
from eyot_store.reader import RecordReader
from eyot_store.record_run import Message
from eyot_store.records.record import encode_body, file_message_bytes, pack_crc, pack_u64, salt_of
from eyot_store.state import LogState
from eyot_store.subjects.subjects import Subjects
from eyot_store.subjects.tracking import Tracking
from eyot_store.txn import OPEN, AppendRun, HiddenRange, LogPart, Op, Txn

JUMP_MAX = 1 << 62
"""The highest sequence that a stream may be set to: numbers are of 63 bits, and there must be room for what comes."""


class Log(LogRemovals):
    """One stream's messages, consumers and positions. All methods belong to the loop's thread."""

    durable = True

    def __init__(
        self,
        *,
        account: str,
        name: str,
        stream_id: int,
        config: bytes,
        created_ns: int,
        reader: RecordReader,
        directory: Directory,
    ) -> None:
        self.account = account
        self.name = name
        self.id = stream_id
        self.config = config
        self.created_ns = created_ns
        self.committed_seq = 0
        self.void = False  # its creation failed: there is no such stream
        self.state = LogState(self)
        self._reader = reader
        self._directory = directory
        self._epoch = 0
        self._salt = salt_of(stream_id)
        self._parts: list[LogPart] = []
        self._floor = 0  # what is below was purged
        self._appender: LogPart | None = None  # the part that took the last sequence
        self._hidden: dict[int, LogPart] = {}
        self._hidden_ranges: list[HiddenRange] = []
        self._subjects: Subjects | None = None
        self._tracking: Tracking | None = None
        self._points = Points()
        self.on_slow: Callable[[], None] | None = None
        self._committed_config = config
        self._committed_ts_ns = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.account}/{self.name} #{self.id}>"

    # -- staging: messages -----------------------------------------------------------------------------------------

    def append(
        self, txn: Txn, subject: bytes, header: bytes, payload: bytes, ts_ns: int, seq: int | None = None
    ) -> int:
        """Stage one message and return its sequence. ``seq`` may skip ahead; what is skipped counts as deleted."""
        state = self.state
        if seq is None:
            seq = state.last_seq + 1
        elif seq <= state.last_seq:
            raise ValueError(f"sequence {seq} is not above the last one, {state.last_seq}")
        elif seq > JUMP_MAX:
            self._check_jump(seq)
        part = txn.parts.get(self.id) or self.join(txn)
        run = part.appends
        if run is None:
            run = self._append_run(part)
        size = self.message_bytes(subject, header, payload)
        run.bytes += size
        run.last_ts_ns = ts_ns
        txn.bytes += self._record(run.items, seq, ts_ns, subject, header, payload)
        part.added[seq] = (subject, size)
        part.last_seq = state.last_seq = seq
        part.last_ts_ns = state.last_ts_ns = ts_ns
        if not state.messages:
            state.first_is(seq)
        state.messages += 1
        state.bytes += size
        if self._subjects is not None:
            before = self._subjects.add(subject, seq)
            if subject not in part.before:
                part.before[subject] = before
        return seq

    def append_all(self, txn: Txn, messages: Sequence[Message], ts_ns: int) -> int:
        """Stage messages in a row, the first stored at ``ts_ns``, each 1 ns after the one before. Returns the sequence of the first.
        The same as ``append`` for each, at a fraction of its cost."""
        state = self.state
        first = state.last_seq + 1
        part = txn.parts.get(self.id) or self.join(txn)
        run = part.appends or self._append_run(part)
        subjects = self._subjects
        counted, written = encode_run(
            messages,
            first,
            ts_ns,
            self._salt,
            self.message_bytes(b"", b"", b""),
            self.header_bytes,
            run.items,
            part.added,
            None,
        )
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
        run.last_ts_ns = part.last_ts_ns = state.last_ts_ns = ts_ns + len(messages) - 1
        part.last_seq = state.last_seq = first + len(messages) - 1
        state.messages += len(messages)
        state.bytes += counted
        return first

    def skip_to(self, txn: Txn, seq: int) -> None:
        """Make ``seq`` the last sequence without storing anything (a gap in a mirror, a stream's first sequence)."""
        if seq <= self.state.last_seq:
            return
        self._check_jump(seq)
        part = txn.parts.get(self.id) or self.join(txn)
        self._take_turn(part)
        part.push(Op.SKIP, seq)
        part.last_seq = self.state.last_seq = seq

    def _check_jump(self, seq: int) -> None:
        if seq > JUMP_MAX and seq != self.state.last_seq + 1:
            raise StoreError(
                "full", f"sequence {seq} is above {JUMP_MAX}", stream=f"{self.account}/{self.name}", seq=seq
            )

    # -- staging: everything else ----------------------------------------------------------------------------------

    def set_config(self, txn: Txn, config: bytes) -> None:
        """Stage another configuration; ``config`` is the new one at once."""
        part = self.join(txn)
        part.push(Op.CONFIG, config)
        part.config = self.config = config
        txn.bytes += len(config)

    def delete(self, txn: Txn) -> None:
        """Stage the end of this log with all it holds. The name is free for a new log at once."""
        part = self.join(txn)
        part.push(Op.DELETE, None)
        part.deletes = True
        self._directory.deletion_staged(self)

    def put_consumer(self, txn: Txn, name: str, config: bytes, state: bytes) -> None:
        self.join(txn).push(Op.CONSUMER, (name, config, state))
        txn.bytes += len(config) + len(state)

    def put_consumer_state(self, txn: Txn, name: str, state: bytes) -> None:
        self.join(txn).push(Op.CONSUMER, (name, None, state))
        txn.bytes += len(state)

    def delete_consumer(self, txn: Txn, name: str) -> None:
        self.join(txn).push(Op.CONSUMER_GONE, name)

    def put_position(self, txn: Txn, key: bytes, value: bytes) -> None:
        """Stage a mirror's or source's position (``key`` at most 480 bytes)."""
        self.join(txn).push(Op.POSITION, (key, value))
        txn.bytes += len(key) + len(value)

    def delete_position(self, txn: Txn, key: bytes) -> None:
        self.join(txn).push(Op.POSITION_GONE, key)

    @staticmethod
    def message_bytes(subject: bytes, header: bytes, payload: bytes) -> int:
        """What a message adds to ``state.bytes``."""
        return file_message_bytes(subject, header, payload)

    def waits_for_disk(self, part: LogPart) -> bool:
        """An earlier transaction on this log is waiting for the disk, so a later one must queue behind it."""
        return any(other.txn.queued for other in self._parts if other is not part)

    # -- settling (called by the store, in submit order) -----------------------------------------------------------

    def settle(self, part: LogPart, error: StoreError | None) -> None:
        """``part`` reached the disk, or will not."""
        self._parts.remove(part)
        if self._appender is part:
            self._appender = None
        if error is None:
            self._committed(part)
        else:
            self._take_back(part)

    def _committed(self, part: LogPart) -> None:
        if part.last_seq > self.committed_seq:
            self.committed_seq = part.last_seq
        if part.last_ts_ns:
            self._committed_ts_ns = part.last_ts_ns
        if part.config is not None:
            self._committed_config = part.config
        if part.deletes:
            self._directory.deletion_committed(self)
        for seq in part.removed:
            del self._hidden[seq]
        for hidden in part.ranges:
            self._hidden_ranges.remove(hidden)
            self._floor = max(self._floor, hidden.last + 1)
        if not self.state.messages and not self._parts:
            self.state.bytes = 0  # as the committer does: what damaged records counted for is forgotten

    def _take_back(self, part: LogPart) -> None:
        self._epoch += 1
        state = self.state
        state.sequences_fell_back()
        for seq, (subject, size) in part.added.items():
            remover = self._hidden.pop(seq, None)
            if remover is not None:
                del remover.removed[seq]  # it never was, and is gone: nothing left to count
                continue
            state.messages -= 1
            state.bytes -= size
            state.first_gone(seq)
            if self._subjects is not None:
                self._subjects.discard(subject, seq)
        if part.added and self._subjects is not None:
            self._restore_last(part)
        for hidden in part.ranges:
            self._hidden_ranges.remove(hidden)
            state.messages += hidden.messages
            state.bytes += hidden.bytes
            state.first_may_be(hidden.first)
            self._reload_subjects(None)
        for seq, (subject, size) in part.removed.items():
            self._hidden.pop(seq, None)
            self._put_back(seq, subject, size)
        if part.deletes:
            self._directory.deletion_failed(self)
        if part.creates:
            self._directory.creation_failed(self)
        if part.last_seq:
            state.last_seq = max([self.committed_seq, *(other.last_seq for other in self._parts)])
            times = (other.last_ts_ns for other in reversed(self._parts) if other.last_ts_ns)
            state.last_ts_ns = next(times, self._committed_ts_ns)
        if part.config is not None:
            configs = (other.config for other in reversed(self._parts) if other.config is not None)
            self.config = next(configs, self._committed_config)

    def _restore_last(self, part: LogPart) -> None:
        """Where a subject's last message was one of the failed part's, name the committed one before it."""
        assert self._subjects is not None
        table = self._subjects.table
        for subject, before in part.before.items():
            known = table.get(subject)
            if known is not None and (known[2] == 0 or known[2] in part.added):
                table.set_ends(subject, known[1], before if before <= self.committed_seq else 0)
            for other in self._parts:
                if other.before.get(subject) in part.added:
                    other.before[subject] = before

    def _put_back(self, seq: int, subject: bytes, size: int) -> None:
        self.state.messages += 1
        self.state.bytes += size
        self.state.first_may_be(seq)
        for each in (self._subjects, self._tracking, self._points):
            if each is not None:
                each.restore(subject, seq)

    # -- inside ----------------------------------------------------------------------------------------------------

    def join(self, txn: Txn) -> LogPart:
        """This log's part of ``txn``; a log that is part of it fails with it, and fails it (see ``txn.Fate``)."""
        part = txn.parts.get(self.id)
        if part is None:
            if txn.state != OPEN:
                raise RuntimeError("the transaction was handed in already")
            part = txn.parts[self.id] = LogPart(txn, self, self._epoch)
            self._parts.append(part)
            txn.durable = txn.durable or self.durable
        return part

    def _take_turn(self, part: LogPart) -> None:
        """Sequences are given in the order in which transactions are handed in, so only one open one may take them."""
        appender = self._appender
        if appender is not part:
            if appender is not None and appender.txn.state == OPEN:
                raise RuntimeError(f"{self!r}: another open transaction appends to this log")
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
