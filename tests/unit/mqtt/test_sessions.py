"""Several CONNECT packets with one client id while flash is busy, and what a session sends within its client's window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.mqtt.counters import Drops
from eyot_daemon.mqtt.replies import Replies
from eyot_daemon.mqtt.session import Session, SessionLimits
from eyot_daemon.mqtt.session_link import BACKLOG_BYTES, Outgoing, Queued
from eyot_daemon.mqtt.session_record import SessionRecord, SubOptions
from eyot_daemon.mqtt.sessions import AccountSessions, Limits, Opened, Opening
from eyot_daemon.mqtt.store import MqttStore
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from eyot_wire.frames import Published
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.reason_codes import ReasonCode
from support.mqtt.fixture import MqttFixture

HEADER = b"NATS/1.0\r\nNmqtt-Pub: %d\r\n\r\n"


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[MqttFixture]:
    made = MqttFixture(tmp_path)
    yield made
    made.js.stop()
    made.store.close()


# -- openings --------------------------------------------------------------------------------------------------------------


class Front:
    """The sessions of the account, and what each CONNECT was answered with."""

    def __init__(self, fixture: MqttFixture) -> None:
        self.fixture = fixture
        limits = Limits(1 << 20, 10, 100, 100, 0, 1.0, 100, 1000, 1 << 20, 0.0)
        store = MqttStore(fixture.jsa, fixture.js.consumers, MqttStoreOptions())
        self.sessions = AccountSessions(fixture.account, store, limits, Drops(), Replies(fixture.account))
        self.sessions.start()
        fixture.run()
        self.opened: dict[str, Opened] = {}

    def connect(self, name: str, *, clean: bool, expiry_s: int = 3600, leaves: bool = False) -> None:
        """CONNECT; `leaves`: the connection is gone when the answer is ready, as `Handshake` handles it."""

        def done(opened: Opened) -> None:
            self.opened[name] = opened
            if leaves and opened.session is not None:
                self.sessions.connection_ended(opened.session, None, publishes_will=False)

        self.sessions.open(Opening("one", "user", 5, clean, expiry_s, None), done)

    def has(self, name: str) -> bool:
        """Whether a connection got the session that there is."""
        session = self.opened[name].session
        return session is not None and self.sessions.session("one") is session


def test_a_connection_that_left_while_it_was_opened_does_not_end_the_session_of_the_next(fixture: MqttFixture) -> None:
    front = Front(fixture)
    front.connect("gone", clean=False, leaves=True)
    front.connect("stays", clean=False, expiry_s=0)
    fixture.run()
    assert front.has("stays")


@pytest.mark.parametrize("clean", [True, False])
def test_a_clean_session_takes_the_place_of_one_that_is_being_opened(fixture: MqttFixture, clean: bool) -> None:
    front = Front(fixture)
    front.connect("first", clean=clean)
    front.connect("second", clean=True)
    fixture.run()
    assert front.opened["first"].reason is ReasonCode.SERVER_BUSY
    assert front.has("second")


def test_the_newest_of_several_connections_has_the_session(fixture: MqttFixture) -> None:
    front = Front(fixture)
    front.connect("before", clean=False)
    fixture.run()
    front.connect("old", clean=True)  # waits until the session before is deleted
    front.connect("new", clean=False)
    fixture.run()
    assert front.opened["old"].reason is ReasonCode.SERVER_BUSY
    assert front.has("new")
    assert len(fixture.held("$MQTT_sess")) == 1


def test_what_was_sent_before_a_disconnect_comes_again_with_dup_after_power_cuts(tmp_path: Path) -> None:
    """The end of the connection is on flash, its deliveries are not; then a second cut, before the client comes back."""
    fixture = MqttFixture(tmp_path)
    front = Front(fixture)
    front.connect("first", clean=True)
    fixture.run()
    session = front.opened["first"].session
    assert session is not None
    session.record.subs["s/#"] = SubOptions(qos=1, subjects=[b"s.>"])
    front.sessions.filters_changed(session, lambda error: None)
    fixture.run()
    client = Client(2)
    session.attach(client)
    for number in range(3):
        front.sessions.store.publish(
            [], queue=Published(b"$MQTT.msgs.s.a", b"", HEADER % 1, b"%d" % number), done=lambda error: None
        )
    fixture.commit()
    assert client.payloads == [b"0", b"1"]
    front.sessions.connection_ended(session, None, publishes_will=False)
    fixture.commit()  # no time passes
    for _ in range(2):
        fixture.store.crash()
        fixture = MqttFixture(tmp_path, options=fixture.js.options, clock=fixture.clock)
        front = Front(fixture)
    front.connect("again", clean=False)
    fixture.run()
    session, client = front.opened["again"].session, Client(3)
    assert session is not None
    session.attach(client)
    fixture.run()
    assert [(payload, dup) for _, payload, dup in client.sent] == [(b"0", True), (b"1", True), (b"2", False)]
    fixture.js.stop()
    fixture.store.close()


# -- the window ------------------------------------------------------------------------------------------------------------


class Client:
    """A `SessionLink` that answers when it is told to; `window`: the most that were on their way at once."""

    def __init__(self, receive_maximum: int, size_max: int = 1 << 20) -> None:
        self.receive_maximum = receive_maximum
        self.backlog = 0
        self.cid = 1
        self.address = "client"
        self.size_max = size_max
        self.sent: list[tuple[int, bytes, bool]] = []
        self.waiting: list[int] = []
        self.most = 0

    def send_publish(self, outgoing: Outgoing, packet_id: int, *, dup: bool) -> bool:
        if len(outgoing.payload) > self.size_max:
            return False
        self.sent.append((packet_id, outgoing.payload, dup))
        self.waiting.append(packet_id)
        self.most = max(self.most, len(self.waiting))
        return True

    def send_pubrel(self, packet_id: int) -> None:
        raise AssertionError("nothing has QoS 2")

    def context_of(self, queued: Queued) -> Any:
        return ()

    def allows(self, topic_filter: str) -> bool:
        return True

    def may_receive(self, subject: bytes) -> bool:
        return True

    def taken_over(self) -> None:
        raise AssertionError("nobody else connects")

    session_deleted = taken_over

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.sent]


def session_of(fixture: MqttFixture) -> Session:
    """A persistent session that subscribed to `s/#`."""
    record = SessionRecord(client_id="c", expiry_s=3600, subs={"s/#": SubOptions(qos=1, subjects=[b"s.>"])})
    session = Session(
        record,
        fixture.mqtt,
        persistent=True,
        limits=SessionLimits(100, 1000, 1 << 20),
        drops=Drops(),
        now_ns=fixture.clock.now_ns,
        topic_of=lambda subject: topics.to_topic(subject) or "",
    )
    session.queue = fixture.mqtt.queue(record, lambda *queued: session.from_queue(Queued(*queued)))
    session.queue.configure([b"$MQTT.msgs.s.>"], 100, fixture.done)
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    return session


def retained(payload: bytes) -> Outgoing:
    return Outgoing("r/a", b"", HEADER % 1, payload, 1, True)


def answer_all(fixture: MqttFixture, session: Session, client: Client) -> None:
    while client.waiting:
        session.puback(client.waiting.pop(0))
        fixture.run()


def test_messages_from_memory_and_from_the_queue_share_the_window(fixture: MqttFixture) -> None:
    """The queue was asked for messages while the window was empty; retained messages came before it had any."""
    session, client = session_of(fixture), Client(2)
    session.attach(client)
    for number in range(2):
        session.send(retained(b"r%d" % number))
    for number in range(3):
        fixture.send(b"s.a", b"q%d" % number, HEADER % 1)
    fixture.run()
    answer_all(fixture, session, client)
    assert client.most == 2
    assert sorted(client.payloads) == [b"q0", b"q1", b"q2", b"r0", b"r1"]


def test_a_new_connection_with_a_smaller_window_gets_again_what_fits_into_it(fixture: MqttFixture) -> None:
    session, client = session_of(fixture), Client(5)
    session.attach(client)
    for number in range(4):
        session.send(retained(b"%d" % number))
    session.detach()
    again = Client(2)
    session.attach(again)
    assert [(packet_id, dup) for packet_id, _, dup in again.sent] == [
        (packet_id, True) for packet_id, *_ in client.sent[:2]
    ]
    session.puback(client.sent[3][0])  # of the earlier connection: it need not come again
    answer_all(fixture, session, again)
    assert again.most == 2
    assert again.payloads == [b"0", b"1", b"2"]


def test_what_a_new_connection_finds_too_large_holds_no_room(fixture: MqttFixture) -> None:
    session, client = session_of(fixture), Client(1)
    session.attach(client)
    session.send(retained(bytes(1000)))
    session.detach()
    small = Client(1, size_max=100)
    session.attach(small)
    session.send(retained(b"small"))
    assert small.payloads == [b"small"]
    assert session.drops.by_reason["too_large"] == 1


def test_what_waits_in_memory_is_bounded_and_what_is_dropped_is_counted(fixture: MqttFixture) -> None:
    session, client = session_of(fixture), Client(1, size_max=500)
    size = retained(b"0").size
    session.set_limits(SessionLimits(100, 3, 1 << 20))
    session.attach(client)
    assert [session.send(retained(b"%d" % number)) for number in range(6)] == [True] * 4 + [False] * 2
    assert session.backlog == (3, 3 * size)
    session.set_limits(SessionLimits(100, 1000, 5 * size))
    expires = b"NATS/1.0\r\nEyot-Mqtt-Expires: %d\r\n\r\n" % (fixture.clock.now_ns() + 10**9)
    short = retained(b"s")._replace(header=expires, topic="")
    short = short._replace(payload=b"s" * (2 * size - len(expires)))
    assert (short.size, session.send(short), session.send(retained(b"6"))) == (2 * size, True, False)
    assert session.drops.by_reason["full"] == 3
    fixture.clock.advance(2)
    answer_all(fixture, session, client)
    assert client.payloads == [b"0", b"1", b"2", b"3"]
    assert (session.backlog, session.drops.by_reason["expired"]) == ((0, 0), 1)
    assert not session.send(retained(bytes(600)))
    at_most_once = retained(b"q")._replace(qos=0)
    client.backlog = BACKLOG_BYTES
    assert session.send(at_most_once)
    client.backlog += 1
    assert not session.send(at_most_once)
    session.detach()
    assert not session.send(at_most_once)
    dropped = session.drops.by_reason
    assert (dropped["too_large"], dropped["slow"]) == (1, 1)
