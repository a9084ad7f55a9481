"""The listener for clients: plain TCP, TLS after INFO, TLS at once, or the client's choice.

With TLS the first INFO is sent in clear; then the handshake takes place, and everything after it goes through a
`TlsTransport`. `handshake_first` reverses the order; with a fallback delay only for clients that start the handshake
themselves. With `allow_non_tls` the client's first byte decides.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.net.socket_transport import SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.tls_checks import RateLimit, check_certificate
from eyot_daemon.net.tls_hello import TLS_HANDSHAKE, first_byte
from eyot_daemon.net.tls_transport import over_tls
from eyot_daemon.net.tls_words import handshake_words
from eyot_serving.broken_streams import cut_cycles
from eyot_serving.tls_alert import handshake

#: First byte of a TLS connection: the record type of a handshake.

log = logging.getLogger("eyot.client")


#: More TLS connections in a second than `connection_rate_limit`.
THROTTLED = "Connection throttling is active. Please try again later."


class ClientListener:
    """Serves accepted sockets as clients of the broker. `tls` is the server context, None for plain TCP."""

    def __init__(self, clients: Clients, nursery: trio.Nursery, tls: ssl.SSLContext | None = None) -> None:
        self.clients = clients
        self.tls = tls
        self._nursery = nursery
        self._rate = RateLimit()

    async def serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Serve one connection until it is closed; the `Serve` of a `TcpListener`."""
        peer = Peer(host=address[0], port=address[1])
        if self.tls is not None:
            await self._serve_tls(sock, peer, self.tls)
            return
        clients = self.clients
        transport = SocketTransport(sock, self._spawn, clients.limits, clients.broker)
        client = clients.accept(transport, peer)
        await transport.run(client)

    def _spawn(self, fn: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(fn)

    async def serve_stream(self, stream: trio.abc.Stream, peer: Peer) -> None:
        """Serve a connection over any stream: in-memory links, WebSocket, TLS already established."""
        clients = self.clients
        transport = StreamTransport(stream, clients.limits, clients.broker)
        await transport.run(clients.accept(transport, peer))

    async def _serve_tls(self, sock: socket.socket, peer: Peer, context: ssl.SSLContext) -> None:
        clients = self.clients
        plain = SocketTransport(sock, self._spawn, clients.limits, clients.broker)
        client = clients.accept(plain, peer)
        tls = clients.options.tls
        if tls is not None and not client.closed and not self._rate.allow(tls.connection_rate_limit):
            client.fail(THROTTLED)
        if client.closed:
            await plain.run(client)  # refused: the error goes in clear
            return
        raw = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        try:
            stream = await self._handshake(sock, raw, client, context)
        except (trio.BrokenResourceError, trio.TooSlowError, ssl.SSLError, OSError) as error:
            log.error("%r - TLS handshake error: %s", client, handshake_words(error))
            cut_cycles(error)
            client.lost("TLS Handshake Failure")
            clients.broker.flush()
            await trio.aclose_forcefully(raw)
            return
        if stream is None:
            await plain.run(client)
            return
        if client.cid not in clients.connections:  # closed during the handshake
            await trio.aclose_forcefully(stream)
            return
        transport = over_tls(sock, stream, self._spawn, clients.limits, clients.broker)
        client.move_to(transport)
        client.peer = peer.secured_by(stream)
        await transport.run(client)

    async def _handshake(
        self, sock: socket.socket, raw: trio.SocketStream, client: ClientConnection, context: ssl.SSLContext
    ) -> trio.SSLStream[trio.SocketStream] | None:
        """Return the TLS stream; None when the client continues in clear, and may. Sends INFO at the right time."""
        options = self.clients.options
        tls = options.tls
        assert tls is not None
        with trio.fail_after(tls.timeout_s):
            first = tls.handshake_first
            if first and tls.handshake_first_fallback_s is not None:
                first = await first_byte(sock, tls.handshake_first_fallback_s) == TLS_HANDSHAKE
            if not first:
                greeting = bytes(client.out)
                client.out.clear()
                await raw.send_all(greeting)
                if options.allow_non_tls and await first_byte(sock, tls.timeout_s) != TLS_HANDSHAKE:
                    return None
            stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
            await handshake(stream)
            check_certificate(tls, stream)
            return stream
