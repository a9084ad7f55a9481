"""A transaction: operations on any number of logs that reach the disk together or not at all.

A ``Txn`` holds one ``LogPart`` per log it touches. A part carries two things: the operations in order, as plain tuples of
numbers and bytes (what a committer applies; what a journal can write down), and what the loop's side needs to take them
back in memory if they never reach the disk. Operations of one log keep their order; operations of different logs are
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Protocol

from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_store.log.log import Log

Done = Callable[[StoreError | None], None]


class Op(IntEnum):
    """Kinds of operation; the second half of the tuple is given behind each."""

    CREATE = 1  # (account, name, created_ns, config)
    DELETE = 2  # None
    CONFIG = 3  # config
    APPEND = 4  # AppendRun
    SKIP = 5  # last sequence from now on
    REMOVE = 6  # [(key, bytes counted), ...]
    PURGE = 7  # (first sequence that stays, messages that go, bytes that go)
    CONSUMER = 8  # (name, config | None, state | None); None leaves that half as it is
    CONSUMER_GONE = 9  # name
    POSITION = 10  # (key, value)
    POSITION_GONE = 11  # key


class Fate(IntFlag):
    """How operations of one log hang together when one of them fails (see ``LogPart.breaks`` and ``LogPart.needs``)."""

    NOTHING = 0
    SEQUENCE = 1  # what builds on what was staged before it: sequences, positions, the configuration
    CONTENT = 2  # a purge, which counts what it takes: all removals before it must have happened
    EVERYTHING = 4


_BREAKS = {
    Op.CREATE: Fate.EVERYTHING,
    Op.DELETE: Fate.EVERYTHING,
    Op.CONFIG: Fate.SEQUENCE,
    Op.APPEND: Fate.SEQUENCE,
    Op.SKIP: Fate.SEQUENCE,
    Op.POSITION: Fate.SEQUENCE,
    Op.POSITION_GONE: Fate.SEQUENCE,
    Op.REMOVE: Fate.CONTENT,
    Op.PURGE: Fate.CONTENT,
    Op.CONSUMER: Fate.NOTHING,
    Op.CONSUMER_GONE: Fate.NOTHING,
}
_NEEDS = {**_BREAKS, Op.REMOVE: Fate.NOTHING, Op.CREATE: Fate.NOTHING, Op.DELETE: Fate.SEQUENCE | Fate.CONTENT}


class AppendRun:
    """Records to append, ascending: ``items`` are (key, record), ``bytes`` what they count for."""

    __slots__ = ("bytes", "items", "last_ts_ns")

    def __init__(self) -> None:
        self.items: list[tuple[bytes, bytes]] = []
        self.bytes = 0
        self.last_ts_ns = 0

    def copy(self) -> AppendRun:
        run = AppendRun()
        run.extend(self)
        return run

    def extend(self, other: AppendRun) -> None:
        self.items.extend(other.items)
        self.bytes += other.bytes
        self.last_ts_ns = other.last_ts_ns


class HiddenRange:
    """Committed messages that a staged purge takes away: ``messages`` and ``bytes`` are what it took off the counters."""

    __slots__ = ("bytes", "first", "last", "messages")

    def __init__(self, first: int, last: int, messages: int, bytes_: int) -> None:
        self.first = first
        self.last = last
        self.messages = messages
        self.bytes = bytes_


class LogPart:
    """What one transaction does to one log."""

    __slots__ = (
        "added",
        "appends",
        "before",
        "config",
        "creates",
        "deletes",
        "epoch",
        "last_seq",
        "last_ts_ns",
        "log",
        "ops",
        "ranges",
        "removed",
        "removes",
        "txn",
    )

    def __init__(self, txn: Txn, log: Log, epoch: int) -> None:
        self.txn = txn
        self.log = log
        self.epoch = epoch
        self.ops: list[tuple[Op, Any]] = []
        self.appends: AppendRun | None = None  # the run of appends that may still grow
        self.removes: list[tuple[bytes, int]] | None = None  # the run of removals that may still grow
        self.added: dict[int, tuple[bytes, int]] = {}  # seq -> subject, bytes counted
        self.before: dict[bytes, int] = {}  # subject -> its last sequence before this part, where subjects are known
        self.removed: dict[int, tuple[bytes, int]] = {}  # seq -> subject, bytes counted
        self.ranges: list[HiddenRange] = []
        self.last_seq = 0  # of the log after this part; 0 = the part does not move it
        self.last_ts_ns = 0
        self.config: bytes | None = None
        self.creates = False
        self.deletes = False

    def push(self, op: Op, data: Any) -> None:
        """Add an operation other than an append or a removal."""
        self.ops.append((op, data))
        self.txn.kinds |= 1 << op
        self.appends = self.removes = None

    @property
    def breaks(self) -> Fate:
        """What fails behind this part if it fails."""
        return reduce(or_, (_BREAKS[op] for op, _ in self.ops), Fate.NOTHING)

    @property
    def needs(self) -> Fate:
        """What must not have failed before this part; that nothing has broken everything, in any case."""
        return reduce(or_, (_NEEDS[op] for op, _ in self.ops), Fate.EVERYTHING)


OPEN, SUBMITTED, FINISHED = range(3)


class Closing(Protocol):
    """Somebody who has more to add to a transaction when it is handed in, and hears what became of it."""

    def seal(self, txn: Txn) -> None:
        """The transaction is about to be handed in: the last chance to stage something in it."""

    def settled(self, failure: StoreError | None) -> None:
        """It is through. Not called where it was taken back before it was handed in."""


class Txn:
    """Operations under way. Filled through the logs' methods, handed in once with ``Store.submit``."""

    __slots__ = ("bytes", "closing", "done", "durable", "error", "frame", "kinds", "parts", "passed", "queued", "state")

    def __init__(self) -> None:
        self.parts: dict[int, LogPart] = {}
        self.bytes = 0  # of records and other values, as they go to disk
        self.kinds = 0  # of operations, ``1 << op`` each
        self.durable = False  # touches something on disk
        self.state: int = OPEN
        self.done: Done | None = None
        self.closing: tuple[Closing, ...] = ()
        self.frame = 0  # of the journal that holds it; 0 = it is in LMDB
        self.passed = 0  # the last frame that LMDB held before it took this one straight
        self.queued = False  # waits for the committing side
        self.error: StoreError | None = None  # refused before it got there

    def refuse(self, error: StoreError) -> None:
        """Fail before anything is done; of the operations only their kinds are kept (for what hangs on them)."""
        self.error = error
        self.bytes = 0
        for part in self.parts.values():
            part.ops = [(op, None) for op, _ in part.ops]
