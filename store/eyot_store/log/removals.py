"""Stages removals: single messages, many known ones, purges. `log.py` defines staging."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from eyot_store.errors import StoreError
from eyot_store.log.backend import Backend
from eyot_store.log.reads import SCAN_MAX, LogReads
from eyot_store.log.stager import LogStager
from eyot_store.log.subjects import SubjectIndex
from eyot_store.log.view import LogView
from eyot_store.record_run import Weighed
from eyot_store.records.record import pack_u64
from eyot_store.subjects.subjects import Subjects, matcher
from eyot_store.txn import HiddenRange, LogPart, Op, Txn
from eyot_wire.subject import is_literal

_CHUNK = 1024
_CHUNK_BYTES = 16 << 20
_READS_MAX = 4  # of one slice of a sweep
_LONG_BYTES = 4096  # on average: so large messages are searched by their heads
_SEEKING_READS = 8
#: Above every sequence.
UNWATCHED = 1 << 63

Unwanted = Callable[[int, bytes | None], bool]
"""(sequence, subject) -> whether no consumer wants the message; the subject of a damaged one is unknown: None."""


class LogRemovals:
    """Stages the removal of messages."""

    __slots__ = ("_backend", "_index", "_reads", "_stager", "_view", "on_unconfirmed", "unconfirmed_from")

    def __init__(
        self, view: LogView, index: SubjectIndex, reads: LogReads, stager: LogStager, backend: Backend
    ) -> None:
        self._view = view
        self._index = index
        self._reads = reads
        self._stager = stager
        self._backend = backend
        #: The lowest sequence that a downstream has not confirmed. Removals from it on are reported to `on_unconfirmed`.
        self.unconfirmed_from = UNWATCHED
        #: Called with (transaction, reason, first sequence, last, subject; None for a range) before a removal.
        self.on_unconfirmed: Callable[[Txn, str, int, int, bytes | None], None] | None = None

    def remove(self, txn: Txn, seq: int, why: str = "deleted") -> bool:
        """Stage the removal of one message; return False when there is none.

        `why`: the reason, recorded when a downstream has not confirmed the message; "" when no downstream is to receive
        it.
        """
        if not 0 < seq <= self._view.state.last_seq or self._view.is_hidden(seq):
            return False
        try:
            found = self._find(seq)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            # Its content is unknown, but it can be removed; with the last message all bytes are.
            found = (
                b"",
                min(error.size, self._view.state.bytes) if self._view.state.messages > 1 else self._view.state.bytes,
            )
            self._remove(txn, seq, *found, why)
            self._index.reload(None)
            return True
        if found is None:
            return False
        self._remove(txn, seq, *found, why)
        return True

    def count_bytes(self, seqs: Sequence[int]) -> list[Weighed]:
        """Return the sizes of the committed messages at `seqs` (ascending) for `remove_all`, without unreadable ones."""
        if seqs and seqs[0] < self._view.floor:
            seqs = seqs[bisect_left(seqs, self._view.floor) :]  # purged; their records may still be there
        try:
            return self._view.records.count_bytes(
                seqs, self._backend.message_bytes(b"", b"", b""), self._backend.header_bytes
            )
        except StoreError as error:
            raise self._view.named(error) from None

    def remove_all(self, txn: Txn, found: list[Weighed], why: str = "deleted") -> None:
        """Stage the removal of live committed messages that were just weighed, ascending; `why` as for `remove`."""
        if found[-1][0] >= self.unconfirmed_from:
            for seq, subject, _ in found:
                self._tell(txn, why, seq, seq, subject)
        part = self._stager.join(txn)
        if why:
            part.takes_upto = max(part.takes_upto, found[-1][0])
        run = self._removals(part)
        state = self._view.state
        for seq, subject, size in found:
            run.append((pack_u64(seq), size))
            part.removed[seq] = (subject, size)
            self._view.hidden[seq] = part
            state.messages -= 1
            state.bytes -= size
            state.first_gone(seq)
        self._index.discard_run(found)

    def remove_first(self, txn: Txn, at_most: int, why: str, excess_bytes: int = 0) -> list[int]:
        """Stage the removal of the oldest messages, at most `at_most`; return their sequences, in order.

        `excess_bytes`: stop behind the message that makes it so many bytes; 0: bytes do not matter. `why` as for `remove`.
        Less than `at_most` may be removed while there are more; none only if there are none.
        """
        view = self._view
        first = view.state.first_seq
        if at_most > 1 and first <= view.committed_seq:
            found = self._weighed_from(first, min(at_most, _CHUNK))
            if excess_bytes:
                freed = accumulate(size for _, _, size in found)
                found = found[: bisect_left(list(freed), excess_bytes) + 1]
            if found:
                self.remove_all(txn, found, why)
                return [seq for seq, _, _ in found]
        return [first] if self.remove(txn, first, why) else []

    def _weighed_from(self, first: int, at_most: int) -> list[Weighed]:
        """Return the oldest committed messages with their sizes, up to the first that is unreadable."""
        try:
            seqs = self._view.records.seqs(first, self._view.committed_seq, at_most)
            live = [seq for seq in seqs if not self._view.is_hidden(seq)]
            found = self.count_bytes(live)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            return []
        readable = sum(1 for seq, weighed in zip(live, found, strict=False) if seq == weighed[0])
        return found if len(found) == len(live) else found[:readable]

    def purge(
        self, txn: Txn, below_seq: int = 0, subject_filter: bytes = b"", keep: int = 0, why: str = "purge"
    ) -> int:
        """Stage the removal of all messages, those below `below_seq`, or those matching `subject_filter` (also with `below_seq`).

        The newest `keep` of them stay. Returns the number of removed messages. Reads what it removes, but no long payloads,
        and nothing when it removes everything.
        """
        if subject_filter not in (b"", b">"):
            return self._purge_filtered(txn, below_seq, subject_filter, keep, why)
        state = self._view.state
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
        """Stage the removal of up to `at_most` committed messages of [first, last] that the filter matches, in bounded time.

        Returns how many are removed, and where to continue.
        """
        wanted, filters = min(_CHUNK, at_most), (subject_filter,)
        try:
            sparse, state = self._reads.sparse(filters), self._view.state
            if sparse is not None:
                seqs = self._reads.sparse_seqs(sparse, first, last, wanted)
                seq = seqs[-1] + 1 if len(seqs) == wanted else last + 1
            elif state.bytes > _LONG_BYTES * state.messages:
                seqs, seq = self._matching_heads(first, last, filters, wanted)
            else:
                # So far only: a filter that is used once is no reason to track the log.
                end = min(last, first + SCAN_MAX - 1)
                read = self._reads.read_run(
                    first, max_messages=wanted, max_bytes=_CHUNK_BYTES, filters=filters, up_to=end
                )
                seqs, seq = ([], end + 1) if read is None else (read[0].seqs(), read[1])
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            return 0, error.seq + 1
        found = self.count_bytes(seqs)
        if found:
            self.remove_all(txn, found, "purge")
        return len(found), max(seq, last + 1) if seq > self._view.committed_seq else seq

    def _matching_heads(self, first: int, last: int, filters: tuple[bytes, ...], wanted: int) -> tuple[list[int], int]:
        """Return up to `wanted` live committed messages that the filters select, by their heads, and where to continue."""
        match, view = matcher(filters), self._view
        seqs: list[int] = []
        seq, last = max(first, view.floor, 1), min(last, view.committed_seq)
        for _ in range(_READS_MAX):
            if seq > last or len(seqs) >= wanted:
                break
            heads, _, seq = view.heads(seq, last, wanted - len(seqs))
            seqs += [at for at, subject in heads if (match is None or match(subject)) and not view.is_hidden(at)]
        return seqs, seq

    def sweep(
        self, txn: Txn, first: int, last: int, unwanted: Unwanted, at_most: int, why: str = "max_msgs_per_subject"
    ) -> tuple[list[int], int]:
        """Stage the removal of up to `at_most` committed messages of [first, last] that are `unwanted`, in bounded time.

        `unwanted` is called in order. Returns the removed sequences, and where to continue.
        """
        gone: list[int] = []
        seq, last = first, min(last, self._view.committed_seq)
        for _ in range(_READS_MAX):
            if seq > last:
                break
            heads, damaged, seq = self._view.heads(seq, last, _CHUNK)
            found: list[tuple[int, bytes | None]] = [*heads]
            if damaged:
                found = sorted([*heads, *((at, None) for at in damaged)], key=itemgetter(0))
            for at, subject in found:
                if self._view.is_hidden(at) or not unwanted(at, subject):
                    continue
                if len(gone) == at_most:
                    return gone, at
                if self.remove(txn, at, why):
                    gone.append(at)
        return gone, seq

    # -- inside ----------------------------------------------------------------------------------------------------

    def _find(self, seq: int) -> tuple[bytes, int] | None:
        """Subject and counted bytes of a live message, staged or committed."""
        if seq > self._view.committed_seq:
            for part in reversed(self._view.parts):
                found = part.added.get(seq)
                if found is not None:
                    return found[1:]
            return None
        weighed = self.count_bytes((seq,))
        if weighed:
            return weighed[0][1:]
        # It is unreadable, or there is none.
        message = self._view.get(seq)
        if message is None:
            return None
        return message.subject, self._backend.message_bytes(message.subject, message.header, message.payload)

    def _tell(self, txn: Txn, why: str, first: int, last: int, subject: bytes | None) -> None:
        """Report messages that will be removed and that a downstream may not have confirmed."""
        if why and last >= self.unconfirmed_from and self.on_unconfirmed is not None:
            self.on_unconfirmed(txn, why, first, last, subject)

    def _remove(self, txn: Txn, seq: int, subject: bytes, size: int, why: str) -> None:
        if seq >= self.unconfirmed_from:
            self._tell(txn, why, seq, seq, subject)
        part = self._stager.join(txn)
        if why:
            part.takes_upto = max(part.takes_upto, seq)
        if seq > self._view.committed_seq:
            part.removes_uncommitted = True
        self._removals(part).append((pack_u64(seq), size))
        part.removed[seq] = (subject, size)
        self._view.hidden[seq] = part
        state = self._view.state
        state.messages -= 1
        state.bytes -= size
        state.first_gone(seq)
        self._index.discard(subject, seq)

    @staticmethod
    def _removals(part: LogPart) -> list[tuple[bytes, int]]:
        run = part.removes
        if run is None:
            run = []
            part.push(Op.REMOVE, run)
            part.removes = run
        return run

    def seq_from_end(self, keep: int) -> int:
        """Return the sequence of the `keep`-th newest live message, staged ones included; reads as many keys."""
        seeking = self.from_end(keep)
        while not seeking.step():
            pass
        return seeking.seq

    def from_end(self, keep: int) -> FromEnd:
        """Return the search in slices."""
        return FromEnd(self._view, keep)

    def _purge_range(self, txn: Txn, last: int, why: str) -> int:
        """Remove every live message up to `last`."""
        state = self._view.state
        before = state.messages
        first = state.first_seq
        for seq, subject, size in list(self._view.staged_messages(first)):
            if seq > last:
                break
            self._remove(txn, seq, subject, size, why)
        last = min(last, self._view.committed_seq)
        first = self._view.next_live(first)
        if first and first <= last:
            self._tell(txn, why, first, last, None)
            self._hide_range(txn, first, last)
            if why:
                part = self._stager.join(txn)
                part.takes_upto = max(part.takes_upto, last)
        return before - state.messages

    def _hide_range(self, txn: Txn, first: int, last: int) -> None:
        state = self._view.state
        if last == self._view.committed_seq:
            staged = [size for _, _, size in self._view.staged_messages()]
            messages, bytes_ = state.messages - len(staged), state.bytes - sum(staged)
            self._index.reload(None if staged else Subjects())
        elif last - first <= self._view.committed_seq - last:
            messages, bytes_ = self._take_off(first, last)
        else:
            kept, kept_bytes = self._keep_only(last + 1)
            messages, bytes_ = state.messages - kept, state.bytes - kept_bytes
        part = self._stager.join(txn)
        part.push(Op.PURGE, (last + 1, messages, bytes_))
        hidden = HiddenRange(last, messages, bytes_)
        part.ranges.append(hidden)
        self._view.hidden_ranges.append(hidden)
        state.messages -= messages
        state.bytes -= bytes_
        state.first_from(last + 1)

    def _keep_only(self, first: int) -> tuple[int, int]:
        """Keep only messages from `first` on in the subjects' counters; return their number and size, staged ones included."""
        messages = bytes_ = 0
        subjects = Subjects()
        for seq, subject, size in self._all_between(first, self._view.committed_seq):
            messages += 1
            bytes_ += size
            if subject:
                subjects.add(subject, seq)
        for part in self._view.parts:
            part.before.clear()
            for seq, subject, size in part.added:
                if seq not in self._view.hidden:
                    messages += 1
                    bytes_ += size
                    before = subjects.add(subject, seq)
                    part.before.setdefault(subject, before)
        self._index.reload(subjects)
        return messages, bytes_

    def _take_off(self, first: int, last: int) -> tuple[int, int]:
        """Subtract the live committed messages in [first, last] from the subjects' counters; return their number and size."""
        messages = bytes_ = 0
        all_known = True
        for seq, subject, size in self._all_between(first, last):
            messages += 1
            bytes_ += size
            all_known = all_known and subject != b""
            self._index.discard(subject, seq)
        if not all_known:
            self._index.reload(None)
        return messages, bytes_

    def _all_between(self, first: int, last: int) -> Iterator[tuple[int, bytes, int]]:
        """Yield (seq, subject, counted size) of the live committed messages in [first, last]; reads no long payload.

        A corrupt record has no subject and the size that it shows, as on disk (see `lmdb.batch.recount`).
        """
        view = self._view
        seq = max(first, view.floor, 1)
        while seq <= last:
            chunk = view.records.seqs(seq, last, _CHUNK)
            live = [at for at in chunk if not view.is_hidden(at)]
            known = {at: (subject, size) for at, subject, size in self.count_bytes(live)}
            for at in live:
                found = known.get(at)
                if found is not None:
                    yield at, *found
                else:
                    yield from self._whole(at)
            seq = chunk[-1] + 1 if chunk else last + 1

    def _whole(self, seq: int) -> Iterator[tuple[int, bytes, int]]:
        """As `_all_between`, of one message, which is read whole."""
        try:
            message = self._view.get(seq)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            yield seq, b"", error.size
        else:
            if message is not None:
                size = self._backend.message_bytes(message.subject, message.header, message.payload)
                yield seq, message.subject, size

    def _matching_between(self, first: int, last: int, filters: tuple[bytes, ...]) -> Iterator[tuple[int, bytes, int]]:
        """As `_all_between`, of the messages that the filters select. A corrupt record is none of them."""
        view = self._view
        first, last = max(first, view.floor, 1), min(last, view.committed_seq)
        sparse = self._reads.sparse(filters)
        if sparse is not None:
            while seqs := self._reads.sparse_seqs(sparse, first, last, _CHUNK):
                yield from self.count_bytes(seqs)
                first = seqs[-1] + 1
            return
        match = matcher(filters)
        assert match is not None
        while first <= last:
            heads, _, first = view.heads(first, last, _CHUNK)
            yield from self.count_bytes([at for at, subject in heads if match(subject) and not view.is_hidden(at)])

    def _purge_filtered(self, txn: Txn, below_seq: int, subject_filter: bytes, keep: int, why: str) -> int:
        if is_literal(subject_filter) and not (below_seq and keep):
            return self._purge_subject(txn, below_seq, subject_filter, keep, why)
        if not any(True for _ in self._index.subjects().matching(subject_filter)):
            return 0
        last = min(below_seq - 1, self._view.state.last_seq) if below_seq else self._view.state.last_seq
        filters = (subject_filter,)
        found = list(self._matching_between(self._view.state.first_seq, last, filters))
        match = matcher(filters)
        assert match is not None
        found.extend(staged for staged in self._view.staged_messages() if staged[0] <= last and match(staged[1]))
        if keep:
            del found[-keep:]
        for seq, subject, size in found:
            self._remove(txn, seq, subject, size, why)
        return len(found)

    def _purge_subject(self, txn: Txn, below_seq: int, subject: bytes, keep: int, why: str) -> int:
        """Remove messages of one subject, as every roll-up does: nothing is read to find that there is none, or which one.

        An unreadable message whose subject nobody knows stays.
        """
        excess, removed = self._index.subject_count(subject) - keep, 0
        if excess > 2:
            # `_oldest` knows the last one of a roll-up: a search for it would go on to the end.
            removed = self._purge_committed(txn, below_seq, subject, excess - (keep == 1), why)
        while removed < excess:
            seq = self._oldest(txn, subject, keep) if removed + 1 == excess else self._index.first_seq_for(subject)
            if not seq or 0 < below_seq <= seq or not self.remove(txn, seq, why):
                break
            removed += 1
        return removed

    def _purge_committed(self, txn: Txn, below_seq: int, subject: bytes, at_most: int, why: str) -> int:
        """Remove the oldest committed messages of one subject together; return how many. Some may be left out."""
        seqs = self._index.oldest_committed(subject, at_most)
        if below_seq:
            del seqs[bisect_left(seqs, below_seq) :]
        removed = 0
        for start in range(0, len(seqs), _CHUNK):
            found = self.count_bytes(seqs[start : start + _CHUNK])
            if found:
                self.remove_all(txn, found, why)
            removed += len(found)
        return removed

    def _oldest(self, txn: Txn, subject: bytes, keep: int) -> int:
        """Return the oldest sequence of a subject with `keep` + 1 messages."""
        if keep == 1:
            before = self._stager.join(txn).before.get(subject, 0)  # the last one before those of this transaction
            if 0 < before < self._index.last_seq_for(subject) and not self._view.is_hidden(before):
                return before
        return self._index.first_seq_for(subject)


class FromEnd:
    """A search for the `keep`-th newest live message as of now: call `step` until it returns True; the result is `seq`."""

    def __init__(self, view: LogView, keep: int) -> None:
        self._view = view
        self._high, self._width = view.committed_seq, 64
        self._view.floor = max(view.floor, 1)
        self._keep = keep
        self.seq = 0
        state = view.state
        if not state.num_deleted:
            self.seq = state.last_seq + 1 - keep
            return
        staged = [seq for seq, _ in view.staged_live()]
        if keep <= len(staged):
            self.seq = staged[-keep]
        self._keep -= len(staged)

    def step(self) -> bool:
        """Read some thousand more keys; return True when found."""
        for _ in range(_SEEKING_READS):
            if self.seq:
                return True
            if self._high < self._view.floor:
                self.seq = self._view.floor
                return True
            low = max(self._high - self._width + 1, self._view.floor)
            live = self._view.live_seqs(low, self._high)
            if self._keep <= len(live):
                self.seq = live[-self._keep]
            self._keep -= len(live)
            self._high, self._width = low - 1, min(self._width * 2, _CHUNK)
        return self.seq > 0
