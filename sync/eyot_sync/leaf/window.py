"""Bounds the bulk in flight on a link, so that nothing urgent waits long behind it.

Written bytes cannot be overtaken, neither in this kernel's buffer nor in that of a modem or a proxy, where a slow link
can hide minutes of data. The amount that the peer is not known to have read is therefore bounded. A PING after the bulk
is the mark. Its PONG confirms that everything before it arrived, the time it needed, and thereby the link's rate. The
window is what the link carries in its shortest round trip plus `TARGET_S`: enough to keep it busy, and no more.

A message larger than the window leaves alone, and the link would rest until it is answered. The next one may follow as
soon as the bytes in flight are expected to arrive within `TARGET_S`: then nothing urgent waits for more than one such
message and that.

A fast link gets a window that never limits it; the first `WINDOW_FIRST` bytes reveal a slow one. Time is an argument
(monotonic seconds). PINGs of other kinds pass through here, too, since PONGs answer in order.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

#: How long data may wait on the link beyond its round trip, seconds.
TARGET_S = 0.5
#: Before anything is known: under three seconds on 50 kbit/s.
WINDOW_FIRST = 16 * 1024
WINDOW_MIN = 4 * 1024
WINDOW_MAX = 64 << 20
#: Marks in a window: the granularity of answers.
_MARKS = 4
#: A message worth this many round trips leaves the link idle for less than a tenth of the time.
_RESTS = 9
#: Rates that are remembered; the highest of them counts.
_RATES = 10
#: A smaller sample gives no rate.
_SAMPLE_MIN = 512
#: The assumed rate of an unmeasured link (bytes per second) beyond the first `_UNMEASURED_FREE` bytes.
_RATE_UNMEASURED = 4096.0
_UNMEASURED_FREE = 2 * WINDOW_FIRST
#: Silence is tolerated for this part of the time that the bytes in flight need.
_PATIENCE_FREE_S = 3.0


class _Mark(NamedTuple):
    """A PING as a mark: the bytes sent and answered before it.

    Also since when the link is busy with the difference, and whether the window was at least half full.
    """

    sent: int
    answered: int
    at: float
    since: float
    full: bool


class LinkWindow:
    """The bytes in flight on one link, and their limit. `rate`: the peer's measured bytes per second, 0: unknown."""

    __slots__ = (
        "_answered",
        "_busy_since",
        "_free_at",
        "_marks",
        "_oversize",
        "_rates",
        "_sent",
        "_since_mark",
        "rate",
        "rtt_min_s",
        "rtt_s",
        "window",
    )

    def __init__(self) -> None:
        self.window = WINDOW_FIRST
        self.rate = 0.0
        self.rtt_s: float | None = None
        self._sent = 0
        self._answered = 0
        self._since_mark = 0
        # The largest message under way that does not fit into the window.
        self._oversize = 0
        # Since the last answer, or since there is something under way.
        self._busy_since = 0.0
        # When everything in flight is expected to have left.
        self._free_at = -math.inf
        self._marks: deque[_Mark] = deque()
        self._rates: deque[float] = deque(maxlen=_RATES)
        # For this connection, never reset: while the link is busy every later round trip includes our own bytes.
        self.rtt_min_s = math.inf

    @property
    def under_way(self) -> int:
        """Return the bytes that the peer is not known to have read."""
        return self._sent - self._answered

    def room(self, now: float) -> int:
        """Return the bytes that may be sent now: at most a mark's distance, so that answers come while the rest is in flight."""
        window = self.window
        if now >= self.room_at:
            window += self._oversize
        return max(0, min(window - self.under_way, self.window // _MARKS))

    @property
    def room_at(self) -> float:
        """When another message may follow one that is larger than the window; infinity: not before an answer.

        Where the link rests for less than a tenth of the time in between, it is left to rest.
        """
        if not 0 < self._oversize < _RESTS * self.rate * self.rtt_min_s:
            return math.inf
        return self._free_at - TARGET_S

    @property
    def patience_s(self) -> float:
        """Return how much longer the peer may be silent, because it must read what precedes the oldest mark before it answers.

        Bytes sent since do not count: they would excuse any silence little by little.
        """
        ahead = (self._marks[0].sent if self._marks else self._sent) - self._answered
        if self.rate:
            return max(0.0, 2 * ahead / self.rate - _PATIENCE_FREE_S)
        return max(0, ahead - _UNMEASURED_FREE) / _RATE_UNMEASURED

    def sent(self, size: int, now: float) -> bool:
        """`size` bytes are on their way. True: a PING must follow them (`marked`)."""
        if not self.under_way:
            self._busy_since = now
        self._sent += size
        self._since_mark += size
        if size > self.window:
            self._oversize = max(self._oversize, size)
        if self.rate:
            self._free_at = max(self._free_at, now) + size / self.rate
        return self._since_mark * _MARKS >= self.window

    def marked(self, now: float) -> None:
        """Note a PING after the bytes sent so far."""
        self._since_mark = 0
        full = self.under_way * 2 >= self.window
        self._marks.append(_Mark(self._sent, self._answered, now, self._busy_since, full))

    def answered(self, now: float) -> float | None:
        """Process a PONG: return the round trip in seconds; None without a pending PING."""
        if not self._marks:
            return None
        mark = self._marks.popleft()
        rtt_s = self.rtt_s = now - mark.at
        self._answered = mark.sent
        self._busy_since = now
        self.rtt_min_s = min(self.rtt_min_s, rtt_s)
        taken = mark.sent - mark.answered
        if taken >= _SAMPLE_MIN:
            self._measured(taken / max(now - mark.since, 1e-4), mark.full)
        if self.under_way <= self.window:
            self._oversize = 0
        if self.rate:
            self._free_at = now - self.rtt_min_s + self.under_way / self.rate
        return rtt_s

    def _measured(self, rate: float, full: bool) -> None:
        # With little in flight, a lower rate cannot be measured.
        if rate < self.rate and not full:
            return
        self._rates.append(rate)
        self.rate = max(self._rates)
        wanted = self.rate * (self.rtt_min_s + TARGET_S)
        self.window = int(max(WINDOW_MIN, min(wanted, WINDOW_MAX)))
