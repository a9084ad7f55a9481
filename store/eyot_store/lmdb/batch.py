"""Applying operations to one open LMDB write transaction, stream by stream, with the streams' counters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec

from eyot_store.environment import Environment, counters_key, deleted_stream_key, messages_db_name
from eyot_store.errors import StoreError
from eyot_store.lmdb.long_records import remove_long
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import has_long_data
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import (
    Counters,
    StreamRecord,
    file_message_bytes,
    pack_u64,
    seal,
    unpack_u64,
)
from eyot_store.stream_ids import put_next_id, recorded_id
from eyot_store.subjects.batch_index import BatchIndex
from eyot_store.subjects.index_writer import Indexes, Written
from eyot_store.txn import AppendRun, Op

_encode = msgspec.msgpack.Encoder().encode
_ABOVE_ALL = b"\xff" * 9
_decode_stream = msgspec.msgpack.Decoder(StreamRecord).decode


class Batch:
    """The changes of one LMDB transaction. Its attributes become valid when it commits."""

    def __init__(
        self,
        environment: Environment,
        txn: Any,
        committed: dict[int, Counters],
        indexes: Indexes | None = None,
        *,
        noting: bool = False,
    ) -> None:
        """Create a batch; `noting`: also write additions into the subject indexes."""
        self._environment = environment
        self._txn = txn
        self._committed = committed
        self._indexes = indexes or Indexes(environment)
        self._noting = noting
        self._passing: list[bytes] = []  # keys that the present operations remove, ascending
        self._passed: set[bytes] = set()  # keys that they append and remove again: LMDB never holds these
        self._subjects: dict[int, BatchIndex] = {}  # by stream
        self.written: dict[int, Written] = {}  # indexes
        self.counters: dict[int, Counters] = {}
        self.opened: dict[int, Any] = {}
        self.deleted: set[int] = set()  # streams
        self.purged: set[int] = set()  # streams with records below their floor
        self.created = False  # a database
        self.freed = False  # records went
        self.messages = 0  # appended

    def apply(self, stream_id: int, ops: list[tuple[Op, Any]]) -> None:
        """Apply the operations of one stream in order. Operations after the stream's deletion have no effect."""
        known = stream_id in self._environment.messages or ops[0][0] is Op.CREATE
        if stream_id in self._environment.fenced and not self._skips_fenced(stream_id, ops):
            raise self._environment.fenced[stream_id]
        try:
            self._apply(stream_id, ops, known)
        except PageError as error:
            raise self._environment.fence(stream_id, error) from None

    def _skips_fenced(self, stream_id: int, ops: list[tuple[Op, Any]]) -> bool:
        """Return whether none of the operations touches the messages, which are damaged."""
        return not any(op in (Op.APPEND, Op.REMOVE, Op.SKIP, Op.PURGE) for op, _ in ops)

    def _apply(self, stream_id: int, ops: list[tuple[Op, Any]], known: bool) -> None:
        self._passing = _taken_out(ops)
        for op, data in ops:
            if known and stream_id not in self.deleted:
                _APPLY[op](self, stream_id, data)
            elif op is Op.APPEND:
                raise StoreError("closed", f"stream {stream_id} was deleted")

    def write_counters(self) -> None:
        """Write the counters of streams whose messages changed."""
        for stream_id, counters in self.counters.items():
            if stream_id not in self.deleted:
                key = counters_key(stream_id)
                self._txn.put(key, seal(key, _encode(counters)))
        for stream_id, subjects in self._subjects.items():
            written = None if stream_id in self.deleted else subjects.write()
            if written is not None:
                self.written[stream_id] = written

    # -- streams -----------------------------------------------------------------------------------------------------

    def _create(self, stream_id: int, data: tuple[str, str, int, bytes]) -> None:
        environment, txn = self._environment, self._txn
        with environment.lock:
            self.opened[stream_id] = environment.lmdb.open_db(messages_db_name(stream_id), txn=txn)
        self.created = True
        key = pack_u64(stream_id)
        txn.put(key, environment.seal(b"streams", key, _encode(StreamRecord(*data))), db=environment.streams)
        put_next_id(txn, max(recorded_id(txn), stream_id + 1))
        self.counters[stream_id] = Counters()

    def _delete(self, stream_id: int, _data: None) -> None:
        """Delete the stream at once; `LmdbCommitter.tidy` removes its messages in steps."""
        environment, txn = self._environment, self._txn
        key = pack_u64(stream_id)
        txn.delete(key, db=environment.streams)
        txn.delete(counters_key(stream_id))
        txn.put(deleted_stream_key(stream_id), b"1")
        for shared in (environment.consumers, environment.consumer_states, environment.positions):
            cursor = txn.cursor(shared)
            found = cursor.set_range(key)
            while found and cursor.key().startswith(key):
                found = cursor.delete()
        self._indexes.wipe(txn, stream_id)
        self.opened.pop(stream_id, None)
        self.deleted.add(stream_id)
        self.freed = True

    def _config(self, stream_id: int, config: bytes) -> None:
        key = pack_u64(stream_id)
        environment = self._environment
        db = environment.streams
        sealed = self._txn.get(key, db=db)
        if sealed is None:
            raise StoreError("corrupt", f"stream {stream_id} has no entry")
        entry = _decode_stream(environment.unseal(b"streams", key, sealed, f"stream {stream_id}"))
        record = msgspec.structs.replace(entry, config=config)
        self._txn.put(key, environment.seal(b"streams", key, _encode(record)), db=db)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _append(self, stream_id: int, run: AppendRun) -> None:
        items = run.items
        counters = self._counters(stream_id)
        last = unpack_u64(items[-1][0])[0]
        counters.messages += len(items)
        counters.bytes += run.bytes
        counters.last_ts_ns = run.last_ts_ns
        self.messages += len(items)
        gone = self._passing[bisect_left(self._passing, items[0][0]) : bisect_right(self._passing, items[-1][0])]
        if gone:
            passed = {item[0] for item in items}.intersection(gone)
            self._passed |= passed
            items = [item for item in items if item[0] not in passed]
        db = self._messages(stream_id)
        environment = self._environment
        environment.pages.end(environment.base_tree(self._txn, stream_id))
        if self._noting:
            self._index(stream_id).came(db, counters.last_seq, items, run.bytes, last)
        counters.last_seq = last
        stored = self._environment.codec(stream_id).stored(items)
        _, added = self._txn.cursor(db).putmulti(stored, dupdata=False, overwrite=False, append=True)
        if added != len(items):
            raise StoreError("corrupt", f"stream {stream_id} already holds a sequence that was to be appended")

    def _skip(self, stream_id: int, seq: int) -> None:
        self._counters(stream_id).last_seq = seq

    def _remove(self, stream_id: int, data: list[tuple[bytes, int]]) -> None:
        cursor = self._txn.cursor(self._messages(stream_id))
        find, delete = cursor.set_key, cursor.delete
        subjects = self._index(stream_id)
        environment = self._environment
        tree = environment.base_tree(self._txn, stream_id)
        low, high = _ABOVE_ALL, None
        removed = size = 0
        for key, counted in data:
            if key < low or (high is not None and key >= high):
                low, high = environment.pages.around(tree, key)
            if key in self._passed:
                self._passed.discard(key)
            elif has_long_data(tree):
                if not remove_long(environment, self._txn, self._messages(stream_id), tree, key, subjects):
                    continue
            elif not find(key):
                continue
            else:
                if subjects.counts(key):
                    subjects.went(key, cursor.value())
                delete()
            removed += 1
            size += counted
        self._subtract(stream_id, removed, size)

    def _purge(self, stream_id: int, data: tuple[int, int, int]) -> None:
        """Move the floor at once; `LmdbCommitter.tidy` removes the records below in steps."""
        floor, messages, bytes_ = data
        self._counters(stream_id).floor = floor
        self._subtract(stream_id, messages, bytes_)
        self.purged.add(stream_id)

    # -- consumers and positions -------------------------------------------------------------------------------------

    def _consumer(self, stream_id: int, data: tuple[str, bytes | None, bytes | None]) -> None:
        name, config, state = data
        environment = self._environment
        key = pack_u64(stream_id) + name.encode("utf-8", "surrogateescape")
        if config is not None:
            self._txn.put(key, environment.seal(b"consumers", key, config), db=environment.consumers)
        if state is not None:
            self._txn.put(key, environment.seal(b"consumer_states", key, state), db=environment.consumer_states)

    def _consumer_gone(self, stream_id: int, name: str) -> None:
        key = pack_u64(stream_id) + name.encode("utf-8", "surrogateescape")
        self._txn.delete(key, db=self._environment.consumers)
        self._txn.delete(key, db=self._environment.consumer_states)

    def _position(self, stream_id: int, data: tuple[bytes, bytes]) -> None:
        key = pack_u64(stream_id) + data[0]
        environment = self._environment
        self._txn.put(key, environment.seal(b"positions", key, data[1]), db=environment.positions)

    def _position_gone(self, stream_id: int, position: bytes) -> None:
        self._txn.delete(pack_u64(stream_id) + position, db=self._environment.positions)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _messages(self, stream_id: int) -> Any:
        db = self.opened.get(stream_id) or self._environment.messages.get(stream_id)
        if db is None:
            raise StoreError("corrupt", f"stream {stream_id} has no database")
        return db

    def _index(self, stream_id: int) -> BatchIndex:
        subjects = self._subjects.get(stream_id)
        if subjects is None:
            subjects = BatchIndex(self._environment, self._indexes, self._txn, stream_id)
            self._subjects[stream_id] = subjects
        return subjects

    def _counters(self, stream_id: int) -> Counters:
        counters = self.counters.get(stream_id)
        if counters is None:
            counters = self.counters[stream_id] = copy(self._committed[stream_id])
        return counters

    def _subtract(self, stream_id: int, messages: int, bytes_: int) -> None:
        if not messages:
            return
        self.freed = True
        counters = self._counters(stream_id)
        counters.messages -= messages
        counters.bytes = counters.bytes - bytes_ if counters.messages else 0


