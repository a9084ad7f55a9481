"""Functions through which the monitoring pages and `/eyot/status` read other parts of the daemon.

The broker knows its clients and accounts. Leaf links, JetStream, mirrors, sources and the store are other packages;
each registers a small function here at its start. Until then the pages show nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from eyot_wire.status import LinkStatus, SourcingStatus, StoreStatus, StreamStatus, SyncStatus

if TYPE_CHECKING:
    from eyot_wire.trust.jwt_account import AccountClaims

#: The value types of a JSON page.
Json = dict[str, Any]
#: HTTP status, and the error in nats-server's words.
Unhealthy = tuple[int, str]


class LeafzQuery(Struct, frozen=True, kw_only=True):
    """`/leafz?acc=&subs=`."""

    account: str = ""
    subscriptions: bool = False


class JszQuery(Struct, frozen=True, kw_only=True):
    """`/jsz?acc=&accounts=&streams=&consumers=&direct-consumers=&config=&raft=&offset=&limit=`."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumers: bool = False
    direct_consumers: bool = False
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = 1024


class HealthzQuery(Struct, frozen=True, kw_only=True):
    """`/healthz?js-enabled-only=&js-server-only=&account=&stream=&consumer=&details=`."""

    js_enabled_only: bool = False
    js_server_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class Providers:
    """One function per subject; assign to register."""

    def __init__(self) -> None:
        self.links: Callable[[], list[LinkStatus]] = list
        self.streams: Callable[[], list[StreamStatus]] = list
        self.sourcing: Callable[[], list[SourcingStatus]] = list
        self.downstream: Callable[[], list[SyncStatus]] = list
        self.store: Callable[[], StoreStatus | None] = _no_store
        #: entries of `/leafz`'s `leaf_links`
        self.leafz: Callable[[LeafzQuery], list[Json]] = _no_leaf_links
        #: in operator mode, the token of an account
        self.account_claims: Callable[[str], AccountClaims | None] = _no_claims
        #: the members of `/jsz` besides server_id and now; None: JetStream is disabled
        self.jsz: Callable[[JszQuery], Json | None] = _no_jetstream
        #: the `jetstream` member of `/varz`; None: JetStream is disabled
        self.jetstream_varz: Callable[[], Json | None] = _no_jetstream_varz
        #: the health of each service; the page shows the first problem
        self.health_checks: list[Callable[[HealthzQuery], Unhealthy | None]] = []

    def withdraw_jetstream(self) -> None:
        """JetStream does not run: its pages are empty."""
        none = Providers()
        self.jsz, self.jetstream_varz = none.jsz, none.jetstream_varz
        self.streams, self.sourcing, self.store, self.downstream = (
            none.streams,
            none.sourcing,
            none.store,
            none.downstream,
        )


def _no_claims(account: str) -> AccountClaims | None:
    return None


def _no_store() -> StoreStatus | None:
    return None


def _no_leaf_links(query: LeafzQuery) -> list[Json]:
    return []


def _no_jetstream(query: JszQuery) -> Json | None:
    return None


def _no_jetstream_varz() -> Json | None:
    return None
