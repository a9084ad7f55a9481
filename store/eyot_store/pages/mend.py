"""Examines a data file before LMDB opens it (`survey`), and recovers what loses nothing or little.

- A meta page that cannot be read, or whose snapshot is damaged in the shared databases: the other meta page is used.
  LMDB keeps the pages of the last two commits; the journal, where it still exists, restores what the newest commit
  held.
- A damaged list of free pages is dropped: those pages stay unused until the file is rewritten (`eyot-check
  --compact`).
- An index of subjects is dropped, since it is derived; readable consumers, states and positions are rewritten.

All of that takes effect with one meta page, written last. Streams with damaged messages stay as they are
(`Survey.streams`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import lmdb
import msgspec

from eyot_store.errors import RESTORE, StoreError
from eyot_store.native import child_at, data_at, key_at, nodes_of, search
from eyot_store.page_check import HEADER_SIZE, WORD
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import EMPTY, Db, Meta, Tree, pack_db, pack_meta
from eyot_store.pages.lost_commits import counted_anywhere, raise_to, stored_anywhere
from eyot_store.pages.lost_entries import entries_anywhere
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import INDEX, SHARED, STREAMS, Survey, stream_number, survey
from eyot_store.records.record import Counters, unpack_u64, unseal

SALVAGED = b"salvaged:"
#: Of a stream's number, which a key of the shared databases is or begins with.
_NUMBER_BYTES = 8
_decode_counters = msgspec.msgpack.Decoder(Counters).decode
_decode_mark = msgspec.msgpack.Decoder(tuple[bytes, int]).decode


class Examined(NamedTuple):
    """The result. `notes`: sentences about damage; `went_back`: commits may be missing."""

    survey: Survey
    notes: list[str]
    went_back: bool
    known: bytes
    """For `Pages`."""
    last_seqs: dict[int, int]
    """By stream: the highest last sequence in any snapshot."""


def examine(path: Path, *, change: bool = True) -> Examined:
    """Examine the data file in `path` and recover it (unless `change` is False). Raises StoreError when it cannot be opened."""
    data = path / "data.mdb"
    pages = _open(data)
    try:
        metas = pages.metas()
        found = [survey(pages, meta) for meta in metas[:1]]
        follow = len(metas) == 2 and metas[0].txnid - metas[1].txnid <= 1
        if not follow or not found[0].is_usable:
            found += [survey(pages, meta) for meta in metas[1:]]
        chosen = _best(found, follow)
        notes = _notes(found, chosen, follow, len(metas))
        newest = max(meta.txnid for meta in metas)
        went_back = chosen is not found[0] or not follow
        last_seqs: dict[int, int] = {}
        for each in found:
            raise_to(last_seqs, dict.fromkeys(filter(None, map(stream_number, each.trees)), 0))
            raise_to(last_seqs, {number: counters.last_seq for number, counters in counters_in(each).items()})
        went_back = went_back or len(metas) < 2
        if went_back or last_seqs.keys() - counters_in(chosen):
            raise_to(last_seqs, counted_anywhere(data))
            raise_to(last_seqs, stored_anywhere(pages, last_seqs))
        if change:
            if chosen.meta.txnid != newest or not follow or chosen.free:
                free = chosen.meta.free
                if chosen.free:
                    free = EMPTY._replace(flags=free.flags)
                write_meta(data, chosen.meta._replace(free=free, txnid=newest + 1), newest + 1)
                if not chosen.shared:
                    return _again(path, notes, went_back, last_seqs, chosen)
            if chosen.shared:
                _salvage(path, pages, chosen, notes)
                return _again(path, notes, went_back, last_seqs, chosen)
        return Examined(chosen, notes, went_back, pages.known, last_seqs)
    finally:
        pages.close()


def _again(path: Path, notes: list[str], went_back: bool, last_seqs: dict[int, int], before: Survey) -> Examined:
    """Examine the recovered file, which must be as sound as expected."""
    pages = _open(path / "data.mdb")
    try:
        found = survey(pages, pages.metas()[0])
        known = pages.known
    finally:
        pages.close()
    if not found.is_usable or found.free:
        why = found.main or found.free or found.shared
        raise StoreError("corrupt", f"the database cannot be repaired: {why}", remedy=RESTORE)
    found.streams = {**before.streams, **found.streams}
    return Examined(found, notes, went_back, known, last_seqs)


def _open(data: Path) -> Pages:
    try:
        return Pages(data)
    except OSError as error:
        raise StoreError("io", f"{data} cannot be read: {error.strerror}") from error


def _best(found: list[Survey], follow: bool) -> Survey:
    usable = [each for each in found if each.is_usable]
    if usable:
        return usable[0] if follow else max(usable, key=_how_far)
    opened = [each for each in found if each.main is None and STREAMS in each.trees]
    if not opened:
        raise StoreError(
            "corrupt", f"the database cannot be opened: {found[0].main or 'it has no streams'}", remedy=RESTORE
        )
    return min(opened, key=lambda each: len(each.shared))


def counters_in(found: Survey) -> dict[int, Counters]:
    """Return the streams' counters in the main database, those that can be read."""
    out = {}
    for key, value in found.values.items():
        if key.startswith(b"stream:") and key.endswith(b":counters"):
            with suppress(StoreError, msgspec.MsgspecError, ValueError):
                out[int(key[7:15], 16)] = _decode_counters(unseal(key, value, "counters"))
    return out


