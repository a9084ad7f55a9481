"""What the clock does to a client: authentication timeout, PING, stale connections. On Trio's mock clock."""

from collections.abc import AsyncIterator

import pytest
import trio
from msgspec import Struct
from trio.testing import MockClock

from eyot_daemon.auth.login import Deferred, Peer, UserToken
from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.options import Options, WebsocketOptions
from eyot_daemon.config.permissions import Permissions, ResponsePermission, SubjectPermission
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_wire.info import ClientConnect
from support.servers.broker import PLAIN, Running, running

OPTIONS = Options(host="127.0.0.1", port=-1, authorization=AuthorizationOptions(timeout_s=2.0))


class Found(Struct, frozen=True):
    account: str
    user: str
    permissions: Permissions | None
    external: bool = False
    expires_in_s: float = 0.0
    token: UserToken | None = None


class Door:
    """Users a (open), p (restricted) and r (may only answer); everybody's password is their name."""

    auth_required = True
    wants_nonce = True

    def client(self, connect: ClientConnect, nonce: str, peer: Peer, applicant: object = None) -> Found | None:
        if not connect.user or connect.password != connect.user:
            return None
        permissions = {
            "p": Permissions(
                publish=SubjectPermission(allow=(b"ok.>",), deny=(b"ok.not",)),
                subscribe=SubjectPermission(allow=(b"in.>", b"work q"), deny=(b"in.secret",)),
            ),
            "r": Permissions(allow_responses=ResponsePermission(max_messages=1, expires_s=5.0)),
        }.get(connect.user)
        return Found(account="B" if connect.user == "b" else "A", user=connect.user, permissions=permissions)

    def anonymous(self, peer: Peer) -> Found | None:
        return None


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    async with running(OPTIONS, Door()) as up:
        yield up


def connect(user: str) -> bytes:
    return b'CONNECT {"verbose":false,"headers":true,"user":"%b","pass":"%b"}\r\n' % (user.encode(), user.encode())


async def test_silence_ends_in_an_authentication_timeout(autojump_clock: MockClock, guarded: Running) -> None:
    client = await guarded.in_memory(b"")
    assert b'"auth_required":true' in client.handshake
    assert b'"nonce":"' in client.handshake
    begun = trio.current_time()
    assert await client.until_closed() == b"-ERR 'Authentication Timeout'\r\n"
    assert trio.current_time() - begun == pytest.approx(2.0, abs=0.1)


class SlowDoor(Door):
    """Decides later; the test says when, and when it has begun to."""

    def __init__(self) -> None:
        self.decision = Deferred()

    def client(self, connect: ClientConnect, nonce: str, peer: Peer, applicant: object = None) -> Deferred:  # type: ignore[override]
        return self.decision


async def test_the_time_that_a_password_takes_to_check_is_not_the_clients(autojump_clock: MockClock) -> None:
    """Waiting for its turn counts (a flood must end), the check itself does not: a weak processor takes seconds."""
    for begins in (False, True):
        door = SlowDoor()
        async with running(OPTIONS, door) as up:
            client = await up.in_memory(b"")
            await client.send(connect("a"))
            await trio.sleep(1.5)
            door.decision.at_work = begins
            await trio.sleep(5.0)
            assert door.decision.abandoned is not begins
            if begins:
                door.decision.settle(Found("A", "a", None))
                assert await client.ask() == b""
                await trio.sleep(5.0)
                assert await client.ask() == b"PING\r\n"  # the first of the intervals' own
            else:
                assert await client.until_closed() == b"-ERR 'Authentication Timeout'\r\n"


@pytest.mark.parametrize(
    "sent", [b"PING\r\n", b"SUB a 1\r\n", b"PUB a 0\r\n\r\n", b'CONNECT {"user":"a","pass":"x"}\r\n', b"CONNECT {}\r\n"]
)
async def test_nothing_goes_before_authentication(autojump_clock: MockClock, guarded: Running, sent: bytes) -> None:
    client = await guarded.in_memory(b"")
    await client.send(sent)
    assert await client.until_closed() == b"-ERR 'Authorization Violation'\r\n"


async def test_permissions_are_kept(autojump_clock: MockClock, guarded: Running) -> None:
    other = await guarded.in_memory(connect("a"))
    await other.ask(b"SUB > 1\r\n")
    client = await guarded.in_memory(connect("p"))
    got = await client.ask(
        b"PUB ok.a 0\r\n\r\nPUB ok.not 0\r\n\r\nPUB x 0\r\n\r\nSUB in.> 1\r\nSUB > 2\r\nSUB work q 3\r\nSUB work w 4\r\n"
    )
    assert got == (
        b"-ERR 'Permissions Violation for Publish to \"ok.not\"'\r\n"
        b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \">\"'\r\n"
        b'-ERR \'Permissions Violation for Subscription to "work" using queue "w"\'\r\n'
    )
    assert await other.ask(b"PUB in.a 0\r\n\r\nPUB in.secret 0\r\n\r\n") == (
        b"MSG ok.a 1 0\r\n\r\nMSG in.a 1 0\r\n\r\nMSG in.secret 1 0\r\n\r\n"
    )
    assert await client.ask() == b"MSG in.a 1 0\r\n\r\n"


