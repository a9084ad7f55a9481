"""Leaf links as a service of the daemon: the listener for leaf nodes, and the remotes."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, NamedTuple

import trio

from eyot_daemon.config.leaf import LeafNodesOptions
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.login import Authenticate
from eyot_daemon.leaf.status import leafz, link_statuses
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.process.ports_file import urls
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.leaf.listener import LeafListener
    from eyot_daemon.leaf.remotes import LeafRemotes

log = logging.getLogger("eyot.leaf")


class LeafConfiguration(NamedTuple):
    """`leafnodes { }`, and the listener's certificates as they are on disk now."""

    options: LeafNodesOptions
    tls: ssl.SSLContext | None


class LeafService:
    """Listener and remotes of one daemon."""

    name = "leaf links"

    def __init__(self, links: LeafLinks[LeafConnection], authenticate: Authenticate) -> None:
        self.links = links
        self._authenticate = authenticate
        self._listener: TcpListener | None = None
        self._remotes: LeafRemotes | None = None
        self._connections: trio.Nursery | None = None
        #: serves accepted sockets, and streams of other listeners; None without a listener for leaf nodes
        self.server: LeafListener | None = None
        providers = links.broker.providers
        providers.links = lambda: link_statuses(links)
        providers.leafz = lambda query: leafz(links, query)

    def configure(self, options: Options) -> LeafConfiguration:
        """Check the options and read the certificates. Raises TlsError."""
        leafnodes = options.leafnodes
        has_tls = leafnodes.port is not None and leafnodes.tls is not None
        return LeafConfiguration(leafnodes, server_context(leafnodes.tls) if has_tls and leafnodes.tls else None)

    def start(self, prepared: LeafConfiguration, runtime: Runtime) -> None:
        """Listen if configured, and dial every remote. Raises StartError."""
        self._connections = runtime.connections
        if prepared.options.port is not None:
            self._listen(prepared, runtime)
        if prepared.options.remotes:
            # Loaded only where remotes are configured: loading lengthens the start.
            from eyot_daemon.leaf.remotes import LeafRemotes

            self._remotes = LeafRemotes(self.links)
            self._remotes.start(runtime.connections)

    def _listen(self, prepared: LeafConfiguration, runtime: Runtime) -> None:
        from eyot_daemon.leaf.listener import LeafListener

        options, nursery = prepared.options, runtime.connections
        assert options.port is not None
        listener = self._listener = runtime.bind("leafnode ", options.host, options.port)
        self.links.broker.bound["leafnodes"] = listener.port
        runtime.ports.leafnodes = urls("nats", options.host, listener.port)
        server = LeafListener(self.links, self._authenticate, nursery, port=listener.port, tls=prepared.tls)
        self.server = server
        nursery.start_soon(listener.run, server.serve, nursery)
        log.info("Listening for leafnode connections on %s:%d", options.host, listener.port)

    def reload(self, prepared: LeafConfiguration, steps: ReloadSteps) -> None:
        """Use the new certificates for new links, then add and remove remotes."""
        server = self.server
        if server is not None:
            before = server.tls
            steps.undo(lambda: setattr(server, "tls", before))
            server.tls = prepared.tls
        steps.last(lambda: self._update_remotes(prepared.options))

    def _update_remotes(self, options: LeafNodesOptions) -> None:
        nursery = self._connections
        assert nursery is not None
        if self._remotes is None and options.remotes:
            from eyot_daemon.leaf.remotes import LeafRemotes

            self._remotes = LeafRemotes(self.links, remotes=())
        if self._remotes is not None:
            self._remotes.update(options.remotes, nursery)

    def accounts_changed(self) -> None:
        """Connect now where a remote waits for its account."""
        if self._remotes is not None:
            self._remotes.accounts_changed()

    def network_changed(self) -> None:
        """Connect now where a remote waits for the network."""
        if self._remotes is not None:
            self._remotes.network_changed()

    def reconnect(self, name: str) -> str:
        """Connect the remote of this name now; return why not, "" if it does."""
        return "no remotes are configured" if self._remotes is None else self._remotes.reconnect(name)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: being offline is normal. `/leafz` and `/eyotz` show links that are down."""
        return None

    def stop(self) -> None:
        """No new links; those there are end."""
        if self._listener is not None:
            self._listener.close()
        if self._remotes is not None:
            self._remotes.stop()
        self.links.close_all()
