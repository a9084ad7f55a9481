"""Decides whether a stream's messages may leave over a link now, and if not, when.

A consumer checks the gate before it reads messages from the log, so that held messages wait on flash and not in memory.
A gate considers the stream's windows and bandwidth and the link's budget. Times: monotonic seconds for rates, seconds
since the epoch for windows and budgets.
"""

from __future__ import annotations

import math
from datetime import datetime, tzinfo

from msgspec import Struct

from eyot_sync.policy.budget import Budget
from eyot_sync.policy.policy import PRIORITY_RESERVE, MeteredPolicy, StreamPolicy
from eyot_sync.policy.windows import Opening, Timetable

#: A held stream is checked again after this at the latest: clocks are set, configurations change.
LOOK_AGAIN_S = 30.0
UNLIMITED = 1 << 62


class Hold(Struct, frozen=True):
    """Why nothing may go, for people, and for how long at least (seconds)."""

    reason: str
    wait_s: float


#: A link or client has enough waiting data: not a policy; check again soon.
FULL = Hold("as much as it can take waits already", 0.0)


class TokenBucket:
    """Bytes that may leave, filling at `bytes_per_s` up to one second's worth. A message may overdraw it; the next one waits."""

    __slots__ = ("_balance", "_filled_at", "bytes_per_s")

    def __init__(self, bytes_per_s: int, now: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._balance = float(bytes_per_s)
        self._filled_at = now

    def balance(self, now: float) -> int:
        """Bytes that may leave now; negative: overdrawn."""
        rate = self.bytes_per_s
        self._balance = min(float(rate), self._balance + (now - self._filled_at) * rate)
        self._filled_at = now
        return int(self._balance)

    def wait_s(self, now: float) -> float:
        """Return how long the next message must wait; 0: it may leave now."""
        self.balance(now)
        return 0.0 if self._balance > 0 else -self._balance / self.bytes_per_s + 1e-6

    def spend(self, size: int) -> None:
        self._balance -= size


class StreamGate:
    """The gate of one stream on one link."""

    __slots__ = ("_bucket", "_timetable", "_tz", "policy")

    def __init__(self, policy: StreamPolicy, now: float, tz: tzinfo | None = None) -> None:
        self.policy = policy
        self._tz = tz
        self._timetable = Timetable(policy.windows, tz)
        self._bucket = TokenBucket(policy.bandwidth, now) if policy.bandwidth else None

    def opening(self, now_s: float) -> Opening:
        """Return the state of the stream's windows."""
        return self._timetable.at(now_s)

    def hold(self, now: float, now_s: float, meter: Meter | None = None) -> Hold | None:
        """Return the policy that holds the stream back; None: none does."""
        if self.policy.windows:
            found = self._timetable.at(now_s)
            if not found.is_open:
                return Hold(
                    f"outside its windows until {spoken_time(found.until_s, now_s, self._tz)}", found.until_s - now_s
                )
        if meter is not None:
            held = meter.hold(self.policy.priority, now_s)
            if held is not None:
                return held
        if self._bucket is not None:
            wait_s = self._bucket.wait_s(now)
            if wait_s > 0:
                return Hold(f"limited to {self.policy.bandwidth} bytes per second", wait_s)
        return None

    def allowance(self, now: float) -> int:
        """Return the bytes that the stream's rate lets go at once, before the next check."""
        return UNLIMITED if self._bucket is None else max(0, self._bucket.balance(now))

    def sent(self, size: int) -> None:
        """`size` bytes of the stream were handed to the link."""
        if self._bucket is not None:
            self._bucket.spend(size)


class Meter:
    """The budget of one remote's link, by its policy."""

    __slots__ = ("budget", "policy", "tz")

    def __init__(self, policy: MeteredPolicy, budget: Budget, tz: tzinfo | None = None) -> None:
        self.policy = policy
        self.budget = budget
        self.tz = tz

    def hold(self, priority: int, now_s: float) -> Hold | None:
        """Return the budget's limit for a stream of this priority."""
        left = self.budget.left_at(now_s)
        if left > self.policy.reserve or (left and priority >= PRIORITY_RESERVE):
            return None
        return self._hold("budget used up" if not left else "budget used up but for its reserve", now_s)

    def left(self, priority: int, now_s: float) -> int:
        """Bytes of the budget that are left for a stream of this priority."""
        left = self.budget.left_at(now_s)
        return left if priority >= PRIORITY_RESERVE else max(0, left - self.policy.reserve)

    def link_hold(self, now_s: float) -> Hold | None:
        """Return the budget's limit for the link as a whole."""
        if self.policy.used_up == "hold" or self.budget.left_at(now_s):
            return None
        return self._hold("budget used up", now_s)

    def _hold(self, what: str, now_s: float) -> Hold:
        until_s = self.budget.resets_at(now_s)
        return Hold(f"{what} until {spoken_day(until_s, self.tz)}", until_s - now_s)


def spoken_day(at_s: float, tz: tzinfo | None = None) -> str:
    """`1 December`."""
    at = datetime.fromtimestamp(at_s, tz)
    return f"{at.day} {_MONTHS[at.month - 1]}"


def spoken_time(at_s: float, now_s: float, tz: tzinfo | None = None) -> str:
    """`22:00`, with its weekday if that is not today."""
    if math.isinf(at_s):
        return "the configuration changes"
    at, today = datetime.fromtimestamp(at_s, tz), datetime.fromtimestamp(now_s, tz)
    clock = f"{at.hour:02d}:{at.minute:02d}"
    return clock if at.date() == today.date() else f"{_DAYS[at.weekday()]} {clock}"


_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
