"""A log by subject: counts, first and last messages, and sequences where they are tracked.

The counters are loaded into memory on first use, from the index on disk and the few records after it, or, without an
index, by one pass over the log's records (about half a microsecond each). They change with every staged operation, as
the log's own counters do; messages *read* through them are committed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from time import perf_counter_ns

from eyot_store.errors import StoreError
from eyot_store.log.view import KEYS_MAX, LogView
from eyot_store.points import Points
from eyot_store.record_run import Weighed
from eyot_store.records.record import LARGE_RECORD, StoredMessage
from eyot_store.subject_table import Matched, SubjectTable
from eyot_store.subjects.index_reader import IndexReading
from eyot_store.subjects.matching import in_pieces, lasts
from eyot_store.subjects.subjects import Numbers, Subjects
from eyot_store.subjects.tracking import Tracking
from eyot_store.txn import LogPart
from eyot_wire.subject import is_literal

TRACKED_MESSAGES_MAX = 1 << 22
"""Logs with more messages are not tracked by themselves: 8 bytes of memory a message, and a pass to build it."""

WALK_MAX = 1 << 14
"""Records that may be scanned in one go, some 15 milliseconds."""
_SMALL_BYTES = 256  # of a record, in the numbers of how many may be looked at in one go
_LARGE_MIN = 4
_INSERTED_MAX = 64  # newest sequences that are put in their places one by one
_SEARCHED_FIRST = 64  # of a search for a subject's oldest message, in its first read; each read doubles

_TRACK_READS = 32  # in one slice of tracking, if it is quick enough
_SLICE_NS = 5_000_000
_HEADS = 256
_ABOVE_ALL = (1 << 63) - 1
_INDEX_RECORDS = 4  # of one slice of an index: some five thousand subjects


class SubjectIndex:
    """Counts and sequences of a log, by subject."""

    __slots__ = ("_found", "_found_below", "_missed", "_view", "loaded", "on_slow", "points", "tracking")

    def __init__(self, view: LogView) -> None:
        self._view = view
        #: The counters of every live message, staged ones included; None: not loaded, or to be reloaded.
        self.loaded: Subjects | None = None
        #: The loading that is under way; None: none is. It ends with `loaded`.
        self.tracking: Tracking | None = None
        #: Places in the log below which the number of messages is known; updated by removals and restorations.
        self.points = Points()
        #: Records that searches for oldest messages looked at in vain, since the counters were loaded.
        self._missed = 0
        #: Committed sequences below `_found_below` of subjects that `SubjectSearch` was asked for, removed ones included.
        self._found: Mapping[bytes, array[int]] = {}
        self._found_below = 0
        #: Called where tracking would help; the listener calls `track_some` until it returns True. None: track at once.
        self.on_slow: Callable[[], None] | None = None

    def subjects(self) -> Subjects:
        """Return the counters per subject, staged operations included; loaded on first use from the index, or by one pass over the log."""
        while self.loaded is None:
            self._gather_some(tracked=False)
        return self.loaded

    @property
    def subjects_known(self) -> bool:
        """Return whether `subjects` is immediate."""
        return self.loaded is not None

    def subjects_some(self) -> bool:
        """Load a slice for the first use; return True when `subjects` is immediate."""
        return self.loaded is not None or self._gather_some(tracked=False)

    def track(self) -> Subjects:
        """Return the counters with the sequences of every subject, for cheap removals of the oldest and cheap sparse filters."""
        while not self.track_some():
            pass
        return self.subjects()

    def track_some(self) -> bool:
        """Do a slice of `track`; return True when the log is tracked."""
        return (self.loaded is not None and self.loaded.tracked) or self._gather_some(tracked=True)

    def oldest_soon(self, subject: bytes) -> int | None:
        """Return `first_seq_for`; None when the search would be slow: then `on_slow` has been called."""
        known = self.subjects().table.get(subject)
        if known is None:
            return 0
        return known[1] if known[1] > 0 else self._search_first(subject, known, soon=True)

    def oldest_committed(self, subject: bytes, at_most: int) -> list[int]:
        """Return the oldest committed sequences of a literal subject, without staged removals, by one search for all."""
        known, view = self.subjects().table.get(subject), self._view
        if known is None:
            return []
        if self.subjects().tracked:
            tracked = takewhile(lambda seq: seq <= view.committed_seq, self.subjects().tracked_from(subject, 0))
            return list(islice(tracked, at_most))
        begun = seq = max(abs(known[1]), view.floor)
        seqs, seq = self._found_from(subject, seq, at_most)
        number = min(_SEARCHED_FIRST, KEYS_MAX)
        while len(seqs) < at_most and seq <= view.committed_seq:
            heads, _, seq = view.heads(seq, view.committed_seq, number)
            here = [at for at, found in heads if found == subject and not view.is_hidden(at)]
            seqs += here
            if here:
                begun = here[-1]
            else:
                self._missed += len(heads)
                if self._have_tracked(seq - begun, soon=False):
                    return self.oldest_committed(subject, at_most)
            number = min(number * 2, KEYS_MAX)
        return seqs[:at_most]

    def search_for(self, subjects: Iterable[bytes]) -> SubjectSearch:
        """Return a search, in slices, for all committed messages of some literal subjects."""
        return SubjectSearch(self, self._view, subjects)

    def know(self, found: Mapping[bytes, array[int]], below: int) -> None:
        """Use the result of a search: all committed sequences below `below` of some subjects. An empty one ends that."""
        self._found, self._found_below = found, below

    def records_to_search(self, subjects: Iterable[bytes]) -> int:
        """Return how many records, at most, roll-ups of some literal subjects look at to find what they remove."""
        known = self.subjects()
        if known.tracked:
            return 0
        committed, floor, number = self._view.committed_seq, self._view.floor, 0
        for subject in subjects:
            count, first, last = known.table.get(subject) or (0, 0, 0)
            if count > 2 or (count == 2 and (first <= 0 or not last)):
                number += max(min(last or committed, committed) - max(abs(first), floor), 0)
        return number

    def subject_totals(self, subject_filter: bytes = b">") -> Iterable[tuple[bytes, int]]:
        """(subject, messages) of every subject the filter matches; staged messages count."""
        return [(subject, count) for subject, count, _, _ in self.subjects().matching(subject_filter)]

    def matched(self, subject_filter: bytes) -> Matched:
        """Return the matching subjects, to be listed in order in any thread."""
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
        return known[1] if known[1] > 0 else self._search_first(subject, known) or 0

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

    def newest_seq(self, subject_filter: bytes) -> int:
        """Newest sequence that the filter matches, staged messages included; 0 = none. Looks at all subjects for wildcards."""
        if is_literal(subject_filter):
            return self.last_seq_for(subject_filter)
        table = self.subjects().table
        best, others = table.newest(b"" if subject_filter == b">" else subject_filter, _ABOVE_ALL)
        return max(best, *map(self.last_seq_for, others)) if others else best

    def last_for(self, subject_filter: bytes) -> StoredMessage | None:
        """Return the newest committed message whose subject the filter matches."""
        best = self._newest(subject_filter)
        return self._view.get(best) if best else None

    def _newest(self, subject_filter: bytes) -> int:
        table = self.subjects().table
        if is_literal(subject_filter):
            known = table.get(subject_filter)
            return self._last_committed(subject_filter, known, 0) if known else 0
        best, others = table.newest(b"" if subject_filter == b">" else subject_filter, self._view.committed_seq)
        for subject in others:
            known = table.get(subject)
            if known is not None and (known[2] == 0 or known[2] > best):
                best = max(best, self._last_committed(subject, known, best))
        return best

    def lasts_of_any(self, filters: Sequence[bytes], above: int, upto: int) -> array[int]:
        """Return the newest committed sequence in (`above`, `upto`] of every subject that any of the filters matches, ascending."""
        patterns = (b"",) if b">" in filters else filters
        found, others = lasts(self.subjects().table, patterns, above, min(upto, self._view.committed_seq))
        late = [last for last in map(self.last_committed_for, others) if above < last <= upto]
        if len(late) > _INSERTED_MAX:
            return array("q", sorted([*found, *late]))
        for last in late:
            insort(found, last)
        return found

    def looking_for(self, filters: Sequence[bytes], most: int) -> LookingFor:
        """Return a search, in slices, for subjects that match any of many filters, up to more than `most`."""
        return LookingFor(self.subjects().table, filters, most)

    def last_committed_for(self, subject: bytes) -> int:
        """Newest committed sequence of a literal subject; 0 = none."""
        known = self.subjects().table.get(subject)
        return self._last_committed(subject, known, 0) if known else 0

    def lasts_below(self, subjects: Iterable[bytes], upto: int, above: int = 0) -> LastsBelow:
        """Return a search, in slices, for the newest committed messages of some subjects in (`above`, `upto`]."""
        return LastsBelow(self, self._view, subjects, upto, above)

    def finds_last_soon(self, subject: bytes) -> bool:
        """Return False if `last_for` a literal subject would search far, and tracking would avoid that."""
        known = self.subjects().table.get(subject)
        return known is None or known[2] > 0 or not self.worth_tracking(1)

    # -- for other components of the log -------------------------------------------------------------------------------

    def reload(self, subjects: Subjects | None) -> None:
        """Replace everything by `subjects`."""
        self.loaded, self.tracking = subjects, None
        self._missed = 0
        self.points.clear()

    def discard(self, subject: bytes, seq: int) -> None:
        """Account for the removal of the message at `seq`."""
        for each in (self.loaded, self.tracking, self.points):
            if each is not None:
                each.discard(subject, seq)

    def discard_run(self, found: list[Weighed]) -> None:
        """Messages in ascending order went away."""
        subjects = self.loaded
        if self.tracking is None and subjects is not None and not subjects.tracked and not self.points:
            subjects.table.went_run(found)
            return
        for seq, subject, _ in found:
            self.discard(subject, seq)

    def restore(self, subject: bytes, seq: int) -> None:
        """Account for a message whose removal was rolled back."""
        for each in (self.loaded, self.tracking, self.points):
            if each is not None:
                each.restore(subject, seq)

    def take_back(self, part: LogPart) -> None:
        """Discard the messages that `part` added, and restore the last sequences of their subjects."""
        if not part.added or self.loaded is None:
            return
        table, committed = self.loaded.table, self._view.committed_seq
        for subject, before in part.before.items():
            known = table.get(subject)
            if known is not None and (known[2] == 0 or known[2] in part.added):
                table.set_ends(subject, known[1], before if before <= committed else 0)
            for other in self._view.parts:
                if other.before.get(subject) in part.added:
                    other.before[subject] = before

    def in_one_go(self, most: int) -> int:
        """Return how many of this log's records may be looked at in one go, where `most` small ones may.

        Large records may have to come from the disk.
        """
        state = self._view.state
        if state.bytes <= state.messages * LARGE_RECORD:
            return most
        return min(most, max(_LARGE_MIN, most * _SMALL_BYTES * state.messages // state.bytes))

    def worth_tracking(self, from_seq: int) -> bool:
        """Return whether a walk from `from_seq` on is long, and tracking needs acceptable memory."""
        if self.loaded is not None and self.loaded.tracked:
            return False
        return (
            self._view.committed_seq - from_seq > self.in_one_go(WALK_MAX)
            and self._view.state.messages <= TRACKED_MESSAGES_MAX
        )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _gather_some(self, *, tracked: bool) -> bool:
        """Load a slice of the subjects; return True at the end.

        They come from the index on disk and the records above it; from all records without an index, or for tracking.
        Corrupt records count for no subject; readers of one get the error.
        """
        tracking = self.tracking
        if tracking is None or (tracked and not tracking.subjects.tracked):
            tracking = self.tracking = Tracking(tracked=tracked, next_seq=self._first_live() if tracked else 0)
        if not tracking.next_seq and not self._read_index(tracking):
            return False
        begun = perf_counter_ns()
        for _ in range(_TRACK_READS):
            if tracking.next_seq > self._view.committed_seq:
                self._add_staged(tracking.subjects)
                self.loaded, self.tracking = tracking.subjects, None
                return True
            tracking.next_seq = self._add_heads(tracking.subjects, tracking.next_seq)
            if perf_counter_ns() - begun > _SLICE_NS:
                break  # another thread may have delayed it for long
        self._view.records.reading_much()
        return False

    def _read_index(self, tracking: Tracking) -> bool:
        """Load a slice of the index; return True at the end."""
        reading, covered = tracking.index, 0
        floor = max([self._view.floor, *(hidden.last + 1 for hidden in self._view.hidden_ranges)])
        try:
            if not self._view.records.index_some(reading, _INDEX_RECORDS):
                return False
            covered = self._view.records.index_rest(reading, floor, self._view.committed_seq, self._view.hidden.keys())
        except StoreError as error:
            if error.reason != "corrupt":
                raise self._view.named(error) from None
        if covered:
            tracking.subjects = Subjects(reading.table)
        tracking.next_seq = max(covered + 1, floor) if covered else self._first_live()
        tracking.index = IndexReading()
        return True

    def _first_live(self) -> int:
        return self._view.next_live(1) or self._view.committed_seq + 1

    def _add_heads(self, subjects: Subjects, seq: int) -> int:
        """Count the next committed records; return where to continue."""
        heads, _, seq = self._view.heads(seq, self._view.committed_seq, min(KEYS_MAX, _HEADS))
        if self._view.hidden or self._view.hidden_ranges:
            heads = [head for head in heads if not self._view.is_hidden(head[0])]
        add = subjects.add
        for at, subject in heads:
            add(subject, at)
        return seq

    def _add_staged(self, subjects: Subjects) -> None:
        for part in self._view.parts:
            part.before.clear()
            for at, subject, _ in part.added:
                if at not in self._view.hidden:
                    before = subjects.add(subject, at)
                    part.before.setdefault(subject, before)

    def _last_committed(self, subject: bytes, known: Numbers, above: int) -> int:
        """Newest committed sequence of a literal subject, or something not above `above`."""
        committed = self._view.committed_seq
        last = known[2] or self.last_seq_for(subject)
        if last <= committed:
            return last
        if self.subjects().tracked:
            return self.subjects().tracked_below(subject, committed + 1)
        if known[0] == 1:
            return 0
        for part in self._view.parts:
            last = part.before.get(subject, last)
            if last <= committed:
                break
        if last <= committed and not self._view.is_hidden(last):
            return last
        return self._search_last(subject, above=above, staged=False)

    def _found_from(self, subject: bytes, seq: int, at_most: int) -> tuple[list[int], int]:
        """Return the sequences from `seq` on that a search found, without staged removals, and where it ended."""
        found = self._found.get(subject)
        if found is None:
            return [], seq
        live = (at for at in islice(found, bisect_left(found, seq), None) if not self._view.is_hidden(at))
        return list(islice(live, at_most)), max(seq, self._found_below)

    def _first_is(self, subject: bytes, seq: int) -> None:
        """Record a subject's oldest message after a search."""
        table = self.subjects().table
        known = table.get(subject)
        if known is not None:
            table.set_ends(subject, seq, known[2])

    def _search_first(self, subject: bytes, known: Numbers, *, soon: bool = False) -> int | None:
        """Search a subject's oldest message from its lower bound. Have the log tracked once searches look at much.

        `soon`: return None where that is so, and `on_slow` has been called.
        """
        view = self._view
        begun = seq = max(-known[1], view.floor)
        for at in self._found_from(subject, seq, _SEARCHED_FIRST)[0]:
            if view.next_live(at) == at:
                self._first_is(subject, at)
                return at
        number = min(_SEARCHED_FIRST, KEYS_MAX)
        while seq <= view.committed_seq:
            heads, _, seq = view.heads(seq, view.committed_seq, number)
            for at, found in heads:
                if found == subject and not view.is_hidden(at):
                    self._first_is(subject, at)
                    return at
            self._missed += len(heads)
            if self._have_tracked(seq - begun, soon=soon):
                return None if soon else self.first_seq_for(subject)
            number = min(number * 2, KEYS_MAX)
        for looked_at, (at, found, _) in enumerate(view.staged_messages(begun)):
            if found == subject:
                self._missed += looked_at
                self._first_is(subject, at)
                return at
        return 0

    def _have_tracked(self, passed: int, *, soon: bool) -> bool:
        """Have the log tracked if a search that passed so many sequences takes long, or all searches together do.

        Those do when they looked in vain at more records than tracking reads. Returns whether the search has to end: the log
        is tracked, or will be and the caller waits for that (`soon`).
        """
        messages = self._view.state.messages
        trackable = messages <= TRACKED_MESSAGES_MAX
        too_many = trackable and self._missed > max(messages, KEYS_MAX)
        if passed < KEYS_MAX and not too_many:
            return False
        if self.on_slow is not None:
            self.on_slow()
            if soon:
                return True
        if trackable and (self.on_slow is None or too_many):
            self.track()  # so all searches of a turn together take at most twice as long as one
            return True
        return False

    def _search_last(self, subject: bytes, *, above: int = 0, staged: bool = True) -> int:
        """Search a subject's newest message, backwards."""
        if staged:
            newest = [at for at, found, _ in self._view.staged_messages() if found == subject]
            if newest:
                return newest[-1]
        high, width = self._view.committed_seq, 64
        above = max(above, self._view.floor - 1)
        while high > above:
            low = max(high - width + 1, above + 1)
            for at, found in reversed(self._view.heads_between(low, high)):
                if found == subject and not self._view.is_hidden(at):
                    return at
            high, width = low - 1, min(width * 2, KEYS_MAX)
        return 0


