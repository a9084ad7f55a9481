"""Filters that select little of a tracked log: they select the same as a look at everything, and look at all subjects once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from eyot_store import Log, Store
from eyot_store.log import reads
from eyot_store.subjects import subjects
from eyot_wire.subject import matches
from support.store.store import FAST, commit, make_log, open_inline

FILTERS = [(b"a.*.7",), (b"a.3.>",), (b"a.1.1", b"a.*.9"), (b"none.>",), (b"b.>",), (b"*.2.2",)]


def read_all(log: Log, filters: tuple[bytes, ...]) -> list[int]:
    found, seq = [], 1
    while seq <= log.committed_seq:
        read = log.read(seq, max_messages=5, max_bytes=1 << 20, filters=filters)
        found += [message.seq for message in read.messages]
        seq = read.next_seq
    return found


@pytest.mark.parametrize("seed", range(8))
def test_subjects_that_come_and_go_are_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(subjects, "_NEWEST_MAX", 9)
    monkeypatch.setattr(reads, "_KNOWN_MAX", 4)
    monkeypatch.setattr(reads, "_MERGED_MAX", 12)
    rng, store = Random(seed), open_inline(tmp_path / "store", FAST)
    log = make_log(store)
    log.track()
    for _ in range(60):
        txn = store.begin()
        for _ in range(rng.choice([0, 3, 40])):
            subject = b"%b.%d.%d" % (rng.choice([b"a", b"a", b"b"]), rng.randrange(9), rng.randrange(12))
            log.append(txn, subject, b"", b"x", 1)
        for _ in range(rng.choice([0, 0, 20])):
            log.remove(txn, rng.randrange(1, log.state.last_seq + 2))
        if rng.random() < 0.1:
            log.purge(txn, keep=rng.randrange(60))
        if rng.random() < 0.2:
            store.abort(txn)
        else:
            assert commit(store, txn) is None
        if not log.subjects().tracked:
            log.track()
        everything = log.read(1, max_messages=10_000, max_bytes=1 << 30).messages
        for filters in rng.sample(FILTERS, 3):
            wanted = [each.seq for each in everything if any(matches(one, each.subject) for one in filters)]
            assert read_all(log, filters) == wanted, filters
    store.close()


def tracked(path: Path, count: int) -> tuple[Store, Log]:
    """A tracked log with a message on each of `count` subjects."""
    store = open_inline(path / "store", FAST)
    log = make_log(store)
    txn = store.begin()
    for number in range(count):
        log.append(txn, b"a.%d.%d" % (number % 10, number), b"", b"x", 1)
    assert commit(store, txn) is None
    log.track()
    return store, log


def test_a_read_looks_at_no_other_subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million subjects, each read of a consumer with wildcards took 36 ms: as often as something was published."""
    store, log = tracked(tmp_path, 2000)
    looks, select = [], reads.in_pieces
    monkeypatch.setattr(reads, "in_pieces", lambda *given: looks.append(given) or select(*given))
    for number in range(2000, 2200):
        txn = store.begin()
        log.append(txn, b"a.%d.%d" % (number % 10, number), b"", b"x", 1)
        assert commit(store, txn) is None
        for filters in ((b"a.*.2100",), (b"a.5.>",)):
            read = log.read(log.committed_seq, max_messages=9, max_bytes=9999, filters=filters)
            wanted = number == 2100 if filters[0] == b"a.*.2100" else number % 10 == 5
            assert len(read.messages) == wanted
    assert len(looks) <= 4
    store.close()


def test_a_look_in_slices_finds_what_comes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_SLICE_NS", 0)
    store, log = tracked(tmp_path, 10_000)
    selecting, steps = log.selecting((b"a.*.new",)), 0
    assert selecting is not None
    while not selecting.step():
        steps += 1
        txn = store.begin()
        log.append(txn, b"a.%d.new" % steps, b"", b"x", 1)
        assert commit(store, txn) is None
    assert steps >= 2
    assert log.selecting((b"a.*.new",)) is None
    assert log.count(1, (b"a.*.new",)) == steps
    found = log.next_for(b"a.*.new", 1)
    assert found is not None
    assert found.seq == 10_001
    assert log.next_for(b"a.*.none", 1) is None
    store.close()
