"""A server whose connection ends while a command waits for it: the command says that the connection is gone."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

INFO = b'INFO {"server_id":"N","version":"2.14.0","proto":1,"headers":true,"max_payload":1048576}\r\n'


def serve_until(word: bytes, listener: socket.socket) -> None:
    """Let a client log in; close at the first line that begins with `word`."""
    with listener.accept()[0] as link:
        link.settimeout(30)
        link.sendall(INFO)
        heard = b""
        while word not in heard:
            data = link.recv(65536)
            if not data:
                return
            heard += data
            if heard.count(b"PING\r\n") == 1 and b"PING\r\n" in data:
                link.sendall(b"PONG\r\n")


@pytest.mark.parametrize(
    ("words", "until"),
    [
        (("sub", "a"), b"SUB a"),
        (("request", "a", "1"), b"PUB a"),
        (("stream", "ls"), b"PUB $JS"),
    ],
    ids=["sub", "request", "stream ls"],
)
def test_a_connection_that_ends(words: tuple[str, ...], until: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve_until, args=(until, listener))
        server.start()
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "eyot_cli.main", "-s", url, "--timeout", "3s", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        server.join()
    assert (done.returncode, done.stderr) == (1, f"eyot: the connection to {url} is gone\n")
