"""The size of the slices passed to the transport, so that a PONG or an interest change never waits long behind one.

Bytes in the kernel cannot be overtaken. A slice is therefore sized to take about `target_s` on the wire: 4 KiB on a 50
kbit/s radio is already most of a second, while on loopback anything below hundreds of KiB only costs system calls.

The size follows the duration of full slices. A slice that fits into an empty buffer is no measure of the wire, so the
size at most doubles from one slice to the next, while it shrinks at once: a link that turns slow has at most one slice
too many in flight.
"""

from __future__ import annotations

SLICE_BYTES_MIN = 4 * 1024
SLICE_BYTES_MAX = 512 * 1024
# The initial size: two seconds at 50 kbit/s, and few system calls on a fast link.
SLICE_BYTES_FIRST = 16 * 1024


class SliceSizer:
    """The size of the next slice in bytes, from the duration of the previous ones."""

    __slots__ = ("slice_bytes", "target_s")

    def __init__(self, target_s: float = 0.25) -> None:
        self.target_s = target_s
        self.slice_bytes = SLICE_BYTES_FIRST

    def sent(self, size_bytes: int, elapsed_s: float) -> None:
        """Account for `size_bytes` that the transport accepted in `elapsed_s`. Much smaller sends are ignored."""
        if size_bytes * 2 < self.slice_bytes:
            return
        fitting = size_bytes * self.target_s / max(elapsed_s, 1e-6)
        self.slice_bytes = int(max(SLICE_BYTES_MIN, min(fitting, self.slice_bytes * 2, SLICE_BYTES_MAX)))
