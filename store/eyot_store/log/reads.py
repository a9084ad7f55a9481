"""Reads of a log in order.

The work per call is bounded unless documented otherwise. A filtered read may return nothing and still advance
`next_seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice, takewhile
from time import perf_counter_ns

from eyot_store.errors import StoreError
from eyot_store.log.subjects import TRACKED_MESSAGES_MAX, WALK_MAX, SubjectIndex
from eyot_store.log.view import KEYS_MAX, LogView
from eyot_store.points import Point
from eyot_store.reader import RECORDS_MAX, SCAN_BYTES_MAX, Reading, keep_within, read_without
from eyot_store.records.record import ReadResult, StoredMessage, encode_body, pack_u64
from eyot_store.subjects.matching import in_pieces, total_from
from eyot_store.subjects.subjects import Subjects, matcher
from eyot_wire.native import StoredRun

SCAN_MAX = 4096
"""Records that one filtered read scans before it answers (about two milliseconds)."""

_NO_LIMIT = 1 << 62
_SPARSE = 8  # a filter is sparse if it selects less than one record in this many
_FILTERED_MIN = 256  # the fewest records that a filtered read of a run scans at once
_ALL = (b"",)
_ASTRIDE_MAX = 1 << 14  # subjects that are counted one by one
_MERGED_MAX = 256  # the most subjects whose sequences are merged to read a sparse filter
_KNOWN_MAX = 64  # filters whose subjects are remembered
_SLICE_NS = 5_000_000


class _Selected:
    """The subjects that some filters selected (None: too many) when `came` subjects and `messages` were there."""

    __slots__ = ("came", "messages", "of", "subjects")

    def __init__(self, of: Subjects, messages: int) -> None:
        self.of = of
        self.came = of.came
        self.messages = messages
        self.subjects: set[bytes] | None = None

    def brought_up_to_date(self, of: Subjects, messages: int, filters: tuple[bytes, ...]) -> bool:
        """Add the subjects that came since; False if all have to be looked at again."""
        came = of.came_since(self.came) if of is self.of else None
        if came is None or not self.messages // 2 <= messages <= self.messages * 2:
            return False
        self.came = of.came
        if came and self.subjects is not None:
            match = matcher(filters)
            self.subjects.update(came if match is None else filter(match, came))
            if len(self.subjects) > _MERGED_MAX:
                self.subjects = None
        return True


class Selecting:
    """A look at all subjects that some filters may match: call `step` until it returns True."""

    def __init__(
        self,
        selected: _Selected,
        filters: tuple[bytes, ...],
        done: Callable[[tuple[bytes, ...], _Selected], None],
    ) -> None:
        self._selected = selected
        self._filters = filters
        self._done = done
        self._found = selected.subjects = set()
        self._messages = 0
        self._pieces = in_pieces(selected.of.table, filters)

    def step(self) -> bool:
        """Look at some thousand more; return True at the end, when reads know the result."""
        begun, selected = perf_counter_ns(), self._selected
        for piece in self._pieces:
            self._found.update(subject for subject, *_ in piece[: _MERGED_MAX + 1])
            self._messages += sum(count for _, count, _, _ in piece)
            if self._messages * _SPARSE > selected.messages or len(self._found) > _MERGED_MAX:
                selected.subjects = None
                break
            if perf_counter_ns() - begun > _SLICE_NS:
                return False
        self._done(self._filters, selected)
        return True


class LogReads:
    """Reads of committed messages in order, and counts of them."""

    __slots__ = ("_answered", "_answers_for", "_index", "_passed_over", "_selected", "_view")

    def __init__(self, view: LogView, index: SubjectIndex) -> None:
        self._view = view
        self._index = index
        #: The filters of the latest unparsed read, and the known results for subjects.
        self._answers_for: tuple[bytes, ...] = ()
        self._answered: dict[bytes, bool] = {}
        #: What `sparse` found: a look at all subjects is too much for each read.
        self._selected: dict[tuple[bytes, ...], _Selected] = {}
        #: The latest filter that was searched for, and where: it matches no message from the first sequence up to the second.
        self._passed_over: tuple[bytes, int, int] = (b"", 0, 0)

    def read(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> ReadResult:
        """Return committed messages from `from_seq` on, ascending.

        Ends at `max_messages`, before the message that would exceed `max_bytes` (of subject, header and payload; the
        first is always returned), at `up_to` (inclusive), or after SCAN_MAX scanned records. `next_seq` is where to
        continue; beyond `up_to` or `committed_seq` there is nothing more at present. A corrupt record ends the result
        before it; as the first one it raises StoreError("corrupt").
        """
        last = self._view.committed_seq if up_to is None else min(up_to, self._view.committed_seq)
        first = self._first_seen(from_seq)
        if first > last or max_messages <= 0:
            return ReadResult([], first)
        match = matcher(filters)
        try:
            if match is not None:
                entries = self.sparse(filters)
                if entries is not None:
                    return self._read_sparse(entries, first, last, max_messages, max_bytes)
            result = self._view.records.scan(first, last, max_messages, max_bytes, SCAN_MAX, match)
        except StoreError as error:
            if self._view.is_hidden(error.seq):
                return ReadResult([], error.seq + 1)
            raise self._view.named(error) from None
        if match is not None and result.next_seq <= last and len(result.messages) < max_messages:
            self._track_if_worth_it(result.next_seq - first, len(result.messages))
        if self._view.hidden or self._view.hidden_ranges:
            return ReadResult([m for m in result.messages if not self._view.is_hidden(m.seq)], result.next_seq)
        return result

    def read_on(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> ReadResult:
        """Do as `read`; a corrupt first record is an empty result, and `next_seq` is behind it."""
        try:
            return self.read(from_seq, max_messages=max_messages, max_bytes=max_bytes, filters=filters, up_to=up_to)
        except StoreError as error:
            if not error.is_record_at(from_seq):
                raise
            return ReadResult([], error.seq + 1)

    def read_run(
        self,
        from_seq: int,
        *,
        max_messages: int,
        max_bytes: int,
        filters: tuple[bytes, ...] = (),
        up_to: int | None = None,
    ) -> tuple[StoredRun, int] | None:
        """Return the messages of `read` as an unparsed run, and where to continue; `max_bytes` counts records.

        None where few messages match: these are better read one by one.
        """
        last = self._view.committed_seq if up_to is None else min(up_to, self._view.committed_seq)
        next_seq = first = self._first_seen(from_seq)
        run = StoredRun()
        if first > last or max_messages <= 0:
            return run, first
        match = matcher(filters)
        if match is not None and self.sparse(filters) is not None:
            return None
        scan_to, scanned_bytes = first + SCAN_MAX, 0
        while next_seq <= last and len(run) < max_messages and next_seq < scan_to and run.size < max_bytes:
            if scanned_bytes >= SCAN_BYTES_MAX:
                break
            begun, scanned_bytes = len(run), scanned_bytes - run.size
            wanted = max_messages - begun
            # The number of records that a filtered read needs is unknown.
            count = wanted if match is None else max(wanted, _FILTERED_MIN)
            try:
                next_seq = self._view.records.gather(run, next_seq, last, count, max_bytes - run.size)
            except StoreError as error:
                if self._view.is_hidden(error.seq):
                    next_seq = error.seq + 1
                    continue
                if len(run):
                    break
                raise self._view.named(error) from None
            scanned_bytes += run.size
            if self._view.hidden or self._view.hidden_ranges:
                run.without([seq for seq in run.seqs()[begun:] if self._view.is_hidden(seq)], begun)
            if match is not None:
                run.matching(match, self._answers(filters), begun)
        if len(run) >= max_messages:
            # A filtered read looks further than its last message: the caller continues after that, as with `read`.
            run.cut(max_messages)
            next_seq = run.seq(max_messages - 1) + 1
        elif match is not None and next_seq <= last:
            self._track_if_worth_it(next_seq - first, len(run))
        return run, next_seq

    def reading(
        self, run: StoredRun, from_seq: int, *, up_to: int, max_bytes: int, filters: tuple[bytes, ...] = ()
    ) -> Reading:
        """Return a function that appends committed messages of [from_seq, up_to] to `run` in any thread.

        It returns where to continue. The messages count for at most `max_bytes`, but the run's first message is always
        appended. The function may append nothing and still advance; no advance means no space. Beyond `up_to` or
        `committed_seq` there is nothing more at present.
        """
        last = min(up_to, self._view.committed_seq)
        first = self._first_seen(from_seq)
        if first > last:
            return lambda: first
        match = matcher(filters)
        entries = None if match is None else self.sparse(filters)
        if entries is not None:
            next_seq = self._gather_sparse(run, entries, first, last, max_bytes)
            return lambda: next_seq
        hidden = frozenset(seq for seq in self._view.hidden if first <= seq <= last)
        begun, read = len(run), self._view.records.reading(run, first, last, max_bytes)
        answers = {} if match is None else self._answers(filters)

        def reading() -> int:
            try:
                next_seq = read_without(read, run, begun, hidden)
            except StoreError as error:
                raise self._view.named(error) from None
            if match is not None:
                run.matching(match, answers, begun)
            return next_seq

        return reading

    def next_for(self, subject_filter: bytes, from_seq: int) -> StoredMessage | None:
        """Return the oldest committed message at or after `from_seq` that the filter matches (may walk the log).

        Passes over corrupt records.
        """
        if subject_filter not in (b"", b">") and self._is_vain(subject_filter):
            return None
        seq = max(from_seq, 1)
        searched, begin, end = self._passed_over
        if searched == subject_filter and begin <= seq < end:
            seq = end
        while seq <= self._view.committed_seq:
            result = self.read_on(seq, max_messages=1, max_bytes=_NO_LIMIT, filters=(subject_filter,))
            if result.messages:
                return result.messages[0]
            seq = result.next_seq
        return None

    def _is_vain(self, subject_filter: bytes) -> bool:
        """Return whether the filter matches no subject."""
        selected = self.sparse((subject_filter,))
        if selected is not None:
            return not selected
        return not any(True for _ in self._index.subjects().matching(subject_filter))

    def looking_near(self, subject_filter: bytes, from_seq: int) -> NearSearch:
        """Return a search, in slices, for whether `next_for` would search far, and tracking would avoid that."""
        seq = max(from_seq, self._view.state.first_seq)
        is_near = matcher((subject_filter,)) is None or not self._index.worth_tracking(seq)
        return NearSearch(self, subject_filter, seq, 0 if is_near else self._index.in_one_go(WALK_MAX))

    def counts_soon(self, from_seq: int, filters: tuple[bytes, ...]) -> bool:
        """Return False if `count` would walk far, and tracking would avoid that."""
        first = self._view.state.first_seq
        if (
            from_seq <= first
            or not self._index.worth_tracking(from_seq)
            or from_seq - first <= self._index.in_one_go(WALK_MAX)
        ):
            return True
        if matcher(filters) is None and self._view.is_dense():
            return True
        return (
            self._index.loaded is not None
            and total_from(self._index.loaded.table, filters or _ALL, from_seq, 0)[1] == []
        )

    def count(self, from_seq: int, filters: tuple[bytes, ...] = ()) -> int:
        """Return the exact number of committed messages at or after `from_seq` that match.

        From the start of the log, or if the log is tracked, has no gaps, or no subject has messages on both sides, this
        is arithmetic; otherwise it walks from the nearest place with a known number.
        """
        number, walk = self._reckon(from_seq, filters)
        if not walk or not number:
            return number
        point = self._nearest(from_seq, number, filters)
        far = abs(from_seq - point.seq) > self._index.in_one_go(WALK_MAX)
        self._move(point, from_seq)
        if far:
            self._index.points.put(point)
        return number - point.below

    def counting(self, from_seq: int, filters: tuple[bytes, ...] = ()) -> Counting | None:
        """Return the walk that `count` needs, in slices; None: `count` is immediate."""
        number, walk = self._reckon(from_seq, filters)
        if not walk or not number:
            return None
        point = self._nearest(from_seq, number, filters)
        if abs(from_seq - point.seq) <= self._index.in_one_go(WALK_MAX):
            return None
        self._index.points.put(point)
        return Counting(self, from_seq, point)

    def _reckon(self, from_seq: int, filters: tuple[bytes, ...]) -> tuple[int, bool]:
        """`count`, and False; or all committed messages that match, and True: those below are to be counted."""
        if from_seq > self._view.committed_seq:
            return 0, False
        match, first = matcher(filters), self._view.state.first_seq
        staged = sum(1 for _, subject, _ in self._view.staged_messages() if match is None or match(subject))
        if match is None:
            total = self._view.state.messages
            if from_seq <= first:
                return total - staged, False
            if self._view.is_dense():
                return self._view.committed_seq + 1 - from_seq, False
            if (
                self._index.loaded is None or self._index.loaded.table.messages != total
            ):  # of some no subject could be read
                return total - staged, True
        subjects, patterns = self._index.subjects(), filters or _ALL
        selected = None if match is None else self.sparse(filters)
        if selected is not None:
            return sum(subjects.count_from(subject, from_seq) for subject in selected) - staged, False
        known, astride = total_from(subjects.table, patterns, from_seq if from_seq > first else 0, _ASTRIDE_MAX)
        if astride is not None and (not astride or subjects.tracked):
            return known + sum(subjects.count_from(subject, from_seq) for subject in astride) - staged, False
        return total_from(subjects.table, patterns, 0, 0)[0] - staged, True

    def seq_at_time(self, ts_ns: int, *, from_seq: int = 1, up_to: int | None = None) -> int:
        """Return the lowest committed sequence stored at or after `ts_ns`; `committed_seq + 1` without one.

        The search is limited to `from_seq` to `up_to`; the sequence after `up_to` is the result when none qualifies.
        Stored times are assumed to ascend (binary search); where the clock was set back the result is one of the
        boundaries. A corrupt record counts as stored with the next one of the range that can be read, without one not
        before `ts_ns`.
        """
        last = self._view.committed_seq if up_to is None else min(up_to, self._view.committed_seq)
        low, high = max(self._view.state.first_seq, from_seq, 1), last + 1
        while low < high:
            middle = (low + high) // 2
            seq = self._view.next_live(middle)
            message = self._view.readable(seq) if 0 < seq < high else None
            if message is None or message.seq > last or message.ts_ns >= ts_ns:
                high = middle
            else:
                low = message.seq + 1
        return self._view.next_live(low) or self._view.committed_seq + 1

    def deleted(self, limit: int = 1 << 20) -> list[int]:
        """Sequences between the first and the last that hold no message, ascending, at most `limit` of them."""
        out: list[int] = []
        for first, last in self.deleted_ranges():
            out.extend(range(first, min(last, first + limit - len(out) - 1) + 1))
            if len(out) >= limit:
                break
        return out

    def deleted_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield deleted sequences as (first, last) ranges; walks all keys of the log, a short read at a time."""
        if not self._view.state.num_deleted:
            return
        expected = self._view.state.first_seq
        for seq in self._view.live_seqs_from(expected):
            if seq > expected:
                yield expected, seq - 1
            expected = seq + 1
        if expected <= self._view.state.last_seq:
            yield expected, self._view.state.last_seq

    # -- inside ----------------------------------------------------------------------------------------------------

    def _first_seen(self, from_seq: int) -> int:
        """Return `from_seq`, or the first sequence after purged ones."""
        ends = [hidden.last + 1 for hidden in self._view.hidden_ranges]
        return max([from_seq, self._view.floor, 1, *ends])

    def sparse(self, filters: tuple[bytes, ...]) -> set[bytes] | None:
        """Return the subjects to read one by one, if the log is tracked and the filters select little of it."""
        subjects = self._index.loaded
        if subjects is None or not subjects.tracked:
            return None
        selecting = self.selecting(filters)
        while selecting is not None and not selecting.step():
            pass
        return self._selected[filters].subjects

    def selecting(self, filters: tuple[bytes, ...]) -> Selecting | None:
        """Return the look at all subjects that `sparse` needs, in slices; None: `sparse` is immediate."""
        subjects, messages = self._index.loaded, self._view.state.messages
        if subjects is None or not subjects.tracked:
            return None
        known = self._selected.get(filters)
        if known is not None and known.brought_up_to_date(subjects, messages, filters):
            return None
        return Selecting(_Selected(subjects, messages), filters, self._select)

    def _select(self, filters: tuple[bytes, ...], selected: _Selected) -> None:
        """Remember what some filters select."""
        self._selected.pop(filters, None)
        if len(self._selected) >= _KNOWN_MAX:
            del self._selected[next(iter(self._selected))]
        self._selected[filters] = selected

    def _read_sparse(
        self, subjects: set[bytes], first: int, last: int, max_messages: int, max_bytes: int
    ) -> ReadResult:
        wanted = min(max_messages, SCAN_MAX)
        seqs = self.sparse_seqs(subjects, first, last, wanted)
        result = self._view.records.get_many(seqs, max_bytes)
        if len(seqs) < wanted and (not seqs or result.next_seq > seqs[-1]):
            return ReadResult(result.messages, last + 1)
        return result

    def sparse_seqs(self, subjects: Iterable[bytes], first: int, last: int, wanted: int) -> list[int]:
        """Return up to `wanted` live sequences of tracked subjects in [first, last], ascending."""
        ahead = merge(*(self._index.subjects().tracked_from(subject, first) for subject in subjects))
        live = (seq for seq in takewhile(last.__ge__, ahead) if not self._view.is_hidden(seq))
        return list(islice(live, wanted))

    def _gather_sparse(self, run: StoredRun, subjects: set[bytes], first: int, last: int, max_bytes: int) -> int:
        begun, end = len(run), run.size + max_bytes
        messages, next_seq = self._read_sparse(subjects, first, last, RECORDS_MAX, max_bytes)
        pairs = [
            (pack_u64(each.seq), encode_body((each.ts_ns, each.subject, each.header, each.payload)))
            for each in messages
        ]
        next_seq = run.gather(pairs, last, RECORDS_MAX, max_bytes) or next_seq
        return keep_within(run, begun, end, next_seq)

    def _answers(self, filters: tuple[bytes, ...]) -> dict[bytes, bool]:
        """Return the known results of the latest run's filters by subject."""
        if filters != self._answers_for:
            self._answers_for, self._answered = filters, {}
        return self._answered

    def _track_if_worth_it(self, scanned: int, found: int) -> None:
        """Track the log after a filtered read that scanned its limit and found little: such reads repeat."""
        is_sparse = scanned >= self._index.in_one_go(SCAN_MAX) and found * _SPARSE < scanned
        if is_sparse and self._index.loaded is not None and self._view.state.messages <= TRACKED_MESSAGES_MAX:
            if self._index.on_slow is None:
                self._index.track()
            else:
                self._index.on_slow()

    def _nearest(self, from_seq: int, total: int, filters: tuple[bytes, ...]) -> Point:
        """Return the nearest place with a known number of messages below, of `total`: the start, the end, or a point.

        The caller owns the point.
        """
        known = [(self._view.state.first_seq, 0), (self._view.committed_seq + 1, total)]
        known += [(point.seq, point.below) for point in self._index.points.of(filters)]
        return Point(filters, *min(known, key=lambda place: abs(place[0] - from_seq)))

    def _move(self, point: Point, seq: int) -> None:
        """Move the point to `seq`, and count the records between."""
        if seq >= point.seq:
            point.below += self._count_between(point.seq, seq - 1, point.match)
        else:
            point.below -= self._count_between(seq, point.seq - 1, point.match)
        point.seq = seq

    def _count_between(self, first: int, last: int, match: Callable[[bytes], bool] | None) -> int:
        total = 0
        seq = first
        while seq <= last:
            if match is None:
                seqs = self._view.records.seqs(seq, last, KEYS_MAX)
                seq = seqs[-1] + 1 if len(seqs) == KEYS_MAX else last + 1
            else:
                heads, _, seq = self._view.heads(seq, last, KEYS_MAX)
                seqs = [at for at, subject in heads if match(subject)]
            total += sum(1 for at in seqs if not self._view.is_hidden(at))
        return total


