"""Verifies a store at rest: every page, every checksum, every counter; reports damage and changes nothing.

`check(path)` first walks LMDB's own structure without LMDB (`pages/survey.py`), so that a damaged page cannot crash
the process. Only a sound structure is then read through LMDB, record by record. For a store that a daemon has open, the
structure is not walked (it changes), and the records are read from one snapshot.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from eyot_store.changes import decode
from eyot_store.check.index_check import IndexCheck
from eyot_store.environment import (
    ENCRYPTION_KEY,
    FORMAT_JOURNAL,
    FORMAT_KEY,
    FORMAT_SEALED,
    FORMATS,
    JOURNAL_KEY,
    MARK_RECORD_KEY,
    NEXT_ID_KEY,
    as_store_error,
    counters_key,
    decode_mark,
    gone,
    is_newer,
    messages_db_name,
    no_store,
    unknown_format,
)
from eyot_store.errors import StoreError
from eyot_store.journal.high_water import UNKNOWN_END, decode_mark_record, read_high
from eyot_store.journal.journal import read_frames
from eyot_store.journal.replay import frame_content
from eyot_store.native import nodes_of
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import SEQUENCE_KEY
from eyot_store.pages.mend import SALVAGED
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import deleted_number, stream_number, survey
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import (
    Counters,
    StoredMessage,
    StreamRecord,
    file_message_bytes,
    unpack_u64,
    unseal,
)
from eyot_store.records.store_cipher import StoreCipher, StoreKeys, unlock
from eyot_store.stream_ids import next_stream_id
from eyot_wire.quantities import counted

_BLANK = StoredMessage(0, b"", b"", b"")
_decode_stream = msgspec.msgpack.Decoder(StreamRecord).decode
_decode_counters = msgspec.msgpack.Decoder(Counters).decode

LOST_ENTRY = "its entry is lost; its messages and consumers cannot be served, and stay in the file until `--compact`"

CORRUPT_LISTED_MAX = 10_000
"""Damaged sequences that are listed one by one for each stream; beyond that they are only counted."""


class StreamCheck(msgspec.Struct):
    """The result for one stream. `corrupt`: sequences whose records are damaged."""

    account: str
    name: str
    id: int
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumers: int = 0
    corrupt: list[int] = msgspec.field(default_factory=list)
    corrupt_count: int = 0


class CheckReport(msgspec.Struct):
    """`problems` is empty when all is well; each is a sentence that names stream and sequence where it can."""

    path: str
    format: int = 0
    journal_frames: int = 0
    """Groups that are durable in the journal and not yet in LMDB; the streams' numbers below are without them."""
    sealed: bool = False
    """The store is encrypted and was checked without its key: checksums were verified, sealed values were not."""
    live: bool = False
    """A process had the store open: its structure was not walked."""
    streams: list[StreamCheck] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def check(path: Path, keys: StoreKeys | None = None) -> CheckReport:
    """Verify the store in directory `path`; must not run in a process that has this store open.

    Without keys, an encrypted store is verified as far as checksums go. Raises StoreError: "io" when there is no store
    or it cannot be read, "key" when `keys` do not decrypt it, "format" when a later release has written it.
    """
    report = CheckReport(str(path))
    data = path / "data.mdb"
    try:
        size = data.stat().st_size
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise no_store(path) from error
        raise as_store_error(error) from error
    report.live = _is_open_elsewhere(path)
    try:
        pages = Pages(data)
    except (StoreError, OSError) as error:
        report.problems.append(f"structure: {error}")
        return report
    try:
        if report.live or _is_sound(pages, report):
            _read(path, pages, size, report, keys)
    finally:
        pages.close()
    return report


