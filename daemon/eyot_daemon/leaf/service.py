"""Leaf links as a part of the daemon: the listener for leafs, the remotes, and both stopped."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from eyot_daemon.leaf.login import Authenticate
from eyot_daemon.leaf.status import leafz, link_statuses
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.router.providers import Providers

if TYPE_CHECKING:
    from eyot_daemon.leaf.listener import LeafListener
    from eyot_daemon.leaf.remotes import LeafRemotes

log = logging.getLogger("eyot.leaf")

Bind = Callable[[str, int], TcpListener]


class LeafService:
    """Listener and remotes of one daemon. `port` is the listener's, None without one."""

    def __init__(self, links: LeafLinks, authenticate: Authenticate) -> None:
        self.links = links
        self.port: int | None = None
        self._authenticate = authenticate
        self._listener: TcpListener | None = None
        self._remotes: LeafRemotes | None = None
        self.server: LeafListener | None = None  # what serves accepted sockets, for listeners of other kinds too

    def start(self, nursery: trio.Nursery, bind: Bind) -> None:
        """Listen if configured, and dial every remote. `bind` opens the listening socket. Raises TlsError, and what `bind` raises."""
        options = self.links.broker.options.leafnodes
        if options.port is not None:
            context: ssl.SSLContext | None = None
            if options.tls is not None:
                context = server_context(options.tls)
            # Listener and remotes are loaded only where they are used: it shows in the time a start takes.
            from eyot_daemon.leaf.listener import LeafListener

            listener = self._listener = bind(options.host, options.port)
            self.port = self.links.broker.bound["leafnodes"] = listener.port
            server = LeafListener(self.links, self._authenticate, nursery, port=listener.port, tls=context)
            self.server = server
            nursery.start_soon(listener.run, server.serve, nursery)
            log.info("Listening for leafnode connections on %s:%d", options.host, listener.port)
        if options.remotes:
            self._start_remotes(nursery)

    def _start_remotes(self, nursery: trio.Nursery) -> None:
        from eyot_daemon.leaf.remotes import LeafRemotes

        self._remotes = LeafRemotes(self.links)
        self._remotes.start(nursery)

    def _first_remotes(self, nursery: trio.Nursery) -> None:
        """A reload brings the first remotes: they are said to be new, as later ones are."""
        from eyot_daemon.leaf.remotes import LeafRemotes

        self._remotes = LeafRemotes(self.links, remotes=())
        self._remotes.update(self.links.broker.options.leafnodes.remotes, nursery)

    def reload(self, nursery: trio.Nursery, tls: ssl.SSLContext | None) -> None:
        """The options changed: remotes come and go, new links use the new certificates, leafs that may no longer be here go."""
        options = self.links.broker.options
        if self._remotes is not None:
            self._remotes.update(options.leafnodes.remotes, nursery)
        elif options.leafnodes.remotes:
            self._first_remotes(nursery)
        if self.server is not None:
            self.server.follow(options.leafnodes, tls)

    def provide(self, providers: Providers) -> None:
        """Let the status pages show the links."""
        providers.links = lambda: link_statuses(self.links)
        providers.leafz = lambda query: leafz(self.links, query)

    def stop(self) -> None:
        """No new links; those there are end."""
        if self._listener is not None:
            self._listener.close()
        if self._remotes is not None:
            self._remotes.stop()
        self.links.close_all()
