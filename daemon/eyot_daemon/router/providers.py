"""Functions through which the monitoring pages and `/eyot/status` read other parts of the daemon.

The broker knows its clients and accounts. Leaf links, JetStream, mirrors, sources and the store are other packages;
each registers a small function here at its start. Until then the pages show nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from eyot_daemon.turn.slices import Slices
from eyot_wire.status import FlashStatus, LinkStatus, SourcingStatus, StoreStatus, StreamStatus, SyncStatus

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


class MqttAccountFigures(Struct, frozen=True, kw_only=True):
    """MQTT in one account. Counts are since the start; `received` and `sent` are PUBLISH packets by QoS."""

    account: str
    clients: int
    sessions: int
    expired: int
    queued_msgs: int
    queued_bytes: int
    retained_msgs: int
    retained_bytes: int
    received: tuple[int, ...]
    sent: tuple[int, ...]
    #: in and out, all packets
    packets: tuple[int, int]
    bytes: tuple[int, int]
    dropped: dict[str, int]


class MqttFigures(NamedTuple):
    """MQTT. `refused`: CONNECTs by reason."""

    refused: dict[str, int]
    accounts: list[MqttAccountFigures]


class JetStreamErrors(NamedTuple):
    """JetStream's error codes and how often each occurred since the start.

    `api`: of an account, requests that were answered with it. `rejected`: of an account's stream, messages that
    publishers sent and the stream did not store.
    """

    api: Sequence[tuple[str, int, int]] = ()
    rejected: Sequence[tuple[str, str, int, int]] = ()


class Providers:
    """One function per subject; assign to register."""

    def __init__(self) -> None:
        self.links: Callable[[], list[LinkStatus]] = list
        self.streams: Callable[[], list[StreamStatus]] = list
        self.sourcing: Callable[[], list[SourcingStatus]] = list
        self.downstream: Callable[[], list[SyncStatus]] = list
        self.store: Callable[[], StoreStatus | None] = _no_store
        #: None: there is no store
        self.flash: Callable[[], FlashStatus | None] = _no_flash
        #: entries of `/leafz`'s `leaf_links`
        self.leafz: Callable[[LeafzQuery], list[Json]] = _no_leaf_links
        #: in operator mode, the token of an account
        self.account_claims: Callable[[str], AccountClaims | None] = _no_claims
        #: None: MQTT is not configured
        self.mqtt: Callable[[], MqttFigures | None] = _no_mqtt
        #: the members of `/jsz` besides server_id and now; None: JetStream is disabled
        self.jsz: Callable[[JszQuery], Slices[Json | None]] = _no_jetstream
        #: the `jetstream` member of `/varz`; None: JetStream is disabled
        self.jetstream_varz: Callable[[], Json | None] = _no_jetstream_varz
        self.jetstream_errors: Callable[[], JetStreamErrors] = JetStreamErrors
        #: the health of each service; the page shows the first problem
        self.health_checks: list[Callable[[HealthzQuery], Unhealthy | None]] = []

    def withdraw_jetstream(self) -> None:
        """JetStream does not run: its pages are empty."""
        none = Providers()
        self.jsz, self.jetstream_varz = none.jsz, none.jetstream_varz
        self.jetstream_errors = none.jetstream_errors
        self.streams, self.sourcing, self.store, self.downstream = (
            none.streams,
            none.sourcing,
            none.store,
            none.downstream,
        )


def _no_claims(account: str) -> AccountClaims | None:
    return None


def _no_mqtt() -> MqttFigures | None:
    return None


def _no_store() -> StoreStatus | None:
    return None


def _no_flash() -> FlashStatus | None:
    return None


def _no_leaf_links(query: LeafzQuery) -> list[Json]:
    return []


def _no_jetstream(query: JszQuery) -> Slices[Json | None]:
    return None
    yield  # a generator without slices


def _no_jetstream_varz() -> Json | None:
    return None
