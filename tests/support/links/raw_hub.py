"""A hub made of a listening socket: it sends given bytes to a leaf node that dials it."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Self

from support.links.raw_link import RawLink

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
        """The next link that the leaf node still has: one that waited here for too long, it has given up."""
        self.sock.settimeout(within_s)
        while True:
            sock, _ = self.sock.accept()
            if not _given_up(sock):
                return Link(sock)
            sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()


def _given_up(sock: socket.socket) -> bool:
    """Whether the other end, which says nothing before the INFO, has closed."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class Link(RawLink):
    """One connection of the leaf."""

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
