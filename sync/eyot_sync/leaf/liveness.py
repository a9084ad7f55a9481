"""Detection of dead peers: the PING schedule of a leaf link, and the limit of silence.

A half-open link (an expired NAT binding, a cut without RST) looks exactly like an idle one. Any received byte counts as
a sign of life. After a third of `silence_max_s` without one a PING is sent. After all of it, with at least one PING
sent meanwhile, the link is stale. nats-server's own schedule runs beside: a PING every `ping_interval_s`, the first
about a second after the link came up, at most `ping_max` of them unanswered.

Time is always an argument (monotonic seconds). A process that was itself suspended or starved for a while (a sleeping
laptop, a stalling flash) finds its timers late and its peer's answers unread in the kernel. A late tick therefore never
ends the link; it sends another PING.
"""

from __future__ import annotations

import math
import random
from enum import Enum

FIRST_PING_S = 1.0
FIRST_PING_JITTER = 0.2


class Pulse(Enum):
    """The action that `Liveness.tick` requests."""

    PING = "ping"
    STALE = "stale"


class Liveness:
    """The timers of one link.

    `always_ping`: the spoke side pings at each interval, the hub side only when it received nothing during the last
    one. `silence_max_s`: 0: only the `ping_interval_s` and `ping_max` schedule.
    """

    __slots__ = (
        "_always_ping",
        "_last_heard",
        "_last_ping",
        "_next_regular",
        "_outstanding",
        "_patience_s",
        "_ping_interval_s",
        "_ping_max",
        "_probe_s",
        "_silence_from",
        "_silence_max_s",
    )

    def __init__(
        self,
        now: float,
        *,
        ping_interval_s: float,
        ping_max: int,
        silence_max_s: float,
        always_ping: bool,
        rng: random.Random,
    ) -> None:
        self._ping_interval_s = ping_interval_s
        self._ping_max = ping_max
        self._silence_max_s = silence_max_s
        self._probe_s = silence_max_s / 3 if silence_max_s > 0 else math.inf
        self._always_ping = always_ping
        self._last_heard = now
        # Where the silence is counted from: the last byte, or later when this process itself was away.
        self._silence_from = now
        self._last_ping = -math.inf
        self._outstanding = 0
        self._patience_s = 0.0
        self._next_regular = now + min(FIRST_PING_S, ping_interval_s) * (1 + rng.uniform(0, FIRST_PING_JITTER))

    @property
    def next_deadline(self) -> float:
        """Time of the next `tick`, monotonic seconds."""
        if self._silence_max_s <= 0:
            return self._next_regular
        probe = max(self._last_heard, self._last_ping) + self._probe_s
        return min(self._next_regular, probe, self._stale_at)

    @property
    def _stale_at(self) -> float:
        # Computed in one way wherever it is compared: another order of the additions may round differently.
        return self._silence_from + self._silence_max_s + self._patience_s

    def heard(self, now: float) -> None:
        """Note received bytes."""
        self._last_heard = self._silence_from = now
        self._outstanding = 0

    def tick(self, now: float, patience_s: float = 0.0) -> Pulse | None:
        """Return the action for this time. `patience_s`: how much longer the peer may be silent because it has much to read."""
        self._patience_s = patience_s
        deadline = self.next_deadline
        if now < deadline:
            return None
        if now - deadline > min(self._probe_s, self._ping_interval_s):
            # One more probe's time to read what may wait in the kernel.
            self._silence_from = now - self._silence_max_s + min(self._probe_s, self._silence_max_s)
        elif self._is_stale(now):
            return Pulse.STALE
        regular_due = now >= self._next_regular
        wanted = regular_due and (self._always_ping or now - self._last_heard >= self._ping_interval_s)
        if regular_due:
            self._next_regular = now + self._ping_interval_s
        if wanted or now >= max(self._last_heard, self._last_ping) + self._probe_s:
            self.pinged(now)
            return Pulse.PING
        return None

    def pinged(self, now: float) -> None:
        """Note a sent PING."""
        self._outstanding += 1
        self._last_ping = now

    def _is_stale(self, now: float) -> bool:
        if self._silence_max_s > 0 and now >= self._stale_at:
            return True
        return self._outstanding >= self._ping_max and now >= self._next_regular + self._patience_s
