"""What `eyot top` shows: `/varz` and `/connz` of nats-server as values, and the rates between two readings."""

from __future__ import annotations

from msgspec import Struct

from eyot_wire.go.time import rfc3339_to_ns

#: nats-server's orders of `/connz` for open connections, by the key that selects them.
SORT_KEYS = {
    "c": "cid",
    "s": "subs",
    "p": "pending",
    "t": "msgs_to",
    "f": "msgs_from",
    "T": "bytes_to",
    "F": "bytes_from",
    "i": "idle",
    "l": "last",
    "u": "uptime",
    "r": "rtt",
    "b": "start",
}


class Varz(Struct):
    """The members of `/varz` that are shown. `uptime` and `now` as nats-server writes them; `cpu` in percent, `mem` in bytes."""

    server_id: str
    server_name: str
    version: str
    now: str
    uptime: str = ""
    cpu: float = 0.0
    mem: int = 0
    connections: int = 0
    total_connections: int = 0
    leafnodes: int = 0
    subscriptions: int = 0
    slow_consumers: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0


class Connection(Struct):
    """A connection of `/connz`. `in_*` is what the server received from it, `out_*` what the server sent to it."""

    cid: int
    kind: str = ""
    ip: str = ""
    port: int = 0
    start: str = ""
    name: str = ""
    account: str = ""
    authorized_user: str = ""
    subscriptions: int = 0
    subscriptions_list: list[str] = []
    pending_bytes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    lang: str = ""
    version: str = ""
    uptime: str = ""
    idle: str = ""
    rtt: str = ""


class Connz(Struct):
    """A page of `/connz`. `total`: how many connections there are, listed or not."""

    now: str
    total: int = 0
    connections: list[Connection] = []


class Rates(Struct):
    """Messages and bytes for each second; None while unknown."""

    in_msgs: float | None = None
    out_msgs: float | None = None
    in_bytes: float | None = None
    out_bytes: float | None = None


class RatedConnection(Struct):
    connection: Connection
    per_second: Rates


class Reading(Struct):
    """One reading of a server, and its rates since the reading before."""

    server: Varz
    per_second: Rates
    total: int
    connections: list[RatedConnection]


def reading(varz: Varz, connz: Connz, before: tuple[Varz, Connz] | None) -> Reading:
    """Return a reading with its rates since `before`; they are unknown without one, and after a restart of the server.

    Raises ValueError for a time that is none.
    """
    if before is not None and before[0].server_id != varz.server_id:
        before = None
    server_rates, known, since_ns, span_s = Rates(), {}, 0, 0.0
    if before is not None:
        server_rates = _rates(varz, before[0], (rfc3339_to_ns(varz.now) - rfc3339_to_ns(before[0].now)) / 1e9)
        since_ns = rfc3339_to_ns(before[1].now)
        span_s = (rfc3339_to_ns(connz.now) - since_ns) / 1e9
        known = {each.cid: each for each in before[1].connections}
    rows = []
    for each in connz.connections:
        earlier = known.get(each.cid)
        if earlier is None and since_ns and each.start and rfc3339_to_ns(each.start) >= since_ns:
            earlier = Connection(each.cid)  # all that it did is since the reading before
        rows.append(RatedConnection(each, Rates() if earlier is None else _rates(each, earlier, span_s)))
    return Reading(varz, server_rates, connz.total, rows)


def _rates(now: Varz | Connection, before: Varz | Connection, span_s: float) -> Rates:
    if span_s <= 0:  # a clock that was set back
        return Rates()
    return Rates(
        max(0, now.in_msgs - before.in_msgs) / span_s,
        max(0, now.out_msgs - before.out_msgs) / span_s,
        max(0, now.in_bytes - before.in_bytes) / span_s,
        max(0, now.out_bytes - before.out_bytes) / span_s,
    )
