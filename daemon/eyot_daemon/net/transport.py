"""Moves bytes between a socket and a session, without a task switch per message.

A session (a client connection, a leaf link) is sans-IO: it receives `received(data)`, gathers output in `out`, and asks
its transport to send at the end of the turn. There are three transports:

- `SocketTransport`, for plain TCP and Unix sockets: the broker's `Readers` call it when its non-blocking socket is
  readable. It reads into one buffer shared by all connections. The end of the turn sends the output; only on EAGAIN a
  drain task starts for that connection.
- `TlsTransport` (`net/tls_transport.py`), the same for TLS over such a socket.
- `StreamTransport`, for any `trio.abc.Stream` (WebSocket, in-memory links in tests): a reader and a writer task.

`out` is bounded: more than `max_pending` bytes, or no progress for `write_deadline_s`, makes the session a slow
consumer (`session.slow_consumer`), which closes it. When this side closes a connection, the peer gets a moment to read
the last bytes (`-ERR ...`), and its input is drained, so that a reset does not destroy them.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol, runtime_checkable

import trio

from eyot_daemon.net.heap import MAPPED_FROM, lazy_buffer
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.readers import Readers
from eyot_serving.broken_streams import cut_cycles
from eyot_wire.native import OutBuffer

log = logging.getLogger("eyot.transport")

#: The most bytes of one read; bounds the work of one turn.
READ_SIZE = 256 * 1024
#: The same while full reads bring messages of `LARGE_MESSAGE` bytes and more, of which a turn handles few, for few destinations: a
#: read of this size is handled in `LARGE_READ_S`. With many destinations the bytes would have left the processor's cache before the last
#: of them gets his.
LARGE_READ_SIZE = 1024 * 1024
LARGE_READ_S = 0.0015
LARGE_MESSAGE = 2048
#: What a read brings may take this long to handle, and everybody else waits meanwhile: after a longer one reads halve, down to
#: `FIRST_READ_SIZE`; when a quarter of it was enough they double again. Packets of two bytes cost as much as those of 200.
READ_S = 0.02
#: The most bytes of one read before the peer is authenticated: bounds the memory that an unknown peer can use.
FIRST_READ_SIZE = 16 * 1024
#: Reads through a `trio.abc.Stream`.
STREAM_READ_SIZE = 64 * 1024
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
class CompressedStream(Protocol):
    """A stream (a WebSocket) whose messages may expand when decompressed."""

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


_read_buffer = lazy_buffer(LARGE_READ_SIZE)


class SocketTransport:
    """One connected non-blocking socket. `spawn` starts a task in the nursery that owns the connection."""

    #: Frames may be written to the socket past the session's `out`.
    writes_through = True

    __slots__ = (
        "_call",
        "_closing",
        "_direct",
        "_draining",
        "_gate",
        "_limits",
        "_linger",
        "_read_size",
        "_read_size_max",
        "_seen_msgs",
        "_session",
        "_sock",
        "_spawn",
        "_stall_s",
        "_turn",
    )

    def __init__(
        self,
        sock: socket.socket,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        limits: TransportLimits,
        turn: TurnEnd,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._spawn = spawn
        self._limits = limits
        self._turn = turn
        self._session: Session | None = None
        self._direct: OutBuffer | None = None  # the session, if frames may be written past its `out`
        self._read_size = self._read_size_max = FIRST_READ_SIZE
        self._seen_msgs = 0  # messages of the session at the last full read
        self._draining = False
        self._closing = False
        self._linger = False
        self._stall_s = 0.0
        self._gate: Gate | None = None  # waited at before the next read
        self._call = trio.Event()  # wakes the task: to close, or to pause the peer

    @property
    def backlog(self) -> int:
        return 0 if self._session is None else len(self._session.out)

    def admit(self, message_bytes_max: int) -> None:
        self._read_size_max = READ_SIZE  # grown into: of requests to an API, the first read may already be dear

    def input_waits(self) -> bool:
        if self._closing or self._sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def send(self) -> None:
        session = self._session
        if session is None or self._closing:
            return
        out = session.out
        if not self._draining:
            if not out or self._push(session):
                return
            self._draining = True
            self._spawn(self._drain)
        pending = self.backlog
        if self._limits.are_exceeded(self, pending):
            session.slow_consumer(SLOW_PENDING)
        elif pending > self._limits.max_pending * STALL_SHARE:
            self._turn.ask_to_stall(STALL_S)

    def _push(self, session: Session) -> bool:
        """Hand `out` to the kernel once; True if everything went (or the connection turned out to be dead)."""
        pending = len(session.out)
        try:
            complete = self._send_some(session.out)
        except (BlockingIOError, InterruptedError):
            complete = False
        except OSError:
            session.lost(WRITE_ERROR)
            self.close(linger=False)
            return True
        if self._direct is not None:
            self._direct.fd = self._sock.fileno() if complete else -1
        if not complete:
            return False
        if pending >= MAPPED_FROM or self._draining:
            session.renew_out()
        return True

    def _send_some(self, out: bytearray) -> bool:
        """Hand `out` to the kernel once and remove what it accepted; True if that is everything. Raises OSError."""
        sent = self._sock.send(out)
        if sent < len(out):
            del out[:sent]
            return False
        out.clear()
        return True

    async def _drain(self) -> None:
        """Send the rest as the kernel accepts it; ends when everything is sent. The deadline applies to progress."""
        session = self._session
        assert session is not None
        try:
            while not self._closing and (self.backlog or session.refill()):
                with trio.move_on_after(self._limits.write_deadline_s or math.inf) as scope:
                    await trio.lowlevel.wait_writable(self._sock)
                if scope.cancelled_caught:
                    session.slow_consumer(SLOW_DEADLINE)
                    return
                self._push(session)
        except (trio.ClosedResourceError, OSError):
            return
        except Exception:
            # The task is one of the daemon's: an internal error ends this connection only.
            log.exception("connection failed")
            self.close(linger=False)
        finally:
            self._draining = False
            self._limits.lagging.discard(self)
            self._turn.flush()

    def close(self, *, linger: bool) -> None:
        if self._closing:
            return
        self._closing = True
        self._linger = linger
        if self._direct is not None:
            self._direct.fd = -1  # the number may soon be another socket's
            self._direct = None
        if self._session is not None:
            self._turn.readers.remove(self._sock)
            trio.lowlevel.notify_closing(self._sock)
            self._call.set()

    async def run(self, session: Session) -> None:
        self._session = session
        if self.writes_through and isinstance(session, OutBuffer) and not self._closing:
            self._direct = session
        try:
            self._listen_to_peer()
            self.send()
            while not self._closing:
                await self._call.wait()
                if self._stall_s and not self._closing:
                    self._call = trio.Event()
                    await trio.sleep(self._stall_s)
                    self._stall_s = 0.0
                    self._listen_to_peer()
        finally:
            self.close(linger=False)
            if not session.closed:
                session.lost(SERVER_SHUTDOWN)
            try:
                self._turn.flush()
                if self._linger:
                    await self._say_last_words(session)
            finally:
                session.out.clear()
                trio.lowlevel.notify_closing(self._sock)
                with suppress(OSError):
                    self._sock.close()
                self._limits.lagging.discard(self)
                self._turn.readers.held.discard(self)
                # These would be reference cycles, which wait for the garbage collector.
                self._session = None
                del self._spawn

    def _listen_to_peer(self) -> None:
        """Be read from now on, unless it is to wait. A kernel that has no room to watch one more socket ends this connection only."""
        if self._closing or self._stall_s or self in self._turn.readers.held:
            return
        try:
            self._turn.readers.add(self._sock, self)
        except OSError as error:
            log.error("a connection cannot be read: %s", error)
            assert self._session is not None
            self._session.lost(READ_ERROR)
            self.close(linger=False)

    def read(self) -> int:
        """Read once and let the session process the bytes; the readers end the turn."""
        session = self._session
        assert session is not None
        gate, self._gate = self._gate, None
        if gate is not None and gate.is_shut:
            self.hold(gate)  # the connections admitted before have filled it again
            return 0
        reason, failed = CLIENT_CLOSED, False
        try:
            most = self._read_size
            if most > READ_SIZE and not self._turn.readers.may_be_large:
                most = READ_SIZE
            size = self._sock.recv_into(_read_buffer, most)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            size, failed = 0, True
            reason = CLIENT_CLOSED if isinstance(error, ConnectionResetError) else READ_ERROR
        try:
            if size:
                full, began = size == self._read_size, monotonic()
                self._take(session, _read_buffer[:size])
                handled_s = monotonic() - began
                if handled_s > READ_S:
                    self._read_size = max(FIRST_READ_SIZE, min(self._read_size, READ_SIZE) // 2)
                elif full or self._read_size > READ_SIZE:
                    self._choose_read_size(size, handled_s)
            else:
                # A peer that only shut down its sending side (`printf ... | nc`) still receives its answers.
                self.close(linger=not failed and bool(session.out))
                session.lost(reason)
        except Exception:
            # An internal error while processing this peer's bytes ends this connection only.
            log.exception("connection failed")
            session.lost(INTERNAL_ERROR)
            size = 0
        if not size:
            self.close(linger=False)
        return size

    def _choose_read_size(self, size: int, handled_s: float) -> None:
        """After a full read, or a large one, of `size` bytes that were handled in `handled_s`."""
        if self._read_size < self._read_size_max:
            if handled_s < READ_S / 4:
                self._read_size = min(2 * self._read_size, self._read_size_max)
        elif self._direct is not None:
            messages, self._seen_msgs = self._direct.in_msgs - self._seen_msgs, self._direct.in_msgs
            if size >= READ_SIZE and self._read_size >= READ_SIZE:
                is_large = messages * LARGE_MESSAGE <= size and handled_s * LARGE_READ_SIZE <= LARGE_READ_S * size
                self._read_size = LARGE_READ_SIZE if is_large else READ_SIZE
            elif self._read_size > READ_SIZE:
                self._read_size = READ_SIZE

    def _take(self, session: Session, data: memoryview) -> None:
        """Let the session process what the socket brought."""
        session.received(data)

    def stall(self, seconds: float) -> None:
        """Wait before the next read. Who waits at a gate already need not."""
        if not self._closing and self not in self._turn.readers.held:
            self._turn.readers.remove(self._sock)
            self._stall_s = seconds
            self._call.set()

    def hold(self, gate: Gate) -> None:
        """Wait at the gate before the next read. Who waits at another one already meets this one after it."""
        if not self._closing and self not in self._turn.readers.held:
            self._turn.readers.remove(self._sock)
            self._turn.readers.held.add(self)
            self._gate = gate
            self._read_size = min(self._read_size, READ_SIZE)
            gate.wait(self._read_on, self._limits.hold_s)

    def _read_on(self) -> None:
        self._turn.readers.held.discard(self)
        if self._gate is not None and self._gate.is_shut:
            self._gate = None  # it was long enough: one read
        self._listen_to_peer()

    async def _say_last_words(self, session: Session) -> None:
        sock = self._sock
        with trio.move_on_after(LINGER_S):
            try:
                while self.backlog:
                    try:
                        self._send_some(session.out)
                    except (BlockingIOError, InterruptedError):
                        await trio.lowlevel.wait_writable(sock)
                sock.shutdown(socket.SHUT_WR)
                while True:
                    await trio.lowlevel.wait_readable(sock)
                    if not sock.recv(READ_SIZE):
                        return
            except OSError:
                return


class StreamTransport:
    """A transport over a `trio.abc.Stream`; bytes that the writer removed from `out` still count as pending."""

    __slots__ = (
        "_cancel",
        "_closing",
        "_gate",
        "_held",
        "_in_flight",
        "_limits",
        "_linger",
        "_read_size",
        "_session",
        "_stream",
        "_turn",
        "_wake",
    )

    def __init__(self, stream: trio.abc.Stream, limits: TransportLimits, turn: TurnEnd) -> None:
        self._stream = stream
        self._limits = limits
        self._turn = turn
        self._session: Session | None = None
        self._read_size = FIRST_READ_SIZE
        self._in_flight = 0
        self._gate: Gate | None = None  # waited at before the next read
        self._held = False
        self._closing = False
        self._linger = False
        self._wake = trio.Event()
        self._cancel = trio.CancelScope()

    @property
    def backlog(self) -> int:
        return self._in_flight + (0 if self._session is None else len(self._session.out))

    def hold(self, gate: Gate) -> None:
        self._gate = gate

    def admit(self, message_bytes_max: int) -> None:
        self._read_size = STREAM_READ_SIZE
        if isinstance(self._stream, CompressedStream):
            # A peer of our own kind sends as much as a slice of output in one message.
            self._stream.allow_messages(max(message_bytes_max, READ_SIZE))

    def input_waits(self) -> bool:
        return self._held  # unknown for a stream: while it is not read there may be something

    def send(self) -> None:
        session = self._session
        if session is None or self._closing or not session.out:
            return
        self._wake.set()
        pending = self.backlog
        if self._limits.are_exceeded(self, pending):
            session.slow_consumer(SLOW_PENDING)
        elif pending > self._limits.max_pending * STALL_SHARE:
            self._turn.ask_to_stall(STALL_S)

    def close(self, *, linger: bool) -> None:
        if not self._closing:
            self._closing = True
            self._linger = linger
            self._wake.set()
            self._cancel.cancel()

    async def run(self, session: Session) -> None:
        self._session = session
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, session)
                with self._cancel:
                    await self._read(session)
                self._closing = True
                if self._linger:
                    with trio.move_on_after(LINGER_S):
                        await self._say_last_words(session)
                nursery.cancel_scope.cancel()
        finally:
            if not session.closed:
                session.lost(SERVER_SHUTDOWN)
            self._turn.flush()
            session.out.clear()
            self._limits.lagging.discard(self)
            self._session = None  # breaks a reference cycle, which would wait for the garbage collector
            await trio.aclose_forcefully(self._stream)

    async def _read(self, session: Session) -> None:
        try:
            self.send()
            while not self._closing:
                data = await self._stream.receive_some(self._read_size)
                if not data:
                    self.close(linger=True)
                    session.lost(CLIENT_CLOSED)
                    return
                while data:
                    session.received(data)
                    data = further_record(self._stream)
                self._turn.flush()
                stall_s, gate = self._turn.take_stall_s(), self._turn.take_gate()
                if self._gate is not None:
                    gate, self._gate = self._gate, None
                if gate is not None and gate.is_shut:
                    await self._wait_at(gate)
                elif stall_s:
                    await trio.sleep(stall_s)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if not self._closing:
                session.lost(self.why_broken(error))
            cut_cycles(error)
        except Exception:
            # An internal error while processing this peer's bytes ends this connection only.
            log.exception("connection failed")
            session.lost(INTERNAL_ERROR)

    def why_broken(self, error: Exception) -> str:
        """Return the reason for the session when reading failed."""
        return CLIENT_CLOSED

    async def _wait_at(self, gate: Gate) -> None:
        self._held = True
        until = trio.current_time() + self._limits.hold_s
        while (left_s := until - trio.current_time()) > 0:
            opened = trio.Event()
            gate.wait(opened.set, left_s)
            await opened.wait()
            if not gate.is_shut:
                break
        self._held = False

    async def _write(self, session: Session) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                backlog = len(session.out) > READ_SIZE
                while session.out or (not self._closing and session.refill()):
                    chunk = self._take_chunk(session)
                    self._in_flight = len(chunk)
                    with trio.move_on_after(self._limits.write_deadline_s or math.inf) as scope:
                        await self._stream.send_all(chunk)
                    if scope.cancelled_caught:
                        session.slow_consumer(SLOW_DEADLINE)
                        return
                    self._in_flight = 0
                self._limits.lagging.discard(self)
                if backlog:
                    session.renew_out()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            cut_cycles(error)
            self._in_flight = 0
            session.out.clear()
            if not self._closing:
                session.lost(WRITE_ERROR)
                self.close(linger=False)

    @staticmethod
    def _take_chunk(session: Session) -> bytes:
        with memoryview(session.out) as pending:
            chunk = bytes(pending[:READ_SIZE])
        del session.out[: len(chunk)]
        return chunk

    async def _say_last_words(self, session: Session) -> None:
        while session.out or self._in_flight:
            if session.out:
                self._wake.set()
            await trio.sleep(0.001)


def further_record(stream: trio.abc.Stream) -> bytes | bytearray:
    """Return a TLS record that arrived with the one just read, if any.

    `receive_some` returns one record at a time, and each would be a turn of its own. Trio's stream has no public way to
    read what is there already.
    """
    if not isinstance(stream, trio.SSLStream):
        return b""
    try:
        return bytes(stream._ssl_object.read(STREAM_READ_SIZE))
    except ssl.SSLError:
        return b""  # nothing is there, or the next read will report the error
