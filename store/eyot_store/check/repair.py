"""`eyot-check --repair`: rewrites damaged streams from their readable records, and reports what is lost.

Of the old pages only checksummed data is trusted: a record counts when its checksum fits its stream and sequence, even
in a page that is damaged elsewhere. With `raw`, every page of the file is read that is not listed as free, so that leaves
are found when the branches above them are gone. The new messages replace the old ones in one step. The old pages stay unused until
`--compact`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import lmdb
import msgspec

from eyot_store.environment import as_store_error, counters_key, messages_db_name
from eyot_store.errors import StoreError
from eyot_store.journal.losses import gone_position
from eyot_store.journal.marker import DOUBTED, Marker
from eyot_store.native import key_at, nodes_of
from eyot_store.options import StoreOptions
from eyot_store.page_check import BIG, HEADER_SIZE, WORD, Buffer
from eyot_store.pages.mend import SALVAGED, counters_in, counters_of, examine, replace_records
from eyot_store.pages.pages import SEQUENCE_KEY, PageError, Pages, Tree
from eyot_store.pages.survey import INDEX, survey
from eyot_store.records.record import Counters, is_whole, pack_u64, salt_of, seal, seq_of
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.store import Store, settle

_BATCH = 4096
_ORDER = sys.byteorder
_UNKNOWN = -(1 << 62)  # messages
_ABOVE_ALL = b"\xff" * 9
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4  # flags of a page
Entries = dict[bytes, bytes]
Spans = list[tuple[bytes, bytes]]
"""Keys from the first of a pair to below the second."""


def repair(path: Path, keys: StoreKeys | None, *, raw: bool = False) -> list[str]:
    """Repair the store in `path`, which no process may have open; return sentences about damage and loss.

    `raw`: read pages that nothing leads to, too. Raises StoreError.
    """
    options = StoreOptions(keys=keys)
    store, sentences = _open(path, options)
    names = {log.id: f"{log.account}/{log.name}" for log in store.streams()}
    store.close()
    examined = examine(path)
    pages = Pages(path / "data.mdb")
    try:
        meta = pages.metas()[0]
        found = survey(pages, meta, leaves=True)
        damaged = {**examined.survey.streams, **found.streams}
        counters = counters_in(found)
        kept: dict[int, Entries] = {}
        gone: dict[int, list[tuple[int, int]]] = {}
        for stream_id, error in sorted(damaged.items()):
            tree = pages.tree(meta.txnid, messages_db_name(stream_id), SEQUENCE_KEY)
            if tree is None or stream_id not in names:
                continue
            reading = _Salvage(pages, tree, stream_id, found.free_pages, raw=raw)
            kept[stream_id] = reading.entries(counters.get(stream_id, Counters()).floor)
            sentences.append(f"stream {names[stream_id]}: {error.message}; {len(kept[stream_id])} messages are kept")
            lines = reading.lost(counters.get(stream_id), error)
            sentences += [f"stream {names[stream_id]}: {line}" for line in lines]
            gone[stream_id] = reading.gone
    finally:
        pages.close()
    if kept:
        # An index is trusted when its counts agree, which they may by chance: the indexes are built anew.
        indexes = [INDEX] if INDEX in found.trees else []
        _write(path, kept, empty=indexes)
        replace_records(
            path, {name: SALVAGED + name for name in [*indexes, *(messages_db_name(each) for each in kept)]}
        )
        # As many removed messages may be back as others are lost: counters that fit nothing are computed again.
        _change_counters(path, {each: {"messages": _UNKNOWN} for each in kept})
    # Set-aside frames are applied, counters are recomputed, and downstreams are asked for their positions.
    store, more = _open(path, options)
    sentences += [sentence for sentence in more if sentence not in sentences]
    left = store.fenced()
    states = {log.id: log.state for log in store.streams() if log.id in kept}
    _note_gone(store, gone)
    store.close()
    # A purge in a frame that was set aside may have moved the floor, which stays: what is below is not removed yet.
    members = ("messages", "bytes", "last_seq", "last_ts_ns")
    _change_counters(path, {each: {name: getattr(state, name) for name in members} for each, state in states.items()})
    if left:
        raise StoreError("corrupt", f"cannot be repaired: {left[0][1].message}")
    return sentences


def _note_gone(store: Store, gone: dict[int, list[tuple[int, int]]]) -> None:
    """Record for the streams' downstreams what was lost, and that their positions must be requested again."""
    if gone:
        Marker(store.path, DOUBTED).turn(on=True)
    for log in store.streams():
        for span in gone.get(log.id, ()):
            txn = store.begin()
            log.put_position(txn, *gone_position(*span))
            store.submit(txn, _raised)


