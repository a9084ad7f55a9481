"""When and where a server listens: on both kinds of addresses, as nats-server 2.14, and not before it can serve."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

#: nats-server's default host; the harness writes another where a configuration names none.
EVERYWHERE = """
listen: "0.0.0.0:%CLIENT_PORT%"
http: "0.0.0.0:%MONITOR_PORT%"
leafnodes { listen: "0.0.0.0:%LEAF_PORT%" }
"""


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_a_listener_takes_ipv6_and_ipv4(kind: Callable[[str, Path], ServerProcess], tmp_path: Path) -> None:
    server = kind(EVERYWHERE, tmp_path)
    server.start()
    try:
        with RawClient(server.client_port) as client:
            assert client.info["client_ip"] == "127.0.0.1"
        for port in (server.client_port, server.leaf_port, server.monitor_port):
            socket.create_connection(("::1", port), timeout=10).close()
        with socket.create_connection(("::1", server.client_port), timeout=10) as sock:
            assert b'"client_ip":"::1"' in sock.recv(4096)
    finally:
        server.kill()


def test_a_second_daemon_on_a_store_accepts_nobody(tmp_path: Path) -> None:
    config = 'jetstream { store_dir: "%s" }\n' % (tmp_path / "js")
    first = Eyotd(config, tmp_path / "first")
    first.start()
    second = Eyotd(config, tmp_path / "second")
    try:
        with subprocess.Popen(second.command(), stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
            accepted = 0
            while process.poll() is None:
                with socket.socket() as client:
                    accepted += client.connect_ex(("127.0.0.1", second.client_port)) == 0
        assert (process.returncode != 0, accepted) == (True, 0)
        with RawClient(first.client_port) as client:
            client.ask()
    finally:
        first.kill()
