"""A blocking raw client of the client protocol, for conversations with real processes."""

from __future__ import annotations

import json
import socket
import ssl
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 15.0


class RawClient:
    """Connects, reads INFO, and speaks bytes. `info` is the greeting."""

    def __init__(
        self,
        port: int,
        connect: bytes | None = b'{"verbose":false}',
        *,
        tls: ssl.SSLContext | None = None,
        **fields: Any,
    ) -> None:
        """`connect` None: no CONNECT is sent; `fields` are laid over it. With `tls` the handshake follows INFO."""
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.buffer = b""
        line = self.until(b"\r\n")
        assert line.startswith(b"INFO "), line
        self.info: dict[str, Any] = json.loads(line.removeprefix(b"INFO "))
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        if connect is not None:
            self.send(b"CONNECT %b\r\n" % json.dumps(json.loads(connect) | fields).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def until(self, mark: bytes) -> bytes:
        """Everything up to and including `mark`, or up to the end of the connection."""
        while mark not in self.buffer and self._more():
            pass
        at = self.buffer.find(mark)
        end = len(self.buffer) if at < 0 else at + len(mark)
        taken, self.buffer = self.buffer[:end], self.buffer[end:]
        return taken

    def exactly(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self.buffer) < size and self._more():
            pass
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        while self._more():
            pass
        taken, self.buffer = self.buffer, b""
        return taken

    def ask(self, data: bytes = b"") -> bytes:
        """Send, and give what comes before the PONG to a PING behind it; INFO lines in between are left out."""
        self.send(data + b"PING\r\n")
        answer = self.until(b"PONG\r\n").removesuffix(b"PONG\r\n")
        return b"".join(line for line in answer.splitlines(keepends=True) if not line.startswith(b"INFO "))

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self.buffer += data
        return bool(data)
