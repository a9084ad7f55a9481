"""A stream's log as the loop's thread sees it: staging operations, and settling them when their group is through.

The numbers in ``state`` (and the per-subject numbers) move at once when an operation is staged, so that a later operation
of the same turn sees them. What is on disk follows with the group commit. When a transaction succeeds, its part is dropped
and ``committed_seq`` moves up; when it fails, its part is taken back: counters by arithmetic, ends of ranges by looking
again. Operations that were staged on top of a failed one fail too (see ``txn.Fate``): nobody's answer may rest on
something that never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from eyot_store.directory import Directory
from eyot_store.errors import StoreError
from eyot_store.hot import encode_run
from eyot_store.log_reads import LogReads
from eyot_store.reader import RecordReader
from eyot_store.record_run import Message
from eyot_store.records import StoredMessage, encode_body, file_message_bytes, pack_crc, pack_u64, salt_of
from eyot_store.state import LogState
from eyot_store.subjects import Subjects, matcher
from eyot_store.tracking import Tracking
from eyot_store.txn import OPEN, AppendRun, HiddenRange, LogPart, Op, Txn

_CHUNK = 1024
_CHUNK_BYTES = 16 << 20
_READS_MAX = 4  # of one slice of a purge

Unwanted = Callable[[int, bytes], bool]
"""(sequence, subject) -> whether nobody wants the message."""


class Log(LogReads):
    """One stream's messages, consumers and positions. All methods belong to the loop's thread."""

    durable = True
    header_bytes = 4
    """What a message counts for beyond its bytes and those that all count for, if it has a header (``message_bytes``)."""

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
        part = txn.parts.get(self.id) or self.join(txn)
        self._take_turn(part)
        part.push(Op.SKIP, seq)
        part.last_seq = self.state.last_seq = seq

    def remove(self, txn: Txn, seq: int) -> bool:
        """Stage the removal of one message; False when there is none."""
        if not 0 < seq <= self.state.last_seq or self._is_hidden(seq):
            return False
        try:
            found = self._find(seq)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            found = (b"", 0)  # nobody can say what it was, but it can go
            self._remove(txn, seq, *found)
            self._subjects = self._tracking = None
            return True
        if found is None:
            return False
        self._remove(txn, seq, *found)
        return True

    def remove_known(self, txn: Txn, message: StoredMessage) -> None:
        """Stage the removal of a live committed message that was just read."""
        size = self.message_bytes(message.subject, message.header, message.payload)
        self._remove(txn, message.seq, message.subject, size)

    def purge(self, txn: Txn, below_seq: int = 0, subject_filter: bytes = b"", keep: int = 0) -> int:
        """Stage the removal of all messages, of those below ``below_seq``, of those that ``subject_filter`` matches (also
        with ``below_seq``), leaving the newest ``keep`` of them. Returns how many go. Reads what it removes, except when it
        removes everything."""
        if subject_filter not in (b"", b">"):
            return self._purge_filtered(txn, below_seq, subject_filter, keep)
        state = self.state
        if not state.messages:
            return 0
        last = min(below_seq - 1, state.last_seq) if below_seq else state.last_seq
        if keep:
            if keep >= state.messages:
                return 0
            last = min(last, self.seq_from_end(keep) - 1)
        if last < state.first_seq:
            return 0
        return self._purge_range(txn, last)

    def purge_some(self, txn: Txn, first: int, last: int, subject_filter: bytes, at_most: int) -> tuple[int, int]:
        """Stage the removal of up to ``at_most`` committed messages of [first, last] that the filter matches, looking at a bounded
        number of records. Returns how many go, and where to go on."""
        gone = 0
        seq = first
        for _ in range(_READS_MAX):
            if seq > last or gone >= at_most:
                break
            try:
                found = self.read(
                    seq,
                    max_messages=min(_CHUNK, at_most - gone),
                    max_bytes=_CHUNK_BYTES,
                    filters=(subject_filter,),
                    up_to=last,
                )
            except StoreError as error:
                if error.reason != "corrupt":
                    raise
                seq = error.seq + 1
                continue
            for message in found.messages:
                self.remove_known(txn, message)
            gone += len(found.messages)
            seq = found.next_seq
        return gone, max(seq, last + 1) if seq > self.committed_seq else seq

    def sweep(self, txn: Txn, first: int, last: int, unwanted: Unwanted, at_most: int) -> tuple[list[int], int]:
        """Stage the removal of up to ``at_most`` committed messages of [first, last] that are ``unwanted``, asked in their order,
        looking at a bounded number of records. Returns which go, and where to go on."""
        gone: list[int] = []
        seq, last = first, min(last, self.committed_seq)
        for _ in range(_READS_MAX):
            if seq > last:
                break
            heads, _, seq = self._reader.heads(seq, last, _CHUNK)
            for at, subject in heads:
                if self._is_hidden(at) or not unwanted(at, subject):
                    continue
                if len(gone) == at_most:
                    return gone, at
                if self.remove(txn, at):
                    gone.append(at)
        return gone, seq

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
            self._subjects = self._tracking = None
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
        for subjects in (self._subjects, self._tracking):
            if subjects is not None:
                subjects.restore(subject, seq)

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

    def _find(self, seq: int) -> tuple[bytes, int] | None:
        """Subject and counted bytes of a live message, staged or committed."""
        if seq > self.committed_seq:
            for part in reversed(self._parts):
                found = part.added.get(seq)
                if found is not None:
                    return found
            return None
        message = self.get(seq)
        if message is None:
            return None
        return message.subject, self.message_bytes(message.subject, message.header, message.payload)

    def _remove(self, txn: Txn, seq: int, subject: bytes, size: int) -> None:
        part = txn.parts.get(self.id) or self.join(txn)
        run = part.removes
        if run is None:
            run = []
            part.push(Op.REMOVE, run)
            part.removes = run
        run.append((pack_u64(seq), size))
        part.removed[seq] = (subject, size)
        self._hidden[seq] = part
        state = self.state
        state.messages -= 1
        state.bytes -= size
        state.first_gone(seq)
        self._uncount(subject, seq)

    def _uncount(self, subject: bytes, seq: int) -> None:
        for subjects in (self._subjects, self._tracking):
            if subjects is not None:
                subjects.discard(subject, seq)

    def seq_from_end(self, keep: int) -> int:
        """The sequence of the ``keep``-th live message counted from the newest, staged ones included; looks at as many keys."""
        state = self.state
        if not state.num_deleted:
            return state.last_seq + 1 - keep
        staged = [seq for seq, _, _ in self._staged_live()]
        if keep <= len(staged):
            return staged[-keep]
        keep -= len(staged)
        high, width = self.committed_seq, 64
        while high > 0:
            low = max(high - width + 1, self._floor, 1)
            live = [seq for seq in self._reader.seqs(low, high, width) if not self._is_hidden(seq)]
            if keep <= len(live):
                return live[-keep]
            keep -= len(live)
            high, width = low - 1 if low > max(self._floor, 1) else 0, min(width * 2, _CHUNK)
        return max(self._floor, 1)

    def _purge_range(self, txn: Txn, last: int) -> int:
        """Remove every live message up to ``last``."""
        state = self.state
        before = state.messages
        for part in list(self._parts):
            for seq, (subject, size) in list(part.added.items()):
                if seq <= last and seq not in self._hidden:
                    self._remove(txn, seq, subject, size)
        last = min(last, self.committed_seq)
        first = self._next_live(1)
        if first and first <= last:
            self._hide_range(txn, first, last)
        return before - state.messages

    def _hide_range(self, txn: Txn, first: int, last: int) -> None:
        state = self.state
        if last == self.committed_seq:
            staged = [size for _, _, size in self._staged_live()]
            messages, bytes_ = state.messages - len(staged), state.bytes - sum(staged)
            self._subjects = None if staged else Subjects()
            self._tracking = None
        elif last - first <= self.committed_seq - last:
            messages, bytes_ = self._take_off(first, last)
        else:
            kept, kept_bytes = self._keep_only(last + 1)
            messages, bytes_ = state.messages - kept, state.bytes - kept_bytes
        part = self.join(txn)
        part.push(Op.PURGE, (last + 1, messages, bytes_))
        hidden = HiddenRange(first, last, messages, bytes_)
        part.ranges.append(hidden)
        self._hidden_ranges.append(hidden)
        state.messages -= messages
        state.bytes -= bytes_
        state.first_from(last + 1)

    def _keep_only(self, first: int) -> tuple[int, int]:
        """Messages and counted bytes of the live messages from ``first`` on, staged ones included; the subjects' numbers become those
        of them."""
        messages = bytes_ = 0
        subjects = Subjects()
        for seq, subject, size in self._live_between(first, self.committed_seq):
            messages += 1
            bytes_ += size
            if subject:
                subjects.add(subject, seq)
        for part in self._parts:
            part.before.clear()
            for seq, (subject, size) in part.added.items():
                if seq not in self._hidden:
                    messages += 1
                    bytes_ += size
                    before = subjects.add(subject, seq)
                    part.before.setdefault(subject, before)
        self._subjects, self._tracking = subjects, None
        return messages, bytes_

    def _take_off(self, first: int, last: int) -> tuple[int, int]:
        """Messages and counted bytes of the live committed messages in [first, last], taken off the subjects' numbers."""
        messages = bytes_ = 0
        for seq, subject, size in self._live_between(first, last):
            messages += 1
            bytes_ += size
            self._uncount(subject, seq)
        return messages, bytes_

    def _live_between(self, first: int, last: int, filters: tuple[bytes, ...] = ()) -> Iterator[tuple[int, bytes, int]]:
        """(seq, subject, bytes counted) of the live committed messages in [first, last]. A corrupt record has no subject and
        counts nothing, as on disk (see ``lmdb_batch.recount``); with filters it is left out."""
        size_of = self.message_bytes
        seq = first
        while seq <= last:
            try:
                result = self.read(seq, max_messages=_CHUNK, max_bytes=_CHUNK_BYTES, filters=filters, up_to=last)
            except StoreError as error:
                if error.reason != "corrupt":
                    raise
                if not filters:
                    yield error.seq, b"", 0
                seq = error.seq + 1
                continue
            for message in result.messages:
                yield message.seq, message.subject, size_of(message.subject, message.header, message.payload)
            seq = result.next_seq

    def _purge_filtered(self, txn: Txn, below_seq: int, subject_filter: bytes, keep: int) -> int:
        if not any(True for _ in self.subjects().matching(subject_filter)):
            return 0
        last = min(below_seq - 1, self.state.last_seq) if below_seq else self.state.last_seq
        filters = (subject_filter,)
        found = list(self._live_between(max(self.state.first_seq, 1), min(last, self.committed_seq), filters))
        match = matcher(filters)
        assert match is not None
        found.extend(staged for staged in self._staged_live() if staged[0] <= last and match(staged[1]))
        if keep:
            del found[-keep:]
        for seq, subject, size in found:
            self._remove(txn, seq, subject, size)
        return len(found)
