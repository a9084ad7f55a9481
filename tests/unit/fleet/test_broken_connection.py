"""An attempt of the fleet's service to connect leaves no stream to the garbage collector, which may come hours later."""

from __future__ import annotations

import gc
import socket
import weakref

import pytest
import trio

from eyot_fleet.connection import connected
from eyot_fleet.errors import ConnectionLost, FleetError, Refused
from eyot_fleet.login import Login

INFO = b'INFO {"server_id":"N","version":"2.10.0","headers":true,"tls_available":true,"max_payload":1000}\r\n'
RESET = b"\1\0\0\0\0\0\0\0"  # SO_LINGER of no time: closing sends RST


async def refuse(listening: socket.socket) -> None:
    """Say INFO, read, and reset the connection."""
    client, _ = await trio.socket.from_stdlib_socket(listening).accept()
    await client.send(INFO)
    await client.recv(65536)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


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
    gc.collect()
    gc.disable()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening, trio.fail_after(60):
            login = Login(servers=(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}",))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse, listening)
                with pytest.raises(error):
                    async with connected(login):
                        await trio.sleep_forever()
        (here,) = opened
        with trio.move_on_after(30):  # Trio's task keeps how the stream was closed until it goes on
            while here() is not None:
                await trio.sleep(0.005)
        assert here() is None
    finally:
        gc.enable()
