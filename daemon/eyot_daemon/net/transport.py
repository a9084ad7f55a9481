"""Connections as their transports see them, and transports as their connections see them.

A session (a client connection, a leaf link) is sans-IO: it receives `received(data)`, gathers output in `out`, and asks
its transport to send at the end of the turn. There are three transports:

- `SocketTransport` (`net/socket_transport.py`), for plain TCP and Unix sockets.
- `TlsTransport` (`net/tls_transport.py`), the same for TLS over such a socket.
- `StreamTransport` (`net/stream_transport.py`), for any `trio.abc.Stream`.

`out` is bounded: more than `max_pending` bytes, or no progress for `write_deadline_s`, makes the session a slow
consumer (`session.slow_consumer`), which closes it. When this side closes a connection, the peer gets a moment to read
the last bytes (`-ERR ...`), and its input is drained, so that a reset does not destroy them.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.readers import Readers

#: The most bytes of one read; bounds the work of one turn.
READ_SIZE = 256 * 1024
#: The most bytes of one read before the peer is authenticated: bounds the memory that an unknown peer can use.
FIRST_READ_SIZE = 16 * 1024
#: How long a peer may take to read the last bytes of a closed connection: some round trips of a slow link.
LINGER_S = 2.0

#: What a connection may have unsent even if all connections together have too much, bytes.
SHARE_BYTES = 256 * 1024
#: A peer with more than this share of `max_pending` waiting delays its publishers by this long per read.
STALL_SHARE = 0.75
STALL_S = 0.01

#: The longest that a client waits at a closed gate before one more read: it may have sent PING, or disconnected.
HOLD_S = 2.0
#: The longest wait of a leaf link, which carries messages of others and must detect a dead peer within seconds.
LEAF_HOLD_S = 0.25

SLOW_PENDING = "Slow Consumer (Pending Bytes)"
SLOW_DEADLINE = "Slow Consumer (Write Deadline)"
CLIENT_CLOSED = "Client Closed"
READ_ERROR = "Read Error"
WRITE_ERROR = "Write Error"
INTERNAL_ERROR = "Internal Error"
SERVER_SHUTDOWN = "Server Shutdown"


class Session(Protocol):
    """A connection that a transport serves."""

    out: bytearray
    closed: bool

    @property
    def close_reason(self) -> str:
        """Why it ended, in the words of the pages; without meaning before that."""
        ...

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Process received bytes, in memory that the next read reuses. The transport ends the turn afterwards."""
        ...

    def lost(self, reason: str) -> None:
        """Handle the loss of the connection (closed by the peer, or failed). Called once, unless the session closed it itself."""
        ...

    def slow_consumer(self, reason: str) -> None:
        """Handle a peer that does not read what is sent to it: count it and close."""
        ...

    def refill(self) -> bool:
        """Refill `out`, which is empty after a backlog; return whether there is something to send again.

        A session with bulk data in slices (a leaf link) appends the next slice.
        """
        ...

    def renew_out(self) -> None:
        """Put a new buffer in the place of `out`, which is empty and was very large.

        The C library has mapped such a block on its own, and goes on doing so however small the block becomes: every
        turn would map and unmap its pages.
        """
        ...


class Transport(Protocol):
    """A transport as its session sees it."""

    @property
    def backlog(self) -> int:
        """Bytes that neither the kernel nor the stream has accepted yet."""
        ...

    def input_waits(self) -> bool:
        """Return whether the peer sent bytes that were not read yet.

        Checked before silence counts against a peer: a process that lags with reading must not blame its peers.
        """
        ...

    def send(self) -> None:
        """Send what can be sent now from the front of the session's `out`; the rest follows automatically."""
        ...

    def close(self, *, linger: bool) -> None:
        """Stop reading and close; with `linger` the peer gets a moment to read what is still in `out`."""
        ...

    def hold(self, gate: Gate) -> None:
        """Wait at the gate before the next read."""
        ...

    def admit(self, message_bytes_max: int) -> None:
        """Raise the limits for an authenticated peer, which may send messages of up to this many bytes."""
        ...

    async def run(self, session: Session) -> None:
        """Serve the session until the connection is closed. The creator of the transport must run it, closed or not."""
        ...


@runtime_checkable
class MessageStream(Protocol):
    """A stream of messages (a WebSocket), which may expand when decompressed, and with a last word for its end."""

    def closing_for(self, reason: str) -> None:
        """Set what the peer is told at the end, from the session's reason."""
        ...

    def allow_messages(self, bytes_max: int) -> None:
        """Set the largest decompressed size of a message."""
        ...


class TransportLimits:
    """Bounds of one kind of connection, shared by all its transports; a reload changes them in place.

    `max_pending`: unsent bytes of one connection. `max_pending_total`: of all together, 0 for no bound.
    """

    __slots__ = ("hold_s", "lagging", "max_pending", "max_pending_total", "write_deadline_s")

    def __init__(
        self, max_pending: int, write_deadline_s: float, hold_s: float = HOLD_S, max_pending_total: int = 0
    ) -> None:
        self.max_pending = max_pending
        self.max_pending_total = max_pending_total
        self.write_deadline_s = write_deadline_s
        self.hold_s = hold_s
        #: with more than `SHARE_BYTES` unsent at its last turn
        self.lagging: set[Transport] = set()

    def are_exceeded(self, transport: Transport, pending: int) -> bool:
        """Return whether a transport with this many unsent bytes is to be closed.

        Over the total, a connection that lags is closed when more is sent to it. `SHARE_BYTES` it has in any case: those that
        read well are never closed because of others.
        """
        if pending > self.max_pending:
            return True
        if not self.max_pending_total or pending <= SHARE_BYTES:
            return False
        self.lagging.add(transport)
        return sum([each.backlog for each in self.lagging]) > self.max_pending_total


class TurnEnd(Protocol):
    """The broker as a transport sees it.

    `flush` ends the turn. A destination that lags asks the connection of the present turn to wait before its next read.
    `readers` read from sockets.
    """

    @property
    def readers(self) -> Readers: ...

    def flush(self) -> None: ...

    def ask_to_stall(self, seconds: float) -> None: ...

    def take_stall_s(self) -> float: ...

    def take_gate(self) -> Gate | None: ...
