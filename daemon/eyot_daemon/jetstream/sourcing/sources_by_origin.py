"""The mirrors and sources of one account, by the subject of their origin's API.

A reconnecting fleet adds and removes interest by the ten thousand, nearly all of it in literal subjects outside of any
API: the mirrors and sources that a change concerns are looked up, not searched for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from eyot_wire.subject import is_literal, matches

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account


class AsksOrigin(Protocol):
    """A listener for the reach of its origin: a mirror, a source, or the deregistration of one (`deregistration.py`)."""

    def api_subject(self) -> bytes:
        """Return the subject of requests to the origin, after this account's mappings."""

    def interest_added(self) -> None: ...

    def interest_removed(self) -> None: ...


class SourcesByOrigin:
    """Subjects are as they are routed, so the table is rebuilt when the account's mappings have changed."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tasks: dict[AsksOrigin, None] = {}
        self._by_subject: dict[bytes, list[AsksOrigin]] = {}
        # The subjects by their first two tokens: wildcards begin behind those (`$JS.leaf.API.>`).
        self._by_head: dict[bytes, list[bytes]] = {}
        self._mapped_at = -1

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: AsksOrigin) -> None:
        self._tasks[task] = None
        self._mapped_at = -1

    def discard(self, task: AsksOrigin) -> None:
        self._tasks.pop(task, None)
        self._mapped_at = -1

    def asked_on(self, pattern: bytes) -> Iterator[AsksOrigin]:
        """Yield the listeners whose request subject `pattern` matches."""
        if self._mapped_at != self._account.mappings.changes:
            self._make()
        if is_literal(pattern):
            yield from tuple(self._by_subject.get(pattern, ()))
            return
        head = _head(pattern)
        subjects = self._by_head.get(head, ()) if is_literal(head) else self._by_subject
        for subject in tuple(subjects):
            if matches(pattern, subject):
                yield from tuple(self._by_subject[subject])

    def _make(self) -> None:
        self._mapped_at = self._account.mappings.changes
        self._by_subject.clear()
        self._by_head.clear()
        for task in self._tasks:
            subject = task.api_subject()
            if subject not in self._by_subject:
                self._by_head.setdefault(_head(subject), []).append(subject)
            self._by_subject.setdefault(subject, []).append(task)


def _head(subject: bytes) -> bytes:
    return b".".join(subject.split(b".", 2)[:2])
