"""What becomes of sessions and retained messages of MQTT while commits fail at random: a run of one seed.

When the disk is well again, and all is quiet, three things must hold. A server that starts on a copy of the store serves every client as
the one that lived through the failures. What was acknowledged comes to each session that had a subscription for it. A retained message
is the last one that was acknowledged, or one after it.

`make failing-disk` runs many seeds.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe
from eyot_wire.mqtt.properties import Properties
from support.jetstream.full_disk import Disk
from support.mqtt.cuts import EXPIRY_S, Connection, Server
from support.mqtt.raw_mqtt import Got
from support.seeds import folder_in_memory, run_seeds

STEPS = 80
LEVEL = 5
TOPICS = ("s/a", "s/b", "t/a", "t/b")
#: Filters, and the topics that each takes.
FILTERS = {"s/#": {"s/a", "s/b"}, "s/a": {"s/a"}, "t/+": {"t/a", "t/b"}, "#": set(TOPICS)}
REFUSED = 0x80


@dataclass
class Publish:
    """A publish under way. `promised`: the lists of those who must get it once it is acknowledged."""

    topic: str
    payload: bytes
    retain: bool
    promised: list[list[bytes]]


@dataclass
class Client:
    """A client with a session. What it is not sure of, it does not demand."""

    client_id: str
    #: Connected, and CONNACK has come.
    is_up: bool = False
    has_session: bool = False
    #: A clean start may have ended the session.
    is_unsure: bool = False
    filters: set[str] = field(default_factory=set)
    got: list[bytes] = field(default_factory=list)
    must_get: list[bytes] = field(default_factory=list)
    #: Packet identifier -> a publish, or a filter to subscribe (True) or to unsubscribe.
    unanswered: dict[int, Publish | tuple[str, bool]] = field(default_factory=dict)
    connection: Connection | None = None
    _last_id: int = 0

    def send(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.send(data)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def connect(self, server: Server, *, clean: bool) -> None:
        """Begin a connection in the place of the one before."""
        self.lose()
        self.connection = Connection(server, LEVEL)
        self.send(connect_packet(self.client_id, clean=clean))
        if clean:
            self.is_unsure = True
            self.filters, self.must_get = set(), []

    def lose(self, *, heard: bool = True) -> None:
        """The network ends the connection. `heard`: the server hears of it."""
        connection, self.connection, self.is_up = self.connection, None, False
        if connection is not None and heard:
            connection.lose()
        self.unanswered.clear()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        packet_id = self.next_id()
        self.unanswered[packet_id] = topic_filter, True
        self.send(encoder.subscribe(LEVEL, Subscribe(packet_id, [SubscriptionRequest(topic_filter, qos)])))

    def unsubscribe(self, topic_filter: str) -> None:
        """What was to come by it may not come any more."""
        packet_id = self.next_id()
        self.unanswered[packet_id] = topic_filter, False
        self.filters.discard(topic_filter)
        self.must_get = []
        self.send(encoder.unsubscribe(LEVEL, Unsubscribe(packet_id, [topic_filter])))

    def handle(self, got: Got, *, acknowledges: bool) -> Publish | None:
        """Process a packet; return the publish that it says is stored."""
        if got.type is PacketType.CONNACK:
            self._connected(got)
        elif got.type is PacketType.PUBLISH:
            self.got.append(got.payload)
            if got.qos == 2:
                self.send(encoder.pubrec(LEVEL, got.packet_id))
            elif acknowledges:
                self.send(encoder.puback(LEVEL, got.packet_id))
        elif got.type is PacketType.PUBREL:
            self.send(encoder.pubcomp(LEVEL, got.packet_id))
        elif got.type is PacketType.DISCONNECT:
            self.lose(heard=False)
        elif got.type in (PacketType.SUBACK, PacketType.UNSUBACK):
            self._changed(got)
        elif got.type in (PacketType.PUBACK, PacketType.PUBREC):
            return self._stored(got)
        return None

    def _connected(self, got: Got) -> None:
        if got.reason:
            self.lose(heard=False)
            return
        assert got.present or not self.has_session or self.is_unsure, f"{self.client_id}: the session is lost"
        if not got.present:
            self.filters, self.must_get = set(), []
        self.is_up, self.has_session, self.is_unsure = True, True, False

    def _changed(self, got: Got) -> None:
        asked = self.unanswered.pop(got.packet_id, None)
        if isinstance(asked, tuple) and asked[1] and got.codes[0] < REFUSED:
            self.filters.add(asked[0])

    def _stored(self, got: Got) -> Publish | None:
        asked = self.unanswered.pop(got.packet_id, None)
        if not isinstance(asked, Publish) or got.reason >= REFUSED:
            return None
        if got.type is PacketType.PUBREC:
            self.send(encoder.pubrel(LEVEL, got.packet_id))
        return asked


class FailingDiskRun:
    """One seed in an empty directory. Raises AssertionError with what does not hold."""

    def __init__(self, seed: int, path: Path, steps: int = STEPS) -> None:
        self.chance = random.Random(seed)
        self._path = path
        self._steps = steps
        self.server = Server(path / "lived")
        self.disk = Disk(self.server.fixture).stand_before()
        self.clients = [Client(client_id) for client_id in "xyz"]
        #: What each topic may retain.
        self._may_retain: dict[str, list[bytes]] = {topic: [b""] for topic in TOPICS}
        self._retained: set[bytes] = set()
        self._number = 0

    def run(self) -> None:
        """Everything, and the checks."""
        kinds = [step for step, weight in STEPS_OF.items() for _ in range(weight)]
        for _ in range(self._steps):
            self.chance.choice(kinds)(self, self.chance.choice(self.clients))
        self.disk.trouble = ""
        self._settle()
        self.receive(share=0.0)
        for client in self.clients:
            client.lose()
        self._settle()
        shutil.copytree(self._path / "lived", self._path / "copy")
        started = Server(self._path / "copy", self.server)
        lived_found, started_found = Found(self.server, self.clients), Found(started, self.clients)
        started.stop()
        self.server.stop()
        self._compare(lived_found, started_found)

    # -- what happens --------------------------------------------------------------------------------------------------

    def publish(self, client: Client, *, retain: bool = False) -> None:
        if not client.is_up:
            return
        self._number += 1
        topic, qos = self.chance.choice(TOPICS), self.chance.choice([1, 1, 2])
        payload = b"" if retain and self.chance.random() < 0.2 else b"%d" % self._number
        wanting = [each for each in self.clients if each.has_session and not each.is_unsure]
        readers = [each.must_get for each in wanting if any(topic in FILTERS[one] for one in each.filters)]
        asked = Publish(topic, payload, retain, [] if retain else readers)
        if retain:
            self._may_retain[topic].append(payload)
            self._retained.add(payload)
        packet_id = client.next_id()
        client.unanswered[packet_id] = asked
        client.send(encoder.publish(LEVEL, topic, payload, qos=qos, retain=retain, packet_id=packet_id))

    def _publish_retained(self, client: Client) -> None:
        self.publish(client, retain=True)

    def _subscribe(self, client: Client) -> None:
        if client.is_up:
            client.subscribe(self.chance.choice(list(FILTERS)), self.chance.choice([1, 2]))

    def _unsubscribe(self, client: Client) -> None:
        if client.is_up:
            client.unsubscribe(self.chance.choice(list(FILTERS)))

    def _connect(self, client: Client) -> None:
        client.connect(self.server, clean=self.chance.random() < 0.1)

    def _lose(self, client: Client) -> None:
        client.lose()

    def _end_turn(self, _: Client) -> None:
        self.server.fixture.broker.flush()

    def _commit(self, _: Client) -> None:
        self.server.turn()

    def _wait(self, _: Client) -> None:
        self.server.fixture.advance(0.5)
        self.server.turn()

    def _change_disk(self, _: Client) -> None:
        self.disk.trouble = self.chance.choice(["", "", "full", "io"])

    def _receive_some(self, _: Client) -> None:
        self.receive(share=self.chance.choice([0.0, 0.5, 1.0]))

    def receive(self, *, share: float) -> None:
        """All clients read what was sent to them, and acknowledge their share of messages with QoS 1."""
        for client in self.clients:
            for got in client.connection.got() if client.connection is not None else ():
                if client.connection is not None:
                    stored = client.handle(got, acknowledges=self.chance.random() < share)
                    if stored is not None:
                        self._acknowledged(stored)

    def _acknowledged(self, stored: Publish) -> None:
        for must_get in stored.promised:
            must_get.append(stored.payload)
        if stored.retain:
            may = self._may_retain[stored.topic]
            if stored.payload in may:
                del may[: may.index(stored.payload)]

    def _cut_power(self, _: Client) -> None:
        self.server.settle()
        self.receive(share=1.0)
        for client in self.clients:
            client.lose(heard=False)
        self.server = self.server.power_cut()
        self.disk = Disk(self.server.fixture, self.disk.trouble).stand_before()

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.server.settle()
        self.server.fixture.advance(40.0)
        self.server.settle()

    def _compare(self, lived: Found, started: Found) -> None:
        for client in [each for each in self.clients if not each.is_unsure]:
            name = client.client_id
            # What a subscription gets of retained messages is in memory until it is acknowledged.
            mine, other = (
                (each.present[name], [one for one in each.queued[name] if one not in self._retained])
                for each in (lived, started)
            )
            assert mine == other, f"{name}: memory has {mine}, flash {other}"
            if client.has_session:
                assert lived.present[name], f"{name}: the session is lost"
                lost = set(client.must_get) - {*client.got, *lived.queued[name]}
                assert not lost, f"{name}: acknowledged and not there: {lost}"
        assert lived.retained == started.retained
        for topic, may in self._may_retain.items():
            assert lived.retained.get(topic, b"") in may, (
                f"{topic} retains {lived.retained.get(topic)}, not one of {may}"
            )


class Found:
    """What a server has for each client, and what it retains."""

    def __init__(self, server: Server, clients: list[Client]) -> None:
        self.present: dict[str, bool] = {}
        self.queued: dict[str, list[bytes]] = {}
        for client in clients:
            self._drain(server, client.client_id)
        connection = Connection(server, LEVEL)
        connection.send(encoder.connect(Connect(LEVEL, "reader", True, 0)))
        connection.send(encoder.subscribe(LEVEL, Subscribe(1, [SubscriptionRequest("#", 0)])))
        server.settle()
        self.retained = {got.topic: got.payload for got in connection.got() if got.type is PacketType.PUBLISH}
        connection.lose()
        server.settle()

    def _drain(self, server: Server, client_id: str) -> None:
        connection = Connection(server, LEVEL)
        connection.send(connect_packet(client_id, clean=False))
        queued = self.queued[client_id] = []
        for _ in range(6):
            server.settle()
            for got in connection.got():
                if got.type is PacketType.CONNACK:
                    assert not got.reason, f"{client_id} is refused: {got.reason:#x}"
                    self.present[client_id] = got.present
                elif got.type is PacketType.PUBLISH:
                    queued.append(got.payload)
                    answer = encoder.puback if got.qos == 1 else encoder.pubrec
                    connection.send(answer(LEVEL, got.packet_id))
                elif got.type is PacketType.PUBREL:
                    connection.send(encoder.pubcomp(LEVEL, got.packet_id))
        connection.lose()
        server.settle()


Step = Callable[[FailingDiskRun, Client], None]
#: Steps, and how often each is taken.
STEPS_OF: dict[Step, int] = {
    FailingDiskRun.publish: 25,
    FailingDiskRun._publish_retained: 8,
    FailingDiskRun._subscribe: 8,
    FailingDiskRun._unsubscribe: 3,
    FailingDiskRun._connect: 9,
    FailingDiskRun._lose: 4,
    FailingDiskRun._end_turn: 10,
    FailingDiskRun._commit: 14,
    FailingDiskRun._wait: 3,
    FailingDiskRun._change_disk: 7,
    FailingDiskRun._receive_some: 14,
    FailingDiskRun._cut_power: 1,
}


def connect_packet(client_id: str, *, clean: bool) -> bytes:
    """Return a CONNECT for a session that outlives its connection."""
    props = Properties(session_expiry_interval=10 * EXPIRY_S, receive_maximum=200)
    return encoder.connect(Connect(LEVEL, client_id, clean, 0, properties=props))


def run(seed: int, steps: int = STEPS) -> None:
    """One seed. Raises AssertionError."""
    with folder_in_memory() as path:
        FailingDiskRun(seed, path, steps).run()


if __name__ == "__main__":
    sys.exit(run_seeds("Sessions and retained messages of MQTT while commits fail at random.", run, STEPS))
