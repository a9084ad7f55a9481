"""A log by subject: counts, first and last messages, and sequences where they are tracked.

The numbers are kept in memory once somebody asked for them; they come from the index on disk and the few records behind it, or,
where there is none yet, from one pass over the log's records (about half a microsecond each). They move with every staged operation, as the log's own numbers do; what is *read* through them is
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import perf_counter_ns

from eyot_store.errors import StoreError
from eyot_store.log.view import KEYS_MAX, LogView
from eyot_store.points import Points
from eyot_store.records.record import StoredMessage
from eyot_store.subject_table import Matched, SubjectTable
from eyot_store.subjects.index_reader import IndexReading
from eyot_store.subjects.matching import in_pieces, matching_any
from eyot_store.subjects.subjects import Numbers, Subjects
from eyot_store.subjects.tracking import Tracking
from eyot_wire.subject import is_literal

TRACKED_MESSAGES_MAX = 1 << 22
"""Logs with more messages are not tracked by themselves: 8 bytes of memory a message, and a pass to build it."""

WALK_MAX = 1 << 14
"""Records that may be looked at in one go, some 15 milliseconds."""

_TRACK_READS = 32  # of one slice of tracking, if that takes no longer
_SLICE_NS = 5_000_000
_HEADS = 256
_INDEX_RECORDS = 4  # of one slice of an index: some five thousand subjects


class LogSubjects(LogView):
    """Reading by subject."""

    _subjects: Subjects | None
    _tracking: Tracking | None
    _points: Points
    on_slow: Callable[[], None] | None
    """Called where tracking would help; whoever sets it calls ``track_some`` until that is true. None: it is done at once."""

    def subjects(self) -> Subjects:
        """Per-subject numbers, staged operations included; read from the index, or in one pass over the log, on first use."""
        while self._subjects is None:
            self._gather_some(tracked=False)
        return self._subjects

    @property
    def subjects_known(self) -> bool:
        """``subjects`` takes no time."""
        return self._subjects is not None

    def subjects_some(self) -> bool:
        """A slice of that first use, however much there is; True when ``subjects`` takes no time any more."""
        return self._subjects is not None or self._gather_some(tracked=False)

    def track(self) -> Subjects:
        """The same, with the sequences of every subject: cheap removal of a subject's oldest, cheap sparse filters."""
        while not self.track_some():
            pass
        return self.subjects()

    def track_some(self) -> bool:
        """A slice of ``track``, however much there is; True when the log is tracked."""
        return (self._subjects is not None and self._subjects.tracked) or self._gather_some(tracked=True)

    def oldest_soon(self, subject: bytes) -> int | None:
        """The same as ``first_seq_for``; None when it would take long to find. Then ``on_slow`` has been called."""
        known = self.subjects().table.get(subject)
        if known is None:
            return 0
        first = known[1]
        if first > 0:
            return first
        seq = max(-first, self._floor)
        first = self._look_among_staged(subject, known)
        if not first and self.on_slow is not None and self.committed_seq - seq >= KEYS_MAX:
            heads, _, _ = self._reader.heads(seq, self.committed_seq, KEYS_MAX)
            first = next((at for at, each in heads if each == subject and not self._is_hidden(at)), 0)
            if not first:
                self.on_slow()
                return None
            self._first_is(subject, first)
        return first or self._search_first(subject, known)

    def subject_totals(self, subject_filter: bytes = b">") -> Iterable[tuple[bytes, int]]:
        """(subject, messages) of every subject the filter matches; staged messages count."""
        return [(subject, count) for subject, count, _, _ in self.subjects().matching(subject_filter)]

    def matched(self, subject_filter: bytes) -> Matched:
        """The same, to be listed in order, in whatever thread."""
        return self.subjects().table.matched(b"" if subject_filter == b">" else subject_filter)

    def subject_total(self, subject_filter: bytes) -> int:
        """Messages of all subjects that the filter matches; staged messages count."""
        return self.subjects().table.total_from((subject_filter,), 0, 0)[0]

    def subject_count(self, subject: bytes) -> int:
        """Messages of a literal subject, staged messages included."""
        return self.subjects().table.count(subject)

    def first_seq_for(self, subject: bytes) -> int:
        """Oldest sequence of a literal subject, staged messages included; 0 = none."""
        known = self.subjects().table.get(subject)
        if known is None:
            return 0
        return known[1] if known[1] > 0 else self._search_first(subject, known)

    def last_seq_for(self, subject: bytes) -> int:
        """Newest sequence of a literal subject, staged messages included; 0 = none."""
        table = self.subjects().table
        known = table.get(subject)
        if known is None:
            return 0
        last = known[2]
        if not last:
            last = self._search_last(subject)
            table.set_ends(subject, known[1], last)
        return last

    def last_for(self, subject_filter: bytes) -> StoredMessage | None:
        """The newest committed message whose subject the filter matches."""
        best = self._newest(subject_filter)
        return self.get(best) if best else None

    def _newest(self, subject_filter: bytes) -> int:
        table = self.subjects().table
        if is_literal(subject_filter):
            known = table.get(subject_filter)
            return self._last_committed(subject_filter, known, 0) if known else 0
        best, others = table.newest(b"" if subject_filter == b">" else subject_filter, self.committed_seq)
        for subject in others:
            known = table.get(subject)
            if known is not None and (known[2] == 0 or known[2] > best):
                best = max(best, self._last_committed(subject, known, best))
        return best

    def lasts_of_each(self, subject_filter: bytes, above: int, upto: int) -> list[int]:
        """The newest committed sequences of every subject that the filter matches, of those in (``above``, ``upto``], in no order."""
        if is_literal(subject_filter):
            last = self.last_committed_for(subject_filter)
            return [last] if above < last <= upto else []
        wanted = b"" if subject_filter == b">" else subject_filter
        found, others = self.subjects().table.lasts(wanted, above, min(upto, self.committed_seq))
        for subject in others:
            last = self.last_committed_for(subject)
            if above < last <= upto:
                found.append(last)
        return found

    def lasts_of_any(self, filters: Sequence[bytes], above: int, upto: int) -> list[int]:
        """The same for subjects that one of many filters matches."""
        lasts = (self.last_committed_for(subject) for subject, *_ in matching_any(self.subjects().table, filters))
        return [last for last in lasts if above < last <= upto]

    def looking_for(self, filters: Sequence[bytes], most: int) -> LookingFor:
        """The subjects that one of many filters matches, to be looked for a slice at a time, until there are more than ``most``."""
        return LookingFor(self.subjects().table, filters, most)

    def last_committed_for(self, subject: bytes) -> int:
        """Newest committed sequence of a literal subject; 0 = none."""
        known = self.subjects().table.get(subject)
        return self._last_committed(subject, known, 0) if known else 0

    def lasts_below(self, subjects: Iterable[bytes], upto: int) -> LastsBelow:
        """The newest committed messages at or below ``upto`` of some subjects, to be looked for a slice at a time."""
        return LastsBelow(self, subjects, upto)

    def finds_last_soon(self, subject: bytes) -> bool:
        """False if ``last_for`` a literal subject has far to look, and would not if the log were tracked."""
        known = self.subjects().table.get(subject)
        return known is None or known[2] > 0 or not self._worth_tracking(1)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _reload_subjects(self, subjects: Subjects | None) -> None:
        """Nothing is known any more but these numbers."""
        self._subjects, self._tracking = subjects, None
        self._points.clear()

    def _gather_some(self, *, tracked: bool) -> bool:
        """A slice of gathering the subjects: from the index on disk, and the records above it; all of them where there is none, or
        every sequence is asked for. True when it is done. Corrupt records count for no subject; whoever reads one is told."""
        tracking = self._tracking
        if tracking is None or (tracked and not tracking.subjects.tracked):
            tracking = self._tracking = Tracking(tracked=tracked, next_seq=self._first_live() if tracked else 0)
        if not tracking.next_seq and not self._read_index(tracking):
            return False
        begun = perf_counter_ns()
        for _ in range(_TRACK_READS):
            if tracking.next_seq > self.committed_seq:
                self._add_staged(tracking.subjects)
                self._subjects, self._tracking = tracking.subjects, None
                return True
            tracking.next_seq = self._add_heads(tracking.subjects, tracking.next_seq)
            if perf_counter_ns() - begun > _SLICE_NS:
                break  # another thread may have kept it from going on for long
        self._reader.reading_much()
        return False

    def _read_index(self, tracking: Tracking) -> bool:
        """A slice of it; True when it is read."""
        reading, covered = tracking.index, 0
        floor = max([self._floor, *(hidden.last + 1 for hidden in self._hidden_ranges)])
        try:
            if not self._reader.index_some(reading, _INDEX_RECORDS):
                return False
            covered = self._reader.index_rest(reading, floor, self.committed_seq, self._hidden.keys())
        except StoreError as error:
            if error.reason != "corrupt":
                raise self.named(error) from None
        if covered:
            tracking.subjects = Subjects(reading.table)
        tracking.next_seq = max(covered + 1, floor) if covered else self._first_live()
        tracking.index = IndexReading()
        return True

    def _worth_tracking(self, from_seq: int) -> bool:
        """Whether a walk over all from ``from_seq`` on is long, and what tracking would take is not too much."""
        if self._subjects is not None and self._subjects.tracked:
            return False
        return self.committed_seq - from_seq > WALK_MAX and self.state.messages <= TRACKED_MESSAGES_MAX

    def _first_live(self) -> int:
        return self._next_live(1) or self.committed_seq + 1

    def _add_heads(self, subjects: Subjects, seq: int) -> int:
        """Take in the next committed records; returns where to go on."""
        heads, _, seq = self._reader.heads(seq, self.committed_seq, min(KEYS_MAX, _HEADS))
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

    def _last_committed(self, subject: bytes, known: Numbers, above: int) -> int:
        """Newest committed sequence of a literal subject, or something not above ``above``."""
        committed = self.committed_seq
        last = known[2] or self.last_seq_for(subject)
        if last <= committed:
            return last
        if self.subjects().tracked:
            return self.subjects().tracked_below(subject, committed + 1)
        if known[0] == 1:
            return 0
        for part in self._parts:
            last = part.before.get(subject, last)
            if last <= committed:
                break
        if last <= committed and not self._is_hidden(last):
            return last
        return self._search_last(subject, above=above, staged=False)

    def _first_is(self, subject: bytes, seq: int) -> None:
        """A subject's oldest message was looked for, and found."""
        table = self.subjects().table
        known = table.get(subject)
        if known is not None:
            table.set_ends(subject, seq, known[2])

    def _look_among_staged(self, subject: bytes, known: Numbers) -> int:
        """If all messages of a subject are staged (a bucket's key that was put twice in a turn), the oldest of them; else 0."""
        staged = [at for at, found, _ in self._staged_live() if found == subject]
        if len(staged) != known[0]:
            return 0
        self._first_is(subject, staged[0])
        return staged[0]

    def _search_first(self, subject: bytes, known: Numbers) -> int:
        """Look for a subject's oldest message from where it may be on; tracks the log if that is not near."""
        seq = max(-known[1], self._floor)
        near = True
        while seq <= self.committed_seq:
            heads, _, seq = self._reader.heads(seq, self.committed_seq, KEYS_MAX)
            for at, found in heads:
                if found == subject and not self._is_hidden(at):
                    self._first_is(subject, at)
                    return at
            if near and self.state.messages <= TRACKED_MESSAGES_MAX:
                if self.on_slow is None:
                    tracked = self.track().table.get(subject)
                    return tracked[1] if tracked else 0
                self.on_slow()
            near = False
        first = next((at for at, found, _ in self._staged_live() if found == subject), 0)
        if first:
            self._first_is(subject, first)
        return first

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


