"""Clients over TLS: after INFO, at once, with a fallback, or only for those who like."""

import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from cryptography import x509

from eyot_daemon.client.listener import ClientListener
from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.config.tls_read import can_keep_to
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.stream_transport import further_record
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.net.tls_words import handshake_words
from support.servers.broker import PLAIN, Raw, Running, running
from support.trust.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def listening(
    authority: Authority, *, allow_non_tls: bool = False, **settings: object
) -> AsyncIterator[tuple[Running, int]]:
    """A broker with a TLS listener besides the plain one of `running`; gives its port."""
    certificate, key = authority.issue("server")
    tls = TlsOptions(cert_file=str(certificate), key_file=str(key), ca_file=str(authority.ca_file), **settings)  # type: ignore[arg-type]
    options = Options(host="127.0.0.1", port=-1, tls=tls, allow_non_tls=allow_non_tls)
    async with running(options) as up:
        listener = TcpListener.bind("127.0.0.1", -1)
        serve = ClientListener(up.clients, up.nursery, server_context(tls)).serve
        up.nursery.start_soon(listener.run, serve, up.nursery)
        yield up, listener.port


def context(authority: Authority, client: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.ca_file))
    if client:
        certificate, key = authority.issue(client)
        made.load_cert_chain(certificate, key)
    return made


async def secure(stream: trio.SocketStream, made: ssl.SSLContext) -> Raw:
    return Raw(trio.SSLStream(stream, made, server_hostname="localhost", https_compatible=True))


async def read_info(stream: trio.SocketStream) -> dict[str, object]:
    line = b""
    while not line.endswith(b"\r\n"):
        line += await stream.receive_some(1)
    return dict(json.loads(line.removeprefix(b"INFO ")))


