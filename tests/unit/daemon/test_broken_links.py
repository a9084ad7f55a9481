"""A link or bridge whose connection breaks leaves nothing to the garbage collector, which may come hours later."""

from __future__ import annotations

import random
import socket
import weakref
from pathlib import Path

import pytest
import trio
import trio.testing

from eyot_daemon.bridge.bridge import Bridge
from eyot_daemon.config.bridges import BridgeOptions
from eyot_daemon.config.leaf import LeafNodesOptions, LeafUrl, RemoteOptions
from eyot_daemon.config.options import Options
from eyot_daemon.leaf import remotes
from eyot_daemon.leaf.remotes import RemoteRunner
from eyot_daemon.net.websocket_client import WebSocketClientStream
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_sync.link.dialer import TcpDialer
from eyot_sync.link.ports import LinkRunner
from eyot_sync.link.state import LinkState
from eyot_sync.link.urls import LinkAddress
from support.clients.freed import close_with_reset, collector_off, is_freed
from support.jetstream.fixture import Fixture

HOST, PORT = "127.0.0.1", 7422


def leaf(scheme: str, path: Path) -> LinkRunner:
    options = Options(server_name="leaf", leafnodes=LeafNodesOptions(port=-1))
    broker = Broker(options)
    set_up_accounts(broker, options)
    return RemoteRunner(broker.links, RemoteOptions(urls=(LeafUrl(scheme=scheme, host=HOST, port=PORT),)))


def bridge(scheme: str, path: Path) -> LinkRunner:
    fixture = Fixture(path)
    fixture.create("S", subjects=["s.>"])
    url = LeafUrl(scheme=scheme, host=HOST, port=PORT)
    options = BridgeOptions(name="cloud", urls=(url,), client_id="gw", streams=("S",))
    dialer = TcpDialer(random.Random(1))

    def sessions() -> None:
        raise AssertionError("nothing comes in")

    return Bridge(fixture.broker, options, dialer, env={}, jetstream=lambda: fixture.jsa, sessions=sessions)  # type: ignore[arg-type]


def reset_connection() -> trio.SocketStream:
    """A connection that the peer has reset."""
    with socket.create_server((HOST, 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    close_with_reset(theirs)
    return stream


@pytest.mark.parametrize(
    ("make", "scheme"),
    [(leaf, "nats"), (leaf, "ws"), (leaf, "wss"), (bridge, "mqtt"), (bridge, "mqtts"), (bridge, "ws")],
)
async def test_an_outgoing_connection_that_is_reset_is_gone_at_once(make, scheme: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runner = make(scheme, tmp_path)
    state = LinkState("cloud", "$G", solicited=True, since_ns=0)
    with collector_off():
        stream = reset_connection()
        here = weakref.ref(stream)
        with trio.fail_after(60):
            end = await runner.run_link(stream, LinkAddress(HOST, PORT, scheme), state, lambda urls: None)
        del stream
        assert not end.established
        assert await is_freed(here)


@pytest.mark.parametrize("scheme", ["nats", "ws", "wss"])
async def test_a_remote_whose_policy_ends_it_in_a_handshake_is_no_error(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of a handshake can use up the budget of a metered link."""
    runner = leaf(scheme, tmp_path)
    assert isinstance(runner, RemoteRunner)

    async def agreed(*_: object, **__: object) -> None:
        for link in tuple(runner.links.connections.values()):
            link.end_for_now("budget used up")

    monkeypatch.setattr(remotes, "handshake", agreed)
    monkeypatch.setattr(WebSocketClientStream, "open", agreed)
    hub, stream = trio.testing.memory_stream_pair()
    await hub.send_all(b'INFO {"client_id": 1, "tls_required": true, "leafnode_urls": ["hub:7422"]}\r\n')
    state = LinkState("cloud", "$G", solicited=True, since_ns=0)
    end = await runner.run_link(stream, LinkAddress(HOST, PORT, scheme), state, lambda urls: None)
    assert (end.reason, end.retry_after_s, end.established) == ("budget used up", 0.0, False)
