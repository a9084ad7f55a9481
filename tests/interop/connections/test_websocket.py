"""The WebSocket listener: the same conversations on `eyotd` and on Debian's `nats-server`."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.clients.websocket_client import Refused, WebSocketClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import Start
from support.trust.certificates import Authority

#: The test's WebSocket port is the one the helper keeps for leaf nodes.
PLAIN = "websocket {{ listen: 127.0.0.1:%LEAF_PORT%, no_tls: true, {} }}\n"


def test_messages_between_kinds_of_clients(start: Start) -> None:
    server = start(PLAIN.format(""))
    with WebSocketClient(server.leaf_port) as web, RawClient(server.client_port) as plain:
        if isinstance(server, Eyotd):  # Debian's names the listener for ordinary clients
            assert (web.info["host"], web.info["port"]) == ("127.0.0.1", server.leaf_port)
        assert web.ask(b"SUB a 1\r\n") == b""
        assert plain.ask(b"SUB b 1\r\nPUB a 5\r\nhello\r\n") == b""
        assert web.ask(b"PUB b 5\r\nworld\r\n") == b"MSG a 1 5\r\nhello\r\n"
        assert plain.ask() == b"MSG b 1 5\r\nworld\r\n"
    assert f"Listening for websocket clients on ws://127.0.0.1:{server.leaf_port}" in server.log()


def test_frames(start: Start) -> None:
    """Fragments, protocol split over frames, WebSocket's own PING, close."""
    server = start(PLAIN.format(""))
    with WebSocketClient(server.leaf_port) as web:
        web.send(b"SUB a 1\r\nPUB a 10\r\n0123456789\r\n", pieces=7)
        for piece in (b"PI", b"NG", b"\r\n"):
            web.send(piece)
        assert web.until(b"PONG\r\n") == b"MSG a 1 10\r\n0123456789\r\nPONG\r\n"
        web.ping()
        assert web.ask() == b""
        assert web.pongs == 1
        web.send(b"BAD\r\n")
        told = web.until(b"nothing more")
        if isinstance(server, Eyotd):  # nats-server may lose it
            assert told.endswith(b"-ERR 'Unknown Protocol Operation'\r\n")
        assert web.closed


