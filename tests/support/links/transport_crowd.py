"""Publishers and subscribers of any pace at both ends of a leaf link, over plain sockets and TLS: every payload arrives whole and in order.

What this is for: reads and writes that end anywhere in a frame or in a TLS record, long frames that leave past the output buffer,
publishers that are held back, and readers that lag, all at once.
"""

from __future__ import annotations

import ssl
import struct
import zlib
from collections import Counter
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import trio

from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority

LIMIT_S = 240.0
#: Lengths about the borders of reads, records of TLS and writes past the output buffer.
SIZES = (0, 1, 100, 128, 1000, 2047, 2048, 4096, 16_384, 16_385, 65_536, 262_144, 262_145, 1_000_000)
_SMALL = 7
_PIECES = (1, 7, 1000, 16_384, 70_000, 300_000)
#: number of the publisher, of its message, CRC-32 of the rest
_HEAD = struct.Struct(">HII")
_HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
_LOGIN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n'
_HUB = 'jetstream { store_dir: "%%WORKDIR%%/js" }\nleafnodes { listen: "127.0.0.1:%%LEAF_PORT%%", %s }\n'
_LEAF = '%s\nleafnodes { remotes: [ { url: "tls://127.0.0.1:%d", compression: %s, tls { ca_file: "%s" } } ] }\n'


def frame(rng: Random, subject: bytes, publisher: int, number: int, size: int) -> bytes:
    """A publish whose payload tells whose it is and whether it is whole."""
    filler = rng.randbytes(64) * (size // 64 + 1)
    body = filler[:size]
    payload = _HEAD.pack(publisher, number, zlib.crc32(body)) + body
    if rng.random() < 0.3:
        sizes = b"%d %d" % (len(_HEADER), len(_HEADER) + len(payload))
        return b"HPUB %b %b\r\n%b%b\r\n" % (subject, sizes, _HEADER, payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


class Peer:
    """A client's connection, logged in."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def line(self) -> bytes:
        """The next line without its end; b"" at the end of the connection."""
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not await self._more():
                return b""
        return self._take(end + 2)[:-2]

    async def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            assert await self._more(), "the connection ended inside a payload"
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _more(self) -> bool:
        got = await self.stream.receive_some(1 << 18)
        self._buffer += got
        return bool(got)


class TransportCrowd:
    """A hub with plain clients and a leaf node with TLS clients, linked over TLS. Usable as a context manager."""

    def __init__(self, folder: Path, *, compression: str = "off") -> None:
        authority = Authority(folder)
        certificate, key = authority.issue("server")
        tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
        self._tls = ssl.create_default_context(cafile=str(authority.ca_file))
        self.hub = Eyotd(_HUB % tls, folder / "hub")
        self.leaf = Eyotd(_LEAF % (tls, self.hub.leaf_port, compression, authority.ca_file), folder / "leaf")

    def __enter__(self) -> Self:
        self.hub.start()
        self.leaf.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leaf.kill()
        self.hub.kill()

    def exchange(self, seed: int) -> None:
        """Some publishers and subscribers, here and there."""
        trio.run(self._exchange, Random(seed), b"crowd.%d" % seed)

    async def _exchange(self, rng: Random, subject: bytes) -> None:
        counts = {publisher: rng.choice([5, 50, 300]) for publisher in range(rng.randint(1, 4))}
        with trio.fail_after(LIMIT_S):
            async with trio.open_nursery() as publishing:
                async with trio.open_nursery() as subscribing:
                    for _ in range(rng.randint(1, 5)):
                        peer = await self._peer(rng)
                        await peer.stream.send_all(b"SUB %b 1\r\nPING\r\n" % subject)
                        while await peer.line() != b"PONG":
                            pass
                        subscribing.start_soon(self._subscriber, peer, subject, counts, Random(rng.random()))
                    await self._interest(subject)
                    for publisher, count in counts.items():
                        peer, own = await self._peer(rng), Random(rng.random())
                        publishing.start_soon(self._publisher, peer, subject, publisher, count, own)
                publishing.cancel_scope.cancel()

    async def _interest(self, subject: bytes) -> None:
        """Wait until either end knows of the other's subscribers."""
        for server in (self.hub, self.leaf):
            while not server.monitor(f"/subsz?subs=1&test={subject.decode()}")["total"]:
                await trio.sleep(0.02)

    async def _peer(self, rng: Random) -> Peer:
        secured = rng.random() < 0.5
        stream: trio.abc.Stream = await trio.open_tcp_stream(
            "127.0.0.1", (self.leaf if secured else self.hub).client_port
        )
        peer = Peer(stream)
        await peer.line()
        if secured:
            self._tls.maximum_version = rng.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
            peer.stream = trio.SSLStream(stream, self._tls, server_hostname="localhost", https_compatible=True)
        await peer.stream.send_all(_LOGIN)
        while await peer.line() != b"PONG":
            pass
        return peer

    async def _publisher(self, peer: Peer, subject: bytes, publisher: int, count: int, rng: Random) -> None:
        likes_long = rng.random()
        number = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain, peer)
            while number < count:
                burst = bytearray()
                for _ in range(min(rng.choice([1, 1, 3, 20, 200]), count - number)):
                    size = rng.choice(SIZES if rng.random() < likes_long else SIZES[:_SMALL])
                    burst += frame(rng, subject, publisher, number, size)
                    number += 1
                while burst:
                    size = rng.choice((len(burst), *_PIECES))
                    await peer.stream.send_all(bytes(burst[:size]))
                    del burst[:size]
                    if rng.random() < 0.1:
                        await trio.sleep(rng.choice([0.0, 0.001, 0.01]))

    async def _drain(self, peer: Peer) -> None:
        """Read what a publisher hears, until the exchange is over."""
        while True:
            line = await peer.line()
            assert line, "the connection ended"
            assert not line.startswith(b"-ERR"), line

    async def _subscriber(self, peer: Peer, subject: bytes, counts: dict[int, int], rng: Random) -> None:
        lags = rng.random() < 0.4
        seen: Counter[int] = Counter()
        while any(seen[publisher] < count for publisher, count in counts.items()):
            line = await peer.line()
            assert line, f"the connection ended after {seen} of {counts}"
            words = line.split()
            if words[0] == b"PING":
                await peer.stream.send_all(b"PONG\r\n")
            if words[0] in (b"INFO", b"PING"):
                continue
            assert words[0] in (b"MSG", b"HMSG"), line
            assert words[1] == subject, line
            content = await peer.exactly(int(words[-1]) + 2)
            payload = content[int(words[-2]) if words[0] == b"HMSG" else 0 : -2]
            publisher, number, check = _HEAD.unpack_from(payload)
            assert check == zlib.crc32(payload[_HEAD.size :]), f"message {number} of {publisher} is not whole"
            assert number == seen[publisher], f"message {number} of {publisher} after {seen[publisher]}"
            seen[publisher] += 1
            if lags and rng.random() < 0.02:
                await trio.sleep(rng.choice([0.001, 0.02, 0.1]))
