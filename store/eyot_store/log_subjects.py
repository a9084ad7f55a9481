"""A log by subject: counts, first and last messages, and sequences where they are tracked.

The numbers are kept in memory once somebody asked for them; they come from the index on disk and the few records behind it, or,
where there is none yet, from one pass over the log's records (about half a microsecond each). They move with every staged operation, as the log's own numbers do; what is *read* through them is
committed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from eyot_store.errors import StoreError
from eyot_store.index_reader import Indexed, entries_of
from eyot_store.log_view import KEYS_MAX, LogView
from eyot_store.records import StoredMessage
from eyot_store.subjects import SubjectEntry, Subjects
from eyot_store.tracking import Tracking

TRACKED_MESSAGES_MAX = 1 << 22
"""Logs with more messages are not tracked by themselves: 8 bytes of memory a message, and a pass to build it."""

_TRACK_READS = 8  # of one slice of tracking


class LogSubjects(LogView):
    """Reading by subject."""

    _subjects: Subjects | None
    _tracking: Tracking | None
    on_slow: Callable[[], None] | None
    """Called where tracking would help; whoever sets it calls ``track_some`` until that is true. None: it is done at once."""

    def subjects(self) -> Subjects:
        """Per-subject numbers, staged operations included; one pass over the log on first use."""
        subjects = self._subjects
        if subjects is None:
            subjects = self._subjects = self._build_subjects(tracked=False)
        return subjects

    def track(self) -> Subjects:
        """The same, with the sequences of every subject: cheap removal of a subject's oldest, cheap sparse filters."""
        if self._subjects is None or not self._subjects.tracked:
            self._subjects = self._build_subjects(tracked=True)
            self._tracking = None
        return self._subjects

    def track_some(self) -> bool:
        """A slice of ``track``, however much there is; True when the log is tracked."""
        if self._subjects is not None and self._subjects.tracked:
            return True
        tracking = self._tracking
        if tracking is None:
            tracking = self._tracking = Tracking(self._next_live(1) or self.committed_seq + 1)
        for _ in range(_TRACK_READS):
            if tracking.next_seq > self.committed_seq:
                self._add_staged(tracking.subjects)
                self._subjects, self._tracking = tracking.subjects, None
                return True
            tracking.next_seq = self._add_heads(tracking.subjects, tracking.next_seq)
        return False

    def oldest_soon(self, subject: bytes) -> int | None:
        """The same as ``first_seq_for``; None when it would take long to find. Then ``on_slow`` has been called."""
        entry = self.subjects().entries.get(subject)
        if entry is None:
            return 0
        seq = max(entry.floor, self._floor)
        if not entry.first:
            self._look_among_staged(subject, entry)
        if not entry.first and self.on_slow is not None and self.committed_seq - seq >= KEYS_MAX:
            heads, _, _ = self._reader.heads(seq, self.committed_seq, KEYS_MAX)
            found = next((at for at, each in heads if each == subject and not self._is_hidden(at)), 0)
            if not found:
                self.on_slow()
                return None
            entry.first = entry.floor = found
        return entry.first or self._search_first(subject, entry)

    def subject_totals(self, subject_filter: bytes = b">") -> Iterable[tuple[bytes, int]]:
        """(subject, messages) of every subject the filter matches; staged messages count."""
        return [(subject, entry.count) for subject, entry in self.subjects().matching(subject_filter)]

    def subject_count(self, subject: bytes) -> int:
        """Messages of a literal subject, staged messages included."""
        entry = self.subjects().entries.get(subject)
        return entry.count if entry else 0

    def first_seq_for(self, subject: bytes) -> int:
        """Oldest sequence of a literal subject, staged messages included; 0 = none."""
        entry = self.subjects().entries.get(subject)
        if entry is None:
            return 0
        return entry.first or self._search_first(subject, entry)

    def last_seq_for(self, subject: bytes) -> int:
        """Newest sequence of a literal subject, staged messages included; 0 = none."""
        entry = self.subjects().entries.get(subject)
        if entry is None:
            return 0
        if not entry.last:
            entry.last = self._search_last(subject)
        return entry.last

    def last_for(self, subject_filter: bytes) -> StoredMessage | None:
        """The newest committed message whose subject the filter matches."""
        best = 0
        for subject, entry in list(self.subjects().matching(subject_filter)):
            if entry.last == 0 or entry.last > best:
                best = max(best, self._last_committed(subject, entry, best))
        return self.get(best) if best else None

    def last_committed_for(self, subject: bytes) -> int:
        """Newest committed sequence of a literal subject; 0 = none."""
        entry = self.subjects().entries.get(subject)
        return self._last_committed(subject, entry, 0) if entry else 0

    # -- inside ----------------------------------------------------------------------------------------------------

    def _build_subjects(self, *, tracked: bool) -> Subjects:
        """From the index on disk; one pass over the records where there is none, or every sequence is asked for. Corrupt records
        count for no subject; whoever reads one is told."""
        subjects = Subjects(tracked=tracked)
        indexed = None if tracked else self._indexed()
        if indexed is None:
            seq = self._next_live(1) or self.committed_seq + 1
        else:
            subjects.entries = entries_of(indexed.summary)
            seq = self.committed_seq + 1
        while seq <= self.committed_seq:
            seq = self._add_heads(subjects, seq)
        self._add_staged(subjects)
        return subjects

    def _add_heads(self, subjects: Subjects, seq: int) -> int:
        """Take in the next committed records; returns where to go on."""
        heads, _, seq = self._reader.heads(seq, self.committed_seq, KEYS_MAX)
        if self._hidden or self._hidden_ranges:
            heads = [head for head in heads if not self._is_hidden(head[0])]
        add = subjects.add
        for at, subject in heads:
            add(subject, at)
        return seq

    def _add_staged(self, subjects: Subjects) -> None:
        for part in self._parts:
            part.before.clear()
            for at, (subject, _) in part.added.items():
                if at not in self._hidden:
                    before = subjects.add(subject, at)
                    part.before.setdefault(subject, before)

    def _indexed(self) -> Indexed | None:
        floor = max([self._floor, *(hidden.last + 1 for hidden in self._hidden_ranges)])
        try:
            return self._reader.indexed(floor, self.committed_seq, self._hidden.keys())
        except StoreError as error:
            raise self._named(error) from None

    def _last_committed(self, subject: bytes, entry: SubjectEntry, above: int) -> int:
        """Newest committed sequence of a literal subject, or something not above ``above``."""
        committed = self.committed_seq
        last = entry.last or self.last_seq_for(subject)
        if last <= committed:
            return last
        if entry.seqs is not None:
            index = bisect_right(entry.seqs, committed, entry.start)
            return entry.seqs[index - 1] if index > entry.start else 0
        if entry.count == 1:
            return 0
        for part in self._parts:
            last = part.before.get(subject, last)
            if last <= committed:
                break
        if last <= committed and not self._is_hidden(last):
            return last
        return self._search_last(subject, above=above, staged=False)

    def _look_among_staged(self, subject: bytes, entry: SubjectEntry) -> None:
        """If all messages of a subject are staged (a bucket's key that was put twice in a turn), the oldest of them is known."""
        staged = [at for at, found, _ in self._staged_live() if found == subject]
        if len(staged) == entry.count:
            entry.first = entry.floor = staged[0]

    def _search_first(self, subject: bytes, entry: SubjectEntry) -> int:
        """Look for a subject's oldest message from where it may be on; tracks the log if that is not near."""
        seq = max(entry.floor, self._floor)
        near = True
        while seq <= self.committed_seq:
            heads, _, seq = self._reader.heads(seq, self.committed_seq, KEYS_MAX)
            for at, found in heads:
                if found == subject and not self._is_hidden(at):
                    entry.first = entry.floor = at
                    return at
            if near and self.state.messages <= TRACKED_MESSAGES_MAX:
                if self.on_slow is None:
                    tracked = self.track().entries.get(subject)
                    return tracked.first if tracked else 0
                self.on_slow()
            near = False
        entry.first = next((at for at, found, _ in self._staged_live() if found == subject), 0)
        return entry.first

    def _search_last(self, subject: bytes, *, above: int = 0, staged: bool = True) -> int:
        """Look for a subject's newest message, backwards."""
        if staged:
            newest = [at for at, found, _ in self._staged_live() if found == subject]
            if newest:
                return newest[-1]
        high, width = self.committed_seq, 64
        above = max(above, self._floor - 1)
        while high > above:
            low = max(high - width + 1, above + 1)
            heads, _, end = self._reader.heads(low, high, width)
            assert end > high
            for at, found in reversed(heads):
                if found == subject and not self._is_hidden(at):
                    return at
            high, width = low - 1, min(width * 2, KEYS_MAX)
        return 0

    def _committed_total(self, subjects: Iterable[bytes] | None, from_seq: int = 1) -> int:
        """Committed messages of these subjects (None = of all) at or after ``from_seq``, where the log is tracked or
        ``from_seq`` is 1."""
        if subjects is None:
            return self.state.messages - sum(1 for _ in self._staged_live())
        entries = self.subjects().entries
        wanted = {subject: entries[subject] for subject in subjects if subject in entries}
        if from_seq <= 1:
            total = sum(entry.count for entry in wanted.values())
        else:
            total = sum(entry.count_from(from_seq) for entry in wanted.values())
        return total - sum(1 for at, subject, _ in self._staged_live() if subject in wanted and at >= from_seq)
