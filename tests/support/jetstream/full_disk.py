"""A disk that is full, for a fixture's store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eyot_store.errors import StoreError

if TYPE_CHECKING:
    import pytest

    from eyot_store.txn import Txn
    from support.jetstream.fixture import Fixture


def fill_disk(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no transaction of this fixture's store is committed."""
    committer: Any = fixture.store._driver._committer  # type: ignore[attr-defined]

    def commit(group: Sequence[Txn]) -> list[StoreError | None]:
        failures = [StoreError("full", "no space left on device") for _ in group]
        for txn, failure in zip(group, failures, strict=True):
            committer._failure_propagation.fail(txn, failure)
        return list(failures)

    monkeypatch.setattr(committer, "commit", commit)
