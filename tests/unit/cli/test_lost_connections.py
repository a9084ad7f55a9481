"""A server whose connection ends while a command waits for it: the command says that the connection is gone."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from eyot_cli.connection.target import Target, TlsFiles
from eyot_cli.main import main
from eyot_cli.terminal.failure import Failure

INFO = b'INFO {"server_id":"N","version":"2.14.0","proto":1,"headers":true,"max_payload":1048576}\r\n'

GIVEN = Target(
    "/run/control.sock", "nats://device", None, None, None, None, None, as_json=False, tls=TlsFiles(), context=""
)


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
def test_a_connection_that_ends(
    words: tuple[str, ...], until: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve_until, args=(until, listener))
        server.start()
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", url, "--timeout", "3s", *words])
        code = main()
        server.join()
    assert (code, capfd.readouterr().err) == (1, f"eyot: the connection to {url} is gone\n")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), Failure),
        (ConnectionAbortedError(errno.ECONNABORTED, "aborted"), Failure),
        (BrokenPipeError(errno.EPIPE, "closed"), BrokenPipeError),
        (OSError(errno.ENOSPC, "full"), OSError),
        (PermissionError(errno.EACCES, "denied", "file"), PermissionError),
    ],
    ids=["reset", "aborted", "closed output", "full disk", "file"],
)
def test_whose_error_ends_a_command(error: OSError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connection, which is told as one that is gone; or of a file or the output, which says so itself."""
    client = SimpleNamespace(close=lambda: asyncio.sleep(0), is_closed=False, refused=lambda: "")
    monkeypatch.setattr(Target, "_connect", lambda _: asyncio.sleep(0, client))

    async def act(_: object) -> None:
        raise error

    with pytest.raises(raised) as caught:
        GIVEN.with_client(act)
    if isinstance(caught.value, Failure):
        assert caught.value.lines == ("the connection to nats://device is gone",)
    else:
        assert caught.value is error
