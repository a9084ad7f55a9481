"""All leaf links of the server: who is linked, who wants to know, and what the status pages show.

`broker.links` is one of these. A link enters with `bind` once its account is known and leaves with `unbind`. `on_link_up` calls back
the moment a link of an account can be used: when the peer's first interest is here, and again when the peer announces a JetStream API
later on. Nothing waits for a timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from eyot_daemon.router.leaf_account import AccountLinks
from eyot_daemon.version import API_LEVEL, VERSION
from eyot_sync.leaf.events import LeafIdentity, LeafTimes
from eyot_sync.link.state import LinkState, LinkTraffic
from eyot_wire.status import MeteredStatus

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.broker import Broker

log = logging.getLogger("eyot.leaf")

LinkCallback = Callable[["LeafConnection"], None]


class LeafLinks:
    """The leaf links of one broker, solicited and accepted."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connections: dict[int, LeafConnection] = {}
        # One record per remote, whether it is linked or not; accepted links bring their own.
        self.remotes: list[LinkState] = []
        #: Does somebody who copied streams of this account not read them at the moment? JetStream knows.
        self.messages_missed: Callable[[Account], bool] = lambda _: False
        #: By a remote's name: what it may still carry, if it is metered.
        self.metered: dict[str, Callable[[], MeteredStatus | None]] = {}
        self._accounts: dict[str, AccountLinks] = {}
        self._past: dict[str, LinkTraffic] = {}  # of links that have ended, by account
        self._watchers: dict[str, list[LinkCallback]] = {}

    def established(self) -> list[LeafConnection]:
        """The links that are up."""
        return [link for link in self.connections.values() if link.established]

    @property
    def domain(self) -> str:
        """This server's JetStream domain, "" if it has none."""
        jetstream = self.broker.options.jetstream
        return "" if jetstream is None else jetstream.domain

    # -- what links share ------------------------------------------------------------------------------------------

    def identity(self, *, host: str = "0.0.0.0", port: int = 0) -> LeafIdentity:
        """What this server says of itself. A server with remotes belongs to a cluster of its own name, as nats-server has it."""
        options = self.broker.options
        return LeafIdentity(
            server_id=self.broker.server_id,
            server_name=self.broker.server_name,
            version=VERSION,
            host=host,
            port=port,
            cluster=self.broker.server_name if options.leafnodes.remotes else "",
            domain=self.domain,
            jetstream=options.jetstream is not None,
            headers=not options.no_header_support,
            max_payload=options.max_payload,
            api_level=API_LEVEL,
        )

    def times(self, *, auth_s: float = 2.0, first_info_s: float = 1.0) -> LeafTimes:
        options = self.broker.options
        return LeafTimes(
            first_info_s=first_info_s,
            auth_s=auth_s,
            ping_interval_s=options.ping_interval_s,
            ping_max=options.ping_max,
        )

    def of(self, account: Account) -> AccountLinks:
        """The links of an account."""
        links = self._accounts.get(account.name)
        if links is None:
            links = self._accounts[account.name] = AccountLinks(account)
        return links

    def mappings_changed(self, account: Account, gone: Iterable[bytes], come: Iterable[bytes]) -> None:
        """A reload changed which subjects are mapped in `account`: its links are told."""
        links = self._accounts.get(account.name)
        if links is not None:
            links.mappings_changed(gone, come)

    # -- coming and going ------------------------------------------------------------------------------------------

    def opened(self, link: LeafConnection) -> None:
        """A connection exists; it is not linked to an account yet."""
        self.connections[link.cid] = link

    def closed(self, link: LeafConnection) -> None:
        """The link ended; what crossed it stays counted."""
        if self.connections.pop(link.cid, None) is not None and link.established:
            _add(self._past.setdefault(link.account_name, LinkTraffic()), link)

    def traffic(self, account: Account) -> LinkTraffic:
        """Messages and bytes over the links of an account since the start."""
        total = replace(self._past.get(account.name, LinkTraffic()))
        for link in self.connections.values():
            if link.established and link.account_name == account.name:
                _add(total, link)
        return total

    def is_up(self, account_name: str) -> bool:
        """Is any link of this account established?"""
        links = self._accounts.get(account_name)
        return links is not None and len(links.registry) > 0

    def on_link_up(self, account_name: str, callback: LinkCallback) -> Callable[[], None]:
        """Call `callback(link)` whenever a link of the account becomes usable, possibly more than once per link.

        It runs within the turn that brought the peer's interest. Returns a function that ends this.
        """
        watchers = self._watchers.setdefault(account_name, [])
        watchers.append(callback)

        def end() -> None:
            if callback in watchers:
                watchers.remove(callback)

        return end

    def usable(self, link: LeafConnection) -> None:
        """A link's interest is known (or there is more of it): wake who waits for that."""
        assert link.account is not None
        for callback in tuple(self._watchers.get(link.account.name, ())):
            callback(link)

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """The server stops."""
        for link in tuple(self.connections.values()):
            link.close(reason=reason)
        self.broker.flush()

    # -- status ----------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[LinkState]:
        """The record of every remote, up or down, and of every accepted link."""
        yield from self.remotes
        for link in self.connections.values():
            if not link.state.solicited and link.account is not None:
                yield link.state


def _add(total: LinkTraffic, link: LeafConnection) -> None:
    """Add what crossed a link since it is up."""
    traffic, start = link.state.traffic, link.counts_at_start
    total.in_msgs += traffic.in_msgs - start.in_msgs
    total.in_bytes += traffic.in_bytes - start.in_bytes
    total.out_msgs += traffic.out_msgs - start.out_msgs
    total.out_bytes += traffic.out_bytes - start.out_bytes
