"""The subjects of a log, gathered a slice at a time while the log goes on."""

from __future__ import annotations

from eyot_store.subjects.index_reader import IndexReading
from eyot_store.subjects.subjects import Subjects


class Tracking:
    """Holds what lies below ``next_seq``; the log tells it what goes away there, and what comes back. While ``next_seq`` is 0 the index
    is being read, which says it by itself."""

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
