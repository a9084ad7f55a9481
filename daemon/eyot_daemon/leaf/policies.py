"""The policies of `eyot { sync { } }` at one leaf link: what may leave over it, how much of it may wait, and when the link ends.

The gate (`sync_control.py`) knows windows, rates and budgets; here they meet the link: its lanes, the timer that looks again, its end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eyot_daemon.config.leaf import RemoteOptions
from eyot_daemon.router.sync_control import LinkGate
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.policy.stream_gate import FULL, LOOK_AGAIN_S, Hold

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

#: Of one stream so much waits for a link before its consumers pause, bytes: twice what may be under way.
STREAM_BACKLOG_MIN = 16 * 1024
STREAM_BACKLOG_MAX = 1 << 20
STREAM_BACKLOG_WINDOWS = 2
#: On a metered link a copy hears a heartbeat so often, seconds. It asked for one a second; Eyot's misses them after five, nats-server's
#: after ten.
HEARTBEAT_METERED_S = 3.0
_HEARTBEAT_EARLY_S = 0.5
_HEARTBEAT = b"NATS/1.0 100 Idle"
_STALLED = b"Nats-Consumer-Stalled"
_OF_COPIES = (b"$JS.M.", b"$JS.S.")
_HEARTBEATS_MAX = 1024


class LinkPolicies:
    """What the policies make of one link. `remote` is None for accepted links."""

    __slots__ = ("_heartbeats", "_link", "_timer", "counts_beneath", "gate")

    def __init__(self, link: LeafConnection, remote: RemoteOptions | None) -> None:
        self._link = link
        self.gate = LinkGate(link.links.broker.sync, link.account_name, remote)
        self._timer: TimerHandle | None = None
        #: What crosses is counted beneath TLS or WebSocket, where it is more.
        self.counts_beneath = False
        # When a heartbeat last went out, by deliver subject.
        self._heartbeats: dict[bytes, float] = {}

    def bind(self, account: str) -> None:
        """The link is established for this account."""
        self.gate.bind(account)
        self._look_in(0.0)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def crossed(self, size: int) -> None:
        """The session's bytes were written or read."""
        if size and not self.counts_beneath:
            self.on_wire(size)

    def on_wire(self, size: int) -> None:
        """Bytes crossed: a metered link may have none left. It ends in a turn of its own."""
        if self.gate.crossed(size) is not None and not self._link.closed:
            self._look_in(0.0)

    def spares(self, subject: bytes, header: bytes) -> bool:
        """Is this the heartbeat of a copy that can do without it, because the link is metered and it heard one lately?"""
        if not header.startswith(_HEARTBEAT) or _STALLED in header or not subject.startswith(_OF_COPIES):
            return False
        if self.gate.meter is None:
            return False
        now = self._link.links.broker.clock.monotonic()
        if now - self._heartbeats.get(subject, -math.inf) < HEARTBEAT_METERED_S - _HEARTBEAT_EARLY_S:
            return True
        if len(self._heartbeats) >= _HEARTBEATS_MAX:
            self._heartbeats.clear()
        self._heartbeats[subject] = now
        return False

    def hold(self, stream: bytes) -> Hold | None:
        """What keeps deliveries of a stream back: a policy, or that enough of it waits here already."""
        lanes = self._link.session.outbox.streams
        if lanes:
            if lanes.waiting(stream) >= self._backlog_max or lanes.bytes > lanes.bytes_max // 2:
                return FULL
            if lanes.outranked(self.gate.stream(stream).policy.priority):
                return FULL
        return self.gate.hold(stream)

    def allowance(self, stream: bytes) -> int:
        """Bytes of a stream that may be queued before its gate is asked again."""
        waits = self._link.session.outbox.streams.waiting(stream)
        return max(0, min(self.gate.allowance(stream), self._backlog_max - waits))

    @property
    def _backlog_max(self) -> int:
        wanted = self._link.session.window.window * STREAM_BACKLOG_WINDOWS
        return min(STREAM_BACKLOG_MAX, max(STREAM_BACKLOG_MIN, wanted))

    def _look_in(self, seconds: float) -> None:
        self.stop()
        self._timer = self._link.links.broker.timers.call_later(seconds, self._check_policies)

    def _check_policies(self) -> None:
        """Is the link within its windows and its budget? Asked again at least every `LOOK_AGAIN_S`."""
        self._timer = None
        link = self._link
        if link.closed:
            return
        hold = self.gate.link_hold()
        if hold is not None:
            link.end_for_now(hold.reason)
        elif self.gate.is_restricted:
            left_s = self.gate.ends_at_s() - link.links.broker.clock.now_ns() / 1e9
            self._look_in(min(LOOK_AGAIN_S, max(0.1, left_s)))
