"""The subjects of a log, collected a slice at a time while the log continues."""

from __future__ import annotations

from eyot_store.subjects.index_reader import IndexReading
from eyot_store.subjects.subjects import Subjects


class Tracking:
    """The subjects of messages below `next_seq`; the log reports removals and restorations there.

    While `next_seq` is 0 the index is being loaded, which accounts for these itself.
    """

    __slots__ = ("index", "next_seq", "subjects")

    def __init__(self, *, tracked: bool, next_seq: int = 0) -> None:
        self.subjects = Subjects(tracked=tracked)
        self.index = IndexReading()
        self.next_seq = next_seq

    def discard(self, subject: bytes, seq: int) -> None:
        if seq < self.next_seq:
            self.subjects.discard(subject, seq)

    def restore(self, subject: bytes, seq: int) -> None:
        if seq < self.next_seq:
            self.subjects.restore(subject, seq)
