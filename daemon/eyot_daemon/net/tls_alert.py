"""Last words of a TLS handshake that failed.

OpenSSL writes an alert that says why (no certificate, one of an unknown authority, one that is revoked); clients show it to their
users and some tell by it whether trying again makes sense. Trio's SSLStream leaves it unsent when it breaks.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

import trio

#: How long the peer gets to take the alert, so that what it sent meanwhile does not reset the connection before.
_TAKE_S = 0.2
_READ_BYTES = 4096


async def handshake(stream: trio.SSLStream[Any]) -> None:
    """`do_handshake`, which tells the peer when it fails. The connection is then to be closed. Raises trio.BrokenResourceError."""
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        await _send_alert(stream)
        raise


async def _send_alert(stream: trio.SSLStream[Any]) -> None:
    outgoing = getattr(stream, "_outgoing", None)  # no public way to it (Trio 0.34)
    alert = outgoing.read() if isinstance(outgoing, ssl.MemoryBIO) else b""
    if not alert:
        return
    raw = stream.transport_stream
    with trio.move_on_after(_TAKE_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await raw.send_all(alert)
        if isinstance(raw, trio.SocketStream):
            await raw.send_eof()
        while await raw.receive_some(_READ_BYTES):
            pass
