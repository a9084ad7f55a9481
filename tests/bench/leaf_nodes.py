"""A thousand leaf nodes that reconnect to one hub at once: time until all are linked, and memory of an idle link.

The leaf nodes are simulated in this process: each uses the leaf protocol as a nats-server would (CONNECT, its interest behind the
second INFO, PING), with a domain of its own. The hub is a real process, killed and started again while all of them try.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

from nodes import Node
from page import write_section
from processes import cpu_s, resident_bytes
from rich.console import Console
from table import machine, percentile

from support.servers.newer_nats_server import VERSION, binary

TITLE = "A thousand leafs"
#: What nats-server waits between two tries, and at most as long again by chance.
RETRY_S = 1.0
PATIENCE_S = 180.0
#: Long enough that everybody's interest has been passed on to everybody.
SETTLED_S = 10.0
API = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>")
console = Console(highlight=False)


class Leaf(asyncio.Protocol):
    """One connection. Once it is linked it looks at what comes for PING alone: what a thousand devices do, one process does here."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._fleet = fleet
        self._number = number
        self._infos = 0
        self._tail = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._fleet.linked.pop(self._number, None)
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        seen = self._tail + data
        if self._infos < 2:
            *lines, self._tail = seen.split(b"\r\n")
            for line in lines:
                self._greeted(line)
        else:
            self._tail = seen[-5:]
        if b"PONG\r\n" in seen:
            self._fleet.linked.setdefault(self._number, time.perf_counter() - self._fleet.begun)
        if b"PING\r\n" in seen:
            self._transport.write(b"PONG\r\n")

    def _greeted(self, line: bytes) -> None:
        assert self._transport is not None
        if not line.startswith(b"INFO"):
            return
        self._infos += 1
        number, name = self._number, f"leaf{self._number}"
        if self._infos == 1:
            hello = {"version": "2.12.0", "server_id": f"N{number:055}", "name": name, "cluster": name, "domain": name,
                     "jetstream": True, "headers": True, "user": "fleet", "pass": "fleet", "remote_account": "FLEET",
                     "protocol": 1}  # fmt: skip
            self._transport.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        else:
            interest = [f"$JS.{name}.API.{api}" for api in API] + [f"readings.{name}.>", f"$LDS.{number:022}"]
            self._transport.write(b"".join(b"LS+ %b\r\n" % each.encode() for each in interest) + b"PING\r\n")


@dataclass
class Fleet:
    """`linked`: seconds since `begun` at which each leaf was linked, by its number."""

    port: int
    begun: float = 0.0
    linked: dict[int, float] = field(default_factory=dict)

    async def live(self, number: int) -> None:
        """One leaf: tries until it is linked, and again whenever it is not any more."""
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError):
                transport, leaf = await loop.create_connection(lambda: Leaf(self, number), "127.0.0.1", self.port)
                try:
                    await leaf.ended
                finally:
                    transport.abort()
            await asyncio.sleep(RETRY_S + random.random() * RETRY_S)

    async def all_linked(self, count: int) -> list[float]:
        while len(self.linked) < count:
            await asyncio.sleep(0.02)
            if time.perf_counter() - self.begun > PATIENCE_S:
                raise RuntimeError(f"only {len(self.linked)} of {count} leafs are linked")
        return list(self.linked.values())


async def play(hub: Node, leaf_nodes: int) -> list[str]:
    """Figures as the table shows them."""
    fleet = Fleet(hub.leaf_port)
    before = resident_bytes(hub)
    fleet.begun = time.perf_counter()
    tasks = [asyncio.create_task(fleet.live(number)) for number in range(leaf_nodes)]
    first = await fleet.all_linked(leaf_nodes)
    await asyncio.sleep(SETTLED_S)
    each = (resident_bytes(hub) - before) / leaf_nodes
    hub.kill()
    while fleet.linked:
        await asyncio.sleep(0.02)
    await asyncio.to_thread(hub.start)
    fleet.begun, used = time.perf_counter(), cpu_s(hub)
    again = await fleet.all_linked(leaf_nodes)
    used = cpu_s(hub) - used
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [
        f"{max(first):.1f}",
        f"{percentile(again, 0.5):.1f}",
        f"{max(again):.1f}",
        f"{used:.1f}",
        f"{each / 1024:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--leafs", type=int, default=1000)
    parser.add_argument("--hubs", nargs="*", default=["eyotd", "nats-server", VERSION])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    lines = [
        "| hub | all linked, s | half of them again, s | all of them again, s | of that the hub's CPU, s | resident for each idle link, KiB |",
        "|" + " --- |" * 6,
    ]
    for name in options.hubs:
        kind = name if name in ("eyotd", "nats-server") else binary(name)
        with tempfile.TemporaryDirectory(prefix="eyot-leaves-", dir="/var/tmp") as folder:
            hub = Node(kind, "hub", Path(folder))
            hub.start()
            try:
                figures = asyncio.run(play(hub, options.leafs))
            finally:
                hub.kill()
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
        console.print(lines[-1])
    if options.write:
        text = (
            f"`python tests/bench/leaf_nodes.py`: {options.leafs:,} simulated leafs, each with {len(API) + 2} subjects of interest, "
            "connect at once; then the hub is killed and started again while they retry every 1 to 2 s. Seconds count from the "
            f"start of the first connections, and from when the new hub greets its clients. {machine()}."
        )
        write_section(options.write, TITLE, f"{text}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
