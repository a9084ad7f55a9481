"""How a WebSocket begins and ends: the same statuses on `eyotd` and a current nats-server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.websocket_client import WebSocketClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess, Start

CONFIG = """
max_payload: 1000, max_control_line: 200
websocket { listen: 127.0.0.1:%LEAF_PORT%, no_tls: true, compression: true }
authorization {
    timeout: 60
    users: [ { user: u, password: p }, { user: plain, password: p, allowed_connection_types: [STANDARD] } ]
}
"""
IMPATIENT = """
websocket { listen: 127.0.0.1:%LEAF_PORT%, no_tls: true }
"""
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
PLAIN_REQUEST = (b"Host: x", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13", KEY)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with (
        Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as ours,
        NewerNatsServer(CONFIG, tmp_path_factory.mktemp("nats-server")) as theirs,
    ):
        yield ours, theirs


@pytest.fixture(params=[Eyotd, NewerNatsServer])
def start_newer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def run(config: str) -> ServerProcess:
        started.append(request.param(config, tmp_path))
        started[0].start()
        return started[0]

    yield run
    for server in started:
        server.kill()


def closing_of(server: ServerProcess, sent: bytes, **credentials: str) -> tuple[int, str] | None:
    fields = credentials or {"user": "u", "pass": "p"}
    with WebSocketClient(server.leaf_port, **fields) as web:
        if sent:
            web.send(sent)
        web.until(b"nothing more")
        return web.closing


@pytest.mark.parametrize(
    ("sent", "credentials", "closing"),
    [
        (b"", {"user": "u", "pass": "wrong"}, (1008, "Authentication Failure")),
        (b"", {"user": "plain", "pass": "p"}, (1008, "Authentication Failure")),
        (b"BAD\r\n", {}, (1002, "Protocol Violation")),
        (b"PUB a 2000\r\n", {}, (1009, "Maximum Message Payload Exceeded")),
        (b"PUB %b 1\r\n" % (b"a" * 300), {}, (1008, "Maximum Control Line Exceeded")),
        (b"CONNECT {\r\n", {}, (1002, "Protocol Violation")),
        (b'CONNECT {"user":"u","pass":"p","protocol":7}\r\n', {}, (1002, "Bad Client Protocol Version")),
    ],
)
def test_the_close_frame_says_why(
    servers: tuple[ServerProcess, ServerProcess], sent: bytes, credentials: dict[str, str], closing: tuple[int, str]
) -> None:
    ours, theirs = [closing_of(server, sent, **credentials) for server in servers]
    assert ours == closing
    assert theirs in (closing, None)  # nats-server may lose what it sends last


@pytest.mark.parametrize(
    ("options", "connect", "closing"),
    [
        ("authorization { user: u, password: p, timeout: 0.2 }", None, (1008, "Authentication Timeout")),
        ("ping_interval: '100ms', ping_max: 1", b"{}", (1001, "Stale Connection")),
    ],
)
def test_a_silent_peer_is_told_why(
    start_newer: Start, options: str, connect: bytes | None, closing: tuple[int, str]
) -> None:
    server = start_newer(IMPATIENT + options)
    with WebSocketClient(server.leaf_port, connect=connect) as web:
        web.until(b"nothing more")
        assert web.closing in (closing, None if server.name.startswith("nats") else closing)


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        ("b28000000000", 1002),  # a reserved bit
        ("8200", 1002),  # without a mask
        ("838000000000", 1002),  # an opcode that nobody defined
        ("89fe007e00000000", 1002),  # a control frame of 126 bytes
        ("098000000000", 1002),  # a control frame in parts
        ("018000000000" + "818000000000", 1002),  # a message within another
        ("808000000000", 1002),  # the continuation of nothing
        ("888100000000" + "00", 1002),  # CLOSE with half a status
        ("888200000000" + "03ec", 1002),  # CLOSE with status 1004
        ("888500000000" + "03e8" + "616263", 1000),  # CLOSE with a reason
        ("888400000000" + "03e8" + "fffe", 1007),  # CLOSE with a reason that is not UTF-8
        ("888000000000", 1005),  # CLOSE without a status: the answer has none, either
        ("888200000000" + "0fa1", 4001),  # CLOSE with a status of the application
    ],
)
def test_ends_in_frames(servers: tuple[ServerProcess, ServerProcess], frame: str, status: int) -> None:
    statuses = []
    for server in servers:
        with WebSocketClient(server.leaf_port, user="u", **{"pass": "p"}) as web:
            web.ask()
            web.sock.sendall(bytes.fromhex(frame))
            web.until(b"nothing more")
            statuses.append(web.closing and web.closing[0])
    assert statuses[0] == status
    assert statuses[1] in (status, None)  # nats-server may lose it


def answer(server: ServerProcess, lines: tuple[bytes, ...], start: bytes = b"GET / HTTP/1.1", more: bytes = b"") -> str:
    """Return the status of the answer to a request, "closed" without one, and which version is offered."""
    with socket.create_connection(("127.0.0.1", server.leaf_port), timeout=10) as sock:
        sock.sendall(b"\r\n".join((start, *lines)) + b"\r\n\r\n" + more)
        received = b""
        while b"\r\n\r\n" not in received and (data := sock.recv(4096)):
            received += data
    head = received.partition(b"\r\n\r\n")[0].decode().lower()
    offered = re.search(r"^sec-websocket-version: (.*?)\r?$", head, re.MULTILINE)
    return f"{head[9:12]} {offered[1] if offered else ''}" if head else "closed"


def replaced(old: bytes, *new: bytes) -> tuple[bytes, ...]:
    return tuple(line for line in PLAIN_REQUEST if not line.startswith(old)) + new


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (PLAIN_REQUEST, "101 "),
        (replaced(b"Upgrade", b"Upgrade: h2c, WebSocket"), "101 "),
        (replaced(b"Upgrade", b"Upgrade: h2c", b"Upgrade: websocket"), "101 "),
        (replaced(b"Upgrade", b"Upgrade: h2c websocket"), "400 13"),
        (replaced(b"Upgrade"), "400 13"),
        (replaced(b"Connection", b"Connection: keep-alive, upgrade"), "101 "),
        (replaced(b"Connection", b"Connection: keep-alive", b"Connection: Upgrade"), "101 "),
        (replaced(b"Connection", b"Connection: close"), "400 13"),
        (replaced(b"Sec-WebSocket-Version", b"Sec-WebSocket-Version: 8, 13"), "101 "),
        (replaced(b"Sec-WebSocket-Version", b"Sec-WebSocket-Version: 8"), "400 13"),
        (replaced(b"Sec-WebSocket-Version"), "400 13"),
        (replaced(KEY), "400 13"),
        (replaced(KEY, b"Sec-WebSocket-Key: "), "400 13"),
        (replaced(KEY, b"Sec-WebSocket-Key: x"), "400 13"),
        (replaced(KEY, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"), "400 13"),
        (replaced(KEY, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"), "400 13"),
        (replaced(KEY, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Key: x"), "101 "),
        (replaced(KEY, b"Sec-WebSocket-Key: dGhl IHNhbXBsZSBub25jZQ=="), "400 13"),
    ],
)
def test_requests(servers: tuple[ServerProcess, ServerProcess], lines: tuple[bytes, ...], status: str) -> None:
    assert [answer(server, lines) for server in servers] == [status, status]


def test_another_method_than_get(servers: tuple[ServerProcess, ServerProcess]) -> None:
    assert [answer(server, PLAIN_REQUEST, b"PUT / HTTP/1.1") for server in servers] == ["405 13", "405 13"]


def test_frames_before_the_answer_end_the_connection(servers: tuple[ServerProcess, ServerProcess]) -> None:
    assert [answer(server, PLAIN_REQUEST, more=b"\x89\x80\0\0\0\0") for server in servers] == ["closed", "closed"]
