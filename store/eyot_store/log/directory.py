"""Which logs there are, by account and name, while creations and deletions are staged and may yet fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eyot_store.log.log import Log

Key = tuple[str, str]


class Directory:
    """Names of logs. A deletion frees its name at once; if it fails, the log is back when its successor (which fails with
    it) is gone."""

    def __init__(self) -> None:
        self._logs: dict[Key, Log] = {}
        self._deleting: dict[Key, Log] = {}  # deleted, not yet on disk
        self._displaced: dict[Key, Log] = {}  # not deleted after all, while the name is still a successor's

    def get(self, account: str, name: str) -> Log | None:
        return self._logs.get((account, name))

    def all(self) -> list[Log]:
        """In order of account and name."""
        return [self._logs[key] for key in sorted(self._logs)]

    def add(self, log: Log) -> Log | None:
        """A log came to be; returns the one of the same name whose deletion is under way."""
        key = (log.account, log.name)
        self._logs[key] = log
        return self._deleting.get(key)

    def creation_failed(self, log: Log) -> None:
        log.void = True
        key = (log.account, log.name)
        if self._logs.get(key) is log:
            del self._logs[key]
            displaced = self._displaced.pop(key, None)
            if displaced is not None:
                self._logs[key] = displaced

    def deletion_staged(self, log: Log) -> None:
        key = (log.account, log.name)
        del self._logs[key]
        self._deleting[key] = log

    def deletion_committed(self, log: Log) -> None:
        self._forget(log)

    def deletion_failed(self, log: Log) -> None:
        self._forget(log)
        if log.void:
            return
        key = (log.account, log.name)
        if key in self._logs:
            self._displaced[key] = log
        else:
            self._logs[key] = log

    def _forget(self, log: Log) -> None:
        key = (log.account, log.name)
        if self._deleting.get(key) is log:
            del self._deleting[key]
