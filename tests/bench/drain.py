"""How fast a backlog that gathered at a leaf crosses the link into the hub's stream, for a pair of each kind.

The hub's `sync_interval` decides how durable a nats-server's mirror is: by default it flushes every two minutes, with `always` it
gives the guarantee that Eyot gives. Processor times are those of both processes, so that other load on the machine does not matter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from nodes import Node
from page import write_section
from processes import cpu_s
from rich.console import Console
from table import machine

from support.links.link import Link
from support.servers.newer_nats_server import VERSION, binary

TITLE = "Backlog drain"
OURS = "eyotd"
PAYLOAD = b"x" * 128
console = Console(highlight=False)


@dataclass
class Drained:
    """Messages/s once they flow, seconds until the first is there, microseconds of processor time a message at hub and leaf."""

    rate: float
    first_s: float
    hub_us: float
    leaf_us: float


def drain(kind: str, count: int, hub_jetstream: str = "") -> Drained:
    """`hub_jetstream`: more options in the hub's `jetstream { }`."""
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        hub = Node(kind, "hub", folder, jetstream=hub_jetstream)
        with Link(hub.leaf_port, up=False) as link:
            leaf = Node(kind, "leaf", folder, remote_port=link.port)
            hub.start()
            leaf.start()
            try:
                wire.make_stream(leaf.port, "READINGS", "bench.durable")
                peer = wire.Peer(hub.port)
                source = {"name": "READINGS", "external": {"api": "$JS.leaf.API", "deliver": ""}}
                peer.request("$JS.API.STREAM.CREATE.FLEET", {"name": "FLEET", "storage": "file", "sources": [source]})
                wire.publish_acknowledged(leaf.port, 1, 256, PAYLOAD, count)
                link.restore()
                return _drained(peer, count, (hub, leaf))
            finally:
                leaf.stop()
                hub.stop()


def _drained(peer: wire.Peer, count: int, servers: tuple[Node, Node]) -> Drained:
    """Everything is reckoned from the moment at which the first message is seen at the hub."""
    begun = time.perf_counter()
    first = used = None
    seen_at_first = 0
    while True:
        state = peer.request("$JS.API.STREAM.INFO.FLEET")["state"]
        assert isinstance(state, dict)
        now, seen = time.perf_counter(), int(state["messages"])
        if seen and first is None:
            first, seen_at_first, used = now, seen, [cpu_s(each) for each in servers]
        if seen >= count:
            assert first is not None
            assert used is not None
            left = max(1, count - seen_at_first)
            hub_us, leaf_us = ((cpu_s(each) - was) * 1e6 / left for each, was in zip(servers, used, strict=True))
            return Drained(left / max(now - first, 1e-6), first - begun, hub_us, leaf_us)
        if now - begun > 600:
            raise RuntimeError(f"only {seen} of {count} arrived")
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    pairs = {
        OURS: (OURS, ""),
        f"nats-server {VERSION}": (binary(VERSION), ""),
        f"nats-server {VERSION}, hub with sync_interval always": (binary(VERSION), ", sync_interval: always"),
    }
    found: dict[str, list[Drained]] = {name: [] for name in pairs}
    for number in range(options.rounds):
        for name, (kind, jetstream) in pairs.items():
            found[name].append(drain(kind, options.count, jetstream))
            console.print(f"round {number + 1}: {name}: {found[name][-1]}")
    lines = ["| pair | messages/s | Eyot's rate to it | hub, us a message | leaf, us a message |", "|" + " --- |" * 5]
    for name, runs in found.items():
        ratio = median(ours.rate / theirs.rate for ours, theirs in zip(found[OURS], runs, strict=True))
        cells = [f"{median(run.rate for run in runs):,.0f}", f"{ratio:.2f}"]
        cells += [f"{median(run.hub_us for run in runs):.1f}", f"{median(run.leaf_us for run in runs):.1f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    console.print("\n".join(lines), soft_wrap=True)
    if options.write:
        text = (
            f"`python tests/bench/drain.py`: {options.count:,} messages of {len(PAYLOAD)} bytes, leaf to hub over loopback, medians "
            f"of {options.rounds} alternating rounds, ratios taken round by round; processor time of each server. {machine()}."
        )
        write_section(options.write, TITLE, f"{text}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
