"""The HTTP server of the monitoring pages, over real sockets."""

from __future__ import annotations

import gc
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from eyot_serving import http_server
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress
from eyot_serving.http_server import serve
from support.trust.certificates import Authority


def echo(request: HttpRequest) -> HttpResponse:
    if request.path == "/fails":
        raise RuntimeError("a bug")
    return HttpResponse(f"{request.method} {request.path} {request.query}".encode(), "text/plain")


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    sock = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, sock, echo)
        yield sock.getsockname()[1]
        nursery.cancel_scope.cancel()


async def converse(port: int, sent: bytes) -> bytes:
    """What the server says until it closes the connection."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(sent)
        await stream.send_eof()
        said = b""
        with trio.fail_after(10):
            async for data in stream:
                said += data
        return said


async def test_requests_follow_one_another_on_a_connection() -> None:
    async with served() as port:
        said = await converse(
            port,
            b"GET /a?x=1&y=%20 HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
        )
    assert b"GET /a {'x': '1', 'y': ' '}" in said
    assert said.endswith(b"POST /b {}")


async def test_head_has_a_length_and_no_body() -> None:
    async with served() as port:
        said = await converse(port, b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-length: 10" in head.lower()
    assert body == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /a HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET /fails HTTP/1.1\r\nHost: h\r\n\r\n", b"500"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 2 * http_server.HEAD_BYTES_MAX + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, b"413"),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, b"413"),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", b"400"),
        (b"CONNECT /a HTTP/1.1\r\nHost: h\r\n\r\n", b"405"),
    ],
)
async def test_what_is_wrong_is_answered_and_the_server_goes_on(
    sent: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as port:
        said = await converse(port, sent)
        assert said.startswith(b"HTTP/1.1 " + status), said
        assert b"GET /next" in await converse(port, b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"500" in status or "Traceback" not in caplog.text


async def test_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S_MAX", 0.05)
    async with served() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with trio.fail_after(10):
            assert await stream.receive_some() == b""


SAYS_LITTLE = {
    "nothing": b"",
    "a part of a request": b"GET / HTTP/1.1\r\nHost: h\r\nX-A: ",
    "a request, and keeps the connection": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "requests, and reads nothing": b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n" * 3,
}


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("little", SAYS_LITTLE)
async def test_clients_that_say_little_keep_nobody_else_away(
    little: str, secured: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has waited longest makes room: with 256 of them others waited for 30 s, and a check of /healthz failed."""
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    authority = Authority(tmp_path / "certs")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(*authority.issue("server"))

    def handler(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"x" * (8 << 20)) if request.path == "/long" else echo(request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, sock, handler, (lambda: server_tls) if secured else (lambda: None))
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(7)]
        for stream in idle:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(SAYS_LITTLE[little])
        with trio.fail_after(10):
            if secured:
                client_tls = ssl.create_default_context(cafile=authority.ca_file)
                ssl_stream = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=client_tls)
                await ssl_stream.send_all(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n")
                said = b""
                while b"GET /other" not in said:
                    said += await ssl_stream.receive_some()
            else:
                said = await converse(port, b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"GET /other" in said
        nursery.cancel_scope.cancel()
    assert "as many connections as it serves" in caplog.text


async def test_a_connection_that_is_being_answered_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)
    begun, go_on = trio.Event(), trio.Event()

    async def slow(request: HttpRequest) -> HttpResponse:
        begun.set()
        await go_on.wait()
        return echo(request)

    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    said: dict[str, bytes] = {}

    async def ask(path: str) -> None:
        said[path] = await converse(port, f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, sock, slow)
        async with trio.open_nursery() as clients:
            clients.start_soon(ask, "/first")
            await begun.wait()
            clients.start_soon(ask, "/second")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not said
            go_on.set()
        nursery.cancel_scope.cancel()
    assert b"GET /first" in said["/first"]
    assert b"GET /second" in said["/second"]


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
async def test_a_handler_knows_the_peer_and_the_body_and_may_wait(kind: str, tmp_path: Path) -> None:
    seen: list[HttpRequest] = []

    async def later(request: HttpRequest) -> HttpResponse:
        await trio.lowlevel.checkpoint()
        seen.append(request)
        return HttpResponse(b"later", "text/plain")

    authority = Authority(tmp_path / "certs")
    server_tls = client_tls = None
    if kind == "tls":
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(*authority.issue("server"))
        client_tls = ssl.create_default_context(cafile=authority.ca_file)
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "sock"))
        sock.listen()
    else:
        sock = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        stream: trio.abc.Stream
        if kind == "unix":
            stream = await trio.open_unix_socket(str(tmp_path / "sock"))
        else:
            stream = await trio.open_tcp_stream("127.0.0.1", sock.getsockname()[1])
        if client_tls is not None:
            stream = trio.SSLStream(stream, client_tls, server_hostname="localhost", https_compatible=True)
        nursery.start_soon(serve, sock, later, lambda: server_tls)
        with trio.fail_after(60):
            await stream.send_all(
                b"POST /a HTTP/1.1\r\nHost: h\r\nX-Y: z\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
            )
            said = b""
            while not said.endswith(b"later"):
                said += await stream.receive_some()
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(stream)
    (request,) = seen
    assert (request.body, request.headers["x-y"], request.host) == (b"hi", "z", "h")
    expected = {"tcp": PeerAddress("127.0.0.1"), "unix": PeerAddress(unix=True), "tls": PeerAddress("127.0.0.1", True)}
    assert request.peer == expected[kind]


