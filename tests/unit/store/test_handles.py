"""What LMDB is handed must be alive: databases, maps and environments that go away beside a reader, or before a thread."""

import resource
import subprocess
import sys
from pathlib import Path

from eyot_store import StoreOptions
from support.store.store import FAST, Loop, commit, fill, make_log, open_inline

WITHOUT_CLOSE = """
import sys
from pathlib import Path
from eyot_store import Store, StoreOptions
store = Store.open(Path(sys.argv[1]), notify=lambda fn: fn(), options=StoreOptions(map_size=1 << 20))
txn = store.begin()
log = store.create_stream(txn, "A", "S", b"{}", 1)
store.submit(txn)
for number in range(2000):
    txn = store.begin()
    log.append(txn, b"a", b"", b"x" * 1000, number)
    store.submit(txn)
# Nobody closes it: both threads are in the middle of their work when the interpreter ends.
"""


def test_an_interpreter_that_ends_without_closing_its_store_ends_well(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", WITHOUT_CLOSE, str(tmp_path / "s")],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    store = open_inline(tmp_path / "s", StoreOptions(inline=True))
    log = store.stream("A", "S")
    assert log is not None
    assert log.state.messages == 2000
    store.close()


def test_a_map_that_finds_no_address_space_is_a_full_store_and_passes(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "s", StoreOptions(inline=True, flush=False, committer="lmdb", map_size=1 << 20))
    log = make_log(store)
    fill(store, log, 10)
    environment = store._environment
    allocated = environment.allocated
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
    try:
        environment.allocated = 1 << 40  # as if the disk had given as much
        txn = store.begin()
        for number in range(9):
            log.append(txn, b"a", b"", b"x" * (1 << 20), 100 + number)
        error = commit(store, txn)
        environment.allocated = allocated
        assert error is not None
        assert error.reason == "full"
        assert [message.seq for message in log.read(1, max_messages=99, max_bytes=1 << 30).messages] == list(
            range(1, 11)
        )
        assert commit_one(store, log) is None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert log.state.messages == 11
    store.close()


def commit_one(store, log):
    txn = store.begin()
    log.append(txn, b"a", b"", b"small", 1000)
    return commit(store, txn)


def test_a_reader_never_uses_the_handle_of_another_stream(tmp_path: Path) -> None:
    """The number of a dropped database is given to the next: a reader of the old one must see nothing, not that."""
    store = open_inline(tmp_path / "s", FAST)
    old = make_log(store, "OLD")
    fill(store, old, 5, b"old")
    reader = old.view.records
    txn = store.begin()
    old.delete(txn)
    assert commit(store, txn) is None
    while store.commit_now() or store._committer.untidy:
        pass
    new = make_log(store, "NEW")
    fill(store, new, 50, b"new")
    assert reader.next_seq(1) == 0
    assert reader.seqs(1, 100, 100) == []
    assert reader.get(1) is None
    assert reader.scan(1, 100, 100, 1 << 20, 100, None).messages == []
    assert reader.heads(1, 100, 100) == ([], [], 101)
    store.close()


def test_reading_while_streams_come_and_go_and_the_map_grows(tmp_path: Path) -> None:
    """The loop reads without a pause while the committing threads create, fill, delete and resize."""
    from eyot_store import Store

    loop = Loop()
    store = Store.open(
        tmp_path / "s",
        notify=loop.notify,
        options=StoreOptions(flush=False, map_size=1 << 20, journal_segment_bytes=64 << 10, journal_segments=2),
    )
    txn = store.begin()
    log = store.create_stream(txn, "A", "KEPT", b"{}", 1)
    for number in range(200):
        log.append(txn, b"kept", b"", b"k" * 100, number)
    store.submit(txn)
    loop.run(lambda: not store.backlog_txns)
    for round_ in range(60):
        txn = store.begin()
        passing = store.create_stream(txn, "A", f"PASSING-{round_}", b"{}", 1)
        for number in range(100):
            passing.append(txn, b"passing", b"", b"p" * 4000, number)
        store.submit(txn)
        reads = 0
        while store.backlog_txns or reads < 5:
            assert len(log.read(1, max_messages=200, max_bytes=1 << 20).messages) == 200
            store.disk_bytes()
            loop.drain()
            reads += 1
        assert passing.state.messages == len(passing.read(1, max_messages=200, max_bytes=1 << 30).messages)
        if round_ % 2:
            txn = store.begin()
            passing.delete(txn)
            store.submit(txn)
    loop.run(lambda: not store.backlog_txns)
    assert store.stats.map_growths > 0
    store.close()
