"""A connection that speaks another protocol than NATS is served, limited, authorized again and shown like any client."""

from __future__ import annotations

import msgspec
import pytest

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Deferred, Login, Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.close_reasons import close_reason
from eyot_daemon.client.served import USER_EXPIRED, ServedClient
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AccountOptions, UserOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.monitor.connz import ConnzQuery, connz
from eyot_daemon.reload.apply import change_options, settle_connections
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import Origin, Subscription
from eyot_daemon.turn.slices import at_once
from eyot_wire.info import ClientConnect
from support.clients.plain_transport import Wire
from support.manual_clock import ManualClock
from support.servers.open_door import OpenDoor

ANN = UserOptions(account=GLOBAL_ACCOUNT, user="ann", password="a")
BOB = UserOptions(account=GLOBAL_ACCOUNT, user="bob", password="b")
OPTIONS = Options(accounts=(AccountOptions(name=GLOBAL_ACCOUNT, users=(ANN, BOB)),), max_connections=2)


class Shout(ServedClient):
    """A protocol of words in lines: `login USER PASSWORD`, `hear SUBJECT`; answers in capitals."""

    __slots__ = ("_early", "limits")

    def start(self) -> None:
        self._early = b""
        self.limits = (0, 0)
        self.set_authentication_timer()

    def received(self, data: bytes | bytearray | memoryview) -> None:
        if self.decision is not None:
            self._early += bytes(data)
            return
        for line in bytes(data).split(b"\n"):
            word, _, rest = line.partition(b" ")
            if word == b"login":
                user, _, password = rest.decode().partition(" ")
                self.log_in(ClientConnect(user=user, password=password))
            elif word == b"hear" and self.account is not None:
                sub = Subscription(self.account, rest, self, sid=rest)
                sub.slow = True
                self.subs[rest] = sub
                self.account.attach(sub)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        self.queue_output(b"SAID " + payload + b"\n")
        return True

    def welcome(self) -> None:
        self.queue_output(b"WELCOME\n")

    def turned_away(self) -> None:
        self.queue_output(b"NO\n")
        self.close("Authentication Failure", linger=True)

    def fail(self, text: str) -> None:
        if not self.closed:
            self.queue_output(b"END %b\n" % text.encode())
            self.close(close_reason(text), linger=True)

    def go_on(self) -> None:
        early, self._early = self._early, b""
        if early:
            self.received(early)

    def trace_output(self, data: bytes) -> None:
        """Its output is no NATS."""

    def set_limits(self, max_control_line: int, max_payload: int) -> None:
        self.limits = (max_control_line, max_payload)


class Fixture:
    def __init__(self, options: Options = OPTIONS) -> None:
        self.clock = ManualClock()
        self.broker = Broker(options, clock=self.clock)
        set_up_accounts(self.broker, options)
        self.clients = Clients(self.broker, ConfigAuthenticator(options) if options.users else OpenDoor())

    def accept(self, sent: bytes = b"") -> tuple[Shout, Wire]:
        wire = Wire()
        client = self.clients.accept_as(Shout, wire, Peer(host="memory", port=1))
        wire.session = client
        if client.closed:  # at once; a transport's task sends the rest
            wire.send()
        self.broker.flush()
        if sent:
            client.received(sent)
            self.broker.flush()
        return client, wire

    def reload(self, options: Options) -> None:
        old = self.broker.options
        change_options(self.clients, ConfigAuthenticator(options), options)
        settle_connections(self.clients, old)
        self.broker.flush()


def test_a_login_enters_the_account_and_a_wrong_one_is_answered_in_its_own_words() -> None:
    fixture = Fixture()
    client, wire = fixture.accept(b"login ann a\nhear a.b")
    assert wire.sent == b"WELCOME\n"
    assert client.connected
    assert client.user == "ann"
    assert client in fixture.broker.global_account.connections
    assert wire.bytes_max == OPTIONS.max_payload
    assert fixture.broker.global_account.publish(b"a.b", payload=b"hi") == 1
    fixture.broker.flush()
    assert wire.sent == b"WELCOME\nSAID hi\n"
    refused, other = fixture.accept(b"login ann wrong")
    assert other.sent == b"NO\n"
    assert other.closed
    assert refused.close_reason == "Authentication Failure"
    assert list(fixture.clients.connections.values()) == [client]


