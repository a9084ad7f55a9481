"""Keeps only the newest messages of each subject, as a bucket does at every put."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn

_WHY = "max_msgs_per_subject"


def remove_oldest(
    log: Log, txn: Txn, subjects: Collection[bytes], keep: int, at_most: int, overdue: set[bytes] | None
) -> list[int]:
    """Stage the removal of the oldest messages of each of `subjects` with more than `keep`, about `at_most` in all.

    Returns the removed sequences. `overdue` receives the subjects that are postponed, and those whose oldest message
    takes long to find (None: search for it anyway).
    """
    table, committed = log.subjects().table, log.committed_seq
    # The common case: one message is removed, and its sequence is known.
    single, others = table.oldest_of(subjects, keep, committed)
    while len(single) > at_most:
        others.append(single.popitem()[1])
    gone = _remove_committed(log, txn, single)
    staged = _Staged(log)
    for subject in others:
        while log.subject_count(subject) > keep:  # the removal of an unreadable message makes a new table
            if overdue is not None and len(gone) >= at_most:
                overdue.add(subject)
                break
            oldest = staged.oldest(subject) or (
                log.first_seq_for(subject) if overdue is None else log.oldest_soon(subject)
            )
            if oldest is None:
                assert overdue is not None
                overdue.add(subject)
                break
            _remove(log, txn, oldest, gone)
    return gone


def _remove_committed(log: Log, txn: Txn, single: dict[int, bytes]) -> list[int]:
    """Remove committed messages, each the oldest of its subject; unreadable ones included."""
    gone = sorted(single)
    found = [each for each in log.count_bytes(gone) if single[each[0]] == each[1]] if len(gone) > 1 else []
    if found:
        log.remove_all(txn, found, _WHY)
    if len(found) < len(gone):
        done = {seq for seq, _, _ in found}
        for seq in gone:
            if seq not in done:
                _remove(log, txn, seq, [])
    return gone


def _remove(log: Log, txn: Txn, seq: int, gone: list[int]) -> None:
    if not log.remove(txn, seq, _WHY):
        raise RuntimeError(f"{log!r}: sequence {seq} is counted but cannot be removed")
    gone.append(seq)


class _Staged:
    """Staged messages by subject, collected on first use."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seqs: dict[bytes, deque[int]] | None = None

    def oldest(self, subject: bytes) -> int:
        """Return the oldest message of a subject with staged messages only (a key that was put twice in a turn); else 0."""
        known = self._log.subjects().table.get(subject)
        if known is None or known[1] > 0:
            return 0
        if self._seqs is None:
            self._seqs = {}
            for seq, each in self._log.staged_live():
                self._seqs.setdefault(each, deque()).append(seq)
        seqs = self._seqs.get(subject, deque())
        removed = self._log.staged_removals()
        while seqs and seqs[0] in removed:
            seqs.popleft()
        return seqs[0] if len(seqs) == known[0] else 0
