"""The sequences of every subject of a log, gathered a slice at a time while the log goes on."""

from __future__ import annotations

from eyot_store.subjects import Subjects


class Tracking:
    """Holds what lies below ``next_seq``; the log tells it what goes away there, and what comes back."""

    __slots__ = ("next_seq", "subjects")

    def __init__(self, first_seq: int) -> None:
        self.subjects = Subjects(tracked=True)
        self.next_seq = first_seq

    def discard(self, subject: bytes, seq: int) -> None:
        if seq < self.next_seq:
            self.subjects.discard(subject, seq)

    def restore(self, subject: bytes, seq: int) -> None:
        if seq < self.next_seq:
            self.subjects.restore(subject, seq)
