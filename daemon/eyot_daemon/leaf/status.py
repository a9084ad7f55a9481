"""Leaf links on the status pages: `/leafz` in nats-server's words, and the links of `/eyot/status`."""

from __future__ import annotations

from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.router.providers import Json, LeafzQuery
from eyot_sync.link.state import LinkPhase, LinkState
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import LinkStatus

#: A leaf node that was refused dials again within this, nanoseconds.
TWIN_LASTS_NS = 180_000_000_000
_STATES = {
    LinkPhase.UP: "up",
    LinkPhase.DIALING: "connecting",
    LinkPhase.HANDSHAKE: "connecting",
    LinkPhase.WAITING: "waiting",
    LinkPhase.DISABLED: "disabled",
}


def link_statuses(links: LeafLinks[LeafConnection]) -> list[LinkStatus]:
    """Every remote, up or down, then every accepted link."""
    queued: dict[int, LeafConnection] = {}
    for link in links.connections.values():
        link.note_rtt()
        queued[id(link.state)] = link
    return [_status(links, state, queued.get(id(state))) for state in links.states()]


def leafz(links: LeafLinks[LeafConnection], query: LeafzQuery) -> list[Json]:
    """Entries of `/leafz`: established links only, as nats-server lists them."""
    return [
        _leaf(link, query)
        for link in links.connections.values()
        if link.established and (not query.account or link.account_name == query.account)
    ]


def _status(links: LeafLinks[LeafConnection], state: LinkState, link: LeafConnection | None) -> LinkStatus:
    now_ns = links.broker.clock.now_ns()
    traffic = state.traffic
    full, large, refused = traffic.dropped_full, traffic.dropped_too_large, traffic.refused_inbound
    if link is not None:
        session = link.session
        full += session.outbox.dropped_msgs
        large += session.sender.refused_too_large
        refused += session.refused_inbound
    metered = links.metered.get(state.name)
    expiry_s = links.token_expiry_s.get(state.name, lambda: 0)()
    return LinkStatus(
        name=state.name,
        account=state.account,
        role="spoke" if state.solicited else "hub",
        state=_STATES[state.phase],
        url=state.address,
        since=ns_to_rfc3339(state.since_ns),
        age_s=max(0.0, (now_ns - state.since_ns) / 1e9),
        attempts=state.attempts,
        next_attempt_in_s=max(0.0, (state.next_attempt_ns - now_ns) / 1e9) if state.next_attempt_ns else None,
        rtt_ms=None if state.rtt_s is None else state.rtt_s * 1e3,
        last_error=state.last_error or None,
        remedy=state.remedy or None,
        peer_domain=state.peer_domain or None,
        in_msgs=traffic.in_msgs,
        out_msgs=traffic.out_msgs,
        in_bytes=traffic.in_bytes,
        out_bytes=traffic.out_bytes,
        wire_in_bytes=traffic.wire_in_bytes,
        wire_out_bytes=traffic.wire_out_bytes,
        queued_bytes=0 if link is None else link.backlog,
        dropped={"full": full, "too_large": large},
        refused=refused,
        compression=None if link is None or not link.established else link.session.compression,
        waiting=state.waiting or None,
        metered=None if metered is None else metered(),
        twin=_twin(state, now_ns),
        remote_account=state.remote_account or None,
        peer_name=state.peer_name or None,
        credentials_expire=ns_to_rfc3339(expiry_s * 10**9) if expiry_s else None,
        credentials_left_s=expiry_s - now_ns / 1e9 if expiry_s else None,
        denied_downstream=[] if link is None or not link.established else link.denied_downstream,
        denied_sourcing=[] if link is None or not link.established else link.denied_sourcing,
    )


def _twin(state: LinkState, now_ns: int) -> str | None:
    """Return the server that claims the same domain, as seen lately: by refused connections, or by the peer's interest."""
    lasts = state.twin_by_interest or now_ns - state.twin_ns < TWIN_LASTS_NS
    return state.twin if state.twin and lasts else None


def _leaf(link: LeafConnection, query: LeafzQuery) -> Json:
    link.note_rtt()
    state, start = link.state, link.counts_at_start
    entry: Json = {
        "id": link.cid,
        "name": state.peer_name,
        "is_spoke": state.is_spoke,
        "account": link.account_name,
        "ip": link.peer.host,
        "port": link.peer.port,
        "in_msgs": state.traffic.in_msgs - start.in_msgs,
        "out_msgs": state.traffic.out_msgs - start.out_msgs,
        "in_bytes": state.traffic.in_bytes - start.in_bytes,
        "out_bytes": state.traffic.out_bytes - start.out_bytes,
        "subscriptions": len(link.peer_interest.subs),
        "compression": link.session.compression,
    }
    if state.is_isolated:
        entry["is_isolated"] = True
    if state.rtt_s is not None:
        entry["rtt"] = f"{state.rtt_s * 1e3:.3f}ms" if state.rtt_s >= 1e-3 else f"{state.rtt_s * 1e6:.0f}µs"
    if query.subscriptions:
        entry["subscriptions_list"] = [subject.decode("utf-8", "replace") for subject, _ in link.peer_interest.subs]
    return entry
