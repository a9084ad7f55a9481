"""The rows of `make bench BENCH=idle`: what a broker costs that has little or nothing to do."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import wire
from nodes import Node
from peers import NATS, NEWEST, OURS, kind, running
from processes import cpu_s, resident_bytes, wakeups, written_bytes
from rows import Notes, Say, alternating
from table import Row

TITLE = "Idle and trickle"
PEERS = [NATS, NEWEST]
ROUNDS = 3
HOW = (
    "A hub and a leaf node with one mirror; messages of 200 bytes are published at the leaf node and each is acknowledged. Figures of the leaf "
    "node. Wake-ups are voluntary context switches of all threads. Written bytes are those that the kernel counts for the process."
)
#: Seconds by messages a second: few messages take longer to use a measurable time.
TRICKLE_S = {0: 5, 1: 6, 10: 4, 100: 4}
SETTLE_S = 3.0
#: Messages of the stream with which a start is measured.
STORED = 10_000_000


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group."""
    notes = Notes(scale)

    def one(peer: str) -> None:
        with running(peer) as node:
            time.sleep(SETTLE_S)
            notes.note("resident, nothing connected", "MiB", peer, resident_bytes(node) / 2**20)
        program = kind(peer).program
        with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as name:
            hub = Node(program, "hub", Path(name))
            leaf = Node(program, "leaf", Path(name), remote_port=hub.leaf_port)
            notes.note("start to the first greeting, with JetStream", "s", peer, hub.timed_start())
            leaf.start()
            try:
                wire.make_stream(leaf.port, "READINGS", "bench.durable")
                origin = {"name": "READINGS", "external": {"api": "$JS.leaf.API", "deliver": ""}}
                asking = wire.Peer(hub.port)
                asking.request("$JS.API.STREAM.CREATE.COPY", {"name": "COPY", "storage": "file", "mirror": origin})
                time.sleep(SETTLE_S)
                for rate, seconds in TRICKLE_S.items():
                    _trickle(notes, peer, leaf, rate, max(2.0, seconds * min(1.0, scale)))
                asking.close()
            finally:
                leaf.stop()
                hub.stop()

    alternating([OURS, *peers], rounds, say, "idle", one)
    for peer in (OURS, *peers[:1]):
        say(f"idle: {peer} with {notes.count(STORED):,} messages")
        _starts(notes, peer, rounds)
    return notes.rows


def forget_pages(folder: Path) -> None:
    """Have the kernel read the files anew."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def _starts(notes: Notes, peer: str, rounds: int) -> None:
    """Starts with a large stream, of which the page cache has nothing."""
    count = notes.count(STORED)
    chosen = kind(peer)
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as name:
        node = Node(chosen.program, "bench", Path(name), jetstream=chosen.jetstream)
        node.start()
        try:
            wire.make_stream(node.port, "BENCH", "bench.>")
            wire.publish_to(node.port, [f"bench.{index}" for index in range(1_000)], b"x" * 128, count, in_flight=2_048)
            for _ in range(rounds):
                node.stop()
                forget_pages(Path(name))
                notes.note(f"start with {count:,} messages, cold", "s", peer, node.timed_start())
                info = wire.Peer(node.port)
                state = info.request("$JS.API.STREAM.INFO.BENCH")["state"]
                info.close()
                assert isinstance(state, dict)
                assert state["messages"] == count
        finally:
            node.stop()


def _trickle(notes: Notes, peer: str, leaf: Node, rate: int, seconds: float) -> None:
    publisher = wire.Peer(leaf.port)
    publisher.socket.sendall(b"SUB _INBOX.t 1\r\n")
    publisher.barrier()
    frame = b"PUB bench.durable _INBOX.t 200\r\n" + os.urandom(100).hex().encode() + b"\r\n"
    before = cpu_s(leaf), wakeups(leaf), written_bytes(leaf)
    begun = time.monotonic()
    count = int(rate * seconds)
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        publisher.socket.sendall(frame)
        while not publisher.receive_acks():
            pass
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    elapsed = time.monotonic() - begun
    used = [now - was for now, was in zip((cpu_s(leaf), wakeups(leaf), written_bytes(leaf)), before, strict=True)]
    what = f"{rate} messages a second" if rate else "idle"
    notes.note(f"{what}: CPU", "ms a second", peer, used[0] * 1e3 / elapsed)
    notes.note(f"{what}: wake-ups", "a second", peer, used[1] / elapsed)
    if rate:
        notes.note(f"{what}: written", "bytes/message", peer, used[2] / count)
    publisher.close()
