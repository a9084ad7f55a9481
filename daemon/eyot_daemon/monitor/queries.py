"""Parameters of the monitoring pages, from a URL, as typed queries (`system_requests.py`: from the system account)."""

from __future__ import annotations

import re

from eyot_daemon.monitor.accounts import SUBSZ_LIMIT, SubszQuery
from eyot_daemon.monitor.connz import CONNZ_LIMIT, BadQuery, ConnzQuery
from eyot_daemon.router.providers import HealthzQuery, JszQuery, LeafzQuery

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: Python refuses to read integers of thousands of digits.
_DIGITS_MAX = 1000


class Query:
    """The query parameters of a request, read as nats-server reads them. BadQuery if one cannot be read."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self._parameters = parameters

    def text(self, name: str, default: str = "") -> str:
        return self._parameters.get(name, default)

    def flag(self, name: str) -> bool:
        value = self._parameters.get(name, "")
        if value in ("", "0", "f", "F", "false", "False", "FALSE"):
            return False
        if value in ("1", "t", "T", "true", "True", "TRUE"):
            return True
        raise BadQuery(f"Error decoding boolean for '{name}': strconv.ParseBool: parsing \"{value}\": invalid syntax")

    def number(self, name: str, default: int = 0) -> int:
        value = self._parameters.get(name, "")
        if not value:
            return default
        if _INTEGER.fullmatch(value) is None:
            raise BadQuery(f"Error decoding int for '{name}': strconv.Atoi: parsing \"{value}\": invalid syntax")
        if len(value) > _DIGITS_MAX or not -(2**63) <= int(value) < 2**63:
            raise BadQuery(f"Error decoding int for '{name}': strconv.Atoi: parsing \"{value}\": value out of range")
        return max(0, int(value))


def connz_query(query: Query) -> ConnzQuery:
    subscriptions = query.text("subs").lower()
    if subscriptions != "detail":
        subscriptions = "1" if query.flag("subs") else ""
    state = query.text("state").lower() or "open"
    if state not in ("open", "closed", "all", "any"):
        raise BadQuery(f"Error decoding state for {query.text('state')}")
    return ConnzQuery(
        sort=query.text("sort", "cid") or "cid",
        authenticated=query.flag("auth"),
        subscriptions=subscriptions,
        offset=query.number("offset"),
        limit=query.number("limit") or CONNZ_LIMIT,
        cid=query.number("cid"),
        state="all" if state == "any" else state,
        user=query.text("user"),
        account=query.text("acc"),
        filter_subject=query.text("filter_subject"),
        mqtt_client=query.text("mqtt_client"),
    )


def subsz_query(query: Query) -> SubszQuery:
    return SubszQuery(
        subscriptions=query.flag("subs"),
        offset=query.number("offset"),
        limit=query.number("limit") or SUBSZ_LIMIT,
        account=query.text("acc"),
        test=query.text("test"),
    )


def leafz_query(query: Query) -> LeafzQuery:
    return LeafzQuery(account=query.text("acc"), subscriptions=query.flag("subs"))


def jsz_query(query: Query) -> JszQuery:
    consumers = query.flag("consumers")
    direct_consumers = query.flag("direct-consumers")
    streams = query.flag("streams") or consumers or direct_consumers
    return JszQuery(
        account=query.text("acc"),
        accounts=query.flag("accounts") or streams,
        streams=streams,
        consumers=consumers,
        direct_consumers=direct_consumers,
        raft=query.flag("raft"),
        config=query.flag("config"),
        offset=query.number("offset"),
        limit=query.number("limit") or 1024,
    )


def healthz_query(query: Query) -> HealthzQuery:
    return HealthzQuery(
        js_enabled_only=query.flag("js-enabled-only") or query.flag("js-enabled"),
        js_server_only=query.flag("js-server-only"),
        account=query.text("account"),
        stream=query.text("stream"),
        consumer=query.text("consumer"),
        details=query.flag("details"),
    )
