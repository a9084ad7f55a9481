"""NATS's Python client behind a SOCKS5 proxy (RFC 1928, RFC 1929), which resolves the server's name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from nats.aio.transport import TcpTransport

from eyot_cli.connection.refusals import said
from eyot_cli.terminal.failure import Failure
from eyot_wire.host_name import can_be_host

if TYPE_CHECKING:
    from urllib.parse import ParseResult

_PORT = 1080
_SCHEMES = ("socks5", "socks5h")
#: Answers of a proxy to CONNECT, by number.
_REFUSALS = (
    "", "general failure", "not allowed", "network unreachable", "host unreachable", "connection refused", "TTL expired",
    "command not supported", "address type not supported",
)  # fmt: skip
#: Bytes of an address in an answer, by its type: IPv4, IPv6; a name says its length.
_ADDRESS_BYTES = {1: 4, 4: 16}
_NAME = 3
_TEXT_BYTES = 255


class ProxyError(OSError):
    """The proxy cannot be reached, or does not reach the server; its text tells which."""


class Proxy(NamedTuple):
    """Where the proxy is, and who logs in there; "" without a login."""

    host: str
    port: int
    user: str
    password: str


def proxy_of(url: str) -> Proxy:
    """Parse `socks5://[USER:PASSWORD@]HOST[:PORT]`. Raises Failure."""
    wrong = Failure("the proxy is no socks5://[USER:PASSWORD@]HOST[:PORT]")  # never the text: a password may be in it
    try:
        parts = urlsplit(url)
        found = Proxy(
            parts.hostname or "", parts.port or _PORT, unquote(parts.username or ""), unquote(parts.password or "")
        )
    except ValueError:
        raise wrong from None
    if parts.scheme not in _SCHEMES or not can_be_host(found.host):
        raise wrong
    return found


class SocksTransport(TcpTransport):
    """A connection through a proxy. TLS begins within, and verifies the server's name as without a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._proxy = proxy

    def __bool__(self) -> bool:
        """Return True before the connection, too: the client would replace the transport."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect to the server. Raises ProxyError, TimeoutError."""
        async with asyncio.timeout(connect_timeout):
            try:
                reader, writer = await asyncio.open_connection(self._proxy.host, self._proxy.port, limit=buffer_size)
            except OSError as error:
                raise _failed(self._proxy, said(error)) from error
            try:
                await self._login(reader, writer)
                await self._reach(reader, writer, uri.hostname or "", uri.port or 0)
            except asyncio.IncompleteReadError:
                writer.close()
                raise _failed(self._proxy, "it closed the connection: is it a SOCKS5 proxy?") from None
            except BaseException:
                writer.close()
                raise
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def _login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x05\x02\x00\x02" if self._proxy.user else b"\x05\x01\x00")
        version, method = await reader.readexactly(2)
        if version != 5:
            raise _failed(self._proxy, "it is no SOCKS5 proxy")
        if method not in (0, 2) or (method == 2 and not self._proxy.user):
            raise _failed(self._proxy, "it wants a login: socks5://USER:PASSWORD@HOST")
        if method == 2:
            writer.write(b"\x01" + _text(self._proxy.user) + _text(self._proxy.password))
            if (await reader.readexactly(2))[1] != 0:
                raise _failed(self._proxy, "it refuses the login")

    async def _reach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        writer.write(b"\x05\x01\x00\x03" + _text(host) + port.to_bytes(2, "big"))
        _, code, _, kind = await reader.readexactly(4)
        length = (await reader.readexactly(1))[0] if kind == _NAME else _ADDRESS_BYTES.get(kind, 0)
        await reader.readexactly(length + 2)
        if code != 0:
            reason = _REFUSALS[code] if code < len(_REFUSALS) else f"error {code}"
            raise _failed(self._proxy, f"no connection to {host}:{port}: {reason}")


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _TEXT_BYTES:
        raise Failure(f"a proxy takes {_TEXT_BYTES} bytes of a name or password, these are {len(encoded)}")
    return bytes([len(encoded)]) + encoded


def _failed(proxy: Proxy, why: str) -> ProxyError:
    return ProxyError(-1, f"proxy {proxy.host}:{proxy.port}: {why}")
