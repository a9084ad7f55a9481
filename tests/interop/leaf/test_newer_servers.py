"""Leaf links with the nats-servers that came after Debian's 2.9: compression offered and refused, other INFOs, other consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.api import ExternalStream, StreamSource

from support.links.leaf_pair import Clients, Inbox, LeafPair, answering, eventually, linked, reaches

VERSIONS = ["2.10.26", "2.12.8", "2.14.6", "2.15.1"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("eyot_is", ["leaf", "hub"])
def test_a_link_with_a_newer_server(version: str, eyot_is: str, tmp_path: Path) -> None:
    hub, leaf = (version, "eyotd") if eyot_is == "leaf" else ("eyotd", version)
    with LeafPair(hub, leaf, tmp_path) as pair:
        pair.play(_core)
        pair.play(_streams)
        pair.hub.kill()
        pair.hub.start()
        asyncio.run(_resumed(pair, eyot_is))


async def _core(hub: Client, leaf: Client) -> None:
    at_hub, at_leaf = await Inbox.on(hub, "up.*"), await Inbox.on(leaf, "down.*")
    workers = [await Inbox.on(hub, "work", "q"), await Inbox.on(hub, "work", "q")]
    await answering(hub, "svc.hub")
    await answering(leaf, "svc.leaf")
    await reaches(leaf, hub)
    await reaches(hub, leaf)
    for number in range(1_000):
        await leaf.publish("up.a", b"%04d" % number, headers={"N": str(number)})
        await hub.publish("down.a", b"%04d" % number)
        await leaf.publish("work", b"")
    expected = [b"%04d" % number for number in range(1_000)]
    assert await at_hub.wait(1_000) == expected
    assert await at_leaf.wait(1_000) == expected
    assert at_hub.got[7].headers == {"N": "7"}
    await eventually(lambda: sum(len(worker.got) for worker in workers) >= 1_000)
    assert (await leaf.request("svc.hub", b"1", timeout=30)).data == b"pong 1"
    assert (await hub.request("svc.leaf", b"2", timeout=30)).data == b"pong 2"
    for client in (hub, leaf):
        with pytest.raises(NoRespondersError):
            await client.request("svc.nobody", b"", timeout=5)
    assert sum(len(worker.got) for worker in workers) == 1_000
    assert len(at_hub.got) == len(at_leaf.got) == 1_000, "nothing arrives twice"


async def _streams(hub: Client, leaf: Client) -> None:
    """Each side's streams, used and copied from the other side."""
    for near, far, domain in ((leaf, hub, "hub"), (hub, leaf, "leaf")):
        there, from_here = far.jetstream(timeout=5), near.jetstream(domain=domain, timeout=5)
        name = f"S_{domain}"
        await there.add_stream(name=name, subjects=[f"{name}.>"])
        for number in range(200):
            await there.publish(f"{name}.a", b"%d" % number)
        pull = await from_here.pull_subscribe("", "PULL", stream=name)
        messages = await pull.fetch(50, timeout=5)
        assert {message.subject for message in messages} == {f"{name}.a"}
        for message in messages:
            await message.ack_sync(timeout=5)
        here = near.jetstream(timeout=5)
        external = ExternalStream(api=f"$JS.{domain}.API")
        await here.add_stream(name=f"COPY_{domain}", sources=[StreamSource(name=name, external=external)])
        await here.add_stream(name=f"MIRROR_{domain}", mirror=StreamSource(name=name, external=external))
        for copy in (f"COPY_{domain}", f"MIRROR_{domain}"):
            await _holds(near, copy, 200, b"199")


async def _resumed(pair: LeafPair, eyot_is: str) -> None:
    """Eyot's copies go on at once. (nats-server's own take up to 40 s to notice that an origin was restarted.)"""
    async with Clients(pair.hub, pair.leaf) as (hub, leaf):
        await linked(hub, leaf)
        here, there, domain = (leaf, hub, "hub") if eyot_is == "leaf" else (hub, leaf, "leaf")
        await there.jetstream(timeout=5).publish(f"S_{domain}.more", b"after the break")
        for copy in (f"COPY_{domain}", f"MIRROR_{domain}"):
            await _holds(here, copy, 201, b"after the break")


async def _holds(client: Client, stream: str, messages: int, last: bytes, within_s: int = 20) -> None:
    js = client.jetstream(timeout=5)
    for _ in range(50 * within_s):
        if (await js.stream_info(stream)).state.messages == messages:
            break
        await asyncio.sleep(0.02)
    assert (await js.get_msg(stream, messages)).data == last


def test_a_stream_created_again_is_copied_from_its_beginning(tmp_path: Path) -> None:
    """A hub of 2.15 learns by the stream's identity that a device was set up anew: the position in the old stream means nothing."""
    with LeafPair("2.15.1", "eyotd", tmp_path) as pair:
        pair.play(_before)
        pair.hub.kill()
        asyncio.run(_created_again(pair))
        pair.hub.start()
        asyncio.run(_after(pair))


async def _before(hub: Client, leaf: Client) -> None:
    origin = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API"))
    await _filled(leaf, b"old", 20)
    await hub.jetstream(timeout=5).add_stream(name="ALL", sources=[origin])
    await _holds(hub, "ALL", 20, b"old 19")


async def _filled(leaf: Client, word: bytes, messages: int) -> None:
    js = leaf.jetstream(timeout=5)
    await js.add_stream(name="R", subjects=["r.>"])
    for number in range(messages):
        await js.publish("r.a", b"%b %d" % (word, number))


async def _created_again(pair: LeafPair) -> None:
    async with Clients(pair.leaf) as (leaf,):
        await leaf.jetstream(timeout=5).delete_stream("R")
        await _filled(leaf, b"new", 30)


async def _after(pair: LeafPair) -> None:
    async with Clients(pair.hub, pair.leaf) as (hub, leaf):
        await linked(hub, leaf)
        # A request that was sent before the link was up is repeated after 30 s: refusing it would hide the new identity.
        await _holds(hub, "ALL", 50, b"new 29", within_s=90)
