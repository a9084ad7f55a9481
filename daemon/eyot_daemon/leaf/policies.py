"""The policies of `eyot { sync { } }` at one leaf link: what may leave, how much may wait, and when the link ends.

The gate (`sync_control.py`) knows windows, rates and budgets. This module applies them to the link: its lanes, the
timer that checks again, and its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from eyot_daemon.config.leaf import RemoteOptions
from eyot_daemon.router.core import BrokerCore
from eyot_daemon.router.sync_control import LinkGate
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.leaf.session import LeafSession
from eyot_sync.policy.stream_gate import FULL, LOOK_AGAIN_S, Hold

#: Bytes of one stream that may wait for a link before its consumers pause: twice what may be in flight.
STREAM_BACKLOG_MIN = 16 * 1024
STREAM_BACKLOG_MAX = 1 << 20
STREAM_BACKLOG_WINDOWS = 2
#: On a metered link, interval of heartbeats to a mirror or source, seconds. It requested one a second; Eyot's misses them after five, nats-server's
#: after ten.
HEARTBEAT_METERED_S = 3.0
_HEARTBEAT_EARLY_S = 0.5
_HEARTBEAT = b"NATS/1.0 100 Idle"
_STALLED = b"Nats-Consumer-Stalled"
_SOURCING_SUBJECTS = (b"$JS.M.", b"$JS.S.")
_HEARTBEATS_MAX = 1024


class LinkPolicies:
    """The policies of one link. `remote` is None for accepted links; `end` ends the link for a reason."""

    __slots__ = ("_broker", "_end", "_heartbeats", "_session", "_stopped", "_timer", "counts_beneath", "gate")

    def __init__(
        self,
        broker: BrokerCore,
        session: LeafSession,
        account: str,
        remote: RemoteOptions | None,
        end: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._session = session
        self._end = end
        self._stopped = False
        self.gate = LinkGate(broker.sync, account, remote)
        self._timer: TimerHandle | None = None
        #: Crossing bytes are counted below TLS or WebSocket, where there are more.
        self.counts_beneath = False
        # When a heartbeat last went out, by deliver subject.
        self._heartbeats: dict[bytes, float] = {}

    def bind(self, account: str) -> None:
        """Apply the policies of this account, for which the link is established."""
        self.gate.bind(account)
        self._look_in(0.0)

    def stop(self) -> None:
        """Stop when the link ends."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def crossed(self, size: int) -> None:
        """Count the session's bytes, read or written."""
        if size and not self.counts_beneath:
            self.on_wire(size)

    def on_wire(self, size: int) -> None:
        """Count bytes on the wire. A metered link that has used up its budget ends in a turn of its own."""
        if self.gate.crossed(size) is not None and not self._stopped:
            self._look_in(0.0)

    def spares(self, subject: bytes, header: bytes) -> bool:
        """Return whether a heartbeat may be left out: the link is metered, and the mirror or source received one recently."""
        if not header.startswith(_HEARTBEAT) or _STALLED in header or not subject.startswith(_SOURCING_SUBJECTS):
            return False
        if self.gate.meter is None:
            return False
        now = self._broker.clock.monotonic()
        if now - self._heartbeats.get(subject, -math.inf) < HEARTBEAT_METERED_S - _HEARTBEAT_EARLY_S:
            return True
        if len(self._heartbeats) >= _HEARTBEATS_MAX:
            self._heartbeats.clear()
        self._heartbeats[subject] = now
        return False

    def hold(self, stream: bytes) -> Hold | None:
        """Return the reason that holds back deliveries of a stream: a policy, or enough waiting data."""
        lanes = self._session.outbox.streams
        if lanes:
            if lanes.waiting(stream) >= self._backlog_max or lanes.bytes > lanes.bytes_max // 2:
                return FULL
            if lanes.outranked(self.gate.stream(stream).policy.priority):
                return FULL
        held = self.gate.hold(stream)
        if held is None and self.gate.meter is not None and self._budget_left(stream) <= 0:
            return FULL  # what waits may use up the budget: once it is sent, the budget tells
        return held

    def allowance(self, stream: bytes) -> int:
        """Return the bytes of a stream that may be queued before its gate is checked again."""
        waits = self._session.outbox.streams.waiting(stream)
        allowed = min(self.gate.allowance(stream), self._backlog_max - waits)
        if self.gate.meter is not None:
            allowed = min(allowed, self._budget_left(stream))
        return max(0, allowed)

    def _budget_left(self, stream: bytes) -> int:
        """Return the bytes of the budget that neither crossed the link nor wait for it."""
        return self.gate.budget_left(stream) - self._session.outbox.waiting_bytes

    @property
    def has_room(self) -> bool:
        """Whether consumers that found the link full may look again."""
        return self._session.outbox.streams.bytes <= self._backlog_max // 2

    @property
    def _backlog_max(self) -> int:
        wanted = self._session.window.window * STREAM_BACKLOG_WINDOWS
        return min(STREAM_BACKLOG_MAX, max(STREAM_BACKLOG_MIN, wanted))

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.timers.call_later(seconds, self._check_policies)

    def _check_policies(self) -> None:
        """Check the link's windows and budget; repeated at least every `LOOK_AGAIN_S`."""
        self._timer = None
        if self._stopped:
            return
        hold = self.gate.link_hold()
        if hold is not None:
            self._end(hold.reason)
        elif self.gate.is_restricted:
            left_s = self.gate.ends_at_s() - self._broker.clock.now_ns() / 1e9
            self._look_in(min(LOOK_AGAIN_S, max(0.1, left_s)))
