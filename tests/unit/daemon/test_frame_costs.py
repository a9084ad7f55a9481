"""What frames may cost: the loop's CPU grows with the bytes that came and with what is there already, not with the square.

As in `test_costs.py` of the JetStream API, each conversation is played small and large. Clients and links are driven
without sockets, so that nothing but their frames is counted.
"""

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import thread_time
from typing import cast

import pytest
import trio

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.config.options import Options
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.listener import LeafListener
from eyot_daemon.monitor.system_services import SystemServices
from eyot_daemon.net.transport import Session
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.backpressure import Gate
from support.links.leaf_peers import connect as leaf_connect
from support.servers.open_door import OpenDoor

OPTIONS = Options(host="127.0.0.1", port=-1, max_payload=8 << 20, max_control_line=4 << 20, server_tags=("t",))
PEER = Peer(host="memory", port=1)
N = 500
TIMES = 8
#: From n to 8n: 8 is linear, 64 is quadratic.
GROWTH_MAX = 20
#: Less than this is not worth a look.
SOME_S = 0.002
#: One read of a socket.
READ = 64 * 1024


@dataclass
class Sink:
    """A transport whose peer takes everything at once. `heard`: the last that it took, and how much in all."""

    session: Session | None = None
    heard: bytes = b""
    count: int = 0
    closed: bool = False
    backlog: int = 0
    input_waits: bool = False

    def send(self) -> None:
        assert self.session is not None
        while self.session.out or self.session.refill():
            self.heard = bytes(self.session.out)
            self.count += len(self.heard)
            self.session.out.clear()

    def close(self, *, linger: bool) -> None:
        self.closed = True

    def hold(self, gate: Gate) -> None: ...

    def admit(self, message_bytes_max: int) -> None: ...


