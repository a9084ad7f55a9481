"""Which logs there are, by account and name, while creations and deletions are staged and may yet fail."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

Key = tuple[str, str]


class Named(Protocol):
    """A log as the directory sees it."""

    void: bool
    """Its creation failed: there is no such log."""

    @property
    def account(self) -> str: ...

    @property
    def name(self) -> str: ...


LogT = TypeVar("LogT", bound=Named)


class Directory(Generic[LogT]):
    """Names of logs.

    A deletion frees its name at once. If it fails, its successor fails with it, and then the log is restored.
    """

    def __init__(self) -> None:
        self._logs: dict[Key, LogT] = {}
        self._deleting: dict[Key, LogT] = {}  # deleted, not yet on disk
        self._displaced: dict[Key, LogT] = {}  # not deleted after all, while the name is still a successor's

    def get(self, account: str, name: str) -> LogT | None:
        return self._logs.get((account, name))

    def all(self) -> list[LogT]:
        """In order of account and name."""
        return [self._logs[key] for key in sorted(self._logs)]

    def add(self, log: LogT) -> LogT | None:
        """Add a new log; return the log of the same name whose deletion is pending."""
        key = (log.account, log.name)
        self._logs[key] = log
        return self._deleting.get(key)

    def creation_failed(self, log: LogT) -> None:
        log.void = True
        key = (log.account, log.name)
        if self._logs.get(key) is log:
            del self._logs[key]
            displaced = self._displaced.pop(key, None)
            if displaced is not None:
                self._logs[key] = displaced

    def deletion_staged(self, log: LogT) -> None:
        key = (log.account, log.name)
        del self._logs[key]
        self._deleting[key] = log

    def deletion_committed(self, log: LogT) -> None:
        self._forget(log)

    def deletion_failed(self, log: LogT) -> None:
        self._forget(log)
        if log.void:
            return
        key = (log.account, log.name)
        if key in self._logs:
            self._displaced[key] = log
        else:
            self._logs[key] = log

    def _forget(self, log: LogT) -> None:
        key = (log.account, log.name)
        if self._deleting.get(key) is log:
            del self._deleting[key]
