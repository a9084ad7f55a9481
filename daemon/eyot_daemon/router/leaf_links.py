"""All leaf links of the server: links by account, listeners, and the state for status pages.

`broker.links` is the only instance. A link joins its account's `AccountLinks` (`of`) once the account is known.
`on_link_up` is called as soon as a link of an account is usable: when the peer's first interest is complete, and again
when the peer announces a JetStream API later on. Nothing waits for a timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from eyot_daemon.router.account import Account
from eyot_daemon.router.core import BrokerCore
from eyot_daemon.router.leaf_account import AccountLinks, InterestLink
from eyot_daemon.version import API_LEVEL, VERSION
from eyot_sync.leaf.events import LeafIdentity, LeafTimes
from eyot_sync.link.state import LinkState, LinkTraffic
from eyot_wire.status import MeteredStatus

log = logging.getLogger("eyot.leaf")


class CountedLink(InterestLink, Protocol):
    """A leaf link, as the list of all links knows it."""

    @property
    def cid(self) -> int: ...

    @property
    def account(self) -> Account | None: ...

    @property
    def account_name(self) -> str: ...

    @property
    def established(self) -> bool: ...

    @property
    def state(self) -> LinkState: ...

    @property
    def counts_at_start(self) -> LinkTraffic: ...

    def close(self, text: str = "", *, reason: str = "") -> None: ...


L = TypeVar("L", bound=CountedLink)


class LeafLinks(Generic[L]):
    """The leaf links of one broker, solicited and accepted. `account_named` gives the account of a name, made if it is not there yet."""

    def __init__(self, broker: BrokerCore, account_named: Callable[[str], Account]) -> None:
        self.broker = broker
        self.account_named = account_named
        self.connections: dict[int, L] = {}
        # One record per remote, whether it is linked or not; accepted links bring their own.
        self.remotes: list[LinkState] = []
        #: Whether a downstream of this account is missing at present (the flag: at a peer that compares streams' identities);
        #: set by JetStream.
        self.messages_missed: Callable[[Account, bool], bool] = lambda _, __: False
        #: By a remote's name: the remaining budget, if it is metered.
        self.metered: dict[str, Callable[[], MeteredStatus | None]] = {}
        #: By a remote's name: when the token that it presents expires, seconds since 1970, 0: never.
        self.token_expiry_s: dict[str, Callable[[], int]] = {}
        self._accounts: dict[str, AccountLinks[L]] = {}
        self._past: dict[str, LinkTraffic] = {}  # of links that have ended, by account
        #: Called when a link has entered its account, and when such a link has ended.
        self.arrival_listeners: list[Callable[[L], None]] = []
        self.departure_listeners: list[Callable[[L], None]] = []
        self._watchers: dict[str | None, list[Callable[[L], None]]] = {}

    def established(self) -> list[L]:
        """Return the links that are up."""
        return [link for link in self.connections.values() if link.established]

    @property
    def domain(self) -> str:
        """Return this server's JetStream domain, "" if it has none."""
        jetstream = self.broker.options.jetstream
        return "" if jetstream is None else jetstream.domain

    # -- shared by all links ---------------------------------------------------------------------------------------

    def identity(self, *, host: str = "0.0.0.0", port: int = 0) -> LeafIdentity:
        """Return this server's identity for INFO and CONNECT of leaf links."""
        options = self.broker.options
        return LeafIdentity(
            server_id=self.broker.server_id,
            server_name=self.broker.server_name,
            version=VERSION,
            host=host,
            port=port,
            cluster=self.broker.cluster,
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

    def of(self, account: Account) -> AccountLinks[L]:
        """Return the links of an account."""
        links = self._accounts.get(account.name)
        if links is None:
            links = self._accounts[account.name] = AccountLinks(account)
        return links

    def account_removed(self, name: str) -> None:
        """Forget what the links of an account have in common: it concerns an account that is gone."""
        self._accounts.pop(name, None)

    def mappings_changed(self, account: Account, gone: Iterable[bytes], come: Iterable[bytes]) -> None:
        """Announce changed mappings of `account` to its links."""
        links = self._accounts.get(account.name)
        if links is not None:
            links.mappings_changed(gone, come)

    # -- coming and going ------------------------------------------------------------------------------------------

    def opened(self, link: L) -> None:
        """Add a connection that is not bound to an account yet."""
        self.connections[link.cid] = link

    def arrived(self, link: L) -> None:
        """Report a link that has entered its account."""
        for listener in self.arrival_listeners:
            listener(link)

    def closed(self, link: L) -> None:
        """Remove an ended link; its traffic stays counted."""
        if self.connections.pop(link.cid, None) is not None and link.established:
            _add(self._past.setdefault(link.account_name, LinkTraffic()), link)
            for listener in self.departure_listeners:
                listener(link)

    def traffic(self, account: Account) -> LinkTraffic:
        """Messages and bytes over the links of an account since the start."""
        total = replace(self._past.get(account.name, LinkTraffic()))
        for link in self.connections.values():
            if link.established and link.account_name == account.name:
                _add(total, link)
        return total

    def is_up(self, account_name: str) -> bool:
        """Return whether any link of this account is established."""
        links = self._accounts.get(account_name)
        return links is not None and len(links.registry) > 0

    def on_link_up(self, account_name: str | None, callback: Callable[[L], None]) -> Callable[[], None]:
        """Call `callback(link)` whenever a link of the account, None: of any, becomes usable, possibly more than once per link.

        It runs within the turn that brought the peer's interest. Returns a function that ends this.
        """
        watchers = self._watchers.setdefault(account_name, [])
        watchers.append(callback)

        def end() -> None:
            if callback in watchers:
                watchers.remove(callback)

        return end

    def usable(self, link: L) -> None:
        """Notify the waiters for a link whose interest is complete, or has grown by an API."""
        assert link.account is not None
        for callback in (*self._watchers.get(link.account.name, ()), *self._watchers.get(None, ())):
            callback(link)

    def close_all(self, reason: str = "Server Shutdown") -> None:
        """Close all links at shutdown."""
        for link in tuple(self.connections.values()):
            link.close(reason=reason)
        self.broker.flush()

    # -- status ----------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[LinkState]:
        """Yield the record of every remote, up or down, and of every accepted link."""
        yield from self.remotes
        for link in self.connections.values():
            if not link.state.solicited and link.account is not None:
                yield link.state


def _add(total: LinkTraffic, link: CountedLink) -> None:
    """Add the traffic of an established link."""
    traffic, start = link.state.traffic, link.counts_at_start
    total.in_msgs += traffic.in_msgs - start.in_msgs
    total.in_bytes += traffic.in_bytes - start.in_bytes
    total.out_msgs += traffic.out_msgs - start.out_msgs
    total.out_bytes += traffic.out_bytes - start.out_bytes
