"""One log, on disk and in memory: what the operations mean. (test_model.py has the combinations.)"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_store import Log, Store, StoreError
from eyot_store.log import reads as log_reads
from eyot_store.log import subjects as log_subjects
from eyot_store.log.stager import JUMP_MAX
from eyot_wire.native import StoredRun
from support.store.store import FAST, JOURNAL, Loop, commit, fill, make_log, open_inline


@pytest.fixture(params=[FAST, JOURNAL], ids=["lmdb", "journal"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    store = open_inline(tmp_path / "store", request.param)
    yield store
    store.crash()


@pytest.fixture(params=["file", "memory"])
def log(store: Store, request: pytest.FixtureRequest) -> Log:
    return make_log(store, memory=request.param == "memory")


def seqs(log: Log, **limits: int) -> list[int]:
    return [m.seq for m in log.read(1, **{"max_messages": 10**6, "max_bytes": 10**9, **limits}).messages]


def test_empty(log: Log) -> None:
    state = log.state
    assert (state.messages, state.bytes, state.first_seq, state.last_seq, state.num_deleted) == (0, 0, 0, 0, 0)
    assert (state.first_ts_ns, state.last_ts_ns, log.committed_seq) == (0, 0, 0)
    assert log.get(0) is log.get(1) is None
    assert log.read(1, max_messages=1, max_bytes=1) == ([], 1)
    assert log.last_for(b">") is None
    assert log.next_for(b">", 0) is None
    assert (log.count(0), log.seq_at_time(5), log.deleted()) == (0, 1, [])


def test_bytes_are_counted_as_nats_server_counts(store: Store) -> None:
    file, memory = make_log(store, "F"), make_log(store, "M", memory=True)
    header = b"NATS/1.0\r\nA: b\r\n\r\n"
    for log, plain, with_header in ((file, 37, 41 + len(header)), (memory, 23, 23 + len(header))):
        txn = store.begin()
        log.append(txn, b"a.b", b"", b"data", 1)
        assert log.state.bytes == plain
        log.append(txn, b"a.b", header, b"data", 1)
        assert log.state.bytes == plain + with_header
        assert commit(store, txn) is None


def test_a_message_comes_back_as_it_was(store: Store, log: Log) -> None:
    txn = store.begin()
    assert log.append(txn, b"a.b", b"NATS/1.0\r\n\r\n", bytes(range(256)), 7) == 1
    assert commit(store, txn) is None
    message = log.get(1)
    assert message is not None
    assert (message.seq, message.ts_ns, message.subject) == (1, 7, b"a.b")
    assert (message.header, message.payload) == (b"NATS/1.0\r\n\r\n", bytes(range(256)))
    assert (log.state.first_ts_ns, log.state.last_ts_ns) == (7, 7)


def test_large_messages(store: Store, log: Log) -> None:
    payload = bytes(8 << 20)
    fill(store, log, 2, payload=payload)
    result = log.read(1, max_messages=9, max_bytes=1)
    assert [len(m.payload) for m in result.messages] == [8 << 20]
    assert result.next_seq == 2


def test_a_read_ends_at_each_of_its_limits(store: Store, log: Log) -> None:
    fill(store, log, 10, payload=b"x" * 9)  # ten bytes each, with the subject
    assert seqs(log, max_messages=3) == [1, 2, 3]
    assert seqs(log, max_bytes=39) == [1, 2, 3]
    assert seqs(log, max_bytes=1) == [1]
    assert seqs(log, up_to=4) == [1, 2, 3, 4]
    assert log.read(3, max_messages=2, max_bytes=999).next_seq == 5
    assert log.read(3, max_messages=99, max_bytes=999).next_seq == 11
    assert log.read(3, max_messages=99, max_bytes=999, up_to=5).next_seq == 6
    assert log.read(11, max_messages=99, max_bytes=999).next_seq == 11


def test_a_filtered_read_is_bounded_work(store: Store, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "SCAN_MAX", 100)
    fill(store, log, 1000)
    fill(store, log, 1, subject=b"rare")
    result = log.read(1, max_messages=10, max_bytes=999, filters=(b"rare",))
    assert result == ([], 101)
    found, seq, reads = [], 1, 0
    while seq <= log.committed_seq:
        result = log.read(seq, max_messages=10, max_bytes=999, filters=(b"rare",))
        found += result.messages
        seq, reads = result.next_seq, reads + 1
    assert [m.seq for m in found] == [1001]
    assert reads in (10, 11)  # an 11th where the scan's limit is that of LMDB
    # Once the subjects are known, a filter that goes through much and finds little has the log tracked.
    log.subjects()
    assert log.read(1, max_messages=10, max_bytes=999, filters=(b"rare",)).messages == []
    assert log.subjects().tracked
    result = log.read(1, max_messages=10, max_bytes=999, filters=(b"rare",))
    assert ([m.seq for m in result.messages], result.next_seq) == ([1001], 1002)


def test_sequences_given_from_outside_leave_gaps(store: Store, log: Log) -> None:
    txn = store.begin()
    log.append(txn, b"a", b"", b"", 1, seq=5)
    log.append(txn, b"a", b"", b"", 2, seq=9)
    with pytest.raises(ValueError, match="not above"):
        log.append(txn, b"a", b"", b"", 2, seq=9)
    log.skip_to(txn, 12)
    log.skip_to(txn, 3)
    assert commit(store, txn) is None
    state = log.state
    assert (state.first_seq, state.last_seq, state.messages, state.num_deleted) == (5, 12, 2, 6)
    assert log.deleted() == [6, 7, 8, 10, 11, 12]
    assert log.deleted(limit=4) == [6, 7, 8, 10]
    assert list(log.deleted_ranges()) == [(6, 8), (10, 12)]
    txn = store.begin()
    assert log.append(txn, b"a", b"", b"", 3) == 13
    assert commit(store, txn) is None


def test_no_jump_leaves_later_messages_without_sequences(store: Store, log: Log) -> None:
    """To the highest allowed one, and on from there one by one."""
    txn = store.begin()
    for jump in (lambda: log.append(txn, b"a", b"", b"", 1, seq=JUMP_MAX + 1), lambda: log.skip_to(txn, JUMP_MAX + 1)):
        with pytest.raises(StoreError, match=f"sequence {JUMP_MAX + 1} is above {JUMP_MAX}"):
            jump()
    log.append(txn, b"a", b"", b"", 1, seq=JUMP_MAX)
    log.append(txn, b"a", b"", b"", 1, seq=JUMP_MAX + 1)
    log.skip_to(txn, JUMP_MAX + 2)
    assert log.append(txn, b"a", b"", b"", 1) == JUMP_MAX + 3
    assert commit(store, txn) is None


def test_remove(store: Store, log: Log) -> None:
    fill(store, log, 5)
    txn = store.begin()
    assert log.remove(txn, 1)
    assert log.state.first_seq == 2
    assert not log.remove(txn, 1)
    assert not log.remove(txn, 6)
    assert log.remove(txn, 3)
    assert log.remove(txn, 5)
    seq = log.append(txn, b"a", b"", b"", 6)
    assert log.remove(txn, seq)
    assert seqs(log) == [2, 4]
    assert commit(store, txn) is None
    assert seqs(log) == [2, 4]
    state = log.state
    assert (state.first_seq, state.last_seq, state.messages, state.num_deleted) == (2, 6, 2, 3)
    txn = store.begin()
    assert log.remove(txn, 2)
    assert log.remove(txn, 4)
    assert commit(store, txn) is None
    assert (state.first_seq, state.last_seq, state.messages, state.bytes, state.num_deleted) == (7, 6, 0, 0, 0)


@pytest.mark.parametrize(
    ("below", "filter_", "keep", "left"),
    [
        (0, b"", 0, []),
        (4, b"", 0, [4, 5, 6, 7, 8, 9]),
        (0, b"", 2, [8, 9]),
        (0, b"", 99, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (3, b">", 8, [2, 3, 4, 5, 6, 7, 8, 9]),
        (0, b"b", 0, [1, 3, 5, 7, 9]),
        (0, b"b", 1, [1, 3, 5, 7, 8, 9]),
        (5, b"b", 0, [1, 3, 5, 6, 7, 8, 9]),
        (5, b"b", 1, [1, 3, 4, 5, 6, 7, 8, 9]),
        (99, b"a", 0, [2, 4, 6, 8]),
        (0, b"c", 0, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (1, b"", 0, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_purge(store: Store, log: Log, below: int, filter_: bytes, keep: int, left: list[int], known: bool) -> None:
    for seq in range(1, 10):
        fill(store, log, 1, subject=b"b" if seq % 2 == 0 else b"a", payload=b"x" * seq)
    if known:
        log.subjects()
    txn = store.begin()
    assert log.purge(txn, below, filter_, keep) == 9 - len(left)
    assert seqs(log) == left
    assert commit(store, txn) is None
    assert seqs(log) == left
    state = log.state
    assert state.messages == len(left)
    assert state.bytes == sum(log.message_bytes(b"a", b"", b"x" * seq) for seq in left)
    assert (state.first_seq, state.last_seq) == (min(left, default=10), 9)
    totals = {
        subject: n for subject, n in ((b"a", sum(s % 2 for s in left)), (b"b", sum(s % 2 == 0 for s in left))) if n
    }
    assert dict(log.subject_totals()) == totals


def test_what_a_purge_takes_is_not_read_while_that_is_under_way(store: Store, log: Log) -> None:
    fill(store, log, 4)
    txn = store.begin()
    log.remove(txn, 1)
    assert commit(store, txn) is None
    txn = store.begin()
    log.purge(txn, below_seq=4)
    run = StoredRun()
    assert log.reading(run, 1, up_to=4, max_bytes=1 << 20)() == 5
    assert run.seqs() == [4]
    assert seqs(log) == [4]
    store.abort(txn)
    assert seqs(log) == [2, 3, 4]


def test_what_was_purged_cannot_be_removed_again(store: Store, log: Log) -> None:
    """Its records stay for a while."""
    fill(store, log, 6)
    txn = store.begin()
    assert log.purge(txn, below_seq=4) == 3
    assert commit(store, txn) is None
    bytes_ = log.state.bytes
    txn = store.begin()
    assert not any(log.remove(txn, seq) for seq in (1, 2, 3))
    assert log.count_bytes([1, 3]) == []
    assert [seq for seq, _, _ in log.count_bytes([2, 4, 5])] == [4, 5]
    assert commit(store, txn) is None
    assert (log.state.messages, log.state.bytes, log.state.first_seq) == (3, bytes_, 4)


def test_purge_takes_staged_messages_too(store: Store, log: Log) -> None:
    fill(store, log, 3)
    txn = store.begin()
    log.append(txn, b"b", b"", b"", 4)
    assert log.purge(txn) == 4
    log.append(txn, b"c", b"", b"", 5)
    assert (log.state.messages, log.state.first_seq, log.state.last_seq) == (1, 5, 5)
    assert commit(store, txn) is None
    assert seqs(log) == [5]
    txn = store.begin()
    log.append(txn, b"d", b"", b"", 6)
    assert log.purge(txn, keep=1) == 1  # a roll-up: the message that asks for it stays
    assert commit(store, txn) is None
    assert seqs(log) == [6]


def test_a_roll_up_of_a_new_subject_reads_nothing(store: Store, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every schedule is one: many of them in a turn read the whole log again and again."""
    fill(store, log, 50, subject=b"old")
    assert log.subjects().table.count(b"old") == 50
    reads: list[int] = []
    read = log_reads.LogReads.read

    def counted(self: log_reads.LogReads, seq: int, **limits: Any) -> Any:
        reads.append(seq)
        return read(self, seq, **limits)

    monkeypatch.setattr(log_reads.LogReads, "read", counted)
    txn = store.begin()
    for number in range(20):
        log.append(txn, b"new.%d" % number, b"", b"", 100 + number)
        assert log.purge(txn, subject_filter=b"new.%d" % number, keep=1) == 0
    assert reads == []
    log.append(txn, b"old", b"", b"", 200)
    assert log.purge(txn, subject_filter=b"old", keep=1) == 50
    for turn in range(3):
        for number in range(20):
            log.append(txn, b"new.%d" % number, b"", b"", 300 + number)
            assert log.purge(txn, subject_filter=b"new.%d" % number, keep=1) == 1
        assert reads == []
        if turn != 1:
            assert commit(store, txn) is None
            txn = store.begin()
    assert commit(store, txn) is None
    assert len(seqs(log)) == 21


