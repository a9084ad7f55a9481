"""Any bytes that a peer may send: no fault, no leftovers, no effect on other peers."""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.config.options import Options
from eyot_daemon.net.transport import Session, Transport
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.backpressure import Gate
from support.clients.transcripts import CLOSING_CASES, OPEN_CASES, PLAIN
from support.manual_clock import ManualClock
from support.servers.open_door import OpenDoor


@dataclass
class Sink:
    """A transport that takes everything at once."""

    session: Session | None = None
    sent: bytearray = field(default_factory=bytearray)
    closed: bool = False

    backlog = 0

    def input_waits(self) -> bool:
        return False

    def hold(self, gate: Gate) -> None:
        """It reads on by itself."""

    def admit(self, message_bytes_max: int) -> None:
        """It reads as much as it likes."""

    def send(self) -> None:
        assert self.session is not None
        self.sent += self.session.out
        self.session.out.clear()

    def close(self, *, linger: bool) -> None:
        if linger:
            self.send()
        self.closed = True

    async def run(self, session: Session) -> None:
        raise AssertionError("not served by a task here")


class Fixture:
    """A broker with one innocent client and one that is under test."""

    def __init__(self) -> None:
        self.broker = Broker(Options(max_payload=1000), clock=ManualClock())
        self.clients = Clients(self.broker, OpenDoor())
        self.innocent = self.connect()
        self.innocent.session.received(PLAIN + b"SUB safe 1\r\n")  # type: ignore[union-attr]
        self.broker.flush()
        self.suspect = self.connect()

    def connect(self) -> Sink:
        sink = Sink()
        transport: Transport = sink
        sink.session = self.clients.accept(transport, Peer(host="fuzz", port=1))
        self.broker.flush()
        return sink

    def feed(self, chunks: list[bytes]) -> None:
        assert self.suspect.session is not None
        for chunk in chunks:
            self.suspect.session.received(chunk)
            self.broker.flush()

    def check(self) -> None:
        """The innocent is served, and a closed connection left nothing behind."""
        before = len(self.innocent.sent)
        other = self.connect()
        assert other.session is not None
        other.session.received(PLAIN + b"PUB safe 2\r\nok\r\nPING\r\n")
        self.broker.flush()
        assert self.innocent.sent[before:] == b"MSG safe 1 2\r\nok\r\n"
        assert other.sent.endswith(b"PONG\r\n")
        assert self.suspect.session is not None
        if self.suspect.session.closed:
            assert self.suspect.closed
            assert all(sub.dest is not self.suspect.session for sub in self.broker.global_account.subscriptions())
            assert self.suspect.session not in self.clients.connections.values()
        self.suspect.session.lost("Client Closed")
        assert len(self.broker.global_account.sublist) == 1


verbs = st.sampled_from(
    [b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT ", b"PING", b"PONG", b"INFO ", b"-ERR ", b"+OK", b"MSG "]
)
words = st.one_of(
    st.sampled_from(
        [
            b"a",
            b"a.b",
            b"*",
            b">",
            b"a..b",
            b"safe.x",
            b"$JS.ACK.x",
            b"_R_.a.b",
            b"0",
            b"1",
            b"-1",
            b"5",
            b"99999999999",
            b"{}",
            b'{"verbose":false}',
        ]
    ),
    st.binary(max_size=12),
)
lines = st.builds(
    lambda verb, parts, end, payload: verb + b" ".join(parts) + end + payload,
    verbs,
    st.lists(words, max_size=4),
    st.sampled_from([b"\r\n", b"\n", b"\r", b""]),
    st.sampled_from([b"", b"x\r\n", b"hello\r\n", b"\r\n"]),
)
captured = st.sampled_from([case[1] + case[2] for case in OPEN_CASES] + [case[1] for case in CLOSING_CASES])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(at)]


common = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@common
@given(st.lists(lines, max_size=12), st.lists(st.integers(0, 400), max_size=5))
def test_lines_that_look_nearly_right(sent: list[bytes], places: list[int]) -> None:
    fixture = Fixture()
    fixture.feed(cut(b"".join(sent), places))
    fixture.check()


@common
@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=5), st.booleans())
def test_random_bytes(sent: bytes, places: list[int], connected: bool) -> None:
    fixture = Fixture()
    fixture.feed(cut((PLAIN if connected else b"") + sent, places))
    fixture.check()


@common
@given(
    captured,
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=6),
    st.lists(st.integers(0, 500), max_size=4),
)
def test_mutated_conversations(sent: bytes, changes: list[tuple[int, int]], places: list[int]) -> None:
    mutated = bytearray(sent)
    for place, value in changes:
        mutated[place % len(mutated)] = value
    fixture = Fixture()
    fixture.feed(cut(bytes(mutated), places))
    fixture.check()


def test_what_is_kept_of_an_unfinished_frame_is_bounded() -> None:
    for start in (b"PUB a 1000\r\n", b"SUB ", b"CONNECT {", b"HPUB a 12 1000\r\nNATS/1.0\r\n\r\n"):
        fixture = Fixture()
        fixture.feed([PLAIN, start, *[b"x" * 500] * 200])
        assert fixture.suspect.session is not None
        assert fixture.suspect.session.closed
        fixture.check()
