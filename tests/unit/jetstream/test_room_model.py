"""Receivers that read at random, with buffers of any size: everything arrives though no time passes, nothing runs in circles.

Real connections on real sockets, whose ends the test reads; consumers of all kinds; the clock stands still. So whatever waited
for the clock would wait forever.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from eyot_daemon.auth.login import Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.jetstream.consumer.delivery import BACKLOG_SHARE
from eyot_daemon.jetstream.consumer.reader import READ_BYTES_MAX
from eyot_daemon.turn.backpressure import Gate
from support.jetstream.consumers import ConsumerFixture
from support.servers.open_door import OpenDoor

ACK = re.compile(rb" \$JS\.ACK\.S\.(\w+)\.1\.(\d+)\.")
#: Turns without anything to do but what goes on by itself: a look at once, and a wait, of each consumer.
QUIET_TURNS_MAX = 20


class SocketWire:
    """As `SocketTransport`, with a test that says when the kernel has room."""

    def __init__(self, buffer_bytes: int) -> None:
        self._sock, self.far = socket.socketpair()
        self._sock.setblocking(False)
        self.far.setblocking(False)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        self.session: ClientConnection | None = None
        self._draining = False
        self.largest = 0
        self.heard = bytearray()

    def begin(self) -> None:
        assert self.session is not None
        self.session.fd = self._sock.fileno()

    @property
    def backlog(self) -> int:
        return 0 if self.session is None else len(self.session.out)

    def input_waits(self) -> bool:
        return False

    def send(self) -> None:
        if self.session is not None and not self._draining and self.session.out:
            self._draining = not self._push(self.session)
        self.largest = max(self.largest, self.backlog)

    def _push(self, session: ClientConnection) -> bool:
        try:
            sent = self._sock.send(session.out)
        except BlockingIOError:
            sent = 0
        del session.out[:sent]
        complete = not session.out
        session.fd = self._sock.fileno() if complete else -1
        return complete

    def read(self, most: int) -> int:
        """The peer reads; then the kernel tells that there is room."""
        try:
            data = self.far.recv(most)
        except BlockingIOError:
            data = b""
        self.heard += data
        session = self.session
        if session is not None and self._draining and self._push(session):
            self._draining = session.refill()
        return len(data)

    def close(self, *, linger: bool) -> None:
        if self.session is not None:
            self.session.fd = -1
        self._sock.close()
        self.far.close()

    def hold(self, gate: Gate) -> None: ...

    def admit(self, message_bytes_max: int) -> None: ...

    async def run(self, session: object) -> None:
        raise AssertionError("not served by a task here")


class Model:
    def __init__(self, path: Path, rng: Random) -> None:
        self.rng = rng
        self.fixture = ConsumerFixture(path)
        broker = self.fixture.broker
        self.max_pending = rng.choice([1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 26])
        broker.options = msgspec.structs.replace(broker.options, max_pending=self.max_pending)
        self.clients = Clients(broker, OpenDoor())
        self.fixture.create(subjects=["s.>"])
        self.count = rng.randrange(200, 1500)
        sizes = [rng.choice([1, 100, 2000, 20_000]) for _ in range(self.count)]
        total = 0
        for number, size in enumerate(sizes):
            total += size
            self.fixture.account.publish(b"s.%d" % (number % 7), payload=b"x" * (size if total < 6 << 20 else 1))
        self.fixture.commit()
        self.wires: list[SocketWire] = []
        self.names: dict[str, SocketWire] = {}

    def client(self) -> SocketWire:
        wire = SocketWire(self.rng.choice([1 << 12, 1 << 16, 1 << 20]))
        wire.session = client = self.clients.accept(wire, Peer(host="memory", port=1))
        wire.begin()
        client.received(b'CONNECT {"verbose":false,"headers":true}\r\n')
        self.fixture.commit()
        self.wires.append(wire)
        return wire

    def consume(self, wire: SocketWire) -> None:
        """One more consumer, whose messages this client gets."""
        name = f"c{len(self.names)}"
        self.names[name] = wire
        client = wire.session
        assert client is not None
        sid = len(self.names)
        if self.rng.random() < 0.5:
            client.received(b"SUB d.%b %d\r\n" % (name.encode(), sid))
            self.fixture.add(name, deliver_subject=f"d.{name}", ack_policy="none")
            return
        client.received(b"SUB i.%b %d\r\n" % (name.encode(), sid))
        self.fixture.add(name, ack_policy="none")
        for batch in self.rng.choice([[self.count], [self.count // 2, self.count], [10, self.count]]):
            body = msgspec.json.encode({"batch": batch})
            subject = b"$JS.API.CONSUMER.MSG.NEXT.S." + name.encode()
            client.received(b"PUB %b i.%b %d\r\n%b\r\n" % (subject, name.encode(), len(body), body))
        self.fixture.commit()

    def settle(self) -> None:
        """Everything that goes on by itself does so, in a bounded number of turns."""
        turns, timers = 0, self.fixture.broker.timers
        before = self.delivered()
        while timers.run_due(self.fixture.clock.monotonic()):
            self.fixture.commit()
            now = self.delivered()
            turns = turns + 1 if now == before else 0
            before = now
            assert turns <= QUIET_TURNS_MAX, "it runs in circles"

    def delivered(self) -> int:
        return sum(self.fixture.consumer(name).state.delivered_sseq for name in self.names)

    def arrived(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for wire in self.wires:
            for name, seq in ACK.findall(wire.heard):
                found[name.decode()].append(int(seq))
        return found


@pytest.mark.parametrize("seed", range(60))
def test_everything_arrives_though_no_time_passes(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    model = Model(tmp_path, rng)
    wires = [model.client() for _ in range(rng.choice([1, 1, 2, 4]))]
    for _ in range(rng.choice([1, 2, 5, 12])):
        model.consume(rng.choice(wires))
    chatter = rng.choice([0.0, 0.3])
    model.settle()
    idle = 0
    while idle < 3:
        wire = rng.choice(wires)
        read = wire.read(rng.choice([100, 5_000, 1 << 16, 1 << 22]))
        if rng.random() < chatter and wire.session is not None:
            model.fixture.account.publish(f"d.{next(iter(model.names))}".encode(), payload=b"y" * rng.randrange(3000))
        model.fixture.commit()
        model.settle()
        idle = 0 if read or any(each.read(1 << 22) for each in wires) else idle + 1
    for name, seqs in model.arrived().items():
        assert seqs == list(range(1, model.count + 1)), (name, len(seqs))
    backlog_max = min(1 << 20, model.max_pending // BACKLOG_SHARE)
    consumers = Counter(id(wire) for wire in model.names.values())
    for wire in wires:
        own = backlog_max + consumers[id(wire)] * 2 * READ_BYTES_MAX
        assert wire.largest <= own + (1 << 20), "its buffer is not bounded"
    for wire in wires:
        wire.close(linger=False)


def test_consumers_of_a_client_that_ends_are_told(tmp_path: Path) -> None:
    """Another member of the group gets what the one with the full buffer cannot."""
    model = Model(tmp_path, Random(3))
    stuck, other = model.client(), model.client()
    for wire in (stuck, other):
        assert wire.session is not None
        wire.session.received(b"SUB d.c0 g 1\r\n")
    model.names["c0"] = stuck
    model.fixture.add("c0", deliver_subject="d.c0", deliver_group="g", ack_policy="none")
    for _ in range(50):
        model.settle()
    assert model.delivered() < model.count
    assert stuck.session is not None
    stuck.session.close("Kicked", linger=False)
    model.fixture.commit()
    model.settle()
    while other.read(1 << 22):
        model.fixture.commit()
        model.settle()
    assert model.delivered() == model.count
