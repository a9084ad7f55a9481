"""A hub made of a listening socket, that says what it is told to say to a leaf that dials it."""

from __future__ import annotations

import json
import re
import socket
import time
from types import TracebackType
from typing import Self

INFO = {
    "server_id": "NHOSTILE",
    "server_name": "hostile",
    "version": "2.14.0",
    "proto": 1,
    "host": "127.0.0.1",
    "port": 7422,
    "headers": True,
    "max_payload": 1048576,
    "nonce": "abcdefgh",
    "client_id": 7,
    "leafnode_urls": [],
}


class Hub:
    """Listens; each `accept` is a link that the leaf dialled anew."""

    def __init__(self) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]

    def accept(self, within_s: float = 20.0) -> Link:
        self.sock.settimeout(within_s)
        sock, _ = self.sock.accept()
        return Link(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()


class Link:
    """One connection of the leaf."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard = b""
        self.closed = False

    def greet(self, **fields: object) -> Self:
        self.send(b"INFO " + json.dumps(INFO | fields).encode() + b"\r\n")
        return self

    def linked(self) -> Self:
        """As a hub that takes the leaf in."""
        self.greet().until(rb"CONNECT [^\n]*\n")
        self.greet(connect_info=True)
        self.send(b"LS+ $LDS.hostile\r\nPING\r\n")
        self.until(rb"PONG\r\n")
        assert not self.closed, self.heard[-300:]
        return self

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError:
            self.closed = True

    def until(self, pattern: bytes, timeout_s: float = 15.0) -> bytes:
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.heard):
            assert time.monotonic() < deadline, (pattern, self.heard[-300:])
            if not self._read():
                break
        return self.heard

    def outcome(self, within_s: float = 3.0) -> tuple[str, bool]:
        """The last -ERR that the leaf said, and whether it closed in that time."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and self._read(0.2):
            pass
        errors = re.findall(rb"-ERR '([^\r\n]*)'", self.heard)
        return (errors[-1].decode() if errors else ""), self.closed

    def _read(self, timeout_s: float = 5.0) -> bool:
        self.sock.settimeout(timeout_s)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            return True
        except OSError:
            data = b""
        self.heard += data
        self.closed = not data
        return bool(data)

    def close(self) -> None:
        self.sock.close()
