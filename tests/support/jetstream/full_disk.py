"""A disk that is full or fails, for a fixture's store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from eyot_store.changes import takes_room
from eyot_store.errors import StoreError

if TYPE_CHECKING:
    import pytest

    from eyot_store.txn import Txn
    from support.jetstream.fixture import Fixture

Trouble = Literal["", "full", "io"]


class Disk:
    """Stands before the committer. `trouble`: "": none; "full": what takes room fails; "io": everything fails."""

    def __init__(self, fixture: Fixture, trouble: Trouble = "") -> None:
        self.trouble: Trouble = trouble
        self._committer: Any = fixture.store._driver._committer  # type: ignore[attr-defined]
        self._whole = self._committer.commit

    def stand_before(self, monkeypatch: pytest.MonkeyPatch | None = None) -> Disk:
        """Commit through this disk from now on; for ever, or as long as `monkeypatch` lasts."""
        if monkeypatch is None:
            self._committer.commit = self._commit
        else:
            monkeypatch.setattr(self._committer, "commit", self._commit)
        return self

    def _commit(self, group: Sequence[Txn]) -> list[StoreError | None]:
        if not self.trouble:
            return list(self._whole(group))
        return [result for txn in group for result in self._one(txn)]

    def _one(self, txn: Txn) -> list[StoreError | None]:
        failures = self._committer._failure_propagation
        failure = failures.inherited(txn)
        if failure is None and (self.trouble == "io" or takes_room([txn])):
            assert self.trouble
            failure = StoreError("full" if self.trouble == "full" else "io", "no space left on device")
            failures.fail(txn, failure)
        return list(self._whole([txn])) if failure is None else [failure]


def fill_disk(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no transaction of this fixture's store is committed."""
    Disk(fixture, "io").stand_before(monkeypatch)
