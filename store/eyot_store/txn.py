"""A transaction: operations on any number of logs that become durable together or not at all.

A `Txn` holds one `LogPart` per log it touches. A part carries the operations in order, as plain tuples of numbers
and bytes (what a committer applies and a journal records), and what the loop's side needs to roll them back in memory
if they do not become durable. Operations of one log keep their order; operations of different logs are independent.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from functools import reduce
from operator import or_
from typing import Any, Protocol

import msgspec

from eyot_store.added import Added
from eyot_store.errors import StoreError

Done = Callable[[StoreError | None], None]


class Op(IntEnum):
    """Kinds of operation; the comment after each gives its data."""

    CREATE = 1  # (account, name, created_ns, config)
    DELETE = 2  # None
    CONFIG = 3  # config
    APPEND = 4  # AppendRun
    SKIP = 5  # last sequence from now on
    REMOVE = 6  # [(key, bytes counted), ...]
    PURGE = 7  # (first sequence that stays, messages that go, bytes that go)
    CONSUMER = 8  # (name, config | None, state | None); None: that half is unchanged
    CONSUMER_GONE = 9  # name
    POSITION = 10  # (key, value)
    POSITION_GONE = 11  # key


class FailureScope(IntFlag):
    """How operations of one log depend on each other when one fails (see `LogPart.breaks` and `LogPart.needs`)."""

    NOTHING = 0
    SEQUENCE = 1  # operations that depend on earlier ones: sequences, positions, the configuration
    CONTENT = 2  # a purge, which counts what it removes: all earlier removals must have succeeded
    EVERYTHING = 4


_BREAKS = {
    Op.CREATE: FailureScope.EVERYTHING,
    Op.DELETE: FailureScope.EVERYTHING,
    Op.CONFIG: FailureScope.SEQUENCE,
    Op.APPEND: FailureScope.SEQUENCE,
    Op.SKIP: FailureScope.SEQUENCE,
    Op.POSITION: FailureScope.SEQUENCE,
    Op.POSITION_GONE: FailureScope.SEQUENCE,
    Op.REMOVE: FailureScope.CONTENT,
    Op.PURGE: FailureScope.CONTENT,
    Op.CONSUMER: FailureScope.NOTHING,
    Op.CONSUMER_GONE: FailureScope.NOTHING,
}
_NEEDS = {
    **_BREAKS,
    Op.REMOVE: FailureScope.NOTHING,
    Op.CREATE: FailureScope.NOTHING,
    Op.DELETE: FailureScope.SEQUENCE | FailureScope.CONTENT,
}


Items = list[tuple[bytes, bytes]]
"""Keys and records."""


class AppendRun(msgspec.Struct, eq=False, gc=False):
    """Records to append, ascending: `items` are (key, record), `bytes` their counted size."""

    items: Items = []
    bytes: int = 0
    last_ts_ns: int = 0

    def copy(self) -> AppendRun:
        run = AppendRun()
        run.extend(self)
        return run

    def extend(self, other: AppendRun) -> None:
        self.items.extend(other.items)
        self.bytes += other.bytes
        self.last_ts_ns = other.last_ts_ns


class HiddenRange:
    """All committed messages up to `last`, which a staged purge removes: `messages` and `bytes` are their part of the counters."""

    __slots__ = ("bytes", "last", "messages")

    def __init__(self, last: int, messages: int, bytes_: int) -> None:
        self.last = last
        self.messages = messages
        self.bytes = bytes_


class StagedLog(Protocol):
    """A log that a transaction touches, as the transaction uses it."""

    @property
    def durable(self) -> bool:
        """Its operations go to the disk."""

    def waits_for_disk(self, part: LogPart) -> bool:
        """Return whether an earlier transaction on this log waits for the disk, so that `part` must queue behind it."""

    def settle(self, part: LogPart, error: StoreError | None) -> None:
        """``part`` is committed, or failed."""

    def told(self, part: LogPart) -> None:
        """Whoever waited for `part` has been called."""


class LogPart(msgspec.Struct, eq=False):
    """The operations of one transaction on one log."""

    txn: Txn
    log: StagedLog
    epoch: int
    added: Added
    ops: list[tuple[Op, Any]] = []
    #: the run of appends that may still grow
    appends: AppendRun | None = None
    #: the run of removals that may still grow
    removes: list[tuple[bytes, int]] | None = None
    #: subject -> its last sequence before this part, where subjects are known
    before: dict[bytes, int] = {}
    #: sequence -> subject, bytes counted
    removed: dict[int, tuple[bytes, int]] = {}
    ranges: list[HiddenRange] = []
    #: the last sequence that is removed although somebody may want the message; 0: none
    takes_upto: int = 0
    #: removes what an earlier part appends: if that fails, the sequences are given to other messages
    removes_uncommitted: bool = False
    #: of the log after this part; 0: unchanged
    last_seq: int = 0
    last_ts_ns: int = 0
    config: bytes | None = None
    creates: bool = False
    deletes: bool = False

    def push(self, op: Op, data: Any) -> None:
        """Add an operation other than an append or a removal."""
        self.ops.append((op, data))
        self.txn.kinds |= 1 << op
        self.appends = self.removes = None

    @property
    def breaks(self) -> FailureScope:
        """The scope that fails after this part if this part fails."""
        return reduce(or_, (_BREAKS[op] for op, _ in self.ops), FailureScope.NOTHING)

    @property
    def needs(self) -> FailureScope:
        """The scope that must not have failed before this part; a failure of everything always counts."""
        first = FailureScope.EVERYTHING | (FailureScope.SEQUENCE if self.removes_uncommitted else FailureScope.NOTHING)
        return reduce(or_, (_NEEDS[op] for op, _ in self.ops), first)


OPEN, SUBMITTED, FINISHED = range(3)


class Closing(Protocol):
    """A participant that adds to a transaction when it is submitted, and receives its result."""

    def seal(self, txn: Txn) -> None:
        """Add to the transaction, which is about to be submitted."""

    def settled(self, failure: StoreError | None) -> None:
        """Receive the result. Not called for a transaction that was rolled back before its submission."""


class Txn(msgspec.Struct, eq=False):
    """Operations under way. Filled through the logs' methods, handed in once with `Store.submit`."""

    parts: dict[int, LogPart] = {}
    #: of records and other values, as they go to disk
    bytes: int = 0
    #: of operations, `1 << op` each
    kinds: int = 0
    #: touches something on disk
    durable: bool = False
    state: int = OPEN
    done: Done | None = None
    closing: tuple[Closing, ...] = ()
    #: of the journal that holds it; 0 = it is in LMDB
    frame: int = 0
    #: the last frame that LMDB held before it applied this directly
    passed: int = 0
    #: its group may wait for others (`Store.set_group_window`)
    patient: bool = False
    #: waits for the committing side
    queued: bool = False
    #: refused before it got there
    error: StoreError | None = None

    def refuse(self, error: StoreError) -> None:
        """Fail before any work; only the kinds of the operations are kept, for what depends on them."""
        self.error = error
        self.bytes = 0
        for part in self.parts.values():
            part.ops = [(op, None) for op, _ in part.ops]