def _is_sound(pages: Pages, report: CheckReport) -> bool:
    """Return whether the databases that all streams share are readable."""
    metas = pages.metas()
    if len(metas) < 2:
        report.problems.append("structure: a meta page is damaged")
    elif metas[0].txnid - metas[1].txnid > 1:
        report.problems.append("structure: the meta pages do not follow each other")
    found = survey(pages, metas[0], leaves=False)
    if found.main is not None:
        report.problems.append(f"structure: {found.main.message}")
    elif found.free:
        report.problems.append(f"structure: the list of free pages is damaged: {found.free}")
    report.problems += [f"structure: {error.message}" for error in found.shared.values()]
    if not found.is_usable or found.shared:
        # Damaged streams are reported anyway, by number.
        report.problems += [
            f"stream {number}: {error.message}; {gone(error)}" for number, error in found.streams.items()
        ]
        return False
    return True


def _read(path: Path, pages: Pages, size: int, report: CheckReport, keys: StoreKeys | None) -> None:
    """Verify everything through LMDB."""
    try:
        environment = lmdb.open(
            str(path), map_size=max(size, 1 << 20), max_dbs=1 << 16, readonly=True, lock=report.live, create=False
        )
    except (lmdb.Error, OSError) as error:
        report.problems.append(f"cannot be opened: {error}")
        return
    try:
        _Checker(environment, pages, report, keys).run()
    except (lmdb.Error, OSError) as error:
        report.problems.append(f"cannot be read: {error}")
    finally:
        environment.close()


