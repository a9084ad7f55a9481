"""The output of a link, slice by slice.

`out` holds at most one slice, so that the session's lanes decide as late as possible what is sent next. The size of the
next slice follows from the transport's time for the previous one, when it had to wait (`pacing.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.turn.clock import Clock
from eyot_sync.link.pacing import SliceSizer


class SlicedOutput:
    """The output buffer of one link. `take` returns the next slice, `on_slice` is called when its size changes (bytes)."""

    __slots__ = ("_clock", "_filled_at", "_filled_bytes", "_sizer", "_take", "on_slice", "out", "sent_bytes")

    def __init__(self, take: Callable[[int], bytes], clock: Clock) -> None:
        self.out = bytearray()
        self.on_slice: Callable[[int], None] | None = None
        self.sent_bytes = 0
        self._take = take
        self._clock = clock
        self._sizer = SliceSizer()
        self._filled_at = 0.0
        self._filled_bytes = 0

    @property
    def slice_bytes(self) -> int:
        """The size of the next slice: about a quarter of a second on a link that was measured."""
        return self._sizer.slice_bytes

    def fill(self) -> bool:
        """Put the next slice in. False if nothing waits."""
        data = self._take(self._sizer.slice_bytes)
        self._filled_bytes = len(data)
        if not data:
            return False
        self._filled_at = self._clock.monotonic()
        self.sent_bytes += len(data)
        self.out += data
        return True

    def refill(self) -> bool:
        """Measure a slice for which the transport had to wait, and append the next one."""
        if self._filled_bytes:
            before = self._sizer.slice_bytes
            self._sizer.sent(self._filled_bytes, self._clock.monotonic() - self._filled_at)
            after = self._sizer.slice_bytes
            # The socket option changes only when the difference is worth a system call.
            if self.on_slice is not None and not before // 2 < after < before * 2:
                self.on_slice(after)
        return self.fill()
