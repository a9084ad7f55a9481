"""Two leaf nodes with one JetStream domain, as two devices from one image have: what a simulated fleet with them must keep.

The hub copies `READINGS` and `JOBS` (a work queue) of the domain; both leaf nodes publish to streams of these names. Whose messages the
hub copies is decided by the links: a hub of Eyot's refuses the second leaf node; in every other seed the hub refuses nobody, as
nats-server does. What the hub did not copy stays where it is. What must hold, whoever answers whom:

- neither leaf node says that the hub has what the hub does not hold;
- a work queue lets go of nothing that the hub does not hold;
- what was acknowledged is there;
- a hub that refuses the second is never linked to both;
- once nothing is broken any more, a server names the two.

Judged by what the hub's streams hold, message by message. Messages may be there twice: when the other one's link takes the place of the
first one's, the domain's streams are others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import trio

from eyot_daemon.jetstream.stream.stream import Stream
from offline_sync.fleet import Fleet
from offline_sync.journal import Journal, StreamEpoch, identify
from offline_sync.layout import HUB, HUB_ADDRESSES, Layout, external
from offline_sync.model import Model, Violation, all_messages, few
from offline_sync.network import Network
from offline_sync.node import Node

LEAF = "leaf1"
TWIN = "twin1"
#: Which stream of the hub copies which of the leaf nodes'.
TARGETS = {"READINGS": "ALL", "JOBS": "WORK"}
#: Time for the second one's next attempts after the faults stopped, seconds.
NAMED_WITHIN_S = 40.0


class TwinLayout(Layout):
    """A hub and two leaf nodes with the same streams, and the hub's sources from their one domain."""

    def __init__(self, leaves: list[str]) -> None:
        self.leaves = leaves
        self.domains = dict.fromkeys(leaves, LEAF)
        self.workers = []
        self.doubly = []
        self.has_second = False
        self.published = [(leaf, stream) for leaf in leaves for stream in TARGETS]
        self.streams = {
            (leaf, stream): {"subjects": [f"{stream.lower()}.{leaf}.>"]}
            | ({"retention": "workqueue"} if stream == "JOBS" else {})
            for leaf, stream in self.published
        }
        self.streams |= {(HUB, target): {"sources": [external(stream, LEAF)]} for stream, target in TARGETS.items()}


