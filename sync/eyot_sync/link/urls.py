"""The next address of a remote.

A remote has configured addresses and those that its hub announced (`leafnode_urls`). Configured ones come first, in
random order unless configured otherwise, then the announced ones: they are a hub's own addresses, which may be
unreachable from behind a NAT. Each attempt uses the next address; after the end of a link that lasted, the round starts
again at the first configured one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from msgspec import Struct

from eyot_wire.digits import parse_uint

_PORT_MAX = 65_535


class LinkAddress(Struct, frozen=True):
    """Where to dial: `scheme` is nats, tls, ws or wss. Credentials of the remote are not in here, so it may be logged."""

    host: str
    port: int
    scheme: str = "nats"
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class LinkUrls:
    """The addresses of one remote in the order in which they are tried."""

    __slots__ = ("_configured", "_discovered", "_next")

    def __init__(self, configured: Iterable[LinkAddress], rng: random.Random, *, randomize: bool = True) -> None:
        self._configured = list(configured)
        if not self._configured:
            raise ValueError("a remote needs at least one url")
        if randomize:
            rng.shuffle(self._configured)
        self._discovered: list[LinkAddress] = []
        self._next = 0

    @property
    def addresses(self) -> tuple[LinkAddress, ...]:
        """All of them, in the order in which they are tried."""
        return (*self._configured, *self._discovered)

    def next(self) -> LinkAddress:
        """Return the address of the next attempt."""
        addresses = self.addresses
        address = addresses[self._next % len(addresses)]
        self._next = (self._next + 1) % len(addresses)
        return address

    def restart(self) -> None:
        """Start the next round at the first configured address, after a link that lasted."""
        self._next = 0

    def discovered(self, host_ports: Iterable[str]) -> None:
        """Replace the announced addresses by these `host:port` texts; malformed ones are ignored."""
        # A hub with TLS at one address is never contacted in clear at an address that it announces.
        schemes = {address.scheme for address in self._configured}
        scheme = next((secure for secure in ("tls", "wss") if secure in schemes), self._configured[0].scheme)
        known = {(address.host, address.port) for address in self._configured}
        found: list[LinkAddress] = []
        for text in host_ports:
            host, _, digits = text.rpartition(":")
            port = parse_uint(digits)
            if not host or not port or port > _PORT_MAX:
                continue
            key = (host.strip("[]"), port)
            if key not in known:
                known.add(key)
                found.append(LinkAddress(*key, scheme=scheme))
        self._discovered = found
