"""A hub and a leaf over a slow link in simulated time, with streams of any size and the policies of `eyot { sync { } }`."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec.structs import replace

from eyot_daemon.config.jetstream import EyotOptions
from eyot_daemon.config.options import Options
from eyot_store import StoreOptions
from eyot_sync.policy.policy import SyncPolicies
from offline_sync import node as nodes
from offline_sync.network import Network
from offline_sync.node import Node

#: 50 kbit/s, and half of 600 ms one way.
RADIO_BYTES_PER_S = 6250.0
RADIO_DELAY_S = 0.3
_STORE = StoreOptions(inline=True, flush=False, map_size=64 << 20)


class PolicyNode(Node):
    """A node whose options can be set before it runs."""

    policies = SyncPolicies()

    def _options(self) -> Options:
        return replace(super()._options(), eyot=EyotOptions(sync=self.policies))


class SlowLinkFixture:
    """`hub` and `leaf`, linked by `link`."""

    def __init__(self, path: Path, nursery: trio.Nursery, policies: SyncPolicies) -> None:
        self.nursery = nursery
        self.network = Network(nursery)
        self.hub = PolicyNode("hub", self.network, path / "hub", "slow", addresses=("hub",))
        self.leaf = PolicyNode("leaf", self.network, path / "leaf", "slow", addresses=(), dials=("hub",))
        self.hub.policies = self.leaf.policies = policies

    async def start(self, *, bytes_per_s: float = RADIO_BYTES_PER_S, delay_s: float = RADIO_DELAY_S) -> None:
        for each in (self.hub, self.leaf):
            each.path.mkdir()
            await self.nursery.start(each.run)
        link = self.network.links["leaf"]
        link.bytes_per_s, link.delay_s = bytes_per_s, delay_s

    async def stream(self, name: str, **config: Any) -> None:
        """A stream at the leaf."""
        answer = await self.leaf.request(f"STREAM.CREATE.{name}", {"name": name, **config})
        assert "error" not in answer, answer

    async def copy(self, name: str, *origins: str, at: Node | None = None, domain: str = "leaf") -> None:
        """A stream at the hub (or `at`) that sources those of `domain`."""
        sources = [{"name": origin, "external": {"api": f"$JS.{domain}.API", "deliver": ""}} for origin in origins]
        answer = await (at or self.hub).request(f"STREAM.CREATE.{name}", {"name": name, "sources": sources})
        assert "error" not in answer, answer

    def publish(self, subject: str, payload: bytes, count: int = 1, at: Node | None = None) -> None:
        """Messages at the leaf (or `at`), at once."""
        node = at or self.leaf
        for _ in range(count):
            node.account.publish(subject.encode(), payload=payload, origin=node.client)
        node.broker.flush()

    def last_seq(self, node: Node, stream: str) -> int:
        found = node.stream(stream)
        return 0 if found is None else found.log.committed_seq

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Simulated seconds until `condition` holds."""
        begun = trio.current_time()
        while not condition():
            assert trio.current_time() - begun < within_s, "it did not happen"
            await trio.sleep(0.05)
        return trio.current_time() - begun


@asynccontextmanager
async def slow_link_fixture(policies: SyncPolicies | None = None) -> AsyncIterator[SlowLinkFixture]:
    """A world that is gone afterwards; not started yet."""
    before, nodes._STORE = nodes._STORE, _STORE
    try:
        with tempfile.TemporaryDirectory() as path:
            async with trio.open_nursery() as nursery:
                fixture = SlowLinkFixture(Path(path), nursery, policies or SyncPolicies())
                yield fixture
                for node in (fixture.leaf, fixture.hub):
                    if node.running:
                        await node.stop()
                nursery.cancel_scope.cancel()
    finally:
        nodes._STORE = before
