"""A start: what is not needed is not loaded, and a process that still loads can be stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.net import early_listen
from eyot_daemon.net.binding import bind, plain_host
from support.servers.server_process import free_port

NOT_FOR_A_PLAIN_BROKER = {
    "asyncio",
    "cryptography",
    "eyot_daemon.jetstream.engine",
    "eyot_daemon.jetstream.running",
    "eyot_daemon.leaf.remotes",
    "eyot_store",
    "httpx",
    "h11",
    "lmdb",
    "nats",
    "prometheus_client",
    "wsproto",
}

_INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from eyot_daemon import launch

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "eyot_daemon.server":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["-a", "127.0.0.1", "-p", "-1"]
sys.exit(launch.main())
"""


def test_a_plain_broker_loads_neither_the_store_nor_the_libraries_of_other_parts() -> None:
    code = "import sys, eyot_daemon.launch, eyot_daemon.main, eyot_daemon.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "eyot_daemon.server" in loaded
    assert not NOT_FOR_A_PLAIN_BROKER.intersection(loaded)


def test_an_interrupt_while_loading_ends_the_process_without_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED_WHILE_LOADING], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""


_WATCHED = """
import os, signal, socket, sys
from eyot_daemon import launch

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "eyot_daemon.main":
            for port in {ports}:
                socket.create_connection(("127.0.0.1", port), 5).close()
            print("reached", flush=True)
        if name == "eyot_daemon.server":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Watch())
sys.exit(launch.main())
"""


def test_clients_reach_a_process_that_still_loads_and_its_signals_wait(tmp_path: Path) -> None:
    port, websocket_port = free_port(), free_port()
    conf = tmp_path / "eyotd.conf"
    conf.write_text(f"""
        listen: 127.0.0.1:{port}
        websocket {{ host: 127.0.0.1, port: {websocket_port}, no_tls: true }}
        log_file: {tmp_path / "log"}
    """)
    code = _WATCHED.format(ports=[port, websocket_port])
    env = os.environ | {early_listen.LISTEN_EARLY: "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "-c", str(conf)], stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            assert client.recv(5) == b"INFO "
        deadline = time.monotonic() + 30
        while "Reloaded server configuration" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.terminate()
        assert process.wait(30) == 0
    log_text = (tmp_path / "log").read_text()
    assert f"Listening for client connections on 127.0.0.1:{port}" in log_text
    assert f"Listening for websocket clients on ws://127.0.0.1:{websocket_port}" in log_text


@pytest.mark.parametrize(
    ("conf", "flags", "addresses"),
    [
        ("", [], [("0.0.0.0", 4222)]),
        ("port: 4444", [], [("0.0.0.0", 4444)]),
        ("Listen: '[::1]:4444'", [], [("::1", 4444)]),
        ("listen: 4444, net: localhost", ["-p=4445"], [("localhost", 4445)]),
        ("host: localhost, port: -1", ["-a", "127.0.0.1"], []),
        ("ws { Listen: 127.0.0.1:81 }", ["--port", "-1"], [("127.0.0.1", 81)]),
        ("port: 4444", ["-t"], []),
        ("port: 4444", ["--signal", "reload"], []),
        ("port: 4444", ["version"], []),
    ],
)
def test_what_is_bound_first(conf: str, flags: list[str], addresses: list[tuple[str, int]], tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(conf)
    assert early_listen.addresses(["-c", str(tmp_path / "conf"), *flags]) == addresses


@pytest.mark.parametrize("argv", [["-p"], ["--nonsense"], ["-c", "/nowhere/at/all"], ["-a", "no host", "-p", "4000"]])
def test_mistakes_are_left_to_those_who_tell_them(argv: list[str]) -> None:
    early_listen.listen_early(argv)
    early_listen.release()


def test_what_is_held_is_given_out_once() -> None:
    port = free_port()
    early_listen.listen_early(["-a", "127.0.0.1", "-p", str(port)])
    with early_listen.take("127.0.0.1", port) as sock:
        assert sock.getsockname() == ("127.0.0.1", port)
        sock.listen()
        with pytest.raises(OSError, match="in use"):
            early_listen.take("127.0.0.1", port)
    early_listen.listen_early(["-a", "127.0.0.1", "-p", str(port)])
    early_listen.release()
    early_listen.take("127.0.0.1", port).close()


@pytest.mark.parametrize("asked", ["", "1"])
def test_nobody_connects_before_the_daemon_is_ready(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for launchers that ask for it, who connect once and wait."""
    monkeypatch.setenv(early_listen.LISTEN_EARLY, asked)
    port = free_port()
    early_listen.listen_early(["-a", "127.0.0.1", "-p", str(port)])
    with socket.socket() as client:
        client.settimeout(5.0)
        assert (client.connect_ex(("127.0.0.1", port)) == 0) is bool(asked)
    early_listen.release()


IPV6_LOOPBACK = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
IPV4_LOOPBACK = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("addresses", "bound"),
    [([IPV6_LOOPBACK, IPV4_LOOPBACK], "127.0.0.1"), ([IPV6_LOOPBACK], "::1"), ([IPV4_LOOPBACK], "127.0.0.1")],
)
def test_a_name_with_both_kinds_of_addresses_means_ipv4(
    addresses: list[Any], bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Go's `net.Listen` takes `localhost`."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: addresses)
    with bind("localhost", 0) as sock:
        assert sock.getsockname()[0] == bound


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_every_address_means_those_of_both_kinds(host: str) -> None:
    """As Go's `net.Listen` binds them."""
    with bind(host, 0) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port), timeout=5.0):
                accepted, peer = sock.accept()
                accepted.close()
                assert plain_host(peer[0]) == address
