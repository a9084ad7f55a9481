"""One end of a leaf link made of a socket: it sends given bytes and records the received ones."""

from __future__ import annotations

import re
import socket
import time


class RawLink:
    """`heard`: everything so far; `closed`: the other end has hung up."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard = b""
        self.closed = False

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
        """The last -ERR of the other end, and whether it closed in that time."""
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
