"""What a connection has to send, and its counters, in plain Python.

`FanOut` writes frames into an `OutBuffer`; at the end of a turn `send_out` sends what many connections got. `_out_buffer.pyx` is
the compiled twin.
"""

from __future__ import annotations

from typing import Any, Final

# A connection with more to send than this is not one of many that are sent their bytes together (compiled twin only). No destination
# gathers much more before it is flushed.
AT_ONCE_BYTES: Final = 1024 * 1024

# So many bytes for several connections are sent by two threads (compiled twin only): to wake the other one costs as much as sending a few.
SHARED_BYTES: Final = 64 * 1024


class Traffic:
    """Counters of messages and bytes (header and payload), in and out.

    Messages into streams, or to the daemon's own services, do not count as out.
    """

    __slots__ = ("in_bytes", "in_msgs", "out_bytes", "out_msgs")

    def __init__(self) -> None:
        self.in_msgs = 0
        self.in_bytes = 0
        self.out_msgs = 0
        self.out_bytes = 0


class OutBuffer(Traffic):
    """A client's connection as a destination of frames.

    `out`: bytes to send. `headers`: the client understands HMSG. `closed`: the connection accepts nothing any more.
    `dirty`: there are bytes to send, and the connection was announced to `mark_dirty`; `flush` sends them. `fd`: the socket, if
    frames may be written to it at once, behind what `out` holds; -1: never. The compiled twin writes long frames there, from
    the publisher's bytes, and copies into `out` what the kernel does not accept; then it resets `fd`. `waited_for`: somebody waits
    until `out` is sent, whom `flush` tells.
    """

    __slots__ = ("_flush_at", "closed", "dirty", "fd", "headers", "out", "waited_for")

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.headers = False
        self.closed = False
        self.dirty = False
        self.waited_for = False
        self.fd = -1
        self._flush_at = 0

    def flush(self) -> None:
        """Send what `out` holds."""


def send_out(dests: list[Any], at: int) -> int:
    """Send what connections from `at` on have in `out`, up to the first whose `flush` must do so; return where that one is.

    Here it is the first of all. The compiled twin writes to the sockets (`OutBuffer.fd`) without a function of Python for each, and stops at
    whatever is no open socket, has much to send, is waited for, or does not accept all of it. Sockets behind that one may have been sent theirs.
    """
    if at < 0:
        raise IndexError(at)
    return at