def counters_of(key: bytes, value: bytes) -> Counters:
    """Return the counters under `key`; empty ones if they cannot be read."""
    with suppress(StoreError, msgspec.MsgspecError):
        return _decode_counters(unseal(key, value, "counters"))
    return Counters()


def _how_far(found: Survey) -> tuple[int, int, int]:
    """Return how much a snapshot holds, to be compared with another one's."""
    try:
        applied = _decode_mark(unseal(b"journal", found.values.get(b"journal", b""), "mark"))[1]
    except (StoreError, msgspec.MsgspecError):
        applied = 0
    return applied, sum(each.last_seq for each in counters_in(found).values()), found.meta.txnid


def _notes(found: list[Survey], chosen: Survey, follow: bool, metas: int) -> list[str]:
    notes = []
    if metas < 2:
        notes.append("a meta page of the database is damaged; the other one is used, and a commit may be lost")
    elif not follow:
        notes.append("the meta pages of the database do not follow each other; commits may be lost")
    elif chosen is not found[0]:
        reason = found[0].main or next(iter(found[0].shared.values()))
        notes.append(f"the last commit is damaged ({reason.message}); the one before it is used")
    if chosen.free:
        notes.append(f"the list of free pages is damaged ({chosen.free}); they are lost until `eyot-check --compact`")
    notes += [f"{error.message}" for name, error in chosen.shared.items() if name != INDEX]
    return notes


# -- writing -----------------------------------------------------------------------------------------------------------


def write_meta(data: Path, meta: Meta, txnid: int) -> None:
    """Make `meta` the newest, as the transaction `txnid`; durable on return."""
    slot = txnid & 1
    page = pack_meta(meta._replace(slot=slot, txnid=txnid))
    fd = os.open(data, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)  # flush the pages that the meta page refers to
        os.pwrite(fd, page, slot * meta.page_size)
        os.fsync(fd)
    finally:
        os.close(fd)


def _salvage(path: Path, pages: Pages, found: Survey, notes: list[str]) -> None:
    """Rewrite the readable entries of damaged databases, and replace these."""
    damaged = [name for name in found.shared if name in (*SHARED, INDEX)]
    kept: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for name in damaged:
        tree = found.trees[name]
        entries = [] if name == INDEX else readable(pages, tree, lambda error: notes.append(_lost(name, error)))  # noqa: B023
        kept[name] = [entry for entry in entries if _is_key_of(name, entry[0])]
    if STREAMS in kept:
        kept[STREAMS] = _with_lost_entries(path, pages, found, kept[STREAMS], notes)
    _store_salvaged(path, kept)
    replace_records(path, {name: SALVAGED + name for name in damaged})


def _is_key_of(name: bytes, key: bytes) -> bool:
    """Return whether `key` can be one of the database `name`: a stale page may be of another one.

    It is a stream's number; in all databases but that of the streams something follows.
    """
    return len(key) == _NUMBER_BYTES if name == STREAMS else len(key) > _NUMBER_BYTES


def _with_lost_entries(
    path: Path, pages: Pages, found: Survey, entries: list[tuple[bytes, bytes]], notes: list[str]
) -> list[tuple[bytes, bytes]]:
    """Return the entries of streams, with those that are somewhere else in the file."""
    missing = found.stored - {unpack_u64(key)[0] for key, _ in entries}
    damaged_page = found.shared[STREAMS].pgno
    more = entries_anywhere(path / "data.mdb", pages, missing, damaged_page)
    for each in more:
        number = unpack_u64(each.key)[0]
        missing.remove(number)
        older = "" if each.pgno == damaged_page else "; its configuration may be an older one"
        notes.append(f"the entry of stream {number} is recovered from page {each.pgno}{older}")
    notes += [f"the entry of stream {number} is lost" for number in sorted(missing)]
    return sorted([*entries, *((each.key, each.sealed) for each in more)])


