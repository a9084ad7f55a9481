"""The listeners for clients as services of the daemon: plain and TLS, and WebSocket."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.client.clients import Clients
from eyot_daemon.client.listener import ClientListener
from eyot_daemon.config.options import Options, WebsocketOptions
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.process.ports_file import urls
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.client.websocket_listener import ServeLeaf, ServeMqtt, WebSocketListener

log = logging.getLogger("eyot")

#: nats-server's words for a listener that accepts no connections.
NOT_READY = "failed to be ready for connections after 1ms"


class ClientConfiguration(NamedTuple):
    """The options, and the certificates as they are on disk now."""

    options: Options
    tls: ssl.SSLContext | None


class ClientService:
    """The listener for clients."""

    name = "clients"

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        #: serves accepted sockets, once started
        self.server: ClientListener | None = None
        self._listener: TcpListener | None = None

    def configure(self, options: Options) -> ClientConfiguration:
        """Check the options and read the certificates. Raises TlsError."""
        return ClientConfiguration(options, None if options.tls is None else server_context(options.tls))

    def start(self, prepared: ClientConfiguration, runtime: Runtime) -> None:
        """Start the listeners. Raises StartError."""
        options, connections = prepared.options, runtime.connections
        listener = self._listener = runtime.bind("", options.host, options.port)
        self.clients.port = listener.port
        runtime.ports.nats = urls("nats", options.host, listener.port)
        server = self.server = ClientListener(self.clients, connections, prepared.tls)
        connections.start_soon(listener.run, server.serve, connections)
        runtime.when_open(lambda: log.info("Listening for client connections on %s:%d", options.host, listener.port))

    def reload(self, prepared: ClientConfiguration, steps: ReloadSteps) -> None:
        """Use the new certificates for new connections."""
        server = self.server
        if server is not None:
            before = server.tls
            steps.undo(lambda: setattr(server, "tls", before))
            server.tls = prepared.tls

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Report a lame duck, which accepts no new clients, as not ready."""
        return (500, f"{NOT_READY}: server") if self.clients.lame_duck else None

    def stop(self) -> None:
        """Stop accepting clients, send pending data to the others, and close them."""
        if self._listener is not None:
            self._listener.close()
        self.clients.close_all()


class WebSocketConfiguration(NamedTuple):
    """`websocket { }`, and its certificates as they are on disk now."""

    options: WebsocketOptions | None
    tls: ssl.SSLContext | None


class WebSocketService:
    """The listener for WebSocket clients, and for leaf nodes and MQTT clients over WebSocket where others serve them."""

    name = "websocket"

    def __init__(
        self,
        clients: ClientService,
        serve_leaf: Callable[[], ServeLeaf | None],
        serve_mqtt: Callable[[], ServeMqtt | None],
    ) -> None:
        self._clients = clients
        self._serve_leaf = serve_leaf
        self._serve_mqtt = serve_mqtt
        self._server: WebSocketListener | None = None
        self._listener: TcpListener | None = None

    def configure(self, options: Options) -> WebSocketConfiguration:
        """Check the options and read the certificates. Raises TlsError."""
        websocket = options.websocket
        has_tls = websocket is not None and websocket.tls is not None
        context = server_context(websocket.tls) if has_tls and websocket and websocket.tls else None
        return WebSocketConfiguration(websocket, context)

    def start(self, prepared: WebSocketConfiguration, runtime: Runtime) -> None:
        """Start the listener. Raises StartError."""
        options, context = prepared
        if options is None:
            return
        # The library is loaded only where it is used.
        from eyot_daemon.client.websocket_listener import WebSocketListener

        clients = self._clients.clients
        assert self._clients.server is not None
        listener = self._listener = runtime.bind("websocket ", options.host, options.port)
        clients.websocket_port = clients.broker.bound["websocket"] = listener.port
        server = self._server = WebSocketListener(self._clients.server, options, tls=context)
        runtime.connections.start_soon(listener.run, server.serve, runtime.connections)
        scheme = "ws" if context is None else "wss"
        runtime.ports.websocket = urls(scheme, options.host, listener.port)

        def opened() -> None:
            server.serve_leaf = self._serve_leaf()
            server.serve_mqtt = self._serve_mqtt()
            log.info("Listening for websocket clients on %s://%s:%d", scheme, options.host, listener.port)
            if context is None:
                log.warning("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

        runtime.when_open(opened)

    def reload(self, prepared: WebSocketConfiguration, steps: ReloadSteps) -> None:
        server = self._server
        if server is None or prepared.options is None:
            return
        options, tls = server.options, server.tls

        def undo() -> None:
            server.options, server.tls = options, tls

        steps.undo(undo)
        server.options, server.tls = prepared.options, prepared.tls

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: the listener closes with that of the clients, whose service reports it."""
        return None

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
