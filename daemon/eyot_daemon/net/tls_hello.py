"""Who speaks first on a port with TLS: how a peer that begins its handshake at once is told from one that waits for INFO."""

from __future__ import annotations

import socket

import trio

#: The first byte of a TLS record that begins a handshake.
TLS_HANDSHAKE = 0x16


async def first_byte(sock: socket.socket, timeout_s: float) -> int | None:
    """The first byte the peer sends, left where it is; None if nothing comes in time."""
    with trio.move_on_after(timeout_s):
        await trio.lowlevel.wait_readable(sock)
        start = sock.recv(1, socket.MSG_PEEK)
        return start[0] if start else None
    return None
