"""Work-queue and interest streams at a leaf, copied to a hub over a link that is cut again and again: nothing is lost by it."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, RetentionPolicy, StreamSource

from support.links.leaf_pair import Clients, LeafPair, configs_behind, linked
from support.links.link import Link

COUNT = 2_000
KINDS = {"WORK": RetentionPolicy.WORK_QUEUE, "INTEREST": RetentionPolicy.INTEREST}


@pytest.mark.parametrize("hub", ["eyotd", "nats-server", "2.14.6"])
def test_what_a_cut_loses_is_sent_again(hub: str, tmp_path: Path) -> None:
    with Link(0) as link:
        pair = LeafPair(hub, "eyotd", tmp_path, **configs_behind(link.port))
        link.target_port = pair.hub.leaf_port
        with pair:
            asyncio.run(_play(pair, link))


async def _play(pair: LeafPair, link: Link) -> None:
    rng = random.Random(7)
    async with Clients(pair.hub, pair.leaf) as (hub, leaf):
        await linked(hub, leaf)
        for name, retention in KINDS.items():
            await leaf.jetstream(timeout=5).add_stream(name=name, subjects=[f"{name}.>"], retention=retention)
            origin = StreamSource(name=name, external=ExternalStream(api="$JS.leaf.API"))
            await hub.jetstream(timeout=5).add_stream(name=f"{name}_COPY", sources=[origin])
            await _reads(hub, f"{name}_COPY")  # before that, nobody has interest in what is published
        await _copied(hub, await _published(leaf, 0, 1))
        for part in range(4):
            first = 1 + part * COUNT // 4
            publishing = asyncio.create_task(_published(leaf, first, first + COUNT // 4))
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            await asyncio.to_thread(link.cut)
            await publishing
            await asyncio.to_thread(link.restore)
        await _copied(hub, COUNT + 1)
        for name in KINDS:
            await _in_order(hub, f"{name}_COPY")
        await _let_go(leaf)


async def _reads(hub: Client, stream: str) -> None:
    for _ in range(1_500):
        info = json.loads((await hub.request(f"$JS.API.STREAM.INFO.{stream}", timeout=5)).data)
        if info["sources"][0]["active"] >= 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{stream} does not read its origin")


async def _published(leaf: Client, first: int, end: int) -> int:
    js = leaf.jetstream(timeout=10)
    for at in range(first, end, 100):
        numbers = range(at, min(at + 100, end))
        await asyncio.gather(*(js.publish(f"{name}.x", b"%d" % number) for number in numbers for name in KINDS))
    return end


async def _copied(hub: Client, count: int) -> None:
    for name in KINDS:
        for _ in range(3_000):
            state = (await hub.jetstream(timeout=5).stream_info(f"{name}_COPY")).state
            if state.messages >= count:
                break
            await asyncio.sleep(0.02)
        assert state.messages == count


async def _in_order(hub: Client, stream: str) -> None:
    js = hub.jetstream(timeout=5)
    reader = await js.subscribe("", stream=stream, ordered_consumer=True)
    numbers = [int((await reader.next_msg(timeout=10)).data) for _ in range(COUNT + 1)]
    await reader.unsubscribe()
    assert numbers == list(range(COUNT + 1))


async def _let_go(leaf: Client) -> None:
    """The origins hold nothing any more: all of it is confirmed."""
    for name in KINDS:
        for _ in range(1_500):
            state = (await leaf.jetstream(timeout=5).stream_info(name)).state
            if not state.messages:
                break
            await asyncio.sleep(0.02)
        assert state.messages == 0
