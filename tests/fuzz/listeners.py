"""The steps of fuzzing for what wraps the protocols: WebSocket frames with NATS, MQTT or a leaf link inside, S2 on a leaf link, HTTP.

Both twins listen. A pair of well-behaved clients exchanges a message after each step, and a page is answered.
"""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from eyot_wire.archive import s2
from eyot_wire.mqtt import encoder
from support.clients import hostile
from support.clients.conversation import CONFIG, Listener
from support.clients.unknown_peers import own_bytes
from support.mqtt.grammar import Grammar
from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port

#: Growth of a process that needs explaining, after a first phase in which caches fill.
GROWTH_MAX: Final = 40 << 20
WARM_UP_STEPS: Final = 300
PATIENCE_S: Final = 20.0
_LISTENERS: Final = """
jetstream { store_dir: "%WORKDIR%/js" }
websocket { listen: "127.0.0.1:%WEBSOCKET_PORT%", no_tls: true, compression: true }
mqtt { listen: "127.0.0.1:%MQTT_PORT%" }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", compression: s2_fast }
"""
_PATHS: Final = (b"/", b"/", b"/mqtt", b"/mqtt", b"/leafnode", b"/x/mqtt?a=b", b"/%2e%2e/")
_PAGES: Final = (b"/", b"/varz", b"/connz?subs=1", b"/subsz?subs=1", b"/jsz?consumers=1", b"/healthz", b"/metrics", b"/eyot/status", b"/../%2e",
    b"*", b"http://x/varz", b"/connz?limit=-1&sort=%zz", b"/" + b"a" * 5000)  # fmt: skip
