"""The rows of `make bench BENCH=leaf`: how fast a backlog of a leaf node comes into the hub's stream."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import memory
import wire
from nodes import Node
from peers import NATS, NEWEST, OURS, kind
from processes import cpu_s
from rows import Notes, Say, alternating
from table import Row

TITLE = "Leaf catch-up"
PEERS = [NATS, NEWEST]
ROUNDS = 5
HOW = (
    "The hub makes a source or mirror of a stream that the leaf node has filled; from the first message at the hub to the last. Eyot's "
    "streams are flushed, nats-server's are not. Before each row, free memory is used once: a virtual machine gets it from its host then."
)
#: (payload bytes, messages)
BACKLOGS = [(200, 300_000), (4096, 40_000)]
WITHIN_S = 300
_RESERVE = 256 << 20


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group."""
    notes = Notes(scale)

    def one(peer: str) -> None:
        program = kind(peer).program
        with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as name:
            hub = Node(program, "hub", Path(name))
            leaf = Node(program, "leaf", Path(name), remote_port=hub.leaf_port)
            hub.start()
            leaf.start()
            try:
                for size, count in BACKLOGS:
                    _backlog(notes, peer, hub, leaf, size, notes.count(count))
            finally:
                leaf.stop()
                hub.stop()

    alternating([OURS, *peers], rounds, say, "leaf", one)
    return notes.rows


def _backlog(notes: Notes, peer: str, hub: Node, leaf: Node, size: int, count: int) -> None:
    wire.make_stream(leaf.port, "READINGS", "bench.durable")
    wire.publish_acknowledged(leaf.port, 1, 256, b"x" * size, count)
    asking = wire.Peer(hub.port)
    for role in ("source", "mirror"):
        origin = {"name": "READINGS", "external": {"api": "$JS.leaf.API", "deliver": ""}}
        copy = {"sources": [origin]} if role == "source" else {"mirror": origin}
        memory.touch(_RESERVE + 3 * size * count)
        before = [cpu_s(each) for each in (hub, leaf)]
        asking.request("$JS.API.STREAM.CREATE.COPY", {"name": "COPY", "storage": "file", **copy})
        rate = _rate(asking, count)
        used = [cpu_s(each) - was for each, was in zip((hub, leaf), before, strict=True)]
        what = f"{role}, {size:,} B"
        notes.note(what, "msgs/s", peer, rate)
        notes.note(f"{what}: CPU of hub and leaf node", "us/message", peer, sum(used) * 1e6 / count)
        asking.request("$JS.API.STREAM.DELETE.COPY")
    asking.close()
    wire.delete_stream(leaf.port, "READINGS")


def _rate(asking: wire.Peer, count: int) -> float:
    """Messages a second, from the first that is seen to the last."""
    begun = time.perf_counter()
    first = seen_at_first = 0.0
    while True:
        state = asking.request("$JS.API.STREAM.INFO.COPY")["state"]
        assert isinstance(state, dict)
        now, seen = time.perf_counter(), int(state["messages"])
        if seen and not first:
            first, seen_at_first = now, seen
        if seen >= count:
            return max(1, count - seen_at_first) / max(now - first, 1e-6)
        if now - begun > WITHIN_S:
            raise RuntimeError(f"only {seen} of {count} arrived")
        time.sleep(0.005)
