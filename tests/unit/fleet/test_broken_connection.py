"""A connection of the fleet's service that breaks leaves nothing to the garbage collector, which may come hours later."""

from __future__ import annotations

import contextlib
import socket
import weakref

import pytest
import trio

from eyot_fleet.connection import Connection, connected
from eyot_fleet.errors import ConnectionLost, FleetError, Refused
from eyot_fleet.login import Login
from support.clients.freed import close_with_reset, collector_off, is_freed, left_frames

INFO = b'INFO {"server_id":"N","version":"2.10.0","headers":true,"tls_available":true,"max_payload":1000}\r\n'


def login_to(listening: socket.socket, scheme: str = "nats") -> Login:
    return Login(servers=(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}",))


async def refuse(listening: socket.socket) -> None:
    """Say INFO, read, and reset the connection."""
    client, _ = await trio.socket.from_stdlib_socket(listening).accept()
    await client.send(INFO)
    await client.recv(65536)
    close_with_reset(client)


async def serve(listening: socket.socket, used: trio.Event, last: bytes | None) -> None:
    """Let a client log in, and when it uses the connection, say the last words and close it; None: reset it."""
    client, _ = await trio.socket.from_stdlib_socket(listening).accept()
    await client.send(INFO)
    said = b""
    while b"PING\r\n" not in said:
        said += await client.recv(65536)
    await client.send(b"PONG\r\n")
    await used.wait()
    if last is None:
        close_with_reset(client)
        return
    await client.send(last)
    client.close()


async def sleep(connection: Connection) -> None:
    await trio.sleep_forever()


async def work(connection: Connection) -> None:
    """Do what the service does: tasks that wait for messages beside a request."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.subscribe("x").take)
        await connection.request("y", timeout_s=3600)


@pytest.mark.parametrize(
    ("scheme", "error"), [("nats", ConnectionLost), ("tls", Refused)], ids=["the login", "the TLS handshake"]
)
async def test_a_connection_that_is_reset_is_gone_at_once(
    scheme: str, error: type[FleetError], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[weakref.ref[trio.SocketStream]] = []
    dial = trio.open_tcp_stream

    async def noted(host: str, port: int) -> trio.SocketStream:
        stream = await dial(host, port)
        opened.append(weakref.ref(stream))
        return stream

    monkeypatch.setattr(trio, "open_tcp_stream", noted)
    with collector_off():
        with socket.create_server(("127.0.0.1", 0)) as listening, trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse, listening)
                with pytest.raises(error):
                    async with connected(login_to(listening, scheme)):
                        await trio.sleep_forever()
        (here,) = opened
        assert await is_freed(here)


async def test_a_dial_that_is_refused_leaves_no_cycle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    login, said = Login(servers=(f"nats://localhost:{port}",)), ""  # two addresses on most machines
    with collector_off():
        try:
            async with connected(login):
                raise AssertionError("nobody listens")
        except ConnectionLost as error:  # pytest.raises would keep the error
            said = str(error)
        assert left_frames("trio") == []
    assert f"localhost:{port}: Connection refused: " in said


@pytest.mark.parametrize("block", [sleep, work])
@pytest.mark.parametrize("last", [None, b"", b"-ERR 'Stale Connection'\r\n", b"no NATS\r\n"])
async def test_an_established_connection_that_ends_leaves_no_cycle(last: bytes | None, block) -> None:  # type: ignore[no-untyped-def]
    used = trio.Event()
    with collector_off():
        with socket.create_server(("127.0.0.1", 0)) as listening, trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, listening, used, last)
                with contextlib.suppress(ConnectionLost):
                    async with connected(login_to(listening)) as connection:
                        here = weakref.ref(connection)
                        used.set()
                        await block(connection)
        del connection
        assert await is_freed(here)
        assert left_frames("eyot_fleet") == []
