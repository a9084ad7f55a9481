"""Time from the return of a leaf link to the first message in the hub's mirror and source, with every nats-server in either role.

The hub holds a stream with a source and a mirror of a stream at the leaf. The link is cut for a random time, the leaf's
client publishes meanwhile, the link comes back: counted is the time from the established link to the first new message
in the hub's source and in its mirror. All pairs run at the same time, each with a link of its own.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import wire
from nodes import Node
from page import write_section
from rich.console import Console
from table import machine, percentile

from support.links.link import Link
from support.servers.newer_nats_server import binary
from support.servers.server_process import executable

SERVERS = ["2.9.10", "2.10.26", "2.11.11", "2.12.8", "2.14.6", "2.15.1"]
TITLE = "Resume after link-up"
POLL_S = 0.02
START_EVERY_S = 4.0
PATIENCE_S = 180.0
console = Console(highlight=False)


@dataclass
class Pair:
    """A hub and a leaf; `kind` is what `Node` takes. `linked_s`: the link restored to established."""

    hub: str
    leaf: str
    source_s: list[float] = field(default_factory=list)
    mirror_s: list[float] = field(default_factory=list)
    down_s: list[float] = field(default_factory=list)

    def row(self) -> str:
        cells = [self.hub, self.leaf, str(len(self.source_s))]
        for figures in (self.source_s, self.mirror_s):
            cells += [f"{percentile(figures, at):.2f}" for at in (0.5, 0.99)]
        return "| " + " | ".join(cells) + " |"


def kind_of(name: str, eyotd: str) -> str:
    if name == "eyotd":
        return eyotd
    return executable("nats-server") if name == "2.9.10" else binary(name)


def play(pair: Pair, wait_s: float, cuts: int, down_s_max: float, eyotd: str, seed: int) -> Pair:
    """One pair; begins after `wait_s`, so that not all start at once."""
    time.sleep(wait_s)
    rng = random.Random(f"{seed} {pair.hub} {pair.leaf}")
    with tempfile.TemporaryDirectory(prefix="eyot-resume-", dir="/var/tmp") as name:
        folder = Path(name)
        hub = Node(kind_of(pair.hub, eyotd), "hub", folder)
        with Link(hub.leaf_port) as link:
            leaf = Node(kind_of(pair.leaf, eyotd), "leaf", folder, remote_port=link.port)
            # Else the leaf learns the hub's own address, and goes round the link.
            hub.set_config(
                hub.config_path.read_text().replace("no_advertise: true", f'advertise: "127.0.0.1:{link.port}"')
            )
            try:
                hub.start()
                leaf.start()
                _play(pair, hub, leaf, link, [rng.uniform(1.0, down_s_max) for _ in range(cuts)])
            except Exception as problem:
                console.print(f"{pair.hub} hub, {pair.leaf} leaf: {problem!r}")
            finally:
                leaf.kill()
                hub.kill()
    return pair


def _play(pair: Pair, hub: Node, leaf: Node, link: Link, times_s: list[float]) -> None:
    wire.make_stream(leaf.port, "READINGS", "bench.durable")
    peer = wire.Peer(hub.port)
    origin = {"name": "READINGS", "external": {"api": "$JS.leaf.API", "deliver": ""}}
    peer.request("$JS.API.STREAM.CREATE.FLEET", {"name": "FLEET", "storage": "file", "sources": [origin]})
    peer.request("$JS.API.STREAM.CREATE.BACKUP", {"name": "BACKUP", "storage": "file", "mirror": origin})
    published = 20
    wire.publish_acknowledged(leaf.port, 1, 1, b"x" * 128, published)
    _origin_position(peer, hub, published, time.monotonic())
    for down_s in times_s:
        link.cut()
        time.sleep(down_s / 2)
        published += 10
        wire.publish_acknowledged(leaf.port, 1, 1, b"x" * 128, 10)
        time.sleep(down_s / 2)
        link.restore()
        _wait_linked(hub)
        peer.close()
        peer = wire.Peer(hub.port)  # one that answers no PING would be thrown out after some minutes
        source_s, mirror_s = _origin_position(peer, hub, published, time.monotonic())
        pair.down_s.append(down_s)
        pair.source_s.append(source_s)
        pair.mirror_s.append(mirror_s)
        console.print(
            f"{pair.hub} hub, {pair.leaf} leaf: down {down_s:.0f} s, source {source_s:.2f} s, mirror {mirror_s:.2f} s"
        )
        time.sleep(1)


def _wait_linked(hub: Node) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not hub.monitor("/leafz")["leafnodes"]:
        if time.monotonic() > deadline:
            raise RuntimeError("the leaf does not come back")
        time.sleep(POLL_S)


def _origin_position(peer: wire.Peer, hub: Node, published: int, since: float) -> tuple[float, float]:
    """Seconds until each copy holds something of the last ten messages published."""
    seen = {"FLEET": 0.0, "BACKUP": 0.0}
    while not all(seen.values()):
        for stream, at in seen.items():
            if at:
                continue
            state = peer.request(f"$JS.API.STREAM.INFO.{stream}")["state"]
            assert isinstance(state, dict)
            if int(state["messages"]) > published - 10:
                seen[stream] = time.monotonic() - since
        if time.monotonic() - since > PATIENCE_S:
            raise RuntimeError(f"{published} published, after {PATIENCE_S:.0f} s only {seen}")
        time.sleep(POLL_S)
    return seen["FLEET"], seen["BACKUP"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=12)
    parser.add_argument("--down", type=float, default=75.0, help="the longest time without the link, seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eyotd", default=executable("eyotd"))
    parser.add_argument("--hubs", nargs="*", default=["eyotd", *SERVERS], help="hubs of an Eyot leaf")
    parser.add_argument("--leafs", nargs="*", default=SERVERS, help="leafs of an Eyot hub")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    pairs = [Pair(hub, "eyotd") for hub in options.hubs] + [Pair("eyotd", leaf) for leaf in options.leafs]
    with ThreadPoolExecutor(len(pairs)) as pool:
        done = list(
            pool.map(
                lambda at: play(pairs[at], START_EVERY_S * at, options.cuts, options.down, options.eyotd, options.seed),
                range(len(pairs)),
            )
        )
    lines = [
        "| hub | leaf | cuts | source p50, s | source p99, s | mirror p50, s | mirror p99, s |",
        "|" + " --- |" * 7,
        *(pair.row() for pair in done if pair.source_s),
    ]
    table = "\n".join(lines) + "\n"
    console.print(table, soft_wrap=True)
    if options.write:
        text = (
            f"`python tests/bench/resume.py`: from the established link to the first new message in the hub's copies, after "
            f"cuts of 1 to {options.down:.0f} s; all pairs at the same time.\n\n{machine()}.\n"
        )
        write_section(options.write, TITLE, f"{text}\n{table}")


if __name__ == "__main__":
    main()
