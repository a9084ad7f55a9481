"""`/connz`: the connections of clients, open and closed, and leaf links, sorted and filtered as nats-server does."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from eyot_daemon.client.clients import Clients, ClosedClient
from eyot_daemon.client.served import ServedClient
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.monitor.server import rtt_text, short_duration
from eyot_daemon.router.providers import Json
from eyot_daemon.router.subscription import Subscription
from eyot_daemon.turn.slices import Slices, in_slices
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.subject import overlaps

_NS = 1_000_000_000
CONNZ_LIMIT = 1024
#: Subscriptions that one slice compares with what is asked for.
LOOKED_AT_MAX = 4096
EVERYTHING = ">"

CONNECTION_TYPES = {"STANDARD": "nats", "WEBSOCKET": "websocket", "MQTT": "mqtt", "MQTT_WS": "mqtt"}


class LeafRow(Struct, frozen=True):
    """A leaf link as `/connz` sees it: figures since the link is up."""

    cid: int
    ip: str
    port: int
    started_ns: int
    last_activity_ns: int
    name: str
    version: str
    account_name: str
    user: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    rtt_s: float
    subjects: tuple[bytes, ...]
    pending_bytes: int
    stopped_ns: int = 0
    close_reason: str = ""


_Row = ServedClient | ClosedClient | LeafRow


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
    mqtt_client: str = ""


def connz(clients: Clients, query: ConnzQuery) -> Slices[Json]:
    """Return the page. Raises BadQuery for an unknown sort key, and for a subject without its account.

    Connections are those of the first slice; each row is as it is when its slice comes.
    """
    if query.filter_subject == EVERYTHING:  # filters nothing, not even connections without a subscription
        query = structs.replace(query, filter_subject="")
    if query.filter_subject and not query.account:
        raise BadQuery("filter by subject only valid with account filtering")
    key, reverse = _sort_key(query)
    now_ns = clients.broker.clock.now_ns()
    found: list[_Row] = []
    if query.state in ("open", "all"):
        here: list[ServedClient | LeafRow] = list(clients.connections.values())
        here += [leaf_row(link) for link in clients.broker.links.established()]
        for one in here:
            is_found = _wanted(query, one) and (yield from _subscribed(one, query))
            if is_found:
                found.append(one)
    if query.state in ("closed", "all") and not query.filter_subject:
        found += [one for one in clients.closed if _wanted(query, one)]
    found.sort(key=lambda row: (key(row), row.cid), reverse=reverse)
    limit = 1 if query.cid else query.limit
    page = found[query.offset : query.offset + limit]
    rows: list[Json] = []
    for each in in_slices(page):
        if each is None:
            yield
        else:
            rows.append((yield from _shown(clients, each, query, now_ns)))
    return {
        "server_id": clients.broker.server_id,
        "now": ns_to_rfc3339(now_ns),
        "num_connections": len(page),
        "total": len(found),
        "offset": query.offset,
        "limit": limit,
        "connections": rows,
    }


def _shown(clients: Clients, row: _Row, query: ConnzQuery, now_ns: int) -> Slices[Json]:
    if isinstance(row, ServedClient):
        return _open_row(row, query, now_ns) | (yield from _subscriptions(row, query))
    return _leaf(row, query, now_ns) if isinstance(row, LeafRow) else _closed_row(clients, row, query)


def leaf_row(link: LeafConnection) -> LeafRow:
    """Return the row of a leaf connection."""
    link.note_rtt()
    state, start = link.state, link.counts_at_start
    return LeafRow(
        cid=link.cid,
        ip=link.peer.host,
        port=link.peer.port,
        started_ns=link.started_ns,
        last_activity_ns=max(state.last_heard_ns, link.started_ns),
        name=state.peer_name,
        version=state.peer_version,
        account_name=link.account_name,
        user=link.user,
        in_msgs=state.traffic.in_msgs - start.in_msgs,
        out_msgs=state.traffic.out_msgs - start.out_msgs,
        in_bytes=state.traffic.in_bytes - start.in_bytes,
        out_bytes=state.traffic.out_bytes - start.out_bytes,
        rtt_s=state.rtt_s or 0.0,
        subjects=tuple(subject for subject, _ in link.peer_interest.subs),
        pending_bytes=0 if link.transport is None else link.transport.backlog,
    )


def _subjects(row: ServedClient | LeafRow) -> Iterable[bytes]:
    return row.subjects if isinstance(row, LeafRow) else (sub.subject for sub in row.subs.values())


def _wanted(query: ConnzQuery, row: _Row) -> bool:
    account = row.account if isinstance(row, ClosedClient) else row.account_name
    return (
        (not query.cid or row.cid == query.cid)
        and (not query.user or row.user == query.user)
        and (not query.account or account == query.account)
        and (not query.mqtt_client or getattr(row, "mqtt_client", "") == query.mqtt_client)
    )


def _subscribed(row: ServedClient | LeafRow, query: ConnzQuery) -> Slices[bool]:
    if not query.filter_subject:
        return True
    wanted = query.filter_subject.encode()
    for subject in in_slices(list(_subjects(row)), LOOKED_AT_MAX):
        if subject is None:
            yield
        elif overlaps(subject, wanted):
            return True
    return False


def _count(row: _Row) -> int:
    return 0 if isinstance(row, ClosedClient) else len(row.subjects if isinstance(row, LeafRow) else row.subs)


def _pending(row: _Row) -> int:
    if isinstance(row, ServedClient):
        return row.transport.backlog
    return row.pending_bytes if isinstance(row, LeafRow) else 0


_SORT_KEYS: dict[str, tuple[Callable[[_Row], float], bool]] = {
    # nats-server sorts counts downwards, ids and start upwards
    "cid": (lambda row: row.cid, False),
    "start": (lambda row: row.started_ns, False),
    "subs": (_count, True),
    "pending": (_pending, True),
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


def _subscriptions(client: ServedClient, query: ConnzQuery) -> Slices[Json]:
    """Return the subscriptions of an open connection, as far as they are asked for."""
    if not query.subscriptions:
        return {}
    is_detailed = query.subscriptions == "detail"
    rows: list[Json | str] = []
    for sub in in_slices(list(client.subs.values())):
        if sub is None:
            yield
        else:
            rows.append(subscription_row(sub, client.cid) if is_detailed else _text(sub.subject))
    return {"subscriptions_list_detail" if is_detailed else "subscriptions_list": rows}


def _open_row(client: ServedClient, query: ConnzQuery, now_ns: int) -> Json:
    """One open connection, without its subscriptions."""
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
    if client.mqtt_client:
        row["mqtt_client"] = client.mqtt_client
    if client.peer.tls_version:
        row["tls_version"] = client.peer.tls_version.removeprefix("TLSv")
        row["tls_cipher_suite"] = client.peer.tls_cipher
    if query.authenticated:
        tag = client.account_name if client.account is None else client.account.name_tag
        row |= _who(client.user, client.account_name, tag) | _token(client)
    return row


def _leaf(leaf: LeafRow, query: ConnzQuery, now_ns: int) -> Json:
    row: Json = {
        "cid": leaf.cid,
        "kind": "Leafnode",
        "ip": leaf.ip,
        "port": leaf.port,
        "start": ns_to_rfc3339(leaf.started_ns),
        "last_activity": ns_to_rfc3339(leaf.last_activity_ns),
    }
    if leaf.rtt_s:
        row["rtt"] = rtt_text(leaf.rtt_s)
    row |= {
        "uptime": short_duration((now_ns - leaf.started_ns) // _NS),
        "idle": short_duration(max(0, now_ns - leaf.last_activity_ns) // _NS),
        "pending_bytes": leaf.pending_bytes,
        "in_msgs": leaf.in_msgs,
        "out_msgs": leaf.out_msgs,
        "in_bytes": leaf.in_bytes,
        "out_bytes": leaf.out_bytes,
        "subscriptions": len(leaf.subjects),
    }
    row |= _described(leaf.name, "", leaf.version)
    if query.authenticated:
        row |= _who(leaf.user, leaf.account_name, leaf.account_name)
    if query.subscriptions == "detail":
        row["subscriptions_list_detail"] = [
            {"subject": _text(subject), "sid": _text(subject), "msgs": 0, "cid": leaf.cid} for subject in leaf.subjects
        ]
    elif query.subscriptions:
        row["subscriptions_list"] = [_text(subject) for subject in leaf.subjects]
    return row


def _closed_row(clients: Clients, closed: ClosedClient, query: ConnzQuery) -> Json:
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
        "rtt": rtt_text(closed.rtt_s),
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
    if closed.mqtt_client:
        row["mqtt_client"] = closed.mqtt_client
    account_now = clients.broker.accounts.get(closed.account)
    tag = closed.account if account_now is None else account_now.name_tag
    if query.authenticated:
        row |= _who(closed.user, closed.account, tag)
        shown = {"jwt": closed.jwt, "issuer_key": closed.issuer_key, "tags": list(closed.tags)}
        row |= {key: value for key, value in shown.items() if value}
    if query.subscriptions == "detail" and closed.subjects:
        account = {"account": closed.account, "account_tag": tag} if query.authenticated else {}
        row["subscriptions_list_detail"] = [
            account | {"subject": _text(subject), "sid": "", "msgs": 0, "cid": closed.cid}
            for subject in closed.subjects
        ]
    elif query.subscriptions and closed.subjects:
        row["subscriptions_list"] = [_text(subject) for subject in closed.subjects]
    return row


def subscription_row(sub: Subscription, cid: int) -> Json:
    """One subscription in detail."""
    row: Json = {"subject": _text(sub.subject)}
    if sub.queue:
        row["qgroup"] = _text(sub.queue)
    row |= {"sid": _text(sub.sid), "msgs": sub.delivered}
    if sub.max_msgs:
        row["max"] = sub.max_msgs
    row["cid"] = cid
    return row


def _described(name: str, lang: str, version: str) -> Json:
    return {key: value for key, value in (("name", name), ("lang", lang), ("version", version)) if value}


def _who(user: str, account: str, tag: str) -> Json:
    shown = {"authorized_user": user, "account": "" if account == GLOBAL_ACCOUNT else account, "name_tag": tag}
    return {key: value for key, value in shown.items() if value}


def _token(client: ServedClient) -> Json:
    """Return a client's token, in operator mode. A bearer token is equivalent to a password, and hidden."""
    token = client.token
    if token is None:
        return {}
    shown: Json = {} if token.grant.bearer_token else {"jwt": token.text}
    shown["issuer_key"] = token.claims.iss
    if token.claims.all_tags:
        shown["tags"] = list(token.claims.all_tags)
    return shown


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")
