"""Group commit with the real committing thread: order, batching of results, isolation of failures, back pressure, windows, the end."""

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from eyot_store import Store, StoreError, StoreOptions
from eyot_store.driver import ThreadDriver
from eyot_store.txn import Txn
from support.store.store import Loop, commit, fill, make_log, open_inline


@pytest.fixture
def loop() -> Loop:
    return Loop()


class Gate:
    """Holds the committing thread before each group, so that transactions gather; notes the groups."""

    def __init__(self, store: Store) -> None:
        self.committer: Any = store._driver._committer  # type: ignore[attr-defined]
        self.commit = self.committer.commit
        self.open = threading.Semaphore(0)
        self.groups: list[int] = []
        self.poisoned: set[int] = set()
        attempt = self.committer._attempt

        def held(group: Any) -> Any:
            self.open.acquire()
            self.groups.append(len(group))
            return self.commit(group)

        def failing(txns: Any) -> None:
            if any(id(txn) in self.poisoned for txn in txns):
                raise lmdb.DiskError("No space left on device")
            attempt(txns)

        self.committer.commit = held
        self.committer._attempt = failing


def started(tmp_path: Path, loop: Loop, options: StoreOptions | None = None) -> Store:
    store = Store.open(tmp_path / "store", notify=loop.notify, options=options)
    done: list[StoreError | None] = []
    txn = store.begin()
    for name in ("S", "T"):
        store.create_stream(txn, "A", name, b"{}", 1)
    store.submit(txn, done.append)
    loop.run(lambda: bool(done))
    assert done == [None]
    return store


def test_results_come_in_submit_order_one_call_for_a_group(tmp_path: Path, loop: Loop) -> None:
    store = started(tmp_path, loop)
    gate = Gate(store)
    log = store.streams()[0]
    done: list[tuple[int, StoreError | None, int]] = []
    calls = loop.calls
    for number in range(100):
        txn = store.begin()
        log.append(txn, b"a", b"", b"%d" % number, number)
        store.submit(txn, lambda error, number=number: done.append((number, error, log.committed_seq)))
    assert store.backlog_txns == 100
    gate.open.release(2)
    loop.run(lambda: len(done) == 100)
    assert [number for number, _, _ in done] == list(range(100))
    assert all(error is None for _, error, _ in done)
    assert sum(gate.groups) == 100
    assert len(gate.groups) <= 2
    assert loop.calls - calls == len(gate.groups)
    # Everything of a group is settled before the first callback of the group runs.
    assert done[-1][2] == 100
    assert store.backlog_txns == store.backlog_bytes == 0
    gate.open.release(9)
    store.close()


def test_nothing_is_readable_before_its_commit(tmp_path: Path, loop: Loop) -> None:
    store = started(tmp_path, loop)
    gate = Gate(store)
    log = store.streams()[0]
    txn = store.begin()
    log.append(txn, b"a", b"", b"1", 1)
    done: list[StoreError | None] = []
    store.submit(txn, done.append)
    assert log.state.messages == 1
    assert log.get(1) is None
    assert log.read(1, max_messages=9, max_bytes=99).messages == []
    commits = store.stats.commits
    gate.open.release(9)
    while store.stats.commits == commits:  # it is on the disk before the loop is told,
        pass
    assert log.get(1) is None  # and readable only then
    loop.run(lambda: bool(done))
    message = log.get(1)
    assert message is not None
    assert message.payload == b"1"
    store.close()


