"""TLS handshakes: bounds what the peer sends, sends the alert of a failed one, and leaves no reference cycle behind.

OpenSSL writes an alert with the reason (no certificate, unknown authority, revoked certificate). Clients show it to
their users, and some decide by it whether to retry. Trio's SSLStream leaves it unsent when it breaks.
"""

from __future__ import annotations

import ssl
from typing import Any

import trio

from eyot_serving.broken_streams import cut_cycles

#: How long the peer may take to read the alert, so that its earlier data does not reset the connection first.
_TAKE_S = 0.2
_READ_BYTES = 4096
#: The most bytes of a peer's side of a handshake. OpenSSL itself keeps a first message of up to 128 KiB.
HANDSHAKE_BYTES_MAX = 32 * 1024
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_HANDSHAKE_RECORD = b"\x16"


class SmallReads(trio.abc.Stream):
    """A stream below TLS that is read in small pieces: Trio's SSLStream keeps what it has read until it is decrypted."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(_READ_BYTES)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _HandshakeReads(SmallReads):
    """The peer's side of a handshake, up to `HANDSHAKE_BYTES_MAX`.

    OpenSSL allocates a message when it has read how long it is, a third more than that: the first one, which anybody may
    send, is looked at before.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._left = HANDSHAKE_BYTES_MAX
        self._head: bytes | None = b""  # until the length of the first message is known

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._left <= 0:
            raise trio.BrokenResourceError from ssl.SSLError("the handshake is too large")
        data = await super().receive_some()
        self._left -= len(data)
        if self._head is not None:
            self._head += data
            length = first_message_bytes(self._head)
            if length is not None:
                self._head = None
                if length > HANDSHAKE_BYTES_MAX:
                    raise trio.BrokenResourceError from ssl.SSLError("the handshake is too large")
        return data


def first_message_bytes(head: bytes) -> int | None:
    """Return the length of the first message of a handshake, given its first bytes; None: more are needed.

    0: it is no handshake. A message may come in records of any size.
    """
    content = b""
    at = 0
    while len(content) < _MESSAGE_HEADER:
        if head[at : at + 1] not in (b"", _HANDSHAKE_RECORD):
            return 0
        body = at + _RECORD_HEADER
        if len(head) < body:
            return None
        at = body + int.from_bytes(head[body - 2 : body], "big")
        content += head[body:at]
        if len(content) < _MESSAGE_HEADER and len(head) < at:
            return None
    return int.from_bytes(content[1:_MESSAGE_HEADER], "big")


async def handshake(stream: trio.SSLStream[Any]) -> None:
    """Run `do_handshake` and send the alert if it fails; then the caller closes the stream. Raises trio.BrokenResourceError."""
    raw = stream.transport_stream
    stream.transport_stream = _HandshakeReads(raw)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        cut_cycles(error)
        stream.transport_stream = raw
        await _send_alert(stream)
        raise
    finally:
        stream.transport_stream = raw
        _forget_handshake(stream)


def _forget_handshake(stream: trio.SSLStream[Any]) -> None:
    """Drop the stream's reference to its own handshake, which is begun once: a closed stream would wait for the garbage collector."""
    once: Any = getattr(stream, "_handshook", None)  # no public way to it (Trio 0.35)
    if once is not None and hasattr(once, "_afn"):
        del once._afn


async def _send_alert(stream: trio.SSLStream[Any]) -> None:
    outgoing = getattr(stream, "_outgoing", None)  # no public way to it (Trio 0.34)
    alert = outgoing.read() if isinstance(outgoing, ssl.MemoryBIO) else b""
    if not alert:
        return
    raw = stream.transport_stream
    try:
        with trio.move_on_after(_TAKE_S):
            await raw.send_all(alert)
            if isinstance(raw, trio.SocketStream):
                await raw.send_eof()
            while await raw.receive_some(_READ_BYTES):
                pass
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        cut_cycles(error)