async def test_a_responder_may_answer_once_and_in_time(autojump_clock: MockClock, guarded: Running) -> None:
    asker = await guarded.in_memory(connect("a"))
    await asker.ask(b"SUB _INBOX.* 1\r\n")
    responder = await guarded.in_memory(connect("r"))
    await responder.ask(b"SUB svc 1\r\n")
    await asker.ask(b"PUB svc _INBOX.1 0\r\n\r\nPUB svc _INBOX.2 0\r\n\r\n")
    violation = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n"
    got = await responder.ask(b"PUB _INBOX.1 1\r\na\r\nPUB _INBOX.1 1\r\nb\r\nPUB other 0\r\n\r\n")
    assert (
        got
        == b"MSG svc 1 _INBOX.1 0\r\n\r\nMSG svc 1 _INBOX.2 0\r\n\r\n" + violation % b"_INBOX.1" + violation % b"other"
    )
    await trio.sleep(6)
    answer = await responder.ask(b"PUB _INBOX.2 1\r\nc\r\n")
    assert answer.removeprefix(b"PING\r\n") == violation % b"_INBOX.2"
    assert (await asker.ask()).removesuffix(b"PING\r\n") == b"MSG _INBOX.1 1 1\r\na\r\n"


async def test_a_second_connect_changes_the_account_and_drops_subscriptions(
    autojump_clock: MockClock, guarded: Running
) -> None:
    client = await guarded.in_memory(connect("a"))
    await client.ask(b"SUB x 1\r\n")
    await client.ask(connect("b"))
    assert await client.ask(b"PUB x 0\r\n\r\n") == b""
    assert guarded.broker.subscriptions == 0
    assert not guarded.broker.accounts["A"].connections
    await client.send(b'CONNECT {"user":"a","pass":"wrong"}\r\n')
    assert await client.until_closed() == b"-ERR 'Authorization Violation'\r\n"


async def test_the_first_ping_comes_soon_and_silence_is_stale(autojump_clock: MockClock) -> None:
    async with running(Options(host="127.0.0.1", port=-1, ping_interval_s=10.0, ping_max=2)) as up:
        client = await up.in_memory(PLAIN)
        begun = trio.current_time()
        assert await client.until(b"\r\n") == b"PING\r\n"
        assert 2.0 <= trio.current_time() - begun <= 2.5
        await client.send(b"PONG\r\n")
        assert await client.until_closed() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
        assert up.broker.stale_connections == 1


async def test_who_is_behind_with_reading_blames_nobody(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Options(host="127.0.0.1", port=-1, ping_interval_s=10.0, ping_max=1)) as up:
        client = await up.in_memory(PLAIN)
        assert await client.until(b"\r\n") == b"PING\r\n"
        monkeypatch.setattr(StreamTransport, "input_waits", lambda transport: True)
        await trio.sleep(100.0)
        assert len(up.clients.connections) == 1
        monkeypatch.undo()
        assert await client.until_closed() == b"-ERR 'Stale Connection'\r\n"


async def test_no_ping_comes_before_the_answer_to_a_login_that_was_not_read_yet(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lagged for two seconds failed the logins of all who had come meanwhile."""
    async with running(Options(host="127.0.0.1", port=-1)) as up:
        client = await up.in_memory(b"")
        with monkeypatch.context() as lagging:
            lagging.setattr(StreamTransport, "input_waits", lambda transport: True)
            await trio.sleep(20.0)
        await client.send(PLAIN + b"PING\r\n")
        assert (await client.until(b"PONG\r\n")).startswith(b"PONG\r\n")
        begun = trio.current_time()
        await client.until(b"PING\r\n")
        assert trio.current_time() - begun <= 2.5


async def test_websocket_clients_may_be_pinged_more_often(autojump_clock: MockClock) -> None:
    websocket = WebsocketOptions(port=-1, no_tls=True, ping_interval_s=3.0)
    async with running(Options(host="127.0.0.1", port=-1, ping_interval_s=50.0, websocket=websocket)) as up:
        for kind, silent_s in (("STANDARD", 50.0), ("WEBSOCKET", 3.0)):
            client = await up.in_memory(PLAIN, kind)
            assert await client.until(b"\r\n") == b"PING\r\n"
            begun = trio.current_time()
            await client.send(b"PONG\r\n")
            assert await client.until(b"\r\n") == b"PING\r\n"
            assert trio.current_time() - begun == pytest.approx(silent_s, abs=0.1)


async def test_a_busy_client_is_not_pinged(autojump_clock: MockClock) -> None:
    async with running(Options(host="127.0.0.1", port=-1, ping_interval_s=10.0)) as up:
        client = await up.in_memory(PLAIN)
        await client.until(b"PING\r\n")
        await client.send(b"PONG\r\n")
        for _ in range(20):
            await trio.sleep(5)
            assert await client.ask() == b""


async def test_an_account_has_a_connection_limit(autojump_clock: MockClock, guarded: Running) -> None:
    guarded.broker.add_account("A").connections_max = 1
    first = await guarded.in_memory(connect("a"))
    assert await first.ask() == b""
    assert await first.ask(connect("a")) == b""
    second = await guarded.in_memory(connect("a"))
    assert await second.until_closed() == b"-ERR 'maximum account active connections exceeded'\r\n"
    assert await (await guarded.in_memory(connect("b"))).ask() == b""


async def test_an_account_has_payload_and_subscription_limits(autojump_clock: MockClock, guarded: Running) -> None:
    account = guarded.broker.add_account("A")
    account.payload_max, account.subscriptions_max = 10, 1
    client = await guarded.in_memory(connect("a"))
    got = await client.ask(b"SUB a 1\r\nSUB b 2\r\nPUB a 10\r\n0123456789\r\n")
    assert got == b"-ERR 'maximum subscriptions exceeded'\r\nMSG a 1 10\r\n0123456789\r\n"
    await client.send(b"PUB a 11\r\n")
    assert await client.until_closed() == b"-ERR 'Maximum Payload Violation'\r\n"
