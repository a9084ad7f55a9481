"""A fleet in one process: a hub, its leaves, the streams that copy from each other, publishers, and the faults that hit them.

Everything that happens is drawn from one random generator seeded with the seed, and Trio's scheduler is made deterministic: a seed
replays exactly. `trace` is what happened, step by step.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import trio

from eyot_sync.copier import Phase
from offline_sync.model import Flow, Life, Model, Violation
from offline_sync.network import Network
from offline_sync.node import Node

HUB = "hub"
_STREAM = {"storage": "file", "retention": "limits", "max_age": 0}
#: Once nothing is broken any more, everything must be copied within this, seconds.
COMPLETE_WITHIN_S = 90.0
#: A link that came up wakes its copiers within this.
WAKE_WITHIN_S = 2.0


class Fleet:
    """One run of one seed."""

    def __init__(self, seed: int, path: Path, nursery: trio.Nursery) -> None:
        self.chance = random.Random(f"fleet {seed}")
        self.nursery = nursery
        self.network = Network(nursery)
        self.model = Model()
        self.trace: list[str] = []
        self.nodes: dict[str, Node] = {}
        leaves = [f"leaf{number}" for number in range(1, self.chance.choice((1, 2, 2, 3)) + 1)]
        self.leaves = leaves
        for name in (HUB, *leaves):
            hub = HUB if name != HUB else ""
            self.nodes[name] = Node(name, self.network, path / name, str(seed), hub=hub)

    def say(self, what: str) -> None:
        self.trace.append(f"{trio.current_time():10.3f} {what}")

    def digest(self) -> str:
        """Of all that happened: equal digests mean equal runs."""
        return sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    # -- building --------------------------------------------------------------------------------------------------

    async def build(self) -> None:
        """Start every node and make its streams."""
        for node in self.nodes.values():
            node.path.mkdir()
            await self.nursery.start(node.run)
        chance, add = self.chance, self.model.flows.append
        sources = []
        for leaf in self.leaves:
            await self.publish_to(leaf, "READINGS")
            sources.append(_source("READINGS", leaf))
            add(Flow(leaf, "READINGS", HUB, "ALL", leaf))
        await self.make(HUB, "ALL", sources=sources)
        await self.publish_to(HUB, "COMMANDS")
        if chance.random() < 0.5:
            await self.make(HUB, "DAILY", sources=[{"name": "ALL"}])
            add(Flow(HUB, "ALL", HUB, "DAILY", ""))
        for leaf in self.leaves:
            if chance.random() < 0.5:
                await self.make(HUB, f"COPY_{leaf}", mirror=_source("READINGS", leaf))
                add(Flow(leaf, "READINGS", HUB, f"COPY_{leaf}", leaf, mirror=True))
            if chance.random() < 0.4:
                await self.make(leaf, "COMMANDS", mirror=_source("COMMANDS", HUB))
                add(Flow(HUB, "COMMANDS", leaf, "COMMANDS", leaf, mirror=True))
            elif chance.random() < 0.4:
                await self.make(leaf, "ORDERS", sources=[_source("COMMANDS", HUB)])
                add(Flow(HUB, "COMMANDS", leaf, "ORDERS", leaf))

    async def publish_to(self, node: str, stream: str) -> None:
        """A stream that is published to; if it was there before, a new life of it. Subjects carry the node's name: what is
        published on a leaf goes to every stream in reach of its links that listens."""
        life = self.model.begin_life(node, stream)
        await self.make(node, stream, subjects=[f"{stream.lower()}.{node}.>"])
        self.say(f"{life} begins")

    async def make(self, node: str, stream: str, **config: Any) -> None:
        answer = await self.nodes[node].request(f"STREAM.CREATE.{stream}", {"name": stream, **_STREAM, **config})
        if answer is None or "error" in answer:
            raise Violation(f"{node}: stream {stream} cannot be made: {answer}")

    # -- steps -----------------------------------------------------------------------------------------------------

    def publish(self, node_name: str, stream: str, count: int) -> None:
        """A client publishes `count` messages at once and notes what is acknowledged."""
        node, life = self.nodes[node_name], self.model.lives[node_name, stream]
        if node.stream(stream) is None:
            return
        journal = self.model.journals[life]
        for _ in range(count):
            journal.published += 1
            n = journal.published
            padding = self.chance.choice((10, 10, 100, 1000))
            subject = f"{stream.lower()}.{node_name}.t{n % 3}"
            node.client.ask(subject.encode(), life.payload(n, padding), self._ack(life, n))
        self.say(f"{node_name} publishes {count} to {stream}, {n} in all")

    def _ack(self, life: Life, n: int) -> Callable[[bytes], None]:
        def heard(payload: bytes) -> None:
            answer = msgspec.json.decode(payload)
            if "error" not in answer:
                self.model.acked(life, n, answer["seq"])

        return heard

    async def crash(self, name: str, *, silent: bool, back_after_s: float) -> None:
        node = self.nodes[name]
        if not node.running:
            return
        self.say(f"{name} loses power, {'silently' if silent else 'seen by its peers'}; back in {back_after_s:.1f} s")
        await node.crash(silent=silent)
        self.nursery.start_soon(self._start_again, node, back_after_s)

    async def _start_again(self, node: Node, after_s: float) -> None:
        await trio.sleep(after_s)
        await self.start(node)

    async def start(self, node: Node) -> None:
        if node.running:
            return
        await self.nursery.start(node.run)
        self.say(f"{node.name} is back")
        self.model.check_whole(node)

    def check(self) -> None:
        self.model.check(self.nodes.values())

    # -- the end ---------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """All faults stop."""
        self.say("all faults stop")
        for name, link in self.network.links.items():
            link.delay_s, link.bytes_per_s = 0.02, 0.0
            self.network.restore(name)
        for node in self.nodes.values():
            node.set_disk_full(False)
            while not node.running:
                await trio.sleep(0.5)

    async def completed(self, within_s: float) -> None:
        """Everything is copied, in time."""
        deadline = trio.current_time() + within_s
        while trio.current_time() < deadline:
            self.check()
            if not any(self.model.missing(flow) and not self.holds_still(flow) for flow in self.model.flows):
                self.say("everything is copied")
                return
            await trio.sleep(0.5)
        late = [f"{flow}: {sorted(self.model.missing(flow))[:5]} ({self.progress(flow)})" for flow in self.model.flows]
        raise Violation(f"not copied {within_s} s after the faults stopped: {late}")

    def progress(self, flow: Flow) -> str:
        return "; ".join(
            f"{task.copier.phase.value}, error {task.copier.progress.error and task.copier.progress.error.description}"
            for task in self.nodes[flow.node].copying.tasks()
            if task.stream.name == flow.target
        )

    def holds_still(self, flow: Flow) -> bool:
        """A mirror whose origin was re-created waits for somebody to decide, and says so."""
        return flow.mirror and "re-created" in self.progress(flow)

    async def wake_up(self, leaf: str, restored_at: float) -> None:
        """After a long cut: copies over the leaf's link run again at once when it is up."""
        node = self.nodes[leaf]
        with trio.move_on_after(20):
            while not node.links_up or node.links_up[-1] < restored_at:
                await trio.sleep(0.05)
        if not node.links_up or node.links_up[-1] < restored_at:
            raise Violation(f"{leaf} is not linked 20 s after its link came back")
        await trio.sleep(WAKE_WITHIN_S)
        for flow in self.model.flows:
            if flow.across != leaf or self.holds_still(flow):
                continue
            for task in self.nodes[flow.node].copying.tasks():
                mine = task.stream.name == flow.target and flow.origin_node in task.copier.origin.api
                if mine and task.copier.phase is not Phase.ACTIVE:
                    raise Violation(f"{flow}: {WAKE_WITHIN_S} s after link-up it is {self.progress(flow)}")

    async def finish(self) -> None:
        """Faults stop, all is copied; then one long cut after which everything goes on at once."""
        await self.heal()
        await self.completed(COMPLETE_WITHIN_S)
        for leaf in self.leaves:
            self.network.cut(leaf)
        self.say("a long cut")
        await trio.sleep(self.chance.uniform(40, 100))
        for (node, stream), _ in list(self.model.lives.items()):
            self.publish(node, stream, self.chance.randint(1, 50))
        await trio.sleep(1)
        for leaf in self.leaves:
            self.network.restore(leaf)
        restored_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for leaf in self.leaves:
                nursery.start_soon(self.wake_up, leaf, restored_at)
        await self.completed(10)
        for node in self.nodes.values():
            self.model.check_whole(node)
            self._trace_state(node)
            await node.stop()

    def _trace_state(self, node: Node) -> None:
        for stream in node.js.streams():
            state = stream.log.state
            self.say(f"{node.name}/{stream.name}: {state.messages} messages up to {state.last_seq}")


def _source(stream: str, domain: str) -> dict[str, Any]:
    return {"name": stream, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}


def quiet() -> None:
    """What daemons log in a simulation of faults is of no interest unless asked for."""
    logging.getLogger("eyot").setLevel(logging.CRITICAL)
