"""The delay before the next attempt: exponential backoff with full jitter.

After a power cut or a cell tower's return a whole fleet connects at the same moment. Full jitter (a uniform draw
between zero and the current ceiling) spreads the attempts evenly. The ceiling doubles with each failure up to `cap_s`,
so that a hub that is down is not overloaded and one that returns is found soon.
"""

from __future__ import annotations

import random

from msgspec import Struct


class Backoff(Struct):
    """Delays in seconds between attempts; `base_s` is the first ceiling, `cap_s` the last."""

    base_s: float
    cap_s: float
    rng: random.Random
    failures: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.cap_s:
            raise ValueError(f"backoff needs 0 < base_s <= cap_s, not {self.base_s} and {self.cap_s}")

    @property
    def ceiling_s(self) -> float:
        """The longest delay that `next_delay_s` can return now."""
        # 2**64 is past any cap; the bound keeps the exponent from growing over weeks offline.
        return float(min(self.cap_s, self.base_s * 2 ** min(self.failures, 64)))

    def next_delay_s(self) -> float:
        """Count one failure and return the delay before the next attempt."""
        delay_s = self.rng.uniform(0.0, self.ceiling_s)
        self.failures += 1
        return delay_s

    def reset(self) -> None:
        """Start again from the first ceiling after a success."""
        self.failures = 0
