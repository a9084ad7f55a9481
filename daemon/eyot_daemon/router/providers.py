"""What the monitoring pages and `/eyot/status` get from other parts of the daemon.

The broker knows its clients and accounts; leaf links, JetStream, copies and the store are other rooms. Each of them
registers a small function here when it starts; until then the page says that there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from eyot_wire.status import CopyStatus, LinkStatus, StoreStatus, StreamStatus, SyncStatus

if TYPE_CHECKING:
    from eyot_wire.trust.jwt_account import AccountClaims

#: What a JSON page is made of.
Json = dict[str, Any]


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
        self.copies: Callable[[], list[CopyStatus]] = list
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
        #: each gives (HTTP status, error text) or None when all is well
        self.health_checks: list[Callable[[HealthzQuery], tuple[int, str] | None]] = []

    def withdraw_jetstream(self) -> None:
        """JetStream was switched off: the pages say so."""
        none = Providers()
        self.jsz, self.jetstream_varz = none.jsz, none.jetstream_varz
        self.streams, self.copies, self.store, self.downstream = none.streams, none.copies, none.store, none.downstream
        self.health_checks.clear()


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
