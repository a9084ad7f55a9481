"""A small workload on a store, with the n-th write, flush or allocation failing, for every n.

    LD_PRELOAD=faults.so python faults.py DIRECTORY ERRNO TIMES PARTIAL COMMITTER

COMMITTER: `journal`, `lmdb`, or `beside`: with a journal, written beside the loop.

After each run memory must agree with what the transactions reported, the file must agree with memory, and the file must be
sound. Prints the number of runs, and how many had a transaction fail.
"""

import ctypes
import shutil
import sys
from pathlib import Path

import msgspec

from eyot_store import Log, Store, StoreError, StoreOptions
from eyot_store.check.check import check
from support.store.store import commit, open_inline, write_beside

KIB = 1024
OPTIONS = StoreOptions(
    inline=True, map_size=256 * KIB, map_reserve=128 * KIB, journal_segment_bytes=64 * KIB, journal_segments=2
)

Contents = dict[int, bytes]


class Run:
    """The workload once; `contents` is what the store must hold by what it said."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.logs: dict[str, Log] = {}
        self.contents: dict[str, Contents] = {}
        self.positions: dict[str, bytes] = {}
        self.failures: list[StoreError] = []

    def play(self) -> None:
        self.create("S")
        self.create("T")
        for number in range(4):
            self.append("S", number + 1, 700)
            self.append("T", 1, 30_000)
        self.remove("S", 3)
        self.purge("S", 5)
        self.delete("T")
        self.create("T")
        self.append("T", 2, 100)

    def create(self, name: str) -> None:
        if name in self.logs:
            return
        txn = self.store.begin()
        log = self.store.create_stream(txn, "A", name, b"{}", 1)
        if self.done(commit(self.store, txn)):
            self.logs[name], self.contents[name] = log, {}

    def append(self, name: str, count: int, size: int) -> None:
        log = self.logs.get(name)
        if log is None:
            return
        txn, added = self.store.begin(), {}
        for _ in range(count):
            payload = b"%d" % (log.state.last_seq + 1) * size
            added[log.append(txn, b"a", b"", payload, 1)] = payload
        position = b"%d" % log.state.last_seq
        log.put_position(txn, b"p", position)
        if self.done(commit(self.store, txn)):
            self.contents[name].update(added)
            self.positions[name] = position

    def remove(self, name: str, seq: int) -> None:
        log = self.logs.get(name)
        if log is None or seq not in self.contents[name]:
            return
        txn = self.store.begin()
        assert log.remove(txn, seq)
        if self.done(commit(self.store, txn)):
            del self.contents[name][seq]

    def purge(self, name: str, below: int) -> None:
        log = self.logs.get(name)
        if log is None:
            return
        txn = self.store.begin()
        log.purge(txn, below_seq=below)
        if self.done(commit(self.store, txn)):
            self.contents[name] = {seq: payload for seq, payload in self.contents[name].items() if seq >= below}

    def delete(self, name: str) -> None:
        log = self.logs.get(name)
        if log is None:
            return
        txn = self.store.begin()
        log.delete(txn)
        if self.done(commit(self.store, txn)):
            del self.logs[name], self.contents[name]
            self.positions.pop(name, None)

    def done(self, error: StoreError | None) -> bool:
        if error is not None:
            self.failures.append(error)
        return error is None

    def agrees(self, store: Store) -> None:
        """`store` holds what this run says."""
        logs = {log.name: log for log in store.streams()}
        assert set(logs) == set(self.contents), (set(logs), set(self.contents))
        for name, contents in self.contents.items():
            log = logs[name]
            found = {m.seq: m.payload for m in log.read(1, max_messages=999, max_bytes=1 << 30).messages}
            assert found == contents, (name, sorted(found), sorted(contents))
            assert log.state.messages == len(contents)
            assert log.state.bytes == sum(log.message_bytes(b"a", b"", payload) for payload in contents.values())
            positions = {b"p": self.positions[name]} if name in self.positions else {}
            assert log.positions() == positions


def main() -> None:
    directory, error, times, partial = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    options = msgspec.structs.replace(OPTIONS, committer="journal" if sys.argv[5] == "beside" else sys.argv[5])
    faults = ctypes.CDLL(None)
    number, failed, finished = 0, 0, False
    while not finished:
        number += 1
        path = directory / str(number)
        store = open_inline(path, options)
        if sys.argv[5] == "beside":
            write_beside(store)
        run = Run(store)
        faults.fault_arm(ctypes.c_long(number), error, ctypes.c_long(times), partial)
        run.play()
        finished = faults.fault_calls() < number
        faults.fault_arm(ctypes.c_long(0), 0, ctypes.c_long(0), 0)
        failed += bool(run.failures)
        assert {failure.reason for failure in run.failures} <= {"io", "full"}, run.failures
        run.agrees(store)
        run.create("S")  # and it goes on
        run.append("S", 2, 50)
        run.agrees(store)
        if number % 2:
            store.close()
        else:
            store.crash()
        problems = check(path).problems
        assert problems == [], (number, problems)
        store = open_inline(path, options)
        run.agrees(store)
        assert store.recounted == []
        store.crash()
        shutil.rmtree(path)
    print(number, failed)


if __name__ == "__main__":
    main()
