"""A client that shows what it gets frame by frame, for comparing servers."""

from __future__ import annotations

import json
import socket

TIMEOUT_S = 20.0


class PlainClient:
    """Connected as `user`. What comes is taken in by `sync` only."""

    def __init__(self, port: int, user: str, *, verbose: bool = False) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._data = b""
        self.heard: list[bytes] = []
        options = {
            "user": user,
            "pass": user,
            "verbose": verbose,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
        }
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.sync()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def sync(self) -> list[bytes]:
        """The frames up to the answer to a PING, each without its last line end; INFO and PING are left out."""
        self.send(b"PING\r\n")
        found: list[bytes] = []
        while (frame := self._frame()) != b"PONG":
            if not frame.startswith((b"INFO", b"PING")):
                found.append(frame)
        self.heard += found
        return found

    def close(self) -> None:
        self._sock.close()

    def _frame(self) -> bytes:
        line = self._take(b"\r\n")
        if not line.startswith((b"MSG ", b"HMSG ")):
            return line
        size = int(line.split()[-1])
        while len(self._data) < size + 2:
            self._read()
        payload, self._data = self._data[:size], self._data[size + 2 :]
        return line + b"\r\n" + payload

    def _take(self, end: bytes) -> bytes:
        while end not in self._data:
            self._read()
        taken, _, self._data = self._data.partition(end)
        return taken

    def _read(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise AssertionError(f"hung up on after {self.heard[-3:]}")
        self._data += data
