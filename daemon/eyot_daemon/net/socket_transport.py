"""Moves bytes between a socket and a session, without a task switch per message.

The broker's `Readers` call the transport when its non-blocking socket is readable. It reads into one buffer shared by all
connections. The end of the turn sends the output; only on EAGAIN a drain task starts for that connection.
"""

from __future__ import annotations

import logging
import math
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

import trio

from eyot_daemon.net.heap import MAPPED_FROM, lazy_buffer
from eyot_daemon.net.transport import (
    CLIENT_CLOSED,
    FIRST_READ_SIZE,
    INTERNAL_ERROR,
    LINGER_S,
    READ_ERROR,
    READ_SIZE,
    SERVER_SHUTDOWN,
    SLOW_DEADLINE,
    SLOW_PENDING,
    STALL_S,
    STALL_SHARE,
    WRITE_ERROR,
    Session,
    TransportLimits,
    TurnEnd,
)
from eyot_daemon.turn.backpressure import Gate
from eyot_wire.native import OutBuffer

log = logging.getLogger("eyot.transport")

#: The most bytes of one read while full reads bring messages of `LARGE_MESSAGE` bytes and more, of which a turn handles few, for few destinations: a
#: read of this size is handled in `LARGE_READ_S`. With many destinations the bytes would have left the processor's cache before the last
#: of them gets his.
LARGE_READ_SIZE = 1024 * 1024
LARGE_READ_S = 0.0015
LARGE_MESSAGE = 2048
#: What a read brings may take this long to handle, and everybody else waits meanwhile: after a longer one reads halve, down to
#: `FIRST_READ_SIZE`; when a quarter of it was enough they double again. Packets of two bytes cost as much as those of 200.
READ_S = 0.02

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
            if self._draining:  # the only one who waits for the socket in Trio
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
        elif size >= READ_SIZE and self._read_size >= READ_SIZE:
            is_large = self._brought_large_messages(size) and handled_s * LARGE_READ_SIZE <= LARGE_READ_S * size
            self._read_size = LARGE_READ_SIZE if is_large else READ_SIZE
        elif self._read_size > READ_SIZE:
            self._read_size = READ_SIZE

    def _brought_large_messages(self, size: int) -> bool:
        """Return whether the messages of a full read were large on average. Leaf links and MQTT are judged by the time alone."""
        if self._direct is None:
            return True
        messages, self._seen_msgs = self._direct.in_msgs - self._seen_msgs, self._direct.in_msgs
        return messages * LARGE_MESSAGE <= size

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
