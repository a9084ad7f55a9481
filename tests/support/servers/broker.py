"""A broker in the test's own Trio run, with raw clients on localhost sockets or in-memory links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
import trio.testing

from eyot_daemon.auth.login import Authenticator, Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.listener import ClientListener
from eyot_daemon.config.options import Options
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from support.clients.transcripts import PLAIN
from support.servers.open_door import OpenDoor

TIMEOUT_S = 60


__all__ = ["PLAIN", "Raw", "Running", "running"]


class Raw:
    """A client that speaks bytes. `handshake` is the INFO line."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.handshake = b""
        self._buffer = b""
        self.eof = False

    async def _more(self) -> None:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            self.eof = True
        self._buffer += data

    async def until(self, mark: bytes) -> bytes:
        """Everything up to and including `mark`; what there was if the connection closed first."""
        with trio.fail_after(TIMEOUT_S):
            while mark not in self._buffer and not self.eof:
                await self._more()
        at = self._buffer.find(mark)
        end = len(self._buffer) if at < 0 else at + len(mark)
        taken, self._buffer = self._buffer[:end], self._buffer[end:]
        return taken

    async def until_closed(self) -> bytes:
        """Everything until the server closes."""
        with trio.fail_after(TIMEOUT_S):
            while not self.eof:
                await self._more()
        taken, self._buffer = self._buffer, b""
        return taken

    async def greet(self) -> Raw:
        self.handshake = await self.until(b"\r\n")
        return self

    async def send(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            pass  # the server hung up while we were still talking

    async def ask(self, data: bytes = b"") -> bytes:
        """Send, then everything that comes before the PONG to a PING sent after it (or before the close)."""
        await self.send(data + b"PING\r\n")
        answer = await self.until(b"PONG\r\n")
        return answer.removesuffix(b"PONG\r\n")


@dataclass
class Running:
    """A broker that runs, and how to reach it."""

    broker: Broker
    clients: Clients
    listener: ClientListener
    nursery: trio.Nursery
    port: int

    async def raw(self, connect: bytes = PLAIN) -> Raw:
        """A client over a TCP socket that has sent `connect`."""
        client = await Raw(await trio.open_tcp_stream("127.0.0.1", self.port)).greet()
        if connect:
            await client.send(connect)
        return client

    async def in_memory(self, connect: bytes = PLAIN, kind: str = "STANDARD") -> Raw:
        """A client over an in-memory link."""
        ours, theirs = trio.testing.memory_stream_pair()
        peer = Peer(host="memory", port=1, connection_type=kind)
        self.nursery.start_soon(self.listener.serve_stream, theirs, peer)
        client = await Raw(ours).greet()
        if connect:
            await client.send(connect)
        return client


@asynccontextmanager
async def running(options: Options | None = None, authenticator: Authenticator | None = None) -> AsyncIterator[Running]:
    """A broker with a client listener on a free port, until the block ends."""
    options = options or Options(host="127.0.0.1", port=-1)
    broker = Broker(options)
    set_up_accounts(broker, options)
    async with trio.open_nursery() as nursery:
        listener = TcpListener.bind("127.0.0.1", -1)
        clients = Clients(broker, authenticator or OpenDoor(), port=listener.port)
        client_listener = ClientListener(clients, nursery)
        nursery.start_soon(broker.timers.run, broker.flush)
        nursery.start_soon(broker.readers.run)
        nursery.start_soon(listener.run, client_listener.serve, nursery)
        yield Running(broker, clients, client_listener, nursery, listener.port)
        nursery.cancel_scope.cancel()
