"""Which failures later transactions inherit: what was staged on top of something that never happened must fail with it.

Belongs to the committing side, whatever the committer. The loop's side does the same for what it has not handed in yet
(``Log`` counts epochs), so a failure is handed down only to what was staged before the loop knew.
"""

from __future__ import annotations

from eyot_store.errors import StoreError
from eyot_store.txn import Fate, Txn


class FailurePropagation:
    """The last failure of each stream."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[int, Fate, StoreError]] = {}  # stream id -> epoch, what it broke, why

    def inherited(self, txn: Txn) -> StoreError | None:
        """The failure that ``txn`` was built on, if any."""
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
            if part.epoch <= epoch and broken & part.needs:  # else the loop knew, and started anew
                self.fail(txn, error)
                return error
        return None

    def fail(self, txn: Txn, error: StoreError) -> None:
        """``txn`` did not happen."""
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

    def forget(self, stream_id: int) -> None:
        """The stream is gone."""
        self._failed.pop(stream_id, None)
