"""The counters of very many subjects: the number of messages, the first and the last of each.

`_subject_table.pyx` is the compiled twin, with about 70 bytes per subject besides its name. This module runs without a
compiler, and tests compare both.

A negative (or zero) `first` is unknown: no message of the subject is below its absolute value. `last` is 0 when
unknown. Either becomes unknown when the first or last message is removed while others remain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from eyot_store.errors import StoreError
from eyot_wire.pattern_set import matcher_of
from eyot_wire.subject import matches

Entry = tuple[bytes | None, int, int, int, int, int]
"""A change: subject, count, first and last sequence added, lowest and highest removed (see `subject_index`)."""

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
    """Subjects and their numbers. `messages` is the sum of all counts."""

    __slots__ = ("_entries", "messages")

    def __init__(self) -> None:
        self._entries: dict[bytes, list[int]] = {}
        self.messages = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, subject: bytes) -> tuple[int, int, int] | None:
        """Return (count, first, last) of a subject, or None."""
        known = self._entries.get(subject)
        return None if known is None else (known[0], known[1], known[2])

    def count(self, subject: bytes) -> int:
        """Its messages; 0: there are none."""
        known = self._entries.get(subject)
        return known[0] if known else 0

    def set_ends(self, subject: bytes, first: int, last: int) -> None:
        """Set first and last of an existing subject, once they were looked up."""
        self._entries[subject][1:] = first, last

    def remove(self, subject: bytes) -> None:
        """Forget a subject, if it is there."""
        known = self._entries.pop(subject, None)
        if known is not None:
            self.messages -= known[0]

    def came(self, subject: bytes, count: int, first: int, last: int) -> int:
        """Count `count` new messages above all existing ones; return the last sequence before them (0: none, or unknown)."""
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
        """Count consecutive messages with their subject first, starting at sequence `first`.

        `before` receives, for each subject that it lacks, the result of `came` for the subject's first message.
        """
        for seq, (subject, *_) in enumerate(messages, first):
            previous = self.came(subject, 1, seq, seq)
            before.setdefault(subject, previous)

    def went(self, subject: bytes, seq: int) -> None:
        """Count the removal of the message at `seq`; a subject without messages is dropped."""
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
        """Count removals of many messages: (sequence, subject, any value)."""
        for seq, subject, _ in found:
            self.went(subject, seq)

    def oldest_of(self, subjects: Collection[bytes], keep: int, upto: int) -> tuple[dict[int, bytes], list[bytes]]:
        """Return the oldest messages of `subjects` with more than `keep` messages, and the other subjects.

        The former are {sequence: subject}: exactly one message must be removed, and its sequence is known and not above
        `upto`.
        """
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
        """Count a message whose removal was rolled back."""
        self.messages += 1
        known = self._entries.get(subject)
        if known is None:
            self._entries[subject] = [1, seq, seq]
            return
        count, first, last = known
        first = min(first, seq) if first > 0 else -min(-first, seq)
        known[:] = count + 1, first, max(last, seq) if last else 0

    def fold(self, entries: Iterable[Entry]) -> None:
        """Apply changes. Raises StoreError("corrupt") when they do not fit the table."""
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
        """Apply the entries of an index's record (see `subject_index`); return the four numbers before them.

        Raises StoreError("corrupt"), also for a malformed record.
        """
        head, entries = decoded(record)
        self.fold(entries)
        return head

    def scan(self, pattern: bytes, at: int, limit: int) -> tuple[list[tuple[bytes, int, int, int]], int]:
        """Return (subject, count, first, last) of subjects that `pattern` matches (b"": all), and the place to continue (0: end).

        Starts at place `at` (initially 0) and examines about `limit` subjects (here: all). A subject that exists
        throughout is returned once.
        """
        found = [
            (subject, known[0], known[1], known[2])
            for subject, known in self._entries.items()
            if not pattern or matches(pattern, subject)
        ]
        return found, 0

    def total_from(self, patterns: tuple[bytes, ...], seq: int, most: int) -> tuple[int, list[bytes] | None]:
        """Count messages at or after `seq` of all subjects that a pattern matches, as far as first and last determine it.

        Also returns the subjects for which they do not; None: more than `most`.
        """
        total = 0
        astride: list[bytes] | None = []
        is_wanted = _matcher(patterns)
        for subject, (count, first, last) in self._entries.items():
            if not is_wanted(subject):
                continue
            if seq <= 1 or first >= seq:
                total += count
            elif (not last or last >= seq) and astride is not None:
                astride.append(subject)
                if len(astride) > most:
                    astride = None
        return total, astride

    def newest(self, pattern: bytes, upto: int) -> tuple[int, list[bytes]]:
        """Return the highest known last sequence, not above `upto`, of subjects that `pattern` matches, and the other subjects."""
        found, doubtful = self.lasts((pattern,), 0, upto)
        return max(found, default=0), doubtful

    def lasts(self, patterns: tuple[bytes, ...], above: int, upto: int) -> tuple[array[int], list[bytes]]:
        """Return the last sequences in (`above`, `upto`] of subjects that one of `patterns` matches (b"": all), ascending.

        Also returns the subjects whose last sequence is unknown or higher.
        """
        found: list[int] = []
        doubtful: list[bytes] = []
        is_wanted = _matcher(patterns)
        for subject, (_, _, last) in self._entries.items():
            if 0 < last <= above or not is_wanted(subject):
                continue
            if 0 < last <= upto:
                found.append(last)
            else:
                doubtful.append(subject)
        return array("q", sorted(found)), doubtful

    def matched(self, pattern: bytes) -> Matched:
        """Return the subjects that `pattern` matches (b"": all), as they are now, to be listed in another thread."""
        found = Matched()
        found.add_all(
            (subject, known[0]) for subject, known in self._entries.items() if not pattern or matches(pattern, subject)
        )
        return found


def _matcher(patterns: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    """Return whether a subject matches one of the patterns (b"": all)."""
    return (lambda _: True) if b"" in patterns else matcher_of(patterns)


class Matched:
    """Subjects and their message counts. `page` sorts them, which may be slow, without blocking others."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[tuple[bytes, int]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add_all(self, found: Iterable[tuple[bytes, int]]) -> None:
        """Add results of a search."""
        self._found += found

    def page(self, offset: int, limit: int) -> list[tuple[bytes, int]]:
        """(subject, messages) in the order of subjects, from place `offset` on."""
        return sorted(self._found)[offset : offset + limit] if offset >= 0 and limit > 0 else []


def decoded(record: bytes) -> tuple[tuple[int, int, int, int], list[Entry]]:
    """Return the four numbers and the entries of an index's record. Raises StoreError("corrupt")."""
    try:
        found = _decode(record)
    except msgspec.MsgspecError as error:
        raise StoreError("corrupt", f"index of subjects: {error}") from None
    return (found.covered, found.records, found.base_bytes, found.change_bytes), found.entries


def _went(known: list[int], low: int, high: int) -> None:
    """Account for removals in [low, high]."""
    count, first, last = known
    if low <= first <= high:
        known[1] = -(first + 1) if low == high else -first
    if low <= last <= high:
        known[2] = 0
    if count == 1:  # the known message is the only one left
        if known[1] <= 0 and known[2]:
            known[1] = known[2]
        elif known[1] > 0 and not known[2]:
            known[2] = known[1]
