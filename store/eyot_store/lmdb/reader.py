"""Reading one stream's committed records out of LMDB, a short read transaction at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar
from zlib import crc32

import lmdb
import msgspec

from eyot_store.environment import Environment, as_store_error
from eyot_store.errors import StoreError
from eyot_store.lmdb.long_records import long_head
from eyot_store.native import count_bytes
from eyot_store.pages.errors import PageError, SnapshotGoneError
from eyot_store.pages.layout import Tree, has_long_data
from eyot_store.reader import HEADS_NS_MAX, RECORDS_MAX, SCAN_BYTES_MAX, Reading, keep_within
from eyot_store.record_run import Weighed
from eyot_store.records.record import (
    CRC_RESIDUE,
    CRC_SIZE,
    LARGE_RECORD,
    LongHead,
    ReadResult,
    StoredMessage,
    decode_body,
    decode_head,
    pack_u64,
    seq_of,
    unpack_u64,
)
from eyot_store.subjects.index_reader import IndexReading
from eyot_wire.native import StoredRun

_LEAVES = 64
"""Pages of messages that are checked at a time before they are read; half a microsecond each, once."""

_LAST_KEY = pack_u64((1 << 64) - 1)

_ATTEMPTS_MAX = 20
"""Two commits each time between the beginning of a read and its first page: the meta page cannot be read."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _reading(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Translate LMDB's errors (an environment that could not be reopened) to StoreError, and fence a stream with a damaged page."""

    @wraps(method)
    def read(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        attempts = 0
        while True:
            try:
                return method(*args, **kwargs)
            except SnapshotGoneError:  # nothing was read yet
                attempts += 1
                if attempts > _ATTEMPTS_MAX:
                    raise
            except PageError as error:
                reader: LmdbReader = args[0]  # type: ignore[assignment]
                raise reader.fence(error) from None
            except (lmdb.Error, msgspec.MsgspecError) as error:
                raise as_store_error(error) from error

    return read


class LmdbReader:
    """A `RecordReader` over the database `stream:<id>`. Empty until the stream's creation was committed."""

    def __init__(self, environment: Environment, stream_id: int) -> None:
        self._environment = environment
        self._id = stream_id
        self._prefix = pack_u64(stream_id)
        self._codec = environment.codec(stream_id)
        self._salt = self._codec.salt

    def fence(self, error: PageError) -> StoreError:
        """Return the error for a damaged page."""
        return self._environment.fence(self._id, error)

    @_reading
    def get(self, seq: int) -> StoredMessage | None:
        environment = self._environment
        key = pack_u64(seq)
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None:
                return None
            with environment.lmdb.begin(db, buffers=True) as txn:
                environment.pages.key(environment.tree(txn, self._id), key)
                value = txn.get(key)
                return None if value is None else self._codec.message(key, value)

    @_reading
    def get_many(self, seqs: list[int], max_bytes: int) -> ReadResult:
        environment = self._environment
        out: list[StoredMessage] = []
        size = 0
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None or not seqs:
                return ReadResult(out, 0)
            with environment.lmdb.begin(db, buffers=True) as txn:
                keys = [pack_u64(seq) for seq in seqs]
                tree = environment.tree(txn, self._id)
                environment.pages.keys(tree, keys)
                environment.pages.long_data(tree, keys, max_bytes)
                for seq, key in zip(seqs, keys, strict=True):
                    value = txn.get(key)
                    if value is None:
                        continue
                    try:
                        message = self._codec.message(key, value)
                    except StoreError:
                        if out:
                            return ReadResult(out, seq)
                        raise
                    size += len(message.payload) + len(message.subject) + len(message.header)
                    if size > max_bytes and out:
                        return ReadResult(out, seq)
                    out.append(message)
        return ReadResult(out, seqs[-1] + 1)

    @_reading
    def count_bytes(self, seqs: Sequence[int], cost: int, header_cost: int) -> list[Weighed]:
        environment = self._environment
        keys = list(map(pack_u64, seqs))
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None or not keys:
                return []
            with environment.lmdb.begin(db, buffers=True) as txn:
                tree = environment.tree(txn, self._id)
                environment.pages.keys(tree, keys)
                long = self._long_heads(tree, keys)
                rest = [key for key in keys if key not in long] if long else keys
                found = (
                    count_bytes(txn.cursor().getmulti(rest), *self._codec.reading, cost, header_cost) if rest else []
                )
        for key, head in long.items():
            size = len(head.subject) + head.header + head.payload + cost + (header_cost if head.header else 0)
            found.append((seq_of(key), head.subject, size))
        return sorted(found) if long else found

    def _long_heads(self, tree: Tree | None, keys: list[bytes]) -> dict[bytes, LongHead]:
        """Return the heads of those records that `long_head` has."""
        if not has_long_data(tree):
            return {}
        heads = ((key, long_head(self._environment, tree, key)) for key in keys)
        return {key: head for key, head in heads if head is not None}

    @_reading
    def scan(
        self,
        first: int,
        last: int,
        max_messages: int,
        max_bytes: int,
        max_scanned: int,
        match: Callable[[bytes], bool] | None,
    ) -> ReadResult:
        environment = self._environment
        out: list[StoredMessage] = []
        salt, opened, size, left, scanned, scanned_bytes = self._salt, self._codec.opened, 0, max_messages, 0, 0
        end = pack_u64(last)
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None or first > last:
                return ReadResult(out, last + 1)
            with environment.lmdb.begin(db, buffers=True) as txn:
                tree = environment.tree(txn, self._id)
                stop = environment.pages.span(tree, pack_u64(first), _LEAVES)
                environment.pages.upcoming(tree, pack_u64(first), min(max_bytes, SCAN_BYTES_MAX))
                cursor = txn.cursor()
                if not cursor.set_range(pack_u64(first)):
                    return ReadResult(out, last + 1)
                for key, value in cursor:
                    key = bytes(key)
                    if key > end:
                        break
                    if stop is not None and key >= stop:
                        stop = environment.pages.span(tree, key, _LEAVES)
                    seq: int = unpack_u64(key)[0]
                    if crc32(value, crc32(key, salt)) != CRC_RESIDUE:
                        if out:
                            return ReadResult(out, seq)
                        raise StoreError("corrupt", "checksum does not match", seq=seq)
                    scanned += 1
                    scanned_bytes += len(value)
                    body = value[:-CRC_SIZE]
                    if opened is not None:
                        try:
                            body = opened(key, body)
                        except StoreError:
                            if out:
                                return ReadResult(out, seq)
                            raise
                    if match is None or match(decode_head(body).subject):
                        message = decode_body(body)
                        message.seq = seq
                        size += len(message.payload) + len(message.subject) + len(message.header)
                        if size > max_bytes and out:
                            return ReadResult(out, seq)
                        out.append(message)
                        left -= 1
                        if not left:
                            return ReadResult(out, seq + 1)
                    if scanned >= max_scanned or scanned_bytes >= SCAN_BYTES_MAX:
                        return ReadResult(out, seq + 1)
        return ReadResult(out, last + 1)

    @_reading
    def gather(self, run: StoredRun, first: int, last: int, count: int, max_bytes: int) -> int:
        environment, codec = self._environment, self._codec
        begun = len(run)
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None:
                return last + 1
            with environment.lmdb.begin(db) as txn:
                tree = environment.tree(txn, self._id)
                stop = environment.pages.span(tree, pack_u64(first), _LEAVES)
                environment.pages.upcoming(tree, pack_u64(first), max_bytes)
                cursor = txn.cursor()
                if not cursor.set_range(pack_u64(first)):
                    return last + 1
                try:
                    next_seq = self._gather_slices(run, cursor, tree, stop, last, min(count, RECORDS_MAX), max_bytes)
                except StoreError as error:
                    if len(run) == begun or not error.seq:
                        raise
                    return error.seq
                if not next_seq:
                    return last + 1
                if len(run) == begun:
                    codec.message(cursor.key(), cursor.value())
                    raise StoreError("corrupt", "record is malformed", seq=next_seq)
                return next_seq

    def _gather_slices(
        self, run: StoredRun, cursor: Any, tree: Tree | None, stop: bytes | None, last: int, count: int, max_bytes: int
    ) -> int:
        """Do as `StoredRun.gather`, checking pages slice by slice; the first slice ends at the key `stop`."""
        codec, begun, end = self._codec, len(run), run.size + max_bytes
        while True:
            upto = last if stop is None else min(last, seq_of(stop) - 1)
            before = len(run)
            if codec.opened is None:
                next_seq = run.gather(cursor, upto, count, end - run.size, codec.salt)
            else:
                opened = ((key, bytes(codec.body(key, value))) for key, value in cursor)
                next_seq = run.gather(opened, upto, count, end - run.size)
            if before > begun:  # the first record of a slice is appended however large
                next_seq = keep_within(run, begun + 1, end, next_seq)
            if next_seq or stop is None or upto >= last:
                return next_seq
            count -= len(run) - before
            if run.size >= end:
                return upto + 1
            stop = self._environment.pages.span(tree, stop, _LEAVES)

    def reading(self, run: StoredRun, first: int, last: int, max_bytes: int) -> Reading:
        return partial(self._gather_all, run, first, last, run.size + max_bytes)

    def _gather_all(self, run: StoredRun, first: int, last: int, end: int) -> int:
        """Append records until the run counts for `end`, in short transactions."""
        next_seq, begun = first, len(run)
        while next_seq <= last and run.size < end:
            before = len(run)
            try:
                next_seq = self.gather(run, next_seq, last, RECORDS_MAX, end - run.size)
            except StoreError as error:
                if len(run) == begun or not error.seq:
                    raise
                return error.seq
            next_seq = keep_within(run, before, end, next_seq)
            if len(run) - before < RECORDS_MAX:
                break
        return next_seq

    @_reading
    def heads(self, first: int, last: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        environment = self._environment
        out: list[tuple[int, bytes]] = []
        corrupt: list[int] = []
        subject_of, end = self._codec.subject, pack_u64(last)
        latest_ns = perf_counter_ns() + HEADS_NS_MAX
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None or first > last:
                return out, corrupt, last + 1
            with environment.lmdb.begin(db, buffers=True) as txn:
                tree = environment.tree(txn, self._id)
                if has_long_data(tree):
                    return self._heads_of_long(txn, tree, first, last, limit)
                stop = environment.pages.span(tree, pack_u64(first), _LEAVES)
                cursor = txn.cursor()
                if not cursor.set_range(pack_u64(first)):
                    return out, corrupt, last + 1
                for key, value in cursor:
                    key = bytes(key)
                    if key > end:
                        break
                    if stop is not None and key >= stop:
                        stop = environment.pages.span(tree, key, _LEAVES)
                    seq: int = unpack_u64(key)[0]
                    if len(out) + len(corrupt) >= limit:
                        return out, corrupt, seq
                    if len(value) > LARGE_RECORD and (out or corrupt) and perf_counter_ns() > latest_ns:
                        return out, corrupt, seq
                    subject = subject_of(key, value)
                    if subject is None:
                        corrupt.append(seq)
                    else:
                        out.append((seq, subject))
        return out, corrupt, last + 1

    def _heads_of_long(
        self, txn: Any, tree: Tree, first: int, last: int, limit: int
    ) -> tuple[list[tuple[int, bytes]], list[int], int]:
        """As `heads`, of a tree of long records: payloads are read only where the beginning does not tell the subject."""
        out: list[tuple[int, bytes]] = []
        corrupt: list[int] = []
        latest_ns = perf_counter_ns() + HEADS_NS_MAX
        keys = self._environment.pages.keys_from(tree, pack_u64(first), pack_u64(last), limit + 1)
        for key in keys:
            seq = seq_of(key)
            if len(out) + len(corrupt) >= limit or ((out or corrupt) and perf_counter_ns() > latest_ns):
                return out, corrupt, seq
            head = long_head(self._environment, tree, key)
            subject = self._codec.subject(key, txn.get(key)) if head is None else head.subject
            if subject is None:
                corrupt.append(seq)
            else:
                out.append((seq, subject))
        return out, corrupt, last + 1

    def reading_much(self) -> None:
        self._environment.reading_much()

    @_reading
    def index_some(self, reading: IndexReading, records: int) -> bool:
        environment = self._environment
        with environment.lock:
            if self._id not in environment.messages:
                return True
            with environment.lmdb.begin(environment.subjects, buffers=True) as txn:
                return reading.step(txn, environment, self._id, records)

    @_reading
    def index_rest(self, reading: IndexReading, floor: int, last: int, without: Collection[int]) -> int:
        environment = self._environment
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None:
                return 0
            with environment.lmdb.begin(db, buffers=True) as txn:
                environment.tree(txn, self._id)
                return reading.finish(txn, environment, self._id, db, floor, last, without)

    @_reading
    def next_seq(self, seq: int) -> int:
        environment = self._environment
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None:
                return 0
            with environment.lmdb.begin(db) as txn:
                key, tree = pack_u64(seq), environment.tree(txn, self._id)
                if has_long_data(tree):
                    following = environment.pages.keys_from(tree, key, _LAST_KEY, 1)
                    return seq_of(following[0]) if following else 0
                environment.pages.span(tree, key, 2)
                cursor = txn.cursor()
                return seq_of(cursor.key()) if cursor.set_range(key) else 0

    @_reading
    def seqs(self, first: int, last: int, limit: int) -> list[int]:
        environment = self._environment
        out: list[int] = []
        with environment.lock:
            db = environment.messages.get(self._id)
            if db is None or first > last:
                return out
            with environment.lmdb.begin(db) as txn:
                tree = environment.tree(txn, self._id)
                if has_long_data(tree):
                    return list(map(seq_of, environment.pages.keys_from(tree, pack_u64(first), pack_u64(last), limit)))
                stop = environment.pages.span(tree, pack_u64(first), _LEAVES)
                cursor = txn.cursor()
                if not cursor.set_range(pack_u64(first)):
                    return out
                for key in cursor.iternext(keys=True, values=False):
                    seq = seq_of(key)
                    if seq > last or len(out) >= limit:
                        break
                    if stop is not None and key >= stop:
                        stop = environment.pages.span(tree, key, _LEAVES)
                    out.append(seq)
        return out

    @_reading
    def consumers(self) -> list[tuple[str, bytes, bytes]]:
        environment = self._environment
        out: list[tuple[str, bytes, bytes]] = []
        with environment.lock, environment.lmdb.begin() as txn:
            for key, value in self._entries(txn, environment.consumers):
                name = key[8:].decode("utf-8", "surrogateescape")
                what = f"consumer {name}"
                config = environment.unseal(b"consumers", key, value, what)
                state = txn.get(key, db=environment.consumer_states)
                if state is not None:
                    state = environment.unseal(b"consumer_states", key, state, f"state of {what}")
                out.append((name, config, state or b""))
        return out

    @_reading
    def positions(self) -> dict[bytes, bytes]:
        environment = self._environment
        with environment.lock, environment.lmdb.begin() as txn:
            return {
                key[8:]: environment.unseal(b"positions", key, value, f"position {key[8:]!r}")
                for key, value in self._entries(txn, environment.positions)
            }

    def _entries(self, txn: Any, db: Any) -> list[tuple[bytes, bytes]]:
        """Return the entries of a shared database whose key starts with this stream's id."""
        cursor = txn.cursor(db)
        out: list[tuple[bytes, bytes]] = []
        if cursor.set_range(self._prefix):
            for key, value in cursor:
                if not key.startswith(self._prefix):
                    break
                out.append((key, value))
        return out