class NearSearch:
    """A look for the next message that a filter matches: call `step` until it returns True; `found` is the answer then.

    `next_for` from there does not look again at what was passed over.
    """

    def __init__(self, reads: LogReads, subject_filter: bytes, seq: int, records: int) -> None:
        """Begin at `seq`. `records`: how many to look at; 0: the message is near."""
        self.found = not records
        self._reads = reads
        self._filter = subject_filter
        self._begin = self._seq = seq
        self._end = seq + records

    def step(self) -> bool:
        """Look at some thousand more; return True at the end. Raises StoreError."""
        begun, view = perf_counter_ns(), self._reads._view
        while not self.found and self._seq < self._end:
            read = self._reads.read_on(self._seq, max_messages=1, max_bytes=_NO_LIMIT, filters=(self._filter,))
            self.found = bool(read.messages) or read.next_seq > view.committed_seq
            if not read.messages:
                self._seq = read.next_seq
            if perf_counter_ns() - begun > _SLICE_NS:
                break
        else:
            # A message that a staged removal hides comes back if its commit fails.
            if not (view.hidden or view.hidden_ranges):
                self._reads._passed_over = (self._filter, self._begin, self._seq)
            return True
        return False


class Counting:
    """A count up to a place in a log: call `step` until it returns True; `Log.count` from there is then immediate."""

    def __init__(self, reads: LogReads, seq: int, point: Point) -> None:
        self._reads = reads
        self._seq = seq
        self._point = point

    def step(self) -> bool:
        """Count some thousand more messages; return True at the end, and when the point was dropped meanwhile."""
        point = self._point
        if point not in self._reads._index.points:
            return True
        most = self._reads._index.in_one_go(SCAN_MAX)
        self._reads._move(point, point.seq + max(-most, min(self._seq - point.seq, most)))
        return point.seq == self._seq
