"""How much bulk to hand to the transport at once, so that a PONG or an interest change never waits long behind it.

What has been given to the kernel cannot be overtaken any more. A slice is therefore sized to take about `target_s` on the wire: 4 KiB on
a 50 kbit/s radio is already most of a second, while on loopback anything below hundreds of KiB only costs system calls.

The size follows how long full slices take. A slice that vanished into an empty buffer says nothing about the wire, so the size at most
doubles from one slice to the next, while it shrinks at once: a link that turns slow has at most one slice too many under way.
"""

from __future__ import annotations

SLICE_BYTES_MIN = 4 * 1024
SLICE_BYTES_MAX = 512 * 1024
# Before anything is known of the link: two seconds at 50 kbit/s, and not many system calls on a fast one.
SLICE_BYTES_FIRST = 16 * 1024


class SliceSizer:
    """Bytes of the next slice, from how long the previous ones took."""

    __slots__ = ("slice_bytes", "target_s")

    def __init__(self, target_s: float = 0.25) -> None:
        self.target_s = target_s
        self.slice_bytes = SLICE_BYTES_FIRST

    def sent(self, size_bytes: int, elapsed_s: float) -> None:
        """`size_bytes` were taken by the transport in `elapsed_s`. Sends well below a slice are not looked at."""
        if size_bytes * 2 < self.slice_bytes:
            return
        fitting = size_bytes * self.target_s / max(elapsed_s, 1e-6)
        self.slice_bytes = int(max(SLICE_BYTES_MIN, min(fitting, self.slice_bytes * 2, SLICE_BYTES_MAX)))
