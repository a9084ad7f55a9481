"""No room left: the map's upper limit, a file size limit, and how the store comes back from them by itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from eyot_store import StoreError, StoreOptions
from eyot_store.check.check import check
from eyot_store.lmdb.batch import _APPLY, Batch
from eyot_store.txn import AppendRun, Op
from support.store.store import commit, fill, make_log, open_inline

KIB = 1024
SMALL = StoreOptions(inline=True, flush=False, map_size=256 * KIB, map_size_max=4096 * KIB, map_reserve=1024 * KIB)


def test_the_map_grows_by_itself(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", StoreOptions(inline=True, flush=False, map_size=256 * KIB))
    log = make_log(store)
    for _ in range(12):
        fill(store, log, 1000, payload=bytes(1000))
        assert len(log.read(log.committed_seq - 9, max_messages=99, max_bytes=1 << 20).messages) == 10
    assert store.stats.map_growths > 2
    store.close()
    store = open_inline(tmp_path / "store", StoreOptions(inline=True, flush=False, map_size=256 * KIB))
    assert store.streams()[0].state.messages == 12_000
    fill(store, store.streams()[0], 1000, payload=bytes(1000))
    store.crash()


def test_a_full_store_refuses_messages_and_takes_removals(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", SMALL)
    log, other = make_log(store), make_log(store, "T")
    errors: list[StoreError] = []
    while len(errors) < 5:
        txn = store.begin()
        for _ in range(20):
            log.append(txn, b"a", b"", bytes(1000), 1)
        error = commit(store, txn)
        if error is not None:
            errors.append(error)
    assert {error.reason for error in errors} == {"full"}
    full_at = log.state.messages
    assert log.state.last_seq == log.committed_seq == full_at
    assert len(log.read(1, max_messages=9, max_bytes=1 << 20).messages) == 9
    # Consumers' states and removals go on, for as long as it takes to empty the stream one message at a time.
    for seq in range(1, full_at + 1):
        txn = store.begin()
        other.put_consumer_state(txn, "c", bytes(200))
        assert log.remove(txn, seq)
        assert commit(store, txn) is None
    # And with that it takes messages again.
    for _ in range(full_at // 20 - 10):
        fill(store, log, 20, payload=bytes(1000))
    store.close()
    assert check(tmp_path / "store").problems == []


def test_a_full_store_can_be_purged(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", SMALL)
    log = make_log(store)
    error = None
    while error is None:
        txn = store.begin()
        log.append(txn, b"a", b"", bytes(20_000), 1)
        error = commit(store, txn)
    assert error.reason == "full"
    txn = store.begin()
    log.purge(txn, keep=3)
    assert commit(store, txn) is None
    fill(store, log, 50, payload=bytes(20_000))
    store.crash()


def test_one_message_too_large_for_the_room_left_does_not_take_others_along(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", SMALL)
    log, other = make_log(store), make_log(store, "T")
    results: list[StoreError | None] = []
    for each, size in ((log, 100), (other, 8 << 20), (log, 200)):
        txn = store.begin()
        each.append(txn, b"a", b"", bytes(size), 1)
        store.submit(txn, results.append)
    store.commit_now()
    assert [error and error.reason for error in results] == [None, "full", None]
    assert (log.state.messages, other.state.messages) == (2, 0)
    store.crash()


LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from eyot_store import StoreOptions
from support.store.store import commit, fill, make_log, open_inline

def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))

if sys.argv[3] == "before":
    limit()
store = open_inline(Path(sys.argv[1]), StoreOptions(inline=True, map_size=int(sys.argv[4]), map_reserve=1 << 20))
log, other = make_log(store), make_log(store, "T")
limit()
error, reasons = None, set()
while len(reasons) == 0 or log.state.messages % 7:
    txn = store.begin()
    for _ in range(7):
        log.append(txn, b"a", b"", bytes(3000), 1)
    error = commit(store, txn)
    if error:
        reasons.add(error.reason)
assert reasons == {"full"}, reasons
count = log.state.messages
assert log.state.last_seq == log.committed_seq == count
assert len(log.read(1, max_messages=9, max_bytes=1 << 20).messages) == 9
txn = store.begin()
log.purge(txn, keep=10)
assert commit(store, txn) is None
fill(store, log, 70, payload=bytes(3000))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
fill(store, log, 2000, payload=bytes(3000))
print(log.state.messages, log.state.last_seq)
store.close()
"""


@pytest.mark.parametrize(("when", "size"), [("before", 1 << 20), ("after", 8 << 20)])
def test_a_file_size_limit(tmp_path: Path, when: str, size: int) -> None:
    """What the kernel refuses to allocate, or to write where it had allocated, comes out as "full"; nothing is half
    there, and all goes on when there is room.
    """
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "store", tests, when, str(size)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    messages, last_seq = map(int, done.stdout.split())
    report = check(tmp_path / "store")
    assert report.problems == []
    stream = report.streams[0]
    assert (stream.messages, stream.last_seq) == (messages, last_seq) == (2080, last_seq)


def test_a_large_transaction_is_not_written_twice_while_the_file_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that ends at the map's end is for nothing."""
    appended = 0

    def counted(batch: Batch, stream_id: int, run: AppendRun) -> None:
        nonlocal appended
        appended += len(run.items)
        Batch._append(batch, stream_id, run)

    monkeypatch.setitem(_APPLY, Op.APPEND, counted)
    store = open_inline(tmp_path / "store", StoreOptions(inline=True, flush=False, map_size=256 * KIB))
    log = make_log(store)
    for _ in range(12):
        fill(store, log, 1000, payload=bytes(4096))
    assert store.stats.map_growths > 2
    assert appended == 12_000
    store.crash()
