"""The WebSocket listener: TLS unless `no_tls`, the upgrade, then a client connection or a leaf link like any other."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable
from typing import Protocol

import msgspec
import trio
from wsproto.events import Request

from eyot_daemon.auth.login import MQTT_WS, Peer
from eyot_daemon.client.listener import ClientListener
from eyot_daemon.config.options import WebsocketOptions
from eyot_daemon.net.binding import plain_host
from eyot_daemon.net.tls_checks import RateLimit, check_certificate
from eyot_daemon.net.tls_words import handshake_words
from eyot_daemon.net.websocket_stream import BROWSER_FRAME_BYTES, WebSocketStream
from eyot_daemon.net.websocket_upgrade import Cookies, UpgradeError, Verdict, check_upgrade
from eyot_serving.broken_streams import cut_cycles
from eyot_serving.tls_alert import handshake

log = logging.getLogger("eyot.websocket")

CLIENT_TYPE = "WEBSOCKET"
LEAF_TYPE = "LEAFNODE_WS"
#: Answered whatever the client asked for, as nats-server does.
MQTT_SUBPROTOCOL = "mqtt"


class ServeLeaf(Protocol):
    """Serves a stream as a leaf link; `local_host`: the address at which it reached us."""

    def __call__(self, stream: trio.abc.Stream, peer: Peer, local_host: str, *, websocket: bool) -> Awaitable[None]: ...


class ServeMqtt(Protocol):
    """Serves a stream as a client of MQTT."""

    def __call__(self, stream: trio.abc.Stream, peer: Peer) -> Awaitable[None]: ...


class WebSocketListener:
    """Serves accepted sockets. `tls` None: plain."""

    def __init__(
        self,
        clients: ClientListener,
        options: WebsocketOptions,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.options = options
        self.tls = tls
        self._clients = clients
        #: None: leaf nodes are sent away
        self.serve_leaf: ServeLeaf | None = None
        #: None: clients of MQTT are sent away
        self.serve_mqtt: ServeMqtt | None = None
        self._rate = RateLimit()

    async def serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Serve one connection until it is closed; the `Serve` of a `TcpListener`."""
        peer = Peer(host=address[0], port=address[1], connection_type=CLIENT_TYPE)
        local_host = plain_host(sock.getsockname()[0])
        stream: trio.abc.Stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        websocket: WebSocketStream | None = None
        try:
            with trio.fail_after(self.options.handshake_timeout_s):
                stream, peer = await self._secured(stream, peer)
                websocket = WebSocketStream(stream)
                request = await websocket.receive_request()
                verdict = await self._answer(websocket, request)
        except (UpgradeError, trio.BrokenResourceError, trio.TooSlowError, ssl.SSLError, OSError) as error:
            log.info("%s:%d - websocket handshake error: %s", *address, handshake_words(error))
            cut_cycles(error)
            await trio.aclose_forcefully(stream)
            return
        if verdict.status != 101:
            log.info("%s:%d - websocket handshake error: %s", *address, verdict.reason)
            await stream.aclose()
            return
        if verdict.is_browser:
            websocket.fragment_bytes = BROWSER_FRAME_BYTES
        if verdict.is_leaf:
            assert self.serve_leaf is not None
            peer = msgspec.structs.replace(peer, connection_type=LEAF_TYPE)
            await self.serve_leaf(websocket, peer, local_host, websocket=True)
        elif verdict.is_mqtt:
            assert self.serve_mqtt is not None
            websocket.takes_text = False
            peer = msgspec.structs.replace(peer, connection_type=MQTT_WS)
            await self.serve_mqtt(websocket, _with_cookies(peer, verdict.cookies))
        else:
            await self._clients.serve_stream(websocket, _with_cookies(peer, verdict.cookies))

    async def _secured(self, stream: trio.abc.Stream, peer: Peer) -> tuple[trio.abc.Stream, Peer]:
        tls = self.options.tls
        if self.tls is None or tls is None:
            return stream, peer
        if not self._rate.allow(tls.connection_rate_limit):
            raise UpgradeError("too many connections in a second")
        assert isinstance(stream, trio.SocketStream)
        secured = trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
        with trio.fail_after(tls.timeout_s):
            await handshake(secured)
        check_certificate(tls, secured)
        return secured, peer.secured_by(secured)

    async def _answer(self, websocket: WebSocketStream, request: Request) -> Verdict:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.extra_headers}
        headers["host"] = request.host
        options = self.options
        verdict = check_upgrade(request.target, headers, options, secure=self.tls is not None)
        if verdict.is_leaf and self.serve_leaf is None:
            verdict = Verdict(status=404, reason="leaf nodes are not configured here")
        if verdict.is_mqtt and self.serve_mqtt is None:
            verdict = Verdict(status=404, reason="mqtt websocket endpoint not enabled")
        if verdict.status == 101:
            subprotocol = MQTT_SUBPROTOCOL if verdict.is_mqtt else ""
            await websocket.accept(compress=options.compression, headers=options.headers, subprotocol=subprotocol)
        else:
            await websocket.reject(verdict.status, verdict.reason)
        return verdict


def _with_cookies(peer: Peer, cookies: Cookies) -> Peer:
    return peer if cookies == Cookies() else msgspec.structs.replace(peer, cookies=cookies)
