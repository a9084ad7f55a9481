"""The numbers of very many subjects: how many messages each has, the first of them and the last.

`_subject_table.pyx` does the same in C, in some 70 bytes a subject besides its name; this one runs where nothing was compiled, and is
what the compiled one is tested against.

``first`` is negative (or 0) when it is not known: nothing of the subject is below its amount. ``last`` is 0 when it is not known. Either
is so when the message that was first or last went away while others remain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from eyot_store.errors import StoreError
from eyot_wire.subject import matches

Entry = tuple[bytes | None, int, int, int, int, int]
"""A change: subject, count, first and last that came, lowest and highest that went (see ``subject_index``)."""

UNREAD: Final = b"\n"
"""Stands for subject None; no subject holds a line feed."""


class _Record(msgspec.Struct, array_like=True, frozen=True):
    covered: int
    records: int
    base_bytes: int
    change_bytes: int
    entries: list[tuple[bytes | None, int, int, int, int, int]]


_decode = msgspec.msgpack.Decoder(_Record).decode


class SubjectTable:
    """Subjects and their numbers. ``messages`` is the sum of all counts."""

    __slots__ = ("_entries", "messages")

    def __init__(self) -> None:
        self._entries: dict[bytes, list[int]] = {}
        self.messages = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, subject: bytes) -> tuple[int, int, int] | None:
        """(count, first, last); None: there is none."""
        known = self._entries.get(subject)
        return None if known is None else (known[0], known[1], known[2])

    def count(self, subject: bytes) -> int:
        """Its messages; 0: there are none."""
        known = self._entries.get(subject)
        return known[0] if known else 0

    def set_ends(self, subject: bytes, first: int, last: int) -> None:
        """What was looked for is known now; for a subject that is there."""
        self._entries[subject][1:] = first, last

    def remove(self, subject: bytes) -> None:
        """Forget a subject, if it is there."""
        known = self._entries.pop(subject, None)
        if known is not None:
            self.messages -= known[0]

    def came(self, subject: bytes, count: int, first: int, last: int) -> int:
        """``count`` new messages, above all there were; returns the last before them (0: none, or not known)."""
        self.messages += count
        known = self._entries.get(subject)
        if known is None:
            self._entries[subject] = [count, first, last]
            return 0
        before = known[2]
        known[0] += count
        known[2] = last
        return before

    def came_run(
        self, messages: Sequence[tuple[bytes, bytes, bytes, bytes]], first: int, before: dict[bytes, int]
    ) -> None:
        """Messages in a row, the subject at the head of each, the first at sequence ``first``. What ``came`` returns for a subject's first
        one goes into ``before``, where the subject is not in there yet."""
        for seq, (subject, *_) in enumerate(messages, first):
            previous = self.came(subject, 1, seq, seq)
            before.setdefault(subject, previous)

    def went(self, subject: bytes, seq: int) -> None:
        """The message at ``seq`` went away. A subject that has no more is forgotten."""
        known = self._entries.get(subject)
        if known is None:
            return
        self.messages -= 1
        known[0] -= 1
        if known[0] <= 0:
            del self._entries[subject]
        else:
            _went(known, seq, seq)

    def went_run(self, found: Iterable[tuple[int, bytes, int]]) -> None:
        """The same for many: sequence, subject, and anything."""
        for seq, subject, _ in found:
            self.went(subject, seq)

    def oldest_of(self, subjects: Collection[bytes], keep: int, upto: int) -> tuple[dict[int, bytes], list[bytes]]:
        """Of those of ``subjects`` that have more than ``keep`` messages: where one has to go and is known and not above ``upto``, its
        sequence with the subject; the others."""
        single: dict[int, bytes] = {}
        others: list[bytes] = []
        for subject in subjects:
            known = self._entries.get(subject)
            if known is None or known[0] <= keep:
                continue
            if known[0] == keep + 1 and 0 < known[1] <= upto:
                single[known[1]] = subject
            else:
                others.append(subject)
        return single, others

    def back(self, subject: bytes, seq: int) -> None:
        """A message whose removal did not happen is back."""
        self.messages += 1
        known = self._entries.get(subject)
        if known is None:
            self._entries[subject] = [1, seq, seq]
            return
        count, first, last = known
        first = min(first, seq) if first > 0 else -min(-first, seq)
        known[:] = count + 1, first, max(last, seq) if last else 0

    def fold(self, entries: Iterable[Entry]) -> None:
        """Take in changes. Raises StoreError("corrupt"): they do not follow from what was before."""
        table = self._entries
        for name, count, first, last, low, high in entries:
            subject = UNREAD if name is None else name
            known = table.get(subject)
            if known is None:
                if count < 0:
                    raise StoreError("corrupt", "an index of subjects counts below zero")
                if not count:
                    continue
                known = table[subject] = [count, first, last]
            else:
                if known[0] + count < 0:
                    raise StoreError("corrupt", "an index of subjects counts below zero")
                known[0] += count
                if not known[0]:
                    del table[subject]
                known[2] = last or known[2]
            self.messages += count
            if high:
                _went(known, low, high)

    def fold_record(self, record: bytes) -> tuple[int, int, int, int]:
        """Take in the entries of an index's record (see ``subject_index``); returns the four numbers before them. Raises
        StoreError("corrupt"), too, if it is none."""
        head, entries = decoded(record)
        self.fold(entries)
        return head

    def scan(self, pattern: bytes, at: int, limit: int) -> tuple[list[tuple[bytes, int, int, int]], int]:
        """(subject, count, first, last) of subjects that ``pattern`` matches (b"": all), from place ``at`` on, at first 0; about ``limit``
        are looked at (here: all). Returns the place to go on from, too, 0 at the end. What is there all the while is seen once."""
        found = [
            (subject, known[0], known[1], known[2])
            for subject, known in self._entries.items()
            if not pattern or matches(pattern, subject)
        ]
        return found, 0

    def total_from(self, patterns: tuple[bytes, ...], seq: int, most: int) -> tuple[int, list[bytes] | None]:
        """Messages at or after ``seq`` of all subjects that one of the patterns matches, as far as first and last tell; the subjects of
        which they do not tell. None: those are more than ``most``."""
        total = 0
        astride: list[bytes] | None = []
        for subject, (count, first, last) in self._entries.items():
            if not any(not pattern or matches(pattern, subject) for pattern in patterns):
                continue
            if seq <= 1 or first >= seq:
                total += count
            elif (not last or last >= seq) and astride is not None:
                astride.append(subject)
                if len(astride) > most:
                    astride = None
        return total, astride

    def newest(self, pattern: bytes, upto: int) -> tuple[int, list[bytes]]:
        """The highest last sequence of subjects that ``pattern`` matches (b"": all), of those that are known and not above ``upto``; the
        other subjects."""
        found, doubtful = self.lasts(pattern, 0, upto)
        return max(found, default=0), doubtful

    def lasts(self, pattern: bytes, above: int, upto: int) -> tuple[list[int], list[bytes]]:
        """The last sequences in (``above``, ``upto``] of subjects that ``pattern`` matches (b"": all); the subjects of which it is not
        known, or higher."""
        found: list[int] = []
        doubtful: list[bytes] = []
        for subject, (_, _, last) in self._entries.items():
            if 0 < last <= above or (pattern and not matches(pattern, subject)):
                continue
            if 0 < last <= upto:
                found.append(last)
            else:
                doubtful.append(subject)
        return found, doubtful

    def matched(self, pattern: bytes) -> Matched:
        """The subjects that ``pattern`` matches (b"": all), as they are now, to be listed in another thread."""
        found = Matched()
        found.add_all(
            (subject, known[0]) for subject, known in self._entries.items() if not pattern or matches(pattern, subject)
        )
        return found


class Matched:
    """Subjects and their messages. ``page`` sorts them, which may take long, and holds nobody up."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[bytes, int]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add_all(self, found: Iterable[tuple[bytes, int]]) -> None:
        """For who fills it."""
        self._found += found

    def page(self, offset: int, limit: int) -> list[tuple[bytes, int]]:
        """(subject, messages) in the order of subjects, from place ``offset`` on."""
        return sorted(self._found)[offset : offset + limit] if offset >= 0 and limit > 0 else []


def decoded(record: bytes) -> tuple[tuple[int, int, int, int], list[Entry]]:
    """The four numbers and the entries of an index's record. Raises StoreError("corrupt")."""
    try:
        found = _decode(record)
    except msgspec.MsgspecError as error:
        raise StoreError("corrupt", f"index of subjects: {error}") from None
    return (found.covered, found.records, found.base_bytes, found.change_bytes), found.entries


def _went(known: list[int], low: int, high: int) -> None:
    """Some in [low, high] went."""
    count, first, last = known
    if low <= first <= high:
        known[1] = -(first + 1) if low == high else -first
    if low <= last <= high:
        known[2] = 0
    if count == 1:  # the one that is known is the one that is left
        if known[1] <= 0 and known[2]:
            known[1] = known[2]
        elif known[1] > 0 and not known[2]:
            known[2] = known[1]
