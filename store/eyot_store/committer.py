"""The interface of committers, and their statistics.

A *committer* makes a group of transactions durable before it returns, and reports for each transaction whether it is.
It knows neither threads nor the event loop. The *driver* (`driver.py`) decides when to call it and delivers the
results: a thread that commits what gathered during the last flush, or the caller itself (simulation).

Committers: `lmdb_committer.LmdbCommitter` writes directly into LMDB. `journal_committer.JournalCommitter` flushes a
journal and applies it to LMDB later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eyot_store.errors import StoreError
from eyot_store.txn import Txn


class Committer(Protocol):
    """Called from one thread at a time."""

    def commit(self, group: Sequence[Txn]) -> list[StoreError | None]:
        """Make each transaction of `group`, in order, durable as a whole or not at all; one result for each.

        When it returns, everything reported as None survives a power cut.
        """

    @property
    def untidy(self) -> bool:
        """Whether there is housekeeping to do."""

    def tidy(self) -> None:
        """Do a bounded piece of housekeeping; called when nothing waits to be committed, and now and then otherwise."""

    def close(self) -> None:
        """Finish after the last commit: complete the housekeeping, and close files and threads."""

    def abandon(self) -> None:
        """Close files and threads without finishing, as a crash does."""


class CommitStats:
    """Statistics since the store was opened. The committing thread writes them, any thread reads them."""

    __slots__ = (
        "applies",
        "apply_failed",
        "apply_ns_total",
        "bytes",
        "commits",
        "failed",
        "flush_ns_last",
        "flush_ns_log2",
        "flush_ns_max",
        "flush_ns_total",
        "group_log2",
        "last_commit_ns",
        "map_growths",
        "messages",
        "tidying_failed",
        "txns",
        "unnotified",
    )

    def __init__(self) -> None:
        self.commits = 0  # groups that reached the disk
        self.txns = 0  # transactions in them
        self.failed = 0  # transactions that did not
        self.messages = 0  # messages appended
        self.bytes = 0  # record and value bytes handed to the disk (before LMDB's pages)
        self.flush_ns_total = 0  # time in a group's flush: LMDB's commit with its two, or the journal's write with one
        self.flush_ns_last = 0
        self.flush_ns_max = 0
        self.flush_ns_log2 = [0] * 48  # [i]: number of flushes that lasted [2^(i-1), 2^i) ns
        self.group_log2 = [0] * 24  # [i]: groups of [2^(i-1), 2^i) transactions
        self.last_commit_ns = 0  # wall time of the last commit
        self.map_growths = 0
        self.applies = 0  # LMDB transactions that brought LMDB up to date with the journal
        self.apply_ns_total = 0
        self.apply_failed = ""  # why the last of them failed; it is tried again
        self.tidying_failed = ""  # why the last housekeeping was given up
        self.unnotified = 0  # groups whose results no loop received

    def flushed(self, flush_ns: int, txns: int, now_ns: int) -> None:
        """Count a flushed group of `txns` transactions; the flush lasted `flush_ns`."""
        self.commits += 1
        self.txns += txns
        self.flush_ns_total += flush_ns
        self.flush_ns_last = flush_ns
        if flush_ns > self.flush_ns_max:
            self.flush_ns_max = flush_ns
        self.flush_ns_log2[min(flush_ns.bit_length(), 47)] += 1
        self.group_log2[min(txns.bit_length(), 23)] += 1
        self.last_commit_ns = now_ns

    def applied(self, apply_ns: int, error: StoreError | None) -> None:
        """Count an attempt to apply the journal to LMDB, which lasted `apply_ns`."""
        self.applies += error is None
        self.apply_ns_total += apply_ns
        self.apply_failed = str(error) if error else ""