@pytest.mark.parametrize("seed", range(6))
def test_roll_ups_keep_what_they_must(store: Store, log: Log, seed: int) -> None:
    rng = random.Random(seed)
    kept: list[tuple[int, bytes]] = []
    aborted = list(kept)
    txn = store.begin()
    for step in range(400):
        subject = rng.choice([b"a", b"b", b"c.d"])
        what = rng.choice(["append", "append", "roll up", "keep two", "delete", "commit", "abort"])
        if what == "commit":
            assert commit(store, txn) is None
            txn, aborted = store.begin(), list(kept)
        elif what == "abort":
            store.abort(txn)
            txn, kept = store.begin(), list(aborted)
        elif what == "delete":
            if kept:
                seq = rng.choice(kept)[0]
                assert log.remove(txn, seq)
                kept = [each for each in kept if each[0] != seq]
        else:
            if rng.random() < 0.9 or what == "append":
                log.append(txn, subject, b"", b"", step + 1)
                kept.append((log.state.last_seq, subject))
            if what != "append":
                keep = 1 + (what == "keep two")
                mine = [each for each in kept if each[1] == subject]
                assert log.purge(txn, subject_filter=subject, keep=keep) == max(0, len(mine) - keep)
                kept = [each for each in kept if each[1] != subject or each in mine[-keep:]]
        assert log.state.messages == len(kept)
        if rng.random() < 0.05 and log.subjects_known:
            log.track()
    assert commit(store, txn) is None
    assert seqs(log) == [seq for seq, _ in kept]
    assert dict(log.subject_totals()) == Counter(subject for _, subject in kept)


