"""A leaf node never reports messages as `synced` that its hub lacks: every way in which a real nats-server hub loses messages."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamSource

from support.links.leaf_pair import Clients, LeafPair, configs_behind
from support.links.link import Link
from support.links.sync_report import eyot, syncz, until, wait
from support.servers.eyotd import Eyotd

ORIGIN = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API"))


@pytest.fixture(params=["nats-server", "2.14.6"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LeafPair, Link]]:
    """A nats-server as hub, and eyotd as its leaf behind a link that can be cut."""
    with Link(0) as link:
        servers = LeafPair(request.param, "eyotd", tmp_path, **configs_behind(link.port))
        link.target_port = servers.hub.leaf_port
        with servers:
            yield servers, link


def copied(pair: LeafPair, at_origin: dict[str, Any] | None = None, at_hub: dict[str, Any] | None = None) -> None:
    """R at the leaf, sourced by ALL at the hub."""

    async def play(hub: Client, leaf: Client) -> None:
        await leaf.jetstream(timeout=30).add_stream(name="R", subjects=["r.>"], **(at_origin or {}))
        await hub.jetstream(timeout=30).add_stream(name="ALL", sources=[ORIGIN], **(at_hub or {}))

    pair.play(play)


def publish(pair: LeafPair, count: int, subject: str = "r.a") -> None:
    async def play() -> None:
        async with Clients(pair.leaf) as (leaf,):
            js = leaf.jetstream(timeout=30)
            for number in range(count):
                await js.publish(subject, b"%d" % number)

    asyncio.run(play())


def at_leaf(pair: LeafPair, subject: str, body: Any = None) -> Any:
    return _asked(pair.leaf, subject, body)


def at_hub(pair: LeafPair, subject: str, body: Any = None) -> Any:
    return _asked(pair.hub, subject, body)


def _asked(server: Any, subject: str, body: Any) -> Any:
    async def play() -> Any:
        async with Clients(server) as (client,):
            answer = await client.request(subject, b"" if body is None else json.dumps(body).encode(), timeout=30)
            return json.loads(answer.data)

    return asyncio.run(play())


def held(pair: LeafPair) -> int:
    answer = at_hub(pair, "$JS.API.STREAM.INFO.ALL")
    return int(answer["state"]["messages"]) if "state" in answer else 0


def is_synced(pair: LeafPair) -> bool:
    return bool(syncz(pair)["synced"])


def test_what_limits_and_purges_took_while_the_link_was_down_is_told(pair: tuple[LeafPair, Link]) -> None:
    servers, link = pair
    copied(servers, {"max_msgs": 30})
    publish(servers, 10)
    until(lambda: is_synced(servers), "the first ten are copied")
    link.cut()
    publish(servers, 100)
    at_leaf(servers, "$JS.API.STREAM.PURGE.R", {"keep": 20})
    servers.leaf.kill()
    servers.leaf.start()
    link.restore()
    until(lambda: is_synced(servers), "what is left is copied")
    assert held(servers) == 30
    report = syncz(servers)
    assert report["never_arrived"] == 80
    lost = [(each["reason"], each["messages"], each["sequences"]) for each in report["out"][0]["lost"]]
    assert lost == [("max_msgs", 70, ["11-80"]), ("purge", 10, ["81-90"])]
    done = wait(servers, 60)
    assert done.returncode == 3, done.stderr
    assert "synced, 80 never arrived" in done.stdout
    doctor = eyot(servers, "doctor")
    assert doctor.returncode in (3, 4)
    assert "70 by max_msgs" in " ".join(doctor.stdout.split())
    servers.leaf.wait_log("dropped unconfirmed by source.* reason max_msgs")


def test_a_leaf_node_set_up_anew_that_has_outgrown_its_hub(pair: tuple[LeafPair, Link]) -> None:
    servers, link = pair
    copied(servers)
    publish(servers, 20)
    until(lambda: is_synced(servers), "the first life is copied")
    link.cut()
    servers.leaf.kill()
    shutil.rmtree(servers.leaf.workdir / "store")
    servers.leaf.start()
    at_leaf(servers, "$JS.API.STREAM.CREATE.R", {"name": "R", "subjects": ["r.>"]})
    publish(servers, 50)
    link.restore()
    until(lambda: held(servers) == 50, "what comes after the hub's position is copied")
    until(lambda: bool(syncz(servers)["out"]), "the leaf knows who copies")
    until(lambda: syncz(servers)["out"][0]["confirmed_seq"] == 50, "the hub confirms")
    (status,) = syncz(servers)["out"]
    assert status["backlog"] == 20
    assert "earlier R" in status["error"]
    assert not is_synced(servers)
    assert wait(servers, 0.5).returncode == 1


def test_a_leaf_node_set_back_that_has_outgrown_its_hub(pair: tuple[LeafPair, Link]) -> None:
    servers, link = pair
    copied(servers)
    publish(servers, 20)
    until(lambda: is_synced(servers), "the first are copied")
    # What is confirmed is on flash when a later change is.
    at_leaf(servers, "$JS.API.STREAM.CREATE.LATER", {"name": "LATER"})
    servers.leaf.kill()
    image = servers.leaf.workdir / "image"
    shutil.copytree(servers.leaf.workdir / "store", image)
    servers.leaf.start()
    publish(servers, 30)
    until(lambda: held(servers) == 50, "more is copied")
    link.cut()
    servers.leaf.kill()
    shutil.rmtree(servers.leaf.workdir / "store")
    shutil.copytree(image, servers.leaf.workdir / "store")
    servers.leaf.start()
    publish(servers, 25)
    servers.leaf.kill()
    servers.leaf.start()
    publish(servers, 25)
    link.restore()
    until(lambda: held(servers) == 70, "what comes after the hub's position is copied")
    until(lambda: syncz(servers)["out"][0]["confirmed_seq"] == 70, "the hub confirms")
    (status,) = syncz(servers)["out"]
    assert status["backlog"] == 30
    assert not is_synced(servers)


def test_a_hub_that_was_wiped_is_not_called_synced(pair: tuple[LeafPair, Link]) -> None:
    servers, _ = pair
    copied(servers)
    publish(servers, 20)
    until(lambda: is_synced(servers), "all is copied")
    servers.hub.kill()
    shutil.rmtree(servers.hub.workdir / "store")
    until(lambda: not syncz(servers)["out"][0]["linked"], "the leaf has noticed")
    servers.hub.start()
    claims = []

    def linked_again() -> bool:
        report = syncz(servers)
        is_linked = bool(report["out"][0]["linked"])
        if is_linked:
            claims.append(report["synced"])
        return is_linked and len(claims) > 20

    until(linked_again, "the link is up again")
    assert not any(claims)
    done = wait(servers, 0.5)
    assert done.returncode == 1
    assert "does not read R" in done.stderr
    at_hub(
        servers,
        "$JS.API.STREAM.CREATE.ALL",
        {"name": "ALL", "sources": [{"name": "R", "external": {"api": "$JS.leaf.API"}}]},
    )
    until(lambda: is_synced(servers), "it is copied again")
    assert held(servers) == 20


def test_a_stream_that_was_deleted_at_the_hub_is_not_called_synced(pair: tuple[LeafPair, Link]) -> None:
    servers, _ = pair
    copied(servers)
    publish(servers, 20)
    until(lambda: is_synced(servers), "all is copied")
    assert at_hub(servers, "$JS.API.STREAM.DELETE.ALL")["success"]
    until(lambda: not is_synced(servers), "it is noticed")
    assert wait(servers, 0.5).returncode == 1


def test_a_full_hub_is_not_called_synced(pair: tuple[LeafPair, Link]) -> None:
    servers, _ = pair
    copied(servers, at_hub={"max_msgs": 40, "discard": "new"})
    publish(servers, 100)
    until(lambda: held(servers) == 40, "the hub is full")
    ends = time.monotonic() + 12.0
    claims: list[Any] = []
    while time.monotonic() < ends:
        report = syncz(servers)
        claims += [report["out"]] if report["synced"] else []
        time.sleep(0.05)
    assert not claims
    config = at_hub(servers, "$JS.API.STREAM.INFO.ALL")["config"]
    at_hub(servers, "$JS.API.STREAM.UPDATE.ALL", config | {"max_msgs": 1000})
    until(lambda: is_synced(servers), "there is room again")
    assert held(servers) == 100


def test_what_no_filter_takes_is_told(pair: tuple[LeafPair, Link]) -> None:
    servers, _ = pair

    async def play(hub: Client, leaf: Client) -> None:
        await leaf.jetstream(timeout=30).add_stream(name="R", subjects=["r.>"])
        source = StreamSource(name="R", filter_subject="r.a", external=ExternalStream(api="$JS.leaf.API"))
        await hub.jetstream(timeout=30).add_stream(name="ALL", sources=[source])

    servers.play(play)
    publish(servers, 10)
    publish(servers, 7, "r.b")
    until(lambda: is_synced(servers), "what is asked for is copied")
    assert syncz(servers)["unmatched"] == 7
    done = wait(servers, 60)
    assert (done.returncode, "7 messages match no filter" in done.stdout) == (0, True)


class LeapingEyotd(Eyotd):
    """The daemon on a machine whose clock is `years` ahead."""

    years = 0

    def command(self) -> list[str]:
        ahead = self.years * 365 * 86_400 * 10**9
        code = (
            f"import sys, time; real = time.time_ns; time.time_ns = lambda: real() + {ahead}; "
            "from eyot_daemon.main import main; sys.exit(main(sys.argv[1:]))"
        )
        return [sys.executable, "-c", code, "-c", str(self.config_path)]


def test_a_start_in_2040_takes_nothing_away(tmp_path: Path) -> None:
    with Link(0) as link:
        servers = LeafPair("2.14.6", "eyotd", tmp_path, **configs_behind(link.port))
        leaf = LeapingEyotd(servers.leaf.config_path.read_text(), tmp_path / "leaf")
        leaf.client_port, leaf.monitor_port = servers.leaf.client_port, servers.leaf.monitor_port
        servers.leaf = leaf
        link.target_port = servers.hub.leaf_port
        with servers:
            copied(servers, {"max_age": 3600})
            publish(servers, 10)
            until(lambda: is_synced(servers), "the first are copied")
            link.cut()
            publish(servers, 50)
            for years in (14, 0):
                leaf.stop()
                leaf.years = years
                leaf.start()
                publish(servers, 1)
                assert at_leaf(servers, "$JS.API.STREAM.INFO.R")["state"]["messages"] == (61 if years else 62)
            link.restore()
            until(lambda: is_synced(servers), "all is copied")
            assert held(servers) == 62
            assert syncz(servers)["never_arrived"] == 0
            assert wait(servers, 60).returncode == 0
