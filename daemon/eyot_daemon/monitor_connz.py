"""`/connz`: the client connections, open and closed, sorted and filtered as nats-server does."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from eyot_daemon.client import ClientConnection
from eyot_daemon.clients import Clients, ClosedClient
from eyot_daemon.monitor_server import rtt_text, short_duration
from eyot_daemon.providers import Json
from eyot_daemon.subscription import Subscription
from eyot_wire.js_time import ns_to_rfc3339
from eyot_wire.subject import overlaps

_NS = 1_000_000_000
CONNZ_LIMIT = 1024

CONNECTION_TYPES = {"STANDARD": "nats", "WEBSOCKET": "websocket", "MQTT": "mqtt"}


_Row = ClientConnection | ClosedClient


class BadQuery(ValueError):
    """A query parameter that nats-server answers with 400; the text is the body."""


class ConnzQuery(Struct, frozen=True, kw_only=True):
    """`/connz`'s parameters. `subscriptions`: "", "1" (subjects) or "detail"."""

    sort: str = "cid"
    authenticated: bool = False
    subscriptions: str = ""
    offset: int = 0
    limit: int = CONNZ_LIMIT
    cid: int = 0
    state: str = "open"
    user: str = ""
    account: str = ""
    filter_subject: str = ""


def connz(clients: Clients, query: ConnzQuery) -> Json:
    """The page. BadQuery for an unknown sort key or state."""
    if query.state not in ("open", "closed", "all", "any"):
        raise BadQuery(f"Error decoding state for {query.state}")
    key, reverse = _sort_key(query)
    now_ns = clients.broker.clock.now_ns()
    found: list[_Row] = []
    if query.state != "closed":
        found += [one for one in clients.connections.values() if _wanted(query, one) and _subscribed(one, query)]
    if query.state != "open" and not query.filter_subject:
        found += [one for one in clients.closed if _wanted(query, one)]
    found.sort(key=lambda row: (key(row), row.cid), reverse=reverse)
    page = found[query.offset : query.offset + query.limit]
    return {
        "server_id": clients.broker.server_id,
        "now": ns_to_rfc3339(now_ns),
        "num_connections": len(page),
        "total": len(found),
        "offset": query.offset,
        "limit": query.limit,
        "connections": [
            open_row(one, query, now_ns) if isinstance(one, ClientConnection) else _closed_row(one, query)
            for one in page
        ],
    }


def _wanted(query: ConnzQuery, row: _Row) -> bool:
    account = row.account_name if isinstance(row, ClientConnection) else row.account
    return (
        (not query.cid or row.cid == query.cid)
        and (not query.user or row.user == query.user)
        and (not query.account or account == query.account)
    )


def _subscribed(client: ClientConnection, query: ConnzQuery) -> bool:
    if not query.filter_subject:
        return True
    wanted = query.filter_subject.encode()
    return any(overlaps(sub.subject, wanted) for sub in client.subs.values())


_SORT_KEYS: dict[str, tuple[Callable[[_Row], float], bool]] = {
    # nats-server sorts counts downwards, ids and start upwards
    "cid": (lambda row: row.cid, False),
    "start": (lambda row: row.started_ns, False),
    "subs": (lambda row: len(row.subs) if isinstance(row, ClientConnection) else 0, True),
    "pending": (lambda row: row.transport.backlog if isinstance(row, ClientConnection) else 0, True),
    "msgs_to": (lambda row: row.out_msgs, True),
    "msgs_from": (lambda row: row.in_msgs, True),
    "bytes_to": (lambda row: row.out_bytes, True),
    "bytes_from": (lambda row: row.in_bytes, True),
    "last": (lambda row: row.last_activity_ns, True),
    "idle": (lambda row: -row.last_activity_ns, True),
    "uptime": (lambda row: -(row.stopped_ns - row.started_ns if row.stopped_ns else -row.started_ns), True),
    "rtt": (lambda row: row.rtt_s, True),
}


