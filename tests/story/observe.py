"""Watches the backlog while the story runs: how many messages the leaf holds and how many of them the hub holds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

SAMPLE_EVERY_S = 0.1


@dataclass
class Sample:
    at_s: float
    on_leaf: int
    on_hub: int

    @property
    def backlog(self) -> int:
        return max(0, self.on_leaf - self.on_hub)


@dataclass
class Timeline:
    """Samples and named moments, in seconds since the story began."""

    begun: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    moments: list[tuple[float, str]] = field(default_factory=list)

    def now(self) -> float:
        return time.monotonic() - self.begun

    def mark(self, what: str) -> float:
        at = self.now()
        self.moments.append((at, what))
        return at


async def connect(url: str, name: str) -> Client:
    """A nats-py client that reconnects for ever and does not print what the story does on purpose."""

    async def quiet(_: Exception) -> None:
        """Lost connections are part of the story."""

    return await nats.connect(url, name=name, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=quiet)


class Observer:
    """Samples both streams until it is closed. An unreachable broker keeps its last known figure."""

    def __init__(self, timeline: Timeline, leaf: Client, hub: Client, leaf_stream: str, hub_stream: str) -> None:
        self._timeline = timeline
        self._leaf = leaf
        self._hub = hub
        self._leaf_stream = leaf_stream
        self._hub_stream = hub_stream
        self.on_leaf = 0
        self.on_hub = 0
        self.stopped = False

    async def sample(self) -> Sample:
        with contextlib.suppress(NatsError, TimeoutError, OSError):
            info = await self._leaf.jetstream(timeout=1).stream_info(self._leaf_stream)
            self.on_leaf = info.state.messages
        with contextlib.suppress(NatsError, TimeoutError, OSError):
            info = await self._hub.jetstream(timeout=1).stream_info(self._hub_stream)
            self.on_hub = info.state.messages
        sample = Sample(self._timeline.now(), self.on_leaf, self.on_hub)
        self._timeline.samples.append(sample)
        return sample

    async def run(self) -> None:
        """Until `stopped`: a client whose answer comes at that moment takes no notice of a cancellation."""
        while not self.stopped:
            await self.sample()
            await asyncio.sleep(SAMPLE_EVERY_S)
