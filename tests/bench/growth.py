"""What a message costs in a store that has grown: publishing and fetching with 100 MB and with 10 GB stored, with 10
subjects and with a million, in buckets of 10 keys and of a million; and the bytes written to disk for each message.

    .venv/bin/python tests/bench/growth.py [--large 10G] [--subjects 1000000] [--rounds 3] [--directory DIR] [--write docs/measured.md]

Each pair of stores is built beforehand; then, round by round in turn, eyotd is started on each, asked for the stream's
subjects (so that they are in memory) and loaded: 128-byte messages with 256 in flight on random subjects of those it
has, then on subjects that are new, and a pull consumer's fetches of 500 with explicit acknowledgements, from the first
message on. What counts on a busy machine is the daemon's processor time for each message; the target is that it grows
to at most 1.5 times. Needs a little more than `--large` of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from nodes import Node
from page import write_section
from processes import cpu_s, resident_bytes
from table import machine

from eyot_store import Store, StoreOptions

FACTORS = {"K": 10**3, "M": 10**6, "G": 10**9}
PUBLISHED, FETCHED = 40_000, 40_000
PAYLOAD = b"x" * 128


class Shape(NamedTuple):
    """A stream as it is found: `count` messages of `size` bytes on `subjects` subjects; of a bucket each key's newest stays."""

    name: str
    count: int
    size: int
    subjects: int
    bucket: bool = False


class Cost(NamedTuple):
    """Of one run: the daemon's microseconds for a message, and messages a second."""

    publish_us: float
    publish_rate: float
    new_us: float
    new_rate: float
    fetch_us: float
    fetch_rate: float
    resident: int


def subject_of(number: int) -> bytes:
    return b"plant.line-%d.sensor-%d" % (number % 100, number)


