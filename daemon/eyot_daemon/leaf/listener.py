"""The listener for leaf nodes: plain TCP, TLS after INFO, or TLS at once (`handshake_first`, with a fallback delay).

Each accepted socket becomes a `LeafConnection` that waits for CONNECT. The addresses announced to leaf nodes are the
configured advertisement, or the address at which the leaf node connected.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from eyot_daemon.auth.login import Peer
from eyot_daemon.config.leaf import LEAF_PORT_DEFAULT, LeafNodesOptions
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.login import Authenticate
from eyot_daemon.leaf.sockets import limit_unsent
from eyot_daemon.net.binding import plain_host
from eyot_daemon.net.socket_transport import SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.tls_checks import check_certificate
from eyot_daemon.net.tls_hello import TLS_HANDSHAKE, first_byte
from eyot_daemon.net.tls_transport import over_tls
from eyot_daemon.net.tls_words import handshake_words
from eyot_daemon.net.transport import LEAF_HOLD_S, Transport, TransportLimits
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_serving.broken_streams import cut_cycles
from eyot_serving.tls_alert import handshake
from eyot_sync.leaf.compression import LeafCompression
from eyot_sync.leaf.events import LeafOptions, Role
from eyot_sync.leaf.session import LeafSession
from eyot_sync.link.state import LinkPhase, LinkState

log = logging.getLogger("eyot.leaf")

CONNECTION_TYPE = "LEAFNODE"
TLS_HANDSHAKE_FAILURE = "TLS Handshake Failure"
# How much longer than the TLS handshake the peer may take until CONNECT.
_TLS_MARGIN_S = 1.0


class LeafListener:
    """Serves accepted sockets as leaf links. `port` is the bound one; `tls` the server context, None for plain TCP."""

    def __init__(
        self,
        links: LeafLinks[LeafConnection],
        authenticate: Authenticate,
        nursery: trio.Nursery,
        *,
        port: int = LEAF_PORT_DEFAULT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.links = links
        self.port = port
        self.tls = tls
        self._authenticate = authenticate
        self._nursery = nursery
        self.limits = leaf_limits(links)

    @property
    def _options(self) -> LeafNodesOptions:
        """The present options: a reload changes those of links accepted later."""
        return self.links.broker.options.leafnodes

    async def serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Serve one connection until it is closed; the `Serve` of a `TcpListener`."""
        peer = Peer(host=address[0], port=address[1], connection_type=CONNECTION_TYPE)
        local_host = plain_host(str(sock.getsockname()[0]))
        follow = limit_unsent(sock)
        if self.tls is not None:
            await self._serve_tls(sock, peer, local_host, self.tls, follow)
            return
        link = self._open(peer, local_host)
        link.output.on_slice = follow
        transport = SocketTransport(sock, self._spawn, self.limits, self.links.broker)
        await self._run(link, transport)

    async def serve_stream(
        self, stream: trio.abc.Stream, peer: Peer, local_host: str = "127.0.0.1", *, websocket: bool = False
    ) -> None:
        """Serve a connection over any stream: in-memory links, TLS already established.

        websocket: the stream is a WebSocket. S2 is not offered: nats-server compresses beneath the WebSocket's frames, this
        session within them.
        """
        link = self._open(peer, local_host, may_compress=not websocket)
        await self._run(link, StreamTransport(stream, self.limits, self.links.broker))

    async def _run(self, link: LeafConnection, transport: Transport) -> None:
        try:
            link.attach(transport)
            link.start()
            self.links.broker.flush()
            await transport.run(link)
        finally:
            link.release()

    def _open(self, peer: Peer, local_host: str, *, may_compress: bool = True) -> LeafConnection:
        """Return a connection whose first INFO is pending."""
        links, options = self.links, self._options
        broker = links.broker
        authorization = options.authorization
        auth_s = authorization.timeout_s if authorization is not None else 2.0
        if options.tls is not None:
            auth_s = options.tls.timeout_s + _TLS_MARGIN_S
        session_options = LeafOptions(
            role=Role.ACCEPT,
            client_id=broker.next_cid(),
            times=links.times(auth_s=auth_s),
            message_bytes_max=broker.options.max_pending,
            compression=options.compression.effective() if may_compress else LeafCompression(),
            isolate=options.isolate_leafnode_interest,
            default_js_domains=dict(broker.options.default_js_domain),
            leafnode_urls=self._urls(local_host),
            tls_required=self.tls is not None,
            tls_verify=options.tls is not None and (options.tls.verify or options.tls.verify_and_map),
            min_version=options.min_version,
        )
        session = LeafSession(links.identity(host=options.host, port=self.port), session_options, broker.rng)
        now_ns = broker.clock.now_ns()
        state = LinkState(f"lid:{session_options.client_id}", "", solicited=False, since_ns=now_ns)
        state.phase = LinkPhase.HANDSHAKE
        state.address = f"{peer.host}:{peer.port}"
        link = LeafConnection(links, session, peer, state, authenticate=self._authenticate)
        log.debug("%r - Leafnode connection created", link)
        session.start(broker.clock.monotonic())
        return link

    def _urls(self, local_host: str) -> tuple[str, ...]:
        options = self._options
        if options.no_advertise:
            return ()
        if options.advertise:
            return (options.advertise if ":" in options.advertise else f"{options.advertise}:{self.port}",)
        host = local_host if options.host in ("0.0.0.0", "::", "") else options.host
        return (f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}",)

    async def _serve_tls(
        self,
        sock: socket.socket,
        peer: Peer,
        local_host: str,
        context: ssl.SSLContext,
        follow: Callable[[int], None],
    ) -> None:
        options = self._options.tls
        assert options is not None
        raw = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        link = self._open(peer, local_host)
        try:
            with trio.fail_after(options.timeout_s):
                first = options.handshake_first
                if first and options.handshake_first_fallback_s is not None:
                    first = await first_byte(sock, options.handshake_first_fallback_s) == TLS_HANDSHAKE
                if not first:
                    await raw.send_all(link.session.data_to_send())
                stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
                await handshake(stream)
            check_certificate(options, stream)
        except (trio.BrokenResourceError, trio.TooSlowError, ssl.SSLError, OSError) as error:
            log.error("%r - TLS leafnode handshake error: %s", link, handshake_words(error))
            cut_cycles(error)
            link.lost(TLS_HANDSHAKE_FAILURE)
            link.release()
            await trio.aclose_forcefully(raw)
            return
        if link.closed:  # during the handshake
            link.release()
            await trio.aclose_forcefully(stream)
            return
        link.peer = peer.secured_by(stream)
        link.output.on_slice = follow
        await self._run(link, over_tls(sock, stream, self._spawn, self.limits, self.links.broker))

    def _spawn(self, fn: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(fn)


def leaf_limits(links: LeafLinks[LeafConnection]) -> TransportLimits:
    """Return the limits of a leaf link's transport.

    Without `leafnodes { write_deadline }` only silence ends a link: on a very slow link, a peer that still answers is
    better than none.
    """
    options = links.broker.options
    return TransportLimits(options.max_pending, options.leafnodes.write_deadline_s or 0.0, LEAF_HOLD_S)
