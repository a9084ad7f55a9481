"""Purged and deleted messages: invisible at once, and removed from the file in slices."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from eyot_store import Log, Store, StoreOptions
from eyot_store.check.check import check
from eyot_store.lmdb import committer as lmdb_committer
from support.store.store import Loop, commit, fill, make_log, open_inline


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_committer, "_TIDY_RECORDS", 100)


def in_file(store: Store, stream_id: int) -> int:
    """Records of a stream that the file holds."""
    environment: Any = store._environment
    with environment.lmdb.begin() as txn:
        name = b"stream:%08x" % stream_id
        if txn.get(name) is None:
            return -1
        db = environment.lmdb.open_db(name, create=False) if stream_id not in environment.messages else None
        return int(txn.stat(db or environment.messages[stream_id])["entries"])


def purged(store: Store, log: Log, below: int) -> None:
    txn = store.begin()
    log.purge(txn, below_seq=below)
    assert commit(store, txn) is None


def test_a_purge_is_done_at_once_and_tidied_later(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    for _ in range(5):
        fill(store, log, 200)
    purged(store, log, 951)
    assert (log.state.messages, log.state.first_seq) == (50, 951)
    assert log.get(950) is None
    left = in_file(store, log.id)
    assert 50 < left < 1000
    # A crash in between changes nothing: the rest is taken out by whoever opens the store next.
    store.crash()
    assert check(tmp_path / "store").problems == []
    store = open_inline(tmp_path / "store")
    log = store.streams()[0]
    assert store.recounted == []
    assert (log.state.messages, log.state.first_seq, log.get(950)) == (50, 951, None)
    assert len(log.read(1, max_messages=99, max_bytes=999).messages) == 50
    assert dict(log.subject_totals()) == {b"a": 50}
    for _ in range(20):
        store.commit_now()
    assert in_file(store, log.id) == 50
    store.crash()
    assert check(tmp_path / "store").problems == []


def test_large_messages_are_removed_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each removed record is read for its subject: one step reads a bounded number of bytes."""
    monkeypatch.setattr(lmdb_committer, "SLICE_BYTES", 9000)
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    txn = store.begin()
    for seq in range(1, 61):
        log.append(txn, b"a", b"", b"x" * 3000, seq)
    assert commit(store, txn) is None
    purged(store, log, 51)
    left = [in_file(store, log.id)]
    while left[-1] > 10:
        store.commit_now()
        left.append(in_file(store, log.id))
    assert all(0 < before - after <= 3 for before, after in itertools.pairwise(left))
    assert (log.state.messages, log.state.first_seq) == (10, 51)
    store.close()
    assert check(tmp_path / "store").problems == []


def test_a_second_purge_before_the_first_is_tidied(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    fill(store, log, 600)
    purged(store, log, 301)
    purged(store, log, 0)
    assert (log.state.messages, log.state.bytes, log.state.first_seq) == (0, 0, 601)
    fill(store, log, 3)
    assert [m.seq for m in log.read(1, max_messages=9, max_bytes=99).messages] == [601, 602, 603]
    for _ in range(20):
        store.commit_now()
    assert in_file(store, log.id) == 3
    store.crash()
    assert check(tmp_path / "store").problems == []


def test_deleted_streams(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log, empty = make_log(store), make_log(store, "E")
    fill(store, log, 500)
    txn = store.begin()
    log.delete(txn)
    empty.delete(txn)
    again = store.create_stream(txn, "A", "S", b"again", 2)
    again.append(txn, b"a", b"", b"", 1)
    assert commit(store, txn) is None
    store.crash()
    assert check(tmp_path / "store").problems == []
    store = open_inline(tmp_path / "store")
    assert [(log.name, log.config, log.state.messages) for log in store.streams()] == [("S", b"again", 1)]
    assert store._environment.deleted_streams()
    for _ in range(20):
        store.commit_now()
    assert store._environment.deleted_streams() == []
    assert [in_file(store, number) for number in (1, 2, 3)] == [-1, -1, 1]
    store.crash()
    assert check(tmp_path / "store").problems == []


@pytest.mark.parametrize("committer_name", ["journal", "lmdb"])
def test_the_committing_side_tidies_while_it_waits(tmp_path: Path, committer_name: Any) -> None:
    loop = Loop()
    options = StoreOptions(committer=committer_name)
    store = Store.open(tmp_path / "store", notify=loop.notify, options=options)
    done: list[Any] = []
    txn = store.begin()
    log, other = (store.create_stream(txn, "A", name, b"", 1) for name in ("S", "T"))
    for number in range(3000):
        log.append(txn, b"a", b"", b"", number)
        other.append(txn, b"a", b"", b"", number)
    store.submit(txn, done.append)
    txn = store.begin()
    other.delete(txn)
    store.submit(txn, done.append)
    loop.run(lambda: len(done) == 2)
    txn = store.begin()
    assert log.purge(txn, keep=7) == 2993
    store.submit(txn, done.append)
    loop.run(lambda: len(done) == 3)
    assert done == [None] * 3
    committer: Any = store._committer
    if committer_name == "journal":
        assert committer._applier.drain() is None
        committer = committer._lmdb
    while committer.untidy:
        pass
    assert store.stats.tidying_failed == ""
    store.close()
    report = check(tmp_path / "store")
    assert report.problems == []
    assert [(stream.name, stream.messages) for stream in report.streams] == [("S", 7)]
    store = open_inline(tmp_path / "store")
    assert in_file(store, 1) == 7
    store.crash()


def test_space_is_used_again(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    sizes = []
    for _ in range(12):
        fill(store, log, 1000, payload=bytes(500))
        purged(store, log, 0)
        for _ in range(12):
            store.commit_now()
        sizes.append(store.disk_bytes())
    assert sizes[-1] <= sizes[6]
    store.crash()
