"""WebSocket frames as a stream: what compressed ones stand for is bounded, before login and after."""

import tracemalloc
import zlib

import pytest
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

from eyot_daemon.net.transport import READ_SIZE
from eyot_daemon.net.websocket_client import WebSocketClientStream
from eyot_daemon.net.websocket_stream import FIRST_MESSAGE_MAX, WebSocketStream
from eyot_daemon.net.websocket_upgrade import UpgradeError

MIB = 1024 * 1024


class Browser:
    """The other end of a `WebSocketStream` that was accepted with compression."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.ws = WSConnection(ConnectionType.CLIENT)
        self.events: list[Event] = []

    async def ask(self) -> None:
        extensions = [PerMessageDeflate(client_no_context_takeover=True, server_no_context_takeover=True)]
        await self.stream.send_all(self.ws.send(Request(host="here", target="/", extensions=list(extensions))))

    async def send(self, payload: bytes) -> None:
        await self.stream.send_all(self.ws.send(BytesMessage(data=payload)))

    async def hear(self) -> None:
        """Take what has come; until something has."""
        self.ws.receive_data(bytes(await self.stream.receive_some()))
        self.events += self.ws.events()


async def opened() -> tuple[WebSocketStream, Browser]:
    ours, theirs = trio.testing.memory_stream_pair()
    server, browser = WebSocketStream(ours), Browser(theirs)
    await browser.ask()
    await server.receive_request()
    await server.accept(compress=True)
    await browser.hear()
    assert isinstance(browser.events.pop(), AcceptConnection)
    assert server.is_compressed
    return server, browser


@pytest.mark.parametrize("limit", [0, MIB])
async def test_a_message_that_stands_for_too_much_is_refused(limit: int) -> None:
    server, browser = await opened()
    if limit:
        server.message_bytes_max = limit
    await browser.send(bytes(64 * MIB))
    tracemalloc.start()
    try:
        while await server.receive_some():
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (limit or FIRST_MESSAGE_MAX) * 3 + 512 * 1024  # the read itself, twice
    await browser.hear()
    closing = browser.events.pop()
    assert isinstance(closing, CloseConnection)
    assert closing.code == CloseReason.MESSAGE_TOO_BIG


async def test_a_message_within_the_limit_arrives_whole() -> None:
    server, browser = await opened()
    sent = bytes(FIRST_MESSAGE_MAX)
    await browser.send(sent)
    assert await server.receive_some() == sent
    server.message_bytes_max = MIB
    sent = zlib.compress(bytes(range(256)) * 4096, 0)[:MIB]
    await browser.send(sent)
    got = b""
    while len(got) < len(sent):
        got += await server.receive_some()
    assert got == sent


async def test_a_control_frame_between_the_fragments_of_a_message_is_none_of_them() -> None:
    server, browser = await opened()
    sent = bytes(range(256)) * 20
    wire = browser.ws.send(Ping(payload=b"before"))
    for start in range(0, len(sent), 1024):
        last = start + 1024 >= len(sent)
        wire += browser.ws.send(BytesMessage(data=sent[start : start + 1024], message_finished=last))
        wire += browser.ws.send(Ping(payload=b"between"))
    wire += browser.ws.send(BytesMessage(data=b"the next one"))
    await browser.stream.send_all(wire)
    got = b""
    while len(got) < len(sent) + 12 and (part := await server.receive_some()):
        got += part
    assert got == sent + b"the next one"


async def test_many_messages_of_one_read_come_one_after_the_other() -> None:
    server, browser = await opened()
    server.message_bytes_max = MIB
    wire = b"".join(browser.ws.send(BytesMessage(data=bytes(MIB))) for _ in range(40))
    assert len(wire) < READ_SIZE
    await browser.stream.send_all(wire)
    tracemalloc.start()
    try:
        sizes = []
        while sum(sizes) < 40 * MIB:
            sizes.append(len(await server.receive_some()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 40 * MIB
    assert max(sizes) <= MIB
    assert peak < 6 * MIB


async def test_others_have_their_turn_between_the_messages_of_one_read() -> None:
    server, browser = await opened()
    server.message_bytes_max = MIB
    await browser.stream.send_all(b"".join(browser.ws.send(BytesMessage(data=bytes(MIB))) for _ in range(10)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for _ in range(10):
            await server.receive_some()
        nursery.cancel_scope.cancel()
    assert turns >= 9


@pytest.mark.parametrize("field", [b"Connection", b"Sec-WebSocket-Extensions", b"Sec-WebSocket-Protocol"])
async def test_a_server_that_answers_in_odd_bytes_is_no_websocket(field: bytes) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n%b: \xff\r\n\r\n" % field)
    with pytest.raises(UpgradeError, match="not a WebSocket"):
        await WebSocketClientStream(ours).open("here", "/", compress=True)
