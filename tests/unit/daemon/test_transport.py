"""Transports: sent bytes arrive in order, unsent bytes are bounded, the last bytes before a close arrive."""

import math
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net import socket_transport
from eyot_daemon.net.socket_transport import SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.net.tls_transport import TlsTransport, over_tls, records_of
from eyot_daemon.net.transport import (
    CLIENT_CLOSED,
    FIRST_READ_SIZE,
    READ_SIZE,
    SERVER_SHUTDOWN,
    SHARE_BYTES,
    SLOW_DEADLINE,
    SLOW_PENDING,
    Transport,
    TransportLimits,
)
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.clock import Clock
from eyot_daemon.turn.readers import Readers
from eyot_daemon.turn.timers import Timers
from support.trust.certificates import Authority


@dataclass
class Turn:
    """The broker's part."""

    stalls: list[float] = field(default_factory=list)
    stall_s: float = 0.0
    gate: Gate | None = None
    readers: Readers = field(init=False)

    def __post_init__(self) -> None:
        self.readers = Readers(self)

    def flush(self) -> None:
        pass

    def ask_to_stall(self, seconds: float) -> None:
        self.stalls.append(seconds)

    def take_stall_s(self) -> float:
        return self.stall_s

    def take_gate(self) -> Gate | None:
        return self.gate

    def due_in_s(self) -> float:
        return math.inf


@dataclass
class Echo:
    """A session that sends back what it gets, or does what `on_data` says."""

    out: bytearray = field(default_factory=bytearray)
    closed: bool = False
    close_reason: str = ""
    got: bytearray = field(default_factory=bytearray)
    transport: Transport | None = None
    on_data: Callable[[bytes], None] | None = None
    renewed: int = 0

    def received(self, data: bytes) -> None:
        self.got += data
        if self.on_data is not None:
            self.on_data(data)
            return
        self.out += data
        self.send()

    def send(self) -> None:
        assert self.transport is not None
        self.transport.send()

    def close(self, reason: str, *, linger: bool) -> None:
        if not self.closed:
            self.closed, self.close_reason = True, reason
            assert self.transport is not None
            self.transport.close(linger=linger)

    def refill(self) -> bool:
        return False

    def renew_out(self) -> None:
        assert not self.out
        self.out = bytearray()
        self.renewed += 1

    def lost(self, reason: str) -> None:
        self.close(reason, linger=False)

    def slow_consumer(self, reason: str) -> None:
        self.close(reason, linger=False)


@dataclass
class Link:
    """A session with its transport running, and the peer's end."""

    session: Echo
    peer: trio.abc.HalfCloseableStream
    turn: Turn
    nursery: trio.Nursery


Open = Callable[..., "AsyncIterator[Link]"]


@asynccontextmanager
async def over_socket(
    max_pending: int = 1 << 26, deadline_s: float = 0.0, limits: TransportLimits | None = None
) -> AsyncIterator[Link]:
    ours, theirs = socket.socketpair()
    turn, session = Turn(), Echo()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.readers.run)
        limits = limits or TransportLimits(max_pending, deadline_s)
        session.transport = SocketTransport(ours, lambda fn: nursery.start_soon(fn), limits, turn)
        nursery.start_soon(session.transport.run, session)
        yield Link(session, raw_end(theirs), turn, nursery)
        nursery.cancel_scope.cancel()


