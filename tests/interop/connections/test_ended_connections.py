"""Connections that end in the middle of a large message leave nothing of it in the server."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from support.clients.unknown_peers import own_bytes
from support.servers.eyotd import Eyotd

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
http: 127.0.0.1:%MONITOR_PORT%
max_payload: 8MB
leafnodes { listen: "127.0.0.1:%LEAF_PORT%" }
"""
CONNECTIONS = 20
PART = 7 << 20
#: Each has its own beginning of a message of 8,000,000 bytes.
BEGINNINGS = {
    "a client": b'CONNECT {"verbose":false}\r\nPUB x 8000000\r\n',
    "a client with headers": b'CONNECT {"verbose":false,"headers":true}\r\nHPUB x 12 8000000\r\nNATS/1.0\r\n\r\n',
}


def round_of(server: Eyotd, beginning: bytes) -> None:
    """Connections that send most of a message and hang up; over when the server has noticed all of them."""
    socks = []
    for _ in range(CONNECTIONS):
        sock = socket.create_connection((server.host, server.client_port), timeout=60)
        sock.recv(4096)
        sock.sendall(beginning + b"y" * PART)
        socks.append(sock)
    for sock in socks:
        sock.close()
    until = time.monotonic() + 60
    while server.monitor("/connz")["num_connections"]:
        assert time.monotonic() < until, "the server still has connections that are closed"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_memory_is_given_back(tmp_path: Path, kind: str) -> None:
    with Eyotd(CONFIG, tmp_path) as server:
        for _ in range(2):  # what the allocator keeps for those who come next
            round_of(server, BEGINNINGS[kind])
        before = own_bytes(server.pid)
        for _ in range(3):
            round_of(server, BEGINNINGS[kind])
        grown, until = own_bytes(server.pid) - before, time.monotonic() + 60
        while grown >= 2 * PART and time.monotonic() < until:
            time.sleep(0.1)  # the last connections are counted out before their buffers are freed
            grown = own_bytes(server.pid) - before
        assert grown < 2 * PART, f"{grown / (1 << 20):.0f} MiB of {3 * CONNECTIONS * PART >> 20} MiB that came are kept"
