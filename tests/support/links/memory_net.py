"""A network in memory: listeners by host name, and links that can be cut, turned into black holes, or restored.

For tests on Trio's mock clock. A cut breaks the streams at both ends, as a reset does. A black hole keeps them open and swallows every
byte, as a NAT binding that expired does; streams opened before stay holes for ever, because bytes are missing in them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from eyot_sync.link.dialer import DialError
from eyot_sync.link.urls import LinkAddress

Serve = Callable[[trio.abc.Stream, str], Awaitable[None]]


class LinkStream(trio.abc.Stream):
    """One end of a connection. `delay_s` is what each send takes."""

    def __init__(self, inner: trio.abc.Stream, net: MemoryNetwork) -> None:
        self._inner = inner
        self._net = net
        self.hole = False
        self.bytes_sent = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._net.bytes_per_s:
            await trio.sleep(len(data) / self._net.bytes_per_s)
        if self.hole:
            await trio.lowlevel.checkpoint()
            return
        self.bytes_sent += len(data)
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        while True:
            data = await self._inner.receive_some(max_bytes)
            if not self.hole or not data:
                return data

    async def aclose(self) -> None:
        self._net.streams.discard(self)
        if self.hole:
            # The other side never hears of it.
            await trio.lowlevel.checkpoint()
            return
        await self._inner.aclose()

    def break_off(self) -> None:
        """Both directions fail from now on."""
        inner = self._inner
        assert isinstance(inner, trio.StapledStream)
        inner.send_stream.close()  # type: ignore[attr-defined]
        inner.receive_stream.close()  # type: ignore[attr-defined]


class MemoryNetwork:
    """Where servers listen under names and links lead to them. `nursery` runs the accepting ends."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.streams: set[LinkStream] = set()
        self.up = True
        self.dials: list[str] = []
        self.bytes_per_s = 0.0
        self._nursery = nursery
        self._servers: dict[str, Serve] = {}

    def listen(self, host: str, serve: Serve) -> None:
        self._servers[host] = serve

    def close(self, host: str) -> None:
        self._servers.pop(host, None)

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        """The `Dialer` of everybody on this network."""
        self.dials.append(address.host)
        await trio.lowlevel.checkpoint()
        if not self.up:
            await trio.sleep(timeout_s)
            raise DialError(f"no connection within {timeout_s:g} s")
        serve = self._servers.get(address.host)
        if serve is None:
            raise DialError("Connection refused")
        near, far = trio.testing.memory_stream_pair()
        ours, theirs = LinkStream(near, self), LinkStream(far, self)
        self.streams |= {ours, theirs}
        self._nursery.start_soon(serve, theirs, "memory")
        return ours

    def cut(self) -> None:
        """Every connection breaks, no new one is possible."""
        self.up = False
        for stream in tuple(self.streams):
            stream.break_off()
        self.streams.clear()

    def restore(self) -> None:
        self.up = True

    def swallow(self) -> None:
        """Every connection there is becomes a black hole; new ones work."""
        for stream in self.streams:
            stream.hole = True
