"""Two leaf nodes with one JetStream domain (a cloned image): no message is lost, and status pages and logs name the problem."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, RetentionPolicy, StreamSource

from support.links.leaf_pair import ACCOUNTS, HUB, server
from support.servers.eyot_tool import doctor
from support.servers.eyotd import Eyotd

LEAF = """
server_name: NAME
jetstream { store_dir: "%WORKDIR%/store", domain: edge }
leafnodes { reconnect: "100ms", remotes = [ { urls: ["nats-leaf://acc:acc@127.0.0.1:HUB_PORT"], account: ACC } ] }
"""
COUNT = 100


async def publish(client: Client, name: str) -> None:
    js = client.jetstream(timeout=10)
    await js.add_stream(name="WORK", subjects=["work.>"], retention=RetentionPolicy.WORK_QUEUE)
    await asyncio.gather(*(js.publish("work.x", f"{name} {number}".encode()) for number in range(COUNT)))


async def held(client: Client, stream: str) -> list[str]:
    """The payloads of all messages of a stream."""
    state = (await client.jetstream(timeout=10).stream_info(stream)).state
    found = []
    for seq in range(state.first_seq, state.last_seq + 1):
        request = json.dumps({"seq": seq}).encode()
        answer = json.loads((await client.request(f"$JS.API.STREAM.MSG.GET.{stream}", request, timeout=10)).data)
        if "message" in answer:  # others may be gone: a source empties this work queue meanwhile
            found.append(base64.b64decode(answer["message"].get("data", "")).decode())
    return found


async def _names_the_twin(which: Eyotd) -> None:
    """The one that is refused dials again and again: in the moment between, its link is up."""
    for _ in range(40):
        code, checks = await doctor(which, "acc")
        failures = [each for each in checks if each["state"] == "failure"]
        if code == 4 and any("edge" in str(each["detail"]) and "domain" in str(each["remedy"]) for each in failures):
            return
        await asyncio.sleep(0.5)
    raise AssertionError(checks)


@pytest.mark.parametrize("hub_kind", ["eyotd", "nats-server", "2.14.6"])
def test_nothing_is_lost_and_all_are_told(hub_kind: str, tmp_path: Path) -> None:
    hub = server(hub_kind, HUB + ACCOUNTS, tmp_path / "hub")
    names = ("one", "two")
    leaf_links = []
    for name in names:
        config = (LEAF + ACCOUNTS).replace("HUB_PORT", str(hub.leaf_port)).replace("NAME", name)
        leaf_links.append(Eyotd(config, tmp_path / name))

    async def play() -> None:
        clients = []
        for name, leaf in zip(names, leaf_links, strict=True):
            leaf.start()
            clients.append(await nats.connect(leaf.client_url("acc")))
            await publish(clients[-1], name)
        one, two = clients
        leaf_links[0].wait_log("Leafnode connection created", 60)
        leaf_links[1].wait_log("Duplicate JetStream domain|has this server's JetStream domain", 60)
        at_hub = await nats.connect(hub.client_url("acc"))
        origin = StreamSource(name="WORK", external=ExternalStream(api="$JS.edge.API"))
        await at_hub.jetstream(timeout=10).add_stream(name="ALL", sources=[origin])
        deadline = time.monotonic() + 5  # what must not happen may happen as long as this
        there: set[str] = set()
        while time.monotonic() < deadline:
            there = {text for client in (one, two) for text in await held(client, "WORK")}
            there |= set(await held(at_hub, "ALL"))
            assert len(there) == 2 * COUNT, sorted({f"{n} {i}" for n in names for i in range(COUNT)} - there)[:5]
            await asyncio.sleep(0.2)
        if hub_kind == "eyotd":
            wanted = {f"one {number}" for number in range(COUNT)}
            while len(copied := set(await held(at_hub, "ALL"))) < COUNT:
                await asyncio.sleep(0.2)
            assert copied == wanted
            leaf_links.append(hub)  # type: ignore[arg-type]
        for which in leaf_links:
            await _names_the_twin(which)
        for client in (*clients, at_hub):
            await client.close()

    try:
        hub.start()
        asyncio.run(play())
    finally:
        for one in leaf_links:
            one.kill()
        hub.kill()
