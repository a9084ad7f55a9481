"""The client protocol byte for byte: the same conversations with `eyotd` and with Debian's `nats-server`."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from support.clients.transcripts import ANSWERS_OF_2_9, CLOSING_CASES, OPEN_CASES
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess


@pytest.fixture(scope="module", params=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind = Eyotd if request.param == "eyotd" else NatsServer
    with kind("", tmp_path_factory.mktemp(request.param)) as process:
        yield process


def converse(server: ServerProcess, sent: bytes, end: bytes) -> bytes:
    """What the server says after INFO, up to `end` (b"": until it closes)."""
    with socket.create_connection((server.host, server.client_port), timeout=10) as client:
        got = b""
        while not got.endswith(b"\r\n"):
            got += client.recv(65536)
        assert got.startswith(b"INFO ")
        got = b""
        client.sendall(sent)
        while not (end and got.endswith(end)):
            try:
                data = client.recv(65536)
            except ConnectionResetError:
                break
            if not data:
                break
            got += data
        return got


@pytest.mark.parametrize("case", OPEN_CASES, ids=[case[0] for case in OPEN_CASES])
def test_open(server: ServerProcess, case: tuple[str, bytes, bytes, bytes]) -> None:
    name, connect, sent, answer = case
    if isinstance(server, NatsServer):
        answer = ANSWERS_OF_2_9.get(name, answer)
    got = converse(server, connect + sent + b"PING\r\n", b"PONG\r\n")
    if name == "queue_and_plain":  # the order of plain and queue subscriptions is the server's choice
        assert sorted(got.split(b"\r\n")) == sorted((answer + b"PONG\r\n").split(b"\r\n"))
    else:
        assert got == answer + b"PONG\r\n"


@pytest.mark.parametrize("case", CLOSING_CASES, ids=[case[0] for case in CLOSING_CASES])
def test_closing(server: ServerProcess, case: tuple[str, bytes, bytes]) -> None:
    _, sent, answer = case
    assert converse(server, sent, b"") == answer


def test_a_client_that_only_has_nothing_more_to_say(server: ServerProcess) -> None:
    """It has closed its half of the connection at once, as `printf ... | nc` does, and hears what it asked for."""
    for _ in range(20):
        with socket.create_connection((server.host, server.client_port), timeout=10) as client:
            client.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n')
            client.shutdown(socket.SHUT_WR)
            got = b""
            while data := client.recv(65536):
                got += data
        assert got.partition(b"\r\n")[2] == b"MSG a 1 2\r\nhi\r\nPONG\r\n"
