"""Traces of a message over leaf links: each server reports its own steps, and the hop's number joins them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from support.links.leaf_pair import Inbox, LeafPair, linked

ACCOUNTS = "accounts { ACC: { users: [{user: acc, password: acc}] } }"
HUB = 'server_name: hub-server\nleafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }\n'
LEAF = """
server_name: leaf-server
leafnodes { reconnect: 1, remotes = [ { urls: ["nats://acc:acc@127.0.0.1:HUB_PORT"], account: ACC } ] }
"""
PAIRS = [("2.14.6", "2.14.6"), ("eyotd", "2.14.6"), ("2.14.6", "eyotd"), ("eyotd", "eyotd")]


def told(pair: LeafPair, at: str, header: dict[str, str], parts: int) -> tuple[list[dict[str, Any]], int]:
    """Publish `m.x` at one side, with subscribers at both: what is told, in the order of hops, and how many got the message."""
    got: list[dict[str, Any]] = []

    async def run(hub: Client, leaf: Client) -> None:
        publisher = hub if at == "hub" else leaf
        reports = await Inbox.on(publisher, "told")
        inboxes = [await Inbox.on(client, "m.*") for client in (hub, leaf)]
        for client in (hub, leaf):
            await client.subscribe("m.x", queue="q")
        await linked(hub, leaf)
        await publisher.publish("m.x", b"hello", headers={"Nats-Trace-Dest": "told"} | header)
        await reports.wait(parts)
        await linked(hub, leaf)
        got.extend(json.loads(payload) for payload in reports.payloads)
        got.append({"delivered": sum(inbox.payloads.count(b"hello") for inbox in inboxes)})

    pair.play(run)
    delivered = got.pop()["delivered"]
    return [
        shown(report) for report in sorted(got, key=lambda one: one["request"]["header"].get("Nats-Trace-Hop", []))
    ], delivered


def shown(report: dict[str, Any]) -> dict[str, Any]:
    """A report without times, ids and the names that clients have here."""
    events = []
    for event in report["events"]:
        kept = {key: value for key, value in event.items() if key not in ("ts", "cid")}
        if kept.get("kind") == 0:
            kept.pop("name", None)
        events.append(kept)
    events.sort(key=lambda event: (event["type"] != "in", json.dumps(event)))
    return {
        "server": report["server"]["name"],
        "hops": report.get("hops", 0),
        "request": report["request"],
        "events": events,
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Any]:
    """What two real servers tell."""
    return reports(PAIRS[0], tmp_path_factory.mktemp("real"))


def reports(kinds: tuple[str, str], folder: Path) -> dict[tuple[str, bool], Any]:
    with LeafPair(*kinds, folder, accounts=ACCOUNTS, hub_config=HUB, leaf_config=LEAF) as pair:
        return {
            (at, only): told(pair, at, {"Nats-Trace-Only": "true"} if only else {}, 2)
            for at in ("hub", "leaf")
            for only in (False, True)
        }


@pytest.mark.parametrize("kinds", PAIRS[1:])
def test_the_same_is_told(kinds: tuple[str, str], expected: dict[tuple[str, bool], Any], tmp_path: Path) -> None:
    found = reports(kinds, tmp_path)
    assert found == expected
    (first, second), delivered = found["leaf", False]
    assert (first["server"], second["server"], delivered) == ("leaf-server", "hub-server", 2)
    assert [event["hop"] for event in first["events"] if event.get("hop")] == ["1"]
    assert (second["request"]["header"]["Nats-Trace-Hop"], found["leaf", True][1]) == (["1"], 0)
