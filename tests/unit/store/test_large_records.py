"""Records of many pages: what asks for their subjects and sizes reads neither all of their pages nor many of them at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_store import Log, Store
from eyot_store.lmdb import reader as lmdb_reader
from eyot_store.log import reads
from eyot_store.log.subjects import WALK_MAX
from eyot_store.pages.errors import PageError
from eyot_store.pages.pages import Pages
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import LARGE_RECORD, encode_body, pack_u64
from support.store.store import FAST, JOURNAL, commit, make_log, open_inline

KEY = pack_u64(7)


def record(payload: int) -> tuple[RecordCodec, bytearray]:
    codec = RecordCodec(1, None)
    return codec, bytearray(codec.summed(KEY, encode_body((1 << 60, b"a.b", b"", b"x" * payload))))


@pytest.mark.parametrize(("payload", "subject"), [(100, None), (2 * LARGE_RECORD, b"a.b")])
def test_the_subject_of_a_large_record_does_not_need_its_payload(payload: int, subject: bytes | None) -> None:
    codec, value = record(payload)
    assert codec.subject(KEY, bytes(value)) == b"a.b"
    value[payload // 2] ^= 1
    assert codec.subject(KEY, bytes(value)) == subject


def test_a_large_record_whose_lengths_do_not_add_up_has_no_subject() -> None:
    codec, value = record(2 * LARGE_RECORD)
    assert codec.subject(KEY, bytes(value[:-5])) is None
    value[value.index(b"x") - 1] ^= 1  # the payload's length
    assert codec.subject(KEY, bytes(value)) is None


def filled(path: Path, options: Any, count: int, payload: int) -> tuple[Store, Log]:
    """A stream in which every 40th message is `rare`, and none is in the journal alone."""
    store = open_inline(path, options)
    log = make_log(store)
    for begin in range(1, count + 1, 20):
        txn = store.begin()
        for seq in range(begin, begin + 20):
            log.append(txn, b"a" if seq % 40 else b"rare", b"", b"x" * payload, seq)
        assert commit(store, txn) is None
    store.close()
    store = open_inline(path, options)
    return store, store.streams()[0]


@pytest.mark.parametrize("options", [FAST, JOURNAL], ids=["lmdb", "journal"])
def test_a_filtered_read_scans_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    for module in (reads, lmdb_reader):
        monkeypatch.setattr(module, "SCAN_BYTES_MAX", 100_000)
    store, log = filled(tmp_path / "s", options, 200, 10_000)
    found, steps, seq = [], 0, 1
    while seq <= log.committed_seq:
        messages, after = log.read(seq, max_messages=10, max_bytes=1 << 20, filters=(b"rare",))
        assert seq < after <= seq + 10
        found += [message.seq for message in messages]
        steps, seq = steps + 1, after
    assert found == [40, 80, 120, 160, 200]
    assert steps >= 20
    runs, seq = [], 1
    while seq <= log.committed_seq:
        read = log.read_run(seq, max_messages=10, max_bytes=1 << 20, filters=(b"rare",))
        if read is None:  # few match: they are read one by one, from sequences that are known by now
            break
        run, after = read
        assert seq < after
        runs += run.seqs()
        seq = after
    assert runs == found[: len(runs)]
    store.close()


def test_few_large_records_are_walked_in_one_go(tmp_path: Path) -> None:
    store, log = filled(tmp_path / "large", FAST, 40, 100_000)
    assert 30 <= log.in_one_go(WALK_MAX) <= 45
    assert log.in_one_go(16) == 4
    assert log.in_one_go(3) == 3
    store.close()
    store, log = filled(tmp_path / "small", FAST, 40, 1000)
    assert log.in_one_go(WALK_MAX) == WALK_MAX
    store.close()


def test_heads_of_large_records_are_read_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one takes, each read returns one at least; what is told of the stream does not depend on it."""
    store, log = filled(tmp_path / "s", FAST, 120, 10_000)
    said = [log.subject_totals(), log.count(50, (b"rare",)), log.last_seq_for(b"rare"), log.first_seq_for(b"rare")]
    monkeypatch.setattr(lmdb_reader, "HEADS_NS_MAX", -1)
    heads, corrupt, after = log.view.records.heads(3, 100, 50)
    assert (heads, corrupt, after) == ([(3, b"a")], [], 4)
    log.index.reload(None)
    assert [
        log.subject_totals(),
        log.count(50, (b"rare",)),
        log.last_seq_for(b"rare"),
        log.first_seq_for(b"rare"),
    ] == said
    below = log.lasts_below([b"a", b"rare"], 100)
    while not below.step():
        pass
    assert below.found == {b"a": 100, b"rare": 80}
    store.close()


def test_pages_of_large_records_are_checked_a_leaf_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = filled(tmp_path / "s", FAST, 2000, 5000)
    checked = 0
    damaged_runs = Pages.damaged_runs

    def counted(*args: Any) -> Iterator[PageError]:
        nonlocal checked
        checked += 1
        return damaged_runs(*args)

    monkeypatch.setattr(Pages, "damaged_runs", counted)
    known = store._environment.pages._known
    known[:] = bytes(len(known))  # as after a start that had no reason to read them
    assert len(log.read(1, max_messages=1, max_bytes=1 << 20).messages) == 1
    assert 1 <= checked < 5, "of the 20 leaves and more that there are"
    store.close()