def test_only_the_failing_transaction_fails(tmp_path: Path, loop: Loop) -> None:
    store = started(tmp_path, loop)
    gate = Gate(store)
    first, second = store.streams()
    results: dict[str, StoreError | None] = {}

    def append(name: str, *logs: Any, poison: bool = False) -> None:
        txn = store.begin()
        for log in logs:
            log.append(txn, name.encode(), b"", b"", 1)
        if poison:
            gate.poisoned.add(id(txn))
        store.submit(txn, lambda error: results.__setitem__(name, error))

    append("before", first, second)
    append("failing", first, poison=True)
    append("elsewhere", second)
    append("on-top", first)
    append("across", first, second)
    append("elsewhere-on-top-of-across", second)
    gate.open.release(9)
    loop.run(lambda: len(results) == 6)
    assert {name for name, error in results.items() if error} == {
        "failing",
        "on-top",
        "across",
        "elsewhere-on-top-of-across",
    }
    assert {error.reason for error in results.values() if error} == {"full"}
    assert (first.state.messages, first.state.last_seq, first.committed_seq) == (1, 1, 1)
    assert (second.state.messages, second.state.last_seq, second.committed_seq) == (2, 2, 2)
    append("after", first)
    gate.open.release(9)
    loop.run(lambda: "after" in results)
    assert results["after"] is None
    assert [m.subject for m in first.read(1, max_messages=9, max_bytes=999).messages] == [b"before", b"after"]
    store.close()


def test_removals_and_consumers_do_not_fail_with_appends(tmp_path: Path, loop: Loop) -> None:
    """A full disk must let messages be removed while publishers keep trying."""
    store = started(tmp_path, loop)
    gate = Gate(store)
    log = store.streams()[0]
    done: list[StoreError | None] = []
    txn = store.begin()
    for number in range(4):
        log.append(txn, b"a", b"", b"", number)
    store.submit(txn, done.append)
    gate.open.release(9)
    loop.run(lambda: len(done) == 1)
    failing = store.begin()
    log.append(failing, b"a", b"", b"", 9)
    gate.poisoned.add(id(failing))
    store.submit(failing, done.append)
    removal = store.begin()
    log.remove(removal, 2)
    log.put_consumer_state(removal, "c", b"state")
    store.submit(removal, done.append)
    purge = store.begin()
    log.purge(purge, below_seq=2)
    store.submit(purge, done.append)
    never = store.begin()
    log.remove(never, 5)  # what never came to be: another message will have that sequence
    store.submit(never, done.append)
    gate.open.release(9)
    loop.run(lambda: len(done) == 5)
    assert done[1] is not None
    assert (done[2], done[3]) == (None, None)
    assert done[4] is done[1]
    assert (log.state.messages, log.state.first_seq, log.state.last_seq) == (2, 3, 4)
    assert log.state.bytes == 2 * log.message_bytes(b"a", b"", b"")
    again = store.begin()
    log.append(again, b"a", b"", b"again", 9)
    store.submit(again, done.append)
    gate.open.release(9)
    loop.run(lambda: len(done) == 6)
    assert [message.seq for message in log.read(1, max_messages=9, max_bytes=1 << 20).messages] == [3, 4, 5]
    store.close()


def test_a_callback_that_raises_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        if number == 1:
            raise LookupError("one")

    for number in range(3):
        txn = store.begin()
        log.append(txn, b"a", b"", b"", number)
        store.submit(txn, lambda _, number=number: tell(number))
    with pytest.raises(LookupError):
        store.commit_now()
    assert told == [0, 1, 2]
    assert log.committed_seq == 3
    store.crash()


@pytest.mark.parametrize("committer", ["journal", "lmdb"])
def test_whoever_was_told_is_not_kept(tmp_path: Path, loop: Loop, committer: str) -> None:
    """The committing thread waits with the last group at hand, perhaps for days."""
    told: list[StoreError | None] = []

    def wait_for_commit() -> weakref.ref[Callable[..., None]]:
        def tell(error: StoreError | None) -> None:
            told.append(error)

        txn = store.begin()
        store.streams()[0].append(txn, b"a", b"", b"x", 1)
        store.submit(txn, tell)
        return weakref.ref(tell)

    store = started(tmp_path, loop, StoreOptions(committer=committer))
    kept = wait_for_commit()
    loop.run(lambda: bool(told))
    assert told == [None]
    assert kept() is None, "without the collector"
    store.close()


