"""Keeps what the daemon writes to flash near a budget, by the time that commits wait for each other.

Most of what a small message costs is its flush: whole blocks of the journal, and the pages of LMDB behind it. Messages that
share a flush share that cost. The window grows while the budget is exceeded, and shrinks when there is credit again.
"""

from __future__ import annotations

from typing import Final

#: Between two steps.
STEP_S: Final = 60.0
#: The first window of a budget that is exceeded.
WINDOW_S_FIRST: Final = 0.02
#: Credit that may be saved up: a burst of this long at the budget's rate is not paced.
CREDIT_S: Final = 3600.0
_DAY_S: Final = 86_400.0


class FlashPacer:
    """One budget's state. Begins with full credit, so that a start, which writes more, is not paced."""

    def __init__(self) -> None:
        self.window_s = 0.0
        self._credit: float | None = None  # bytes
        self._written: int | None = None
        self._at_s = 0.0

    def step(self, now_s: float, written: int | None, budget: int, window_s_max: float) -> float:
        """Return the window, seconds, after `written` bytes since the start of the process.

        `now_s`: monotonic. `budget`: bytes a day, 0 for none. Without a budget, or where the kernel does not count, there is
        no window.
        """
        if not budget or written is None:
            self.window_s, self._credit, self._written = 0.0, None, None
            return 0.0
        rate = budget / _DAY_S
        before, since_s = self._written, now_s - self._at_s
        self._written, self._at_s = written, now_s
        if self._credit is None or before is None:
            self._credit = rate * CREDIT_S
            return self.window_s
        spent = written - before
        # A debt is bounded like the credit: a budget that one burst exceeded is kept again after an hour.
        self._credit = max(-rate * CREDIT_S, min(rate * CREDIT_S, self._credit + rate * since_s - spent))
        if self._credit < 0 and spent > rate * since_s:
            self.window_s = max(WINDOW_S_FIRST, self.window_s * 2)
        elif self._credit > 0:
            self.window_s = self.window_s / 2 if self.window_s > WINDOW_S_FIRST else 0.0
        self.window_s = min(window_s_max, self.window_s)
        return self.window_s
