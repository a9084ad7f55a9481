"""Mirrors and sources on a real nats-server hub resume when their leaf node returns, even if their requests were lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamSource

from support.links.leaf_pair import Clients, LeafPair, configs_behind, linked
from support.links.link import Link

VERSIONS = ["nats-server", "2.14.6", "2.15.1"]


@pytest.fixture(params=VERSIONS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LeafPair, Link]]:
    """A hub, and eyotd as its leaf behind a link that can be cut."""
    with Link(0) as link:
        servers = LeafPair(request.param, "eyotd", tmp_path, **configs_behind(link.port))
        link.target_port = servers.hub.leaf_port
        with servers:
            asyncio.run(_copied(servers))
            yield servers, link


async def _copied(pair: LeafPair) -> None:
    async with Clients(pair.hub, pair.leaf) as (hub, leaf):
        await linked(hub, leaf)
        await leaf.jetstream(timeout=5).add_stream(name="ORIGIN", subjects=["o.>"])
        origin = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.leaf.API"))
        await hub.jetstream(timeout=5).add_stream(name="SOURCED", sources=[origin])
        await hub.jetstream(timeout=5).add_stream(name="MIRROR", mirror=origin)
        await leaf.jetstream(timeout=5).publish("o.first", b"1")
        await _hold(hub, 1)


async def _hold(hub: Client, messages: int) -> None:
    js = hub.jetstream(timeout=5)
    for stream in ("SOURCED", "MIRROR"):
        for _ in range(1_500):
            if (await js.stream_info(stream)).state.messages == messages:
                break
            await asyncio.sleep(0.02)
        else:
            raise AssertionError(f"{stream} does not go on")


async def _publish(pair: LeafPair, subject: str) -> None:
    async with Clients(pair.leaf) as (leaf,):
        await leaf.jetstream(timeout=5).publish(subject, b"")


async def _holds(pair: LeafPair, messages: int) -> None:
    async with Clients(pair.hub) as (hub,):
        await _hold(hub, messages)


def test_requests_that_were_sent_before_the_link_was_up(pair: tuple[LeafPair, Link]) -> None:
    """The hub was restarted while the link was down: its copies have asked, nobody has heard it, and they wait."""
    servers, link = pair
    link.cut()
    servers.hub.restart()
    asyncio.run(_publish(servers, "o.second"))
    asyncio.run(asyncio.sleep(1.0))
    link.restore()
    servers.leaf.wait_log("refused, so that they are repeated", 60)
    asyncio.run(_holds(servers, 2))


def test_consumers_that_a_restart_of_the_leaf_forgot(pair: tuple[LeafPair, Link]) -> None:
    """The hub still listens to consumers that the leaf no longer has: it hears of that, if the leaf is back before it misses them."""
    servers, _ = pair
    asyncio.run(asyncio.sleep(1.5))  # until the copies have confirmed the first message
    servers.leaf.kill()
    servers.leaf.start()
    asyncio.run(_publish(servers, "o.second"))
    asyncio.run(_holds(servers, 2))
