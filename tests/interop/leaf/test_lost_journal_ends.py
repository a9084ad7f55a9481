"""A leaf node whose journal lost its end while it was down: the hub's copies of lost messages, and the leaf node's report."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamSource

from support.links.leaf_pair import Clients, LeafPair, configs_behind
from support.links.link import Link
from support.links.sync_report import eyot, syncz, until, wait
from support.servers.newer_nats_server import VERSION

ORIGIN = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API"))
DOWNSTREAMS = ("MIRROR", "SOURCE")
KEPT, LOST, MORE = 10, 20, 5


@pytest.fixture(params=["eyotd"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LeafPair, Link]]:
    with Link(0) as link:
        servers = LeafPair(request.param, "eyotd", tmp_path, **configs_behind(link.port))
        link.target_port = servers.hub.leaf_port
        with servers:
            yield servers, link


def copied_twice(pair: LeafPair) -> None:
    """R at the leaf; a mirror and a source of it at the hub."""

    async def play(hub: Client, leaf: Client) -> None:
        await leaf.jetstream(timeout=30).add_stream(name="R", subjects=["r.>"])
        await hub.jetstream(timeout=30).add_stream(name="MIRROR", mirror=ORIGIN)
        await hub.jetstream(timeout=30).add_stream(name="SOURCE", sources=[ORIGIN])

    pair.play(play)


def contents(pair: LeafPair, name: str) -> list[str]:
    """The payloads that a copy at the hub holds, in its order."""

    async def play() -> list[str]:
        async with Clients(pair.hub) as (hub,):
            js = hub.jetstream(timeout=30)
            state = (await js.stream_info(name)).state
            found = []
            for seq in range(state.first_seq, state.last_seq + 1):
                answer = await hub.request(f"$JS.API.STREAM.MSG.GET.{name}", b'{"seq":%d}' % seq, timeout=30)
                message = json.loads(answer.data).get("message")
                if message is not None:
                    found.append(b64decode(message["data"]).decode())
            return found

    return asyncio.run(play())


def publish_all(pair: LeafPair, numbers: range) -> list[int]:
    """The sequences that these were given."""

    async def play() -> list[int]:
        async with Clients(pair.leaf) as (leaf,):
            js = leaf.jetstream(timeout=30)
            return [(await js.publish("r.a", b"%d" % number)).seq for number in numbers]

    return asyncio.run(play())


def lose_journal(pair: LeafPair, how: str) -> None:
    segments = sorted((pair.leaf.workdir / "store").rglob("segment-*"))
    assert segments
    for each in segments:
        size = each.stat().st_size
        if how == "deleted":
            each.unlink()
        else:
            each.write_bytes(b"" if how == "truncated" else bytes(size))


def linked(pair: LeafPair) -> bool:
    return any(each["account"] == "ACC" for each in pair.leaf.monitor("/leafz")["leafs"])


def outs(pair: LeafPair) -> dict[str, Any]:
    return {each["target"]: each for each in syncz(pair)["out"]}


def held(pair: LeafPair, name: str) -> int:
    return int(state_of(pair.hub, name)["messages"])


def state_of(server: Any, name: str) -> dict[str, Any]:
    async def play() -> dict[str, Any]:
        async with Clients(server) as (client,):
            answer = await client.request(f"$JS.API.STREAM.INFO.{name}", timeout=30)
            state: dict[str, Any] = json.loads(answer.data)["state"]
            return state

    return asyncio.run(play())


def agrees(pair: LeafPair, lost: set[int]) -> bool:
    """Does the leaf say `synced`? If so, of no message that a copy lacks is it said that it arrived."""
    report = syncz(pair)
    if report["synced"]:
        for each in report["out"]:
            assert not each["uncertain"]
            if each["confirmed_seq"]:
                assert each["never_arrived"] == len(lost), report
    return bool(report["synced"])


@pytest.mark.parametrize(
    ("pair", "got", "how"),
    [
        ("eyotd", 0, "deleted"),
        ("eyotd", 12, "truncated"),
        ("eyotd", 12, "zeroed"),
        ("eyotd", LOST, "deleted"),
        ("eyotd", LOST, "zeroed"),
        # nats-server's mirrors and sources ask again some 15 s after they lost their origin: two cases have to do.
        (VERSION, 0, "deleted"),
        (VERSION, 12, "zeroed"),
    ],
    indirect=["pair"],
)
def test_the_end_of_a_journal_is_lost(pair: tuple[LeafPair, Link], got: int, how: str) -> None:
    """`got` of the lost messages had reached the hub."""
    servers, link = pair
    copied_twice(servers)
    publish_all(servers, range(1, KEPT + 1))
    until(lambda: syncz(servers)["synced"] and set(outs(servers)) == set(DOWNSTREAMS), "the first are copied")
    servers.leaf.stop()
    servers.leaf.start()
    until(lambda: linked(servers) and syncz(servers)["synced"], "the link is back")
    publish_all(servers, range(KEPT + 1, KEPT + got + 1))
    until(
        lambda: all(held(servers, name) == KEPT + got for name in DOWNSTREAMS) and syncz(servers)["synced"],
        "some are copied",
    )
    link.cut()
    publish_all(servers, range(KEPT + got + 1, KEPT + LOST + 1))
    servers.leaf.kill()
    lose_journal(servers, how)
    servers.leaf.start()

    state = state_of(servers.leaf, "R")
    assert (state["messages"], state["last_seq"]) == (KEPT, KEPT + LOST)
    report = syncz(servers)
    assert not report["synced"]
    assert set(outs(servers)) == set(DOWNSTREAMS)
    assert all(each["uncertain"] for each in report["out"])
    assert wait(servers, 0.2).returncode == 1
    words = f"stream ACC/R: sequences {KEPT + 1} to {KEPT + LOST} are lost"
    assert any(words in each for each in servers.leaf.monitor("/eyot/status")["store"]["damaged"])
    assert words in servers.leaf.log()
    assert any(words in each for each in servers.leaf.monitor("/healthz")["damaged"])
    doctor = eyot(servers, "doctor")
    assert doctor.returncode
    assert words in " ".join(doctor.stdout.split())

    never = set(range(KEPT + got + 1, KEPT + LOST + 1))
    link.restore()
    until(lambda: agrees(servers, never), "what is left is copied, nothing more is known")
    assert publish_all(servers, range(1001, 1001 + MORE)) == list(range(KEPT + LOST + 1, KEPT + LOST + MORE + 1))
    until(
        lambda: all(held(servers, name) == KEPT + got + MORE for name in DOWNSTREAMS), "what comes then is copied", 30
    )
    until(lambda: agrees(servers, never), "and confirmed")
    wanted = [str(each) for each in (*range(1, KEPT + got + 1), *range(1001, 1001 + MORE))]
    for name in DOWNSTREAMS:
        assert contents(servers, name) == wanted
    done = wait(servers, 20)
    for each in outs(servers).values():
        assert each["never_arrived"] == len(never)
        lost = [(one["reason"], one["messages"], one["sequences"]) for one in each["lost"]]
        assert lost == ([("damage", len(never), [f"{min(never)}-{max(never)}"])] if never else [])
    assert done.returncode == (3 if never else 0), done.stdout + done.stderr
    servers.leaf.kill()
    servers.leaf.start()
    until(lambda: agrees(servers, never), "it is known after a restart, too")


@pytest.mark.parametrize("pair", ["eyotd", VERSION], indirect=True)
def test_what_was_known_of_the_readers_is_lost_too(pair: tuple[LeafPair, Link]) -> None:
    servers, link = pair
    copied_twice(servers)
    publish_all(servers, range(1, 13))
    until(
        lambda: all(held(servers, name) == 12 for name in DOWNSTREAMS) and syncz(servers)["synced"], "some are copied"
    )
    link.cut()
    publish_all(servers, range(13, 21))
    servers.leaf.kill()
    lose_journal(servers, "deleted")
    servers.leaf.start()
    assert not syncz(servers)["synced"]
    servers.leaf.kill()
    servers.leaf.start()
    assert not syncz(servers)["synced"]
    link.restore()
    assert publish_all(servers, range(21, 24)) == [21, 22, 23]
    until(lambda: all(held(servers, name) == 15 for name in DOWNSTREAMS), "what comes then is copied")
    until(lambda: bool(syncz(servers)["synced"]) and set(outs(servers)) == set(DOWNSTREAMS), "and confirmed")
    for name in DOWNSTREAMS:
        assert contents(servers, name) == [str(each) for each in (*range(1, 13), *range(21, 24))]
    for each in outs(servers).values():
        lost = [(one["reason"], one["messages"], one["sequences"]) for one in each["lost"]]
        assert lost == [("damage", 8, ["13-20"])]
    assert wait(servers, 20).returncode == 3


@pytest.mark.parametrize("pair", ["eyotd", VERSION], indirect=True)
def test_the_end_of_a_journal_and_the_mark_of_it_are_lost(pair: tuple[LeafPair, Link]) -> None:
    """Where the journal ended is not known: no sequence is given again, and what may be lost is named."""
    servers, link = pair
    copied_twice(servers)
    publish_all(servers, range(1, KEPT + 1))
    until(
        lambda: all(held(servers, name) == KEPT for name in DOWNSTREAMS) and syncz(servers)["synced"],
        "the first are copied",
    )
    servers.leaf.stop()
    servers.leaf.start()
    until(lambda: linked(servers) and syncz(servers)["synced"], "the link is back")
    link.cut()
    publish_all(servers, range(KEPT + 1, KEPT + LOST + 1))
    servers.leaf.kill()
    lose_journal(servers, "deleted")
    (mark,) = (servers.leaf.workdir / "store").rglob("journal.high")
    mark.unlink()
    servers.leaf.start()

    end = int(state_of(servers.leaf, "R")["last_seq"])
    assert end > KEPT + LOST
    words = f"stream ACC/R: sequences {KEPT + 1} to {end} may be lost"
    assert any(words in each for each in servers.leaf.monitor("/healthz")["damaged"])
    doctor = eyot(servers, "doctor")
    assert doctor.returncode
    assert words in " ".join(doctor.stdout.split())
    assert not syncz(servers)["synced"]
    link.restore()
    assert publish_all(servers, range(1001, 1001 + MORE)) == list(range(end + 1, end + MORE + 1))
    until(lambda: all(held(servers, name) == KEPT + MORE for name in DOWNSTREAMS), "what comes then is copied")
    until(lambda: bool(syncz(servers)["synced"]) and set(outs(servers)) == set(DOWNSTREAMS), "and confirmed")
    assert contents(servers, "SOURCE") == [str(each) for each in (*range(1, KEPT + 1), *range(1001, 1001 + MORE))]
    assert state_of(servers.hub, "MIRROR")["last_seq"] == end + MORE
    for each in outs(servers).values():
        lost = [(one["reason"], one["messages"], one["sequences"]) for one in each["lost"]]
        assert lost == [("damage", end - KEPT, [f"{KEPT + 1}-{end}"])]
    assert wait(servers, 20).returncode == 3
