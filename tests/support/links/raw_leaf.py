"""A leaf node made of a socket: it sends given bytes."""

from __future__ import annotations

import base64
import json
import socket
from typing import Self

from support.links.raw_link import RawLink
from support.trust.claims import Key


class Peer(RawLink):
    """A leaf made of a socket."""

    def __init__(
        self, port: int, *, user: str = "bad", name: str = "peer", connect: bool = True, **fields: object
    ) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), timeout=15))
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
