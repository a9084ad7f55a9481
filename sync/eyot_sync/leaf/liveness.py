"""Is the peer of a link still there? The PING schedule of a leaf link, and the judgement on silence.

A half-open link (a NAT binding that expired, a cut that sent no RST) looks exactly like an idle one. Any inbound byte is life; when
none arrives for a third of `silence_max_s` a PING goes out, and when none arrives for the whole of it, although at least one PING
was sent meanwhile, the link is stale. Beside that runs nats-server's own schedule: a PING every `ping_interval_s`, the first about a
second after the link came up, at most `ping_max` of them unanswered.

Time is an argument everywhere (monotonic seconds). A process that was itself stopped or starved for a while (a suspended laptop, a
flash that stalls) finds its timers late and its peer's answers still unread in the kernel: a late tick therefore never judges, it
asks again.
"""

from __future__ import annotations

import math
import random
from enum import Enum

FIRST_PING_S = 1.0
FIRST_PING_JITTER = 0.2


class Pulse(Enum):
    """What `Liveness.tick` asks for."""

    PING = "ping"
    STALE = "stale"


class Liveness:
    """The timers of one link.

    `always_ping`: the spoke side pings at each interval, the hub side only when it heard nothing during the last one.
    `silence_max_s`: 0 leaves only the `ping_interval_s` and `ping_max` schedule.
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
        """When `tick` has something to do again."""
        if self._silence_max_s <= 0:
            return self._next_regular
        probe = max(self._last_heard, self._last_ping) + self._probe_s
        return min(self._next_regular, probe, self._stale_at)

    @property
    def _stale_at(self) -> float:
        # Reckoned in one way wherever it is compared: another order of the sums may round to a moment later.
        return self._silence_from + self._silence_max_s + self._patience_s

    @property
    def last_heard(self) -> float:
        return self._last_heard

    def heard(self, now: float) -> None:
        """Some bytes arrived."""
        self._last_heard = self._silence_from = now
        self._outstanding = 0

    def tick(self, now: float, patience_s: float = 0.0) -> Pulse | None:
        """What is to be done at this time. `patience_s`: how much longer the peer may be silent because it has much to take."""
        self._patience_s = patience_s
        deadline = self.next_deadline
        if now < deadline:
            return None
        if now - deadline > min(self._probe_s, self._ping_interval_s):
            # One more probe's time to hear what may be waiting in the kernel.
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
        """A PING goes out."""
        self._outstanding += 1
        self._last_ping = now

    def _is_stale(self, now: float) -> bool:
        if self._silence_max_s > 0 and now >= self._stale_at:
            return True
        return self._outstanding >= self._ping_max and now >= self._next_regular + self._patience_s
