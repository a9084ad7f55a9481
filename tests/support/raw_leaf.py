"""A leaf node made of a socket, that says what it is told to say."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from typing import Self

from support.claims import Key


class Peer:
    """A leaf made of a socket."""

    def __init__(
        self, port: int, *, user: str = "bad", name: str = "peer", connect: bool = True, **fields: object
    ) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=15)
        self.heard = b""
        self.closed = False
        self.info = json.loads(self.until(rb"INFO [^\n]*\n").partition(b"\r\n")[0][5:])
        if connect:
            told = {"name": name, "version": "2.14.0", "headers": True, "user": user, "pass": user, "cluster": name}
            self.send(b"CONNECT " + json.dumps(told | fields).encode() + b"\r\n")

    @classmethod
    def with_token(cls, port: int, token: str, key: Key, *, name: str = "peer", signed: bytes | None = None) -> Self:
        """A leaf that presents a JWT and signs the nonce (or something else) with its key."""
        peer = cls(port, connect=False)
        proof = key.signer.sign(peer.info["nonce"].encode() if signed is None else signed)
        sig = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
        told = {"name": name, "version": "2.14.0", "headers": True, "cluster": name, "jwt": token, "sig": sig}
        peer.send(b"CONNECT " + json.dumps(told).encode() + b"\r\n")
        return peer

    def linked(self) -> Self:
        self.until(rb'INFO [^\n]*"connect_info":true[^\n]*\n')
        self.send(b"PING\r\n")
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

    def outcome(self, within_s: float = 2.0) -> tuple[str, bool]:
        """The last -ERR, and whether the link was closed in that time."""
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
