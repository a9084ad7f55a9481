"""Peers that are not authenticated and send as much as they can, on every listener of a server."""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from eyot_wire.archive import s2
from support.servers.server_process import free_port
from support.trust.certificates import Authority

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
http: 127.0.0.1:%MONITOR_PORT%
max_payload: 8MB
authorization { user: one, password: two, timeout: 60 }
websocket { listen: 127.0.0.1:WEBSOCKET_PORT, no_tls: true, compression: true, handshake_timeout: "60s" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", authorization { user: one, password: two, timeout: 60 } }
"""
#: The same listeners with TLS; the pages are on MONITOR_TLS_PORT.
TLS_CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
https: 127.0.0.1:MONITOR_TLS_PORT
max_payload: 8MB
authorization { user: one, password: two, timeout: 60 }
CERTIFICATE
websocket { listen: 127.0.0.1:WEBSOCKET_PORT, CERTIFICATE, compression: true, handshake_timeout: "60s" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", CERTIFICATE, authorization { user: one, password: two, timeout: 60 } }
"""
_MIB = 1 << 20
#: Given up when nothing is taken for so long.
_PATIENCE_S = 0.05


def plain_config() -> tuple[str, int]:
    """A configuration without TLS, and the port of its WebSocket listener."""
    websocket = free_port()
    return CONFIG.replace("WEBSOCKET_PORT", str(websocket)), websocket


def tls_config(directory: Path) -> tuple[str, int, int]:
    """A configuration with TLS everywhere, the port of its WebSocket listener, and that of its pages."""
    websocket, monitor = free_port(), free_port()
    certificate = Authority(directory / "ca").block("server", "timeout: 60")
    config = TLS_CONFIG.replace("WEBSOCKET_PORT", str(websocket)).replace("MONITOR_TLS_PORT", str(monitor))
    return config.replace("CERTIFICATE", certificate), websocket, monitor


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


@cache
def bomb(size: int) -> bytes:
    """`size` spaces, deflated; packed once for a whole crowd."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(b" " * size) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def packed_leaf(port: int) -> socket.socket:
    """A leaf that switched to S2 and sends one chunk without end."""
    sock = greeted(port)
    sock.sendall(b'INFO {"client_id":1,"compression":"s2_fast"}\r\n')
    time.sleep(0.05)
    chunk = s2.chunks([bytes(range(256)) * 128], compress=False)
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


def trusting() -> ssl.SSLContext:
    """The context of a client that believes every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def hello() -> bytes:
    """The first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        trusting().wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def half_hello(sock: socket.socket) -> socket.socket:
    """A TLS handshake that stops in its middle."""
    first = hello()
    return push(sock, first[: len(first) // 2])


def secured(sock: socket.socket) -> socket.socket:
    """A finished TLS handshake."""
    sock.settimeout(60)
    return trusting().wrap_socket(sock)


#: TLS records of a first message of 131,000 bytes, which OpenSSL would keep, but for its last ones.
_LARGE_HELLO = b"\x16\x03\x01\x40\x00\x01\x01\xff\xb8" + bytes(16_380) + (b"\x16\x03\x01\x40\x00" + bytes(16_384)) * 6
#: Records of a message of 16 MiB.
_ENDLESS_HELLO = (
    b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380) + (b"\x16\x03\x01\x40\x00" + bytes(16_384)) * 64
)

TLS_FORMS: dict[str, Callable[[Ports], socket.socket]] = {
    "nothing": lambda ports: greeted(ports.client),
    "half a hello": lambda ports: half_hello(greeted(ports.client)),
    "a hello and no more": lambda ports: push(greeted(ports.client), hello()),
    "a hello without end": lambda ports: push(greeted(ports.client), _ENDLESS_HELLO),
    "the beginning of a large hello": lambda ports: push(greeted(ports.client), _LARGE_HELLO[:30_000]),
    "the beginning of a leaf's large hello": lambda ports: push(greeted(ports.leaf), _LARGE_HELLO[:30_000]),
    "the beginning of a page's large hello": lambda ports: push(opened(ports.monitor), _LARGE_HELLO[:30_000]),
    "a large hello in small records": lambda ports: push(
        greeted(ports.client),
        b"".join(b"\x16\x03\x01\x00\x01" + bytes((byte,)) for byte in b"\x01\x01\xff\xb8") + bytes(3),
    ),
    "a large hello that is not at its end": lambda ports: push(greeted(ports.client), _LARGE_HELLO),
    "no hello": lambda ports: push(greeted(ports.client), b"CONNECT {" + b" " * _MIB),
    "a CONNECT without end": lambda ports: push(secured(greeted(ports.client)), b"CONNECT {" + b" " * _MIB),
    "a CONNECT that is nearly there": lambda ports: push(secured(greeted(ports.client)), b"CONNECT {" + b"a" * 4000),
    "half a leaf's hello": lambda ports: half_hello(greeted(ports.leaf)),
    "a leaf's hello and no more": lambda ports: push(greeted(ports.leaf), hello()),
    "a leaf's CONNECT that is nearly there": lambda ports: push(
        secured(greeted(ports.leaf)), b"CONNECT {" + b"a" * 24_000
    ),
    "half a WebSocket's hello": lambda ports: half_hello(opened(ports.websocket)),
    "a WebSocket's hello and no more": lambda ports: push(opened(ports.websocket), hello()),
    "an HTTP request without end": lambda ports: push(
        secured(opened(ports.websocket)), b"GET / HTTP/1.1\r\nA: " + b"x" * _MIB
    ),
    "half a page's hello": lambda ports: half_hello(opened(ports.monitor)),
    "a page's hello and no more": lambda ports: push(opened(ports.monitor), hello()),
    "a request for a page without end": lambda ports: push(
        secured(opened(ports.monitor)), b"GET /varz HTTP/1.1\r\nHost: a\r\nA: " + b"x" * _MIB
    ),
}


@dataclass
class Crowd:
    """Peers of one form, all there at the same time."""

    ports: Ports
    forms: dict[str, Callable[[Ports], socket.socket]] = field(default_factory=lambda: FORMS)
    sockets: list[socket.socket] = field(default_factory=list)

    def grow(self, form: str, count: int) -> None:
        for _ in range(count):
            self.sockets.append(self.forms[form](self.ports))

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
