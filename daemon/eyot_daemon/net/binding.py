"""Binds sockets as Go does: one socket accepts IPv6 and IPv4 for all addresses; a name means its IPv4 address."""

from __future__ import annotations

import errno
import socket
from typing import Any

#: Hosts that mean every address of the machine.
EVERYWHERE = frozenset(("", "0.0.0.0", "::"))
_MAPPED = "::ffff:"
#: Errors of a kernel without IPv6, or with IPv6 disabled.
_NO_IPV6 = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket that does not listen yet; `port` 0: any free one. Raises OSError."""
    if host in EVERYWHERE:
        try:
            return _bind(socket.AF_INET6, ("::", port))
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        return _bind(socket.AF_INET, ("0.0.0.0", port))
    # As bytes: of a name as text, also of a number, Python loads Unicode's tables first.
    name = host.encode() if host and host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Most machines have both kinds of addresses for `localhost`, IPv6 first, and clients that only try 127.0.0.1.
    family, _, _, _, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
    return _bind(family, address)


def _bind(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def plain_host(host: str) -> str:
    """Return an IPv4 address in its usual form where an IPv6 socket shows `::ffff:192.0.2.1`."""
    return host.removeprefix(_MAPPED) if "." in host else host