class LookingFor:
    """``step`` until it is true: then ``found`` are the subjects, or more than ``most`` of them. What comes meanwhile may be left out."""

    def __init__(self, table: SubjectTable, filters: Sequence[bytes], most: int) -> None:
        self.found: set[bytes] = set()
        self._pieces = in_pieces(table, filters)
        self._most = most

    def step(self) -> bool:
        """Look at some thousand subjects more; True at the end."""
        begun = perf_counter_ns()
        for piece in self._pieces:
            self.found.update(islice((subject for subject, *_ in piece), self._most + 1))
            if len(self.found) > self._most:
                return True
            if perf_counter_ns() - begun > _SLICE_NS:
                return False
        return True


class LastsBelow:
    """``step`` until it is true: then ``found`` has the newest committed sequence at or below ``upto`` of each subject that has one.

    Where that is the subject's newest of all, or the log is tracked, it is known; the others are looked for backwards. What comes and
    goes meanwhile may be among them.
    """

    def __init__(self, log: LogSubjects, subjects: Iterable[bytes], upto: int) -> None:
        self.found: dict[bytes, int] = {}
        self._log = log
        self._missing: set[bytes] = set()
        self._high = upto = min(upto, log.committed_seq)
        self._low = upto + 1
        known = log.subjects()
        for subject in subjects:
            numbers = known.table.get(subject)
            if numbers is None or abs(numbers[1]) > upto:
                continue
            last = log.last_committed_for(subject)
            if last > upto and known.tracked:
                last = known.tracked_below(subject, upto + 1)
            if last > upto:
                self._missing.add(subject)
                self._low = min(self._low, max(abs(numbers[1]), log._floor, 1))
            elif last:
                self.found[subject] = last

    def step(self) -> bool:
        """Look at some thousand records more; True at the end."""
        log, missing = self._log, self._missing
        if missing and self._high >= self._low:
            low = max(self._high - KEYS_MAX + 1, self._low)
            heads, _, _ = log._reader.heads(low, self._high, KEYS_MAX)
            for seq, subject in reversed(heads):
                if subject in missing and not log._is_hidden(seq):
                    missing.discard(subject)
                    self.found[subject] = seq
            self._high = low - 1
        return not missing or self._high < self._low
