"""The address that a configured host name means to a listener."""

from __future__ import annotations

import socket
from typing import Any


def listen_address(host: str, port: int) -> tuple[int, Any]:
    """Return the family and the address to bind: the IPv4 address of a name that has both kinds. Raises OSError.

    Go's `net.Listen` does the same. Most machines have both kinds for `localhost`, IPv6 first, and clients that only
    try 127.0.0.1.
    """
    # As bytes: of a name as text, also of a number, Python loads Unicode's tables first.
    name = host.encode() if host and host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
    return family, address
