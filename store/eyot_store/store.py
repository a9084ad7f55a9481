"""The store: one environment on disk, its streams, and the only way in which anything becomes durable.

Everything here belongs to the loop's thread. `submit` hands a transaction to the committing side. When its group is
done, one call to `notify` brings the results back into the loop's thread: first the logs of the whole group are
updated, then the callbacks run, in submit order.

Memory bound: `backlog_bytes` and `backlog_txns` count what is staged and not committed. Over the soft limits
`congested` is true, and callers stop accepting work (`on_relief` calls them back). Over the hard limits `submit`
refuses with StoreError("busy"), counted in `refused`.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lmdb
from msgspec.structs import replace

from eyot_store.changes import takes_room
from eyot_store.committer import CommitStats, Committer
from eyot_store.direct_driver import DirectDriver, Wake
from eyot_store.disk_probe import ask_disk
from eyot_store.driver import Driver, Group, InlineDriver, ThreadDriver
from eyot_store.environment import Environment, as_store_error
from eyot_store.errors import StoreError
from eyot_store.failure_propagation import FailurePropagation
from eyot_store.journal.committer import JournalCommitter, end_journal, open_journal
from eyot_store.journal.overlay import Overlays
from eyot_store.journal.spare_positions import SparePositions
from eyot_store.lmdb.committer import LmdbCommitter
from eyot_store.loader import Loader
from eyot_store.log.backend import Backend
from eyot_store.log.directory import Directory
from eyot_store.log.log import Log
from eyot_store.log.memory import MemoryBackend
from eyot_store.log.stream import DiskBackend
from eyot_store.options import StoreOptions
from eyot_store.rewrite import is_sealed, rewrite
from eyot_store.subjects.index_writer import Indexes
from eyot_store.txn import FINISHED, OPEN, SUBMITTED, Done, Op, Txn

Notify = Callable[[Callable[[], None]], None]


def settle(path: Path, options: StoreOptions) -> list[str]:
    """Bring LMDB up to date with the journal of the store in `path`, and leave it without one.

    Returns sentences about damage that was found and mended at that.
    """
    store = Store.open(path, notify=lambda fn: fn(), options=replace(options, committer="lmdb", inline=True))
    store.close()
    return store.damaged


def encrypt(path: Path, options: StoreOptions) -> None:
    """Rewrite an unencrypted store under `options.keys`. Raises StoreError."""
    plain = replace(options, keys=None)
    settle(path, plain)
    rewrite(path, plain, options.keys)


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


@atexit.register
def _let_go_of_all() -> None:
    for store in tuple(_open_stores):
        store.let_go()


def _sealed(txn: Txn, done: Done | None) -> Done:
    """Let participants add to a transaction before it is submitted, and inform them of its result before `done`."""
    closing = txn.closing
    for each in closing:
        each.seal(txn)

    def settled(failure: StoreError | None) -> None:
        for each in closing:
            each.settled(failure)
        if done is not None:
            done(failure)

    return settled


class Store:
    """See the module. Built by `open`."""

    def __init__(self, environment: Environment, notify: Notify, options: StoreOptions, wake: Wake | None) -> None:
        self.path = environment.path
        self.options = options
        self.stats = CommitStats()
        self.backlog_bytes = 0
        self.backlog_txns = 0
        self.refused = 0
        self.closed = False
        #: `open` found the store unencrypted, and rewrote it with the key
        self.encrypted_now = False
        self._environment = environment
        self._notify = notify
        self._directory: Directory[Log] = Directory()
        self._finished: deque[Group] = deque()
        self._in_memory: Group | None = None  # the group in it that did not have to go to the disk
        self._relief: list[Callable[[], None]] = []
        self._next_id = 1
        self._next_memory_id = 1 << 40
        self.recounted: list[str] = []  # see Loader
        self._damaged_at_start: list[str] = []
        self._with_damage: list[Log] = []  # those with messages that were found damaged since
        self.failing: StoreError | None = None  # why messages cannot be stored at present: the disk fails, or is full
        self.free_at_failure = 0  # bytes that the file system had free then; much where a quota is what is full
        self.on_fence: Callable[[Log, StoreError], None] | None = None
        """Called in the loop's thread when a stream is found damaged: nothing of it can be read or written any more."""
        self.on_damaged: Callable[[Log, int], None] | None = None
        """Called once for each message that a read finds damaged."""
        self._overlays: Overlays | None = None
        self._committer = self._open_committer()
        self._driver = self._start_driver(wake)
        self._pid = os.getpid()
        self._spare: SparePositions | None = None
        _open_stores.add(self)

    @property
    def spare_positions(self) -> SparePositions:
        """The positions that are durable although the disk is full; the file is made when they are asked for first."""
        if self._spare is None:
            cipher = self._environment.store_cipher
            self._spare = SparePositions(self.path, cipher and cipher.another(), flush=self.options.flush)
        return self._spare

    @classmethod
    def open(
        cls, path: Path, *, notify: Notify, options: StoreOptions | None = None, wake: Wake | None = None
    ) -> Store:
        """Open (or create) the store in directory `path`.

        `notify(fn)` is called from the committing thread and must run `fn` soon in the loop's thread. With `wake`,
        small groups are written beside the loop. Raises StoreError: locked, format, corrupt, io, full.
        """
        options = options or StoreOptions()
        try:
            is_plain = options.keys is not None and is_sealed(path) is False
            if is_plain:
                encrypt(path, options)
            environment = Environment(path, options)
        except (lmdb.Error, OSError) as error:
            raise as_store_error(error) from error
        try:
            store = cls(environment, notify, options, wake)
            store.encrypted_now = is_plain
            return store
        except (lmdb.Error, OSError) as error:
            environment.close()
            raise as_store_error(error) from error
        except BaseException:
            environment.close()
            raise

    @property
    def cipher(self) -> str:
        """Return `aes` or `chacha`; "": the store is not encrypted."""
        cipher = self._environment.store_cipher
        return "" if cipher is None else cipher.cipher

    @property
    def damaged(self) -> list[str]:
        """Return sentences about what was damaged: at the start, and messages that reads found since."""
        return self._damaged_at_start + [
            f"stream {log.account}/{log.name} had {log.damaged}"
            for log in self._with_damage
            if self._directory.get(log.account, log.name) is log
        ]

    # -- streams -----------------------------------------------------------------------------------------------------

    def streams(self) -> list[Log]:
        """Every stream, staged creations included, staged deletions not; in order of account and name."""
        return self._directory.all()

    def stream(self, account: str, name: str) -> Log | None:
        """Return the stream of that name, if there is one."""
        return self._directory.get(account, name)

    def why_fenced(self, log: Log) -> StoreError | None:
        """Return why a stream can neither be read nor written because of damage; None: no damage is known."""
        error = self._environment.fenced.get(log.id)
        return None if error is None else log.named(error)

    def fenced(self) -> list[tuple[Log, StoreError]]:
        """Return the streams that are damaged."""
        return [(log, log.named(error)) for log in self.streams() if (error := self._environment.fenced.get(log.id))]

    def create_stream(
        self, txn: Txn, account: str, name: str, config: bytes, created_ns: int, *, memory: bool = False
    ) -> Log:
        """Stage a new, empty stream, which accepts appends at once, in this or later transactions.

        If the transaction fails, the stream disappears again. `memory`: keep the stream in memory only, while the
        store is open. Raises ValueError when the name is in use.
        """
        if self._directory.get(account, name) is not None:
            raise ValueError(f"stream {account}/{name} exists")
        backend: Backend
        if memory:
            stream_id, self._next_memory_id = self._next_memory_id, self._next_memory_id + 1
            backend = MemoryBackend()
        else:
            stream_id, self._next_id = self._next_id, self._next_id + 1
            backend = DiskBackend(self._environment, stream_id, self._overlays)
        log = Log(
            backend,
            account=account,
            name=name,
            stream_id=stream_id,
            config=config,
            created_ns=created_ns,
            directory=self._directory,
        )
        self._watch(log)
        predecessor = self._directory.add(log)
        if predecessor is not None:
            predecessor.join(txn)  # if its deletion fails, so must this
        part = log.join(txn)
        part.push(Op.CREATE, (account, name, created_ns, config))
        part.creates = True
        txn.bytes += len(config)
        return log

    # -- transactions ------------------------------------------------------------------------------------------------

    def begin(self) -> Txn:
        """Return an empty transaction."""
        return Txn()

    def submit(self, txn: Txn, on_done: Done | None = None) -> None:
        """Submit `txn`: all of it becomes durable, or nothing.

        `on_done(None | StoreError)` runs in the loop's thread after the flush that contains it. Transactions that
        touch the disk return in submit order, and so do those that touch only memory. After `close` it runs at once
        with StoreError("closed").
        """
        if txn.state != OPEN:
            raise RuntimeError("the transaction was handed in already")
        if txn.closing:
            on_done = _sealed(txn, on_done)
        txn.state = SUBMITTED
        txn.done = on_done
        if self.closed:
            self._finish([(txn, StoreError("closed", "the store is closed"))])
            return
        txn.queued = txn.durable or any(part.log.waits_for_disk(part) for part in txn.parts.values())
        if not txn.queued:
            self._commit_soon(txn)
            return
        if self.backlog_bytes > self.options.backlog_bytes_hard or self.backlog_txns > self.options.backlog_txns_hard:
            self.refused += 1
            txn.refuse(StoreError("busy", "too much is waiting for the disk"))
        self.backlog_bytes += txn.bytes
        self.backlog_txns += 1
        self._driver.submit(txn)

    def hold(self) -> None:
        """Keep what is submitted until `release`: it becomes one group of transactions."""
        self._driver.hold()

    def release(self) -> None:
        """Have the committing side take what was submitted since `hold`."""
        self._driver.release()

    def abort(self, txn: Txn) -> None:
        """Roll back a transaction that was not submitted."""
        if txn.state != OPEN:
            raise RuntimeError("the transaction was handed in already")
        for part in txn.parts.values():
            part.log.settle(part, StoreError("closed", "the transaction was taken back"))
        txn.state = FINISHED

    @property
    def congested(self) -> bool:
        """Whether more is staged than the soft limits allow: callers stop accepting work and use `on_relief`."""
        return (
            self.backlog_bytes > self.options.backlog_bytes_soft or self.backlog_txns > self.options.backlog_txns_soft
        )

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, in the loop's thread, when the backlog is down to half of the soft limits."""
        self._relief.append(callback)

    @property
    def last_commit_ns(self) -> int:
        """Wall time of the last commit, ns since epoch; 0 = none since the store was opened."""
        return self.stats.last_commit_ns

    def set_group_window(self, seconds: float) -> None:
        """Let transactions with `Txn.patient` wait up to this long for others, to be written together; 0: at once."""
        self._driver.set_window(seconds)

    def commit_stalled_s(self) -> float:
        """How long the committing side has been at the same piece of work, seconds; infinity when its thread has ended."""
        return 0.0 if self.closed else self._driver.stalled_s()

    def ask_disk(self) -> None:
        """Read from the disk itself; return when it has answered, also with an error. In any thread."""
        ask_disk(self.path / "data.mdb")

    def disk_bytes(self) -> int:
        """Size of the used part of the data file, bytes."""
        with self._environment.lock:
            return self._environment.used_bytes()

    # -- the end -----------------------------------------------------------------------------------------------------

    def commit_now(self) -> int:
        """Commit what was submitted, as one group (`StoreOptions.inline` only); return the number of transactions."""
        assert isinstance(self._driver, InlineDriver), "commit_now is for inline stores"
        return self._driver.commit_now()

    def crash(self) -> None:
        """Lose exactly what was not committed, without callbacks, and release the directory (inline stores only)."""
        assert isinstance(self._driver, InlineDriver), "crash is for inline stores"
        if not self.closed:
            self.closed = True
            self._driver.lose()
            self._finished.clear()
            self._committer.abandon()
            self._environment.close()

    def close(self) -> None:
        """Commit what was submitted, run its callbacks, release the directory. Waits for the disk."""
        if self.closed:
            return
        self.closed = True
        self._driver.stop()
        self._deliver()
        self._committer.close()
        self._environment.close()

    def let_go(self) -> None:
        """Commit what was submitted without callbacks, and release the directory, before the interpreter exits.

        No thread may be inside LMDB then. In a forked process this does nothing.
        """
        if not self.closed and self._pid == os.getpid():
            self.closed = True
            self._driver.stop()
            self._committer.abandon()
            self._environment.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _start_driver(self, wake: Wake | None) -> Driver:
        if self.options.inline:
            return InlineDriver(self._committer, self._group_finished)
        if wake is not None and isinstance(self._committer, JournalCommitter):
            return DirectDriver(self._committer, self._group_finished, self._finished.append, self._deliver, wake)
        return ThreadDriver(self._committer, self._group_finished)

    def _group_finished(self, group: Group) -> None:
        """Schedule the results of a group; called on the committing side."""
        self._finished.append(group)
        if self.options.inline:
            self._notify(self._deliver)
            return
        try:
            self._notify(self._deliver)
        except Exception:
            # The loop has ended; close() delivers the rest.
            self.stats.unnotified += 1

    def _fence(self, stream_id: int, error: StoreError) -> None:
        """Fence a stream that was found damaged, in any thread."""
        try:
            self._notify(lambda: self._tell_fenced(stream_id, error))
        except Exception:
            self.stats.unnotified += 1

    def _tell_fenced(self, stream_id: int, error: StoreError) -> None:
        log = next((log for log in self.streams() if log.id == stream_id), None)
        if log is not None and self.on_fence is not None and not self.closed:
            self.on_fence(log, log.named(error))

    def _watch(self, log: Log) -> None:
        log.damaged.on_met = partial(self._found_damaged, log)

    def _found_damaged(self, log: Log, seq: int) -> None:
        if log not in self._with_damage:
            self._with_damage.append(log)
        if self.on_damaged is not None:
            self.on_damaged(log, seq)

    def _note_outcome(self, txn: Txn, error: StoreError | None) -> None:
        """Whether messages can be stored: on a full disk removals still can."""
        if error is None:
            if self.failing is not None and (self.failing.reason == "io" or takes_room([txn])):
                self.failing = None
        elif error.reason in ("io", "full"):
            self.failing, self.free_at_failure = error, self.free_bytes()

    def free_bytes(self) -> int:
        """Bytes that the file system of the store has free; 0: not known."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _commit_soon(self, txn: Txn) -> None:
        """Commit a transaction that touches only memory, with others like it, at the loop's next pass."""
        if self._in_memory is None:
            self._in_memory = [(txn, None)]
            self._finished.append(self._in_memory)
            self._notify(self._deliver)
        else:
            self._in_memory.append((txn, None))

    def _deliver(self) -> None:
        while self._finished:
            group = self._finished.popleft()
            if group is self._in_memory:
                self._in_memory = None
            self._finish(group)
        if self._relief and not self._loaded_more_than_half():
            callbacks, self._relief = self._relief, []
            for callback in callbacks:
                callback()

    def _finish(self, group: Group) -> None:
        """Update the logs of a group, then run its callbacks; one that raises does not stop the others."""
        for txn, error in group:
            if txn.queued:
                self.backlog_bytes -= txn.bytes
                self.backlog_txns -= 1
                if error is not None or self.failing is not None:
                    self._note_outcome(txn, error)
            txn.state = FINISHED
            for part in txn.parts.values():
                part.log.settle(part, error)
        failure: Exception | None = None
        for txn, error in group:
            # The committing thread holds a group until the next one comes: that must not keep whoever waited.
            done, txn.done, txn.closing = txn.done, None, ()
            if done is not None:
                try:
                    done(error)
                except Exception as raised:
                    failure = failure or raised
            for part in txn.parts.values():
                part.log.told(part)
            txn.parts.clear()
        if failure is not None:
            raise failure

    def _loaded_more_than_half(self) -> bool:
        options = self.options
        return self.backlog_bytes * 2 > options.backlog_bytes_soft or self.backlog_txns * 2 > options.backlog_txns_soft

    def _applied(self, frame: int) -> None:
        """Note that LMDB holds everything up to this frame of the journal; called on the committing side."""
        overlays = self._overlays
        assert overlays is not None
        try:
            self._notify(lambda: overlays.caught_up(frame))
        except Exception:
            self.stats.unnotified += 1

    def _open_committer(self) -> Committer:
        """Load the store, replay a leftover journal, and build the configured committer."""
        environment, options = self._environment, self.options
        loader = Loader(environment)
        loader.load()
        self._next_id = loader.next_id
        failures = FailurePropagation()
        indexes = Indexes(environment)
        with environment.lmdb.begin() as txn:
            indexes.load(txn, {stream_id: each.last_seq for stream_id, each in loader.counters.items()})
        straight = LmdbCommitter(environment, self.stats, loader.counters, failures, indexes)
        loader.replay_journal(straight)
        committer: Committer = straight
        if options.committer == "journal":
            self._overlays = Overlays()
            committer, self._overlays.applied = open_journal(environment, straight, failures, self.stats, self._applied)
        else:
            end_journal(environment)
        for stream_id, record in loader.records.items():
            log = Log(
                DiskBackend(environment, stream_id, self._overlays),
                account=record.account,
                name=record.name,
                stream_id=stream_id,
                config=record.config,
                created_ns=record.created_ns,
                directory=self._directory,
                counters=loader.counters[stream_id],
            )
            self._watch(log)
            self._directory.add(log)
        self._damaged_at_start, self.recounted = loader.damaged, loader.recounted
        environment.on_fenced = self._fence
        return committer