class SubjectSearch:
    """A search: call `step` until it returns True; `SubjectIndex.know` takes the result.

    For logs that are too large to be tracked. Messages that are committed meanwhile are found, too.
    """

    def __init__(self, index: SubjectIndex, view: LogView, subjects: Iterable[bytes]) -> None:
        self.found: dict[bytes, array[int]] = {subject: array("Q") for subject in subjects}
        table = index.subjects().table
        firsts = [abs(known[1]) for known in map(table.get, self.found) if known is not None]
        #: Everything below is searched.
        self.next_seq = max(min(firsts, default=view.committed_seq + 1), view.floor)
        self._view = view

    def step(self) -> bool:
        """Examine some thousand more records; return True at the end."""
        begun, view, wanted = perf_counter_ns(), self._view, self.found
        for _ in range(_TRACK_READS):
            if self.next_seq > view.committed_seq:
                return True
            heads, _, self.next_seq = view.heads(self.next_seq, view.committed_seq, min(KEYS_MAX, _HEADS))
            for at, subject in heads:
                if subject in wanted:
                    wanted[subject].append(at)
            if perf_counter_ns() - begun > _SLICE_NS:
                break
        view.records.reading_much()
        return False


class LookingFor:
    """A search: call `step` until it returns True; `found` are the subjects, or more than `most`.

    Later additions may be missing.
    """

    def __init__(self, table: SubjectTable, filters: Sequence[bytes], most: int) -> None:
        self.found: set[bytes] = set()
        self._pieces = in_pieces(table, filters)
        self._most = most

    def step(self) -> bool:
        """Examine some thousand more subjects; return True at the end."""
        begun = perf_counter_ns()
        for piece in self._pieces:
            self.found.update(islice((subject for subject, *_ in piece), self._most + 1))
            if len(self.found) > self._most:
                return True
            if perf_counter_ns() - begun > _SLICE_NS:
                return False
        return True