def test_compression(start: Start) -> None:
    server = start(PLAIN.format("compression: true"))
    with WebSocketClient(server.leaf_port, compress=True) as web:
        assert web.accepted is not None
        assert web.accepted.extensions
        before = web.wire_bytes
        payload = b"x" * 50_000
        assert web.ask(b"SUB a 1\r\nPUB a 50000\r\n%b\r\n" % payload) == b"MSG a 1 50000\r\n%b\r\n" % payload
        assert web.wire_bytes - before < 5000
    with WebSocketClient(server.leaf_port) as web:
        assert web.ask(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_compression_is_not_offered_unless_configured(start: Start) -> None:
    server = start(PLAIN.format(""))
    with WebSocketClient(server.leaf_port, compress=True) as web:
        assert web.accepted is not None
        assert not web.accepted.extensions
        assert web.ask(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_browsers_get_small_frames(start: Start) -> None:
    server = start(PLAIN.format(""))
    with WebSocketClient(server.leaf_port, headers={"User-Agent": "Mozilla/5.0"}) as web:
        web.ask(b"SUB a 1\r\nPUB a 20000\r\n%b\r\n" % (b"y" * 20_000))
        assert max(web.frames) <= 4096


@pytest.mark.parametrize(
    ("config", "origin", "welcome"),
    [
        ("same_origin: true", "http://localhost:%PORT%", True),
        ("same_origin: true", "http://elsewhere:%PORT%", False),
        ("same_origin: true", "", True),
        ('allowed_origins: ["http://a.example", "https://b.example:99"]', "http://a.example", True),
        ('allowed_origins: ["http://a.example", "https://b.example:99"]', "http://a.example:80", True),
        ('allowed_origins: ["http://a.example", "https://b.example:99"]', "https://b.example:99", True),
        ('allowed_origins: ["http://a.example", "https://b.example:99"]', "https://a.example", False),
        ('allowed_origins: ["http://a.example", "https://b.example:99"]', "http://b.example:99", False),
    ],
)
def test_origins(start: Start, config: str, origin: str, welcome: bool) -> None:
    server = start(PLAIN.format(config))
    headers = {"Origin": origin.replace("%PORT%", str(server.leaf_port))} if origin else {}
    if welcome:
        WebSocketClient(server.leaf_port, headers=headers).sock.close()
        return
    with pytest.raises(Refused) as caught:
        WebSocketClient(server.leaf_port, headers=headers)
    assert caught.value.status == 403


def test_what_is_no_upgrade(start: Start) -> None:
    server = start(PLAIN.format(""))
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.leaf_port), timeout=10) as sock:
            sock.sendall(request)
            assert sock.recv(100).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "odd",
    [
        b"GET / HTTP/1.1\r\nHost: \xff\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: \xff\r\nSec-WebSocket-Key: \xff\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Extensions: \xff\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Protocol: \xff\r\n",
        b"GET http://[x/ HTTP/1.1\r\nHost: x\r\n",
    ],
)
def test_odd_bytes_in_a_request_are_answered_and_fill_no_log(tmp_path: Path, odd: bytes) -> None:
    rest = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    with Eyotd(PLAIN.format(""), tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.leaf_port), timeout=10) as sock:
            sock.sendall(odd + rest + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 400")
        assert "Traceback" not in server.log()


def test_credentials_in_cookies(tmp_path: Path) -> None:
    """Debian's nats-server is too old for these: it knows only the JWT's cookie."""
    config = PLAIN.format("user_cookie: u, pass_cookie: p, token_cookie: t")
    cookies = {"Cookie": "x=1; u=web; p=secret"}
    with Eyotd(config + "authorization { users: [{user: web, password: secret}] }", tmp_path) as server:
        with WebSocketClient(server.leaf_port, headers=cookies) as web:
            assert web.ask(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
        with WebSocketClient(server.leaf_port, headers={"Cookie": "u=web; p=wrong"}) as web:
            assert web.until(b"nothing").endswith(b"-ERR 'Authorization Violation'\r\n")
        with WebSocketClient(server.leaf_port, headers=cookies, user="other") as web:  # CONNECT comes first
            assert web.until(b"nothing").endswith(b"-ERR 'Authorization Violation'\r\n")
        assert "secret" not in server.log()


def test_authorization_of_the_listener(start: Start) -> None:
    server = start(
        PLAIN.format("authorization { user: web, password: w }") + "authorization { user: plain, password: p }"
    )
    for user, password, welcome in (("web", "w", True), ("plain", "p", False)):
        with WebSocketClient(server.leaf_port, user=user, **{"pass": password}) as web:
            web.send(b"PING\r\n")
            assert (b"PONG" in web.until(b"PONG\r\n")) is welcome
        with RawClient(server.client_port, user=user, **{"pass": password}) as plain:
            plain.send(b"PING\r\n")
            assert (b"PONG" in plain.until(b"PONG\r\n")) is not welcome


def test_connection_types(start: Start) -> None:
    server = start(
        PLAIN.format("no_auth_user: web")
        + """authorization { users: [
            { user: web, password: w, allowed_connection_types: [WEBSOCKET] }
            { user: plain, password: p, allowed_connection_types: [STANDARD] }
        ] }"""
    )
    with WebSocketClient(server.leaf_port, user="plain", **{"pass": "p"}) as web:
        assert web.until(b"nothing").endswith(b"-ERR 'Authorization Violation'\r\n")
    with WebSocketClient(server.leaf_port) as web:  # no_auth_user
        assert web.ask(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
        row = server.monitor("/connz?auth=1")["connections"][-1]
        assert (row["type"], row["authorized_user"]) == ("websocket", "web")
    with RawClient(server.client_port, user="web", **{"pass": "w"}) as plain:
        assert plain.rest().endswith(b"-ERR 'Authorization Violation'\r\n")


def test_tls(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = start("websocket { listen: 127.0.0.1:%LEAF_PORT%, " + authority.block("server") + " }")
    trusting = ssl.create_default_context(cafile=str(authority.ca_file))
    with WebSocketClient(server.leaf_port, tls=trusting) as web:
        if isinstance(server, Eyotd):
            assert web.info["tls_required"]
        assert web.ask(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
    with pytest.raises((AssertionError, OSError, Refused)):
        WebSocketClient(server.leaf_port)
    assert f"Listening for websocket clients on wss://127.0.0.1:{server.leaf_port}" in server.log()


def test_a_slow_reader_of_much(start: Start) -> None:
    server = start(PLAIN.format("") + "max_payload: 1mb")
    with WebSocketClient(server.leaf_port) as web, RawClient(server.client_port) as plain:
        web.ask(b"SUB big 1\r\n")
        payload = bytes(range(256)) * 2048
        for _ in range(20):
            plain.send(b"PUB big %d\r\n%b\r\n" % (len(payload), payload))
        plain.ask()
        for _ in range(20):
            assert web.until(b"\r\n") == b"MSG big 1 %d\r\n" % len(payload)
            assert web.until(payload + b"\r\n") == payload + b"\r\n"


def test_a_leaf_node_over_websocket(tmp_path: Path) -> None:
    hub = "leafnodes { listen: 127.0.0.1:-1 }\n" + PLAIN.format("")
    with Eyotd(hub, tmp_path / "hub") as server:
        leaf = f"leafnodes {{ remotes: [ {{ url: 'ws://127.0.0.1:{server.leaf_port}' }} ] }}"
        with NatsServer(leaf, tmp_path / "leaf") as spoke:
            server.wait_log("Leafnode connection created for account")
            with RawClient(server.client_port) as here, RawClient(spoke.client_port) as there:
                there.ask(b"SUB from.hub 1\r\n")
                while not any(
                    "from.hub" in one["subscriptions_list"] for one in server.monitor("/leafz?subs=1")["leafs"]
                ):
                    pass
                here.ask(b"PUB from.hub 2\r\nhi\r\n")
                assert there.until(b"hi\r\n") == b"MSG from.hub 1 2\r\nhi\r\n"
