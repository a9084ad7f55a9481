"""Requests of the system account as Structs equal to nats-server's option structs.

Go callers marshal these structs completely: every member is present, numbers as numbers (`"state": 0`). The Structs
have nats-server's names, which appear in the errors for a member of the wrong type (`server/monitor.go`,
`server/events.go` of 2.14).
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from eyot_daemon.monitor.accounts import SUBSZ_LIMIT, SubszQuery
from eyot_daemon.monitor.connz import CONNZ_LIMIT, ConnzQuery
from eyot_daemon.router.providers import HealthzQuery, JszQuery, LeafzQuery
from eyot_wire.jetstream.struct import Duration, Int, UInt, decode

SortOpt = Annotated[str, msgspec.Meta(extra={"go": "server.SortOpt"})]
ConnState = Annotated[int, msgspec.Meta(extra={"go": "server.ConnState"})]
_STATES = {0: "open", 1: "closed", 2: "all"}

T = TypeVar("T")


class EventFilterOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which servers a request means; members that are left out mean all."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""


class StatszEventOptions(EventFilterOptions):
    """`STATSZ`."""


class AccInfoEventOptions(EventFilterOptions):
    """`INFO` of an account."""


class VarzEventOptions(EventFilterOptions):
    """`VARZ`."""


class ExpvarzEventOptions(EventFilterOptions):
    """`EXPVARZ`."""


class ConnzEventOptions(EventFilterOptions):
    """`CONNZ`."""

    sort: SortOpt = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: Int = 0
    limit: Int = 0
    cid: UInt = 0
    mqtt_client: str = ""
    state: ConnState = 0
    user: str = ""
    acc: str = ""
    filter_subject: str = ""

    def query(self, account: str = "") -> ConnzQuery:
        detail = "detail" if self.subscriptions_detail else "1" if self.subscriptions else ""
        return ConnzQuery(
            sort=self.sort or "cid",
            authenticated=self.auth,
            subscriptions=detail,
            offset=max(0, self.offset),
            limit=self.limit if self.limit > 0 else CONNZ_LIMIT,
            cid=self.cid,
            state=_STATES.get(self.state, "none"),
            user=self.user,
            account=account or self.acc,
            filter_subject=self.filter_subject,
            mqtt_client=self.mqtt_client,
        )


class SubszEventOptions(EventFilterOptions):
    """`SUBSZ`."""

    offset: Int = 0
    limit: Int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    def query(self, account: str = "") -> SubszQuery:
        return SubszQuery(
            subscriptions=self.subscriptions or bool(account),
            offset=max(0, self.offset),
            limit=self.limit if self.limit > 0 else SUBSZ_LIMIT,
            account=account or self.account,
            test=self.test,
        )


class RoutezEventOptions(EventFilterOptions):
    """`ROUTEZ`."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


class GatewayzEventOptions(EventFilterOptions):
    """`GATEWAYZ`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


class LeafzEventOptions(EventFilterOptions):
    """`LEAFZ`."""

    subscriptions: bool = False
    account: str = ""

    def query(self, account: str = "") -> LeafzQuery:
        return LeafzQuery(account=account or self.account, subscriptions=self.subscriptions)


class AccountzEventOptions(EventFilterOptions):
    """`ACCOUNTZ`."""

    account: str = ""


class AccountStatzEventOptions(EventFilterOptions):
    """`STATZ` of accounts."""

    accounts: list[str] = []
    include_unused: bool = False


class JszEventOptions(EventFilterOptions):
    """`JSZ`."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: Int = 0
    limit: Int = 0
    raft: bool = False
    stream_leader_only: bool = False

    def query(self, account: str = "") -> JszQuery:
        """Return the query for the whole server, or for one `account`, where `consumer` does not imply `streams`."""
        streams = self.streams or (self.consumer and not account)
        return JszQuery(
            account=account or self.account,
            accounts=self.accounts or streams,
            streams=streams,
            consumers=self.consumer,
            direct_consumers=self.direct_consumer,
            raft=self.raft,
            config=self.config,
            offset=max(0, self.offset),
            limit=self.limit if self.limit > 0 else 1024,
        )


class HealthzEventOptions(EventFilterOptions):
    """`HEALTHZ`."""

    js_enabled: bool = msgspec.field(default=False, name="js-enabled")
    js_enabled_only: bool = msgspec.field(default=False, name="js-enabled-only")
    js_server_only: bool = msgspec.field(default=False, name="js-server-only")
    js_meta_only: bool = msgspec.field(default=False, name="js-meta-only")
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    def query(self) -> HealthzQuery:
        return HealthzQuery(
            js_enabled_only=self.js_enabled_only or self.js_enabled,
            js_server_only=self.js_server_only,
            account=self.account,
            stream=self.stream,
            consumer=self.consumer,
            details=self.details,
        )


class ProfilezEventOptions(EventFilterOptions):
    """`PROFILEZ`."""

    name: str = ""
    debug: Int = 0
    duration: Duration = 0


class IpqueueszEventOptions(EventFilterOptions):
    """`IPQUEUESZ`."""

    all: bool = False
    filter: str = ""


class RaftzEventOptions(EventFilterOptions):
    """`RAFTZ`."""

    account: str = ""
    group: str = ""


class AccountConnections(msgspec.Struct):
    """`CONNS` of an account: the account repeated, or empty."""

    acc: str = ""


class Requester(msgspec.Struct):
    """Who asked through an import: `acc`, or `svc` where that account's own import was asked by another account."""

    acc: str = ""
    svc: str = ""


class Chosen(msgspec.Struct):
    """`KICK` and `LDM`: one connection."""

    cid: UInt = 0


def read(kind: type[T], body: bytes) -> T:
    """`body` as Go's `json.Unmarshal` fills a struct; nothing is an empty one. Raises InvalidJson with Go's words."""
    return decode(body, kind, strict=False) if body else kind()
