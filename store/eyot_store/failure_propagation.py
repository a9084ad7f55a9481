"""Failures that later transactions inherit: what was staged on top of a failed transaction must fail, too.

This module serves the committing side of every committer. The loop's side does the same for transactions that it has
not submitted yet (`Log` counts epochs). A failure is therefore inherited only by what was staged before the loop knew
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eyot_store.errors import StoreError
from eyot_store.txn import FailureScope, Txn


class FailurePropagation:
    """The last failure of each stream."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[int, FailureScope, StoreError]] = {}  # stream id -> epoch, what it broke, cause

    def inherited(self, txn: Txn) -> StoreError | None:
        """Return the failure that `txn` was built on, if any."""
        if txn.error is not None:
            self.fail(txn, txn.error)
            return txn.error
        if not self._failed:
            return None
        for stream_id, part in txn.parts.items():
            failed = self._failed.get(stream_id)
            if failed is None:
                continue
            epoch, broken, error = failed
            if part.epoch <= epoch and broken & part.needs:  # else the loop knew the failure and restaged
                self.fail(txn, error)
                return error
        return None

    def fail(self, txn: Txn, error: StoreError) -> None:
        """`txn` did not happen."""
        for stream_id, part in txn.parts.items():
            broken = part.breaks
            before = self._failed.get(stream_id)
            if before is not None:
                if before[0] > part.epoch:
                    continue
                if before[0] == part.epoch:
                    broken |= before[1]
            if broken:
                self._failed[stream_id] = (part.epoch, broken, error)

    def results_after(
        self,
        error: StoreError,
        group: Sequence[Txn],
        results: list[StoreError | None],
        commit_alone: Callable[[Txn], StoreError | None],
    ) -> list[StoreError | None]:
        """Return the results of a group whose commit failed with `error`.

        `results`: None for each transaction that this commit had. `commit_alone` commits one of them, unless it
        inherits a failure: an earlier one of this very group may have failed by now. A failing disk may need any time
        to answer, and is not tried once per transaction.
        """
        todo = [txn for txn, result in zip(group, results, strict=True) if result is None]
        if len(todo) == 1 or error.reason == "io":
            for txn in todo:
                self.fail(txn, error)
            return [error if result is None else result for result in results]
        for index, txn in enumerate(group):
            if results[index] is None:
                result = results[index] = commit_alone(txn)
                if result is not None:
                    self.fail(txn, result)
        return results

    def forget(self, stream_id: int) -> None:
        """Remove a deleted stream."""
        self._failed.pop(stream_id, None)
