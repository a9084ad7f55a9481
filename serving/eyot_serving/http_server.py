"""A small HTTP/1.1 server for pages: h11 for the protocol, Trio for the sockets.

One synchronous function answers a request, so a page is a snapshot between two turns; an answer that needs longer (a login,
an action) is awaited, and a stream of events goes on until its end. Connections are kept alive. Everything that a peer controls is bounded:
the number of connections, the size of a request, the duration of a request, of a response, and of each part of a stream.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from eyot_serving.broken_streams import cut_cycles
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress, plain_text
from eyot_serving.tls_alert import SmallReads, handshake

log = logging.getLogger("eyot.monitor")

#: Open connections. A further one takes the place of the one that has waited longest for its client, or else waits in the
#: listening socket's backlog.
CONNECTIONS_MAX = 256
#: Request line and headers, bytes.
HEAD_BYTES_MAX = 32 << 10
#: The body of a request is read up to this size, then the connection ends.
BODY_BYTES_MAX = 64 << 10
#: A request must be complete within this time, counted from its first byte or from the end of the response before it.
REQUEST_S_MAX = 30.0
#: A response must be read by the client within this time.
RESPONSE_S_MAX = 60.0
#: After a refusal the client may send on for this time, unread.
LINGER_S_MAX = 2.0
_READ_BYTES = 16 << 10
#: accept() fails with these when the client disconnected first.
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM})
#: accept() fails with these when the listening socket itself was closed.
_CLOSED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
#: Pause before the next accept() after any other error (no more files, no memory), seconds.
ACCEPT_AGAIN_S = 0.1
#: At most one line of the log in this time tells of connections that ended for others.
_TELL_S = 60.0


Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


async def serve(
    listener: socket.socket,
    handler: Handler,
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    connections_max: int | None = None,
) -> None:
    """Serve a listening socket until cancelled, as HTTPS with what `tls` gives for each connection. Takes over the socket."""
    limit = trio.CapacityLimiter(connections_max or CONNECTIONS_MAX)
    waits = _Waits()
    with trio.socket.from_stdlib_socket(listener) as sock:
        async with trio.open_nursery() as nursery:
            while True:
                if not limit.available_tokens:
                    await trio.lowlevel.wait_readable(sock)
                    waits.end_longest()
                await limit.acquire_on_behalf_of(token := object())
                connection = await _accept(sock)
                nursery.start_soon(_serve_connection, connection, handler, tls(), waits, limit, token)


class _Waits:
    """The connections that wait for their clients: for a handshake, for a request or the rest of it, or to be read.

    Whoever opens connections and says nothing, or one byte at a time, would keep everybody else away: of as many as there
    may be, the one that has waited longest makes room.
    """

    def __init__(self) -> None:
        self._scopes: dict[trio.CancelScope, None] = {}
        self._ended = 0
        self._tell_at = 0.0

    @contextmanager
    def for_client(self, seconds: float) -> Iterator[None]:
        """Wait within this block. Raises TooSlowError after these seconds, and when the connection makes room."""
        with trio.fail_after(seconds) as scope:
            self._scopes[scope] = None
            try:
                yield
            finally:
                del self._scopes[scope]

    def end_longest(self) -> None:
        """End the connection that has waited longest, if one waits."""
        scope = next(iter(self._scopes), None)
        if scope is None:
            return
        scope.cancel()
        self._ended += 1
        if trio.current_time() >= self._tell_at:
            self._tell_at = trio.current_time() + _TELL_S
            log.warning(
                "Monitoring has as many connections as it serves: %d ended that waited for their clients", self._ended
            )
            self._ended = 0


async def _accept(sock: trio.socket.SocketType) -> trio.socket.SocketType:
    """Accept the next connection. Errors of one connection, and a lack of files or memory, are retried."""
    while True:
        try:
            connection, _ = await sock.accept()
        except OSError as error:
            if error.errno in _CLOSED:
                raise
            if error.errno not in _GONE:
                log.warning("Monitoring cannot accept a connection: %s", error.strerror)
                await trio.sleep(ACCEPT_AGAIN_S)
        else:
            return connection


async def _serve_connection(
    sock: trio.socket.SocketType,
    handler: Handler,
    tls: ssl.SSLContext | None,
    waits: _Waits,
    limit: trio.CapacityLimiter,
    token: object,
) -> None:
    try:
        stream: trio.abc.Stream = trio.SocketStream(sock)
        if tls is not None:
            secured = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
            with waits.for_client(REQUEST_S_MAX):
                await handshake(secured)
            secured.transport_stream = SmallReads(secured.transport_stream)
            stream = secured
        await _Connection(stream, handler, _peer_of(sock, has_tls=tls is not None), waits).run()
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
        log.debug("Monitoring connection ended: %r", error)
        cut_cycles(error)
    except Exception:
        log.exception("Monitoring connection failed")
    finally:
        sock.close()
        limit.release_on_behalf_of(token)


def _peer_of(sock: trio.socket.SocketType, *, has_tls: bool) -> PeerAddress:
    if sock.family == socket.AF_UNIX:
        return PeerAddress(unix=True)
    return PeerAddress(str(sock.getpeername()[0]).partition("%")[0], has_tls)


class _Connection:
    """One connection, request after request."""

    def __init__(self, stream: trio.abc.Stream, handler: Handler, peer: PeerAddress, waits: _Waits) -> None:
        self._waits = waits
        self._stream = stream
        self._handler = handler
        self._peer = peer
        self._body = b""
        #: of the request that is read or answered; "GET" until its headers are complete
        self._method = "GET"
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Answer requests until either side ends the connection."""
        while True:
            try:
                with self._waits.for_client(REQUEST_S_MAX):
                    request = await self._request()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
                return
            if request is None:
                return
            method = self._method
            with trio.fail_after(RESPONSE_S_MAX):
                response = await self._answer(request)
                if response.stream is None or method == "HEAD":
                    await self._respond(method, response)
            if response.stream is not None and method != "HEAD":
                await self._respond_in_parts(response)
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _request(self) -> h11.Request | None:
        """Read the next request and its body; None when the client has closed the connection."""
        request, body = None, bytearray()
        self._method = "GET"
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(bytes(await self._stream.receive_some(_READ_BYTES)))
            elif isinstance(event, h11.Request):
                request = event
                self._method = event.method.decode()
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                self._body = bytes(body)
                return request
            else:
                return None

    async def _answer(self, request: h11.Request) -> HttpResponse:
        if self._method == "CONNECT":  # a success would make this connection a tunnel
            return _plain(405)
        try:
            target = request.target.decode("ascii", "replace")
            if not target.startswith("/"):  # the absolute form, which proxies send
                target = urlsplit(target)._replace(scheme="", netloc="").geturl()
            path, _, query = target.partition("?")
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            asked = HttpRequest(
                method=self._method,
                path=unquote(path) or "/",
                query=dict(parse_qsl(query, keep_blank_values=True)),
                host=headers.get("host", ""),
                headers=headers,
                body=self._body,
                peer=self._peer,
            )
        except ValueError:
            return _plain(400)
        try:
            answer = self._handler(asked)
            return answer if isinstance(answer, HttpResponse) else await answer
        except Exception:
            log.exception("The page %s failed", asked.path)
            return _plain(500)

    async def _respond(self, method: str, response: HttpResponse) -> None:
        headers = [
            ("Date", _date()),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
        ]
        await self._send(h11.Response(status_code=response.status, headers=[*headers, *response.headers]))
        if method != "HEAD":
            await self._send(h11.Data(data=response.body))
        await self._send(h11.EndOfMessage())

    async def _respond_in_parts(self, response: HttpResponse) -> None:
        """Send a stream. A part that the client does not read within RESPONSE_S_MAX ends it, and so does a client that goes."""
        assert response.stream is not None
        headers = [("Date", _date()), ("Content-Type", response.content_type), ("Connection", "close")]
        with trio.fail_after(RESPONSE_S_MAX):
            await self._send(h11.Response(status_code=response.status, headers=[*headers, *response.headers]))
            if response.body:
                await self._send(h11.Data(data=response.body))
        async with response.stream() as parts, trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, nursery.cancel_scope)
            # Here: what leaves the nursery would come as a group.
            try:
                async for part in parts:
                    with trio.fail_after(RESPONSE_S_MAX):
                        await self._send(h11.Data(data=part))
                with trio.fail_after(RESPONSE_S_MAX):
                    await self._send(h11.EndOfMessage())
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
                cut_cycles(error)
            nursery.cancel_scope.cancel()

    async def _until_gone(self, scope: trio.CancelScope) -> None:
        """Cancel a stream when its client has closed the connection. What the client sends meanwhile is not read as a request."""
        try:
            while await self._stream.receive_some(_READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            cut_cycles(error)
        scope.cancel()

    async def _refuse(self, status: int) -> None:
        """Answer a malformed request, if an answer is still possible."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with trio.fail_after(RESPONSE_S_MAX):
                await self._respond(self._method, _plain(status, [("Connection", "close")]))
            await self._linger()

    async def _linger(self) -> None:
        """Read on for a moment: a connection that is closed with unread bytes is reset, and the answer is lost with it."""
        with trio.move_on_after(LINGER_S_MAX):
            if isinstance(self._stream, trio.SocketStream):
                await self._stream.send_eof()
            while await self._stream.receive_some(_READ_BYTES):
                pass

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            with self._waits.for_client(RESPONSE_S_MAX):
                await self._stream.send_all(data)


def _date() -> str:
    """Return the time as HTTP writes it."""
    from email.utils import formatdate  # not before somebody asks for a page

    return formatdate(usegmt=True)


def _plain(status: int, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    return plain_text(HTTPStatus(status).phrase, status, headers)
