"""A fleet in one process: a hub, its leaf nodes, their streams, mirrors and sources, publishers, and the faults that hit them.

Everything that happens is drawn from generators seeded with the seed, and Trio's scheduler is made deterministic: a seed replays
exactly. `trace` is what happened, step by step.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import trio

from offline_sync.archives import Archive
from offline_sync.domains import node_of
from offline_sync.flows import Flow, subject_of
from offline_sync.journal import StreamEpoch
from offline_sync.layout import HUB, HUB_ADDRESSES, OTHER, OTHER_ADDRESSES, SECOND, SECOND_ADDRESSES, STREAM, Layout
from offline_sync.model import Model, Violation
from offline_sync.network import Network
from offline_sync.node import SLOW_COMMIT_S_MAX, Node
from offline_sync.worker import Worker

#: Once nothing is broken any more, everything must be copied within this, seconds.
COMPLETE_WITHIN_S = 90.0
#: Once everything is copied, its origins have heard of it within this.
TOLD_WITHIN_S = 8.0
#: A link that came up wakes its copiers within this.
WAKE_WITHIN_S = 2.0


class Fleet:
    """One run of one seed. `chance` is what the present step draws from."""

    def __init__(self, seed: int, path: Path, nursery: trio.Nursery) -> None:
        self.seed = seed
        self.chance = random.Random(f"fleet {seed}")
        self.nursery = nursery
        self.network = Network(nursery)
        self.model = Model()
        self.trace: list[str] = []
        self.nodes: dict[str, Node] = {}
        leaves = [f"leaf{number}" for number in range(1, self.chance.choice((1, 2, 2, 3)) + 1)]
        self.leaves = leaves
        self.layout = Layout(self.chance, random.Random(f"others {seed}"), random.Random(f"limits {seed}"), leaves)
        self.hub = self._add(HUB, path, addresses=HUB_ADDRESSES[:1])
        self.second: Node | None = None
        hubs = HUB_ADDRESSES
        if self.layout.has_second:
            self.second = self._add(SECOND, path, addresses=SECOND_ADDRESSES, dials=HUB_ADDRESSES)
            hubs += SECOND_ADDRESSES
        for leaf in leaves:
            self._add(leaf, path, addresses=(), dials=hubs).in_order = self.chance.random() < 0.5
        self.other: Node | None = None
        if self.layout.doubly:
            self.other = self._add(OTHER, path, addresses=OTHER_ADDRESSES)
            for leaf in self.layout.doubly:
                self.nodes[leaf].other_hub = OTHER_ADDRESSES
        #: The last backup over the API of each stream that has one, as (node, stream).
        self.archives: dict[tuple[str, str], Archive] = {}
        self.workers = [Worker(self.nodes[leaf], self.hub, HUB, "COMMANDS") for leaf in self.layout.workers]

    def _add(self, name: str, path: Path, **where: Any) -> Node:
        node = self.nodes[name] = Node(name, self.network, path / name, str(self.seed), **where)
        node.on_link_up = self._claims_at_link_up
        return node

    def _claims_at_link_up(self) -> None:
        """A link is up: nobody has asked for anything over it yet."""
        self.nursery.start_soon(self._check_claims)

    async def _check_claims(self) -> None:
        self.model.check_claims(self.nodes.values())

    @property
    def diallers(self) -> list[str]:
        """Who has a link to a hub."""
        return self.leaves if self.second is None else [*self.leaves, SECOND]

    @property
    def hubs(self) -> list[Node]:
        return [each for each in (self.hub, self.second, self.other) if each is not None]

    def links_of(self, name: str) -> list[str]:
        """The links that a leaf dials over."""
        node = self.nodes[name]
        return [name, node.other_link] if node.other_hub else [name]

    @property
    def links(self) -> list[str]:
        """All links, by their names."""
        return [link for name in self.diallers for link in self.links_of(name)]

    def say(self, what: str) -> None:
        self.trace.append(f"{trio.current_time():10.3f} {what}")

    def digest(self) -> str:
        """Of all that happened, every byte on every link included: equal digests mean equal runs."""
        return sha256("\n".join((*self.trace, str(self.network.checksum))).encode()).hexdigest()[:16]

    # -- building --------------------------------------------------------------------------------------------------

    async def build(self) -> None:
        """Start every node and make its streams."""
        for node in self.nodes.values():
            node.path.mkdir()
            await self.nursery.start(node.run)
        await self._make_streams(lambda node: True)
        self.model.first = set(self.flows())
        for worker in self.workers:
            self.nursery.start_soon(worker.run)

    async def _make_streams(self, which: Callable[[str], bool]) -> None:
        for node, stream in self.layout.streams:
            if which(node):
                await self.make(node, stream)

    async def make(self, node: str, stream: str) -> None:
        """A stream of the layout; if it is published to and was there before, it is a new life of it."""
        config = self.layout.streams[node, stream]
        if (node, stream) in self.layout.published:
            epoch = self.model.begin_epoch(node, stream, config.get("retention", ""))
            self.say(f"{epoch} begins")
            # A backup would bring the former life back: a third one to copies, who keep no more than one.
            self.nodes[node].backup = None
        else:
            self.say(f"{node}/{stream} is made: {msgspec.json.encode(config).decode()}")
        answer = await self.nodes[node].request(f"STREAM.CREATE.{stream}", {"name": stream, **STREAM, **config})
        if answer is None or "error" in answer:
            raise Violation(f"{node}: stream {stream} cannot be made: {answer}")

    # -- steps -----------------------------------------------------------------------------------------------------

    def publish(self, node_name: str, stream: str, count: int) -> None:
        """A client publishes `count` messages at once and notes what is acknowledged.

        Subjects carry the node's name: what is published on a leaf goes to every stream in reach of its links that
        listens.
        """
        node, epoch = self.nodes[node_name], self.model.epochs[node_name, stream]
        if node.stream(stream) is None:
            return
        journal = self.model.journals[epoch]
        for _ in range(count):
            journal.published += 1
            n = journal.published
            journal.published_at[n] = trio.current_time()
            padding = self.chance.choice((10, 10, 100, 1000))
            subject = subject_of(node_name, stream, n).encode()
            node.client.ask(subject, epoch.payload(n, padding), self._ack(epoch, n))
        self.say(f"{node_name} publishes {count} to {stream}, {journal.published} in all")

    def _ack(self, epoch: StreamEpoch, n: int) -> Callable[[bytes], None]:
        def heard(payload: bytes) -> None:
            answer = msgspec.json.decode(payload)
            if "error" not in answer:
                self.model.acked(epoch, n, answer["seq"])

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
        if node.running:  # the power may have gone again in this very moment
            self.model.check_whole(node)

    async def take_back(self, node: Node) -> None:
        """The appliance is set up again from its last backup, or without one from nothing."""
        if node.running:
            await node.crash(silent=True)
        node.restore()
        restored = node.backup is not None
        self.say(f"{node.name} is {'restored from its backup' if restored else 'set up from nothing'}")
        if not restored:
            self.model.restarts_sourcing(node.name)
        await self.nursery.start(node.run)
        if restored:
            self.model.rolled_back(node)
            self.model.check_whole(node)
        else:
            await self._make_streams(lambda name: name == node.name)
        for worker in self.workers:
            if worker.domain == node.name:
                worker.restart()

    def check(self) -> None:
        self.model.check(self.nodes.values())
        for worker in self.workers:
            if worker.failure is not None:
                raise worker.failure

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

    def flows(self) -> list[Flow]:
        """All copies that somebody makes."""
        return [flow for node in self.nodes.values() if node.running for flow in self.model.flows.at(node)]

    async def completed(self, within_s: float) -> None:
        """Everything is copied and worked through, in time."""
        deadline = trio.current_time() + within_s
        while True:
            self.check()
            late = [flow for flow in self.flows() if self.model.missing(flow) and not self.holds_still(flow)]
            undone = [f"{worker.name} has not done {left}" for worker in self.workers if (left := self._undone(worker))]
            if not late and not undone:
                self.say("everything is copied")
                return
            if trio.current_time() >= deadline:
                break
            await trio.sleep(0.5)
        texts = [f"{flow}: {sorted(self.model.missing(flow))[:5]} ({self.progress(flow)})" for flow in late] + undone
        raise Violation(f"not copied {within_s} s after the faults stopped: {'; '.join(texts)}")

    def _undone(self, worker: Worker) -> list[int]:
        """What a worker has yet to do of what is there."""
        epoch = self.model.epochs[worker.domain, worker.stream]
        left = sorted(n for n in self.model.journals[epoch].expected if (epoch, n) not in worker.came)
        stream = self.hub.stream(worker.stream)
        consumer = None if stream is None else stream.consumers.get(worker.name)
        return (left or ([] if consumer is None else sorted(consumer.state.pending)))[:5]  # type: ignore[attr-defined]

    def progress(self, flow: Flow) -> str:
        return "; ".join(
            f"{task.source_consumer.phase.value}, error {task.source_consumer.progress.error and task.source_consumer.progress.error.description}"
            for task in self.nodes[flow.node].sourcing.tasks()
            if task.stream.name == flow.target
        )

    def holds_still(self, flow: Flow) -> bool:
        """A mirror whose origin was re-created or set back waits for somebody to decide, and says so."""
        said = self.progress(flow)
        is_other = self.model.has_diverged(flow) or self.model.holds_former(flow)
        return flow.mirror and (
            "re-created" in said
            or (is_other and "it was restored or lost" in said)
            or self.model.passes_over(flow, self.nodes[flow.origin_node])
        )

    async def wake_up(self, leaf: str, restored_at: float) -> None:
        """After a cut: copies over the leaf's link run again at once when it is up."""
        node = self.nodes[leaf]
        with trio.move_on_after(20):
            while not node.is_linked_since(restored_at):
                await trio.sleep(0.05)
        if not node.is_linked_since(restored_at):
            raise Violation(f"{leaf} is not linked 20 s after its link came back")
        await trio.sleep(WAKE_WITHIN_S)
        for flow in self.flows():
            if flow.across != leaf or self.holds_still(flow):
                continue
            for task in self.nodes[flow.node].sourcing.tasks():
                mine = (
                    task.stream.name == flow.target
                    and node_of(task.source_consumer.origin.api.split(".")[1]) == flow.origin_node
                )
                if mine and not task.source_consumer.is_connected:
                    raise Violation(f"{flow}: {WAKE_WITHIN_S} s after link-up it is {self.progress(flow)}")

    async def finish(self) -> None:
        """Faults stop, all is copied; links return slowly while much is published; then one long cut, or links that are
        dead and do not say so, after which everything goes on at once.
        """
        await self.heal()
        await self.completed(COMPLETE_WITHIN_S)
        self.chance = random.Random(f"busy return of {self.seed}")
        await self._busy_return()
        await self.heal()
        await self.completed(COMPLETE_WITHIN_S)
        self.chance = random.Random(f"end of {self.seed}")
        for node in self.nodes.values():
            self.model.check_work(node)
        await (self._half_open() if self.chance.random() < 0.3 else self._long_cut())
        again_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for leaf in self.leaves:
                nursery.start_soon(self.wake_up, leaf, again_at)
        await self.completed(20)
        await trio.sleep(TOLD_WITHIN_S)
        self.check()
        for node in self.nodes.values():
            self.model.check_whole(node)
            self.model.check_work(node)
            self.model.check_told(node, self.nodes)
            self.model.check_forgotten(node, self.nodes)
            self._trace_state(node)
        for node in self.nodes.values():
            await node.stop()

    def _everybody_publishes(self) -> None:
        for node_name, stream in list(self.model.epochs):
            self.publish(node_name, stream, self.chance.randint(1, 50))

    async def _busy_return(self) -> None:
        """Slow links are back after a cut, and all flash is slow.

        Commits are under way while mirrors and sources ask to go on, and answers overtake bulk.
        """
        chance = self.chance
        for name in self.links:
            self.network.cut(name)
        self.say("slow links return while much is published")
        places = list(self.model.epochs)
        for node_name, stream in places:
            self.publish(node_name, stream, chance.choice((50, 100, 200)))
        await trio.sleep(1)
        flash = {node.broker: node.broker.commit_s_max for node in self.nodes.values()}
        for broker in flash:
            broker.commit_s_max = SLOW_COMMIT_S_MAX
        for name in self.links:
            link = self.network.links[name]
            link.delay_s, link.bytes_per_s = chance.choice((0.02, 0.2)), chance.choice((6_250.0, 25_000.0))
            self.network.restore(name)
        for _ in range(chance.randint(60, 120)):
            for node_name, stream in places:
                self.publish(node_name, stream, 1)
            await trio.sleep(0.05)
        for broker, commit_s_max in flash.items():
            broker.commit_s_max = commit_s_max

    async def _long_cut(self) -> None:
        links = [link for leaf in self.leaves for link in self.links_of(leaf)]
        for link in links:
            self.network.cut(link)
        self.say("a long cut")
        await trio.sleep(self.chance.uniform(40, 100))
        self._everybody_publishes()
        await trio.sleep(1)
        for link in links:
            self.network.restore(link)

    async def _half_open(self) -> None:
        """Every link is dead and nobody is told: found out, and dialled anew, in the time that `wake_up` allows."""
        await trio.sleep(self.chance.uniform(0, 10))
        for leaf in self.leaves:
            for link in self.links_of(leaf):
                self.network.swallow(link)
        self.say("every link is half-open")
        self._everybody_publishes()

    def _trace_state(self, node: Node) -> None:
        for stream in node.js.streams():
            state = stream.log.state
            self.say(f"{node.name}/{stream.name}: {state.messages} messages up to {state.last_seq}")


@contextmanager
def quiet() -> Iterator[None]:
    """Within it daemons log nothing: what they say in a simulation of faults is of no interest unless asked for."""
    log = logging.getLogger("eyot")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
