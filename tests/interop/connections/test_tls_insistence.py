"""An address or an option that asks for TLS gets TLS or nothing: a server without TLS never receives a password, from any tool."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ConnectionFailed, Refused
from support.links.raw_hub import INFO
from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority

SECRET = b"the-secret-word"


class ClearServer:
    """Speaks no TLS and notes what it hears. `handshake` goes out first; a WebSocket's upgrade is answered as it asks for."""

    def __init__(self, **fields: object) -> None:
        self.handshake = b"INFO " + json.dumps(INFO | fields).encode() + b"\r\n"
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.heard = b""
        self.met = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.sock.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(30)
                try:
                    peer.sendall(self.handshake)
                    while data := peer.recv(65536):
                        self.heard += data
                        if b"PING\r\n" in data:
                            peer.sendall(b"PONG\r\n")
                except OSError:
                    pass
            self.met.set()

    def __enter__(self) -> ClearServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self._thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def eyot(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "eyot_cli.main", *map(str, arguments), "pub", "subject", "text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


LOGIN = ("--user", "app", "--password", SECRET.decode())
FORMS = ["tls://127.0.0.1:{port}", "TLS://127.0.0.1:{port}", "tls://app:the-secret-word@localhost:{port}"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("info", [{}, {"tls_required": False, "tls_available": False}])
def test_an_address_of_tls(form: str, info: dict[str, object]) -> None:
    with ClearServer(**info) as server:
        status, err = eyot("-s", form.format(port=server.port), *LOGIN)
        assert (status, err.count("\n")) == (1, 1), err
        assert "the-secret" not in err
        assert err.endswith(": secure connection not available\n")
    assert SECRET not in server.heard


@pytest.mark.parametrize("address", ["nats://127.0.0.1:{port}", "127.0.0.1:{port}", "ws://127.0.0.1:{port}"])
@pytest.mark.parametrize("options", ["ca", "cert", "first"])
def test_options_of_tls(authority: Authority, address: str, options: str) -> None:
    certificate, key = authority.issue("app")
    given = {"ca": ("--tlsca", authority.ca_file), "cert": ("--tlscert", certificate, "--tlskey", key)}
    with ClearServer() as server:
        where = address.format(port=server.port)
        status, err = eyot("-s", where, *given.get(options, ("--tlsfirst",)), *LOGIN)
        assert (status, err.count("\n")) == (1, 1), err
    assert SECRET not in server.heard


@pytest.mark.parametrize(
    ("scheme", "ca", "secured"), [("tls", True, True), ("nats", True, True), ("nats", False, False)]
)
def test_tls_that_is_only_offered_is_taken(
    authority: Authority, tmp_path: Path, scheme: str, ca: bool, secured: bool
) -> None:
    with Eyotd(f"allow_non_tls: true\n{authority.block('server')}", tmp_path) as daemon:
        options = ["--tlsca", str(authority.ca_file)] if ca else []
        where = f"{scheme}://localhost:{daemon.client_port}"
        command = [sys.executable, "-m", "eyot_cli.main", "-s", where, *options, "sub", "anything"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as listening:
            while not (rows := [each for each in daemon.monitor("/connz")["connections"] if each["subscriptions"]]):
                assert listening.poll() is None
                time.sleep(0.02)
            listening.terminate()
    assert [bool(row.get("tls_version")) for row in rows] == [secured]


@pytest.mark.parametrize(
    "options",
    [{"tls": True}, {"tls_ca": ""}, {"tls_cert": "", "tls_key": ""}, {"server": "tls://"}, {"server": "TLS://"}],
)
def test_the_hubs_client(authority: Authority, options: dict[str, object]) -> None:
    certificate, key = authority.issue("job")
    files = {"tls_ca": str(authority.ca_file), "tls_cert": str(certificate), "tls_key": str(key)}
    scheme = str(options.pop("server", "nats://"))
    chosen = {name: files.get(name, value) for name, value in options.items()}
    with ClearServer() as server:
        given = ConnectOptions((f"{scheme}127.0.0.1:{server.port}",), user="app", password=SECRET.decode(), **chosen)  # type: ignore[arg-type]
        with pytest.raises((Refused, ConnectionFailed)):
            Connection.open(given)
    assert SECRET not in server.heard


@pytest.mark.parametrize(
    ("url", "block"),
    [
        ("tls://app:the-secret-word@127.0.0.1:{port}", ""),
        ("TLS://app:the-secret-word@127.0.0.1:{port}", ""),
        ("nats://app:the-secret-word@127.0.0.1:{port}", "tls {{ ca_file: {ca} }}"),
        ("ws://app:the-secret-word@127.0.0.1:{port}", "tls {{ ca_file: {ca} }}"),
        ("wss://app:the-secret-word@127.0.0.1:{port}", ""),
    ],
)
def test_a_leaf_remote(authority: Authority, tmp_path: Path, url: str, block: str) -> None:
    with ClearServer() as server:
        remote = f'url: "{url.format(port=server.port)}", {block.format(ca=json.dumps(str(authority.ca_file)))}'
        with Eyotd(f"leafnodes {{ reconnect: 1, remotes: [ {{ {remote} }} ] }}\n", tmp_path):
            assert server.met.wait(30)
    assert server.heard.startswith(b"\x16\x03")  # a handshake of TLS and nothing before it
    assert SECRET not in server.heard
