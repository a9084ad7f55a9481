"""The LMDB environment of a store: databases, format version, map size, and locking.

One directory holds one environment (`data.mdb`, `lock.mdb`) and `store.lock`, which excludes other writers.
Databases (see docs/format.md): the unnamed one holds the format version, the next stream id and each stream's counters;
`streams`, `consumers`, `consumer_states` and `positions` hold what they are named after, `subjects` the
message counts of subjects; `stream:<id>` holds the messages of one stream.

Threads: the committing thread writes, the loop's thread reads. A resize of the map, closing, and opening or dropping
databases must not overlap with a read: both sides hold `lock` meanwhile. A database handle is looked up in
`messages` under the lock under which it is used: LMDB may reuse a handle for another stream.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from eyot_store.directories import flush_directory, make_directories
from eyot_store.errors import StoreError
from eyot_store.options import MIB, StoreOptions
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import SEQUENCE_KEY, Tree
from eyot_store.pages.mend import Examined, examine, store_exists
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import DELETED_STREAMS, deleted_number
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import pack_u64, seal, unpack_u64, unseal
from eyot_store.records.store_cipher import StoreCipher, new_store_cipher, unlock
from eyot_wire.digits import parse_uint
from eyot_wire.status import NO_ROOM

FORMAT = 1
FORMAT_JOURNAL = 2
"""Format of a store with a journal in front: a release without journals must not open it."""
FORMAT_SEALED = 2
"""Added to either where the store is encrypted."""
FORMATS = range(FORMAT, FORMAT_JOURNAL + FORMAT_SEALED + 1)
FORMAT_KEY = b"format"
NEXT_ID_KEY = b"next_stream_id"
JOURNAL_KEY = b"journal"
MARK_RECORD_KEY = b"journal.high"
"""What LMDB knows about the mark of the journal (`journal/high_water.py`)."""
ENCRYPTION_KEY = b"encryption"
_EXTRA_DBS = 8
_PROBE_EVERY_S = 1.0
_STEP_MIN, _STEP_MAX = 4 * MIB, 64 * MIB

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXTS = tuple(os.strerror(number) for number in _FULL_ERRNOS)


def messages_db_name(stream_id: int) -> bytes:
    """Name of the database with the messages of a stream."""
    return b"stream:%08x" % stream_id


def counters_key(stream_id: int) -> bytes:
    """Return the key of a stream's counters in the unnamed database; sorts next to the stream's database, on the same page."""
    return b"stream:%08x:counters" % stream_id


def deleted_stream_key(stream_id: int) -> bytes:
    """Return the key in the unnamed database that marks a deleted stream whose database is not empty yet."""
    return b"trash:%08x" % stream_id


def journal_mark(salt: bytes, applied: int) -> bytes:
    """Return the value under JOURNAL_KEY: the journal's salt, and the last of its frames that LMDB holds."""
    return seal(JOURNAL_KEY, msgspec.msgpack.encode((salt, applied)))


decode_mark = msgspec.msgpack.Decoder(tuple[bytes, int]).decode


def as_store_error(error: Exception) -> StoreError:
    """Return an exception of LMDB or the system in the store's terms."""
    if isinstance(error, StoreError):
        return error
    text = str(error).partition("mdb_txn_commit: ")[2] or str(error)
    if isinstance(error, lmdb.MapFullError):
        return StoreError("full", f"{NO_ROOM} for the store")
    if isinstance(error, lmdb.DiskError) or any(part in text for part in _FULL_TEXTS):
        return StoreError("full", f"{NO_ROOM}: {text}")
    if isinstance(error, OSError) and error.errno in _FULL_ERRNOS:
        return StoreError("full", f"{NO_ROOM}: {text}")
    if isinstance(error, lmdb.DbsFullError):
        return StoreError("full", "the limit of streams is reached")
    if isinstance(error, (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, msgspec.MsgspecError)):
        return StoreError("corrupt", f"the database is damaged: {text}")
    if "Permission denied" in text:
        return StoreError("io", f"its files belong to another user: {text}")
    return StoreError("io", f"the disk failed: {text}")


_READING_S = 0.5  # after a slice there is another one soon, or none


