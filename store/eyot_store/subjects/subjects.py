"""What a stream knows about each of its subjects: the number of messages, and the first and the last of them.

Subjects are kept in memory for streams that need them (from the index, or by one pass over the log, on first use).
First and last may be unknown (see `subject_table`): the log then looks for them. Where such searches or a sparse
filter become expensive, the log also *tracks* the sequences of every subject (8 bytes a message, none for subjects with
one message), and nothing is ever unknown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache

from eyot_store.native import SubjectTable
from eyot_store.subjects.matching import SINGLY_MAX, matching_any
from eyot_wire.pattern_set import matcher_of
from eyot_wire.subject import is_literal

_CACHE_MAX = 4096
_NEWEST_MAX = 1024

Numbers = tuple[int, int, int]
"""Count, first and last of a subject, as `SubjectTable` has them."""


class Sequences:
    """All sequences of a subject, ascending, from `start` on."""

    __slots__ = ("seqs", "start")

    def __init__(self, *seqs: int) -> None:
        self.seqs = array("Q", sorted(seqs))
        self.start = 0

    def __len__(self) -> int:
        return len(self.seqs) - self.start

    @property
    def first(self) -> int:
        return self.seqs[self.start]

    @property
    def last(self) -> int:
        return self.seqs[-1]

    def index(self, seq: int) -> int:
        """Return where in `seqs` those >= `seq` begin."""
        return bisect_left(self.seqs, seq, self.start)

    def put(self, seq: int) -> None:
        if seq > self.seqs[-1]:
            self.seqs.append(seq)
        else:
            self.seqs.insert(self.index(seq), seq)

    def take(self, seq: int) -> None:
        """At least one remains."""
        seqs = self.seqs
        if seqs[self.start] != seq:
            del seqs[self.index(seq)]
            return
        self.start += 1
        if self.start > 64 and self.start * 2 > len(seqs):
            del seqs[: self.start]
            self.start = 0


class Subjects:
    """Subjects and their counters; only the owning log writes them. `sequences`: of tracked subjects with several messages."""

    __slots__ = ("came", "newest", "sequences", "table", "tracked")

    def __init__(self, table: SubjectTable | None = None, *, tracked: bool = False) -> None:
        self.table = SubjectTable() if table is None else table
        self.tracked = tracked
        self.sequences: dict[bytes, Sequences] = {}
        #: How many subjects came while tracked, and the last of them, in order.
        self.came = 0
        self.newest: deque[bytes] = deque(maxlen=_NEWEST_MAX)

    def __len__(self) -> int:
        return len(self.table)

    def add(self, subject: bytes, seq: int) -> int:
        """Add a new highest sequence for `subject`; return the previous one (0: none, or unknown)."""
        if self.tracked:
            self._track(subject, seq)
        return self.table.came(subject, 1, seq, seq)

    def discard(self, subject: bytes, seq: int) -> None:
        """Remove the message at `seq`."""
        self.table.went(subject, seq)
        if self.tracked and (sequences := self.sequences.get(subject)) is not None:
            sequences.take(seq)
            self.table.set_ends(subject, sequences.first, sequences.last)
            if len(sequences) == 1:
                del self.sequences[subject]

    def restore(self, subject: bytes, seq: int) -> None:
        """Add back a message whose removal was rolled back."""
        if self.tracked:
            self._track(subject, seq)
        self.table.back(subject, seq)

    def _track(self, subject: bytes, seq: int) -> None:
        sequences = self.sequences.get(subject)
        if sequences is not None:
            sequences.put(seq)
        elif (known := self.table.get(subject)) is not None:
            self.sequences[subject] = Sequences(known[1], seq)
        else:
            self.came += 1
            self.newest.append(subject)

    def came_since(self, before: int) -> list[bytes] | None:
        """Return the tracked subjects that came since `came` was `before`; None: these are too many."""
        count = self.came - before
        if count > len(self.newest):
            return None
        return list(self.newest)[len(self.newest) - count :]

    def tracked_from(self, subject: bytes, from_seq: int) -> Iterator[int]:
        """Tracked sequences of a subject that are >= `from_seq`, ascending."""
        sequences = self.sequences.get(subject)
        if sequences is None:
            known = self.table.get(subject)
            if known is not None and known[1] >= from_seq:
                yield known[1]
            return
        for index in range(sequences.index(from_seq), len(sequences.seqs)):
            yield sequences.seqs[index]

    def tracked_below(self, subject: bytes, seq: int) -> int:
        """Return the highest tracked sequence of a subject with more than one message that is < `seq`; 0 = none."""
        sequences = self.sequences.get(subject)
        index = 0 if sequences is None else sequences.index(seq)
        return sequences.seqs[index - 1] if sequences is not None and index > sequences.start else 0

    def count_from(self, subject: bytes, from_seq: int) -> int:
        """Return how many tracked sequences of a subject are >= `from_seq`."""
        sequences = self.sequences.get(subject)
        if sequences is None:
            known = self.table.get(subject)
            return int(known is not None and known[1] >= from_seq)
        return len(sequences.seqs) - sequences.index(from_seq)

    def matching(self, pattern: bytes) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield subject, count, first and last of subjects that `pattern` (literal or wildcard; b"" and b">": all) matches."""
        return matching_any(self.table, (pattern,))


def matcher(filters: tuple[bytes, ...]) -> Callable[[bytes], bool] | None:
    """Return a predicate for "any of these filters matches this literal subject"; None when everything matches."""
    if not filters or b">" in filters or b"" in filters:
        return None
    literal, matches_wild = _sorted_out(filters) if len(filters) <= SINGLY_MAX else _sorted_out_once(filters)
    if matches_wild is None:
        return literal.__contains__
    known: dict[bytes, bool] = {}

    def matching(subject: bytes) -> bool:
        answer = known.get(subject)
        if answer is None:
            answer = subject in literal or matches_wild(subject)
            if len(known) < _CACHE_MAX:
                known[subject] = answer
        return answer

    return matching


def _sorted_out(filters: tuple[bytes, ...]) -> tuple[frozenset[bytes], Callable[[bytes], bool] | None]:
    """Return the literal ones, and a predicate for the others, if there are any."""
    literal = frozenset(pattern for pattern in filters if is_literal(pattern))
    wild = [pattern for pattern in filters if pattern not in literal]
    return literal, matcher_of(wild) if wild else None


#: Matchers of very many filters, which are expensive to build and are used repeatedly.
_sorted_out_once = lru_cache(maxsize=16)(_sorted_out)
