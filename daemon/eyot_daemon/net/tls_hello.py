"""Distinguishes a peer that starts its TLS handshake at once from one that waits for INFO."""

from __future__ import annotations

import socket

import trio

#: The first byte of a TLS record that begins a handshake.
TLS_HANDSHAKE = 0x16


async def first_byte(sock: socket.socket, timeout_s: float) -> int | None:
    """Return the first byte that the peer sends without consuming it; None if nothing arrives in time."""
    with trio.move_on_after(timeout_s):
        await trio.lowlevel.wait_readable(sock)
        start = sock.recv(1, socket.MSG_PEEK)
        return start[0] if start else None
    return None