def _taken_out(ops: list[tuple[Op, Any]]) -> list[bytes]:
    """Return the keys that operations remove, ascending, if others append."""
    return sorted([key for op, data in ops if op is Op.REMOVE for key, _ in data]) if len(ops) > 1 else []


def recount(txn: Any, codec: RecordCodec, db: Any, found: Counters) -> Counters:
    """Recompute a stream's counters from all records.

    `floor`, and the last sequence if higher, are those in `found`. A damaged record counts with the size it shows
    (see `RecordCodec.counted_bytes`).
    """
    counters = Counters(last_seq=found.last_seq, floor=found.floor)
    cursor = txn.cursor(db)
    if cursor.set_range(pack_u64(max(found.floor, 1))):
        for key, value in cursor:
            counters.messages += 1
            counters.last_seq = max(counters.last_seq, unpack_u64(key)[0])
            try:
                message = codec.message(key, value)
            except StoreError as error:
                counters.bytes += error.size
                continue
            counters.bytes += file_message_bytes(message.subject, message.header, message.payload)
            counters.last_ts_ns = message.ts_ns
    return counters


_APPLY: dict[Op, Callable[[Batch, int, Any], None]] = {
    Op.CREATE: Batch._create,
    Op.DELETE: Batch._delete,
    Op.CONFIG: Batch._config,
    Op.APPEND: Batch._append,
    Op.SKIP: Batch._skip,
    Op.REMOVE: Batch._remove,
    Op.PURGE: Batch._purge,
    Op.CONSUMER: Batch._consumer,
    Op.CONSUMER_GONE: Batch._consumer_gone,
    Op.POSITION: Batch._position,
    Op.POSITION_GONE: Batch._position_gone,
}
