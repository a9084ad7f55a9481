"""Ages of queued and retained messages, what expires in a queue, and the bounds of all queues together."""

from __future__ import annotations

from pathlib import Path

from eyot_daemon.mqtt.counters import Drops
from eyot_daemon.mqtt.session_record import SessionRecord
from eyot_daemon.mqtt.store import MqttStore
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from support.mqtt.fixture import MqttFixture, QueueClient

DAY_S = 86_400.0


def ttl(seconds: int) -> bytes:
    return b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % seconds


def client_of(fixture: MqttFixture, client_id: str, subject: bytes = b"a.>") -> QueueClient:
    """A new session with a queue, and with drops of its own."""
    record = SessionRecord(client_id)
    client = QueueClient(fixture, record)
    client.follow(subject)
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    assert client.queue is not None
    client.queue.drops = Drops()  # type: ignore[union-attr]
    return client


def figures(client: QueueClient) -> tuple[int, int, int]:
    """Messages and bytes that wait for a client, and how many have expired."""
    queue = client.queue
    return *queue.backlog, queue.drops.by_reason["expired"]  # type: ignore[union-attr]


def passes(fixture: MqttFixture, seconds: float) -> None:
    fixture.run()
    fixture.clock.advance(seconds)
    fixture.run()


def test_what_expires_in_a_queue_leaves_it_and_makes_room(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path, mqtt=MqttStoreOptions(queue_msgs=3))
    client, other = client_of(fixture, "c"), client_of(fixture, "other", b"b.>")
    quick = client_of(fixture, "quick")
    fixture.send(b"a.1", b"1", ttl(10))
    fixture.send(b"a.2", b"2")
    fixture.send(b"a.3", b"3", ttl(10))
    fixture.send(b"b.1", b"other", ttl(20))
    fixture.run()
    assert quick.pull(1) == [b"1"]
    quick.ack(1)
    passes(fixture, 9)
    assert (figures(client)[0], figures(quick)[0]) == (3, 2)
    passes(fixture, 2)
    assert (figures(quick)[0], figures(quick)[2]) == (1, 1), "it has the first one"
    assert (figures(client)[0], figures(client)[2]) == (1, 2)
    assert figures(other)[0] == 1
    assert [seq for seq, _ in fixture.held("$MQTT_msgs")] == [2, 4]
    fixture = fixture.reopened(crash=True)  # of what is left, the times are read from flash
    other = QueueClient(fixture, fixture.records()["other"])
    other.queue.drops = Drops()  # type: ignore[union-attr]
    other.follow(b"b.>")
    passes(fixture, 10)
    assert figures(other) == (0, 0, 1)
    assert [seq for seq, _ in fixture.held("$MQTT_msgs")] == [2]


def test_what_was_sent_is_completed_though_it_expires(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path)
    client = client_of(fixture, "c")
    for number in range(3):
        fixture.send(b"a.b", b"%d" % number, ttl(10))
    fixture.run()
    assert client.pull(1) == [b"0"]
    passes(fixture, 11)
    assert figures(client) == (0, 0, 2), "the first one was sent"
    client.ack(1)
    fixture.send(b"a.b", b"new")
    fixture.run()
    assert client.pull() == [b"new"]
    assert figures(client)[0] == 1
    client.ack(4)
    assert figures(client) == (0, 0, 2)
    client.queue.give_back()  # type: ignore[union-attr]
    assert client.pull() == []


def test_queued_and_retained_messages_have_an_age(tmp_path: Path) -> None:
    options = MqttStoreOptions(queue_age_s=2 * int(DAY_S), retained_age_s=int(DAY_S))
    fixture = MqttFixture(tmp_path, mqtt=options)
    client = client_of(fixture, "c")
    fixture.send(b"a.b", b"old")
    fixture.retain(b"a", b"old")
    passes(fixture, DAY_S + 1)
    fixture.send(b"a.b", b"new")
    fixture.retain(b"b", b"new")
    fixture.run()
    assert fixture.stream("$MQTT_rmsgs").log.state.messages == 1
    assert figures(client)[0] == 2
    passes(fixture, DAY_S - 100)
    assert client.pull() == [b"old", b"new"]
    client.queue.give_back()  # type: ignore[union-attr]
    passes(fixture, 200)
    assert client.pull() == [b"new"]
    assert figures(client)[0] == 1


def test_all_queues_together_are_bounded(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path, mqtt=MqttStoreOptions(queued_msgs=3))
    client_of(fixture, "c"), client_of(fixture, "d", b"a.b"), client_of(fixture, "e", b"e")
    for subject in (b"a.b", b"a.b", b"e", b"a.b", b"e", b"nobody"):
        fixture.send(subject, b"1")
        fixture.run()
    full = "the queues of the account's sessions are full"
    assert fixture.results[-6:] == ["", "", "", full, full, ""], "a message for two sessions counts once"
    assert fixture.mqtt.refused == 2


def test_bounds_change_at_once_and_in_stores_of_before(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path)
    queued, retained = fixture.stream("$MQTT_msgs"), fixture.stream("$MQTT_rmsgs")
    assert (queued.config.max_age, queued.config.allow_msg_ttl) == (0, True)
    fixture.mqtt.set_options(MqttStoreOptions(queue_age_s=60, retained_msgs=2, retained_bytes=1000, retained_age_s=30))
    fixture.run()
    assert queued.config.max_age == 60 * 10**9
    assert queued.config.duplicate_window <= queued.config.max_age
    assert (retained.config.max_msgs, retained.config.max_bytes, retained.config.max_age) == (2, 1000, 30 * 10**9)
    fixture.mqtt.set_options(MqttStoreOptions())
    fixture.run()
    assert (queued.config.max_age, retained.config.max_msgs, retained.config.max_bytes) == (0, -1, -1)
    old = MqttFixture(tmp_path / "old")
    old.request("STREAM.DELETE.$MQTT_msgs", {})
    old.request(
        "STREAM.CREATE.$MQTT_msgs", {"name": "$MQTT_msgs", "subjects": ["$MQTT.msgs.>"], "retention": "interest"}
    )
    results: list[str] = []
    MqttStore(old.jsa, old.js.consumers, MqttStoreOptions()).open(results.append)
    old.run()
    assert results == [""]
    assert old.stream("$MQTT_msgs").config.allow_msg_ttl
