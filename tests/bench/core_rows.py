"""The rows of `make bench BENCH=core`: publishing, deliveries by size and number of subscribers, request/reply, plain and over TLS."""

from __future__ import annotations

import ssl
import statistics
import tempfile
from pathlib import Path

import wire
from nodes import Node
from peers import FLOOR, NATS, NEWEST, OURS, running
from rows import Notes, Say, alternating
from table import Row

from support.trust.certificates import Authority

TITLE = "Core"
PEERS = [NATS, NEWEST, FLOOR]
ROUNDS = 5
HOW = (
    "One publisher; each subscriber is a process of its own. The floor is a C program that does the least possible with the same "
    "sockets."
)
SMALL = b"x" * 128
#: Bytes that one row of large payloads moves.
BYTES = 1_600_000_000
#: (subscribers, payload bytes, messages)
FANS = [(1, 128, 1_000_000), *((1, 1024 * kib, BYTES // (1024 * kib + 3072)) for kib in (1, 4, 16, 64, 512))]
FANS += [(4, 128, 400_000), (4, 4096, 100_000), (16, 128, 300_000), (16, 4096, 24_000)]
REQUESTS = 4_000
CROWD = 100


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group."""
    notes = Notes(scale)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Authority(Path(folder)).issue("server")
        tls = f'\ntls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'

        def one(peer: str) -> None:
            with running(peer) as node:
                _deliveries(notes, peer, node)
                _round_trips(notes, peer, node, "request/reply", None)
            if peer != FLOOR:
                with running(peer, more=tls) as node:
                    trusting = ssl.create_default_context(cafile=str(Path(folder) / "ca.pem"))
                    _round_trips(notes, peer, node, "request/reply over TLS", trusting)

        alternating([OURS, *peers], rounds, say, "core", one)
    return notes.rows


def _deliveries(notes: Notes, peer: str, node: Node) -> None:
    count = notes.count(2_000_000)
    publisher = wire.Peer(node.port)
    elapsed = wire.timed(lambda: wire.publish(publisher, "bench.nobody", SMALL, count))
    publisher.close()
    notes.note("publish, no subscriber", "msgs/s", peer, count / elapsed)
    for subscribers, size, wanted in FANS:
        count = notes.count(wanted)
        elapsed = wire.fan_out(node.port, subscribers, b"x" * size, count)
        notes.note(f"1 to {subscribers} at {size:,} B", "deliveries/s", peer, subscribers * count / elapsed)
    count = notes.count(300_000) // CROWD * CROWD
    elapsed = wire.crowd(node.port, CROWD, SMALL, count)
    notes.note(
        f"{CROWD} publishers, {CROWD} subscribers, 128 B, a message a write", "deliveries/s", peer, count / elapsed
    )
    for subjects in (64, 10_000) if peer != FLOOR else ():
        count = notes.count(400_000)
        elapsed = wire.fan_out(node.port, 1, SMALL, count, subjects)
        notes.note(f"1 to 1 at 128 B, {subjects:,} subjects in turn", "deliveries/s", peer, count / elapsed)


def _round_trips(notes: Notes, peer: str, node: Node, what: str, tls: ssl.SSLContext | None) -> None:
    times = sorted(wire.request_reply(node.port, SMALL, notes.count(REQUESTS), tls))
    notes.note(f"{what}, p50", "us", peer, statistics.median(times) * 1e6)
    notes.note(f"{what}, p99", "us", peer, times[int(len(times) * 0.99)] * 1e6)
