"""Moves bytes between a stream of Trio and a session (WebSocket, in-memory links in tests): a reader and a writer task."""

from __future__ import annotations

import logging
import math
import ssl

import trio

from eyot_daemon.net.transport import (
    CLIENT_CLOSED,
    FIRST_READ_SIZE,
    INTERNAL_ERROR,
    LINGER_S,
    READ_SIZE,
    SERVER_SHUTDOWN,
    SLOW_DEADLINE,
    SLOW_PENDING,
    STALL_S,
    STALL_SHARE,
    WRITE_ERROR,
    MessageStream,
    Session,
    TransportLimits,
    TurnEnd,
)
from eyot_daemon.turn.backpressure import Gate
from eyot_serving.broken_streams import cut_cycles

log = logging.getLogger("eyot.transport")

#: Reads through a `trio.abc.Stream`.
STREAM_READ_SIZE = 64 * 1024


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
        if isinstance(self._stream, MessageStream):
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
            if isinstance(self._stream, MessageStream):
                self._stream.closing_for(session.close_reason)
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