async def test_tls_after_info(authority: Authority) -> None:
    async with listening(authority) as (up, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        info = await read_info(stream)
        assert info["tls_required"] is True
        client = await secure(stream, context(authority))
        payload = b"x" * 300_000
        got = await client.ask(PLAIN + b"SUB a 1\r\nPUB a 300000\r\n" + payload + b"\r\n")
        assert got == b"MSG a 1 300000\r\n" + payload + b"\r\n"
        (connection,) = up.clients.connections.values()
        assert connection.peer.tls_version.startswith("TLSv1.")
        assert connection.peer.tls_cipher


async def test_handshake_first(authority: Authority) -> None:
    async with listening(authority, handshake_first=True) as (_, port):
        client = await secure(await trio.open_tcp_stream("127.0.0.1", port), context(authority))
        await client.greet()
        assert client.handshake.startswith(b"INFO ")
        assert await client.ask(PLAIN) == b""


async def test_handshake_first_falls_back_to_info(authority: Authority) -> None:
    async with listening(authority, handshake_first=True, handshake_first_fallback_s=0.05) as (_, port):
        eager = await secure(await trio.open_tcp_stream("127.0.0.1", port), context(authority))
        await eager.greet()
        assert await eager.ask(PLAIN) == b""
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        patient = await secure(stream, context(authority))
        assert await patient.ask(PLAIN) == b""


async def test_those_who_like_may_go_on_in_clear(authority: Authority) -> None:
    async with listening(authority, allow_non_tls=True) as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        info = await read_info(stream)
        assert info["tls_available"] is True
        assert "tls_required" not in info
        assert await Raw(stream).ask(PLAIN) == b""
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        assert await (await secure(stream, context(authority))).ask(PLAIN) == b""


async def test_a_client_certificate_is_required_and_known(authority: Authority) -> None:
    async with listening(authority, verify=True) as (up, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        assert (await read_info(stream))["tls_verify"] is True
        client = await secure(stream, context(authority, "client"))
        assert await client.ask(PLAIN) == b""
        (connection,) = up.clients.connections.values()
        assert connection.peer.certificate
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        nobody = await secure(stream, context(authority))
        await nobody.send(PLAIN + b"PING\r\n")
        assert await nobody.until_closed() == b""
        while len(up.clients.connections) > 1:
            await trio.sleep(0.005)
        assert up.clients.closed[-1].close_reason == "TLS Handshake Failure"


async def test_plain_bytes_where_tls_is_required_end_the_connection(authority: Authority) -> None:
    async with listening(authority) as (up, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        client = Raw(stream)
        await client.send(PLAIN)
        await client.until_closed()
        while up.clients.connections:
            await trio.sleep(0.005)
        assert up.clients.closed[-1].close_reason == "TLS Handshake Failure"


async def test_silence_instead_of_a_handshake_ends_the_connection(authority: Authority) -> None:
    async with listening(authority, timeout_s=0.05) as (up, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        assert await Raw(stream).until_closed() == b""
        assert up.clients.closed[-1].close_reason == "TLS Handshake Failure"


needs_x25519 = pytest.mark.skipif(not can_keep_to("X25519"), reason="Python's ssl here takes no X25519")


@pytest.mark.parametrize(
    ("preferred", "offered", "agreed"),
    [
        ("CurveP384", "secp384r1", True),
        ("CurveP384", "prime256v1", False),
        pytest.param("X25519", "X25519", True, marks=needs_x25519),
        pytest.param("X25519", "secp384r1", False, marks=needs_x25519),
    ],
)
async def test_curve_preferences(authority: Authority, preferred: str, offered: str, agreed: bool) -> None:
    async with listening(authority, curve=preferred) as (_, port):
        made = context(authority)
        made.set_ecdh_curve(offered)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await read_info(stream)
        secured = trio.SSLStream(stream, made, server_hostname="localhost", https_compatible=True)
        if agreed:
            assert await Raw(secured).ask(PLAIN) == b""
        else:
            with pytest.raises(trio.BrokenResourceError):
                await secured.do_handshake()


async def test_records_that_came_together_are_read_together(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    ours, theirs = trio.testing.memory_stream_pair()
    client = trio.SSLStream(ours, context(authority), server_hostname="localhost")
    tls = server_context(TlsOptions(cert_file=str(certificate), key_file=str(key)))
    server = trio.SSLStream(theirs, tls, server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.do_handshake)
        nursery.start_soon(server.do_handshake)
    for record in (b"one", b"two", b"three"):
        await client.send_all(record)
    assert await server.receive_some(100) == b"one"
    assert [further_record(server) for _ in range(3)] == [b"two", b"three", b""]
    await client.send_all(b"four")
    assert await server.receive_some(100) == b"four"


async def test_of_several_certificates_the_first_for_the_name_is_shown(authority: Authority) -> None:
    pairs = []
    for name in ("a", "b", "c"):
        names: list[x509.GeneralName] = [x509.DNSName(f"{name}.example.com"), x509.DNSName(f"*.{name}.example.com")]
        certificate, key = authority.issue(name, names=names)
        pairs.append((str(certificate), str(key)))
    async with listening(authority, more_certs=tuple(pairs)) as (_, port):
        shown = {}
        for wanted in ("localhost", "b.example.com", "X.C.example.com", "nobody.example.com"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await read_info(stream)
            made = context(authority)
            made.check_hostname = False
            secured = trio.SSLStream(stream, made, server_hostname=wanted, https_compatible=True)
            await secured.do_handshake()
            subject = dict(pair for (pair,) in secured.getpeercert()["subject"])
            shown[wanted] = subject["commonName"]
            await trio.aclose_forcefully(secured)
    assert shown == {
        "localhost": "server",
        "b.example.com": "b",
        "X.C.example.com": "c",
        "nobody.example.com": "server",
    }


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_who_has_no_certificate_is_told_so(authority: Authority, first: bool, version: ssl.TLSVersion) -> None:
    async with listening(authority, verify=True, handshake_first=first) as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        if not first:
            await read_info(stream)
        made = context(authority)
        made.maximum_version = version
        secured = trio.SSLStream(stream, made, server_hostname="localhost", https_compatible=True)

        async def converse() -> None:
            await secured.do_handshake()
            await secured.send_all(b"CONNECT {}\r\nPING\r\n")
            await secured.receive_some(1)

        with pytest.raises(trio.BrokenResourceError) as told:
            await converse()
        assert "ALERT" in str(told.value.__cause__)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_certificate_is_looked_at_each_time(authority: Authority, version: ssl.TLSVersion) -> None:
    """A session that is resumed must not bring in whom the full handshake would refuse by now."""
    async with listening(authority, verify=True) as (up, port):
        made = context(authority)
        made.maximum_version = version
        sessions: list[ssl.SSLSession | None] = [None]

        def connect() -> bytes:
            with socket.create_connection(("127.0.0.1", port), 10) as plain:
                while not plain.recv(1, socket.MSG_PEEK):
                    pass
                plain.recv(4096)
                with made.wrap_socket(plain, server_hostname="localhost", session=sessions[0]) as secured:
                    secured.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                    answer = secured.recv(4096)
                    sessions[0] = secured.session
                    return answer

        async def answer() -> bytes:
            try:
                return await trio.to_thread.run_sync(connect)
            except (ssl.SSLError, ConnectionError):
                return b""

        for seconds in (2, 4, 8, 16, 32):  # a slow machine needs more for the first connection
            made.load_cert_chain(*authority.issue("short", seconds=seconds))
            expires = time.time() + seconds
            if b"PONG" in await answer():
                break
        else:
            raise AssertionError("the certificate is not valid at all")
        await trio.sleep(max(0.0, expires + 0.5 - time.time()))
        while up.clients.connections:
            await trio.sleep(0.005)
        seen = len(up.clients.closed)
        assert b"PONG" not in await answer()
        with trio.fail_after(60):  # the client has its alert before the server has done with the connection
            while len(up.clients.closed) <= seen:
                await trio.sleep(0.005)
        assert up.clients.closed[-1].close_reason == "TLS Handshake Failure"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ssl.SSLError("certificate not pinned"), "certificate not pinned"),
        (ssl.SSLError(), "SSLError"),
        (ssl.SSLError(1, "[SSL: NO_SHARED_CIPHER] no shared cipher"), "[SSL: NO_SHARED_CIPHER] no shared cipher"),
        (ssl.SSLCertVerificationError("odd"), "tls: failed to verify certificate: x509: odd"),
        (trio.TooSlowError(), "i/o timeout"),
        (trio.BrokenResourceError(), "EOF"),
        (ConnectionResetError(104, "Connection reset by peer"), "connection reset by peer"),
        (OSError(), "OSError"),
    ],
)
def test_errors_of_every_make_have_words(error: Exception, words: str) -> None:
    assert handshake_words(error) == words
