"""Peers that nobody knows yet get at most 64 KiB of the server's memory each, and nothing stays when they are gone."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from support.eyotd import Eyotd
from support.raw_client import RawClient
from support.server_process import free_port
from support.unknown_peers import CONFIG, FORMS, Crowd, Ports, own_bytes

EACH_MAX = 64 * 1024
PEERS = 32
#: What the allocator takes in one go, and what does not depend on the number of peers.
SLACK = 1 << 20
#: Crowds that come and go, and what may stay of all of them: less than each of their peers may have.
ROUNDS = 2
KEPT_MAX = ROUNDS * PEERS * EACH_MAX


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Eyotd, Ports]]:
    port = free_port()
    with Eyotd(CONFIG.replace("WEBSOCKET_PORT", str(port)), tmp_path_factory.mktemp("server")) as eyotd:
        yield eyotd, Ports(eyotd.client_port, eyotd.leaf_port, port, eyotd.monitor_port)


def settled(server: Eyotd) -> int:
    """The server's own memory, when it has dealt with what came."""
    with RawClient(server.client_port, user="one", **{"pass": "two"}) as client:
        assert client.ask() == b""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/varz", timeout=15) as page:
        json.load(page)
    return own_bytes(server.pid)


@pytest.mark.parametrize("form", FORMS)
def test_little_for_each_and_nothing_afterwards(server: tuple[Eyotd, Ports], form: str) -> None:
    eyotd, ports = server
    crowd = Crowd(ports)
    crowd.grow(form, 8)  # what the first of a kind needs is loaded
    crowd.leave()
    before = settled(eyotd)
    crowd.grow(form, PEERS)
    there = settled(eyotd)
    assert there - before < PEERS * EACH_MAX + SLACK, f"{(there - before) / PEERS / 1024:.1f} KiB each"
    crowd.leave()
    for _ in range(ROUNDS):
        crowd.grow(form, PEERS)
        crowd.leave()
    # What was freed may be kept by the allocator for those who come next, but it does not grow with them.
    assert settled(eyotd) - max(there, before) < KEPT_MAX