def build(path: Path, shape: Shape) -> None:
    """The store, in large transactions."""
    path.mkdir(parents=True)
    store = Store.open(path, notify=lambda fn: fn(), options=StoreOptions(inline=True, flush=False, map_size=64 << 20))
    config: dict[str, object] = {
        "name": "S",
        "subjects": ["plant.>"],
        "storage": "file",
        "num_replicas": 1,
        "retention": "limits",
        "allow_direct": True,
    }
    config |= dict.fromkeys(("max_consumers", "max_msgs", "max_bytes", "max_msg_size"), -1)
    config["max_msgs_per_subject"] = 1 if shape.bucket else -1
    txn = store.begin()
    log = store.create_stream(txn, "FLEET", "S", json.dumps(config).encode(), time.time_ns())
    store.submit(txn)
    store.commit_now()
    payload = os.urandom(shape.size)
    done, step = 0, max(1000, 20_000_000 // (shape.size + 100))
    while done < shape.count:
        txn, last = store.begin(), min(done + step, shape.count)
        log.append_all(
            txn, [(subject_of(n % shape.subjects), b"", b"", payload) for n in range(done, last)], time.time_ns()
        )
        store.submit(txn)
        store.commit_now()
        done = last
        print(f"\r{shape.name}: {done:,} messages", end="", file=sys.stderr, flush=True)
    while store._committer.untidy:
        store.commit_now()
    store.close()
    print(file=sys.stderr)


@contextmanager
def on(folder: Path) -> Iterator[Node]:
    node = Node("eyotd", "bench", folder)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def publish(node: Node, subjects: int, count: int, in_flight: int = 256) -> float:
    """Seconds until `count` messages on random subjects were acknowledged."""
    chance = random.Random(1)
    return publish_on(
        node, [subject_of(chance.randrange(subjects)) for _ in range(min(count, 20_000))], count, in_flight
    )


def publish_on(node: Node, subjects: list[bytes], count: int, in_flight: int = 256) -> float:
    """The same on these subjects in turn."""
    peer = wire.Peer(node.port)
    frames = [b"PUB %b _INBOX.g %d\r\n%b\r\n" % (subject, len(PAYLOAD), PAYLOAD) for subject in subjects]
    peer.socket.sendall(b"SUB _INBOX.g 1\r\n")
    peer.barrier()
    begun, sent, acked, rest = time.perf_counter(), 0, 0, b""
    while acked < count:
        wanted = min(in_flight - (sent - acked), count - sent)
        if wanted > 0:
            peer.socket.sendall(b"".join(frames[n % len(frames)] for n in range(sent, sent + wanted)))
            sent += wanted
        data = rest + peer.socket.recv(wire.RECEIVE_BYTES)
        if b'"error"' in data:
            raise RuntimeError(data.decode(errors="replace"))
        acked += data.count(b'"seq":')
        rest = data[-5:]
    elapsed = time.perf_counter() - begun
    peer.close()
    return elapsed


def run(node: Node, shape: Shape) -> Cost:
    peer = wire.Peer(node.port)
    peer.request("$JS.API.STREAM.INFO.S")
    publish(node, shape.subjects, 2000)  # what is loaded at the first message is loaded
    before = cpu_s(node)
    published_s = publish(node, shape.subjects, PUBLISHED)
    between = cpu_s(node)
    new_s = publish_on(node, [subject_of(shape.subjects + 100_000_000 + n) for n in range(PUBLISHED)], PUBLISHED)
    after_new = cpu_s(node)
    fetched = min(FETCHED, int(peer.request("$JS.API.STREAM.INFO.S")["state"]["messages"]) // 500 * 500)  # type: ignore[index, call-overload]
    fetched_s = wire.fetch_acknowledged(node.port, "S", 500, fetched) if fetched else 0.0
    after = cpu_s(node)
    peer.close()
    return Cost(
        (between - before) / PUBLISHED * 1e6,
        PUBLISHED / published_s,
        (after_new - between) / PUBLISHED * 1e6,
        PUBLISHED / new_s,
        (after - after_new) / fetched * 1e6 if fetched else 0.0,
        fetched / fetched_s if fetched else 0.0,
        resident_bytes(node),
    )


def compare(folder: Path, small: Shape, large: Shape, rounds: int) -> list[str]:
    """Table rows for a pair."""
    costs: dict[str, list[Cost]] = {small.name: [], large.name: []}
    for shape in (small, large):
        build(folder / shape.name / "bench-store" / "eyot", shape)
    for number in range(rounds):
        for shape in (small, large):
            with on(folder / shape.name) as node:
                cost = run(node, shape)
            costs[shape.name].append(cost)
            print(f"round {number + 1}: {shape.name}: {cost}", file=sys.stderr)
    lines = []
    measured: list[tuple[str, Callable[[Cost], float], Callable[[Cost], float]]] = [
        ("publish", lambda cost: cost.publish_us, lambda cost: cost.publish_rate),
        ("publish, each on a new subject", lambda cost: cost.new_us, lambda cost: cost.new_rate),
        ("fetch", lambda cost: cost.fetch_us, lambda cost: cost.fetch_rate),
    ]
    for what, us, rate in measured:
        ours = [statistics.median(map(us, costs[shape.name])) for shape in (small, large)]
        rates = [statistics.median(map(rate, costs[shape.name])) for shape in (small, large)]
        if all(ours):
            lines.append(
                f"| {what} | {small.name} | {large.name} | {ours[0]:.1f} | {ours[1]:.1f} | {ours[1] / ours[0]:.2f} "
                f"| {rates[0]:,.0f} | {rates[1]:,.0f} |"
            )
    return lines


def written_bytes(node: Node) -> int:
    for line in Path(f"/proc/{node.pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise RuntimeError("no write_bytes")


def flash(folder: Path) -> list[str]:
    """Bytes that the daemon sends to the block layer for each message; the journal's files are made before."""
    lines = []
    with on(folder / "flash") as node:
        wire.make_stream(node.port, "S", "plant.>")
        publish(node, 10, 60_000)
        for in_flight, count, most in ((1, 4_000, "5,000"), (64, 80_000, "800")):
            before = written_bytes(node)
            publish(node, 10, count, in_flight)
            lines.append(f"| {in_flight} | {(written_bytes(node) - before) / count:,.0f} | {most} |")
    return lines


def number_of(text: str) -> int:
    factor = FACTORS.get(text[-1].upper(), 1)
    return int(float(text[:-1] if factor > 1 else text) * factor)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a message costs in a store that has grown.")
    parser.add_argument("--large", type=number_of, default=number_of("10G"), help="bytes stored in the larger store")
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", default="stored,subjects,keys", help="which to compare, of those three")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    many = options.subjects
    stored = Shape("100 MB", 25_000, 4000, 10), Shape(f"{options.large / 1e9:g} GB", options.large // 4000, 4000, 10)
    pairs = {
        "stored": stored,
        "subjects": (Shape("10 subjects", many, 128, 10), Shape(f"{many:,} subjects", many, 128, many)),
        "keys": (Shape("10 keys", 10, 128, 10, True), Shape(f"{many:,} keys", many, 128, many, True)),
    }
    rows: list[str] = []
    for small, large in (pairs[name] for name in options.pairs.split(",")):
        with tempfile.TemporaryDirectory(prefix="eyot-growth-", dir=options.directory) as folder:
            rows += compare(Path(folder), small, large, options.rounds)
    with tempfile.TemporaryDirectory(prefix="eyot-growth-", dir=options.directory) as folder:
        bytes_rows = flash(Path(folder))
    text = "\n".join(
        [
            f"`python tests/bench/growth.py --rounds {options.rounds}`: the daemon's processor time for each message (medians), "
            "which other programs disturb less than rates. The target is at most 1.5 times.",
            "",
            machine() + f", load {os.getloadavg()[0]:.0f}.",
            "",
            "| what | of | in | us a message | us a message | times | messages/s | messages/s |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            "Bytes that the whole daemon writes to disk for each 128-byte message (`/proc/PID/io`):",
            "",
            "| in flight | bytes a message | at most |",
            "| --- | --- | --- |",
            *bytes_rows,
        ]
    )
    print(text)
    if options.write:
        write_section(options.write, "Growth", text)


if __name__ == "__main__":
    main()