def test_over_the_hard_limit_transactions_are_refused(tmp_path: Path, loop: Loop) -> None:
    options = StoreOptions(backlog_txns_soft=4, backlog_txns_hard=8)
    store = started(tmp_path, loop, options)
    gate = Gate(store)
    log = store.streams()[0]
    done: list[StoreError | None] = []
    relieved: list[bool] = []
    for number in range(12):
        assert store.congested == (number > 4)
        txn = store.begin()
        log.append(txn, b"a", b"", b"", number)
        store.submit(txn, done.append)
    store.on_relief(lambda: relieved.append(store.congested))
    assert store.refused == 3
    assert log.state.first_ts_ns == 0
    assert not relieved
    gate.open.release(99)
    loop.run(lambda: len(done) == 12)
    assert [error.reason if error else "" for error in done] == [""] * 9 + ["busy"] * 3
    assert (log.state.last_seq, log.state.messages) == (9, 9)
    loop.drain()
    assert relieved == [False]
    store.close()


def test_close_commits_what_was_handed_in(tmp_path: Path, loop: Loop) -> None:
    store = started(tmp_path, loop)
    log = store.streams()[0]
    done: list[StoreError | None] = []
    for number in range(50):
        txn = store.begin()
        log.append(txn, b"a", b"", b"", number)
        store.submit(txn, done.append)
    store.close()
    assert done == [None] * 50
    late: list[StoreError | None] = []
    store.submit(store.begin(), late.append)
    assert late[0] is not None
    assert late[0].reason == "closed"
    store.close()
    store = Store.open(tmp_path / "store", notify=loop.notify)
    assert store.streams()[0].state.messages == 50
    store.close()


def test_close_delivers_when_the_loop_is_gone(tmp_path: Path) -> None:
    def gone(fn: Any) -> None:
        raise RuntimeError("the loop has ended")

    store = Store.open(tmp_path / "store", notify=gone)
    done: list[StoreError | None] = []
    txn = store.begin()
    store.create_stream(txn, "A", "S", b"", 1)
    store.submit(txn, done.append)
    store.close()
    assert done == [None]
    assert store.stats.unnotified == 1


