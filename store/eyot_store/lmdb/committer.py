"""The committer that writes straight into LMDB: one LMDB transaction per group, two flushes in its commit.

Operations of different streams are independent, so a group is applied stream by stream: runs of appends of many
transactions become one `putmulti(append=True)`. If anything goes wrong the LMDB transaction is given up. A full map is
grown and the group applied again; any other failure makes the group's transactions go one by one, so that only those fail
that cannot be done, and those that were built on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import lmdb

from eyot_store.changes import Changes, by_stream, changes_of, takes_room
from eyot_store.committer import CommitStats
from eyot_store.environment import (
    JOURNAL_KEY,
    NEXT_ID_KEY,
    Environment,
    as_store_error,
    deleted_stream_key,
    messages_db_name,
)
from eyot_store.errors import StoreError
from eyot_store.failure_propagation import FailurePropagation
from eyot_store.lmdb.batch import Batch
from eyot_store.lmdb.long_records import remove_long
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import Tree, has_long_data
from eyot_store.records.record import Counters, pack_u64
from eyot_store.subjects.batch_index import BatchIndex
from eyot_store.subjects.index_writer import SLICE_BYTES, Indexes, Written
from eyot_store.txn import Txn

_LARGE_BYTES = 128 << 10
"""Space that a group may need is looked for before it, from this size on; smaller ones are simply repeated. The journal
reserves space for what it accepts."""
_TIDY_RECORDS = 4096
_TIDY_RECORDS_MIN = 16
_CLOSING_LAG_MIN, _CLOSING_LAG_MAX = 256, 65536


class LmdbCommitter:
    """See the module. `counters` holds the committed counters of every stream on disk."""

    def __init__(
        self,
        environment: Environment,
        stats: CommitStats,
        counters: dict[int, Counters],
        failures: FailurePropagation | None = None,
        indexes: Indexes | None = None,
    ) -> None:
        self._environment = environment
        self._indexes = indexes or Indexes(environment)
        self._stats = stats
        self._counters = counters
        self._failure_propagation = FailurePropagation() if failures is None else failures
        self._map_full = False  # the last attempt needed more than the map
        self._noting = True  # also write additions into the subject indexes, unless space may be short
        self._freed = False  # pages were freed that the next transaction cannot use yet
        self._appended = 0  # messages since the last tidying, while there is something to tidy
        self._tidy_records = _TIDY_RECORDS
        self._tidying_failed = False
        self._purged = {
            i: c.floor for i, c in counters.items() if c.floor
        }  # stream id -> sequence below which records must be removed
        self._deleted_streams = [number for number in environment.deleted_streams() if number not in environment.fenced]

    @property
    def counters(self) -> dict[int, Counters]:
        """The committed counters of every stream on disk."""
        return self._counters

    def commit(self, group: Sequence[Txn]) -> list[StoreError | None]:
        results: list[StoreError | None] = [self._failure_propagation.inherited(txn) for txn in group]
        todo = [txn for txn, result in zip(group, results, strict=True) if result is None]
        if not todo:
            return results
        error = self._commit_together(todo)
        if error is None:
            return results
        failures = self._failure_propagation
        return failures.results_after(
            error, group, results, lambda txn: failures.inherited(txn) or self._commit_together([txn])
        )

    def close(self) -> None:
        """Nothing is held beyond the environment; so that the next start has less to read, the indexes are brought up."""
        try:
            for stream_id, counters in self._counters.items():
                lag = counters.last_seq - self._indexes.covered(stream_id)
                if _CLOSING_LAG_MIN <= lag <= _CLOSING_LAG_MAX and stream_id in self._environment.messages:
                    self._indexes.behind.add(stream_id)
            if not self._purged and not self._deleted_streams:
                while self.untidy:
                    self.tidy()
        except Exception as error:  # the next start reads more, that is all
            self._stats.tidying_failed = str(error)

    def abandon(self) -> None:
        """Close without committing."""

    # -- one LMDB transaction ----------------------------------------------------------------------------------------

    def apply(self, changes: Changes, size: int, mark: bytes) -> StoreError | None:
        """Apply journalled changes in one LMDB transaction, with `mark` to record that.

        `size`: an estimate of their space in bytes; acknowledged changes may use the reserve.
        """
        return self._with_room(lambda: self._write(changes, mark), 2 * size, reserve=True)

    def refusals(self, changes: Changes) -> dict[int, StoreError]:
        """Return the streams among `changes` that LMDB cannot change because their data is damaged. Changes nothing."""
        out: dict[int, StoreError] = {}
        for stream_id, ops in by_stream(changes).items():
            lmdb_txn = self._begin()
            try:
                Batch(self._environment, lmdb_txn, self._counters, self._indexes).apply(stream_id, ops)
            except (lmdb.Error, StoreError) as error:
                failure = as_store_error(error)
                if failure.reason == "corrupt":
                    out[stream_id] = failure
            finally:
                lmdb_txn.abort()
        return out

    def _commit_together(self, txns: Sequence[Txn]) -> StoreError | None:
        reserve = not takes_room(txns)
        return self._with_room(lambda: self._attempt(txns), 2 * _bytes_of(txns), reserve=reserve)

    def _with_room(self, attempt: Callable[[], object], wanted: int, *, reserve: bool) -> StoreError | None:
        environment = self._environment
        try:
            while True:
                failure = self._try(attempt)
                if failure is None or failure.reason != "full":
                    return failure
                if self._map_full and environment.make_room(wanted, reserve=reserve):
                    self._stats.map_growths += 1
                    self._noting = True
                elif self._freed:
                    self._release_freed()
                else:
                    return failure
        except (lmdb.Error, OSError, StoreError, MemoryError) as error:
            return environment.why_io(as_store_error(error))
        finally:
            if reserve:
                self._restore_reserve()

    def _restore_reserve(self) -> None:
        try:
            self._environment.restore_reserve()
        except (lmdb.Error, StoreError) as error:  # what was committed stays committed
            self._stats.tidying_failed = str(error)

    def _try(self, attempt: Callable[[], object]) -> StoreError | None:
        try:
            attempt()
            return None
        except (lmdb.Error, OSError, StoreError, MemoryError) as error:
            return self._no_room(error)

    def _no_room(self, error: Exception) -> StoreError:
        """Return why an attempt failed; remembers a lack of space."""
        self._map_full = isinstance(error, lmdb.MapFullError)
        self._noting = False
        failure = self._environment.why_io(as_store_error(error))
        if failure.reason == "full" and not self._map_full and self._environment.is_open:
            self._environment.promise_broken()
        return failure

    def _release_freed(self) -> None:
        """Pages that a transaction freed may be used again by the one after the next: put one in between."""
        self._freed = False
        with self._begin() as txn:
            txn.put(NEXT_ID_KEY, txn.get(NEXT_ID_KEY))

    def _attempt(self, txns: Sequence[Txn]) -> None:
        size = _bytes_of(txns)
        if size >= _LARGE_BYTES:
            self._make_room_for(2 * size)
        messages, flush_ns = self._write(changes_of(txns))
        stats = self._stats
        stats.bytes += size
        stats.messages += messages
        stats.flushed(flush_ns, len(txns), time.time_ns())

    def _write(self, changes: Changes, mark: bytes = b"") -> tuple[int, int]:
        """One LMDB transaction; returns how many messages were appended, and the nanoseconds of the commit."""
        lmdb_txn = self._begin()
        batch = Batch(self._environment, lmdb_txn, self._counters, self._indexes, noting=self._noting)
        try:
            for stream_id, ops in by_stream(changes).items():
                batch.apply(stream_id, ops)
            batch.write_counters()
            if mark:
                lmdb_txn.put(JOURNAL_KEY, mark)
        except BaseException:
            lmdb_txn.abort()
            raise
        flush_ns = self._commit(lmdb_txn, handles=batch.created)
        self._committed(batch)
        return batch.messages, flush_ns

    def _committed(self, batch: Batch) -> None:
        environment = self._environment
        self._appended = self._appended + batch.messages if self.untidy else 0
        self._counters.update(batch.counters)
        environment.messages.update(batch.opened)
        for stream_id in batch.deleted:
            environment.messages.pop(stream_id, None)
            self._failure_propagation.forget(stream_id)
            for known in (self._counters, self._purged):
                known.pop(stream_id, None)
            self._indexes.forget(stream_id)
            self._deleted_streams.append(stream_id)
        for stream_id, written in batch.written.items():
            self._indexes.now(stream_id, written)
        for stream_id, counters in batch.counters.items():
            if stream_id not in batch.deleted:
                self._indexes.check(stream_id, counters.last_seq)
            if counters.floor and stream_id in batch.purged:
                self._purged[stream_id] = counters.floor
        self._freed = self._freed or batch.freed
        self._noting = True
        self._tidying_failed = False

    def _commit(self, lmdb_txn: Any, *, handles: bool) -> int:
        """Commit; return the duration in ns. `handles`: databases were opened or dropped, so readers are excluded."""
        number = lmdb_txn.id()
        started = time.perf_counter_ns()
        try:
            if handles:
                with self._environment.lock:
                    lmdb_txn.commit()
            else:
                lmdb_txn.commit()
        except lmdb.Error:
            if not self._is_there_after_all(number):
                raise
        return time.perf_counter_ns() - started

    def _begin(self) -> Any:
        environment = self._environment
        if environment.is_open:
            try:
                return environment.lmdb.begin(write=True)
            except lmdb.PanicError:
                pass
        environment.reopen()
        return environment.lmdb.begin(write=True)

    def _is_there_after_all(self, number: int) -> bool:
        """Return whether a failed commit took effect after all.

        After a failed write of the meta page, LMDB must be reopened, and only the file shows which meta page is valid.
        The transaction `number` may be present, and is durable once flushed.
        """
        environment = self._environment
        try:
            environment.lmdb.begin(write=True).abort()
            return False
        except lmdb.PanicError:
            if environment.reopen() < number:
                return False
            environment.lmdb.sync(True)
            return True

    # -- tidying -----------------------------------------------------------------------------------------------------

    @property
    def untidy(self) -> bool:
        """Return whether housekeeping is due, and has not just failed.

        Purged messages or deleted streams still occupy space, or an index of subjects lags (which waits while the loop
        reads much).
        """
        if self._tidying_failed:
            return False
        if self._purged or self._deleted_streams:
            return True
        return bool(self._indexes.behind or self._indexes.outgrown) and not self._environment.is_read_much

    def tidy(self) -> None:
        """Do one step of housekeeping in a transaction of its own.

        Removes a bounded number of records of purged messages or of a deleted stream, or updates an index of subjects.
        """
        appended, self._appended = self._appended, 0
        try:
            while not self._tidied(max(self._tidy_records, 2 * appended)):
                # Freeing pages needs pages, too: allocate more, or remove fewer records at a time.
                if not (self._map_full and self._environment.make_room(0, reserve=True)):
                    self._tidy_records //= 4
                    self._release_freed()
                appended = 0
            self._tidy_records = _TIDY_RECORDS
        except Exception as error:  # after any error, the committing thread continues
            # No caller waits for this; the next commit retries it.
            self._tidying_failed = True
            self._stats.tidying_failed = str(error)
            self._indexes.outgrown.clear()  # additions are indexed anyway and mark the index again
        self._restore_reserve()

    def _tidied(self, records: int) -> bool:
        """Do one step; return False when there was no space for its records."""
        stream_id = 0
        try:
            if self._purged:
                stream_id, floor = next(iter(self._purged.items()))
                self._tidy_purged(stream_id, floor, records)
            elif self._deleted_streams:
                stream_id = self._deleted_streams[0]
                self._tidy_deleted_stream(stream_id, records)
            else:
                self._tidy_index()
        except PageError as error:
            self._environment.fence(stream_id, error)
            self._leave(stream_id)
        except (lmdb.Error, OSError) as error:
            failure = self._no_room(error)
            if failure.reason != "full" or records < _TIDY_RECORDS_MIN:
                raise failure from error
            return False
        return True

    def _tidy_purged(self, stream_id: int, floor: int, records: int) -> None:
        lmdb_txn = self._begin()
        try:
            db = self._environment.messages[stream_id]
            self._look_ahead(lmdb_txn, stream_id, pack_u64(floor), records)
            subjects = BatchIndex(self._environment, self._indexes, lmdb_txn, stream_id)

            done, all_gone = self._trim(lmdb_txn, stream_id, db, pack_u64(floor), records, subjects)
            if all_gone and self._indexes.covered(stream_id):
                written: Written | None = self._indexes.wipe(lmdb_txn, stream_id, floor - 1)
            else:
                written = subjects.write()
        except BaseException:
            lmdb_txn.abort()
            raise
        self._commit(lmdb_txn, handles=False)
        if written is not None:
            self._indexes.now(stream_id, written)
            self._indexes.check(stream_id, self._counters[stream_id].last_seq)
        self._freed = True
        if done:
            del self._purged[stream_id]

    def _tidy_deleted_stream(self, stream_id: int, records: int) -> None:
        environment = self._environment
        lmdb_txn = self._begin()
        try:
            with environment.lock:
                db = environment.lmdb.open_db(messages_db_name(stream_id), txn=lmdb_txn, create=False)
            self._look_ahead(lmdb_txn, stream_id, _ABOVE_ALL, records)
            done, _ = self._trim(lmdb_txn, stream_id, db, _ABOVE_ALL, records)
            if done:
                with environment.lock:
                    lmdb_txn.drop(db, delete=True)
                lmdb_txn.delete(deleted_stream_key(stream_id))
        except BaseException:
            lmdb_txn.abort()
            raise
        self._commit(lmdb_txn, handles=True)
        self._freed = True
        if done:
            self._deleted_streams.remove(stream_id)

    def _tidy_index(self) -> None:
        indexes = self._indexes
        outgrown = next(iter(indexes.outgrown), 0)
        stream_id = outgrown or next(iter(indexes.behind), 0)
        if not stream_id:
            return
        last_seq = self._counters[stream_id].last_seq if stream_id in self._counters else 0
        if outgrown:
            self._make_room_for(2 * indexes.bytes(outgrown))  # the old one's pages are free only afterwards
        lmdb_txn = self._begin()
        try:
            if outgrown:
                written: Written | None = indexes.rebase(lmdb_txn, stream_id)
            else:
                written = indexes.bring_up(lmdb_txn, stream_id, last_seq)
        except PageError as error:
            lmdb_txn.abort()
            self._environment.fence(stream_id, error)
            self._leave(stream_id)
            return
        except BaseException:
            lmdb_txn.abort()
            if outgrown:
                indexes.outgrown.add(outgrown)  # tried again as soon as there is room
            raise
        if written is None:
            lmdb_txn.abort()
            return
        self._commit(lmdb_txn, handles=False)
        indexes.now(stream_id, written)
        indexes.check(stream_id, last_seq)
        self._freed = True

    def _look_ahead(self, lmdb_txn: Any, stream_id: int, end: bytes, records: int) -> None:
        """Check the pages before `_trim` removes that many records below `end`, or all. Raises PageError."""
        environment = self._environment
        pages, tree = environment.pages, environment.base_tree(lmdb_txn, stream_id)
        if tree is not None:
            pages.ends(tree)
            pages.front(tree, records, end)
            if pages.last_key(tree) < end:
                pages.all(tree, leaves=False)

    def _leave(self, stream_id: int) -> None:
        """Give up a stream whose messages can no longer be changed."""
        self._purged.pop(stream_id, None)
        if stream_id in self._deleted_streams:
            self._deleted_streams.remove(stream_id)
        self._indexes.leave(stream_id)

    def _make_room_for(self, size: int) -> None:
        """Allocate space first: so large a transaction would otherwise fail midway and be repeated."""
        environment = self._environment
        if environment.used_bytes() + size > environment.map_size:
            try:
                self._stats.map_growths += environment.make_room(size, reserve=False)
            except StoreError as error:  # without address space it may fit all the same
                if error.reason != "full":
                    raise

    def _trim(
        self, lmdb_txn: Any, stream_id: int, db: Any, floor: bytes, records: int, subjects: BatchIndex | None = None
    ) -> tuple[bool, bool]:
        """Delete up to `records` records below `floor`, or those that make it `SLICE_BYTES`; count them in `subjects`.

        Returns whether none is left there, and whether all records were dropped at once (then none was counted).
        """
        tree = self._environment.base_tree(lmdb_txn, stream_id)
        if tree is not None and has_long_data(tree):
            return self._trim_long(lmdb_txn, db, tree, floor, records, subjects)
        cursor = lmdb_txn.cursor(db)
        if cursor.last() and cursor.key() < floor and records >= _TIDY_RECORDS:
            cursor.close()
            lmdb_txn.drop(db, delete=False)
            return True, True
        size = 0
        found = cursor.first()
        while found and cursor.key() < floor:
            if not records or size >= SLICE_BYTES:
                return False, False
            if subjects is not None:
                key, value = cursor.item()
                size += len(value)
                if subjects.counts(key):
                    subjects.went(key, value)
            found = cursor.delete()
            records -= 1
        return True, False

    def _trim_long(
        self, lmdb_txn: Any, db: Any, tree: Tree, floor: bytes, records: int, subjects: BatchIndex | None
    ) -> tuple[bool, bool]:
        """As `_trim`, of a tree of long records: a cursor would read the payload of each."""
        pages = self._environment.pages
        if pages.last_key(tree) < floor and records >= _TIDY_RECORDS:
            lmdb_txn.drop(db, delete=False)
            return True, True
        keys = [key for key in pages.keys_from(tree, b"", floor, records) if key < floor]
        size = 0
        for key in keys:
            if size >= SLICE_BYTES:
                return False, False
            size += remove_long(self._environment, lmdb_txn, db, tree, key, subjects)
        return len(keys) < records, False


def _bytes_of(txns: Sequence[Txn]) -> int:
    return sum(txn.bytes for txn in txns)


_ABOVE_ALL = b"\xff" * 9
