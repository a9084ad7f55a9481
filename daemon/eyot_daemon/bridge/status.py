"""Bridges on the status pages: among the links of `/eyot/status`, with the role `bridge`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_sync.link.state import LinkPhase
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import LinkStatus, SyncStatus

if TYPE_CHECKING:
    from eyot_daemon.bridge.bridge import Bridge

ROLE = "bridge"
MISSING_REMEDY = "create it, or name another one in the bridge's streams"
_STATES = {LinkPhase.DIALING: "connecting", LinkPhase.HANDSHAKE: "connecting"}


def bridge_status(bridge: Bridge) -> LinkStatus:
    """Return a bridge as a link. `dropped`: messages that were not forwarded; `refused`: publishes not taken in."""
    state, counters = bridge.state, bridge.counters
    now_ns = bridge.broker.clock.now_ns()
    traffic = state.traffic
    missing = bridge.missing()
    error = state.last_error or (f"no stream {', '.join(missing)}" if missing else "")
    remedy = state.remedy or (MISSING_REMEDY if missing else "")
    return LinkStatus(
        name=state.name,
        account=state.account,
        role=ROLE,
        state=_STATES.get(state.phase, state.phase.value),
        url=state.address,
        since=ns_to_rfc3339(state.since_ns),
        age_s=max(0.0, (now_ns - state.since_ns) / 1e9),
        attempts=state.attempts,
        next_attempt_in_s=max(0.0, (state.next_attempt_ns - now_ns) / 1e9) if state.next_attempt_ns else None,
        last_error=error or None,
        remedy=(remedy or None) if error else None,
        in_msgs=traffic.in_msgs,
        out_msgs=traffic.out_msgs,
        in_bytes=traffic.in_bytes,
        out_bytes=traffic.out_bytes,
        wire_in_bytes=traffic.wire_in_bytes,
        wire_out_bytes=traffic.wire_out_bytes,
        queued_bytes=bridge.queued_bytes,
        dropped={reason: count for reason, count in counters.skipped.items() if reason != "own"},
        refused=counters.refused,
        waiting=state.waiting or None,
        metered=bridge.broker.sync.metered_status(bridge.options.remote),
        peer_name=state.peer_version if state.is_up else None,
    )


def missing_streams(bridge: Bridge) -> list[SyncStatus]:
    """Return a bridge's streams that do not exist: a name that is misspelled must not look like one that is confirmed."""
    return [
        SyncStatus(
            account=bridge.state.account,
            stream=name,
            peer=bridge.options.name,
            kind=ROLE,
            linked=bridge.state.is_up,
            uncertain=True,
            error=f"no stream {name}",
            remedy=MISSING_REMEDY,
        )
        for name in bridge.missing()
    ]