def test_crash_loses_exactly_what_was_not_committed(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    fill(store, log, 3)
    txn = store.begin()
    log.append(txn, b"a", b"", b"lost", 1)
    log.put_position(txn, b"origin", b"4")
    log.put_consumer(txn, "c", b"config", b"state")
    done: list[StoreError | None] = []
    store.submit(txn, done.append)
    store.crash()
    assert done == []
    store = open_inline(tmp_path / "store")
    log = store.streams()[0]
    assert log.state.last_seq == 3
    assert log.positions() == {}
    assert log.consumers() == []
    store.crash()


def test_message_position_and_consumer_commit_together(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    txn = store.begin()
    log.append(txn, b"a", b"", b"", 1)
    log.put_position(txn, b"origin", b"1")
    log.put_consumer(txn, "c", b"config", b"state")
    # A second log's part that cannot be done takes everything with it.
    other = make_log(store, "T")
    other.append(txn, b"a", b"", b"", 1)
    gone = store.begin()
    store._environment.messages.pop(other.id)
    error = commit(store, txn)
    assert error is not None
    assert log.state.messages == 0
    assert log.positions() == {}
    assert log.consumers() == []
    store.abort(gone)
    store.crash()


def test_two_open_transactions_cannot_append_to_one_log(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store")
    log = make_log(store)
    first, second = store.begin(), store.begin()
    log.append(first, b"a", b"", b"", 1)
    with pytest.raises(RuntimeError):
        log.append(second, b"a", b"", b"", 1)
    store.abort(first)
    log.append(second, b"a", b"", b"", 1)
    assert commit(store, second) is None
    with pytest.raises(RuntimeError):
        log.append(second, b"a", b"", b"", 1)
    with pytest.raises(RuntimeError):
        store.submit(second)
    assert log.state.last_seq == 1
    store.crash()


def test_statistics_count_flushes_and_groups(tmp_path: Path, loop: Loop) -> None:
    store = started(tmp_path, loop)
    stats = store.stats
    assert (stats.commits, stats.txns, stats.messages) == (1, 1, 0)
    assert stats.flush_ns_total >= stats.flush_ns_max >= stats.flush_ns_last > 0
    assert sum(stats.flush_ns_log2) == sum(stats.group_log2) == 1
    assert stats.last_commit_ns == store.last_commit_ns > 0
    assert store.disk_bytes() > 4096
    store.close()


@pytest.mark.parametrize("aborts", [0, 1])
@pytest.mark.parametrize("committer", ["lmdb", "journal"])
def test_what_depends_on_a_transaction_under_way_fails_with_it(tmp_path: Path, aborts: int, committer: str) -> None:
    """Also where another transaction was taken back in between."""
    store = open_inline(tmp_path, StoreOptions(inline=True, flush=False, committer=committer, backlog_bytes_hard=200))
    done: list[StoreError | None] = []
    txn = store.begin()
    first, second = (store.create_stream(txn, "A", name, b"{}", 1) for name in ("S", "T"))
    assert commit(store, txn) is None
    filler, refused, dependent = store.begin(), store.begin(), store.begin()
    second.append(filler, b"t", b"", bytes(300), 1)
    store.submit(filler, done.append)
    first.append(refused, b"s", b"", b"x", 1)
    store.submit(refused, done.append)  # too much is waiting
    for _ in range(aborts):
        other = store.begin()
        first.append(other, b"s", b"", b"y", 1)
        store.abort(other)
    first.depend(dependent)
    second.append(dependent, b"t", b"", b"z", 1)
    dependent_done: list[StoreError | None] = []
    store.backlog_bytes = 0  # there is room for this one
    store.submit(dependent, dependent_done.append)
    store.commit_now()
    assert [error and error.reason for error in done] == [None, "busy"]
    assert [error and error.reason for error in dependent_done] == ["busy"]
    assert (first.state.messages, second.state.messages) == (0, 1)
    store.close()


class Groups:
    """A committing thread of its own, with what it committed."""

    def __init__(self, window_s: float) -> None:
        self.groups: list[list[Txn]] = []
        self.finished = threading.Semaphore(0)
        committer: Any = type("C", (), {"untidy": False, "commit": staticmethod(lambda group: [None] * len(group))})
        self.driver = ThreadDriver(committer, self._note)
        self.driver.set_window(window_s)

    def _note(self, group: Any) -> None:
        self.groups.append([txn for txn, _ in group])
        self.finished.release()

    def submit(self, *, patient: bool, size: int = 10) -> Txn:
        txn = Txn()
        txn.patient, txn.bytes = patient, size
        self.driver.submit(txn)
        return txn

    def wait(self) -> None:
        assert self.finished.acquire(timeout=60)


def test_patient_transactions_wait_for_others() -> None:
    """And one that is not patient takes them along."""
    groups = Groups(3600.0)
    sent = [groups.submit(patient=True) for _ in range(3)]
    sent.append(groups.submit(patient=False))
    groups.wait()
    groups.driver.stop()
    assert groups.groups == [sent]


def test_what_is_held_is_handed_over_when_it_is_released() -> None:
    """The thread learns of none of it before it is released; the end releases, too."""
    groups = Groups(0.0)
    groups.driver.hold()
    sent = [groups.submit(patient=False) for _ in range(100)]
    assert groups.driver._queue.empty()
    assert not groups.groups
    groups.driver.hold()  # once more is as good as once
    groups.driver.release()
    alone = groups.submit(patient=False)
    groups.driver.hold()
    last = groups.submit(patient=False)
    groups.driver.stop()
    assert [txn for group in groups.groups for txn in group] == [*sent, alone, last]


def test_a_window_ends() -> None:
    groups = Groups(0.01)
    first = groups.submit(patient=True)
    groups.wait()
    second = groups.submit(patient=True)
    groups.wait()
    groups.driver.stop()
    assert groups.groups == [[first], [second]]


@pytest.mark.parametrize(
    ("window_s", "patient", "size"), [(0.0, True, 10), (3600.0, False, 10), (3600.0, True, 1 << 20)]
)
def test_what_does_not_wait(window_s: float, patient: bool, size: int) -> None:
    """Without a window, without patience, and a group that is large."""
    groups = Groups(window_s)
    sent = groups.submit(patient=patient, size=size)
    groups.wait()
    groups.driver.stop()
    assert groups.groups == [[sent]]


def test_the_end_waits_for_no_window() -> None:
    groups = Groups(3600.0)
    sent = groups.submit(patient=True)
    groups.driver.stop()
    assert groups.groups == [[sent]]