def has_journal(path: Path) -> bool:
    """Return whether a journal is in the directory of a store, with or without a database."""
    return any((path / "journal").glob("segment-*"))


def no_store(path: Path) -> StoreError:
    """Return the error for a directory without a database, with what to do."""
    if has_journal(path):
        return StoreError(
            "corrupt",
            f"{path / 'data.mdb'} is missing or empty, while the journal beside it may hold acknowledged messages",
            remedy=f"restore it, or remove {path / 'journal'} to start without it",
        )
    return StoreError("io", f"no store in {path}: name the store_dir of the configuration's jetstream {{ }}")


class Environment:
    """An open LMDB environment."""

    def __init__(self, path: Path, options: StoreOptions) -> None:
        self.path = path
        self.options = options
        self.lock = threading.Lock()
        self.store_cipher: StoreCipher | None = None
        self.messages: dict[int, Any] = {}  # stream id -> LMDB database handle, of committed streams only
        self.fenced: dict[int, StoreError] = {}  # stream id -> why nothing of it may be read or written through LMDB
        self.on_fenced: Callable[[int, StoreError], None] = lambda stream_id, error: None
        self.examined: Examined | None = None
        self._reading_until_s = float("-inf")
        self._map_max = options.map_size_max  # or the largest map that the address space allows
        self._probed_s = float("-inf")
        self._probe_verdict: StoreError | None = None
        self._lock_fd = _lock_directory(path)
        self.is_open = False
        try:
            if store_exists(path):
                self.examined = examine(path)
            elif has_journal(path):
                raise no_store(path)
            self._open()
        except BaseException:
            os.close(self._lock_fd)
            raise

    def reading_much(self) -> None:
        """Announce that the loop reads very many records, slice by slice.

        Two threads that do so hand the interpreter lock to each other at every record, so deferrable work waits for a
        moment.
        """
        self._reading_until_s = time.monotonic() + _READING_S

    @property
    def is_read_much(self) -> bool:
        return time.monotonic() < self._reading_until_s

    def _open(self) -> None:
        options = self.options
        data = self.path / "data.mdb"
        size = data.stat().st_size if data.exists() else 0
        self.map_size = max(min(_round_up(size), self._map_max), MIB)
        try:
            self.lmdb: Any = lmdb.open(
                str(self.path),
                map_size=self.map_size,
                max_dbs=options.max_streams + _EXTRA_DBS,
                sync=options.flush,
                metasync=options.flush,
                mode=0o600,
                max_spare_txns=2,
            )
        except (lmdb.Error, OSError) as error:
            raise as_store_error(error) from error
        try:
            self.pages = Pages(data, self._known_pages())
            self.lmdb.reader_check()
            self._check_format()
            with self.lmdb.begin(write=True) as txn:
                self.streams = self.lmdb.open_db(b"streams", txn=txn)
                self.consumers = self.lmdb.open_db(b"consumers", txn=txn)
                self.consumer_states = self.lmdb.open_db(b"consumer_states", txn=txn)
                self.positions = self.lmdb.open_db(b"positions", txn=txn)
                self.subjects = self.lmdb.open_db(b"subjects", txn=txn)
            if options.flush and not size:
                flush_directory(self.path)
                flush_directory(self.path.parent)
            self.allocated = data.stat().st_size
            self._allocate(max(options.map_size, self.used_bytes() + 2 * options.map_reserve))
            self.lmdb.set_mapsize(self._appendable())
            self.map_size = self.lmdb.info()["map_size"]
            self.is_open = True
        except lmdb.Error as error:
            self.lmdb.close()
            raise as_store_error(error) from error
        except BaseException:
            self.lmdb.close()
            raise

    def _check_format(self) -> None:
        with self.lmdb.begin() as txn:
            found = txn.get(FORMAT_KEY)
            empty = txn.stat()["entries"] == 0
            entry = txn.get(ENCRYPTION_KEY)
        if found is None and not empty:
            raise StoreError(
                "format", f"{self.path} holds an LMDB database that is not an Eyot store: choose another store_dir"
            )
        if found is None:
            self._make_new()
            return
        if found not in (b"%d" % number for number in FORMATS):
            raise unknown_format(self.path, found)
        number = int(found)
        if number > FORMAT_JOURNAL:
            self._unlock(entry)
            number -= FORMAT_SEALED
        elif self.options.keys is not None:
            raise StoreError("key", f"the store in {self.path} is not encrypted")
        self.journalled = number == FORMAT_JOURNAL

    def _make_new(self) -> None:
        keys = self.options.keys
        self.journalled = False
        with self.lmdb.begin(write=True) as txn:
            if keys is not None:
                self.store_cipher = new_store_cipher(keys.cipher)
                txn.put(ENCRYPTION_KEY, seal(ENCRYPTION_KEY, self.store_cipher.wrapped(keys.key)))
            txn.put(FORMAT_KEY, self._format(FORMAT))
            txn.put(NEXT_ID_KEY, b"1")

    def _unlock(self, entry: bytes | None) -> None:
        """Decrypt the data key; with the operator's previous key, seal it under the new one."""
        keys = self.options.keys
        if self.store_cipher is not None:
            return  # opened again
        if keys is None:
            raise StoreError("key", f"the store in {self.path} is encrypted: a key is required to open it")
        try:
            self.store_cipher, outdated = unlock(unseal(ENCRYPTION_KEY, entry or b"", "the data key"), keys)
        except StoreError as error:
            raise StoreError(error.reason, f"the store in {self.path}: {error.message}") from None
        if outdated:
            with self.lmdb.begin(write=True) as txn:
                txn.put(ENCRYPTION_KEY, seal(ENCRYPTION_KEY, self.store_cipher.wrapped(keys.key)))

    def _format(self, number: int) -> bytes:
        return b"%d" % (number if self.store_cipher is None else number + FORMAT_SEALED)

    # -- damaged pages ---------------------------------------------------------------------------------------------------

    def _known_pages(self) -> bytes:
        known = getattr(self, "pages", None)
        if known is not None:
            known.close()
            return bytes(known.known)
        return self.examined.known if self.examined is not None else b""

    def tree(self, txn: Any, stream_id: int) -> Tree | None:
        """Return a stream's tree of messages in a read transaction, to check its pages before a read.

        None: the stream has no database yet. Raises StoreError("corrupt") for a fenced stream.
        """
        return self._tree(int(txn.id()), stream_id)

    def base_tree(self, txn: Any, stream_id: int) -> Tree | None:
        """Return a stream's tree of messages in a write transaction."""
        return self._tree(int(txn.id()) - 1, stream_id)

    def _tree(self, txnid: int, stream_id: int) -> Tree | None:
        fenced = self.fenced.get(stream_id)
        if fenced is not None:
            raise fenced
        return self.pages.tree(txnid, messages_db_name(stream_id), SEQUENCE_KEY)

    def fence(self, stream_id: int, error: PageError) -> StoreError:
        """Fence a stream with a damaged page: no more LMDB calls for it, since one could abort the process.

        Returns the error to raise.
        """
        return self.fence_for(stream_id, StoreError("corrupt", f"{error.message}; {gone(error)}"))

    def fence_for(self, stream_id: int, error: StoreError) -> StoreError:
        """Fence a stream for another reason; return the error to raise."""
        if stream_id not in self.fenced:
            self.fenced[stream_id] = error
            self.on_fenced(stream_id, error)
        return self.fenced[stream_id]

    # -- encryption
    # ----------------------------------------------------------------------------------------------------------

    def codec(self, stream_id: int) -> RecordCodec:
        """Return how a stream's records are stored."""
        return RecordCodec(stream_id, self.store_cipher)

    def seal(self, kind: bytes, key: bytes, value: bytes) -> bytes:
        """Return a value of the database `kind` as it is stored under `key`."""
        return seal(key, value if self.store_cipher is None else self.store_cipher.seal(kind + key, value))

    def unseal(self, kind: bytes, key: bytes, sealed: bytes, what: str) -> bytes:
        """Inverse of `seal`. Raises StoreError("corrupt") naming `what`."""
        value = unseal(key, sealed, what)
        if self.store_cipher is None:
            return value
        try:
            return self.store_cipher.open(kind + key, value)
        except StoreError as error:
            raise StoreError("corrupt", f"{what}: {error.message}") from None

    # -- the journal in front ------------------------------------------------------------------------------------------

    @property
    def spread(self) -> int:
        """Largest factor between the bytes of records and their space in LMDB."""
        return 2 if self.store_cipher is None else 4

    @property
    def journal_path(self) -> Path:
        """Where the journal's files are, if there is one."""
        return self.path / "journal"

    def read_journal_mark(self) -> tuple[bytes, int] | None:
        """Return the journal's salt, and the last of its frames that LMDB holds; None when there is no journal."""
        if not self.journalled:
            return None
        with self.lmdb.begin() as txn:
            sealed = txn.get(JOURNAL_KEY)
        return decode_mark(unseal(JOURNAL_KEY, sealed or b"", "mark of the journal"))

    def begin_journal(self, mark: bytes) -> None:
        """From now on the journal in `journal_path` counts."""
        with self.lmdb.begin(write=True) as txn:
            txn.put(JOURNAL_KEY, mark)
            txn.put(FORMAT_KEY, self._format(FORMAT_JOURNAL))
        self.journalled = True

    def read_mark_record(self) -> bytes | None:
        """Return what LMDB holds under MARK_RECORD_KEY."""
        with self.lmdb.begin() as txn:
            found: bytes | None = txn.get(MARK_RECORD_KEY)
        return found

    def write_mark_record(self, mark_record: bytes) -> None:
        """Put this under MARK_RECORD_KEY."""
        with self.lmdb.begin(write=True) as txn:
            txn.put(MARK_RECORD_KEY, mark_record)

    def end_journal(self) -> None:
        """From now on LMDB counts alone."""
        with self.lmdb.begin(write=True) as txn:
            txn.delete(JOURNAL_KEY)
            txn.delete(MARK_RECORD_KEY)
            txn.put(FORMAT_KEY, self._format(FORMAT))
        self.journalled = False

    def reopen(self) -> int:
        """Close and reopen the environment, as LMDB requires after a failed write of its meta page.

        Returns the number of the file's last transaction. Writes nothing.
        """
        with self.lock:
            self.lmdb.close()
            self.is_open = False
            self._open()
            with self.lmdb.begin(write=True) as txn:
                for stream_id in list(self.messages):
                    self.messages[stream_id] = self.lmdb.open_db(messages_db_name(stream_id), txn=txn, create=False)
            return int(self.lmdb.info()["last_txnid"])

    def why_io(self, error: StoreError) -> StoreError:
        """Return `error`, as "full" where the file system has no space: LMDB reports a short write as an I/O error."""
        if error.reason != "io":
            return error
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        size = (self.path / "data.mdb").stat().st_size
        if limit != resource.RLIM_INFINITY and size + MIB > limit:
            return StoreError("full", f"{NO_ROOM}: the file size limit of {limit} bytes is reached")
        now_s = time.monotonic()
        if now_s - self._probed_s > _PROBE_EVERY_S:
            self._probed_s, self._probe_verdict = now_s, self._probe()
        return self._probe_verdict or error

    def _probe(self) -> StoreError | None:
        """Write a small file beside the data; return the error if there is no space."""
        probe = self.path / "probe"
        try:
            with probe.open("wb", buffering=0) as file:
                file.write(bytes(MIB // 4))
                os.fsync(file.fileno())
        except OSError as error:
            return as_store_error(error) if error.errno in _FULL_ERRNOS else None
        finally:
            probe.unlink(missing_ok=True)
        return None

    # -- room --------------------------------------------------------------------------------------------------------
    #
    # LMDB's map is never larger than what the file system has allocated, so that a full disk shows as MapFullError
    # before anything is written. The last `map_reserve` bytes are reserved for transactions that free space.

    def make_room(self, wanted: int, *, reserve: bool) -> bool:
        """Let the map grow by about `wanted` bytes, while no transaction is active; return False when there is no space.

        `reserve`: the reserve may be used.
        """
        if reserve and self.map_size < min(self.allocated, self._map_max):
            self.resize(min(self.allocated, self._map_max))
            return True
        before = self.map_size
        step = max(wanted, min(max(self.allocated // 8, _STEP_MIN), _STEP_MAX))
        self._allocate(self.allocated + step)
        target = min(self.allocated, self._map_max) if reserve else self._appendable()
        if target <= before:
            return False
        self.resize(target)
        return True

    def restore_reserve(self) -> None:
        """Shrink the map by the reserve after its use (LMDB keeps what is in use)."""
        if self.map_size > self._appendable():
            self.resize(self._appendable())

    def promise_broken(self) -> None:
        """Continue within the file's present size until it can grow again: the file system refused to write allocated space."""
        self.allocated = self.used_bytes()
        self.resize(self.allocated)

    def resize(self, size: int) -> None:
        """Set the map's size; LMDB keeps at least what is in use.

        Raises StoreError("full") without address space. LMDB has unmapped the old map by then; the environment is
        reopened at its old size.
        """
        try:
            with self.lock:
                self.lmdb.set_mapsize(size)
                self.map_size = self.lmdb.info()["map_size"]
        except lmdb.Error as error:
            self.is_open = False
            self._map_max = min(self._map_max, self.map_size)
            self.reopen()
            raise StoreError("full", f"no address space for a map of {size} bytes") from error

    def _appendable(self) -> int:
        return max(min(self.allocated, self._map_max) - self.options.map_reserve, self.used_bytes(), MIB // 4)

    def _allocate(self, size: int) -> None:
        """Have the file system set blocks aside for the data file, if it can."""
        size = min(_round_up(size), self._map_max)
        if size <= self.allocated:
            return
        fd = os.open(self.path / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, self.allocated, size - self.allocated)
            self.allocated = size
        except OSError:
            pass  # no space; the code that needs it reports that
        finally:
            os.close(fd)

    def deleted_streams(self) -> list[int]:
        """Return the ids of deleted streams whose database still exists.

        A stream that has an entry is none: its id is what a flipped bit made of another one.
        """
        out: list[int] = []
        with self.lmdb.begin() as txn:
            cursor = txn.cursor()
            if cursor.set_range(DELETED_STREAMS):
                for key in cursor.iternext(keys=True, values=False):
                    if not key.startswith(DELETED_STREAMS):
                        break
                    stream_id = deleted_number(key)
                    if stream_id and txn.get(pack_u64(stream_id), db=self.streams) is None:
                        out.append(stream_id)
        return out

    def used_bytes(self) -> int:
        """Return the bytes of the file that hold pages ever used, free pages included.

        Only for writers, and under `lock`: it reads the map.
        """
        return int((self.lmdb.info()["last_pgno"] + 1) * self.lmdb.stat()["psize"])

    def close(self) -> None:
        with self.lock:
            self.lmdb.close()
            self.pages.close()
        os.close(self._lock_fd)


def gone(error: PageError) -> str:
    """Describe which messages a damaged page held."""
    first = unpack_u64(error.low[:8].ljust(8, b"\0"))[0] or 1
    last = "on" if error.high is None else f"to {max(unpack_u64(error.high[:8].ljust(8, bytes(1)))[0] - 1, first)}"
    if error.high is not None and error.high == error.low + b"\0":
        return f"sequence {first} cannot be read"
    return f"sequences from {first} {last} cannot be read"


def is_newer(found: bytes) -> bool:
    """Return whether a later release has written the entry of the format: such a store is sound."""
    return (parse_uint(found) or 0) > FORMATS[-1]


def unknown_format(path: Path, found: bytes) -> StoreError:
    """Return the error for a store whose format this release does not read."""
    remedy = "install that release again, or restore a backup into an empty store_dir"
    written = f"; a newer release wrote the store, and nothing in it was changed: {remedy}"
    return StoreError(
        "format",
        f"{path} has on-disk format {found.decode('ascii', 'replace')}; "
        f"this release reads formats {FORMATS[0]} to {FORMATS[-1]}{written if is_newer(found) else ''}",
    )


def _round_up(size: int) -> int:
    return (size + MIB - 1) // MIB * MIB


def _lock_directory(path: Path) -> int:
    """Keep other processes from writing here; the lock goes when the process does."""
    try:
        make_directories(path, 0o700)
        fd = os.open(path / "store.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise as_store_error(error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError("locked", f"{path} is in use by another process") from None
    return fd