@dataclass
class Fixture:
    """A broker with clients and leaf links that are driven by hand."""

    broker: Broker = field(default_factory=lambda: Broker(OPTIONS))

    def __post_init__(self) -> None:
        set_up_accounts(self.broker, OPTIONS)
        self.clients = Clients(self.broker, OpenDoor(), port=4222)
        SystemServices(self.clients).start()

    def client(self, account: str = "") -> ClientConnection:
        transport = Sink()
        transport.session = client = self.clients.accept(transport, PEER)
        feed(client, b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n')
        if account:
            client._leave()
            client.join(self.broker.accounts[account])
        return client

    def leaf(self) -> LeafConnection:
        listener = LeafListener(self.broker.links, ConfigAuthenticator(OPTIONS).leaf, cast(trio.Nursery, None))
        transport = Sink()
        transport.session = link = listener._open(PEER, "127.0.0.1", may_compress=False)
        link.attach(transport)
        link.start()
        feed(link, leaf_connect(**{"user": "", "pass": "", "cluster": "", "version": "2.14.0"}))
        feed(link, b"PING\r\n")
        assert link.established, transport.heard
        return link


def feed(session: ClientConnection | LeafConnection, data: bytes) -> None:
    """Read by read, each one turn and those that follow from it."""
    for at in range(0, len(data), READ):
        session.received(data[at : at + READ])
        broker = session.clients.broker if isinstance(session, ClientConnection) else session.links.broker
        broker.flush()
        while len(broker.later_turns):
            broker.timers.run_due(broker.clock.monotonic())
            broker.flush()


def heard(session: ClientConnection | LeafConnection) -> bytes:
    assert isinstance(session.transport, Sink)
    return session.transport.heard


Play = Callable[[Fixture, int], Callable[[], None]]


def lines(shape: bytes, count: int) -> bytes:
    return b"".join(shape % {b"n": number} for number in range(count))


def sent(make: Callable[[int], bytes], before: bytes = b"") -> Play:
    """A client sends `make(n)`; what it sent before is not counted."""

    def play(fixture: Fixture, n: int) -> Callable[[], None]:
        client = fixture.client()
        feed(client, before)
        data = make(n) + b"PING\r\n"

        def act() -> None:
            feed(client, data)
            assert heard(client).endswith(b"PONG\r\n"), heard(client)[-100:]

        return act

    return play


def linked(make: Callable[[int], bytes], others: int = 0) -> Play:
    """A leaf node sends `make(n)`; another link and a client are there."""

    def play(fixture: Fixture, n: int) -> Callable[[], None]:
        fixture.leaf()
        client = fixture.client()
        feed(client, lines(b"SUB own.%(n)d %(n)d\r\n", others))
        link = fixture.leaf()
        data = make(n) + b"PING\r\n"

        def act() -> None:
            feed(link, data)
            assert not link.closed

        return act

    return play


def told(shape: bytes) -> Play:
    """A client's subscriptions are announced over two links, and withdrawn."""

    def play(fixture: Fixture, n: int) -> Callable[[], None]:
        fixture.leaf(), fixture.leaf()
        client = fixture.client()
        data = lines(shape, n) + lines(b"UNSUB %(n)d\r\n", n)
        return lambda: feed(client, data)

    return play


def ended(shape: bytes, link: bool) -> Play:
    """A connection with `n` subscriptions ends."""

    def play(fixture: Fixture, n: int) -> Callable[[], None]:
        fixture.leaf()
        session = fixture.leaf() if link else fixture.client()
        feed(session, lines(shape, n))

        def act() -> None:
            session.lost("Client Closed")
            fixture.broker.flush()

        return act

    return play


def asked(
    subject: bytes, query: dict[str, object], subs: bytes = b"SUB s.%(n)d.*.x %(n)d\r\n", *, many: bool = False
) -> Play:
    """A request of the system account; there are `n` subscriptions of one client, or `n` clients with a few each."""

    def play(fixture: Fixture, n: int) -> Callable[[], None]:
        if many:
            for _ in range(n // 4):
                feed(fixture.client(), lines(subs, 3))
        else:
            feed(fixture.client(), lines(subs, n))
            feed(fixture.leaf(), lines(b"LS+ l.%(n)d.*\r\n", n))
        admin = fixture.client("$SYS")
        body = json.dumps(query).encode()
        request = b"SUB answers 1\r\nPUB %b answers %d\r\n%b\r\n" % (subject, len(body), body)

        def act() -> None:
            feed(admin, request)
            assert heard(admin).startswith(b"MSG answers 1 ")
            assert b'"error"' not in heard(admin)

        return act

    return play


def message(header: bytes, payload: bytes = b"") -> bytes:
    head = b"NATS/1.0\r\n" + header + b"\r\n"
    return b"HPUB a %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(payload), head, payload)


def connect_with(**members: object) -> bytes:
    return b"CONNECT " + json.dumps({"verbose": False, "headers": True, **members}).encode() + b"\r\n"


LONG = b".".join([b"token"] * 60)
STARS = b".".join([b"*"] * 60)
SERVER = b"$SYS.REQ.SERVER.PING."

CONVERSATIONS: dict[str, Play] = {
    "SUB: literals": sent(lambda n: lines(b"SUB s.%(n)d %(n)d\r\n", n)),
    "SUB: long subjects": sent(lambda n: lines(b"SUB " + LONG + b".%(n)d %(n)d\r\n", n)),
    "SUB: wildcards": sent(lambda n: lines(b"SUB *.%(n)d.*.> %(n)d\r\n", n)),
    "SUB: stars": sent(lambda n: lines(b"SUB " + STARS + b".%(n)d %(n)d\r\n", n)),
    "SUB: one subject": sent(lambda n: lines(b"SUB same %(n)d\r\n", n)),
    "SUB: one subject, queue groups": sent(lambda n: lines(b"SUB same q%(n)d %(n)d\r\n", n)),
    "SUB: one subject, one group": sent(lambda n: lines(b"SUB same q %(n)d\r\n", n)),
    "SUB: one sid": sent(lambda n: lines(b"SUB s.%(n)d 1\r\n", n)),
    "SUB: refused": sent(lambda n: lines(b"SUB s..%(n)d %(n)d\r\n", n)),
    "SUB: one subject of very many tokens": sent(lambda n: b"SUB " + b".".join([b"*"] * 10 * n) + b" 1\r\n"),
    "SUB: acknowledgements": sent(lambda n: lines(b"SUB $JS.ACK.S.%(n)d.> %(n)d\r\n", n)),
    "UNSUB: first in, first out": sent(lambda n: lines(b"SUB same %(n)d\r\n", n) + lines(b"UNSUB %(n)d\r\n", n)),
    "UNSUB: queue groups": sent(lambda n: lines(b"SUB same q %(n)d\r\n", n) + lines(b"UNSUB %(n)d\r\n", n)),
    "UNSUB: wildcards": sent(lambda n: lines(b"SUB *.%(n)d.> %(n)d\r\n", n) + lines(b"UNSUB %(n)d\r\n", n)),
    "UNSUB: long subjects": sent(
        lambda n: lines(b"SUB " + LONG + b".%(n)d %(n)d\r\n", n) + lines(b"UNSUB %(n)d\r\n", n)
    ),
    "UNSUB: after so many": sent(
        lambda n: lines(b"SUB same %(n)d\r\n", n) + lines(b"UNSUB %(n)d 1\r\n", n) + b"PUB same 1\r\nx\r\n"
    ),
    "UNSUB: nothing there": sent(lambda n: lines(b"UNSUB %(n)d\r\n", n)),
    "SUB and PUB in turn": sent(lambda n: lines(b"SUB s.%(n)d.* %(n)d\r\nPUB s.%(n)d.a 1\r\nx\r\n", n)),
    "PUB: many queue groups": sent(lambda n: lines(b"SUB same q%(n)d %(n)d\r\n", n) + b"PUB same 1\r\nx\r\n"),
    "PUB: one large queue group": sent(lambda n: lines(b"SUB same q %(n)d\r\n", n) + lines(b"PUB same 1\r\nx\r\n", n)),
    "PUB: many subscriptions": sent(lambda n: lines(b"SUB same %(n)d\r\n", n) + b"PUB same 1\r\nx\r\n"),
    "PUB: subjects once": sent(lambda n: lines(b"PUB s.%(n)d 1\r\nx\r\n", n), b"SUB s.* 1\r\n"),
    "PUB: nobody there": sent(lambda n: lines(b"PUB s.%(n)d r.%(n)d 1\r\nx\r\n", n)),
    "PUB: one subject of very many tokens": sent(
        lambda n: b"PUB " + b".".join([b"a"] * 10 * n) + b" 0\r\n\r\n", b"SUB *.> 1\r\n"
    ),
    "HPUB: many fields": sent(lambda n: message(lines(b"Key-%(n)d: value\r\n", 10 * n)), b"SUB a 1\r\n"),
    "HPUB: one field again and again": sent(lambda n: message(lines(b"Key: %(n)d\r\n", 10 * n)), b"SUB a 1\r\n"),
    "HPUB: traced": sent(
        lambda n: message(b"Nats-Trace-Dest: t\r\n" + lines(b"Key-%(n)d: value\r\n", 10 * n)),
        b"SUB a 1\r\nSUB t 2\r\n",
    ),
    "HPUB: traced, many subscriptions": sent(
        lambda n: lines(b"SUB a %(n)d\r\n", n) + message(b"Nats-Trace-Dest: t\r\n"), b"SUB t t\r\n"
    ),
    "CONNECT: a large name": sent(lambda n: connect_with(name="x" * 100 * n)),
    "CONNECT: unknown members": sent(lambda n: connect_with(**{f"m{at}": {"a": [at]} for at in range(10 * n)})),
    "CONNECT: one member again and again": sent(
        lambda n: b'CONNECT {"verbose":false' + lines(b',"name":"%(n)d"', 10 * n) + b"}\r\n"
    ),
    "CONNECT: again and again": sent(lambda n: connect_with(name="x") * n),
    "INFO: again and again": sent(lambda n: b'INFO {"server_id":"x"}\r\n' * n),
    "PING": sent(lambda n: b"PING\r\n" * (n - 1)),
    "LS+: literals": linked(lambda n: lines(b"LS+ s.%(n)d\r\n", n)),
    "LS+: wildcards": linked(lambda n: lines(b"LS+ *.%(n)d.>\r\n", n)),
    "LS+: long subjects": linked(lambda n: lines(b"LS+ " + LONG + b".%(n)d\r\n", n)),
    "LS+: queue groups": linked(lambda n: lines(b"LS+ same q%(n)d 3\r\n", n)),
    "LS+: weights": linked(lambda n: lines(b"LS+ same q %(n)d\r\n", n)),
    "LS+: beside a client's": linked(lambda n: lines(b"LS+ own.%(n)d.*\r\n", n), others=500),
    "LS+: APIs": linked(lambda n: lines(b"LS+ $JS.d%(n)d.API.>\r\n", n)),
    "LS-: in the same order": linked(lambda n: lines(b"LS+ s.%(n)d\r\n", n) + lines(b"LS- s.%(n)d\r\n", n)),
    "LS-: wildcards": linked(lambda n: lines(b"LS+ *.%(n)d.>\r\n", n) + lines(b"LS- *.%(n)d.>\r\n", n)),
    "LS-: queue groups": linked(lambda n: lines(b"LS+ same q%(n)d 1\r\n", n) + lines(b"LS- same q%(n)d\r\n", n)),
    "LS+ and LS- in turn": linked(lambda n: lines(b"LS+ s.%(n)d\r\nLS- s.%(n)d\r\n", n)),
    "LMSG: many queue groups": linked(lambda n: b"LMSG own.1 |" + lines(b" q%(n)d", n) + b" 1\r\nx\r\n", others=2),
    "told: literals": told(b"SUB s.%(n)d %(n)d\r\n"),
    "told: wildcards": told(b"SUB *.%(n)d.> %(n)d\r\n"),
    "told: queue groups": told(b"SUB same q%(n)d %(n)d\r\n"),
    "told: one subject": told(b"SUB same %(n)d\r\n"),
    "told: one group": told(b"SUB same q %(n)d\r\n"),
    "ended: a client": ended(b"SUB same q%(n)d %(n)d\r\n", link=False),
    "ended: a client, one subject": ended(b"SUB same %(n)d\r\n", link=False),
    "ended: a client, wildcards": ended(b"SUB *.%(n)d.> %(n)d\r\n", link=False),
    "ended: a link": ended(b"LS+ s.%(n)d.*\r\n", link=True),
    "ended: a link, queue groups": ended(b"LS+ same q%(n)d 1\r\n", link=True),
    "CONNZ": asked(SERVER + b"CONNZ", {"subscriptions_detail": True}),
    "CONNZ: many clients": asked(SERVER + b"CONNZ", {"auth": True, "sort": "subs"}, many=True),
    "CONNZ: by subject": asked(
        SERVER + b"CONNZ",
        {"acc": "$G", "filter_subject": STARS.decode() + ".nowhere"},
        b"SUB " + STARS + b".%(n)d %(n)d\r\n",
    ),
    "SUBSZ": asked(SERVER + b"SUBSZ", {"subscriptions": True, "limit": 1 << 30}),
    "SUBSZ: the last page": asked(SERVER + b"SUBSZ", {"subscriptions": True, "offset": 3900}),
    "SUBSZ: by subject": asked(
        SERVER + b"SUBSZ", {"subscriptions": True, "test": LONG.decode() + ".1"}, b"SUB " + STARS + b".%(n)d %(n)d\r\n"
    ),
    "STATSZ": asked(SERVER + b"STATSZ", {}, many=True),
    "VARZ": asked(SERVER + b"VARZ", {}, many=True),
    "ACCOUNTZ": asked(SERVER + b"ACCOUNTZ", {"account": "$G"}),
    "an account's CONNZ": asked(b"$SYS.REQ.ACCOUNT.$G.CONNZ", {"subscriptions": True}),
    "an account's SUBSZ": asked(b"$SYS.REQ.ACCOUNT.$G.SUBSZ", {"limit": 1 << 30}),
    "a request of very many tags": lambda fixture, n: asked(
        SERVER + b"VARZ", {"tags": ["t"] * 10 * n}, b"", many=False
    )(fixture, 1),
}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """The collector's time is what else the process holds, not the frame's."""
    gc.disable()
    yield
    gc.enable()


#: What else runs on the machine makes a measurement longer, never shorter: the least of so many is taken.
MEASURED_MAX = 12


def cost(play: Play, n: int) -> float:
    act = play(Fixture(), n)
    begun = thread_time()
    act()
    return thread_time() - begun


@pytest.mark.parametrize("which", CONVERSATIONS)
async def test_the_cost_grows_with_what_was_sent(which: str) -> None:
    play = CONVERSATIONS[which]
    bound = max(min(cost(play, N) for _ in range(3)), SOME_S) * GROWTH_MAX
    costs: list[float] = []
    while len(costs) < MEASURED_MAX and (not costs or min(costs) >= bound):
        costs.append(cost(play, N * TIMES))
    assert min(costs) < bound, (round(bound * 1000, 1), [round(each * 1000, 1) for each in costs])
