"""When pending messages fall due for redelivery: a calendar of a few hundred buckets.

A consumer may hold a million unacknowledged messages; each has a due time, most are acknowledged long before it. A
heap would keep a dead entry per acknowledged message until its due time; a scan would touch every pending message at
every expiry. Here a due time is rounded up to a tick, one set of stream sequences per tick, and an acknowledged
message leaves its set at once. The tick grows with the distance (1/512 of it, at least 5 ms), so there are never more
than about a thousand live buckets, and nothing falls due early.

Times are seconds of the monotonic clock, handed in.
"""

import math
from collections.abc import Iterable

#: The finest distinction between due times, seconds.
TICK_S_MIN = 0.005
#: Buckets per distance: a message due in 30 s is redelivered at most 30/512 s late.
TICKS_PER_DISTANCE = 512


class DueTable:
    """Stream sequences by due time. Every sequence is in at most one bucket; the caller keeps the bucket's key."""

    __slots__ = ("_buckets", "_earliest")

    def __init__(self) -> None:
        self._buckets: dict[float, set[int]] = {}
        self._earliest = math.inf

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    @staticmethod
    def key_for(now: float, wait_s: float) -> float:
        """The bucket of what falls due `wait_s` from now: the next tick at or after it."""
        tick = wait_s / TICKS_PER_DISTANCE
        if tick < TICK_S_MIN:
            tick = TICK_S_MIN
        else:
            # A power of two, so that nearby distances share their buckets.
            tick = TICK_S_MIN * 2.0 ** math.ceil(math.log2(tick / TICK_S_MIN))
        return math.ceil((now + wait_s) / tick) * tick

    def add(self, key: float, seqs: Iterable[int]) -> None:
        """Put `seqs` into the bucket `key` (a value of `key_for`)."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = set(seqs)
            if key < self._earliest:
                self._earliest = key
        else:
            bucket.update(seqs)

    def discard(self, key: float, seq: int) -> None:
        """Take `seq` out of bucket `key`; unknown keys and sequences are ignored."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.discard(seq)
            if not bucket:
                del self._buckets[key]
                if key == self._earliest:
                    self._earliest = math.nan

    @property
    def earliest(self) -> float:
        """The earliest bucket's time; infinity when nothing is pending."""
        if self._earliest != self._earliest:
            self._earliest = min(self._buckets, default=math.inf)
        return self._earliest

    def pop_due(self, now: float) -> list[int]:
        """Every sequence whose time has come, ascending; they leave the table."""
        due: list[int] = []
        while self.earliest <= now:
            due.extend(self._buckets.pop(self._earliest))
            self._earliest = math.nan
        due.sort()
        return due

    def clear(self) -> None:
        self._buckets.clear()
        self._earliest = math.inf