def _is_open_elsewhere(path: Path) -> bool:
    try:
        fd = os.open(path / "store.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class _Checker:
    """One pass over an open environment."""

    def __init__(self, environment: Any, pages: Pages, report: CheckReport, keys: StoreKeys | None) -> None:
        self._environment = environment
        self._pages = pages
        self._keys = keys
        self._store_cipher: StoreCipher | None = None
        self._blind = False  # sealed, and no key
        self._report = report
        self._problems = report.problems
        self._ids: dict[int, str] = {}  # of streams, to "account/name"
        self._lost: set[int] = set()  # streams with messages and no entry
        self._subjects: Any = None  # the database with the indexes, if there is one

    def run(self) -> None:
        environment = self._environment
        with environment.begin() as txn:
            found = txn.get(FORMAT_KEY)
            if found not in (b"%d" % number for number in FORMATS):
                if found is not None and is_newer(found):
                    raise unknown_format(Path(self._report.path), found)
                shown = "none" if found is None else found.decode("ascii", "replace")
                self._problems.append(f"format: {shown}, but this release reads {FORMATS[0]} to {FORMATS[-1]}")
                return
            self._report.format = int(found)
            if self._report.format > FORMAT_JOURNAL:
                self._unlock(txn)
            databases = {bytes(key) for key, _ in txn.cursor()}
        if self._report.format in (FORMAT_JOURNAL, FORMAT_JOURNAL + FORMAT_SEALED):
            self._journal()
        handles: dict[bytes, Any] = {}
        for name in (b"streams", b"consumers", b"consumer_states", b"positions"):
            if name not in databases:
                self._problems.append(f"database {name.decode()} is missing")
                return
            handles[name] = environment.open_db(name, create=False)
        with environment.begin() as txn:
            records = list(self._stream_records(txn, handles[b"streams"]))
        if b"subjects" in databases:
            self._subjects = environment.open_db(b"subjects", create=False)
        messages = {
            stream_id: environment.open_db(messages_db_name(stream_id), create=False)
            for stream_id, _ in records
            if messages_db_name(stream_id) in databases
        }
        with environment.begin(buffers=True) as txn:
            for stream_id, record in records:
                self._stream(txn, stream_id, record, messages.get(stream_id))
            self._lost = {number for name in databases if (number := stream_number(name))} - self._ids.keys()
            self._lost -= set(map(deleted_number, databases))
            self._problems += [f"stream {number}: {LOST_ENTRY}" for number in sorted(self._lost)]
            self._shared(txn, handles)
            self._strays(databases)

    def _unlock(self, txn: Any) -> None:
        try:
            entry = unseal(ENCRYPTION_KEY, bytes(txn.get(ENCRYPTION_KEY) or b""), "the data key")
        except StoreError as error:
            self._problems.append(str(error))
            self._blind = True
            return
        if self._keys is None:
            self._blind = self._report.sealed = True
        else:
            try:
                self._store_cipher, _ = unlock(entry, self._keys)
            except StoreError as error:
                raise StoreError(error.reason, f"the store in {self._report.path}: {error.message}") from None

    def _unseal(self, kind: bytes, key: bytes, sealed: bytes, what: str) -> bytes:
        value = unseal(key, sealed, what)
        if self._store_cipher is None:
            return value
        try:
            return self._store_cipher.open(kind + key, value)
        except StoreError as error:
            raise StoreError("corrupt", f"{what}: {error.message}") from None

    def _journal(self) -> None:
        """Check every frame that LMDB does not hold yet: complete, in order, decodable."""
        path = Path(self._report.path) / "journal"
        try:
            salt, applied = self._mark()
            if not path.is_dir():
                raise StoreError("corrupt", "the journal is missing")
            frames, missing = read_frames(path, salt, applied)
            for frame in frames:
                if not self._blind:
                    decode(frame_content(self._store_cipher, frame))
            last = frames[-1].number if frames else applied
            mark = read_high(Path(self._report.path), salt)
            missing += range(last + 1, (mark.number if mark is not None else 0) + 1)
            with self._environment.begin() as txn:
                mark_record = decode_mark_record(txn.get(MARK_RECORD_KEY))
            if mark_record is not None and mark_record.misses_mark(salt, applied, mark):
                self._problems.append(UNKNOWN_END)
            _, applied = self._mark()  # segments of a store in use may have been reused meanwhile
            self._problems += [f"journal: frame {number} is damaged" for number in missing if number > applied]
            self._report.journal_frames = sum(frame.number > applied for frame in frames)
        except (StoreError, msgspec.MsgspecError, OSError) as error:
            self._problems.append(str(error))

    def _mark(self) -> tuple[bytes, int]:
        with self._environment.begin() as txn:
            return decode_mark(unseal(JOURNAL_KEY, bytes(txn.get(JOURNAL_KEY) or b""), "mark of the journal"))

    def _stream_records(self, txn: Any, db: Any) -> Iterator[tuple[int, StreamRecord]]:
        problem = next_stream_id(txn, db).problem
        if problem:
            self._problems.append(problem)
        names: set[tuple[str, str]] = set()
        for key, sealed in txn.cursor(db):
            stream_id: int = unpack_u64(key)[0]
            try:
                entry = self._unseal(b"streams", key, sealed, f"entry of stream {stream_id}")
                record = StreamRecord("", f"#{stream_id}", 0, b"") if self._blind else _decode_stream(entry)
            except (StoreError, msgspec.MsgspecError) as error:
                self._problems.append(str(error))
                self._ids[stream_id] = f"#{stream_id}"
                continue
            name = f"{record.account}/{record.name}"
            if (record.account, record.name) in names:
                self._problems.append(f"stream {name}: there are two of this name")
            names.add((record.account, record.name))
            self._ids[stream_id] = name
            yield stream_id, record

    def _stream(self, txn: Any, stream_id: int, record: StreamRecord, db: Any) -> None:
        name = self._ids[stream_id]
        found = StreamCheck(record.account, record.name, stream_id)
        self._report.streams.append(found)
        if db is None:
            self._problems.append(f"stream {name}: its database is missing")
            return
        damages = self._damages(txn, stream_id)
        if damages:
            self._problems += [f"stream {name}: {error.message}; {gone(error)}" for error in damages]
            return
        counters = self._counters(txn, stream_id, name)
        codec = RecordCodec(stream_id, self._store_cipher)
        index = IndexCheck(txn, None if self._blind else self._subjects, stream_id, codec, self._unseal)
        for key, value in txn.cursor(db):
            seq: int = unpack_u64(key)[0] if len(key) == 8 else 0
            if not seq:
                self._problems.append(f"stream {name}: a record has the key {bytes(key)!r}")
                continue
            index.look_at(key, value)
            if counters is not None and seq < counters.floor:
                continue  # purged, and not removed yet
            found.messages += 1
            found.first_seq = found.first_seq or seq
            found.last_seq = seq
            try:
                message = _BLANK if self._blind and codec.body(key, value) else codec.message(key, value)
            except StoreError as error:
                found.corrupt_count += 1
                if len(found.corrupt) < CORRUPT_LISTED_MAX:
                    found.corrupt.append(seq)
                    self._problems.append(f"stream {name} sequence {seq}: {error.message}")
                continue
            found.bytes += file_message_bytes(message.subject, message.header, message.payload)
        self._problems += [f"stream {name}: {problem}" for problem in index.problems(trusted=not found.corrupt_count)]
        if counters is None:
            return
        if counters.messages != found.messages:
            self._problems.append(
                f"stream {name}: counts {counted(counters.messages, 'message')}, holds {found.messages:,}"
            )
        if counters.last_seq < found.last_seq:
            self._problems.append(f"stream {name}: counts up to {counters.last_seq}, holds {found.last_seq}")
        found.last_seq = max(found.last_seq, counters.last_seq)
        if self._blind:
            found.bytes = counters.bytes
        if counters.bytes != found.bytes and not found.corrupt_count:
            self._problems.append(f"stream {name}: counts {counters.bytes} bytes, holds {found.bytes}")

    def _damages(self, txn: Any, stream_id: int) -> list[PageError]:
        """Return the pages of a stream that LMDB must not be let at."""
        damages: list[PageError] = []
        tree = self._pages.tree(int(txn.id()), messages_db_name(stream_id), SEQUENCE_KEY)
        if tree is not None:
            entries = 0
            for page, _, _ in self._pages.walk(tree, damages.append, runs=False):
                entries += nodes_of(page)
                damages += self._pages.damaged_runs(tree, page)
            if not damages and entries != tree.db.entries:
                why = f"it holds {counted(entries, 'message')} and counts {tree.db.entries:,}"
                damages.append(PageError(tree.name, tree.db.root, why))
        return damages

    def _counters(self, txn: Any, stream_id: int, name: str) -> Counters | None:
        key = counters_key(stream_id)
        sealed = txn.get(key)
        if sealed is None:
            self._problems.append(f"stream {name}: its counters are missing")
            return None
        try:
            return _decode_counters(unseal(key, bytes(sealed), f"stream {name}: counters"))
        except (StoreError, msgspec.MsgspecError) as error:
            self._problems.append(str(error))
            return None

    def _shared(self, txn: Any, handles: dict[bytes, Any]) -> None:
        """Check the entries of all streams in the shared databases."""
        checks = {check.id: check for check in self._report.streams}
        for database, kind in (
            (b"consumers", "consumer"),
            (b"consumer_states", "state of consumer"),
            (b"positions", "position"),
        ):
            for key, sealed in txn.cursor(handles[database]):
                stream_id: int = unpack_u64(key[:8])[0] if len(key) > 8 else 0
                what = f"{kind} {bytes(key[8:]).decode('utf-8', 'replace')}"
                stream = self._ids.get(stream_id)
                if stream is None:
                    if stream_id not in self._lost:
                        self._problems.append(f"{what}: belongs to stream {stream_id}, which does not exist")
                    continue
                try:
                    self._unseal(database, bytes(key), bytes(sealed), f"stream {stream}: {what}")
                except StoreError as error:
                    self._problems.append(str(error))
                if database == b"consumers" and stream_id in checks:
                    checks[stream_id].consumers += 1

    def _strays(self, databases: set[bytes]) -> None:
        expected = {FORMAT_KEY, JOURNAL_KEY, MARK_RECORD_KEY, ENCRYPTION_KEY, NEXT_ID_KEY, b"streams", b"subjects"}
        expected |= {b"consumers", b"consumer_states", b"positions"}
        for stream_id in (*self._ids, *self._lost):
            expected |= {messages_db_name(stream_id), counters_key(stream_id)}
        for key in databases:
            if key.startswith(SALVAGED):
                expected.add(key)
            if (deleted := deleted_number(key)) and deleted not in self._ids:  # deleted, and not removed yet
                expected |= {key, messages_db_name(deleted)}
        self._problems += [
            f"{name.decode('ascii', 'replace')}: belongs to nothing" for name in sorted(databases - expected)
        ]