_HEADERS: Final = (b"Host: x", b"Host: y", b"Connection: close", b"Connection: keep-alive, Upgrade", b"Upgrade: h2c", b"Content-Length: 5",
    b"Content-Length: -1", b"Content-Length: 99999999999", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Origin: http://evil",
    b"Cookie: " + b"a=b; " * 300, b"A: " + b"x" * 40000, b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", b": x", b"A\x00: b", b"Authorization: Basic !")  # fmt: skip


class Listeners:
    """A daemon of each twin with all its listeners."""

    def __init__(self, folder: Path, *, compiled: type[Eyotd], plain: type[Eyotd]) -> None:
        self._daemons = (_Daemon(compiled, folder / "listeners-compiled"), _Daemon(plain, folder / "listeners-plain"))
        self._steps = 0

    def start(self) -> None:
        for daemon in self._daemons:
            daemon.start()

    def kill(self) -> None:
        for daemon in self._daemons:
            daemon.eyotd.kill()

    def web_sockets(self, seed: int) -> None:
        """An upgrade, and frames of any kind with hostile bytes of the protocol inside."""
        rng = Random(seed)
        daemon = rng.choice(self._daemons)
        path = rng.choice(_PATHS)
        inner = _mqtt(rng) if b"mqtt" in path else hostile.hostile(rng, "LMSG" if b"leaf" in path else "PUB")
        if rng.random() < 0.6 and b"mqtt" not in path:
            inner = b'CONNECT {"user":"few","pass":"few","headers":true,"verbose":false}\r\n' + inner
        frames = b"".join(_frames(rng, inner))
        if rng.random() < 0.3:
            frames = hostile.damaged(rng, frames)
        self._send(rng, daemon.websocket_port, _upgrade(rng, path), frames)
        self._check(daemon)

    def compressed_links(self, seed: int) -> None:
        """S2 on a leaf link: hostile bytes compressed, and compressed bytes damaged."""
        rng = Random(seed)
        daemon = rng.choice(self._daemons)
        mode = rng.choice([b"s2_fast", b"s2_better", b"s2_best", b"s2_uncompressed", b"s2_auto"])
        inner = hostile.hostile(rng, "LMSG")
        if rng.random() < 0.8:
            told = {
                "user": "all",
                "pass": "all",
                "name": "x",
                "headers": True,
                "version": "2.14.0",
                "compression": "s2_fast",
            }
            inner = b"CONNECT " + json.dumps(told).encode() + b"\r\nPING\r\n" + inner
        if rng.random() < 0.1:
            inner += b"LMSG a 60000\r\n" + bytes(60000) + b"\r\n" + b"PING\r\n" * rng.randrange(100_000)
        data = b"".join(_s2(rng, inner))
        if rng.random() < 0.5:
            data = hostile.damaged(rng, data)
        self._send(rng, daemon.eyotd.leaf_port, b'INFO {"client_id":1,"compression":"%b"}\r\n' % mode, data)
        self._check(daemon)

    def pages(self, seed: int) -> None:
        """Requests of HTTP, one behind the other, most with something wrong."""
        rng = Random(seed)
        daemon = rng.choice(self._daemons)
        requests = b"".join(_request(rng) for _ in range(rng.choice((1, 1, 3, 50))))
        if rng.random() < 0.4:
            requests = hostile.damaged(rng, requests)
        self._send(rng, daemon.eyotd.monitor_port, b"", requests)
        self._check(daemon)

    @staticmethod
    def _send(rng: Random, port: int, first: bytes, data: bytes) -> None:
        """Send `first`, sometimes read the answer, then the rest in pieces of any size."""
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock, suppress(OSError):
            sock.settimeout(PATIENCE_S)
            if first:
                sock.sendall(first)
                if rng.random() < 0.8:
                    sock.settimeout(0.2)
                    with suppress(TimeoutError):
                        sock.recv(65536)
                    sock.settimeout(PATIENCE_S)
            for piece in hostile.cut(rng, data):
                sock.sendall(piece)
            if rng.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(0.2)
                while sock.recv(65536):
                    pass

    def _check(self, daemon: _Daemon) -> None:
        daemon.check()
        self._steps += 1
        if self._steps % 100 == 0:
            for each in self._daemons:
                each.check_process(warm=self._steps <= WARM_UP_STEPS)


class _Daemon:
    """A daemon, and the well-behaved pair of clients that one talks to the other through it."""

    def __init__(self, make: type[Eyotd], folder: Path) -> None:
        self.websocket_port = free_port()
        config = (CONFIG + _LISTENERS).replace("%WEBSOCKET_PORT%", str(self.websocket_port))
        self.eyotd = make(config.replace("%MQTT_PORT%", str(free_port())), folder)
        self._said = 0
        self._warm = 0

    def start(self) -> None:
        self.eyotd.start()
        self._hears = Listener(self.eyotd.client_port, b"SUB innocent 1\r\n")
        self._says = Listener(self.eyotd.client_port, b"")

    def check(self) -> None:
        """Nobody else was harmed."""
        assert self.eyotd.running, self.eyotd.log()[-4000:]
        self._said += 1
        self._says.sock.sendall(b"PUB innocent 9\r\n%09d\r\n" % self._said)
        self._says.heard()
        heard = self._hears.heard()
        assert heard == b"MSG innocent 1 9\r\n%09d\r\n" % self._said, heard
        assert self.eyotd.monitor("/healthz")["status"] == "ok"

    def check_process(self, *, warm: bool) -> None:
        """No connection is left behind, no exception is in the log, and memory does not grow once it is warm."""
        log = self.eyotd.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:6000]
        deadline = time.monotonic() + 3 * PATIENCE_S
        while self.eyotd.monitor("/varz")["connections"] != 2 or self.eyotd.monitor("/leafz")["leafs"]:
            assert time.monotonic() < deadline, (
                f"left behind: {self.eyotd.monitor('/connz')} {self.eyotd.monitor('/leafz')}"
            )
            time.sleep(0.05)
        size = own_bytes(self.eyotd.pid)
        if warm or not self._warm:
            self._warm = size
        assert size - self._warm < GROWTH_MAX, f"grew from {self._warm} to {size} bytes"


