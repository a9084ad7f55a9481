"""Streams of long records: what needs no payload reads none, and says the same as what reads everything."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eyot_store import Log
from eyot_store.check.check import check
from eyot_store.lmdb import reader
from eyot_store.pages.layout import has_long_data
from eyot_store.records.record import LARGE_RECORD, encode_record, head_of_long
from eyot_store.subjects.batch_index import BatchIndex
from eyot_store.txn import Txn
from support.store.paged_store import tree_of
from support.store.store import FAST, JOURNAL, commit, open_inline
from support.store.store import make_log as new_log
from unit.store.test_encryption import KEYS, sealed

OPTIONS = {"lmdb": FAST, "journal": JOURNAL, "encrypted": sealed(FAST)}
NOW_NS = 1_790_000_000_000_000_000
SIZES = [5, 3000, 9000, 20_000, 30_000, 70_000]
SUBJECTS = [b"a", b"b.c", b"d." + b"e" * 300]
HEADERS = [b"", b"", b"NATS/1.0\r\nX: 1\r\n\r\n", b"NATS/1.0\r\nX: " + b"y" * 6000 + b"\r\n\r\n"]


def heads(log: Log, limit: int) -> list[object]:
    """Return all of them, read `limit` at a time or fewer: a read ends early when it takes long."""
    out: list[object] = []
    seq, last = 1, log.state.last_seq
    while seq <= last:
        found, corrupt, seq = log.view.records.heads(seq, last, limit)
        assert not corrupt
        assert len(found) <= limit
        out += found
    return out


def purged_some(log: Log, txn: Txn, first: int, last: int, subject_filter: bytes, at_most: int) -> int:
    """Purge up to so many messages; return how many. A call ends early when it takes long."""
    purged = 0
    while first <= last and purged < at_most:
        count, first = log.purge_some(txn, first, last, subject_filter, at_most - purged)
        purged += count
    return purged


def play(path: Path, seed: int, name: str) -> list[object]:
    """Return what a stream tells while messages come and go at random."""
    rng = random.Random(seed)
    store = open_inline(path, OPTIONS[name])
    log = new_log(store, "S")
    told: list[object] = []
    for step in range(40):
        if step % 8 == 5:  # without what memory knows
            store.close()
            store = open_inline(path, OPTIONS[name])
            (log,) = store.streams()
        state, txn = log.state, store.begin()
        what = rng.choice(["append", "append", "append", "remove", "remove first", "purge", "purge some"])
        if what == "append" or state.messages < 20:
            for _ in range(rng.randrange(20)):
                payload = rng.randbytes(4) * (rng.choice(SIZES) // 4)
                log.append(txn, rng.choice(SUBJECTS), rng.choice(HEADERS), payload, NOW_NS + state.last_seq)
        elif what == "remove":
            for _ in range(5):
                log.remove(txn, rng.randrange(state.first_seq, state.last_seq + 1))
        elif what == "remove first":
            log.remove_first(txn, rng.randrange(1, 8), "max_msgs", rng.choice([0, 50_000]))
        elif what == "purge some":
            below = rng.choice([0, 0, state.first_seq + rng.randrange(20)])
            subject = rng.choice([b"", b"a", b"b.c", b"*.c", b"d.>"])
            told.append(log.purge(txn, below, subject, keep=rng.randrange(8, 20)))
            told.append(purged_some(log, txn, state.first_seq, state.first_seq + 9, b"*.c", 3))
        else:
            log.purge(txn, state.first_seq + rng.randrange(4))
        assert commit(store, txn) is None
        records, last = log.view.records, state.last_seq
        seqs = records.seqs(1, last, 1000)
        told += [
            what,
            (state.first_seq, last, state.messages, state.bytes),
            records.count_bytes(seqs, 30, 4),
            heads(log, 1000),
            heads(log, 3),
            [records.next_seq(rng.randrange(last + 2)) for _ in range(5)],
            records.seqs(rng.randrange(last + 1), last, 7),
            sorted(log.subject_totals()),
        ]
    totals = dict(log.subject_totals())
    assert totals == {subject: log.count(1, (subject,)) for subject in totals}
    store.close()
    keys = KEYS if name == "encrypted" else None
    assert check(path, keys).problems == []
    return told


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_is_told_with_and_without_payloads(tmp_path: Path, monkeypatch, name: str, seed: int) -> None:
    told = play(tmp_path / "long", seed, name)
    if name != "encrypted":
        pages, tree = tree_of(tmp_path / "long", 1)
        assert has_long_data(tree), "the stream has short records: this tests nothing"
        pages.close()
    for module in ("eyot_store.pages.pages", "eyot_store.lmdb.reader", "eyot_store.lmdb.batch"):
        monkeypatch.setattr(f"{module}.has_long_data", lambda tree: False)
    assert play(tmp_path / "whole", seed, name) == told


def test_limits_and_sweeps_read_no_long_payload(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "store"
    store = open_inline(path)
    log = new_log(store, "S")
    txn = store.begin()
    for number in range(200):
        log.append(txn, b"s.%d" % (number % 3), b"", b"x" * 40_000, NOW_NS + number)
    assert commit(store, txn) is None

    whole: list[int] = []
    monkeypatch.setattr(reader, "count_bytes", lambda records, *_: whole.append(1) or [])
    monkeypatch.setattr(BatchIndex, "went", lambda *_: whole.append(1))
    records = log.view.records
    assert len(records.count_bytes(range(1, 201), 30, 4)) == 200
    assert len(heads(log, 500)) == 200
    txn = store.begin()
    assert log.remove_first(txn, 50, "max_msgs") == list(range(1, 51))
    assert commit(store, txn) is None
    for name in ("get", "get_many", "scan", "gather"):
        monkeypatch.setattr(type(records), name, lambda *_: whole.append(1))
    txn = store.begin()
    assert log.remove(txn, 60)
    assert log.purge(txn, subject_filter=b"s.1", keep=5) == 45
    assert log.purge(txn, below_seq=120) == 45
    assert commit(store, txn) is None
    txn = store.begin()
    assert purged_some(log, txn, 1, 200, b"*.2", 3) == 3
    assert log.purge(txn, subject_filter=b"*.2", keep=5) > 10
    assert log.purge(txn, 150, subject_filter=b"s.0", keep=2) > 5
    assert log.purge(txn, keep=10) > 10
    assert commit(store, txn) is None
    assert not whole
    store.close()


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("size", SIZES)
def test_the_head_of_a_long_record_is_read_from_its_beginning(size: int, subject: bytes, header: bytes) -> None:
    record = encode_record(1, b"12345678", NOW_NS, subject, header, b"p" * size)
    head = head_of_long(record[:4080], len(record))
    if len(header) > 4000 and head is None:
        return
    assert head is not None
    assert head == (subject, len(header), size)
    for wrong in (len(record) - 1, len(record) + 1, LARGE_RECORD):
        assert wrong == len(record) or head_of_long(record[:4080], wrong) is None
    for length in range(12 + len(subject)):
        assert head_of_long(record[:length], len(record)) is None


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_a_head_or_none(seed: int) -> None:
    rng = random.Random(seed)
    record = encode_record(1, b"12345678", NOW_NS, b"subject", b"NATS/1.0\r\n\r\n", b"p" * 20_000)
    for _ in range(3000):
        data = bytearray(record[: rng.choice([60, 4080])])
        for _ in range(rng.randrange(3)):
            data[rng.randrange(60)] = rng.randrange(256)
        head = head_of_long(bytes(data), len(record))
        assert head is None or len(head.subject) + head.header + head.payload < len(record)