def test_oldest_of_a_subject_is_found_without_searching_the_log_each_time(
    store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key-value bucket with history: each put removes the oldest revision of its key."""
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 16)
    for revision in range(4):
        for key in range(100):
            fill(store, log, 1, subject=b"kv.%d" % key, payload=b"%d" % revision)
    assert log.first_seq_for(b"kv.7") == 8
    heads = log.view.records.heads
    calls: list[int] = []

    def counted(first: int, last: int, limit: int) -> object:
        calls.append(first)
        return heads(first, last, limit)

    monkeypatch.setattr(log.view.records, "heads", counted)
    for key in range(100):
        subject = b"kv.%d" % key
        for _ in range(2):
            txn = store.begin()
            log.append(txn, subject, b"", b"new", 999)
            assert log.remove(txn, log.first_seq_for(subject))
            assert commit(store, txn) is None
        assert log.first_seq_for(subject) == key + 201
    assert log.subjects().tracked
    assert len(calls) <= 40  # one search that was not near, one pass


def test_last_for_while_newer_messages_are_staged(store: Store) -> None:
    log = make_log(store)
    fill(store, log, 3, subject=b"a")
    fill(store, log, 1, subject=b"b")
    log.subjects()
    txn = store.begin()
    log.append(txn, b"a", b"", b"", 5)
    log.append(txn, b"a", b"", b"", 6)
    store.submit(txn)
    again = store.begin()
    log.append(again, b"a", b"", b"", 7)
    store.submit(again)
    assert (log.last_seq_for(b"a"), log.last_committed_for(b"a")) == (7, 3)
    message = log.last_for(b"a")
    assert message is not None
    assert message.seq == 3
    everything = log.last_for(b">")
    assert everything is not None
    assert everything.seq == 4
    store.commit_now()
    assert log.last_committed_for(b"a") == 7


def test_time(store: Store, log: Log) -> None:
    txn = store.begin()
    for ts_ns in (10, 20, 20, 30):
        log.append(txn, b"a", b"", b"", ts_ns)
    assert commit(store, txn) is None
    assert [log.seq_at_time(ts_ns) for ts_ns in (0, 10, 11, 20, 21, 30, 31)] == [1, 1, 2, 2, 4, 4, 5]
    txn = store.begin()
    log.remove(txn, 2)
    assert log.seq_at_time(11) == 3
    assert commit(store, txn) is None
    assert log.seq_at_time(11) == 3


def test_consumers_and_positions(store: Store, log: Log) -> None:
    txn = store.begin()
    log.put_consumer(txn, "b", b"config b", b"state b")
    log.put_consumer(txn, "a", b"config a", b"state a")
    log.put_position(txn, b"key", b"1")
    assert log.consumers() == []
    assert commit(store, txn) is None
    assert log.consumers() == [("a", b"config a", b"state a"), ("b", b"config b", b"state b")]
    txn = store.begin()
    log.put_consumer_state(txn, "a", b"state 2")
    log.delete_consumer(txn, "b")
    log.put_position(txn, b"key", b"2")
    assert commit(store, txn) is None
    assert log.consumers() == [("a", b"config a", b"state 2")]
    assert log.positions() == {b"key": b"2"}
    txn = store.begin()
    log.delete_position(txn, b"key")
    assert commit(store, txn) is None
    assert log.positions() == {}


def test_a_deleted_stream_takes_everything_of_it_along(store: Store, tmp_path: Path) -> None:
    log, other = make_log(store, "S"), make_log(store, "T")
    for each in (log, other):
        fill(store, each, 3)
        txn = store.begin()
        each.put_consumer(txn, "c", b"c", b"s")
        each.put_position(txn, b"k", b"v")
        assert commit(store, txn) is None
    txn = store.begin()
    log.delete(txn)
    assert store.stream("A", "S") is None
    successor = store.create_stream(txn, "A", "S", b"new", 2)
    successor.append(txn, b"a", b"", b"", 9)
    late = store.begin()
    log.put_consumer_state(late, "c", b"late")
    store.submit(txn)
    assert commit(store, late) is None
    assert log.get(1) is None
    store.close()
    store = open_inline(tmp_path / "store")
    log, other = store.streams()
    assert (log.name, log.config, log.created_ns, log.state.messages) == ("S", b"new", 2, 1)
    assert (log.consumers(), log.positions()) == ([], {})
    assert (other.state.messages, other.consumers(), other.positions()) == (3, [("c", b"c", b"s")], {b"k": b"v"})
    store.crash()


def test_memory_transactions_do_not_wait_for_the_disk(store: Store) -> None:
    file, memory = make_log(store, "F"), make_log(store, "M", memory=True)
    order: list[str] = []
    txn = store.begin()
    memory.append(txn, b"a", b"", b"", 1)
    store.submit(txn, lambda _: order.append("memory"))
    assert order == ["memory"]
    assert memory.committed_seq == 1
    both = store.begin()
    file.append(both, b"a", b"", b"", 1)
    memory.append(both, b"a", b"", b"", 2)
    store.submit(both, lambda _: order.append("both"))
    txn = store.begin()
    memory.append(txn, b"a", b"", b"", 3)
    store.submit(txn, lambda _: order.append("behind"))
    assert order == ["memory"]
    store.commit_now()
    assert order == ["memory", "both", "behind"]
    assert seqs(memory) == [1, 2, 3]


def test_memory_transactions_settle_together(tmp_path: Path) -> None:
    loop = Loop()
    store = Store.open(tmp_path / "threaded", notify=loop.notify)
    txn = store.begin()
    log = store.create_stream(txn, "A", "M", b"", 1, memory=True)
    store.submit(txn)
    done: list[int] = []
    for number in range(1, 101):
        txn = store.begin()
        log.append(txn, b"a", b"", b"", number)
        store.submit(txn, lambda _, number=number: done.append(number))
    assert done == []
    loop.drain()
    assert loop.calls == 1
    assert done == list(range(1, 101))
    assert log.committed_seq == 100
    store.close()


def test_creating_twice_is_refused(store: Store) -> None:
    make_log(store)
    with pytest.raises(ValueError, match="exists"):
        store.create_stream(store.begin(), "A", "S", b"", 1)
