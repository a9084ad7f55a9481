"""What a stream knows about each of its subjects: how many messages, and the first and the last of them.

Kept in memory for streams that ask for it (built by one pass over the log on first use). ``first`` and ``last`` are 0 when
they are not known: the message that was first or last went away while others remain; the log then looks for them. Where
that or a sparse filter proves expensive, the log has the sequences of every subject *tracked* too (8 bytes a message, none
for subjects with one message), and nothing is ever unknown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from eyot_wire.subject import is_literal, matches

_CACHE_MAX = 4096


class SubjectEntry:
    """One subject: ``count`` messages, the lowest and the highest sequence (0 = must be looked up)."""

    __slots__ = ("count", "first", "floor", "last", "seqs", "start")

    def __init__(self, seq: int) -> None:
        self.count = 1
        self.first = seq
        self.last = seq
        self.floor = seq  # nothing of this subject is below; where a search for the first begins
        self.seqs: array[int] | None = None  # tracked, and more than one message: all sequences, from ``start`` on
        self.start = 0

    def sequences(self, from_seq: int) -> Iterator[int]:
        """Tracked sequences >= ``from_seq``, ascending."""
        seqs = self.seqs
        if seqs is None:
            if self.first >= from_seq:
                yield self.first
            return
        for index in range(bisect_left(seqs, from_seq, self.start), len(seqs)):
            yield seqs[index]

    def count_from(self, from_seq: int) -> int:
        """How many tracked sequences are >= ``from_seq``."""
        if self.seqs is None:
            return int(self.first >= from_seq)
        return len(self.seqs) - bisect_left(self.seqs, from_seq, self.start)

    def put(self, seq: int) -> None:
        """Track one more sequence."""
        seqs = self.seqs
        if seqs is None:
            self.seqs = array("Q", sorted((self.first, seq)))
            self.start = 0
        elif seq > seqs[-1]:
            seqs.append(seq)
        else:
            seqs.insert(bisect_left(seqs, seq, self.start), seq)

    def take(self, seq: int) -> None:
        """Track one sequence less; at least one remains."""
        seqs = self.seqs
        assert seqs is not None
        if seqs[self.start] == seq:
            self.start += 1
            if self.start > 64 and self.start * 2 > len(seqs):
                del seqs[: self.start]
                self.start = 0
        else:
            del seqs[bisect_left(seqs, seq, self.start)]
        self.first = self.floor = seqs[self.start]
        self.last = seqs[-1]
        if self.count == 1:
            self.seqs = None


class Subjects:
    """Subject to entry; the only writer is the log that owns it."""

    __slots__ = ("entries", "tracked")

    def __init__(self, *, tracked: bool = False) -> None:
        self.entries: dict[bytes, SubjectEntry] = {}
        self.tracked = tracked

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, subject: bytes, seq: int) -> int:
        """A new highest sequence for ``subject``; returns the one before (0 = none, or not known)."""
        entry = self.entries.get(subject)
        if entry is None:
            self.entries[subject] = SubjectEntry(seq)
            return 0
        if self.tracked:
            entry.put(seq)
        previous = entry.last
        entry.count += 1
        entry.last = seq
        return previous

    def add_some(self, subject: bytes, count: int, first: int, last: int) -> int:
        """The same for ``count`` sequences, where they are not tracked."""
        entry = self.entries.get(subject)
        if entry is None:
            entry = self.entries[subject] = SubjectEntry(first)
            entry.count = count
            entry.last = last
            return 0
        previous = entry.last
        entry.count += count
        entry.last = last
        return previous

    def discard(self, subject: bytes, seq: int) -> None:
        """The message at ``seq`` went away."""
        entry = self.entries.get(subject)
        if entry is None:
            return
        entry.count -= 1
        if entry.count <= 0:
            del self.entries[subject]
        elif self.tracked:
            entry.take(seq)
        elif entry.count == 1 and entry.first == seq and entry.last:
            entry.first = entry.floor = entry.last  # of two the other one is left
        elif entry.count == 1 and entry.last == seq and entry.first:
            entry.last = entry.first
        else:
            if entry.first == seq:
                entry.first = 0
                entry.floor = seq + 1
            if entry.last == seq:
                entry.last = 0

    def restore(self, subject: bytes, seq: int) -> None:
        """A message whose removal did not happen is back."""
        entry = self.entries.get(subject)
        if entry is None:
            self.entries[subject] = SubjectEntry(seq)
            return
        if self.tracked:
            entry.put(seq)
        entry.count += 1
        entry.floor = min(entry.floor, seq)
        if entry.first and seq < entry.first:
            entry.first = seq
        if entry.last and seq > entry.last:
            entry.last = seq

    def matching(self, pattern: bytes) -> Iterable[tuple[bytes, SubjectEntry]]:
        """Entries whose subject ``pattern`` (literal or wildcard, b"" and b">" = all) matches."""
        if pattern in (b"", b">"):
            return self.entries.items()
        if is_literal(pattern):
            entry = self.entries.get(pattern)
            return () if entry is None else ((pattern, entry),)
        return self._scan(pattern)

    def _scan(self, pattern: bytes) -> Iterator[tuple[bytes, SubjectEntry]]:
        for subject, entry in self.entries.items():
            if matches(pattern, subject):
                yield subject, entry


def matcher(filters: tuple[bytes, ...]) -> Callable[[bytes], bool] | None:
    """A predicate for "any of these filters matches this literal subject"; None when everything matches."""
    if not filters or b">" in filters or b"" in filters:
        return None
    literal = frozenset(pattern for pattern in filters if is_literal(pattern))
    wild = tuple(pattern for pattern in filters if pattern not in literal)
    if not wild:
        return literal.__contains__
    known: dict[bytes, bool] = {}

    def matching(subject: bytes) -> bool:
        answer = known.get(subject)
        if answer is None:
            answer = subject in literal or any(matches(pattern, subject) for pattern in wild)
            if len(known) < _CACHE_MAX:
                known[subject] = answer
        return answer

    return matching