class TwinModel(Model):
    """The truth about such a fleet: what the hub holds decides."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, set[tuple[StreamEpoch, int]]] = {target: set() for target in TARGETS.values()}
        self._read: dict[str, int] = dict.fromkeys(TARGETS.values(), 0)

    def check(self, nodes: Iterable[Node]) -> None:
        running = [node for node in nodes if node.running]
        for node in running:
            self._check_bounds(node)
        self.check_claims(running)

    def check_claims(self, nodes: Iterable[Node]) -> None:
        """Whatever a leaf node says that the hub has, or takes out of a work queue, the hub holds.

        A hub without power cannot be asked: that is looked at when it is back.
        """
        running = {node.name: node for node in nodes if node.running}
        hub = running.pop(HUB, None)
        if hub is None:
            return
        self._look(hub)
        for node in running.values():
            self.check_work(node)
            for stream, target in TARGETS.items():
                found = node.stream(stream)
                if found is not None:
                    self._check_claim_of(node, found, self._held[target])

    def check_whole(self, node: Node) -> None:
        """After a restart: all that was acknowledged is there, but for work queues (`check_work`)."""
        found = node.stream("READINGS") if node.name != HUB else None
        if found is not None:
            epoch, journal = self._published(node, "READINGS")
            gone = journal.acked.keys() - {identify(payload)[1] for _, payload in all_messages(found)}
            if gone:
                raise Violation(f"{epoch}: {few(gone)} were acknowledged and are gone")

    def check_work(self, node: Node) -> None:
        """What is not in a work queue any more, the hub holds."""
        found = node.stream("JOBS")
        if found is None:
            return
        epoch, journal = self._published(node, "JOBS")
        left = {identify(payload)[1] for _, payload in all_messages(found)}
        lost = {n for n in journal.acked.keys() - left if (epoch, n) not in self._held[TARGETS["JOBS"]]}
        if lost:
            raise Violation(f"{epoch}: {few(lost)} left the work queue and are nowhere")

    def missing_of(self, node: Node, stream: str) -> set[int]:
        """Numbers of what was acknowledged there and the hub does not hold."""
        epoch, journal = self._published(node, stream)
        return {n for n in journal.acked if (epoch, n) not in self._held[TARGETS[stream]]}

    def _published(self, node: Node, stream: str) -> tuple[StreamEpoch, Journal]:
        epoch = self.epochs[node.name, stream]
        return epoch, self.journals[epoch]

    def _look(self, hub: Node) -> None:
        """Read what the hub has committed since the last look; it removes nothing."""
        for target, held in self._held.items():
            stream = hub.stream(target)
            if stream is not None and stream.log.committed_seq > self._read[target]:
                held |= {identify(payload) for _, payload in all_messages(stream, self._read[target] + 1)}
                self._read[target] = stream.log.committed_seq

    def _check_claim_of(self, node: Node, stream: Stream, held: set[tuple[StreamEpoch, int]]) -> None:
        epoch, journal = self._published(node, stream.name)
        for status in stream.downstream.statuses():
            upto = status.last_seq if status.is_synced else status.confirmed_seq
            false = {n for n, seq in journal.acked.items() if seq <= upto and (epoch, n) not in held}
            if false:
                said = "is synced" if status.is_synced else f"has everything up to {upto}"
                raise Violation(
                    f"{node.name} says that {status.target} of {status.peer} {said}, but it has not {few(false)} of {epoch}"
                )


class TwinFleet(Fleet):
    """A hub and two leaf nodes of one domain. `refuses`: the hub refuses the second, as Eyot does."""

    model: TwinModel

    def __init__(self, seed: int, path: Path, nursery: trio.Nursery) -> None:
        self.seed = seed
        self.chance = random.Random(f"twins {seed}")
        self.nursery = nursery
        self.network = Network(nursery)
        self.model = TwinModel()
        self.trace = []
        self.nodes = {}
        self.leaves = [LEAF, TWIN]
        self.layout = TwinLayout(self.leaves)
        self.refuses = self.chance.random() < 0.5
        self.hub = self._add(HUB, path, addresses=HUB_ADDRESSES[:1])
        self.hub.refuses_twins = self.refuses
        self.second = self.other = None
        for leaf in self.leaves:
            self._add(leaf, path, addresses=(), dials=HUB_ADDRESSES).domain = LEAF
        self.workers = []

    def check(self) -> None:
        """As every fleet; and that the hub refuses the second leaf node."""
        super().check()
        if self.refuses and self.hub.running:
            links = self.hub.broker.links.connections.values()
            linked = {link.state.peer_name for link in links if link.established and not link.closed}
            if len(linked) > 1:
                raise Violation(f"{HUB} is linked to {sorted(linked)}, which have one domain")

    async def finish(self) -> None:
        """Faults stop: the two are named, each stream of one of them is copied, and still nothing false is said."""
        await self.heal()
        deadline = trio.current_time() + NAMED_WITHIN_S
        while not (self._names() and all(self._is_copied(stream) for stream in TARGETS)):
            self.check()
            if trio.current_time() >= deadline:
                raise Violation(self._unfinished())
            await trio.sleep(0.5)
        self.say(f"named: {self._names()}")
        for _ in range(10):
            await trio.sleep(1)
            self.check()
        for node in self.nodes.values():
            self.model.check_whole(node)
        for node in self.nodes.values():
            await node.stop()

    def _names(self) -> list[str]:
        """What the servers say of two leaf nodes with one domain."""
        return [
            f"{node.name}: {link.state.twin}"
            for node in self.nodes.values()
            for link in node.broker.links.connections.values()
            if link.state.twin
        ]

    def _is_copied(self, stream: str) -> bool:
        """Does the hub hold what one of the leaf nodes has in that stream? It may copy one stream from one of them, the other from the other."""
        return not all(self.model.missing_of(self.nodes[leaf], stream) for leaf in self.leaves)

    def _unfinished(self) -> str:
        left = {
            f"{leaf}/{stream}": few(self.model.missing_of(self.nodes[leaf], stream))
            for leaf in self.leaves
            for stream in TARGETS
        }
        return (
            f"{NAMED_WITHIN_S:.0f} s after the faults stopped: said {self._names() or 'nothing'}, not at the hub {left}"
        )
