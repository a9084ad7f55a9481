"""A strict client of MQTT and the server's real connections, with a cut between any two packets.

Both sides are plain objects: packets wait in two queues until a step moves one, and commits happen when a step asks for
them. A cut loses the packets of both queues; a power cut loses what was not committed, too.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from typing import NamedTuple

from eyot_daemon.auth.login import MQTT, Peer
from eyot_daemon.client.clients import Clients
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.mqtt.connection import MqttConnection
from eyot_daemon.mqtt.server import MqttServer
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from support.clients.plain_transport import Wire
from support.jetstream.fixture import Fixture
from support.mqtt.answers import check_form
from support.mqtt.raw_mqtt import Got, RawMqtt
from support.servers.open_door import OpenDoor

T = PacketType
EXPIRY_S = 3600
#: Publishes that the client has on their way at once.
WINDOW = 3


class Connection(RawMqtt):
    """A connection to `server` within the process."""

    def __init__(self, server: Server, level: int) -> None:
        self.level = level
        self._wire = server.accept()
        self._read = bytearray()

    def send(self, data: bytes) -> None:
        """Have the server read `data`; the turn does not end."""
        assert self._wire.session is not None
        self._wire.session.received(data)

    def got(self) -> list[Got]:
        """What the server sent since the last call."""
        self._read += self._wire.sent
        self._wire.sent.clear()
        found = []
        while (got := self._cut()) is not None:
            check_form(got, self.level)
            found.append(got)
        return found

    def lose(self) -> None:
        """The network ends the connection, and the server hears of it."""
        assert self._wire.session is not None
        self._wire.session.lost("Client Closed")


class Server:
    """One start of the daemon, with a stream of everything below `s/`."""

    def __init__(self, path: Path, before: Server | None = None) -> None:
        self._path = path
        self.fixture = fixture = Fixture(path, clock=None if before is None else before.fixture.clock)
        if before is None:
            fixture.create("LOG", subjects=["s.>"])
        self.mqtt = MqttServer(fixture.broker, MqttOptions(), lambda name: (fixture.jsa, fixture.js.consumers))
        self.clients = Clients(fixture.broker, OpenDoor())
        self.sessions = self.mqtt.sessions_of(fixture.account)
        self.settle()

    def accept(self) -> Wire:
        """A new connection."""
        wire = Wire()
        made = partial(MqttConnection, server=self.mqtt)
        wire.session = self.clients.accept_as(made, wire, Peer(host="memory", port=1, connection_type=MQTT))
        return wire

    def turn(self) -> bool:
        """One commit with what led to it, and what it leads to; False: there was none."""
        self.fixture.broker.flush()
        done = bool(self.fixture.store.commit_now())
        self.fixture.broker.timers.run_due(self.fixture.clock.monotonic())
        self.fixture.broker.flush()
        return done

    def settle(self) -> None:
        """Commit until nothing is under way; what is written after a while is written."""
        for _ in range(3):
            while self.turn():
                pass
            self.fixture.advance(0.2)

    def power_cut(self) -> Server:
        """Lose what was not committed, and start again."""
        self.fixture.store.crash()
        return Server(self._path, self)

    def stop(self) -> None:
        self.mqtt.stop()
        self.fixture.js.stop()
        self.fixture.store.close()


class Sent(NamedTuple):
    """A publish of the client."""

    payload: bytes
    qos: int


class StrictClient:
    """A client that keeps what the protocol makes a client keep, and nothing else.

    It sends SUBSCRIBE and its publishes without waiting for CONNACK on its first connection, and SUBSCRIBE again only
    while it saw neither SUBACK nor the answer to a publish behind it. `got`: payloads as its application sees them.
    """

    def __init__(self, level: int, to_publish: list[Sent], *, receive_maximum: int = 100) -> None:
        self.level = level
        self.got: list[bytes] = []
        self.faults: list[str] = []
        self._receive_maximum = receive_maximum
        self._to_publish = deque(to_publish)
        #: by packet identifier, in the order of the first sending; True: released, PUBCOMP is due
        self._outgoing: dict[int, tuple[Sent, bool]] = {}
        self._unreleased: set[int] = set()
        self._next_id = 0
        self._has_session = self._waits = False
        self.subscribed = False
        self.inbox: deque[Got] = deque()
        self.outbox: deque[bytes] = deque()
        self._connection: Connection | None = None

    @property
    def done(self) -> bool:
        return not (self._to_publish or self._outgoing or self.inbox or self.outbox or self._unreleased)

    # -- connections -----------------------------------------------------------------------------------------------------

    def connect(self, server: Server) -> None:
        """Begin a connection; what was on its way on the one before is lost."""
        self.inbox.clear()
        self.outbox.clear()
        self._connection = Connection(server, self.level)
        props = None
        if self.level == 5:
            props = Properties(session_expiry_interval=EXPIRY_S, receive_maximum=self._receive_maximum)
        self.outbox.append(encoder.connect(Connect(self.level, "strict", False, 0, properties=props)))
        self._waits = self._has_session
        if not self._has_session:  # it never heard of one: everything follows CONNECT at once
            self._subscribe()
            self._send_again()

    def lose_connection(self) -> None:
        """The network ends the connection, and the server hears of it."""
        assert self._connection is not None
        self._connection.lose()

    def _subscribe(self) -> None:
        wanted = [SubscriptionRequest("s/#", 2)]
        self.outbox.append(encoder.subscribe(self.level, Subscribe(60_000, wanted)))

    # -- steps -----------------------------------------------------------------------------------------------------------

    def deliver(self) -> bool:
        """The server reads the client's next packet; False: there is none."""
        if not self.outbox:
            return False
        assert self._connection is not None
        self._connection.send(self.outbox.popleft())
        return True

    def receive(self) -> None:
        """What the server sent is on its way to the client."""
        assert self._connection is not None
        self.inbox.extend(self._connection.got())

    def act(self) -> bool:
        """Handle one packet, or publish; False: there is nothing to do."""
        if self.inbox:
            self._handle(self.inbox.popleft())
            return True
        if not self._waits and self._to_publish and len(self._outgoing) < WINDOW:
            sent = self._to_publish.popleft()
            self._next_id += 1
            self._outgoing[self._next_id] = (sent, False)
            self._send(self._next_id, sent, dup=False)
            return True
        return False

    def _send(self, packet_id: int, sent: Sent, *, dup: bool) -> None:
        self.outbox.append(encoder.publish(self.level, "s/a", sent.payload, qos=sent.qos, dup=dup, packet_id=packet_id))

    def _handle(self, got: Got) -> None:
        if got.type is T.CONNACK:
            self._connected(got)
        elif got.type is T.SUBACK:
            self.subscribed = True
        elif got.type is T.PUBLISH:
            self._message(got)
        elif got.type is T.PUBREL:
            self._unreleased.discard(got.packet_id)
            self.outbox.append(encoder.pubcomp(self.level, got.packet_id))
        else:
            self._answered(got)

    def _connected(self, got: Got) -> None:
        if got.reason:
            self.faults.append(f"CONNECT is refused: {got.reason}")
        if self._has_session and not got.present:
            self.faults.append("the session is lost")
        waited, self._has_session, self._waits = self._waits, True, False
        if waited:
            if not self.subscribed:
                self._subscribe()
            self._send_again()

    def _send_again(self) -> None:
        for packet_id, (sent, released) in self._outgoing.items():
            if released:
                self.outbox.append(encoder.pubrel(self.level, packet_id))
            else:
                self._send(packet_id, sent, dup=True)

    def _message(self, got: Got) -> None:
        if got.qos == 2:
            if got.packet_id not in self._unreleased:
                self._unreleased.add(got.packet_id)
                self.got.append(got.payload)
            self.outbox.append(encoder.pubrec(self.level, got.packet_id))
        else:
            self.got.append(got.payload)
            self.outbox.append(encoder.puback(self.level, got.packet_id))

    def _answered(self, got: Got) -> None:
        known = self._outgoing.get(got.packet_id)
        if known is None:
            self.faults.append(f"{got.type.name} {got.packet_id} answers nothing")
            return
        sent, released = known
        wanted = T.PUBACK if sent.qos == 1 else T.PUBCOMP if released else T.PUBREC
        if got.type is T.PUBREC and released:
            return  # to the PUBLISH of an earlier try
        was_complete = (
            wanted is T.PUBCOMP and got.reason == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        )  # its PUBCOMP was lost
        if got.type is not wanted or (got.reason >= 0x80 and not was_complete):
            self.faults.append(f"{got.type.name} {got.packet_id} ({got.reason}) where {wanted.name} is due")
        self.subscribed = True  # the SUBSCRIBE was sent before: it has been carried out
        if got.type is T.PUBREC:
            self._outgoing[got.packet_id] = (sent, True)
            self.outbox.append(encoder.pubrel(self.level, got.packet_id))
        else:
            del self._outgoing[got.packet_id]
