"""Clients of MQTT that keep to the specification while their server is killed again and again, and write down what they saw.

A publisher resends what was not acknowledged, in its order, with DUP=1 and the identifier it had; a subscriber keeps the
identifiers of QoS 2 that it has not released. Both keep their session over connections. Identifiers of publishers come
from a small range, so that each is used again soon: one that the server forgot to release would swallow a message.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import SubscriptionRequest, Will
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import Closed, Got, RawMqtt

#: How long a client waits for a packet before it looks whether it should end.
POLL_S: Final = 0.1
IDS: Final = 40
#: A publisher waits while a subscriber is so many messages behind: its queue must not become full.
BEHIND_MAX: Final = 1500
WINDOW: Final = 16
#: Of the publishes with QoS 2, the part whose payload is always the same: only their number tells a lost one.
CONSTANT: Final = b"21.5"


@dataclass
class Server:
    """Where the clients connect; `up` is set while the server runs, `over` when they should end."""

    port: int
    up: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    taken_over: int = 0
    subscribers: list[LoadSubscriber] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return any(self.taken_over - len(each.got) > BEHIND_MAX for each in self.subscribers)


@dataclass
class Outstanding:
    """A publish without its last acknowledgement."""

    topic: str
    payload: bytes
    qos: int
    released: bool = False


class LoadClient(threading.Thread):
    """One client id over many connections. `faults`: what the server did against the specification."""

    def __init__(self, server: Server, client_id: str, *, level: int, seed: int) -> None:
        super().__init__(name=client_id, daemon=True)
        self.server = server
        self.client_id = client_id
        self.level = level
        self.chance = random.Random(seed)
        self.faults: list[str] = []
        self.connections = 0
        self._known = False

    def run(self) -> None:
        while not self.finished:
            if not self.server.up.wait(POLL_S):
                continue
            try:
                with self._connected() as client:
                    self._converse(client)
            except (Closed, OSError):
                continue
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                raise

    @property
    def finished(self) -> bool:
        raise NotImplementedError

    def converse(self, client: RawMqtt) -> None:
        """Send and read until the connection ends, or the client has finished."""
        raise NotImplementedError

    def will(self) -> Will | None:
        return None

    def properties(self) -> Properties | None:
        return Properties(session_expiry_interval=3600) if self.level == 5 else None

    def _connected(self) -> RawMqtt:
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return RawMqtt(0, level=self.level, sock=sock)

    def _converse(self, client: RawMqtt) -> None:
        answer = client.connect(self.client_id, clean=False, will=self.will(), props=self.properties())
        if answer.reason:
            self.faults.append(f"CONNECT refused with {answer.reason:#x}")
            return
        if self._known and not answer.present:
            self.faults.append("the session is gone")
        self._known = True
        self.connections += 1
        client.sock.settimeout(POLL_S)
        self.converse(client)

    def packet(self, client: RawMqtt) -> Got | None:
        """The next packet, None if none comes for a while."""
        try:
            return client.packet()
        except TimeoutError:
            return None


class LoadPublisher(LoadClient):
    """Publishes numbers on topics of its own, QoS 1 and 2, until the load is over and all is acknowledged."""

    def __init__(self, server: Server, client_id: str, *, level: int, seed: int) -> None:
        super().__init__(server, client_id, level=level, seed=seed)
        self.pending: OrderedDict[int, Outstanding] = OrderedDict()
        #: topic and payload of what the server took over, in the order of the acknowledgements
        self.acked: list[tuple[str, bytes]] = []
        self.sent = 0
        self._next_id = 0

    @property
    def finished(self) -> bool:
        return self.server.over.is_set() and not self.pending

    def converse(self, client: RawMqtt) -> None:
        for packet_id, each in self.pending.items():
            if each.released:
                client.send(encoder.pubrel(self.level, packet_id))
            else:
                client.publish(each.topic, each.payload, qos=each.qos, packet_id=packet_id, dup=True)
        while not self.finished:
            while len(self.pending) < WINDOW and not self.server.over.is_set() and not self.server.waits:
                self._publish(client)
            got = self.packet(client)
            if got is not None:
                self._answered(client, got)

    def _publish(self, client: RawMqtt) -> None:
        while True:
            self._next_id = self._next_id % IDS + 1
            if self._next_id not in self.pending:
                break
        qos = self.chance.choice((1, 2))
        self.sent += 1
        if qos == 2 and self.chance.random() < 0.3:
            new = Outstanding(f"load/{self.client_id}/same", CONSTANT, 2)
        else:
            new = Outstanding(f"load/{self.client_id}/{qos}", b"%d" % self.sent, qos)
        self.pending[self._next_id] = new
        client.publish(new.topic, new.payload, qos=qos, packet_id=self._next_id)

    def _answered(self, client: RawMqtt, got: Got) -> None:
        each = self.pending.get(got.packet_id)
        if each is None:
            self.faults.append(f"{got.type.name} for {got.packet_id}, which is not in use")
        elif got.reason >= 0x80 and not (got.type is PacketType.PUBCOMP and got.reason == 0x92):
            self.faults.append(f"{got.type.name} with {got.reason:#x}")
        elif got.type is PacketType.PUBACK:
            self._accepted(each)
            del self.pending[got.packet_id]
        elif got.type is PacketType.PUBREC:
            if not each.released:
                each.released = True
                self._accepted(each)
            client.send(encoder.pubrel(self.level, got.packet_id))
        elif got.type is PacketType.PUBCOMP:
            del self.pending[got.packet_id]
        else:
            self.faults.append(f"{got.type.name} out of place")

    def _accepted(self, each: Outstanding) -> None:
        self.acked.append((each.topic, each.payload))
        self.server.taken_over += 1


class LoadSubscriber(LoadClient):
    """Takes everything with QoS 2, leaves without a word now and then, and acknowledges late.

    `got`: topic, payload and QoS of each message once, as an application would see them.
    """

    def __init__(self, server: Server, client_id: str, *, level: int, seed: int, receive_maximum: int = 0) -> None:
        super().__init__(server, client_id, level=level, seed=seed)
        self.got: list[tuple[str, bytes, int]] = []
        self.subscribed = threading.Event()
        #: how many different messages, and how many of the constant payload, there are to get
        self.wanted: tuple[int, int] | None = None
        self._seen: set[tuple[str, bytes]] = set()
        self._constant = 0
        self._receive_maximum = receive_maximum
        #: QoS 2: identifiers whose message is there and not released
        self._unreleased: dict[int, tuple[str, bytes]] = {}
        #: acknowledgements to come, in their order: QoS, identifier, message
        self._due: deque[tuple[int, int, tuple[str, bytes]]] = deque()
        #: messages that were not acknowledged when the connection ended -> identifiers (of QoS 1 some are stored twice)
        self._unacked: dict[tuple[str, bytes], set[int]] = {}
        self.resent = 0

    def properties(self) -> Properties | None:
        properties = super().properties()
        if properties is not None and self._receive_maximum:
            properties.receive_maximum = self._receive_maximum
        return properties

    @property
    def finished(self) -> bool:
        return self.server.over.is_set() and self._complete

    @property
    def _complete(self) -> bool:
        there = self.wanted is not None and len(self._seen) >= self.wanted[0] and self._constant >= self.wanted[1]
        return there and not self._due and not self._unreleased

    def converse(self, client: RawMqtt) -> None:
        self._due.clear()
        if not self.subscribed.is_set():
            # A SUBACK that did not come proves nothing: the filter is asked for again.
            assert client.subscribe(SubscriptionRequest("load/#", 2)).codes == [2]
            self.subscribed.set()
        stays = self.chance.randrange(50, 3000)
        while not self.finished and (stays or self.server.over.is_set()):
            stays -= stays > 0
            got = self.packet(client)
            if got is not None:
                self._take(client, got)
            if got is None or len(self._due) > self.chance.randrange(self._receive_maximum or 8):
                self._acknowledge(client)

    def _converse(self, client: RawMqtt) -> None:
        try:
            super()._converse(client)
        finally:
            self._unacked = {}
            for _, packet_id, message in self._due:
                self._unacked.setdefault(message, set()).add(packet_id)

    def _take(self, client: RawMqtt, got: Got) -> None:
        if got.type is PacketType.PUBREL:
            self._unreleased.pop(got.packet_id, None)
            client.pubcomp(got.packet_id)
            return
        if got.type is not PacketType.PUBLISH:
            self.faults.append(f"{got.type.name} out of place")
            return
        message = (got.topic, got.payload)
        before = self._unacked.get(message, set()) if got.payload != CONSTANT else set()
        if before:
            self.resent += 1
            again = got.packet_id in before
            if (again and not got.dup) or (not again and not got.topic.endswith("/1")):
                self.faults.append(
                    f"{message} came again as {got.packet_id} (DUP={got.dup:d}), it was {sorted(before)}"
                )
            before.discard(got.packet_id)
        if got.qos == 2:
            held = self._unreleased.get(got.packet_id)
            if held is None:
                self._unreleased[got.packet_id] = message
                self._note(message, 2)
            elif held != message or not got.dup:
                self.faults.append(f"{message} has identifier {got.packet_id} of {held} (DUP={got.dup:d})")
        else:
            self._note(message, got.qos)
        self._due.append((got.qos, got.packet_id, message))

    def _note(self, message: tuple[str, bytes], qos: int) -> None:
        self.got.append((*message, qos))
        self._seen.add(message)
        self._constant += message[1] == CONSTANT

    def _acknowledge(self, client: RawMqtt) -> None:
        while self._due:
            qos, packet_id, _ = self._due.popleft()
            if qos == 1:
                client.puback(packet_id)
            else:
                client.pubrec(packet_id)


class LoadReporter(LoadClient):
    """Keeps a retained state up to date, and has a will for each of its connections."""

    def __init__(self, server: Server, client_id: str, *, level: int, seed: int) -> None:
        super().__init__(server, client_id, level=level, seed=seed)
        self.sent = self.acked = 0
        #: of the connections that were made and broke
        self.wills: list[bytes] = []
        self._attempts = 0

    @property
    def finished(self) -> bool:
        return self.server.over.is_set()

    def will(self) -> Will | None:
        self._attempts += 1
        return Will(f"wills/{self.client_id}", b"%d" % self._attempts, 1, False)

    def converse(self, client: RawMqtt) -> None:
        will = b"%d" % self._attempts
        client.sock.settimeout(20)
        try:
            while not self.finished:
                self.sent += 1
                assert client.publish_acked(f"state/{self.client_id}", b"%d" % self.sent, retain=True) < 0x80
                self.acked = self.sent
        except (Closed, OSError):
            self.wills.append(will)
            raise
        client.disconnect()
