"""Opening the transport of a link: DNS, then TCP to one of the host's addresses.

Of several addresses of a host a random one is tried first, so that a fleet spreads over a hub's machines, and the others after it;
one dead address behind a name costs one timeout and not the link.
"""

from __future__ import annotations

import os
import random
import socket
from typing import Any, Protocol

import trio

from eyot_sync.link.urls import LinkAddress

# A resolver without network may sit on a query for half a minute; the attempt ends long before.
DNS_TIMEOUT_S = 5.0
_ADDRESSES_MAX = 4


class DialError(Exception):
    """No transport to the address; the text gives the reason."""


class Dialer(Protocol):
    """Something that opens streams: TCP in the daemon, memory in tests."""

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.abc.Stream:
        """Open a transport to an address. Raises DialError."""
        ...


class TcpDialer:
    """Dials over TCP. `timeout_s` of `dial` bounds each address of the host."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def dial(self, address: LinkAddress, timeout_s: float) -> trio.SocketStream:
        found = await self._resolve(address)
        self._rng.shuffle(found)
        problem = ""
        for family, target in found[:_ADDRESSES_MAX]:
            try:
                return await self._connect(family, target, timeout_s)
            except OSError as error:
                problem = os.strerror(error.errno) if error.errno else str(error)
            except (ValueError, OverflowError) as error:  # a port or an address that cannot be one
                problem = str(error)
        raise DialError(problem)

    async def _resolve(self, address: LinkAddress) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
        try:
            with trio.fail_after(DNS_TIMEOUT_S):
                infos = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except trio.TooSlowError:
            raise DialError(f"no answer to the look-up of {address.host} within {DNS_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise DialError(f"{address.host}: {error.strerror or error}") from None
        except UnicodeError:
            raise DialError(f"{address.host}: not a host name") from None
        return [(info[0], info[4]) for info in infos]

    async def _connect(
        self, family: socket.AddressFamily, target: tuple[Any, ...], timeout_s: float
    ) -> trio.SocketStream:
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
        try:
            with trio.fail_after(timeout_s):
                await sock.connect(target)
        except trio.TooSlowError:
            sock.close()
            raise OSError(f"no connection within {timeout_s:g} s") from None
        except BaseException:
            sock.close()
            raise
        return trio.SocketStream(sock)
