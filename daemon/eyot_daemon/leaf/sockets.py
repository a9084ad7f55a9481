"""Socket options of leaf links, which limit the kernel's buffer.

What the kernel has accepted cannot be overtaken. With `TCP_NOTSENT_LOWAT` it accepts at most a slice beyond what is
already on the wire, so that on a slow link a PONG waits behind one slice and not behind megabytes of socket buffer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

UNSENT_BYTES_MIN = 16 * 1024


def limit_unsent(sock: socket.socket) -> Callable[[int], None]:
    """Set up a socket; returns the function that follows changes of the slice size (bytes)."""
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def follow(slice_bytes: int) -> None:
        # Not every kernel and socket family supports the option; the link works without.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, max(UNSENT_BYTES_MIN, slice_bytes))

    follow(UNSENT_BYTES_MIN)
    return follow
