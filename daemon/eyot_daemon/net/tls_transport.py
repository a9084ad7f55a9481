"""TLS over a socket as a transport of the readers: a turn encrypts and decrypts, and no task runs for it.

Trio's SSLStream does the handshake. From then on the transport uses the stream's OpenSSL object with its two memory
buffers, and reads and writes the socket itself, as `SocketTransport` does for plain bytes. Kernel TLS, which would save
a copy, is not used: many kernels of gateways lack it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

import trio

from eyot_daemon.net.heap import lazy_buffer
from eyot_daemon.net.socket_transport import LARGE_READ_SIZE, SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.transport import CLIENT_CLOSED, Session, TransportLimits, TurnEnd

#: Bytes that OpenSSL is given at a time, about a record: its memory buffers keep the size that they once had.
PIECE = 16 * 1024
#: The most bytes that are encrypted before the kernel accepts them.
SEALED_MAX = 256 * 1024

# The largest read, and what was incomplete before it.
_plain_buffer = lazy_buffer(LARGE_READ_SIZE + 2 * PIECE)


class TlsRecords(NamedTuple):
    """An established TLS connection without its socket: records from the peer go into `incoming`, those for it come from `outgoing`.

    `delayed`: records of a server's handshake that Trio sends with the first data (the session tickets of TLS 1.3).
    """

    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    delayed: bytes


def records_of(stream: trio.abc.Stream) -> TlsRecords | None:
    """Return what a stream of Trio uses after its handshake; None where it cannot be had.

    There is no public way to it (Trio 0.35): where a later version moves it, TLS goes through the stream's tasks.
    """
    if not isinstance(stream, trio.SSLStream):
        return None
    names = ("_ssl_object", "_incoming", "_outgoing", "_delayed_outgoing")
    if not all(hasattr(stream, name) for name in names):
        return None
    tls, incoming, outgoing, delayed = (getattr(stream, name) for name in names)
    buffers = isinstance(incoming, ssl.MemoryBIO) and isinstance(outgoing, ssl.MemoryBIO)
    if not (isinstance(tls, ssl.SSLObject) and buffers):
        return None
    return TlsRecords(tls, incoming, outgoing, bytes(delayed or b""))


class TlsTransport(SocketTransport):
    """One connected non-blocking socket with an established TLS connection.

    `crossed`: called with the bytes of each read and write, records and not their contents. `why_broken`: words for a
    connection that ends with an error of TLS.
    """

    writes_through = False

    __slots__ = ("_crossed", "_records", "_sealed", "_why_broken")

    def __init__(
        self,
        sock: socket.socket,
        records: TlsRecords,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        limits: TransportLimits,
        turn: TurnEnd,
        *,
        crossed: Callable[[int], None] | None = None,
        why_broken: Callable[[ssl.SSLError], str] | None = None,
    ) -> None:
        super().__init__(sock, spawn, limits, turn)
        self._records = records
        self._sealed = bytearray(records.delayed)  # encrypted, and not accepted by the kernel yet
        self._crossed = crossed
        self._why_broken = why_broken

    @property
    def backlog(self) -> int:
        return len(self._sealed) + (0 if self._session is None else len(self._session.out))

    async def run(self, session: Session) -> None:
        self._session = session
        # The last bytes of the handshake may have come with others, for which the socket is not readable any more.
        if (self._records.incoming.pending or self._records.tls.pending()) and not self._closing:
            self._take(session, memoryview(b""))
            self._turn.flush()
            self._turn.take_stall_s()
            self._turn.take_gate()
        await super().run(session)

    def _take(self, session: Session, data: memoryview) -> None:
        if self._crossed is not None and data:
            self._crossed(len(data))
        size, error = self._open_records(data)
        if size:
            session.received(_plain_buffer[:size])
        if self._records.outgoing.pending:  # an answer of TLS itself: an alert, a new key
            self._sealed += self._records.outgoing.read()
            self._send_answer(session)
        if error is not None:
            reason = CLIENT_CLOSED if self._why_broken is None else self._why_broken(error)
            self.close(linger=isinstance(error, ssl.SSLZeroReturnError) and bool(self.backlog))
            if not session.closed:
                session.lost(reason)

    def _open_records(self, data: memoryview) -> tuple[int, ssl.SSLError | None]:
        """Decrypt what is whole into the buffer of all connections: number of bytes, and the end of the connection, if it came."""
        tls, incoming = self._records.tls, self._records.incoming
        size = at = 0
        try:
            while True:
                piece = data[at : at + PIECE]
                at += len(piece)
                incoming.write(piece)
                got = 1
                while got and (incoming.pending or tls.pending()):
                    got = _decrypt(tls, _plain_buffer[size : size + PIECE])
                    size += got
                if at >= len(data):
                    return size, None
        except ssl.SSLError as error:
            return size, error

    def _send_some(self, out: bytearray) -> bool:
        sealed = self._sealed
        while sealed or out:
            if len(sealed) < PIECE and out:
                self._seal(out)
            sent = self._sock.send(sealed)
            if self._crossed is not None:
                self._crossed(sent)
            if sent < len(sealed):
                del sealed[:sent]
                return False
            sealed.clear()
        return True

    def _seal(self, out: bytearray) -> None:
        """Encrypt the front of `out`. Raises ssl.SSLError, an OSError."""
        tls, outgoing = self._records.tls, self._records.outgoing
        if len(out) <= PIECE:
            tls.write(out)
            self._sealed += outgoing.read()
            out.clear()
            return
        size = min(len(out), SEALED_MAX)
        with memoryview(out) as view:
            for at in range(0, size, PIECE):
                tls.write(view[at : min(at + PIECE, size)])
                self._sealed += outgoing.read()
        del out[:size]

    def _send_answer(self, session: Session) -> None:
        if not (self._draining or self._closing or self._push(session)):
            self._draining = True
            self._spawn(self._drain)


def _decrypt(tls: ssl.SSLObject, into: memoryview) -> int:
    """Return how many bytes were decrypted; 0: the next record is incomplete. Raises ssl.SSLZeroReturnError at the peer's end."""
    try:
        got = cast(int, tls.read(PIECE, into))  # given a buffer, a number is returned
    except ssl.SSLWantReadError:
        return 0
    if not got:
        raise ssl.SSLZeroReturnError
    return got


def over_tls(
    sock: socket.socket,
    stream: trio.SSLStream[trio.SocketStream],
    spawn: Callable[[Callable[[], Awaitable[None]]], None],
    limits: TransportLimits,
    turn: TurnEnd,
) -> TlsTransport | StreamTransport:
    """Return the transport for a stream of Trio over `sock`, after its handshake."""
    records = records_of(stream)
    if records is None:
        return StreamTransport(stream, limits, turn)
    return TlsTransport(sock, records, spawn, limits, turn)
