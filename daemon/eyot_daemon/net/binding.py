"""Binds sockets as Go does: one socket accepts IPv6 and IPv4 for all addresses; a name means its IPv4 address."""

from __future__ import annotations

import errno
import socket
from typing import Any

from eyot_serving.listen_address import listen_address

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
    family, address = listen_address(host, port)
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