def _sort_key(query: ConnzQuery) -> tuple[Callable[[_Row], float | str], bool]:
    if query.sort == "stop" or query.sort == "reason":
        if query.state == "open":
            raise BadQuery(f"sort by {query.sort} only valid on closed connections")
        if query.sort == "stop":
            return lambda row: row.stopped_ns, False
        return lambda row: row.close_reason, False
    found = _SORT_KEYS.get(query.sort)
    if found is None:
        raise BadQuery(f"invalid sorting option: {query.sort}")
    return found


def open_row(client: ClientConnection, query: ConnzQuery, now_ns: int) -> Json:
    """One open connection."""
    row: Json = {
        "cid": client.cid,
        "kind": "Client",
        "type": CONNECTION_TYPES.get(client.peer.connection_type, "nats"),
        "ip": client.peer.host,
        "port": client.peer.port,
        "start": ns_to_rfc3339(client.started_ns),
        "last_activity": ns_to_rfc3339(client.last_activity_ns),
    }
    if client.rtt_s:
        row["rtt"] = rtt_text(client.rtt_s)
    row |= {
        "uptime": short_duration((now_ns - client.started_ns) // _NS),
        "idle": short_duration(max(0, now_ns - client.last_activity_ns) // _NS),
        "pending_bytes": client.transport.backlog,
        "in_msgs": client.in_msgs,
        "out_msgs": client.out_msgs,
        "in_bytes": client.in_bytes,
        "out_bytes": client.out_bytes,
        "subscriptions": len(client.subs),
    }
    row |= _described(client.name, client.lang, client.version)
    if client.peer.tls_version:
        row["tls_version"] = client.peer.tls_version.removeprefix("TLSv")
        row["tls_cipher_suite"] = client.peer.tls_cipher
    if query.authenticated:
        row |= _who(client.user, client.account_name)
    if query.subscriptions == "detail":
        row["subscriptions_list_detail"] = [subscription_row(sub, client.cid) for sub in client.subs.values()]
    elif query.subscriptions:
        row["subscriptions_list"] = [_text(sub.subject) for sub in client.subs.values()]
    return row


def _closed_row(closed: ClosedClient, query: ConnzQuery) -> Json:
    row: Json = {
        "cid": closed.cid,
        "kind": "Client",
        "type": CONNECTION_TYPES.get(closed.kind, "nats"),
        "ip": closed.ip,
        "port": closed.port,
        "start": ns_to_rfc3339(closed.started_ns),
        "last_activity": ns_to_rfc3339(closed.last_activity_ns),
        "stop": ns_to_rfc3339(closed.stopped_ns),
        "reason": closed.close_reason,
        "uptime": short_duration((closed.stopped_ns - closed.started_ns) // _NS),
        "idle": short_duration(max(0, closed.stopped_ns - closed.last_activity_ns) // _NS),
        "pending_bytes": 0,
        "in_msgs": closed.in_msgs,
        "out_msgs": closed.out_msgs,
        "in_bytes": closed.in_bytes,
        "out_bytes": closed.out_bytes,
        "subscriptions": closed.subscriptions,
    }
    row |= _described(closed.name, closed.lang, closed.version)
    if query.authenticated:
        row |= _who(closed.user, closed.account)
    return row


def subscription_row(sub: Subscription, cid: int) -> Json:
    """One subscription in detail."""
    row: Json = {"account": sub.account.name, "subject": _text(sub.subject)}
    if sub.queue:
        row["qgroup"] = _text(sub.queue)
    row |= {"sid": _text(sub.sid), "msgs": sub.delivered}
    if sub.max_msgs:
        row["max"] = sub.max_msgs
    row["cid"] = cid
    return row


def _described(name: str, lang: str, version: str) -> Json:
    return {key: value for key, value in (("name", name), ("lang", lang), ("version", version)) if value}


def _who(user: str, account: str) -> Json:
    return {key: value for key, value in (("authorized_user", user), ("account", account)) if value}


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")
