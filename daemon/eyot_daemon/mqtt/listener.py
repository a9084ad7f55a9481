"""Accepts MQTT clients: plain TCP, TLS, or the client's choice with `allow_non_tls`.

TLS comes first: before it nothing is known of the peer, and no connection is counted.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from eyot_daemon.auth.login import MQTT, Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.context import ClientContext
from eyot_daemon.client.listener import THROTTLED
from eyot_daemon.client.served import Registry, ServedClient
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.net.socket_transport import SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.tls_checks import RateLimit, check_certificate
from eyot_daemon.net.tls_hello import TLS_HANDSHAKE, first_byte
from eyot_daemon.net.tls_transport import over_tls
from eyot_daemon.net.tls_words import handshake_words
from eyot_daemon.net.transport import Transport
from eyot_serving.tls_alert import handshake

log = logging.getLogger("eyot.mqtt")

#: Makes a connection that speaks MQTT, see `Clients.accept_as`.
Make = Callable[[ClientContext, Registry, Transport, Peer, int], ServedClient]


class MqttListener:
    """Serves accepted sockets. `make` makes the connection; `tls` None: plain TCP.

    `options` and `tls` may be replaced: they are those of the next connection.
    """

    def __init__(
        self, clients: Clients, make: Make, nursery: trio.Nursery, options: MqttOptions, tls: ssl.SSLContext | None
    ) -> None:
        self.clients = clients
        self.options = options
        self.tls = tls
        self._make = make
        self._nursery = nursery
        self._rate = RateLimit()

    def serve(self, sock: socket.socket, address: tuple[str, int]) -> Awaitable[None]:
        """Serve one connection until it is closed; the `Serve` of a `TcpListener`.

        A plain connection has no coroutine of its own here: each costs memory as long as its client is connected.
        """
        peer = Peer(host=address[0], port=address[1], connection_type=MQTT)
        if self.tls is None:
            return self._serve_plain(sock, peer)
        return self._serve_tls(sock, peer, address, self.tls)

    async def _serve_tls(
        self, sock: socket.socket, peer: Peer, address: tuple[str, int], context: ssl.SSLContext
    ) -> None:
        raw = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        try:
            stream = await self._handshake(sock, raw, context)
        except (trio.BrokenResourceError, trio.TooSlowError, ssl.SSLError, OSError) as error:
            log.error("%s:%d - TLS handshake error: %s", *address, handshake_words(error))
            await trio.aclose_forcefully(raw)
            return
        if stream is None:
            await self._serve_plain(sock, peer)
        else:
            clients = self.clients
            transport = over_tls(sock, stream, self._spawn, clients.limits, clients.broker)
            await transport.run(clients.accept_as(self._make, transport, peer.secured_by(stream)))

    def _serve_plain(self, sock: socket.socket, peer: Peer) -> Awaitable[None]:
        clients = self.clients
        transport = SocketTransport(sock, self._spawn, clients.limits, clients.broker)
        return transport.run(clients.accept_as(self._make, transport, peer))

    async def serve_stream(self, stream: trio.abc.Stream, peer: Peer) -> None:
        """Serve a connection over a stream: a WebSocket."""
        clients = self.clients
        transport = StreamTransport(stream, clients.limits, clients.broker)
        await transport.run(clients.accept_as(self._make, transport, peer))

    def _spawn(self, fn: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(fn)

    async def _handshake(
        self, sock: socket.socket, raw: trio.SocketStream, context: ssl.SSLContext
    ) -> trio.SSLStream[trio.SocketStream] | None:
        """Return the TLS stream; None when the client continues in clear, and may. Raises what the handshake raises."""
        tls = self.options.tls
        assert tls is not None
        if not self._rate.allow(tls.connection_rate_limit):
            raise ssl.SSLError(THROTTLED)
        with trio.fail_after(tls.timeout_s):
            if self.clients.options.allow_non_tls and await first_byte(sock, tls.timeout_s) != TLS_HANDSHAKE:
                return None
            stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
            await handshake(stream)
            check_certificate(tls, stream)
            return stream
