"""Why a TLS handshake failed, in the log, in Go's words; and which certificates a server sends, as nats-server 2.14 does."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess
from support.trust.certificates import Authority

KINDS = [Eyotd, NewerNatsServer]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Iterator[ServerProcess]:
    leaf_links = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%", ' + authority.block("server", "verify: true") + " }"
    process = Eyotd(authority.block("server", "verify: true") + "\n" + leaf_links, tmp_path)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.ca_file))


def plain_text(port: int, authority: Authority) -> None:
    with RawClient(port, connect=None) as client:
        client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        client.rest()


def nothing(port: int, authority: Authority) -> None:
    RawClient(port, connect=None).sock.close()


def no_certificate(port: int, authority: Authority) -> None:
    attempt(port, trusting(authority))


def unknown_authority(port: int, authority: Authority) -> None:
    tls = trusting(authority)
    tls.load_cert_chain(*Authority(authority.ca_file.parent / "other", "Other CA").issue("client"))
    attempt(port, tls)


def refusing(port: int, authority: Authority) -> None:
    attempt(port, ssl.create_default_context())


def attempt(port: int, tls: ssl.SSLContext) -> None:
    try:
        with RawClient(port, tls=tls) as client:
            client.rest()
    except (ssl.SSLError, OSError):
        pass


@pytest.mark.parametrize("listener", ["client", "leafnode"])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (plain_text, "first record does not look like a TLS handshake"),
        (nothing, "EOF"),
        (no_certificate, "client didn't provide a certificate"),
        (unknown_authority, "certificate signed by unknown authority"),
        (refusing, "remote error: tls: unknown certificate authority"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_failed_handshake_says_why(
    server: ServerProcess, authority: Authority, spoil: Callable[[int, Authority], None], reason: str, listener: str
) -> None:
    begin = "TLS leafnode handshake error: " if listener == "leafnode" else "TLS handshake error: "
    spoil(server.client_port if listener == "client" else server.leaf_port, authority)
    server.wait_log(f"{begin}[^\n]*{re.escape(reason)}", 60.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_authority_is_not_sent(
    kind: Callable[[str, Path], ServerProcess], authority: Authority, tmp_path: Path
) -> None:
    """What the file holds is sent, and nothing is added from `ca_file`."""
    server = kind(authority.block("server", "verify: false"), tmp_path)
    server.start()
    try:
        with RawClient(server.client_port, connect=None) as client:
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            wrapped = tls.wrap_socket(client.sock, server_hostname="localhost")
            chain = wrapped._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
            wrapped.shutdown(socket.SHUT_RDWR)
        assert len(chain) == 1
    finally:
        server.kill()
