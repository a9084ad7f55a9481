"""Connections that have ended leave no objects behind: reference counts free them, the collector has nothing to do."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from support.clients.raw_client import RawClient
from support.clients.unknown_peers import FORMS, TLS_FORMS, Crowd, Ports, plain_config, tls_config, trusting
from support.clients.websocket_client import WebSocketClient
from support.links.raw_leaf import Peer
from support.servers.counted_eyotd import CountedEyotd

PEERS = 8
#: More of a class than before: half of a crowd hangs up in one way, half in another.
LEFT_MIN = PEERS // 2
WAIT_S = 60
#: Kept on purpose: the page of closed connections, and cancelled timers until there are too many of them.
KEPT = ("eyot_daemon.client.clients.ClosedClient", "eyot_daemon.turn.timers.TimerHandle")


def client(ports: Ports, *, tls: bool) -> socket.socket:
    """A client that is known and subscribes."""
    one = RawClient(ports.client, tls=trusting() if tls else None, user="one", **{"pass": "two"})
    assert one.ask(b"SUB a.* 1\r\nPUB a.b 2\r\nhi\r\n").startswith(b"MSG a.b 1 2\r\nhi")
    return one.sock


def browser(ports: Ports, *, tls: bool) -> socket.socket:
    """The same over a WebSocket."""
    one = WebSocketClient(
        ports.websocket, compress=True, tls=trusting() if tls else None, user="one", **{"pass": "two"}
    )
    assert one.ask(b"SUB a.* 1\r\nPUB a.b 2\r\nhi\r\n").startswith(b"MSG a.b 1 2\r\nhi")
    return one.sock


def leaf(ports: Ports) -> socket.socket:
    """A leaf node that is known and has interest; each has a name of its own."""
    one = Peer(ports.leaf, user="one", name=f"leaf-{time.monotonic_ns()}", **{"pass": "two"}).linked()
    one.send(b"LS+ a.*\r\nPING\r\n")
    one.until(rb"PONG\r\n")
    return one.sock


def reader(ports: Ports, *, tls: bool) -> socket.socket:
    """A reader of a page who keeps the connection."""
    sock = socket.create_connection(("127.0.0.1", ports.monitor), timeout=60)
    sock = trusting().wrap_socket(sock) if tls else sock
    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    heard = b""
    while b'"ok"' not in heard:
        heard += sock.recv(4096)
    return sock


KNOWN: dict[str, Callable[[Ports], socket.socket]] = {
    "a client": partial(client, tls=False),
    "a browser": partial(browser, tls=False),
    "a leaf node": leaf,
    "a reader of a page": partial(reader, tls=False),
}
TLS_KNOWN: dict[str, Callable[[Ports], socket.socket]] = {
    "a client": partial(client, tls=True),
    "a browser": partial(browser, tls=True),
    "a reader of a page": partial(reader, tls=True),
}


@dataclass
class Server:
    """A server, and where it listens."""

    eyotd: CountedEyotd
    ports: Ports

    def rid_of(self, crowd: Crowd, before: int) -> None:
        """The crowd leaves, and the server has closed its sockets."""
        crowd.leave()
        eventually(lambda: self.eyotd.connections() <= before, "the server keeps sockets of those who left")


def eventually(condition: Callable[[], bool], words: str) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, words
        time.sleep(0.02)


def survivors(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return {kind: count for kind, count in (after - before).items() if kind not in KEPT and count >= LEFT_MIN}


def nothing_left(eyotd: CountedEyotd, before: Counter[str]) -> None:
    """Wait for the last steps of the tasks whose sockets are closed: what refers to itself does not go away."""
    left: dict[str, int] = {}
    until = time.monotonic() + WAIT_S
    while left := survivors(before, eyotd.objects()):
        assert time.monotonic() < until, left
        time.sleep(0.02)


def nothing_left_of(server: Server, crowd: Crowd, form: str) -> None:
    sockets = server.eyotd.connections()
    crowd.grow(form, 2)  # what the first of a kind needs is made
    server.rid_of(crowd, sockets)
    before = server.eyotd.objects()
    crowd.grow(form, PEERS)
    server.rid_of(crowd, sockets)
    nothing_left(server.eyotd, before)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config, websocket = plain_config()
    with CountedEyotd(config, tmp_path_factory.mktemp("server")) as eyotd:
        yield Server(eyotd, Ports(eyotd.client_port, eyotd.leaf_port, websocket, eyotd.monitor_port))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    config, websocket, monitor = tls_config(directory)
    with CountedEyotd(config, directory) as eyotd:
        yield Server(eyotd, Ports(eyotd.client_port, eyotd.leaf_port, websocket, monitor))


@pytest.mark.parametrize("form", [*FORMS, *KNOWN])
def test_nothing_is_left(plain: Server, form: str) -> None:
    nothing_left_of(plain, Crowd(plain.ports, FORMS | KNOWN), form)


@pytest.mark.parametrize("form", [*TLS_FORMS, *TLS_KNOWN])
def test_nothing_is_left_of_tls(secure: Server, form: str) -> None:
    nothing_left_of(secure, Crowd(secure.ports, TLS_FORMS | TLS_KNOWN), form)


def test_pages_are_freed(plain: Server) -> None:
    """What a page shows holds on to nobody."""
    paths = ("/varz", "/connz?subs=detail&state=all", "/leafz?subs=1", "/subsz?subs=1", "/accstatz", "/eyot/status")

    def read_all() -> None:
        for path in paths:
            with urllib.request.urlopen(f"http://127.0.0.1:{plain.ports.monitor}{path}", timeout=15) as page:
                page.read()

    read_all()
    before = plain.eyotd.objects()
    for _ in range(PEERS):
        read_all()
    nothing_left(plain.eyotd, before)
