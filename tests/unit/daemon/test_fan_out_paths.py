"""Subscribers receive the same on every path of a message: a client that closes in the middle loses no other client's messages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.config.accounts import AccountOptions, ExportOptions, ImportOptions
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.dispatch import publish_all
from eyot_daemon.net.transport import Session
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.backpressure import Gate
from eyot_wire.frames import LeafMsg
from support.clients.destinations import LeafRecorder
from support.manual_clock import ManualClock
from support.servers.open_door import OpenDoor

PAYLOAD = b"x" * 400_000
COUNT = 12
OPTIONS = Options(
    host="127.0.0.1",
    port=-1,
    accounts=(
        AccountOptions(name="E", exports=(ExportOptions(kind="stream", subject=b"a"),)),
        AccountOptions(name="I", imports=(ImportOptions(kind="stream", account="E", subject=b"a"),)),
    ),
)


@dataclass
class Wire:
    """A transport that keeps what it is given; `broken`: the first send finds that the peer is gone."""

    broken: bool = False
    session: Session | None = None
    sent: bytearray = field(default_factory=bytearray)
    backlog: int = 0

    def send(self) -> None:
        assert self.session is not None
        if self.broken:
            self.session.lost("Write Error")
            return
        self.sent += self.session.out
        self.session.out.clear()

    def close(self, *, linger: bool) -> None: ...

    def hold(self, gate: Gate) -> None: ...

    def admit(self, message_bytes_max: int) -> None: ...

    def input_waits(self) -> bool:
        return False


class Fixture:
    """Accounts E and I; I imports what E publishes on `a`."""

    def __init__(self) -> None:
        self.broker = Broker(OPTIONS, clock=ManualClock(), rng=random.Random(5))
        set_up_accounts(self.broker, OPTIONS)
        self.clients = Clients(self.broker, OpenDoor(), port=4222)
        self.account = self.broker.accounts["E"]

    def client(
        self, account: str, lines: bytes = b"", *, broken: bool = False, verbose: bool = False
    ) -> ClientConnection:
        wire = Wire()
        wire.session = client = self.clients.accept(wire, Peer(host="memory", port=1))  # type: ignore[arg-type]
        flag = b"true" if verbose else b"false"
        client.received(b'CONNECT {"verbose":%b,"pedantic":false,"headers":true,"no_responders":true}\r\n' % flag)
        client._leave()
        client.join(self.broker.accounts[account])
        client.received(lines)
        self.broker.flush()
        wire.broken = broken
        wire.sent.clear()
        return client


Publish = Callable[[Fixture, int], None]


def from_a_client(fixture: Fixture, count: int, *, verbose: bool = False) -> None:
    fixture.client("E", verbose=verbose).received(b"PUB a r 400000\r\n%b\r\n" % PAYLOAD * count)


def from_a_client_with_headers(fixture: Fixture, count: int) -> None:
    header = b"NATS/1.0\r\n\r\n"
    fixture.client("E").received(b"HPUB a r 12 400012\r\n%b%b\r\n" % (header, PAYLOAD) * count)


def from_a_verbose_client(fixture: Fixture, count: int) -> None:
    from_a_client(fixture, count, verbose=True)


def from_a_leaf_node(fixture: Fixture, count: int) -> None:
    message = LeafMsg(subject=b"a", reply=b"r", header=b"", payload=PAYLOAD, queues=(b"q",))
    publish_all(fixture.account, [message] * count, LeafRecorder())


def from_the_server(fixture: Fixture, count: int) -> None:
    for _ in range(count):
        fixture.account.publish(b"a", b"r", b"", PAYLOAD)


WAYS = [from_a_client, from_a_client_with_headers, from_a_verbose_client, from_a_leaf_node, from_the_server]


def beside_nobody(fixture: Fixture) -> None:
    """Only the clients of the account are interested."""


def beside_a_leaf_node(fixture: Fixture) -> None:
    fixture.account.subscribe(b"a", LeafRecorder())


def beside_a_slow_client(fixture: Fixture) -> None:
    fixture.client("E", b"SUB a 7\r\nUNSUB 7 1000\r\n")


NEIGHBOURS = [beside_nobody, beside_a_leaf_node, beside_a_slow_client]


#: Interest of a client that breaks: its own subscription fills its buffer, so that it is closed when the group's turn comes.
BOTH = b"SUB a 1\r\nSUB a q 2\r\n"


@pytest.mark.parametrize("home", ["E", "I"])
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
@pytest.mark.parametrize("way", WAYS)
def test_another_member_takes_what_a_closed_member_of_a_queue_group_cannot(
    way: Publish, neighbour: Callable[[Fixture], None], home: str
) -> None:
    fixture = Fixture()
    neighbour(fixture)
    broken = fixture.client(home, BOTH, broken=True)
    members = [fixture.client(home, b"SUB a q 2\r\n") for _ in range(2)]
    subs = [client.subs[b"2"] for client in (broken, *members)]
    way(fixture, COUNT)
    fixture.broker.flush()
    assert broken.closed, "the member's connection broke in the middle"
    assert sum(sub.delivered for sub in subs) == COUNT
    sent = [member.transport.sent.count(PAYLOAD) for member in members]  # type: ignore[attr-defined]
    assert sent == [member.out_msgs for member in members]


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
@pytest.mark.parametrize("group", [b"", b"q"])
@pytest.mark.parametrize("way", WAYS)
def test_what_no_client_took_is_not_counted_as_sent(
    way: Publish, neighbour: Callable[[Fixture], None], group: bytes
) -> None:
    fixture = Fixture()
    neighbour(fixture)
    clients = [fixture.client("E", b"SUB a 1\r\nSUB a %b 2\r\n" % group, broken=True) for _ in range(2)]
    way(fixture, COUNT)
    fixture.broker.flush()
    assert all(client.closed for client in clients)
    taken = Counter({"clients": sum(one.out_msgs for one in fixture.clients.connections.values())})
    taken["clients"] += sum(client.out_msgs for client in clients)
    assert fixture.account.out_msgs == taken["clients"] + _to_leaf_nodes(fixture)
    assert fixture.account.out_bytes >= fixture.account.out_msgs * len(PAYLOAD)


def _to_leaf_nodes(fixture: Fixture) -> int:
    links = {sub.dest for sub in fixture.account.subscriptions() if isinstance(sub.dest, LeafRecorder)}
    return sum(len(link.got) for link in links if isinstance(link, LeafRecorder))


@pytest.mark.parametrize("neighbour", [beside_nobody])
@pytest.mark.parametrize("way", [from_a_client, from_a_client_with_headers])
def test_a_leaf_node_in_the_group_takes_what_no_local_member_can(way: Publish, neighbour: object) -> None:
    fixture = Fixture()
    link = LeafRecorder()
    fixture.account.subscribe(b"a", link, b"q")
    member = fixture.client("E", BOTH, broken=True)
    sub = member.subs[b"2"]
    way(fixture, COUNT)
    assert member.closed
    assert sub.delivered < COUNT
    assert [got.queues for got in link.got] == [(b"q",)] * (COUNT - sub.delivered)
    assert fixture.account.out_msgs == member.out_msgs + len(link.got)


def test_a_request_whose_only_takers_closed_is_answered() -> None:
    """Nobody is there any more: `no_responders` says so, once a message."""
    fixture = Fixture()
    fixture.account.subscribe(b"a", LeafRecorder(denied=frozenset([b"a"])))
    broken = fixture.client("E", b"SUB a 1\r\nSUB b 2\r\n", broken=True)
    asker = fixture.client("E", b"SUB r 2\r\n")
    asker.received(b"PUB b - 400000\r\n%b\r\n" % PAYLOAD * 3 + b"PUB a r 1\r\nx\r\n" * 5)
    fixture.broker.flush()
    assert broken.closed
    assert asker.transport.sent.count(b"NATS/1.0 503") == 5  # type: ignore[attr-defined]
