"""Verifying a stream's index of subjects against its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eyot_store.errors import StoreError
from eyot_store.native import SubjectTable
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import seq_of
from eyot_store.subject_table import UNREAD
from eyot_store.subjects.index_writer import Unseal, fold_index

Truth = dict[bytes, list[int]]


class IndexCheck:
    """Compares a stream's subject index with its records, which are passed in order."""

    def __init__(self, txn: Any, db: Any, stream_id: int, codec: RecordCodec, unseal: Unseal) -> None:
        self._subject = codec.subject
        self._said = SubjectTable()
        self._covered = 0
        self._damage = ""
        self._truth: Truth = {}
        if db is not None:
            try:
                for _, head in fold_index(self._said, txn, db, stream_id, unseal):
                    self._covered = head.covered
            except StoreError as error:
                self._damage = error.message

    def look_at(self, key: Any, value: Any) -> None:
        """Count a record."""
        seq = seq_of(key)
        if seq > self._covered:
            return
        subject = self._subject(key, value) or UNREAD
        known = self._truth.setdefault(subject, [0, seq, seq])
        known[0] += 1
        known[2] = seq

    def problems(self, *, trusted: bool) -> list[str]:
        """Return the differences. `trusted` False: records are damaged, so the index may hold more than they show."""
        if self._damage:
            return [self._damage]
        if not self._covered or not trusted:
            return []
        wrong = [subject for subject, known in self._truth.items() if not _agrees(self._said.get(subject), known)]
        wrong += [subject for subject in self._subjects_said() if subject not in self._truth]
        return [f"its index of subjects is wrong about {len(wrong)} of them, {wrong[0]!r} for one"] if wrong else []

    def _subjects_said(self) -> Iterator[bytes]:
        at = 0
        while True:
            found, at = self._said.scan(b"", at, 4096)
            yield from (subject for subject, *_ in found)
            if not at:
                return


def _agrees(said: tuple[int, int, int] | None, truth: list[int]) -> bool:
    if said is None or said[0] != truth[0]:
        return False
    first, last = said[1], said[2]
    return (first == truth[1] if first > 0 else -first <= truth[1]) and last in (0, truth[2])
