"""Staging removals: single messages, many that are known, purges. See ``log.py`` for what staging is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from eyot_store.errors import StoreError
from eyot_store.log.reads import LogReads
from eyot_store.record_run import Weighed
from eyot_store.records.record import pack_u64
from eyot_store.subjects.subjects import Subjects, matcher
from eyot_store.txn import HiddenRange, LogPart, Op, Txn

_CHUNK = 1024
_CHUNK_BYTES = 16 << 20
_READS_MAX = 4  # of one slice of a sweep
_SEEKING_READS = 8
#: Above every sequence.
UNWATCHED = 1 << 63

Unwanted = Callable[[int, bytes], bool]
"""(sequence, subject) -> whether nobody wants the message."""


class LogRemovals(LogReads):
    """The half of a log by which messages go; ``Log`` adds the one by which they come, and the settling."""

    header_bytes = 4
    """What a message counts for beyond its bytes and those that all count for, if it has a header (``message_bytes``)."""

    id: int

    #: The lowest sequence that somebody who copies this log has not confirmed. Its removal, and that of what lies above, is told.
    unconfirmed_from = UNWATCHED
    #: Told of (transaction, reason, first sequence, last, subject; of a range None) before they go.
    on_unconfirmed: Callable[[Txn, str, int, int, bytes | None], None] | None = None

    if TYPE_CHECKING:

        def join(self, txn: Txn) -> LogPart: ...

        @staticmethod
        def message_bytes(subject: bytes, header: bytes, payload: bytes) -> int: ...

    def remove(self, txn: Txn, seq: int, why: str = "deleted") -> bool:
        """Stage the removal of one message; False when there is none. ``why``: the reason, told where somebody has not confirmed the
        message; "" where nobody is to have it."""
        if not 0 < seq <= self.state.last_seq or self._is_hidden(seq):
            return False
        try:
            found = self._find(seq)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            # Nobody can say what it was, but it can go; with the last message all bytes go.
            found = (b"", min(error.size, self.state.bytes) if self.state.messages > 1 else self.state.bytes)
            self._remove(txn, seq, *found, why)
            self._reload_subjects(None)
            return True
        if found is None:
            return False
        self._remove(txn, seq, *found, why)
        return True

    def count_bytes(self, seqs: Sequence[int]) -> list[Weighed]:
        """What the committed messages at ``seqs`` (ascending) count for, as ``remove_all`` takes it; those that cannot be read are left
        out."""
        try:
            return self._reader.count_bytes(seqs, self.message_bytes(b"", b"", b""), self.header_bytes)
        except StoreError as error:
            raise self.named(error) from None

    def remove_all(self, txn: Txn, found: list[Weighed], why: str = "deleted") -> None:
        """Stage the removal of live committed messages that were just weighed, ascending; ``why`` as for ``remove``."""
        if found[-1][0] >= self.unconfirmed_from:
            for seq, subject, _ in found:
                self._tell(txn, why, seq, seq, subject)
        part = txn.parts.get(self.id) or self.join(txn)
        run = self._removals(part)
        state = self.state
        for seq, subject, size in found:
            run.append((pack_u64(seq), size))
            part.removed[seq] = (subject, size)
            self._hidden[seq] = part
            state.messages -= 1
            state.bytes -= size
            state.first_gone(seq)
        subjects = self._subjects
        if self._tracking is None and subjects is not None and not subjects.tracked and not self._points:
            subjects.table.went_run(found)
            return
        for seq, subject, _ in found:
            self._uncount(subject, seq)

    def purge(
        self, txn: Txn, below_seq: int = 0, subject_filter: bytes = b"", keep: int = 0, why: str = "purge"
    ) -> int:
        """Stage the removal of all messages, of those below ``below_seq``, of those that ``subject_filter`` matches (also
        with ``below_seq``), leaving the newest ``keep`` of them. Returns how many go. Reads what it removes, except when it
        removes everything."""
        if subject_filter not in (b"", b">"):
            return self._purge_filtered(txn, below_seq, subject_filter, keep, why)
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
        return self._purge_range(txn, last, why)

    def purge_some(self, txn: Txn, first: int, last: int, subject_filter: bytes, at_most: int) -> tuple[int, int]:
        """Stage the removal of up to ``at_most`` committed messages of [first, last] that the filter matches, looking at a bounded
        number of records. Returns how many go, and where to go on."""
        wanted, filters = min(_CHUNK, at_most), (subject_filter,)
        try:
            read = self.read_run(first, max_messages=wanted, max_bytes=_CHUNK_BYTES, filters=filters, up_to=last)
            if read is not None:
                seqs, seq = read[0].seqs(), read[1]
            else:
                seqs = self._sparse_seqs(self._sparse(filters) or (), first, last, wanted)
                seq = seqs[-1] + 1 if len(seqs) == wanted else last + 1
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            return 0, error.seq + 1
        found = self.count_bytes(seqs)
        if found:
            self.remove_all(txn, found, "purge")
        return len(found), max(seq, last + 1) if seq > self.committed_seq else seq

    def sweep(
        self, txn: Txn, first: int, last: int, unwanted: Unwanted, at_most: int, why: str = "max_msgs_per_subject"
    ) -> tuple[list[int], int]:
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
                if self.remove(txn, at, why):
                    gone.append(at)
        return gone, seq

    # -- inside ----------------------------------------------------------------------------------------------------

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

    def _tell(self, txn: Txn, why: str, first: int, last: int, subject: bytes | None) -> None:
        """Messages are about to go; somebody may not have confirmed them."""
        if why and last >= self.unconfirmed_from and self.on_unconfirmed is not None:
            self.on_unconfirmed(txn, why, first, last, subject)

    def _remove(self, txn: Txn, seq: int, subject: bytes, size: int, why: str) -> None:
        if seq >= self.unconfirmed_from:
            self._tell(txn, why, seq, seq, subject)
        part = txn.parts.get(self.id) or self.join(txn)
        self._removals(part).append((pack_u64(seq), size))
        part.removed[seq] = (subject, size)
        self._hidden[seq] = part
        state = self.state
        state.messages -= 1
        state.bytes -= size
        state.first_gone(seq)
        self._uncount(subject, seq)

    def _uncount(self, subject: bytes, seq: int) -> None:
        for each in (self._subjects, self._tracking, self._points):
            if each is not None:
                each.discard(subject, seq)

    @staticmethod
    def _removals(part: LogPart) -> list[tuple[bytes, int]]:
        run = part.removes
        if run is None:
            run = []
            part.push(Op.REMOVE, run)
            part.removes = run
        return run

    def seq_from_end(self, keep: int) -> int:
        """The sequence of the ``keep``-th live message counted from the newest, staged ones included; looks at as many keys."""
        seeking = self.from_end(keep)
        while not seeking.step():
            pass
        return seeking.seq

    def from_end(self, keep: int) -> FromEnd:
        """The same, a slice at a time."""
        return FromEnd(self, keep)

    def live_seqs(self, low: int, high: int) -> list[int]:
        """Committed live sequences in [low, high]."""
        return [seq for seq in self._reader.seqs(low, high, high + 1 - low) if not self._is_hidden(seq)]

    def _purge_range(self, txn: Txn, last: int, why: str) -> int:
        """Remove every live message up to ``last``."""
        state = self.state
        before = state.messages
        for part in list(self._parts):
            for seq, (subject, size) in list(part.added.items()):
                if seq <= last and seq not in self._hidden:
                    self._remove(txn, seq, subject, size, why)
        last = min(last, self.committed_seq)
        first = self._next_live(1)
        if first and first <= last:
            self._tell(txn, why, first, last, None)
            self._hide_range(txn, first, last)
        return before - state.messages

    def _hide_range(self, txn: Txn, first: int, last: int) -> None:
        state = self.state
        if last == self.committed_seq:
            staged = [size for _, _, size in self._staged_live()]
            messages, bytes_ = state.messages - len(staged), state.bytes - sum(staged)
            self._reload_subjects(None if staged else Subjects())
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
        self._reload_subjects(subjects)
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
        counts what it says, as on disk (see ``lmdb_batch.recount``); with filters it is left out."""
        size_of = self.message_bytes
        seq = first
        while seq <= last:
            try:
                result = self.read(seq, max_messages=_CHUNK, max_bytes=_CHUNK_BYTES, filters=filters, up_to=last)
            except StoreError as error:
                if error.reason != "corrupt":
                    raise
                if not filters:
                    yield error.seq, b"", error.size
                seq = error.seq + 1
                continue
            for message in result.messages:
                yield message.seq, message.subject, size_of(message.subject, message.header, message.payload)
            seq = result.next_seq

    def _purge_filtered(self, txn: Txn, below_seq: int, subject_filter: bytes, keep: int, why: str) -> int:
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
            self._remove(txn, seq, subject, size, why)
        return len(found)


class FromEnd:
    """Looking for the ``keep``-th live message counted from the newest as of now: ``step`` until it is true, then it is at ``seq``."""

    def __init__(self, log: LogRemovals, keep: int) -> None:
        self._log = log
        self._high, self._width = log.committed_seq, 64
        self._floor = max(log._floor, 1)
        self._keep = keep
        self.seq = 0
        state = log.state
        if not state.num_deleted:
            self.seq = state.last_seq + 1 - keep
            return
        staged = [seq for seq, _ in log.staged_live()]
        if keep <= len(staged):
            self.seq = staged[-keep]
        self._keep -= len(staged)

    def step(self) -> bool:
        """Look at some thousand keys more; True when it is found."""
        for _ in range(_SEEKING_READS):
            if self.seq:
                return True
            if self._high < self._floor:
                self.seq = self._floor
                return True
            low = max(self._high - self._width + 1, self._floor)
            live = self._log.live_seqs(low, self._high)
            if self._keep <= len(live):
                self.seq = live[-self._keep]
            self._keep -= len(live)
            self._high, self._width = low - 1, min(self._width * 2, _CHUNK)
        return self.seq > 0
