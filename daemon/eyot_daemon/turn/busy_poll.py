"""Busy polling: asking for readable sockets again and again for a moment, before the processor may sleep.

An idle processor sleeps, and takes 20 to 50 us to wake up, on a virtual machine most of all. A request with its reply
waits for that twice in the broker, a publisher with one message in flight as often. While the next data follows within
`POLL_S`, not sleeping costs less time than the waking up, and hardly more of the processor.

It must not cost others anything, so it is used only if

- the last `QUICK_MIN` waits were short. A few messages a second, and a message with its commit and acknowledgement, are
  fewer;
- it nearly always finds something. After each time that it does not, four times as many short waits come first, up to
  `QUICK_MAX`, and half as many after each time that it does. Messages that come by chance, and not as answers, so have it only
  when they keep the processor busy anyway;
- little was read since the last wait. With many messages in flight, the clients and the committing thread need the
  processors, and what is found one by one is better handled together;
- the process may use more than one processor. On a single one the peer could not even answer.
"""

from __future__ import annotations

from typing import Final

from eyot_daemon.machine import processors

#: The longest time of busy polling, seconds, and the longest wait that counts as short: above a write with its flush on a fast disk.
POLL_S: Final = 0.0003
#: Short waits in a row before busy polling begins: at least, and at most.
QUICK_MIN: Final = 8
QUICK_MAX: Final = 2048
#: The most bytes read since the last wait.
LIGHT_BYTES: Final = 8 * 1024


class BusyPoll:
    """Decides before each wait for sockets whether it begins with busy polling."""

    __slots__ = ("_enabled", "_quick", "_quick_min")

    def __init__(self, processors_max: float | None = None) -> None:
        """`processors_max`: how many processors the process may use, None: as the system says."""
        self._enabled = (processors() if processors_max is None else processors_max) >= 2
        self._quick = 0  # short waits in a row
        self._quick_min = QUICK_MIN

    def is_due(self, read_bytes: int) -> bool:
        """Return whether the next wait begins with it; `read_bytes`: read since the last wait."""
        return self._quick >= self._quick_min and read_bytes <= LIGHT_BYTES and self._enabled

    def polled(self, found: bool) -> None:
        """Note whether busy polling found something."""
        self._quick_min = max(QUICK_MIN, self._quick_min // 2) if found else min(4 * self._quick_min, QUICK_MAX)

    def waited(self, seconds: float) -> None:
        """Note how long a wait took, with its busy polling."""
        self._quick = self._quick + 1 if seconds < POLL_S else 0
