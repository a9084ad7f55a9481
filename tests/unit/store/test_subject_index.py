"""The index of subjects on disk equals one pass over the records, after any messages stored, removed, purged or lost."""

from pathlib import Path
from random import Random

import pytest

from eyot_store import Log, Store, StoreOptions
from eyot_store.check.check import check
from eyot_store.errors import StoreError
from eyot_store.native import Change, SubjectTable
from eyot_store.subjects import batch_index, index_writer
from eyot_store.subjects import index as subject_index
from eyot_store.subjects.index_reader import IndexReading
from eyot_store.subjects.subjects import Subjects
from support.store.store import FAST, JOURNAL, commit, fill, make_log, open_inline


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_writer, "INDEX_EVERY", 8)
    monkeypatch.setattr(index_writer, "SLICE_RECORDS", 5)
    monkeypatch.setattr(index_writer, "CHANGE_ENTRIES", 4)
    monkeypatch.setattr(batch_index, "INDEX_EVERY", 8)
    monkeypatch.setattr(batch_index, "RUN_MIN", 3)
    monkeypatch.setattr(batch_index, "RUN_BYTES_MIN", 200)
    _read_back(monkeypatch, 400)
    monkeypatch.setattr(index_writer, "FOLD_BYTES_MIN", 300)
    monkeypatch.setattr(subject_index, "CHUNK_ENTRIES", 3)


def _read_back(monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> None:
    """Let one step of housekeeping read this much."""
    for module in (index_writer, batch_index):
        monkeypatch.setattr(module, "SLICE_BYTES", bytes_max)


def told(subjects: Subjects) -> dict[bytes, int]:
    return {subject: count for subject, count, _, _ in subjects.matching(b">")}


def gathered(log: Log, *, tracked: bool = False) -> Subjects:
    """Anew; tracked: by looking at every record."""
    log.index.loaded = log.index.tracking = None
    return log.track() if tracked else log.subjects()


def covered(log: Log) -> int:
    """Up to where the index counts; 0: there is none to be used."""
    floor = max([log.view.floor, *(hidden.last + 1 for hidden in log.view.hidden_ranges)])
    return log.view.records.index_rest(IndexReading(), floor, log.committed_seq, log.view.hidden.keys())


def agree(log: Log) -> bool:
    """The index, where there is one, agrees with the records; False where there is none."""
    if not covered(log):
        return False
    truth, indexed = gathered(log, tracked=True), gathered(log)
    assert told(indexed) == told(truth)
    for subject, _, first, last in truth.matching(b">"):
        said = indexed.table.get(subject)
        assert said is not None
        assert said[2] in (0, last)
        assert said[1] == first or (said[1] <= 0 and -said[1] <= first)
    for subject, _, first, last in truth.matching(b">"):
        assert log.last_seq_for(subject) == last
        assert log.first_seq_for(subject) == first
    return True


@pytest.mark.quick_machine
@pytest.mark.parametrize("options", [FAST, JOURNAL], ids=["lmdb", "journal"])
@pytest.mark.parametrize("seed", range(6))
def test_index_and_records_agree(tmp_path: Path, options, seed: int) -> None:
    rng = Random(seed)
    store = open_inline(tmp_path / "s", options)
    log = make_log(store)
    agreed = folded = 0
    for _ in range(120):
        log = step(rng, store, log)
        if log.void or rng.random() < 0.06:
            (store.crash if rng.random() < 0.5 else store.close)()
            assert check(tmp_path / "s").problems == []
            store = open_inline(tmp_path / "s", options)
            found = store.stream("A", "S")
            assert found is not None
            log = found
        agreed += agree(log)
        head = store._environment.lmdb
        with head.begin() as txn:
            folded += any(
                each.base_bytes
                for _, each in index_writer.fold_index(
                    SubjectTable(), txn, store._environment.subjects, log.id, store._environment.unseal
                )
            )
    assert agreed > 20
    assert folded
    store.close()
    assert check(tmp_path / "s").problems == []


def step(rng: Random, store: Store, log: Log) -> Log:
    txn = store.begin()
    act = rng.random()
    if act < 0.55:
        for _ in range(rng.randrange(1, 12)):
            payload = b"x" * rng.choice((1, 1, 1, 150))
            log.append(txn, b"s.%d" % rng.randrange(9), b"", payload, log.state.last_seq + 1)
    elif act < 0.8:
        for _ in range(rng.randrange(1, 6)):
            if log.state.messages:
                log.remove(txn, rng.randrange(log.state.first_seq, log.state.last_seq + 1))
    elif act < 0.88:
        log.purge(txn, below_seq=log.state.first_seq + rng.randrange(1, 15))
    elif act < 0.9:
        log.purge(txn)
    elif act < 0.94:
        log.purge(txn, subject_filter=b"s.%d" % rng.randrange(9), keep=rng.randrange(2))
    else:
        log.skip_to(txn, log.state.last_seq + rng.randrange(4))
    if rng.random() < 0.3:
        store.submit(txn)
        agree(log)  # while it is under way
        store.commit_now()
    elif rng.random() < 0.05:
        store.abort(txn)
    else:
        assert commit(store, txn) is None
    return log


def test_a_start_asks_the_index_and_not_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_inline(tmp_path / "s", JOURNAL)
    log = make_log(store)
    for number in range(300):
        fill(store, log, 1, b"s.%d" % (number % 7))
    store.close()
    store = open_inline(tmp_path / "s", JOURNAL)
    log = store.stream("A", "S")
    assert log is not None
    heads = log.view.records.heads

    def few(first: int, last: int, limit: int) -> object:
        assert first > 290, "the records were walked"
        return heads(first, last, limit)

    monkeypatch.setattr(log.view.records, "heads", few)
    assert len(log.subjects()) == 7
    assert log.subject_count(b"s.3") == 43
    assert log.last_seq_for(b"s.3") == 298
    assert log.first_seq_for(b"s.3") == 4
    store.close()


def test_few_large_records_are_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_index, "RUN_MIN", 1000)
    monkeypatch.setattr(batch_index, "RUN_BYTES_MIN", 10_000)
    _read_back(monkeypatch, 10_000)
    store = open_inline(tmp_path / "s", FAST)
    log = make_log(store)
    txn = store.begin()
    for seq in (1, 2):
        log.append(txn, b"s.%d" % seq, b"", b"x" * 3000, seq)
    assert commit(store, txn) is None
    assert covered(log) == 0
    txn = store.begin()
    for seq in (3, 4, 5, 6):
        log.append(txn, b"s.%d" % seq, b"", b"x" * 3000, seq)
    assert commit(store, txn) is None
    assert covered(log) == 6
    assert agree(log)
    store.close()
    assert check(tmp_path / "s").problems == []


