"""Counting from the middle of a log: from an earlier count, also after removals and rollbacks since."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from eyot_store import Log, Store, StoreError
from eyot_store.log import reads as log_reads
from eyot_store.points import POINTS_MAX
from eyot_store.subjects.subjects import matcher
from support.store.store import JOURNAL, open_inline

SUBJECTS = [b"a.x", b"a.y", b"b"]
FILTERS = [(), (b"a.*",), (b"b",)]
COUNT = 60
MIDDLE = COUNT // 2


@pytest.fixture(autouse=True)
def every_walk_is_far() -> Iterator[None]:
    with patch.multiple(log_reads, WALK_MAX=0, SCAN_MAX=4):
        yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_inline(tmp_path, JOURNAL)


@pytest.fixture
def log(store: Store) -> Log:
    txn = store.begin()
    log = store.create_stream(txn, "A", "S", b"{}", 1)
    for number in range(COUNT):
        log.append(txn, SUBJECTS[number % 3], b"", b"", number + 1)
    store.submit(txn)
    store.commit_now()
    for seq in (5, COUNT - 5):  # without gaps there is nothing to walk
        txn = store.begin()
        log.remove(txn, seq)
        store.submit(txn)
    store.commit_now()
    for filters in FILTERS:
        log.count(MIDDLE, filters)
    assert [len(log.index.points.of(filters)) for filters in FILTERS] == [1] * 3
    return log


def check(log: Log) -> None:
    """From near where it was counted before."""
    for filters in FILTERS:
        match = matcher(filters)
        live = [message.seq for message in everything(log) if match is None or match(message.subject)]
        for seq in (MIDDLE + 1, MIDDLE - 2, MIDDLE):
            assert log.count(seq, filters) == sum(at >= seq for at in live)
        for point in log.index.points.of(filters):
            assert point.below == sum(at < point.seq for at in live)


def everything(log: Log) -> list:
    found, seq = [], 1
    while seq <= log.committed_seq:
        read = log.read(seq, max_messages=100, max_bytes=1 << 20)
        found += read.messages
        seq = read.next_seq
    return found


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["remove", "remove all", "purge some", "purge below", "purge to the middle", "all"])
def test_what_goes_and_comes_back(store: Store, log: Log, how: str, fails: bool) -> None:
    txn = store.begin()
    if how == "remove":
        for seq in (2, 3, 4, MIDDLE, MIDDLE + 1, COUNT):
            assert log.remove(txn, seq)
    elif how == "remove all":
        log.remove_all(txn, log.count_bytes([1, 2, 3, MIDDLE - 1, MIDDLE + 2]))
    elif how == "purge some":
        assert log.purge_some(txn, 1, COUNT, b"a.*", 9)[0] > 0
    elif how == "purge below":
        assert log.purge(txn, below_seq=9)
    elif how == "purge to the middle":
        assert log.purge(txn, below_seq=MIDDLE + 7)
    else:
        assert log.purge(txn)
    check(log)
    if fails:
        store.abort(txn)
    else:
        store.submit(txn)
        store.commit_now()
    check(log)


def test_a_slice_at_a_time_while_messages_come_and_go(store: Store, log: Log) -> None:
    log.index.points.clear()
    counting = log.counting(MIDDLE, (b"a.*",))
    assert counting is not None
    steps = 1
    while not counting.step():
        steps += 1
        txn = store.begin()
        log.append(txn, b"a.x", b"", b"", COUNT + steps)
        log.remove(txn, steps)
        log.remove(txn, COUNT - steps)
        store.submit(txn)
        store.commit_now()
    assert steps > 5
    wanted = sum(m.seq >= MIDDLE and m.subject != b"b" for m in everything(log))
    with patch.object(log.view.records, "heads", side_effect=StoreError("io", "nothing is to be read any more")):
        assert log.count(MIDDLE, (b"a.*",)) == wanted


def test_few_are_kept(log: Log) -> None:
    for number in range(POINTS_MAX):
        log.count(MIDDLE, (b"b", b"n.%d" % number))
    assert len(log.index.points) == POINTS_MAX
    assert not log.index.points.of(())


def test_several_ways_at_the_same_time(log: Log) -> None:
    log.index.points.clear()
    ways = {seq: log.counting(seq, (b"b",)) for seq in (MIDDLE - 9, MIDDLE + 1, MIDDLE + 9)}
    for _ in range(COUNT // 4):
        ways = {seq: way for seq, way in ways.items() if way is not None and not way.step()}
    assert not ways
    check(log)
