"""The simulator's network: connections between named nodes, whose links can be cut, go half-open, be slow, or come back.

Bytes travel through pipes with a delay, a rate and a bounded number of bytes under way, as through sockets and a modem. A cut
resets connections at both ends and loses what was under way. A half-open link swallows everything and says nothing, for ever:
the connection's bytes are gone, only a new connection works; one that is half-open one way does so in one direction. A link
that lingers breaks for its dialler only: what was under way to the host arrives there later than the next connection's first
bytes. A host may have several addresses, and move. Nothing here depends on anything but the seed and Trio's clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

import trio

from eyot_sync.link.dialer import DialError
from eyot_sync.link.urls import LinkAddress

Serve = Callable[[trio.abc.Stream, str], Awaitable[None]]

#: What socket buffers of both ends hold together.
UNDER_WAY_BYTES = 128 << 10


@dataclass
class Link:
    """What lies between a leaf and a hub. `delay_s` one way; `bytes_per_s` 0: as fast as it goes.

    `resets`: a balancer whose host is gone accepts connections and resets them.
    """

    up: bool = True
    resets: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = 0.0


class Pipe:
    """One direction of a connection. `sent` hears of every byte that is sent."""

    def __init__(self, link: Link, sent: Callable[[bytes], None]) -> None:
        self.link = link
        self._sent = sent
        self.hole = False
        self.broken = False
        self.cut_off = False  # what is under way arrives, nothing more can be sent
        self.torn = False  # what is left under way arrives, and then the connection is reset
        self.reader_gone = False
        self.ended = False
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._busy_until = 0.0
        self._changed = trio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while self._bytes >= UNDER_WAY_BYTES and not (self.broken or self.cut_off):
            await self._changed.wait()
        if self.broken or self.cut_off:
            raise trio.BrokenResourceError("connection reset")
        now = trio.current_time()
        rate = self.link.bytes_per_s
        self._busy_until = max(now, self._busy_until) + (len(data) / rate if rate else 0.0)
        self._sent(data)
        # A reader that waits for what was sent before is not woken: this arrives later.
        wanted = not self._under_way
        self._under_way.append((self._busy_until + self.link.delay_s, data))
        self._bytes += len(data)
        if wanted:
            self._change()

    async def receive(self) -> bytes:
        """What has arrived, once something has; others run in between, as with every read."""
        others_ran = False
        while True:
            if self.broken or self.reader_gone or (self.torn and not self._under_way):
                await _let_others_run(others_ran)
                raise trio.BrokenResourceError("connection reset")
            wait_until = math.inf
            if self._under_way and not self.hole:
                wait_until = self._under_way[0][0]
                if wait_until <= trio.current_time():
                    if others_ran:
                        data = self._take_due()
                        self._change()
                        return data
                    await trio.lowlevel.checkpoint()
                    others_ran = True
                    continue
            elif self.ended and not self.hole:
                await _let_others_run(others_ran)
                return b""
            with trio.CancelScope(deadline=wait_until):
                await self._changed.wait()
            others_ran = True

    def _take_due(self) -> bytes:
        """Everything that has arrived by now, as a read of a socket gets it."""
        now = trio.current_time()
        parts = []
        while self._under_way and self._under_way[0][0] <= now:
            parts.append(self._under_way.popleft()[1])
        data = b"".join(parts)
        self._bytes -= len(data)
        return data

    def end(self) -> None:
        self.ended = True
        self._change()

    def reset(self) -> None:
        self.broken = True
        self._under_way.clear()
        self._bytes = 0
        self._change()

    def tear(self, part: float) -> None:
        """Of what is under way the first part arrives, down to a byte; then the connection is reset."""
        data = b"".join(each for _, each in self._under_way)
        kept = data[: int(len(data) * part)]
        self._under_way = deque([(trio.current_time(), kept)] if kept else [])
        self._bytes = len(kept)
        self.cut_off = self.torn = True
        self._change()

    def swallow(self) -> None:
        self.hole = True
        self._change()

    def linger(self, extra_s: float) -> None:
        """What is under way arrives so much later; nothing more is sent, and no end is seen."""
        self._under_way = deque((due + extra_s, data) for due, data in self._under_way)
        self.cut_off = True
        self._change()


async def _let_others_run(already: bool) -> None:
    if not already:
        await trio.lowlevel.checkpoint()


class End(trio.abc.Stream):
    """One end of a connection."""

    def __init__(self, out: Pipe, into: Pipe) -> None:
        self._out = out
        self._into = into
        self._closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        await self._out.send(bytes(data))

    @property
    def is_reset(self) -> bool:
        return self._into.broken

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError
        return await self._into.receive()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._out.cut_off:  # else the other end hears nothing of it
                self._out.end()
                self._into.reset()
        await trio.lowlevel.checkpoint()


@dataclass(eq=False)
class Connection:
    """Both pipes of a connection from `dialler` to `host`, over the link of that name."""

    link: str
    dialler: str
    host: str
    pipes: tuple[Pipe, Pipe]


class Network:
    """All nodes' listeners and links. A link belongs to the node that dials over it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.links: dict[str, Link] = {}
        self._nursery = nursery
        self._servers: dict[str, Serve] = {}
        self._addresses: dict[str, str] = {}
        self._connections: list[Connection] = []
        #: A checksum of every byte that was ever sent, in order: equal runs have equal ones.
        self.checksum = 0

    def _sent(self, data: bytes) -> None:
        self.checksum = crc32(data, self.checksum)

    def listen(self, host: str, serve: Serve) -> None:
        self._servers[host] = serve

    def place(self, host: str, addresses: Iterable[str]) -> None:
        """`host` can be dialled at these addresses, and no others."""
        self._addresses = {address: other for address, other in self._addresses.items() if other != host}
        self._addresses |= dict.fromkeys(addresses, host)

    def dialler(self, name: str, ways: Mapping[str, str] | None = None) -> Dialling:
        """What `name` dials with: over the link of that name, but to the hosts in `ways` over the one that is said there."""
        for link in (name, *(ways or {}).values()):
            self.links.setdefault(link, Link())
        return Dialling(self, name, ways or {})

    def cut(self, name: str) -> None:
        """The link `name` goes down: its connections are reset."""
        self.links[name].up = False
        self._reset(lambda each: each.link == name)

    def tear(self, name: str, part: float) -> None:
        """The connections of the link end in the middle of a frame."""
        for each in self._connections:
            if each.link == name:
                for pipe in each.pipes:
                    pipe.tear(part)

    def restore(self, name: str) -> None:
        self.links[name].up = True

    def reset_at_accept(self, name: str, *, resets: bool) -> None:
        """From now on what is dialled over the link is accepted and reset; False: not any more."""
        self.links[name].resets = resets

    def swallow(self, name: str) -> None:
        """The connections there are become half-open."""
        for each in self._connections:
            if each.link == name:
                for pipe in each.pipes:
                    pipe.swallow()

    def swallow_one_way(self, name: str, *, outward: bool) -> None:
        """The connections there are carry nothing more from (`outward`) or to the dialler; the other way works."""
        for each in self._connections:
            if each.link == name:
                each.pipes[0 if outward else 1].swallow()

    def linger(self, name: str, extra_s: float) -> None:
        """The dialler's end breaks at once; what was on its way to the host arrives later, after that the host hears nothing."""
        for each in self._connections:
            if each.link == name:
                out, back = each.pipes
                out.linger(extra_s)
                back.reader_gone = True
                back.swallow()

    def power_off(self, name: str, *, silent: bool) -> None:
        """A node is gone. `silent`: nobody tells its peers, as when the power goes; else they see a reset."""
        self._servers.pop(name, None)
        if silent:
            for each in self._connections:
                if name in (each.dialler, each.host):
                    for pipe in each.pipes:
                        pipe.swallow()
        else:
            self._reset(lambda each: name in (each.dialler, each.host))

    def _reset(self, which: Callable[[Connection], bool]) -> None:
        for each in self._connections:
            if which(each):
                for pipe in each.pipes:
                    pipe.reset()
        self._connections = [each for each in self._connections if not which(each)]

    async def dial(self, name: str, over: str, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        link = self.links[over]
        with trio.move_on_after(timeout_s):
            await trio.sleep(2 * link.delay_s)
        if not link.up or 2 * link.delay_s >= timeout_s:
            await trio.sleep(timeout_s)
            raise DialError(f"no connection within {timeout_s:g} s")
        host = self._addresses.get(address.host, "")
        serve = self._servers.get(host)
        if serve is None:
            raise DialError("Connection refused")
        there, back = Pipe(link, self._sent), Pipe(link, self._sent)
        if link.resets:
            there.reset()
            back.reset()
            return End(there, back)
        self._connections.append(Connection(over, name, host, (there, back)))
        self._nursery.start_soon(serve, End(back, there), name)
        return End(there, back)


class Dialling:
    """The `Dialer` of one node."""

    def __init__(self, network: Network, name: str, ways: Mapping[str, str]) -> None:
        self._network = network
        self._name = name
        self._ways = ways

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        over = self._ways.get(address.host, self._name)
        return await self._network.dial(self._name, over, address, timeout_s)
