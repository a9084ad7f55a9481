"""The rows of `make bench BENCH=durable`: publishes that are acknowledged, and reads."""

from __future__ import annotations

import memory
import mixed_load
import wire
from nodes import Node
from peers import ALWAYS, FLOOR, NATS, OURS, running
from rows import Notes, Say, alternating
from table import Row

TITLE = "Durable"
PEERS = [ALWAYS, NATS, FLOOR]
ROUNDS = 5
HOW = (
    "`always` is `sync_interval: always`, which makes the promise that Eyot makes: what is acknowledged is on flash. The other "
    "nats-server has its default and flushes every two minutes. The floor appends to a file, and flushes it once for all that came at "
    "the same time. Before each row, free memory is used once: a virtual machine gets it from its host then."
)
#: (connections, in flight on each, payload bytes, messages)
PUBLISHES = [
    (1, 1, 200, 1_500),
    (1, 16, 200, 8_000),
    (1, 256, 200, 60_000),
    (16, 1, 200, 8_000),
    (64, 1, 200, 12_000),
    (1, 16, 4096, 6_000),
    (1, 64, 4096, 12_000),
    (1, 16, 65_536, 2_000),
]
_RESERVE = 64 << 20


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group."""
    notes = Notes(scale)

    def one(peer: str) -> None:
        with running(peer) as node:
            for connections, in_flight, size, count in PUBLISHES:
                _publishes(notes, peer, node, connections, in_flight, size, count)
            if peer == FLOOR:
                return
            count = notes.count(20_000)
            rate = count / wire.publish_acknowledged(node.port, 1, 256, b"x" * 200, count, ids=True)
            notes.note("200 B with Nats-Msg-Id, 1 connection, 256 in flight", "msgs/s", peer, rate)
        with running(peer) as node:
            count = notes.count(1_000 if peer != ALWAYS else 300)
            rate = mixed_load.run(node.port, 10, 10, b"x" * 200, count)
            notes.note("ten streams with ten consumers each, all acknowledged", "deliveries/s", peer, rate)
        if peer != ALWAYS:
            with running(peer) as node:
                _reads(notes, peer, node)

    alternating([OURS, *peers], rounds, say, "durable", one)
    return notes.rows


def _publishes(notes: Notes, peer: str, node: Node, connections: int, in_flight: int, size: int, count: int) -> None:
    count = max(notes.count(count), connections * in_flight)
    if peer == ALWAYS:
        count = max(count // 4, connections * in_flight)  # a rate, and a flush a message
    memory.touch(_RESERVE + 3 * size * count)
    rate = count / wire.publish_acknowledged(node.port, connections, in_flight, b"x" * size, count)
    many = "1 connection" if connections == 1 else f"{connections} connections"
    notes.note(f"{size:,} B, {many}, {in_flight} in flight", "msgs/s", peer, rate)


def _reads(notes: Notes, peer: str, node: Node) -> None:
    count = notes.count(300_000)
    wire.publish_acknowledged(node.port, 1, 1024, b"x" * 200, count)
    fetched = notes.count(40_000) // 500 * 500 or 500
    notes.note(
        "pull fetch of 500, explicit acks",
        "msgs/s",
        peer,
        fetched / wire.fetch_acknowledged(node.port, "BENCH", 500, fetched),
    )
    notes.note("ordered replay", "msgs/s", peer, count / wire.ordered_replay(node.port, "BENCH", count))
