"""Requests and responses of HTTP as handlers see them, without the library that puts them on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from ipaddress import IPv6Address, ip_address

from msgspec import Struct, field


class PeerAddress(Struct, frozen=True):
    """Where a request comes from. `host`: the address, "" for the Unix socket. `tls`: whether the connection is encrypted."""

    host: str = ""
    tls: bool = False
    unix: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the bytes stay on this machine: the Unix socket, or an address of the loopback."""
        if self.unix:
            return True
        try:
            address = ip_address(self.host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            return address.ipv4_mapped.is_loopback
        return address.is_loopback


class HttpRequest(Struct, frozen=True):
    """A request. `path` is decoded; of a parameter that is given more than once, `query` has the last value.

    `host`: the header of that name, "" without one. `headers`: names in lower case; of a repeated header, the last value.
    """

    method: str
    path: str
    query: dict[str, str]
    host: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: PeerAddress = PeerAddress()


class HttpResponse(Struct, frozen=True):
    """A response with all of its body."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    #: what follows the body, part after part, until the iterator ends; the connection then ends, too
    stream: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]] | None = None


def plain_text(text: str, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    """Return a response of one or more lines of text."""
    return HttpResponse(f"{text}\n".encode(), "text/plain; charset=utf-8", status, headers)