def _raised(failure: StoreError | None) -> None:
    if failure is not None:
        raise failure


def _open(path: Path, options: StoreOptions) -> tuple[Store, list[str]]:
    """Open the store without its journal; with sentences about damage that was found and mended at that."""
    sentences = settle(path, options)
    store = Store.open(
        path, notify=lambda fn: fn(), options=StoreOptions(keys=options.keys, committer="lmdb", inline=True)
    )
    return store, list(dict.fromkeys([*sentences, *store.damaged]))


class _Salvage:
    """The readable records of one stream. `free`: by page, 1 if it is free; empty if that is not known."""

    def __init__(self, pages: Pages, tree: Tree, stream_id: int, free: bytearray, *, raw: bool) -> None:
        self._free = free
        self._whole_file = raw
        self._unled: list[int] = []  # sequences in pages that nothing leads to
        #: Pages that were searched for one damage, and how deep: what looks like a way to them is found in many places.
        self._searched: dict[int, int] = {}
        self._pages = pages
        self._tree = tree
        self._salt = salt_of(stream_id)
        self._found: Entries = {}
        self._damages: list[PageError] = []
        #: Spans of sequences that `lost` found missing.
        self.gone: list[tuple[int, int]] = []

    def entries(self, floor: int) -> Entries:
        """Keys and records, ascending. Pages that nothing leads to are not asked for sequences below `floor`."""
        for page, _, _ in self._pages.walk(self._tree, self._damages.append):
            for index in range(nodes_of(page)):
                key = key_at(page, index)
                try:
                    self._found[key] = self._pages.data(self._tree, page, index)
                except PageError as error:
                    self._damages.append(error)
        for damage in self._damages:
            self._searched = {}
            self._raw(damage.pgno, [(damage.low, damage.high or _ABOVE_ALL)], 3)
        if self._whole_file and self._damages:
            before = set(self._found)
            lowest = pack_u64(floor)
            self._searched = {}
            self._all_pages([(max(damage.low, lowest), damage.high or _ABOVE_ALL) for damage in self._damages])
            self._unled = sorted(seq_of(key) for key in self._found.keys() - before)
        return dict(sorted(self._found.items()))

    def lost(self, counters: Counters | None, error: PageError) -> list[str]:
        """Describe the recovered and the lost sequences; those below the counters' floor do not count."""
        out = []
        if self._unled:
            out.append(f"sequences {_shown(_spans(self._unled))} are recovered from pages that nothing leads to")
        counted = counters.messages if counters is not None else -1
        live = sum(1 for key in self._found if counters is None or seq_of(key) >= counters.floor)
        if self._whole_file and live == counted:
            return out  # every message is there; the other sequences held none
        if self._whole_file and counted >= 0:
            more = f"{live - counted} messages more than counted: removed ones are back"
            out.append(f"{counted - live} messages are gone" if live < counted else more)
        return out + self._lost_spans(counters or Counters(), error)

    def _lost_spans(self, counters: Counters, error: PageError) -> list[str]:
        """Describe the sequences without a message in the damaged parts."""
        last, floor = counters.last_seq, counters.floor
        seqs = [seq_of(key) for key in self._found]
        first = max(floor, 1)
        spans: list[tuple[int, int]] = []
        for damage in self._damages:
            low = max(seq_of(damage.low[:8].ljust(8, b"\0")), first)
            high = min(seq_of(damage.high[:8].ljust(8, b"\0")), last + 1) if damage.high is not None else last + 1
            if damage.high is not None and len(damage.high) > 8:
                high = low + 1
            spans += _gaps(sorted(seq for seq in seqs if low <= seq < high), low, high)
        out = []
        if spans:
            self.gone = sorted(set(spans))
            out.append(f"sequences {_shown(self.gone)} are lost, as far as they held messages")
        if not self._damages:
            missing = _gaps(sorted(seq for seq in seqs if seq >= first), first, last + 1)
            out.append(f"{error.why}: of the sequences without a message, {_shown(missing)}, some are lost")
        return out

    def _raw(self, pgno: int, spans: Spans, depth: int) -> None:
        """Whole records in a damaged page, and in the pages that it seems to lead to."""
        if self._searched.get(pgno, -1) >= depth:
            return
        self._searched[pgno] = depth
        try:
            page = self._pages.read(pgno)
        except PageError:
            return
        size = len(page)
        for at in range(HEADER_SIZE, size - 7, 2):
            keyed = int.from_bytes(page[at + 6 : at + 8], _ORDER)
            flags = int.from_bytes(page[at + 4 : at + 6], _ORDER)
            if keyed == 8:
                self._take(page, at, flags, spans)
            if depth and keyed in (0, 8) and flags == 0:
                child = int.from_bytes(page[at : at + 4], _ORDER)
                if 2 <= child <= self._tree.last_pgno and child != pgno and self._leads_to(child):
                    self._raw(child, spans, depth - 1)

    def _all_pages(self, spans: Spans) -> None:
        """Whole records in any page that may be a leaf; damaged ones are among them."""
        pgno = 2
        while pgno <= self._tree.last_pgno:
            pgno += self._one_page(pgno, spans)

    def _one_page(self, pgno: int, spans: Spans) -> int:
        """Take the records of a page; return how many pages further the next one is."""
        if self._free and self._free[pgno]:
            return 1
        try:
            page = self._pages.read(pgno)
        except PageError:
            return 1
        number, flags = int.from_bytes(page[:WORD], _ORDER), int.from_bytes(page[WORD + 2 : WORD + 4], _ORDER)
        if number == pgno and flags == _OVERFLOW:
            run = int.from_bytes(page[WORD + 4 : WORD + 8], _ORDER)
            return run if 0 < run <= self._tree.last_pgno + 1 - pgno else 1
        if number == pgno and flags == _BRANCH:
            return 1
        lower = int.from_bytes(page[WORD + 4 : WORD + 6], _ORDER)
        sound = number == pgno and flags == _LEAF and HEADER_SIZE < lower <= len(page)
        nodes = _node_offsets(page, HEADER_SIZE, lower) if sound else _ascending(page)
        for at in nodes:
            self._take(page, at, int.from_bytes(page[at + 4 : at + 6], _ORDER), spans)
        if not nodes and not sound:
            self._raw(pgno, spans, 0)
        return 1

    def _take(self, page: Buffer, at: int, flags: int, spans: Spans) -> None:
        key = bytes(page[at + 8 : at + 16])
        if (
            flags not in (0, BIG)
            or len(key) < 8
            or int.from_bytes(page[at + 6 : at + 8], _ORDER) != 8
            or key in self._found
        ):
            return
        if not any(low <= key < high for low, high in spans):
            return
        size = int.from_bytes(page[at : at + 2], _ORDER) | int.from_bytes(page[at + 2 : at + 4], _ORDER) << 16
        if flags & BIG:
            run = int.from_bytes(page[at + 16 : at + 16 + WORD], _ORDER)
            record = self._pages.run(run, size)
        else:
            record = bytes(page[at + 16 : at + 16 + size])
        if len(record) == size and is_whole(self._salt, key, record):
            self._found[key] = record

    def _leads_to(self, child: int) -> bool:
        """Return whether it is a page of a tree, by its own word."""
        try:
            page = self._pages.read(child)
        except PageError:
            return False
        flags = int.from_bytes(page[WORD + 2 : WORD + 4], _ORDER)
        return flags in (1, 2) and int.from_bytes(page[:WORD], _ORDER) == child


