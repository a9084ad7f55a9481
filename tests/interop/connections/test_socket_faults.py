"""No error of one connection reaches another: every socket call of every kind of connection fails once, in every way, and the daemon serves on."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
import struct
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.clients.websocket_client import WebSocketClient
from support.links.raw_hub import Hub, Link
from support.links.raw_leaf import Peer
from support.servers import socket_faults
from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port
from support.servers.socket_faults import ERRNOS, METHODS, FaultPlan
from support.trust.certificates import Authority

GOOD = b'{"verbose":false,"user":"good","pass":"good"}'
#: All of them with EYOT_ALL_ERRNOS=1: the code makes little difference between them.
IN_TESTS = ERRNOS if os.environ.get("EYOT_ALL_ERRNOS") else (errno.ENOTCONN,)
CALLS_MAX = 60
#: What the daemon logs when something was raised that nobody had thought of.
UNFORESEEN = re.compile(
    r"(connection|timer|reading|Leafnode connection to \S+) failed\nTraceback|internal error|flush of .* failed"
)
#: What a fault has swallowed does not come later; what comes without one may take its time.
ARMED_S, STEADY_S = 0.3, 30.0
PLAIN = """
server_name: device
listen: 127.0.0.1:%CLIENT_PORT%
http: 127.0.0.1:%MONITOR_PORT%
websocket { listen: "127.0.0.1:@WS@", no_tls: true }
leafnodes {
    listen: 127.0.0.1:%LEAF_PORT%, reconnect: "10ms"
    remotes = [ { url: "nats-leaf://127.0.0.1:@HUB@", account: ACC }, { url: "ws://127.0.0.1:@WSHUB@", account: ACC } ]
}
accounts { ACC: { users: [ {user: good, password: good} ] } }
eyot { control: "%WORKDIR%/control.sock" }
"""
SECURE = """
server_name: device
listen: 127.0.0.1:%CLIENT_PORT%
https: 127.0.0.1:@HTTPS@
tls { TLS }
websocket { listen: "127.0.0.1:@WS@", tls { TLS } }
leafnodes {
    listen: 127.0.0.1:%LEAF_PORT%, tls { TLS }, reconnect: "10ms"
    remotes = [ { url: "tls://127.0.0.1:@HUB@", account: ACC, tls { ca_file: "CA" } } ]
}
accounts { ACC: { users: [ {user: good, password: good} ] } }
"""


class FaultyEyotd(Eyotd):
    """The daemon with sockets that `plan` makes fail."""

    def __init__(self, config: str, workdir: Path) -> None:
        super().__init__(config, workdir)
        self.ws_port = free_port()
        self.plan = FaultPlan(workdir / "plan")

    def command(self) -> list[str]:
        return [sys.executable, socket_faults.__file__, str(self.workdir / "plan"), "-c", str(self.config_path)]


class Bench:
    """The daemon, the hubs that its remotes dial, and what is done with each kind of connection."""

    def __init__(self, workdir: Path, *, secure: bool) -> None:
        self.hub, self.ws_hub = Hub(), Hub()
        self.within_s = STEADY_S
        self.client_tls: ssl.SSLContext | None = None
        config = PLAIN
        if secure:
            authority = Authority(workdir / "tls")
            cert, key = authority.issue("server")
            block = f'cert_file: "{cert}", key_file: "{key}", timeout: 2'
            config = SECURE.replace("TLS }", block + " }").replace("CA", str(authority.ca_file), 1)
            self.client_tls = ssl.create_default_context(cafile=str(authority.ca_file))
            self.hub_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.hub_tls.load_cert_chain(cert, key)
        self.daemon = FaultyEyotd("", workdir)
        self.https_port = free_port()
        for name, port in (
            ("HUB", self.hub.port),
            ("WSHUB", self.ws_hub.port),
            ("WS", self.daemon.ws_port),
            ("HTTPS", self.https_port),
        ):
            config = config.replace(f"@{name}@", str(port))
        self.daemon.set_config(config)
        self.kinds: dict[str, Callable[[], None]] = {
            "client": self.client,
            "websocket": self.websocket,
            "leaf": self.leaf,
            "remote": self.remote,
            "monitor": self.monitor,
        }
        if not secure:
            self.kinds["websocket remote"] = self.websocket_remote
            self.kinds["control"] = self.control

    def client(self) -> None:
        with RawClient(self.daemon.client_port, GOOD, tls=self.client_tls) as client:
            client.sock.settimeout(self.within_s)
            assert b"MSG a" in client.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")

    def websocket(self) -> None:
        client = WebSocketClient(self.daemon.ws_port, tls=self.client_tls, connect=GOOD)
        client.sock.settimeout(self.within_s)
        client.sock.close()

    def leaf(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self.daemon.leaf_port), timeout=self.within_s)
        if self.client_tls is None:
            sock.close()
            peer = Peer(self.daemon.leaf_port, user="good")
            peer.until(rb"LS\+ [^\n]*\n", self.within_s)
            peer.close()
        else:
            with sock:
                assert sock.recv(4096).startswith(b"INFO ")
                with self.client_tls.wrap_socket(sock, server_hostname="localhost") as secured:
                    secured.sendall(b'CONNECT {"name":"x","user":"good","pass":"good","headers":true}\r\n')
                    assert secured.recv(4096)

    def remote(self) -> None:
        link = _fresh(self.hub, self.within_s)
        link.sock.settimeout(self.within_s)
        if self.client_tls is None:
            link.linked()
            link.close()
            return
        link.greet(tls_required=True)
        with self.hub_tls.wrap_socket(link.sock, server_side=True) as secured:
            assert secured.recv(4096).startswith(b"CONNECT")

    def websocket_remote(self) -> None:
        link = _fresh(self.ws_hub, self.within_s)
        link.until(rb"\r\n\r\n", self.within_s)
        link.send(b"HTTP/1.1 404 Not Found\r\n\r\n")
        link.close()

    def monitor(self) -> None:
        url = f"http://localhost:{self.daemon.monitor_port}/healthz"
        if self.client_tls is not None:
            url = f"https://localhost:{self.https_port}/healthz"
        with urllib.request.urlopen(url, timeout=self.within_s, context=self.client_tls) as answer:
            assert answer.status == 200

    def control(self) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(self.within_s)
            sock.connect(str(self.daemon.workdir / "control.sock"))
            sock.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.")

    def sweep(self, errnos: tuple[int, ...]) -> int:
        """Every call of every method, for each kind of connection; how many faults were met."""
        plan, met = self.daemon.plan, 0
        for kind, play in self.kinds.items():
            self.steady(play)
            for method in METHODS:
                for number in errnos:
                    for call in range(CALLS_MAX):
                        plan.arm(method, call, number)
                        self.within_s = ARMED_S
                        with suppress(OSError, AssertionError, ValueError, HTTPException):
                            play()
                        fired = plan.disarm()
                        self.within_s = STEADY_S
                        where = f"{kind}: {method} #{call}: errno {number}"
                        assert self.daemon.running, f"{where}\n{self.daemon.log()[-3000:]}"
                        if fired:
                            self.serves(where)
                            assert not UNFORESEEN.search(self.daemon.log()), f"{where}\n{self.daemon.log()[-3000:]}"
                        if not fired:
                            break
                        met += 1
            self.steady(play)
        return met

    def serves(self, where: str) -> None:
        """Somebody else is served."""
        try:
            with RawClient(self.daemon.client_port, GOOD, tls=self.client_tls) as client:
                assert client.ask() == b"", where
        except OSError as error:
            raise AssertionError(f"{where}: {error}\n{self.daemon.log()[-3000:]}") from None

    def steady(self, play: Callable[[], None]) -> None:
        """Without a fault it works; what a fault left behind may take one attempt more."""
        for _ in range(5):
            with suppress(OSError, AssertionError, ValueError, HTTPException):
                play()
                return
        play()


def _fresh(hub: Hub, within_s: float) -> Link:
    """A link that the daemon dials from now on: those in the queue it may have given up."""
    hub.sock.settimeout(0)
    with suppress(BlockingIOError):
        while True:
            hub.sock.accept()[0].close()
    return hub.accept(within_s * 10)


@pytest.fixture(params=["plain", "tls"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, secure=request.param == "tls")
    try:
        bench.daemon.start()
        yield bench
    finally:
        bench.daemon.kill()
        bench.hub.sock.close()
        bench.ws_hub.sock.close()


def test_no_socket_error_ends_the_daemon(bench: Bench) -> None:
    assert bench.sweep(IN_TESTS) > 40


def test_a_hub_that_resets_at_once_is_a_hub_that_is_down(tmp_path: Path) -> None:
    """A port-forward or a balancer whose backend is dead accepts and resets."""
    with Hub() as hub:
        daemon = Eyotd(
            f'leafnodes {{ reconnect: "20ms", remotes = [ {{ url: "nats-leaf://127.0.0.1:{hub.port}" }} ] }}', tmp_path
        )
        with daemon:
            for _ in range(50):
                link = hub.accept()
                link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                link.close()
            with RawClient(daemon.client_port) as client:
                assert client.ask() == b""
