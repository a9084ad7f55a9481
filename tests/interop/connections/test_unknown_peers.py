"""Peers that are not authenticated yet use at most 64 KiB of the server's memory each, and none after they disconnect."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.clients.raw_client import RawClient
from support.clients.unknown_peers import FORMS, TLS_FORMS, Crowd, Ports, own_bytes, plain_config, tls_config, trusting
from support.servers.eyotd import Eyotd

EACH_MAX = 64 * 1024
PEERS = 32
#: What the allocator takes in one go, and what does not depend on the number of peers.
SLACK = 1 << 20
#: Crowds that come and go, and what may stay of all of them: less than each of their peers may have.
ROUNDS = 2
KEPT_MAX = ROUNDS * PEERS * EACH_MAX


@dataclass
class Server:
    """A server, and where it listens; with `tls` on every listener."""

    eyotd: Eyotd
    ports: Ports
    tls: ssl.SSLContext | None = None

    def settled(self) -> int:
        """The server's own memory, when it has dealt with what came."""
        with RawClient(self.ports.client, tls=self.tls, user="one", **{"pass": "two"}) as client:
            assert client.ask() == b""
        url = f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.ports.monitor}/varz"
        with urllib.request.urlopen(url, timeout=15, context=self.tls) as page:
            json.load(page)
        return own_bytes(self.eyotd.pid)

    def try_crowds(self, crowd: Crowd, form: str) -> None:
        crowd.grow(form, 8)  # what the first of a kind needs is loaded
        crowd.leave()
        before = self.settled()
        crowd.grow(form, PEERS)
        there = self.settled()
        assert there - before < PEERS * EACH_MAX + SLACK, f"{(there - before) / PEERS / 1024:.1f} KiB each"
        crowd.leave()
        for _ in range(ROUNDS):
            crowd.grow(form, PEERS)
            crowd.leave()
        # What was freed may be kept by the allocator for those who come next, but it does not grow with them.
        assert self.settled() - max(there, before) < KEPT_MAX


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config, websocket = plain_config()
    with Eyotd(config, tmp_path_factory.mktemp("server")) as eyotd:
        yield Server(eyotd, Ports(eyotd.client_port, eyotd.leaf_port, websocket, eyotd.monitor_port))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    config, websocket, monitor = tls_config(directory)
    with Eyotd(config, directory) as eyotd:
        yield Server(eyotd, Ports(eyotd.client_port, eyotd.leaf_port, websocket, monitor), trusting())


@pytest.mark.parametrize("form", FORMS)
def test_little_for_each_and_nothing_afterwards(plain: Server, form: str) -> None:
    plain.try_crowds(Crowd(plain.ports), form)


@pytest.mark.parametrize("form", TLS_FORMS)
def test_little_for_each_over_tls(secure: Server, form: str) -> None:
    secure.try_crowds(Crowd(secure.ports, TLS_FORMS), form)
