"""Peers that have not said who they are and send as much as they can, on every listener of a server."""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eyot_wire.archive import s2

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
http: 127.0.0.1:%MONITOR_PORT%
max_payload: 8MB
authorization { user: one, password: two, timeout: 60 }
websocket { listen: 127.0.0.1:WEBSOCKET_PORT, no_tls: true, compression: true, handshake_timeout: "60s" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", authorization { user: one, password: two, timeout: 60 } }
"""
_MIB = 1 << 20
#: Given up when nothing is taken for so long.
_PATIENCE_S = 0.05


@dataclass
class Ports:
    """Where the server listens."""

    client: int
    leaf: int
    websocket: int
    monitor: int


def push(sock: socket.socket, data: bytes) -> socket.socket:
    """Send as much as is taken."""
    sock.settimeout(_PATIENCE_S)
    try:
        sock.sendall(data)
    except OSError:
        pass
    return sock


def opened(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    return sock


def greeted(port: int) -> socket.socket:
    """A connection that has heard INFO."""
    sock = opened(port)
    heard = b""
    while b"\r\n" not in heard:
        heard += sock.recv(4096)
    return sock


def websocket(port: int, path: str = "/") -> socket.socket:
    sock = opened(port)
    sock.sendall(
        (
            f"GET {path} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover\r\n\r\n"
        ).encode()
    )
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += sock.recv(4096)
    return sock


def frame(payload: bytes, *, compressed: bool, length: int = 0, final: bool = True) -> bytes:
    """A masked frame (with a mask of zeros); `length`: what it says it has."""
    head = bytes(((0x80 if final else 0) | (0x40 if compressed else 0) | 2, 0x80 | 127))
    return head + (length or len(payload)).to_bytes(8, "big") + bytes(4) + payload


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(b" " * size) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def packed_leaf(port: int) -> socket.socket:
    """A leaf that switched to S2 and sends one chunk without end."""
    sock = greeted(port)
    sock.sendall(b'INFO {"client_id":1,"compression":"s2_fast"}\r\n')
    time.sleep(0.05)
    chunk = s2.chunks(bytes(range(256)) * 128, compress=False)
    return push(sock, b"\xff\x06\x00\x00S2sTwO" + chunk[:-10])


FORMS: dict[str, Callable[[Ports], socket.socket]] = {
    "nothing": lambda ports: opened(ports.client),
    "a CONNECT without end": lambda ports: push(greeted(ports.client), b"CONNECT {" + b" " * _MIB),
    "a CONNECT that is nearly there": lambda ports: push(greeted(ports.client), b"CONNECT {" + b"a" * 4000),
    "a publish": lambda ports: push(greeted(ports.client), b"PUB a 8000000\r\n" + bytes(7 * _MIB)),
    "a publish that is not at its end": lambda ports: push(greeted(ports.client), b"PUB a 8000000\r\n" + bytes(60_000)),
    "an HTTP request without end": lambda ports: push(opened(ports.websocket), b"GET / HTTP/1.1\r\nA: " + b"x" * _MIB),
    "a large frame": lambda ports: push(
        websocket(ports.websocket),
        frame(b"PUB a 8000000\r\n" + bytes(60_000), compressed=False, length=8_000_015),
    ),
    "a compressed bomb": lambda ports: push(websocket(ports.websocket), frame(bomb(64 * _MIB), compressed=True)),
    "small compressed bombs": lambda ports: push(
        websocket(ports.websocket), frame(b"CONNECT {", compressed=False) + frame(bomb(3000), compressed=True) * 400
    ),
    "a compressed message that is not at its end": lambda ports: push(
        websocket(ports.websocket), frame(bomb(30_000), compressed=True, final=False)
    ),
    "a bomb on the way to a leaf": lambda ports: push(
        websocket(ports.websocket, "/leafnode"), frame(bomb(64 * _MIB), compressed=True)
    ),
    "a leaf's CONNECT without end": lambda ports: push(greeted(ports.leaf), b"CONNECT {" + b" " * _MIB),
    "a leaf's CONNECT that is nearly there": lambda ports: push(greeted(ports.leaf), b"CONNECT {" + b"a" * 24_000),
    "a leaf's message": lambda ports: push(greeted(ports.leaf), b"LMSG a 8000000\r\n" + bytes(7 * _MIB)),
    "a leaf's block": lambda ports: packed_leaf(ports.leaf),
    "a request for a page without end": lambda ports: push(
        opened(ports.monitor), b"GET /varz HTTP/1.1\r\nHost: a\r\nA: " + b"x" * _MIB
    ),
    "a request with a body": lambda ports: push(
        opened(ports.monitor), b"GET /varz HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n" + bytes(7 * _MIB)
    ),
}


@dataclass
class Crowd:
    """Peers of one form, all there at the same time."""

    ports: Ports
    sockets: list[socket.socket] = field(default_factory=list)

    def grow(self, form: str, count: int) -> None:
        for _ in range(count):
            self.sockets.append(FORMS[form](self.ports))

    def leave(self) -> None:
        """All hang up, half of them without a word."""
        for index, sock in enumerate(self.sockets):
            if index % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
        self.sockets.clear()


def own_bytes(pid: int) -> int:
    """Memory that is a process's own: not what is mapped from files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def half_hello(port: int) -> socket.socket:
    """A TLS handshake that stops in its middle."""
    sock = opened(port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = context.wrap_bio(incoming, outgoing)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    return push(sock, hello[: len(hello) // 2])
