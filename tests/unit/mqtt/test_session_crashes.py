"""A session whose client takes messages of QoS 1 and 2, with a crash after each commit: nothing is lost, QoS 2 comes once.

The client keeps what a client keeps: the identifiers of QoS 2 that are not released. The session is the real one on the
real store; commits happen one at a time, and what was not committed is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.mqtt.counters import Drops
from eyot_daemon.mqtt.session import Session, SessionLimits
from eyot_daemon.mqtt.session_link import Outgoing, Queued
from eyot_daemon.mqtt.session_record import SessionRecord, SubOptions
from eyot_wire.mqtt import topics
from support.mqtt.fixture import MqttFixture

MESSAGES = 4


class Client:
    """A client of the session over its connections; a `SessionLink`. `got`: payloads, as its application sees them."""

    def __init__(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self.backlog = 0
        self.got: list[bytes] = []
        self.faults: list[str] = []
        self.session: Session | None = None
        #: what the server sent and the client has not answered: ("publish" or "pubrel", identifier)
        self.inbox: list[tuple[str, int, int]] = []
        self._unreleased: set[int] = set()
        #: payload by identifier of what was not acknowledged
        self._ids: dict[bytes, int] = {}

    def send_publish(self, outgoing: Outgoing, packet_id: int, *, dup: bool) -> bool:
        before = self._ids.setdefault(outgoing.payload, packet_id)
        if before != packet_id:
            self.faults.append(f"{outgoing.payload!r} came as {before} and as {packet_id}")
        if outgoing.qos == 2:
            if packet_id not in self._unreleased:
                self.got.append(outgoing.payload)
                self._unreleased.add(packet_id)
            elif not dup:
                self.faults.append(f"{outgoing.payload!r} came again without DUP")
        elif outgoing.payload not in self.got:
            self.got.append(outgoing.payload)
        elif not dup:
            self.faults.append(f"{outgoing.payload!r} came again without DUP")
        self.inbox.append(("publish", packet_id, outgoing.qos))
        return True

    def send_pubrel(self, packet_id: int) -> None:
        self._unreleased.discard(packet_id)
        self.inbox.append(("pubrel", packet_id, 2))

    def allows(self, topic_filter: str) -> bool:
        return True

    def may_receive(self, subject: bytes) -> bool:
        return True

    def taken_over(self) -> None:
        raise AssertionError("nobody else connects")

    def answer(self) -> bool:
        """Answer one packet; False: there is none."""
        if not self.inbox or self.session is None:
            return False
        kind, packet_id, qos = self.inbox.pop(0)
        if kind == "pubrel":
            self.session.pubcomp(packet_id)
        elif qos == 1:
            self.session.puback(packet_id)
        else:
            self.session.pubrec(packet_id, 0)
        return True


def session_of(fixture: MqttFixture, record: SessionRecord, *, crashed: bool) -> Session:
    """The session as `AccountSessions` brings it back."""
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
    if crashed:
        mqtt = fixture.mqtt
        session.restore(mqtt.pubrels(record), mqtt.held_ids(record), sent_upto=mqtt.last_queued())
    return session


def turn(fixture: MqttFixture) -> bool:
    """One commit with what led to it; False: nothing is under way."""
    fixture.broker.flush()
    done = bool(fixture.store.commit_now())
    fixture.broker.flush()
    return done


def play(path: Path, qos: int, receive_maximum: int, lag: int, crash_after: int, more: int) -> tuple[Client, bool]:
    """Deliver, with a commit after each `lag` packets, a crash after `crash_after` commits, and another `more` commits later; whether the first came to be."""
    fixture = MqttFixture(path)
    record = SessionRecord(client_id="c", expiry_s=3600, subs={"s/#": SubOptions(qos=2, subjects=[b"s.>"])})
    session = session_of(fixture, record, crashed=False)
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    header = b"NATS/1.0\r\nNmqtt-Pub: %d\r\n\r\n" % qos
    for number in range(MESSAGES):
        fixture.send(b"s.a", b"%d" % number, header)
    fixture.run()
    client = Client(receive_maximum)
    crashes, commits = [crash_after, more], 0
    client.session = session
    session.attach(client)
    idle = steps = 0
    while idle < 20:
        if crashes and commits >= crashes[0]:
            del crashes[0]
            commits = 0
            client.inbox.clear()
            client.session = None
            fixture = fixture.reopened(crash=True)
            session = session_of(fixture, fixture.records()["c"], crashed=True)
            fixture.run()
            client.session = session
            session.attach(client)
        moved = client.answer()
        fixture.broker.flush()
        steps += 1
        committed = steps % lag == 0 and turn(fixture)
        if not moved and not committed and steps % lag == 0:
            fixture.advance(0.2)  # deliveries are written after a while
            idle += 1
        commits += committed
    fixture.run()
    assert fixture.held("$MQTT_msgs") == []
    assert fixture.mqtt.pubrels(record) == {}, "notes of PUBRELs are left behind"
    fixture.js.stop()
    fixture.store.close()
    return client, len(crashes) < 2


@pytest.mark.parametrize("receive_maximum", [1, 2, 100])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("lag", [1, 3])
def test_a_crash_after_each_commit(tmp_path: Path, qos: int, receive_maximum: int, lag: int) -> None:
    wanted: Any = [b"%d" % number for number in range(MESSAGES)]
    crash_after, crashed = 0, True
    while crashed:
        for more in (0, 1, 3):
            path = tmp_path / f"{crash_after}-{more}"
            client, crashed = play(path, qos, receive_maximum, lag, crash_after, more)
            assert client.faults == [], f"crash after {crash_after} commits, again after {more}"
            assert client.got == wanted, f"crash after {crash_after} commits, again after {more}"
        crash_after += 1
    assert crash_after > MESSAGES, "there were hardly any commits to crash after"
