"""The store by itself: durable messages a second, CPU and bytes written for each, by messages per commit.

    .venv/bin/python tests/bench/store.py [--directory DIR] [--payload 128] [--seconds 2] [--committer journal]

Each row appends batches of that many messages, one transaction each, waiting for each commit (as one publisher with that
many in flight does). Bytes written are the kernel's count for this process (/proc/self/io write_bytes); "grouped" rows hand
in many transactions of one message at a time and let the committing thread group them.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple

from eyot_store import Log, Store, StoreOptions


class Row(NamedTuple):
    """One measurement."""

    name: str
    messages: int
    seconds: float
    cpu_s: float
    written: int
    commits: int
    flush_ns: int


def written_bytes() -> int:
    """Bytes that this process caused to be sent to the block layer."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/io has no write_bytes")


class Bench:
    """A store, one stream and a stand-in for the loop."""

    def __init__(self, directory: Path, payload: int, committer: Literal["journal", "lmdb"]) -> None:
        self.calls: SimpleQueue = SimpleQueue()
        self.store = Store.open(directory, notify=self.calls.put, options=StoreOptions(committer=committer))
        self.payload = os.urandom(payload)
        txn = self.store.begin()
        self.log: Log = self.store.create_stream(txn, "BENCH", "S", b"{}", time.time_ns())
        self.store.submit(txn)
        self.calls.get()()

    def append(self, count: int) -> None:
        """One transaction with `count` messages, handed in."""
        txn = self.store.begin()
        append, payload, now_ns = self.log.append, self.payload, time.time_ns()
        for number in range(count):
            append(txn, b"sensors.device-%d.temperature" % (number & 15), b"", payload, now_ns + number)
        self.store.submit(txn)

    def run(self, name: str, per_txn: int, txns: int, seconds: float) -> Row:
        """Hand in `txns` transactions of `per_txn` messages, wait until all are durable; again and again."""
        stats = self.store.stats
        messages, commits, flush_ns, written = stats.messages, stats.commits, stats.flush_ns_total, written_bytes()
        started, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - started < seconds:
            for _ in range(txns):
                self.append(per_txn)
            while self.store.backlog_txns:
                self.calls.get()()
        return Row(
            name,
            stats.messages - messages,
            time.perf_counter() - started,
            time.process_time() - cpu,
            written_bytes() - written,
            stats.commits - commits,
            stats.flush_ns_total - flush_ns,
        )

    def read(self, seconds: float) -> tuple[int, float]:
        """Replay the stream: messages and seconds."""
        started, count, seq = time.perf_counter(), 0, 1
        while time.perf_counter() - started < seconds:
            result = self.log.read(seq, max_messages=512, max_bytes=1 << 20)
            count += len(result.messages)
            seq = result.next_seq if result.messages else 1
        return count, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="The store by itself.")
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--payload", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--committer", choices=("journal", "lmdb"), action="append")
    options = parser.parse_args()
    for committer in options.committer or ("journal", "lmdb"):
        print(f"-- {committer}")
        measure(options, committer)


def measure(options: argparse.Namespace, committer: Literal["journal", "lmdb"]) -> None:
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        bench = Bench(Path(directory) / "store", options.payload, committer)
        rows = [bench.run(f"{count} per txn", count, 1, options.seconds) for count in (1, 8, 64, 512, 4096)]
        rows += [bench.run(f"{count} txns of 1", 1, count, options.seconds) for count in (16, 256, 4096)]
        print(f"{'':>15} {'messages/s':>12} {'CPU us/msg':>11} {'bytes/msg':>10} {'msg/commit':>11} {'flush us':>9}")
        for row in rows:
            print(
                f"{row.name:>15} {row.messages / row.seconds:12,.0f} {row.cpu_s / row.messages * 1e6:11.2f} "
                f"{row.written / row.messages:10,.0f} {row.messages / row.commits:11.1f} "
                f"{row.flush_ns / row.commits / 1000:9.0f}"
            )
        count, seconds = bench.read(options.seconds)
        print(f"{'replay':>15} {count / seconds:12,.0f}")
        started = time.perf_counter()
        bench.log.subjects()
        messages = bench.log.state.messages
        print(f"per-subject numbers of {messages:,} messages: {time.perf_counter() - started:.2f} s")
        bench.store.close()


if __name__ == "__main__":
    main()