def raw_end(sock: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


@asynccontextmanager
async def over_stream(
    max_pending: int = 1 << 26, deadline_s: float = 0.0, limits: TransportLimits | None = None
) -> AsyncIterator[Link]:
    ours, theirs = trio.testing.lockstep_stream_pair()
    turn, session = Turn(), Echo()
    async with trio.open_nursery() as nursery:
        session.transport = StreamTransport(ours, limits or TransportLimits(max_pending, deadline_s), turn)
        nursery.start_soon(session.transport.run, session)
        yield Link(session, theirs, turn, nursery)
        nursery.cancel_scope.cancel()


class TlsEnd(trio.abc.HalfCloseableStream):
    """A client's end of TLS that can close its sending side."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.stream.send_all(data)

    async def send_eof(self) -> None:
        await self.stream.transport_stream.send_eof()

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Authority(Path(folder)).issue("server")
        server = server_context(TlsOptions(cert_file=str(certificate), key_file=str(key)))
        return server, ssl.create_default_context(cafile=str(Path(folder) / "ca.pem"))


@asynccontextmanager
async def over_tls_socket(
    max_pending: int = 1 << 26,
    deadline_s: float = 0.0,
    limits: TransportLimits | None = None,
    first: bytes = b"",
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> AsyncIterator[Link]:
    """`first`: what the client sends at once, so that it may come with the end of the handshake."""
    ours, theirs = socket.socketpair()
    server, client = contexts()
    client.maximum_version = version
    turn, session = Turn(), Echo()
    secured = trio.SSLStream(raw_end(ours), server, server_side=True, https_compatible=True)
    peer = trio.SSLStream(raw_end(theirs), client, server_hostname="localhost", https_compatible=True)
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as shaking:
            shaking.start_soon(secured.do_handshake)
            await peer.do_handshake()
            if first:
                await peer.send_all(first)
        nursery.start_soon(turn.readers.run)
        limits = limits or TransportLimits(max_pending, deadline_s)
        transport = over_tls(ours, secured, lambda fn: nursery.start_soon(fn), limits, turn)
        assert isinstance(transport, TlsTransport)
        session.transport = transport
        nursery.start_soon(transport.run, session)
        yield Link(session, TlsEnd(peer), turn, nursery)
        nursery.cancel_scope.cancel()


EACH = pytest.mark.parametrize("opened", [over_socket, over_stream, over_tls_socket])


async def receive(stream: trio.abc.Stream, count: int) -> bytes:
    got = bytearray()
    with trio.fail_after(20):
        while len(got) < count:
            data = await stream.receive_some(65536)
            if not data:
                break
            got += data
    return bytes(got)


@EACH
async def test_a_lot_of_data_arrives_in_order(opened: Open) -> None:
    async with opened() as link:
        data = b"".join(b"%07d" % n for n in range(300_000))
        link.session.out += data
        link.session.send()
        assert await receive(link.peer, len(data)) == data
        await trio.testing.wait_all_tasks_blocked()
        assert link.session.transport is not None
        assert link.session.transport.backlog == 0
        assert link.session.renewed, "the buffer of a backlog stays in use, and the C library maps it for every turn"


@EACH
async def test_echo_of_many_small_writes(opened: Open) -> None:
    async with opened() as link:
        buffer = link.session.out
        for n in range(200):
            await link.peer.send_all(b"%03d" % n)
            assert await receive(link.peer, 3) == b"%03d" % n
        assert link.session.out is buffer


@EACH
async def test_pending_bytes_are_bounded(opened: Open) -> None:
    async with opened(max_pending=1_000_000) as link:
        while not link.session.closed:
            link.session.out += b"x" * 100_000
            link.session.send()
            await trio.testing.wait_all_tasks_blocked()
        assert link.session.close_reason == SLOW_PENDING
        assert link.turn.stalls, "producers were not asked to wait before the limit"
        await trio.testing.wait_all_tasks_blocked()
        assert not link.session.out


async def _lag(link: Link, count: int) -> None:
    """Send until this many bytes are unsent, or the session is closed."""
    session = link.session
    assert session.transport is not None
    while not session.closed and session.transport.backlog < count:
        session.out += b"x" * min(50_000, count - session.transport.backlog)
        session.send()
        await trio.testing.wait_all_tasks_blocked()


@EACH
async def test_pending_bytes_of_all_connections_are_bounded(opened: Open) -> None:
    limits = TransportLimits(1 << 26, 0.0, max_pending_total=1_000_000)
    async with opened(limits=limits) as first, opened(limits=limits) as second, opened(limits=limits) as third:
        await _lag(first, 900_000)
        await _lag(second, SHARE_BYTES - 1)
        assert not first.session.closed
        assert not second.session.closed, "a connection that lags little is closed because of another"
        await _lag(third, 500_000)
        assert third.session.close_reason == SLOW_PENDING
        assert not first.session.closed
        await trio.testing.wait_all_tasks_blocked()
        assert limits.lagging == {first.session.transport}


@EACH
async def test_a_connection_that_has_caught_up_does_not_count_any_more(opened: Open) -> None:
    limits = TransportLimits(1 << 26, 0.0, max_pending_total=1_000_000)
    async with opened(limits=limits) as first, opened(limits=limits) as second:
        sent = bytearray()
        while not limits.lagging:
            sent += b"x" * 50_000
            first.session.out += b"x" * 50_000
            first.session.send()
            await trio.testing.wait_all_tasks_blocked()
        assert await receive(first.peer, len(sent)) == sent
        await trio.testing.wait_all_tasks_blocked()
        assert not limits.lagging
        await _lag(second, 900_000)
        assert not second.session.closed


@EACH
async def test_no_progress_within_the_deadline_is_a_slow_consumer(
    opened: Open, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(deadline_s=10.0) as link:
        link.session.out += b"x" * 3_000_000
        link.session.send()
        begun = trio.current_time()
        with trio.fail_after(60):
            while not link.session.closed:
                await trio.sleep(0.1)
        assert link.session.close_reason == SLOW_DEADLINE
        assert trio.current_time() - begun == pytest.approx(10.0, abs=0.3)


@pytest.mark.parametrize(
    "opened", [over_socket, over_stream]
)  # Trio's TLS gives a record at a time: slower than allowed
async def test_progress_keeps_a_slow_reader(opened: Open, autojump_clock: trio.testing.MockClock) -> None:
    async with opened(deadline_s=10.0) as link:
        size = 2_000_000
        link.session.out += b"x" * size
        link.session.send()
        got = 0
        while got < size:
            await trio.sleep(2)
            got += len(await link.peer.receive_some(200_000))
        assert not link.session.closed


@EACH
async def test_last_words_arrive_before_the_end(opened: Open) -> None:
    async with opened() as link:

        def refuse(data: bytes) -> None:
            link.session.out += b"-ERR 'no'\r\n"
            link.session.send()
            link.session.close("no", linger=True)

        link.session.on_data = refuse
        await link.peer.send_all(b"a")
        with suppress(trio.BrokenResourceError):
            await link.peer.send_all(b"more that nobody reads" * 100)
        assert await receive(link.peer, 100) == b"-ERR 'no'\r\n"


@EACH
async def test_the_peer_goes_away(opened: Open) -> None:
    async with opened() as link:
        await link.peer.send_all(b"bye")
        await receive(link.peer, 3)
        await link.peer.aclose()
        with trio.fail_after(5):
            while not link.session.closed:
                await trio.sleep(0.001)
        assert link.session.close_reason == CLIENT_CLOSED


@EACH
async def test_a_peer_that_has_nothing_more_to_say_still_hears_the_answer(opened: Open) -> None:
    """`printf 'PING\\r\\n' | nc`: the end is read in the same turn as the last words."""
    async with opened() as link:
        link.session.on_data = lambda data: link.session.out.extend(b"PONG\r\n")
        await link.peer.send_all(b"PING\r\n")
        await link.peer.send_eof()
        assert await receive(link.peer, 100) == b"PONG\r\n"
        assert link.session.close_reason == CLIENT_CLOSED


@EACH
async def test_cancellation_is_a_shutdown(opened: Open) -> None:
    async with opened() as link:
        await trio.testing.wait_all_tasks_blocked()
        link.nursery.cancel_scope.cancel()
    assert link.session.close_reason == SERVER_SHUTDOWN


@EACH
async def test_a_fault_in_a_session_ends_only_that_session(opened: Open) -> None:
    async with opened() as bad, opened() as good:

        def fail(data: bytes) -> None:
            raise RuntimeError("boom")

        bad.session.on_data = fail
        await bad.peer.send_all(b"x")
        with trio.fail_after(5):
            while not bad.session.closed:
                await trio.sleep(0.001)
        assert bad.session.close_reason == "Internal Error"
        await good.peer.send_all(b"ok")
        assert await receive(good.peer, 2) == b"ok"


async def test_a_transport_closed_before_it_runs_says_its_last_words() -> None:
    ours, theirs = socket.socketpair()
    async with trio.open_nursery() as nursery:
        transport = SocketTransport(ours, lambda fn: nursery.start_soon(fn), TransportLimits(1000, 0.0), Turn())
        session = Echo(transport=transport)
        session.out += b"full\r\n"
        session.close("full", linger=True)
        nursery.start_soon(transport.run, session)
        peer = raw_end(theirs)
        assert await receive(peer, 100) == b"full\r\n"
        await peer.aclose()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_what_came_with_the_handshake_is_read(version: ssl.TLSVersion) -> None:
    first = b"".join(b"%07d" % n for n in range(9_000))
    async with over_tls_socket(first=first, version=version) as link:
        assert await receive(link.peer, len(first)) == first


class Door:
    """A gate that a test opens."""

    def __init__(self, timers: Timers) -> None:
        self.is_shut = True
        self.gate = Gate(timers, lambda: self.is_shut)

    def open(self) -> None:
        self.is_shut = False
        self.gate.open()


PAUSES = ("first door", "second door", "stall")


@pytest.mark.parametrize("pauses", [pauses for count in (1, 2, 3) for pauses in product(PAUSES, repeat=count)])
@pytest.mark.parametrize("opened", [over_socket, over_tls_socket])
async def test_a_peer_that_must_wait_twice_is_read_once_it_may(
    opened: Open, pauses: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    """What came with a handshake may make it wait before it is read for the first time, and a turn's end while it waits."""
    doors = {name: Door(Timers(Clock())) for name in PAUSES[:2]}
    arguments = {"first": b"login"} if opened is over_tls_socket else {}
    async with opened(**arguments) as link:
        session, transport = link.session, link.session.transport
        assert isinstance(transport, SocketTransport)

        def pause(data: bytes) -> None:
            session.on_data = None
            for each in pauses:
                if each == "stall":
                    transport.stall(0.05)
                else:
                    transport.hold(doors[each].gate)

        session.on_data = pause
        if not arguments:
            await link.peer.send_all(b"login")
        await trio.sleep(0.01)
        assert session.got == b"login"
        await link.peer.send_all(b" more")
        await trio.sleep(0.01)
        assert session.got == b"login", "it waits"
        for door in doors.values():
            door.open()
        await link.peer.send_all(b" still")
        assert await receive(link.peer, len(b" more still")) == b" more still"
        assert not session.closed
        assert not link.turn.readers.held


@pytest.mark.parametrize("opened", [over_socket, over_tls_socket])
async def test_who_sends_what_is_dear_is_read_in_small_pieces(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is handled in about `READ_S`, whatever a byte costs, and reads grow again when bytes become cheap."""
    now, byte_s = [0.0], [0.0]
    reads: list[int] = []

    def handle(data: bytes) -> None:
        reads.append(len(data))
        now[0] += len(data) * byte_s[0]

    monkeypatch.setattr(socket_transport, "monotonic", lambda: now[0])
    async with opened() as link:
        link.session.on_data = handle
        assert link.session.transport is not None
        link.session.transport.admit(1 << 20)
        sizes = []
        for byte_s[0] in (0.0, 1e-5, 1e-9):
            reads.clear()
            for _ in range(40):
                await link.peer.send_all(bytes(READ_SIZE))
            with trio.fail_after(20):
                while sum(reads) < 40 * READ_SIZE:
                    await trio.lowlevel.checkpoint()
            sizes.append(max(reads[-8:]))
        cheap, dear, cheap_again = sizes
        assert dear <= FIRST_READ_SIZE
        assert cheap > FIRST_READ_SIZE
        assert cheap_again > FIRST_READ_SIZE


async def test_records_in_pieces_and_together_are_read_as_one_stream() -> None:
    """A record may be of one byte or of 16 KiB, and a read of the socket ends anywhere."""
    async with over_tls_socket() as link:
        sizes = [1, 16_384, 3, 40_000, 16_385, 2, 300_000, 7]
        sent = b"".join(bytes([65 + n]) * size for n, size in enumerate(sizes))

        async def send() -> None:
            at = 0
            for size in sizes:
                await link.peer.send_all(sent[at : at + size])
                at += size

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await receive(link.peer, len(sent)) == sent


async def test_a_record_that_was_changed_on_the_way_ends_the_connection() -> None:
    async with over_tls_socket() as link:
        peer = link.peer
        assert isinstance(peer, TlsEnd)
        await peer.send_all(b"whole")
        assert await receive(peer, 5) == b"whole"
        await peer.stream.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        with trio.fail_after(5):
            while not link.session.closed:
                await trio.sleep(0.001)
        assert link.session.close_reason == CLIENT_CLOSED
        with pytest.raises(trio.BrokenResourceError) as told:
            await peer.receive_some(100)
        assert "ALERT" in str(told.value.__cause__), "the peer is not told why"


async def test_the_end_of_tls_is_the_end_of_the_connection() -> None:
    async with over_tls_socket() as link:
        peer = link.peer
        assert isinstance(peer, TlsEnd)
        await peer.send_all(b"PING")
        assert await receive(peer, 4) == b"PING"
        peer.stream._https_compatible = False  # sends close_notify
        await peer.aclose()
        with trio.fail_after(5):
            while not link.session.closed:
                await trio.sleep(0.001)
        assert link.session.close_reason == CLIENT_CLOSED


async def test_bytes_on_the_wire_are_counted_as_records() -> None:
    ours, theirs = socket.socketpair()
    server, client = contexts()
    crossed: list[int] = []
    turn, session = Turn(), Echo()
    secured = trio.SSLStream(raw_end(ours), server, server_side=True, https_compatible=True)
    peer = trio.SSLStream(raw_end(theirs), client, server_hostname="localhost", https_compatible=True)
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as shaking:
            shaking.start_soon(secured.do_handshake)
            await peer.do_handshake()
        nursery.start_soon(turn.readers.run)
        records = records_of(secured)
        assert records is not None
        limits = TransportLimits(1 << 26, 0.0)
        transport = TlsTransport(ours, records, lambda fn: nursery.start_soon(fn), limits, turn, crossed=crossed.append)
        session.transport = transport
        nursery.start_soon(transport.run, session)
        await peer.send_all(b"x" * 1_000)
        assert await receive(peer, 1_000) == b"x" * 1_000
        assert sum(crossed) == 2 * (1_000 + 22) + len(records.delayed), crossed
        nursery.cancel_scope.cancel()