class Stream:
    """A response that goes on: what it sends, and whether it has ended."""

    def __init__(self) -> None:
        self.send, self._receive = trio.open_memory_channel[bytes](10)
        self.ended = trio.Event()

    def answer(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"first|", "text/event-stream", stream=self._parts)

    @asynccontextmanager
    async def _parts(self) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            yield self._receive
        finally:
            self.ended.set()


GET = b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n"


@asynccontextmanager
async def streaming(server: Stream) -> AsyncIterator[trio.SocketStream]:
    sock = socket.create_server(("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, sock, server.answer)
        client = await trio.open_tcp_stream("127.0.0.1", sock.getsockname()[1])
        with trio.fail_after(60):
            yield client
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(client)


async def received(client: trio.SocketStream, end: bytes) -> bytes:
    said = b""
    while not said.endswith(end):
        more = await client.receive_some()
        assert more, said
        said += more
    return said


async def test_a_stream_goes_on_after_the_body_and_ends_with_the_connection() -> None:
    server = Stream()
    async with streaming(server) as client:
        await client.send_all(GET)
        head = await received(client, b"first|\r\n")
        assert b"200" in head
        assert b"transfer-encoding: chunked" in head.lower()
        await server.send.send(b"second|")
        assert b"second|" in await received(client, b"second|\r\n")
        server.send.close()
        await received(client, b"0\r\n\r\n")
        assert await client.receive_some() == b""
        await server.ended.wait()


async def test_a_stream_ends_when_its_client_goes() -> None:
    server = Stream()
    async with streaming(server) as client:
        await client.send_all(GET)
        await received(client, b"first|\r\n")
        await client.aclose()
        await server.ended.wait()


async def test_a_client_that_does_not_read_its_stream_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "RESPONSE_S_MAX", 0.2)
    server = Stream()
    async with streaming(server) as client:
        await client.send_all(GET)
        await received(client, b"first|\r\n")
        while not server.ended.is_set():
            with trio.move_on_after(0.1):
                await server.send.send(b"x" * 1_000_000)
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == []


async def test_a_stream_answers_head_with_its_headers_alone() -> None:
    server = Stream()
    async with streaming(server) as client:
        await client.send_all(GET.replace(b"GET", b"HEAD"))
        assert b"text/event-stream" in await received(client, b"\r\n\r\n")
        assert not server.ended.is_set()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + bytes(50_000),
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n" + bytes(70_000),
        b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 40_000,
    ],
    ids=["a request", "a part of a body", "too large a body", "too large a head"],
)
async def test_a_connection_that_is_reset_is_gone_at_once(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its last reference, not by the collector, which may come hours later."""
    monkeypatch.setattr(logging.getLogger("eyot.monitor"), "disabled", True)  # the test's log keeps whom it is about
    here: list[weakref.ref[object]] = []

    class Watched(http_server._Connection):
        async def run(self) -> None:
            here.append(weakref.ref(self))
            await super().run()

    monkeypatch.setattr(http_server, "_Connection", Watched)
    gc.collect()
    gc.disable()
    try:
        async with served() as port:
            client = await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(sent)
            with trio.fail_after(30):
                while not here:
                    await trio.sleep(0.005)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await client.aclose()
            with trio.move_on_after(30):
                while here[0]() is not None:
                    await trio.sleep(0.005)
            assert here[0]() is None
    finally:
        gc.enable()