def test_a_consumer_is_told_when_all_was_sent() -> None:
    client, _ = Fixture().accept(b"login ann a")
    told: list[str] = []
    client.room.wait(lambda: told.append("room"))
    assert not client.refill()
    assert not client.refill()
    assert told == ["room"]


def test_a_consumer_is_told_when_the_end_of_the_turn_sent_all() -> None:
    """Others filled the buffer again before the consumer looked: no transport waits for the peer, so that none calls `refill`."""
    fixture = Fixture()
    client, wire = fixture.accept(b"login ann a\nhear a.b")
    told: list[str] = []
    client.room.wait(lambda: told.append("room"))
    fixture.broker.flush()
    assert told == []
    wire.takes = False
    fixture.broker.global_account.publish(b"a.b", payload=b"hi")
    fixture.broker.flush()
    assert told == []
    wire.takes = True
    fixture.broker.global_account.publish(b"a.b", payload=b"hi")
    fixture.broker.flush()
    assert told == ["room"]


def test_its_end_is_remembered_as_that_of_any_client() -> None:
    fixture = Fixture()
    client, wire = fixture.accept(b"login ann a\nhear a.b")
    fixture.clients.close_all()
    assert wire.closed
    assert client.account is None
    assert fixture.broker.subscriptions == 0
    (row,) = at_once(connz(fixture.clients, ConnzQuery(state="closed", subscriptions="1")))["connections"]
    assert (row["reason"], row["subscriptions"], row["subscriptions_list"]) == ("Server Shutdown", 1, ["a.b"])


def test_limits_and_times_are_told_in_its_own_words() -> None:
    fixture = Fixture()
    fixture.accept(b"login ann a")
    late, waiting = fixture.accept()
    _, third = fixture.accept()
    assert third.sent == b"END maximum connections exceeded\n"
    fixture.clock.advance(2.1)
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert late.close_reason == "Authentication Timeout"
    assert waiting.sent == b"END Authentication Timeout\n"
    (client,) = fixture.clients.connections.values()
    assert not client.closed, "who has logged in is under no such limit"
    client.expire_in(5)
    fixture.clock.advance(5.1)
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert client.close_reason == "Authentication Expired"
    assert bytes(client.transport.sent).startswith(b"WELCOME\nEND %b" % USER_EXPIRED.encode())  # type: ignore[attr-defined]


def test_a_reload_applies_to_it_and_announces_nothing_it_cannot_say() -> None:
    fixture = Fixture()
    ann, wire = fixture.accept(b"login ann a\nhear a.b")
    bob, other = fixture.accept(b"login bob b")
    permissions = Permissions(subscribe=SubjectPermission(allow=(b"x",)))
    account = AccountOptions(name=GLOBAL_ACCOUNT, users=(msgspec.structs.replace(ANN, permissions=permissions),))
    fixture.reload(msgspec.structs.replace(OPTIONS, accounts=(account,), max_payload=500))
    assert bob.close_reason == "Authentication Failure"
    assert other.sent.startswith(b"WELCOME\nEND Authorization Violation")
    assert ann.limits == (OPTIONS.max_control_line, 500)
    assert ann.access is not None
    assert not ann.access.may_subscribe(b"a.b", b"")
    assert wire.sent == b"WELCOME\n"
    ann.send_lame_duck()
    fixture.reload(msgspec.structs.replace(fixture.broker.options, trace=True, log_file=""))
    assert wire.sent == b"WELCOME\n", "no words of NATS"
    assert all(sub.slow for sub in ann.subs.values()), "else it is sent NATS frames"


@pytest.mark.parametrize("accepted", [True, False])
def test_what_arrives_during_a_slow_login_waits(accepted: bool) -> None:
    decision = Deferred()

    class SlowDoor(OpenDoor):
        def client(self, *args: object) -> Login | Deferred | None:
            return decision

    fixture = Fixture(Options())
    fixture.clients.authenticator = SlowDoor()
    client, wire = fixture.accept(b"login ann a")
    client.received(b"hear a.b")
    assert wire.held is not None
    assert wire.held.is_shut
    assert wire.sent == b""
    assert fixture.broker.subscriptions == 0
    decision.settle(OpenDoor().anonymous(client.peer) if accepted else None)
    fixture.broker.flush()
    assert wire.sent.startswith(b"WELCOME\n" if accepted else b"NO\n")
    assert fixture.broker.subscriptions == int(accepted)
    assert client.closed is not accepted