def test_what_an_older_release_changed_is_noticed(tmp_path: Path) -> None:
    """It appends and removes without touching the index: the numbers do not add up, the records are asked, the index starts anew."""
    store = open_inline(tmp_path / "s", FAST)
    log = make_log(store)
    fill(store, log, 40, b"a")
    fill(store, log, 40, b"b")
    while store.commit_now() or store._committer.untidy:
        store.commit_now()
    environment = store._environment
    with environment.lmdb.begin(write=True) as txn:
        txn.delete((7).to_bytes(8, "big"), db=environment.messages[log.id])
    assert not covered(log)
    assert told(log.subjects()) == {b"a": 39, b"b": 40}
    store.close()
    assert "index of subjects" in " ".join(check(tmp_path / "s").problems)
    store = open_inline(tmp_path / "s", FAST)
    log = store.stream("A", "S")
    assert log is not None
    fill(store, log, 1, b"a")
    while store.commit_now() or store._committer.untidy:
        store.commit_now()
    assert agree(log)
    store.close()
    assert "index of subjects" not in " ".join(check(tmp_path / "s").problems)


def test_a_damaged_index_is_dropped_and_built_anew(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "s", FAST)
    log = make_log(store)
    fill(store, log, 40, b"a")
    environment = store._environment
    with environment.lmdb.begin(write=True) as txn:
        cursor = txn.cursor(environment.subjects)
        assert cursor.first()
        cursor.put(cursor.key(), b"\x00" + cursor.value()[1:])
    assert not covered(log)
    store.close()
    store = open_inline(tmp_path / "s", FAST)
    log = store.stream("A", "S")
    assert log is not None
    for _ in range(40):
        fill(store, log, 20, b"a")
    assert agree(log)
    store.close()
    assert check(tmp_path / "s").problems == []


def test_an_index_goes_with_its_stream(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "s", FAST)
    log = make_log(store)
    fill(store, log, 40, b"a")
    txn = store.begin()
    log.delete(txn)
    assert commit(store, txn) is None
    with store._environment.lmdb.begin() as reading:
        assert reading.stat(store._environment.subjects)["entries"] == 0
    store.close()


def test_counting_below_zero_is_damage() -> None:
    change = Change()
    change.went(b"a", 3)
    with pytest.raises(StoreError, match="below zero"):
        SubjectTable().fold(change.entries())


def test_a_new_base_is_given_the_room_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written in one transaction, beside the former one: more than the reserve holds."""
    monkeypatch.setattr(index_writer, "SLICE_RECORDS", 4096)
    _read_back(monkeypatch, 4 << 20)
    monkeypatch.setattr(subject_index, "CHUNK_ENTRIES", 1024)
    store = open_inline(tmp_path / "s", StoreOptions(inline=True, flush=False, map_size=1 << 20, map_reserve=1 << 20))
    log = make_log(store)
    folds = 0
    rebase = index_writer.Indexes.rebase

    def counted(indexes: index_writer.Indexes, txn: object, stream_id: int) -> index_writer.Written:
        nonlocal folds
        folds += 1
        return rebase(indexes, txn, stream_id)

    monkeypatch.setattr(index_writer.Indexes, "rebase", counted)
    for start in range(0, 50_000, 10_000):
        txn = store.begin()
        log.append_all(txn, [(b"%d.%0200d" % (n % 7, n), b"", b"", b"") for n in range(start, start + 10_000)], start)
        assert commit(store, txn) is None
        while store._committer.untidy:
            store.commit_now()
    (_, head) = store._committer._lmdb._indexes._heads[log.id]  # type: ignore[attr-defined]
    assert head.change_bytes <= head.base_bytes
    assert folds <= 12, "each doubles the base"
    assert agree(log)
    store.close()
