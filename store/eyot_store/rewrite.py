"""Rewrites a store: smaller, without deleted data, encrypted or decrypted.

The new data file is written beside the old one and replaces it in one step when all of it is on flash. Until then the
old store changes only in that its journal is applied. The next attempt removes the leftovers of a process that died.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from eyot_store.directories import flush_directory
from eyot_store.environment import (
    ENCRYPTION_KEY,
    FORMAT_KEY,
    Environment,
    as_store_error,
    counters_key,
    gone,
    messages_db_name,
)
from eyot_store.errors import StoreError
from eyot_store.options import MIB, StoreOptions
from eyot_store.pages.errors import PageError
from eyot_store.pages.mend import examine, store_exists
from eyot_store.records.record import Counters, pack_u64, seal, seq_of, unpack_u64, unseal
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.stream_ids import next_stream_id, put_next_id

_BATCH = 8192
_DIRECTORY = "rewriting"
_decode_counters = msgspec.msgpack.Decoder(Counters).decode


def is_sealed(path: Path) -> bool | None:
    """Return whether the store in `path` is encrypted; None without a store."""
    if not store_exists(path):
        return None
    values = examine(path, change=False).survey.values
    return None if FORMAT_KEY not in values else ENCRYPTION_KEY in values


def rewrite(path: Path, options: StoreOptions, keys: StoreKeys | None) -> tuple[int, int]:
    """Rewrite the store in `path`, which opens with `options` and has no journal any more.

    `keys`: encrypt with these; None: decrypt. Returns the data file's bytes before and after. Raises StoreError:
    nothing has changed.
    """
    beside = path / _DIRECTORY
    old = Environment(path, options)
    try:
        replaced = (path / "data.mdb").stat()
        before = replaced.st_size
        shutil.rmtree(beside, ignore_errors=True)
        try:
            size = max(old.used_bytes(), MIB)
            new_options = msgspec.structs.replace(
                options, keys=keys, map_size=MIB, map_reserve=MIB, map_size_max=2 * size + 64 * MIB
            )
            new = Environment(beside, new_options)
            try:
                _Copy(old, new).run()
                used = new.used_bytes()
            finally:
                new.close()
            with (beside / "data.mdb").open("r+b") as file:
                file.truncate(used)
                if os.geteuid() == 0:  # the daemon, another user, has to open it
                    os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
                os.fsync(file.fileno())
            (beside / "data.mdb").rename(path / "data.mdb")
            flush_directory(path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return before, used
    except (lmdb.Error, OSError) as error:
        raise as_store_error(error) from error
    finally:
        old.close()


class _Copy:
    """From one environment into another, which is new."""

    def __init__(self, old: Environment, new: Environment) -> None:
        self._old = old
        self._new = new

    def run(self) -> None:
        old, new = self._old, self._new
        with old.lmdb.begin() as txn:
            next_id = next_stream_id(txn, old.streams).value
            streams = [unpack_u64(key)[0] for key, _ in txn.cursor(old.streams)]
        known = set(streams)
        self._write(lambda to: put_next_id(to, next_id))
        for kind, source, target in (
            (b"streams", old.streams, new.streams),
            (b"consumers", old.consumers, new.consumers),
            (b"consumer_states", old.consumer_states, new.consumer_states),
            (b"positions", old.positions, new.positions),
        ):
            for batch in self._batches(source, b""):
                values = [
                    (key, new.seal(kind, key, old.unseal(kind, key, value, kind.decode())))
                    for key, value in batch
                    if unpack_u64(key[:8])[0] in known  # not of a stream whose entry is lost
                ]
                self._write(lambda to, values=values, target=target: to.cursor(target).putmulti(values, append=True))
        for stream_id in streams:
            self._stream(stream_id)

    def _stream(self, stream_id: int) -> None:
        old, new = self._old, self._new
        key = counters_key(stream_id)
        with old.lmdb.begin(write=True) as txn:
            source = old.lmdb.open_db(messages_db_name(stream_id), txn=txn, create=False)
            counters = _decode_counters(unseal(key, txn.get(key) or b"", "counters"))
            tree = old.base_tree(txn, stream_id)
            if tree is not None:
                try:
                    old.pages.all(tree)
                except PageError as error:
                    named = f"stream {stream_id}: {error.message}; {gone(error)}; see `eyot-check --repair`"
                    raise StoreError("corrupt", named) from None
        with new.lmdb.begin(write=True) as txn:
            target = new.lmdb.open_db(messages_db_name(stream_id), txn=txn)
        from_codec, to_codec = old.codec(stream_id), new.codec(stream_id)
        for batch in self._batches(source, pack_u64(max(counters.floor, 1))):
            items = []
            for at, value in batch:
                try:
                    items.append((at, to_codec.summed(at, bytes(from_codec.body(at, value)))))
                except StoreError as error:
                    raise StoreError(
                        "corrupt",
                        f"stream {stream_id} sequence {seq_of(at)}: {error.message}; delete the message first",
                    ) from None
            stored = to_codec.stored(items)
            self._write(lambda to, stored=stored, target=target: to.cursor(target).putmulti(stored, append=True))
        kept = msgspec.structs.replace(counters, floor=0)
        self._write(lambda to: to.put(key, seal(key, msgspec.msgpack.encode(kept))))

    def _batches(self, source: Any, first: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the entries of a database from a key on, some thousand at a time."""
        while True:
            with self._old.lmdb.begin(source) as txn:
                cursor = txn.cursor()
                found = cursor.set_range(first) if first else cursor.first()
                batch = list(islice(cursor.iternext(), _BATCH)) if found else []
            if batch:
                yield batch
            if len(batch) < _BATCH:
                return
            first = batch[-1][0] + b"\0"

    def _write(self, put: Any) -> None:
        """Run one transaction; enlarge the map and repeat it if room is missing."""
        while True:
            try:
                with self._new.lmdb.begin(write=True) as txn:
                    put(txn)
                return
            except lmdb.MapFullError:
                if not self._new.make_room(16 * MIB, reserve=False):
                    raise
