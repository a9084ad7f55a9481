"""Message tracing at the border of an account, beside nats-server: reported steps, and headers that cross the border."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import pytest

from support.links.leaf_pair import Inbox, LeafPair, linked, server

CONFIG = """
server_name: s
jetstream { store_dir: "%WORKDIR%/store" }
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}], mappings { "m.svc": "inner" }
      exports: [{service: svc, allow_trace: ALLOWED}, {service: m.svc, allow_trace: ALLOWED}, {stream: s}] }
  B { jetstream: enabled, users: [{user: b, password: b}]
      imports: [{service: {account: A, subject: svc}, to: ask}, {service: {account: A, subject: m.svc}, to: asked}
                {stream: {account: A, subject: s}, to: here, allow_trace: ALLOWED}] }
}
"""


async def scene(url: str, only: bool) -> list[Any]:
    """What three messages' publishers are told, and the trace headers that receivers and a stream see."""
    a = await nats.connect(url, user="a", password="a", name="alice")
    b = await nats.connect(url, user="b", password="b", name="bob")
    header = {"Nats-Trace-Dest": "told"} | ({"Nats-Trace-Only": "true"} if only else {})
    seen: list[Any] = []
    reports = {client: await Inbox.on(client, "told") for client in (a, b)}

    async def got(msg: Any) -> None:
        dest = (msg.headers or {}).get("Nats-Trace-Dest", "")
        seen.append((msg.subject, "_R_" if dest.startswith("_R_.") else dest))

    for client, subjects in ((a, ("svc", "inner")), (b, ("here",))):
        for subject in subjects:
            await client.subscribe(subject, cb=got)
    await a.jetstream().add_stream(name="KEPT", subjects=["kept", "inner"])
    for client in (a, b):
        await client.flush()
    for number, (client, subject) in enumerate(((b, "ask"), (b, "asked"), (a, "s"), (a, "kept")), 1):
        await client.publish(subject, b"x", headers=header)
        await client.flush()
        await reports[client].wait(number if client is b else number - 2)
    for client in (a, b):
        await client.flush()
    told = [json.loads(payload) for client in (b, a) for payload in reports[client].payloads]
    stored = []
    for number in range(1, (await a.jetstream().stream_info("KEPT")).state.messages + 1):
        msg = await a.jetstream().get_msg("KEPT", number)
        stored.append((msg.subject, (msg.headers or {}).get("Nats-Trace-Dest", "")))
    await a.close()
    await b.close()
    return [[events(report) for report in told], sorted(seen), stored]


def events(report: dict[str, Any]) -> list[dict[str, Any]]:
    kept = [{key: value for key, value in event.items() if key not in ("ts", "cid")} for event in report["events"]]
    return sorted(kept, key=lambda event: (event["type"] != "in", json.dumps(event)))


def found(kind: str, folder: Path, *, allowed: bool, only: bool) -> list[Any]:
    process = server(kind, CONFIG.replace("ALLOWED", str(allowed).lower()), folder)
    process.start()
    try:
        return asyncio.run(scene(process.client_url(), only))
    finally:
        process.kill()


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_within_one_server(allowed: bool, only: bool, tmp_path: Path) -> None:
    ours, theirs = (found(kind, tmp_path / kind, allowed=allowed, only=only) for kind in ("eyotd", "2.14.6"))
    if not allowed:
        # nats-server tells where the exporter maps the request to, although the trace is to end before.
        (request,) = [event for event in theirs[0][1] if event["type"] == "si"]
        assert request["to"] == "inner"
        request["to"] = "m.svc"
    assert ours == theirs
    names = {event.get("name") for report in ours[0] for event in report if event["type"] == "eg"}
    assert names == ({"alice", "bob"} if allowed else set())


HUB = """
server_name: hub-server
accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
"""
LEAF = """
server_name: leaf-server
accounts {
  A { users: [{user: acc, password: acc}], exports: [{service: svc, allow_trace: ALLOWED}] }
  B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: svc}, to: ask}] }
}
leafnodes { reconnect: 1, remotes = [ { urls: ["nats://a:a@127.0.0.1:HUB_PORT"], account: A } ] }
"""
PAIRS = [("2.14.6", "2.14.6"), ("eyotd", "2.14.6"), ("2.14.6", "eyotd"), ("eyotd", "eyotd")]


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("kinds", PAIRS)
def test_over_a_leaf_link(kinds: tuple[str, str], allowed: bool, tmp_path: Path) -> None:
    """A requester in B at the leaf asks a service of A whose server is at the hub."""

    async def run(pair: LeafPair) -> None:
        hub = await nats.connect(pair.hub.client_url(), user="a", password="a")
        spy = await Inbox.on(hub, "told")
        service = await Inbox.on(hub, "svc")
        acc = await nats.connect(pair.leaf.client_url(), user="acc", password="acc")
        asker = await nats.connect(pair.leaf.client_url(), user="b", password="b")
        reports = await Inbox.on(asker, "told")
        await linked(hub, acc)
        await asker.publish("ask", b"x", headers={"Nats-Trace-Dest": "told"})
        await service.wait(1)
        await reports.wait(2 if allowed else 1)
        await linked(hub, acc)
        names = [json.loads(payload)["server"]["name"] for payload in reports.payloads]
        assert sorted(names) == (["hub-server", "leaf-server"] if allowed else ["leaf-server"])
        assert spy.payloads == []
        for client in (hub, acc, asker):
            await client.close()

    with LeafPair(
        *kinds, tmp_path, accounts="", hub_config=HUB, leaf_config=LEAF.replace("ALLOWED", str(allowed).lower())
    ) as pair:
        asyncio.run(run(pair))
