"""`eyot-check --repair`: rewrites damaged streams from their readable records, and reports what is lost.

With `raw`, every page of the file is read that is not listed as free, so that leaves are found when the branches above
them are gone. The new messages replace the old ones in one step. The old pages stay unused until `--compact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import lmdb
import msgspec

from eyot_store.check.salvage import Entries, Salvage, read_whole_file
from eyot_store.environment import as_store_error, counters_key, messages_db_name
from eyot_store.errors import StoreError
from eyot_store.journal.losses import gone_position
from eyot_store.journal.marker import DOUBTED, Marker
from eyot_store.options import StoreOptions
from eyot_store.pages.layout import SEQUENCE_KEY
from eyot_store.pages.mend import SALVAGED, counters_in, counters_of, examine, replace_records
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import INDEX, survey
from eyot_store.records.record import Counters, seal
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.store import Store, settle
from eyot_wire.quantities import counted

_BATCH = 4096
_UNKNOWN = -(1 << 62)  # messages


def repair(path: Path, keys: StoreKeys | None, *, raw: bool = False) -> list[str]:
    """Repair the store in `path`, which no process may have open; return sentences about damage and loss.

    `raw`: read pages that nothing leads to, too. Raises StoreError.
    """
    options = StoreOptions(keys=keys, skip_unreadable=True)
    store, sentences = _open(path, options)
    names = {log.id: f"{log.account}/{log.name}" for log in store.streams()}
    store.close()
    examined = examine(path)
    pages = Pages(path / "data.mdb")
    try:
        meta = pages.metas()[0]
        found = survey(pages, meta, leaves=True)
        damaged = {**examined.survey.streams, **found.streams}
        uncounted = {each: Counters(_UNKNOWN, last_seq=last) for each, last in examined.last_seqs.items()}
        counters = {**uncounted, **counters_in(found)}
        salvaged: dict[int, Salvage] = {}
        kept: dict[int, Entries] = {}
        gone: dict[int, list[tuple[int, int]]] = {}
        for stream_id in sorted(damaged):
            tree = pages.tree(meta.txnid, messages_db_name(stream_id), SEQUENCE_KEY)
            if tree is None or stream_id not in names:
                continue
            salvaged[stream_id] = Salvage(pages, tree, stream_id)
            salvaged[stream_id].read_tree()
        if raw:
            floors = {each: counters[each].floor for each in salvaged}
            read_whole_file(pages, meta.last_pgno, found.free_pages, salvaged, floors)
        for stream_id, reading in salvaged.items():
            kept[stream_id] = reading.entries()
            error = damaged[stream_id]
            sentences.append(
                f"stream {names[stream_id]}: {error.message}; kept: {counted(len(kept[stream_id]), 'message')}"
            )
            lines = reading.lost(counters[stream_id], error)
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
        _change_counters(path, {each: {"messages": _UNKNOWN, "last_seq": counters[each].last_seq} for each in kept})
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
