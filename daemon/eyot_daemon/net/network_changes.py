"""Tells when the network of this machine comes back: what the kernel says of interfaces, addresses and routes (rtnetlink(7)).

Only news counts: an interface that begins to run, an address or a route that was not there. Routers repeat their
announcements and drivers report their signal all the time; none of this is a reason to dial.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final

import trio

log = logging.getLogger("eyot")

# linux/rtnetlink.h, linux/if.h
RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_NEWADDR: Final = 20
RTM_DELADDR: Final = 21
RTM_NEWROUTE: Final = 24
RTM_DELROUTE: Final = 25
IFF_UP: Final = 1 << 0
IFF_LOOPBACK: Final = 1 << 3
IFF_RUNNING: Final = 1 << 6
_RTMGRP_LINK: Final = 1
_RTMGRP_ADDRESSES: Final = 0x10 | 0x100
_RTMGRP_ROUTES: Final = 0x40 | 0x400
_IFLA_ADDRESS: Final = 1
_UNICAST: Final = 1
_TABLE_LOCAL: Final = 255
#: length, type, flags, sequence, port
HEADER: Final = struct.Struct("=IHHII")
#: family, type, index, flags, changed flags
LINK: Final = struct.Struct("=BxHiII")
#: family, prefix length, flags, scope, index
ADDRESS: Final = struct.Struct("=BBBBI")
#: family, destination and source length, type of service, table, protocol, scope, type, flags
ROUTE: Final = struct.Struct("=BBBBBBBBI")
_READ_BYTES: Final = 64 * 1024
#: Things remembered, of each kind; above that all are forgotten, and the next report of each is news.
KNOWN_MAX: Final = 4096
#: The least time between two calls, seconds.
INTERVAL_S: Final = 1.0


class NetworkNews:
    """What is known of interfaces, addresses and routes. `is_news` takes what the kernel sends."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._known: set[tuple[int, bytes]] = set()

    def is_news(self, datagram: bytes) -> bool:
        """Take the messages of a datagram; return whether the network may reach more than before."""
        found = False
        start = 0
        while start + HEADER.size <= len(datagram):
            length, kind, _, _, _ = HEADER.unpack_from(datagram, start)
            if length < HEADER.size or start + length > len(datagram):
                break
            found |= self._take(kind, datagram[start + HEADER.size : start + length])
            start += (length + 3) & ~3
        return found

    def _take(self, kind: int, body: bytes) -> bool:
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            return len(body) >= LINK.size and self._link(kind, body)
        if kind in (RTM_NEWADDR, RTM_DELADDR) and len(body) >= ADDRESS.size:
            family, prefix, _, _, index = ADDRESS.unpack_from(body)
            # Flags and lifetimes are not the address: a router renews them.
            key = struct.pack("=BBI", family, prefix, index) + _attribute(body[ADDRESS.size :], _IFLA_ADDRESS)
            return self._seen(RTM_NEWADDR, key, kind == RTM_NEWADDR)
        if kind in (RTM_NEWROUTE, RTM_DELROUTE) and len(body) >= ROUTE.size:
            _, _, _, _, table, _, _, route_type, _ = ROUTE.unpack_from(body)
            if route_type != _UNICAST or table == _TABLE_LOCAL:
                return False
            return self._seen(RTM_NEWROUTE, _route_key(body), kind == RTM_NEWROUTE)
        return False

    def _link(self, kind: int, body: bytes) -> bool:
        _, _, index, flags, _ = LINK.unpack_from(body)
        runs = kind == RTM_NEWLINK and flags & IFF_UP and flags & IFF_RUNNING and not flags & IFF_LOOPBACK
        if not runs:
            self._running.discard(index)
            return False
        if index in self._running:
            return False
        if len(self._running) >= KNOWN_MAX:
            self._running.clear()
        self._running.add(index)
        return True

    def _seen(self, kind: int, key: bytes, exists: bool) -> bool:
        entry = (kind, key)
        if not exists:
            self._known.discard(entry)
            return False
        if entry in self._known:
            return False
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known.add(entry)
        return True


#: Attributes that tell one route from another: destination, outgoing interface, gateway, priority, table.
_ROUTE_ATTRIBUTES: Final = (1, 4, 5, 6, 15)


def _route_key(body: bytes) -> bytes:
    attributes = body[ROUTE.size :]
    return body[:2] + b"\0".join(_attribute(attributes, each) for each in _ROUTE_ATTRIBUTES)


def _attribute(attributes: bytes, wanted: int) -> bytes:
    """Return an attribute's value, empty if it is not there."""
    start = 0
    while start + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, start)
        if length < 4 or start + length > len(attributes):
            break
        if kind == wanted:
            return attributes[start + 4 : start + length]
        start += (length + 3) & ~3
    return b""


def open_socket() -> socket.socket:
    """Return a socket to which the kernel reports changes of interfaces, addresses and routes. Raises OSError (Linux only)."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
    try:
        made.bind((0, _RTMGRP_LINK | _RTMGRP_ADDRESSES | _RTMGRP_ROUTES))
    except BaseException:
        made.close()
        raise
    return made


async def watch(source: socket.socket, changed: Callable[[], None], interval_s: float = INTERVAL_S) -> None:
    """Call `changed` when the network came back, at once and at most every `interval_s` seconds. Closes `source` at its end.

    Returns when `source` ends or fails; the failure is logged.
    """
    news = NetworkNews()
    with source:
        try:
            while True:
                await trio.lowlevel.wait_readable(source)
                if _drain(source, news):
                    changed()
                    # Addresses and routes follow an interface within moments: their news waits, and is not lost.
                    await trio.sleep(interval_s)
        except EOFError:
            pass
        except OSError as error:
            log.warning("Changes of the network are not seen any more: %s", error.strerror or error)


def _drain(source: socket.socket, news: NetworkNews) -> bool:
    """Read all that waits; return whether any of it is news. Raises EOFError, OSError."""
    found = False
    while True:
        try:
            datagram = source.recv(_READ_BYTES)
        except BlockingIOError:
            return found
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            found = True  # the kernel had more to say than the socket holds
            continue
        if not datagram:
            raise EOFError
        found |= news.is_news(datagram)