def _upgrade(rng: Random, path: bytes) -> bytes:
    lines = [b"GET %b HTTP/1.1" % path, b"Host: x", b"Upgrade: websocket", b"Connection: Upgrade",
             b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Version: 13"]  # fmt: skip
    if b"mqtt" in path:
        lines.append(b"Sec-WebSocket-Protocol: mqtt")
    if rng.random() < 0.5:
        offer = (
            b"permessage-deflate",
            b"permessage-deflate; client_max_window_bits=99",
            b"permessage-deflate; server_no_context_takeover; x=y",
        )
        lines.append(b"Sec-WebSocket-Extensions: " + rng.choice(offer))
    if rng.random() < 0.1:
        lines.insert(rng.randrange(1, len(lines)), rng.choice(_HEADERS))
    request = b"\r\n".join(lines) + b"\r\n\r\n"
    return hostile.damaged(rng, request) if rng.random() < 0.1 else request


def _mqtt(rng: Random) -> bytes:
    level = rng.choice((4, 5))
    grammar = Grammar(rng, level, user="all", aliases_max=5)
    data = encoder.connect(grammar.connect(rng.choice(("", "w-1", "w-2"))))
    data += b"".join(grammar.step().data for _ in range(rng.randrange(1, 20)))
    return hostile.damaged(rng, data) if rng.random() < 0.5 else data


def _frames(rng: Random, inner: bytes) -> list[bytes]:
    """Frames with these bytes inside, with control frames and odd ones among them."""
    found = []
    for piece in hostile.cut(rng, inner)[:2000]:
        packed, bits = piece, 0x80
        if rng.random() < 0.2:
            deflate = zlib.compressobj(wbits=-15)
            packed, bits = deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH), 0xC0
            packed = packed[:-4] if rng.random() < 0.9 else packed
        opcode = 2 if rng.random() < 0.9 else rng.randrange(16)
        if rng.random() < 0.03:
            bits ^= rng.choice((0x80, 0x10, 0x20, 0x40))
        found.append(_frame(rng, bits | opcode, packed))
        if rng.random() < 0.05:
            found.append(
                _frame(rng, 0x80 | rng.choice((8, 9, 9, 10)), rng.randbytes(rng.choice((0, 2, 100, 125, 126))))
            )
    if rng.random() < 0.05:  # what unpacks to a thousand times its size
        deflate = zlib.compressobj(9, wbits=-15)
        bomb = deflate.compress(bytes(rng.choice((1 << 20, 64 << 20)))) + deflate.flush(zlib.Z_SYNC_FLUSH)
        found.append(_frame(rng, 0xC2, bomb[:-4]))
    return found


def _frame(rng: Random, first: int, payload: bytes) -> bytes:
    size, mask = len(payload), rng.choice((bytes(4), b"abcd"))
    told = size if rng.random() < 0.98 else rng.choice((0, size + 1, 1 << 16, 1 << 31, (1 << 64) - 1))
    wide = rng.choice((0, 0, 0, 1, 2))
    if told < 126 and not wide:
        head = bytes((first, 0x80 | told))
    elif told < 1 << 16 and wide < 2:
        head = bytes((first, 0x80 | 126)) + struct.pack(">H", told)
    else:
        head = bytes((first, 0x80 | 127)) + struct.pack(">Q", told)
    if rng.random() < 0.01:
        return bytes((head[0], head[1] & 0x7F)) + head[2:] + payload
    masked = payload if not any(mask) else bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
    return head + mask + masked


def _s2(rng: Random, inner: bytes) -> list[bytes]:
    """Chunks of an S2 stream with these bytes inside, with skippable and odd ones among them."""
    writer = s2.S2Writer()
    found = []
    for piece in hostile.cut(rng, inner)[:2000]:
        found.append(writer.write(piece))
        if rng.random() < 0.05:
            kind = rng.choice((0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF))
            body = rng.choice(
                (b"", b"sNaPpY", b"S2sTwO", rng.randbytes(10), bytes(4) + b"\xff\xff\xff\xff\x0f" + rng.randbytes(5))
            )
            told = len(body) if rng.random() < 0.8 else rng.choice((0, 4 << 20, (1 << 24) - 1))
            found.append(bytes((kind,)) + told.to_bytes(3, "little") + body)
    return found


def _request(rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice(
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + rng.randbytes(196),
                bytes(1000),
            )
        )
    method = rng.choice((b"GET", b"GET", b"GET", b"HEAD", b"POST", b"OPTIONS", b"CONNECT", b"\xff"))
    lines = [
        b"%b %b %b"
        % (method, rng.choice(_PAGES), rng.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"")))
    ]
    lines += rng.choices(_HEADERS, k=rng.choice((0, 1, 1, 2, 4))) if rng.random() < 0.5 else [b"Host: x"]
    body = rng.choice((b"", b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"1;" + b"x" * 40000))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
