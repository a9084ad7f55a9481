"""Memory that the broker keeps for a peer before authentication, and after a connection has ended."""

import gc
import logging
import socket
import weakref

import pytest
import trio
import trio.testing

from eyot_daemon.auth.login import Authenticator, Deferred, Peer
from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.options import Options
from support.servers.broker import Raw, Running, running

LARGE = 7 * 1024 * 1024
PATIENT = AuthorizationOptions(timeout_s=60.0)
#: A peer that nobody knows yet: what it sent and we hold.
UNKNOWN_MAX = 64 * 1024


class Asks(Authenticator):
    """Nobody gets in without CONNECT, and then only when the test says so."""

    auth_required = True
    wants_nonce = False

    def __init__(self) -> None:
        self.asked: list[Deferred] = []

    async def some(self) -> None:
        """Until somebody wants in."""
        with trio.fail_after(30):
            while not self.asked:
                await trio.sleep(0.005)

    def client(self, *_: object) -> Deferred:
        self.asked.append(Deferred())
        return self.asked[-1]

    def leaf(self, *_: object) -> None:
        return None

    def anonymous(self, *_: object) -> None:
        return None


class Known:
    """Everybody is this one."""

    account = "$G"
    user = "somebody"
    permissions = None
    expires_in_s = 0.0
    token = None
    external = False


async def open_client(up: Running, in_memory: bool) -> Raw:
    return await (up.in_memory(b"") if in_memory else up.raw(b""))


async def test_a_stranger_learns_only_that_it_is_one() -> None:
    """What a CONNECT combines wrongly is said to those who are let in."""
    asks = Asks()
    async with running(Options(host="127.0.0.1", port=-1, authorization=PATIENT), asks) as up:
        for is_known in (False, True):
            client = await up.raw(b'CONNECT {"protocol":7}\r\n')
            await asks.some()
            asks.asked.pop().settle(Known() if is_known else None)
            up.broker.flush()
            said = b"-ERR 'invalid client protocol'\r\n" if is_known else b"-ERR 'Authorization Violation'\r\n"
            assert await client.until_closed() == said


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    "first", [b"PUB a 1000000\r\n", b"PUB a b 1000000\r\n", b"HPUB a 12 1000000\r\n", b"X", b"\r\n"]
)
async def test_who_does_not_begin_with_connect_is_sent_away(first: bytes, in_memory: bool) -> None:
    async with running(Options(host="127.0.0.1", port=-1, authorization=PATIENT), Asks()) as up:
        client = await open_client(up, in_memory)
        await client.send(first)  # and nothing of the payload: the line is enough
        assert await client.until_closed() == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize("in_memory", [False, True])
async def test_what_follows_connect_is_held_within_bounds_and_then_taken(in_memory: bool) -> None:
    asks = Asks()
    async with running(Options(host="127.0.0.1", port=-1, max_payload=LARGE, authorization=PATIENT), asks) as up:
        client = await open_client(up, in_memory)
        payload = bytes(2 * 1024 * 1024)
        sent = b"SUB a 1\r\nPUB a %d\r\n%b\r\nPING\r\n" % (len(payload), payload)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, b'CONNECT {"verbose":false}\r\n' + sent)
            await asks.some()
            (connection,) = up.clients.connections.values()
            assert connection.held_bytes <= UNKNOWN_MAX
            asks.asked[0].settle(Known())
            up.broker.flush()
            answer = await client.until(b"PONG\r\n")
        assert answer == b"MSG a 1 %d\r\n%b\r\nPONG\r\n" % (len(payload), payload)
        assert not connection.held_bytes


@pytest.mark.parametrize("in_memory", [False, True])
async def test_who_is_not_let_in_leaves_nothing_behind(in_memory: bool) -> None:
    asks = Asks()
    async with running(Options(host="127.0.0.1", port=-1, authorization=PATIENT), asks) as up:
        client = await open_client(up, in_memory)
        await client.send(b"CONNECT {}\r\nPUB a 10\r\nabc")
        await asks.some()
        asks.asked[0].settle(None)
        up.broker.flush()
        assert await client.until_closed() == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PUB a",
        b"PUB a 7000000\r\n" + bytes(6_000_000),
        b"CONNECT {",
        b"SUB > 1\r\n",
        b"nonsense\r\n",
        b"PUB a 1\r\nxyz\r\n",
    ],
)
async def test_a_connection_that_ends_is_gone_at_once(
    sent: bytes, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its last reference, not by the collector, which may come hours later."""
    monkeypatch.setattr(logging.getLogger("eyot.client"), "disabled", True)  # the test's log keeps whom it is about
    gc.collect()
    gc.disable()
    try:
        async with running(Options(host="127.0.0.1", port=-1, max_payload=LARGE)) as up:
            client = await open_client(up, in_memory)
            (connection,) = up.clients.connections.values()
            here = weakref.ref(connection)
            del connection
            await client.send(sent)
            await client.stream.aclose()
            with trio.fail_after(30):
                while up.clients.connections:
                    await trio.sleep(0.005)
            with trio.move_on_after(30):  # the peer of a connection that we ended is given a moment to hear why
                while here() is not None:
                    await trio.sleep(0.005)
            assert here() is None
    finally:
        gc.enable()


async def test_a_stream_that_is_reset_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A WebSocket is read through a stream, whose errors come from Trio."""
    monkeypatch.setattr(logging.getLogger("eyot.client"), "disabled", True)
    gc.collect()
    gc.disable()
    try:
        async with running(Options(host="127.0.0.1", port=-1, max_payload=LARGE)) as up:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                client = socket.create_connection(listening.getsockname())
                accepted = trio.socket.from_stdlib_socket(listening.accept()[0])
            up.nursery.start_soon(up.listener.serve_stream, trio.SocketStream(accepted), Peer(host="there", port=1))
            del accepted
            with trio.fail_after(30):
                while not up.clients.connections:
                    await trio.sleep(0.005)
            (connection,) = up.clients.connections.values()
            here = weakref.ref(connection)
            del connection
            client.sendall(b"PUB a 7000000\r\n" + bytes(1000))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            with trio.move_on_after(30):
                while here() is not None:
                    await trio.sleep(0.005)
            assert here() is None
    finally:
        gc.enable()