def replace_records(path: Path, places: dict[bytes, bytes]) -> None:
    """Exchange databases with others, in one step; the others are empty afterwards. Raises StoreError."""
    data = path / "data.mdb"
    again = _open(data)
    try:
        meta = again.metas()[0]
        fresh = survey(again, meta, leaves=False)
        if fresh.main is not None:
            raise fresh.main
        for name, other in places.items():
            for place, db in ((name, fresh.trees[other].db), (other, EMPTY)):
                meta = _with_record(again, data, meta, place, db)
        write_meta(data, meta, meta.txnid + 1)
    finally:
        again.close()


def _lost(name: bytes, error: PageError) -> str:
    """Describe which entries of a shared database are lost."""
    first = unpack_u64(error.low.ljust(8, b"\0")[:8])[0]
    last = unpack_u64(error.high.ljust(8, b"\0")[:8])[0] if error.high is not None else None
    where = (
        f"streams from {first} on"
        if last is None
        else f"stream {first}"
        if first == last
        else f"streams {first} to {last}"
    )
    what = {b"streams": "entries", b"consumers": "consumers", b"consumer_states": "states of consumers"}
    return f"{error.message}; {what.get(name, 'positions of mirrors and sources')} of {where} are lost"


def readable(
    pages: Pages, tree: Tree, on_damage: Callable[[PageError], None] = lambda error: None
) -> list[tuple[bytes, bytes]]:
    """Return the entries of a tree that can be read."""
    out = []
    for page, _, _ in pages.walk(tree, on_damage, runs=False):
        for index in range(nodes_of(page)):
            try:
                out.append((key_at(page, index), pages.data(tree, page, index)))
            except PageError as error:
                on_damage(error)
    return out


def _store_salvaged(path: Path, kept: dict[bytes, list[tuple[bytes, bytes]]]) -> None:
    size = (path / "data.mdb").stat().st_size
    room = 8 * sum(len(key) + len(value) + 64 for entries in kept.values() for key, value in entries) + (4 << 20)
    environment = lmdb.open(str(path), map_size=size + room, max_dbs=16, mode=0o600)
    try:
        with environment.begin(write=True) as txn:
            for name, entries in kept.items():
                db = environment.open_db(SALVAGED + name, txn=txn)
                txn.drop(db, delete=False)
                for key, value in entries:
                    txn.put(key, value, db=db)
    except lmdb.Error as error:
        raise StoreError("io", f"the rest of the database cannot be written: {error}") from error
    finally:
        environment.close()


def _with_record(pages: Pages, data: Path, meta: Meta, name: bytes, db: Db) -> Meta:
    """Return the main database with another record for a database, on pages of their own after the others; not active yet."""
    tree = meta.main_tree
    way: list[tuple[int, bytearray, int]] = []
    pgno = tree.db.root
    for level in range(1, tree.db.depth + 1):
        page = pages.sound(tree, pgno, level, b"", None)
        index = search(page, name)
        way.append((pgno, bytearray(page), index))
        if level < tree.db.depth:
            pgno = child_at(page, index)
    _, leaf, index = way[-1]
    if index >= nodes_of(leaf) or key_at(leaf, index) != name:
        return meta
    _, size, at = data_at(leaf, index)
    leaf[at : at + size] = pack_db(db)
    last_pgno, below = meta.last_pgno, 0
    fd = os.open(data, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _, copy, index in reversed(way):
            last_pgno += 1
            copy[:WORD] = last_pgno.to_bytes(WORD, sys.byteorder)
            if below:
                node = int.from_bytes(copy[HEADER_SIZE + 2 * index :][:2], sys.byteorder)
                _point(copy, node, below)
            below = last_pgno
            os.pwrite(fd, copy, last_pgno * meta.page_size)
        os.fsync(fd)
    finally:
        os.close(fd)
    return meta._replace(main=meta.main._replace(root=below), last_pgno=last_pgno)


def _point(page: bytearray, node: int, child: int) -> None:
    """Have a branch's node lead to `child`."""
    for shift in range(3 if WORD == 8 else 2):
        half = child >> 16 * shift & 0xFFFF
        page[node + 2 * shift : node + 2 * shift + 2] = half.to_bytes(2, sys.byteorder)


def store_exists(path: Path) -> bool:
    """Return whether there is a data file that is not empty."""
    data = path / "data.mdb"
    return data.exists() and data.stat().st_size > 0