def _node_offsets(page: Buffer, first: int, end: int) -> list[int]:
    """Return where the messages of a leaf begin, by its list of them at [first, end).

    A page that is searched without the list gives messages that were removed from it, too.
    """
    places = range(first, min(end, len(page)) - 1, 2)
    return [int.from_bytes(page[place : place + 2], _ORDER) for place in places]


def _ascending(page: Buffer) -> list[int]:
    """Return where the messages of a leaf begin whose header is damaged: its list, as far as the keys ascend."""
    out: list[int] = []
    before = b""
    for at in _node_offsets(page, HEADER_SIZE, len(page)):
        key = bytes(page[at + 8 : at + 16])
        if at <= HEADER_SIZE + 2 * len(out) or int.from_bytes(page[at + 6 : at + 8], _ORDER) != 8 or not before < key:
            break
        out.append(at)
        before = key
    return out


def _gaps(seqs: list[int], first: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of [first, end) that `seqs` leave open."""
    out = []
    at = first
    for seq in seqs:
        if seq > at:
            out.append((at, seq - 1))
        at = seq + 1
    if at < end:
        out.append((at, end - 1))
    return out


def _spans(seqs: list[int]) -> list[tuple[int, int]]:
    """Return the spans of sequences, which ascend."""
    out: list[tuple[int, int]] = []
    for seq in seqs:
        out[-1:] = [(out[-1][0], seq)] if out and out[-1][1] == seq - 1 else [*out[-1:], (seq, seq)]
    return out


def _shown(spans: list[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans) or "none"


def _batches(entries: Entries) -> Iterator[list[tuple[bytes, bytes]]]:
    items = iter(entries.items())
    while batch := list(islice(items, _BATCH)):
        yield batch


def _change_counters(path: Path, changes: dict[int, dict[str, int]]) -> None:
    """Change members of the counters of streams."""
    environment = lmdb.open(str(path), max_dbs=8, map_size=(path / "data.mdb").stat().st_size, mode=0o600)
    try:
        for stream_id, members in changes.items():
            key = counters_key(stream_id)
            with environment.begin(write=True) as txn:
                counters = msgspec.structs.replace(counters_of(key, txn.get(key) or b""), **members)
                txn.put(key, seal(key, msgspec.msgpack.encode(counters)))
    except lmdb.Error as error:
        raise as_store_error(error) from error
    finally:
        environment.close()


def _write(path: Path, kept: dict[int, Entries], empty: Sequence[bytes]) -> None:
    """Write the readable records into databases of their own, and make `empty` ones."""
    size = (path / "data.mdb").stat().st_size
    room = 2 * sum(len(record) + 8192 for entries in kept.values() for record in entries.values()) + (16 << 20)
    environment = lmdb.open(str(path), map_size=size + room, max_dbs=len(kept) + len(empty) + 8, mode=0o600)
    try:
        for name in empty:
            with environment.begin(write=True) as txn:
                txn.drop(environment.open_db(SALVAGED + name, txn=txn), delete=False)
        for stream_id, entries in kept.items():
            with environment.begin(write=True) as txn:
                db = environment.open_db(SALVAGED + messages_db_name(stream_id), txn=txn)
                txn.drop(db, delete=False)
            for batch in _batches(entries):
                with environment.begin(write=True) as txn:
                    txn.cursor(db).putmulti(batch, append=True)
    except lmdb.Error as error:
        raise as_store_error(error) from error
    finally:
        environment.close()
