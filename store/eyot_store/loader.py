"""What a store finds on disk when it opens: its streams and their counters, and what was damaged and mended."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import lmdb
import msgspec

from eyot_store.environment import Environment, as_store_error, counters_key, messages_db_name
from eyot_store.errors import StoreError
from eyot_store.journal.marker import DOUBTED, Marker
from eyot_store.journal.replay import replay
from eyot_store.lmdb.batch import recount
from eyot_store.lmdb.committer import LmdbCommitter
from eyot_store.pages.errors import PageError
from eyot_store.records.record import (
    CRC_SIZE,
    Counters,
    StreamRecord,
    pack_u64,
    seal,
    seq_of,
    unpack_u64,
    unseal,
    without_flipped_bit,
)
from eyot_store.stream_ids import next_stream_id, put_next_id

_decode_stream = msgspec.msgpack.Decoder(StreamRecord).decode
_decode_counters = msgspec.msgpack.Decoder(Counters).decode


class Loader:
    """Loads the streams of an environment, once: `load`, then `replay_journal`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.records: dict[int, StreamRecord] = {}
        """The streams by their id; the databases of their messages are opened."""
        self.counters: dict[int, Counters] = {}
        self.next_id = 1
        """The id for the next stream."""
        self.damaged: list[str] = []
        """Sentences about damage that was found."""
        self.recounted: list[str] = []
        """Streams whose counters did not fit their records."""

    def load(self) -> None:
        """Read the streams in LMDB. Raises StoreError, lmdb.Error."""
        environment = self._environment
        if environment.examined is not None:
            self.damaged += environment.examined.notes
            for number, error in environment.examined.survey.streams.items():
                environment.fence(number, error)
        try:
            with environment.lmdb.begin(write=True) as txn:
                self._load_next_id(txn)
                for key, sealed in txn.cursor(environment.streams):
                    self._load_stream(txn, key, sealed)
        except (lmdb.Error, msgspec.MsgspecError) as error:
            raise as_store_error(error) from error

    def replay_journal(self, committer: LmdbCommitter) -> None:
        """Bring LMDB up to date with a leftover journal; `committer` has the counters of this loader."""
        environment = self._environment
        names = {stream_id: f"{record.account}/{record.name}" for stream_id, record in self.records.items()}
        mirrors = {stream_id for stream_id, record in self.records.items() if _is_mirror(record.config)}
        lost = replay(environment, committer, lambda stream_id: names.get(stream_id, f"number {stream_id}"), mirrors)
        self.damaged += lost
        if lost:
            self._count_again()
        if lost or (environment.examined is not None and environment.examined.went_back):
            # The recorded positions of downstreams may exceed what exists.
            Marker(environment.path, DOUBTED).turn(on=True)

    def _load_next_id(self, txn: Any) -> None:
        self.next_id, problem = next_stream_id(txn, self._environment.streams)
        if problem:
            self.damaged.append(f"{problem}: it is {self.next_id} from now on")
            put_next_id(txn, self.next_id)

    def _load_stream(self, txn: Any, key: bytes, sealed: bytes) -> None:
        environment = self._environment
        stream_id: int = unpack_u64(key)[0]
        record = self._entry(stream_id, key, sealed)
        if record is None:
            return
        try:
            db = environment.lmdb.open_db(messages_db_name(stream_id), txn=txn, create=False)
        except lmdb.Error as error:
            self.damaged.append(f"stream {record.account}/{record.name} has no messages database: {error}")
            return
        environment.messages[stream_id] = db
        self.records[stream_id] = record
        self.counters[stream_id] = self._stream_counters(txn, stream_id, db, record)

    def _entry(self, stream_id: int, key: bytes, sealed: bytes) -> StreamRecord | None:
        """Return a stream's entry; one flipped bit is put right. None: it is damaged."""
        environment = self._environment
        try:
            return _decode_stream(environment.unseal(b"streams", key, sealed, f"entry of stream {stream_id}"))
        except (StoreError, msgspec.MsgspecError) as error:
            failure = as_store_error(error)
        mended = without_flipped_bit(key, sealed)
        try:
            if mended is not None:
                record = _decode_stream(environment.unseal(b"streams", key, mended, "entry"))
                self.damaged.append(
                    f"{failure.message}; a flipped bit of stream {record.account}/{record.name} is put right"
                )
                return record
        except (StoreError, msgspec.MsgspecError):
            pass
        likely = _name_in(sealed)
        named = f", called {likely} perhaps," if likely else ""
        self.damaged.append(f"{failure.message}; the stream{named} stays on disk, unused")
        return None

    def _stream_counters(self, txn: Any, stream_id: int, db: Any, record: StreamRecord) -> Counters:
        """Return a stream's counters; recomputed if they do not fit its records."""
        key = counters_key(stream_id)
        try:
            counters = _decode_counters(unseal(key, txn.get(key) or b"", "counters"))
        except (StoreError, msgspec.MsgspecError):
            counters = Counters(messages=-1)
        if stream_id not in self._environment.fenced:
            try:
                return self._fitting(txn, stream_id, db, record, counters)
            except PageError as error:
                self._environment.fence(stream_id, error)
        return counters if counters.messages >= 0 else Counters()

    def _count_again(self) -> None:
        """Recompute counters that do not fit: what the journal removes is counted by those who knew the lost frames."""
        environment = self._environment
        with environment.lmdb.begin(write=True) as txn:
            for stream_id, before in self.counters.items():
                if stream_id in environment.fenced or stream_id not in self.records:
                    continue
                key = counters_key(stream_id)
                db, record = environment.messages[stream_id], self.records[stream_id]
                try:
                    found = self._fitting(txn, stream_id, db, record, before)
                except PageError as error:
                    environment.fence(stream_id, error)
                    continue
                if found is not before:
                    self.counters[stream_id] = found
                    txn.put(key, seal(key, msgspec.msgpack.encode(found)))

    def _fitting(self, txn: Any, stream_id: int, db: Any, record: StreamRecord, counters: Counters) -> Counters:
        """Return the counters, if they fit the records. Raises PageError."""
        environment = self._environment
        tree = environment.base_tree(txn, stream_id)
        environment.pages.ends(tree)
        cursor = txn.cursor(db)
        last = seq_of(cursor.key()) if cursor.last() else 0
        purged = 0
        if counters.floor and cursor.first():
            floor = pack_u64(counters.floor)
            if tree is not None:
                environment.pages.below(tree, floor)
            purged = sum(1 for _ in takewhile(floor.__gt__, cursor.iternext(keys=True, values=False)))
        if counters.messages == txn.stat(db)["entries"] - purged and counters.last_seq >= last:
            return counters
        self.recounted.append(f"{record.account}/{record.name}")
        if tree is not None:
            environment.pages.all(tree)
        return recount(txn, environment.codec(stream_id), db, counters)


def _name_in(sealed: bytes) -> str:
    """Account and name of the stream that a damaged entry seems to be of."""
    try:
        record = _decode_stream(sealed[:-CRC_SIZE])
    except msgspec.MsgspecError:
        return ""
    return f"{record.account}/{record.name}"


class _Sourced(msgspec.Struct):
    """The one member of a StreamConfig that the store reads."""

    mirror: dict[str, Any] | None = None


_decode_sourced = msgspec.json.Decoder(_Sourced).decode


def _is_mirror(config: bytes) -> bool:
    """Return whether a stream takes its sequences from another one."""
    try:
        return _decode_sourced(config).mirror is not None
    except msgspec.MsgspecError:
        return False