class LastsBelow:
    """A search: call `step` until it returns True; `found` has each subject's newest committed sequence in (`above`, `upto`].

    If that is the subject's newest of all, or the log is tracked, the result is immediate; other subjects are searched
    backwards. Concurrent additions and removals may be included.
    """

    def __init__(
        self, index: SubjectIndex, view: LogView, subjects: Iterable[bytes], upto: int, above: int = 0
    ) -> None:
        self.found: dict[bytes, int] = {}
        self._index = index
        self._view = view
        self._subjects = iter(subjects)
        self._missing: set[bytes] = set()
        self._above = above
        self._upto = self._high = min(upto, view.committed_seq)
        self._low = self._upto + 1

    def step(self) -> bool:
        """Examine some thousand more subjects or records; return True at the end."""
        some = list(islice(self._subjects, KEYS_MAX))
        for subject in some:
            self._examine(subject)
        if len(some) == KEYS_MAX:
            return False
        view, missing = self._view, self._missing
        if missing and self._high >= self._low:
            low = max(self._high - self._index.in_one_go(KEYS_MAX) + 1, self._low)
            for seq, subject in reversed(view.heads_between(low, self._high)):
                if subject in missing and not view.is_hidden(seq):
                    missing.discard(subject)
                    self.found[subject] = seq
            self._high = low - 1
        return not missing or self._high < self._low

    def _examine(self, subject: bytes) -> None:
        known = self._index.subjects()
        numbers = known.table.get(subject)
        if numbers is None or abs(numbers[1]) > self._upto:
            return
        last = self._index.last_committed_for(subject)
        if last > self._upto and known.tracked:
            last = known.tracked_below(subject, self._upto + 1)
        if last > self._upto:
            self._missing.add(subject)
            self._low = min(self._low, max(abs(numbers[1]), self._view.floor, self._above + 1))
        elif last > self._above:
            self.found[subject] = last
