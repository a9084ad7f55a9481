"""What can be wrong with the pages of a data file."""

from __future__ import annotations

from eyot_store.errors import StoreError


class PageError(StoreError):
    """A damaged page: entries of `tree` from `low` on, and below `high` (None: to the end), are unreachable."""

    def __init__(self, tree: str, pgno: int, why: str, low: bytes = b"", high: bytes | None = None) -> None:
        super().__init__("corrupt", f"page {pgno} of its {tree} is damaged: {why}")
        self.tree = tree
        self.pgno = pgno
        self.why = why
        self.low = low
        self.high = high


class SnapshotGoneError(StoreError):
    """The snapshot's meta page was overwritten meanwhile: start again."""

    def __init__(self, txnid: int) -> None:
        super().__init__("io", f"the meta page of commit {txnid} cannot be read")
