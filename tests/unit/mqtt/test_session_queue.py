"""Queues of sessions and of shared subscriptions: order, credit, what comes again, bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.mqtt.session_record import SessionRecord, SubOptions
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from support.mqtt.fixture import MqttFixture, QueueClient

FULL = "the queue of a session is full"


@pytest.fixture
def fixture(tmp_path: Path) -> MqttFixture:
    return MqttFixture(tmp_path)


def client_of(fixture: MqttFixture, client_id: str = "c", *subjects: bytes, window: int = 100) -> QueueClient:
    """A new session with a queue."""
    record = SessionRecord(client_id)
    client = QueueClient(fixture, record)
    client.follow(*(subjects or (b"a.>",)), window=window)
    fixture.mqtt.put_session(record, fixture.done)
    fixture.run()
    assert set(fixture.results) == {""}
    return client


def fill(fixture: MqttFixture, count: int, first: int = 0, subject: bytes = b"a.b") -> None:
    for number in range(first, first + count):
        fixture.send(subject, b"%d" % number)
    fixture.run()


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_messages_come_in_order_within_the_credit(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    fill(fixture, 10)
    assert client.pull(3) == numbers(3)
    assert client.pull(0) == []
    assert client.pull(100) == numbers(7, 3)
    assert [got[0] for got in client.got] == list(range(1, 11))
    assert client.got[0] == (1, 1, b"a.b", b"0")
    fill(fixture, 1, 10)
    assert client.got[-1][3] == b"10"


def test_the_credit_of_bytes_ends_a_pull(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    fill(fixture, 10)
    size = len(b"$MQTT.msgs.a.b0")
    assert client.pull(10, 2 * size) == numbers(2)
    assert client.pull(10, 1) == numbers(1, 2)


def test_only_messages_after_the_subscription_come(fixture: MqttFixture) -> None:
    other = client_of(fixture, "other")
    fill(fixture, 3)
    client = client_of(fixture)
    fill(fixture, 2, 3)
    assert client.pull() == numbers(2, 3)
    assert other.pull() == numbers(5)


def test_overlapping_filters_deliver_each_message_once_and_in_order(fixture: MqttFixture) -> None:
    client = client_of(fixture, "c", b"a.>", b"a.*", b"a.b", b"*.b", b">")
    for number in range(300):
        fixture.send((b"a.b", b"a.c", b"x.b", b"q.r.s")[number % 4], b"%d" % number)
    fixture.run()
    assert client.pull() == numbers(100)  # the window
    for sseq, *_ in list(client.got):
        client.queue.ack(sseq)  # type: ignore[union-attr]
    got = client.pull()
    while got:
        for sseq, *_ in client.got[-len(got) :]:
            client.queue.ack(sseq)  # type: ignore[union-attr]
        got = client.pull()
    assert [payload for *_, payload in client.got] == numbers(300)
    assert all(deliveries == 1 for _, deliveries, *_ in client.got)


def test_the_api_still_refuses_overlapping_filters(fixture: MqttFixture) -> None:
    config = {"durable_name": "x", "filter_subjects": ["$MQTT.msgs.>", "$MQTT.msgs.a"], "ack_policy": "explicit"}
    answer = fixture.request("CONSUMER.CREATE.$MQTT_msgs.x", {"stream_name": "$MQTT_msgs", "config": config})
    assert answer["error"]["err_code"] == 10138


def test_what_is_given_back_comes_first_in_order_and_marked(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    fill(fixture, 6)
    client.pull(4)
    client.ack(2)
    assert client.queue is not None
    client.queue.give_back()
    fixture.run()
    assert len(client.got) == 4  # nothing before the next pull
    assert client.pull() == [b"0", b"2", b"3", b"4", b"5"]
    assert [deliveries for _, deliveries, *_ in client.got[4:]] == [2, 2, 2, 1, 1]


def test_nothing_is_delivered_again_while_connected(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    fill(fixture, 2)
    client.pull()
    for _ in range(10):
        fixture.advance(30 * 86_400.0)
    assert len(client.got) == 2


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_delivers_what_was_not_acknowledged_first(fixture: MqttFixture, crash: bool) -> None:
    client = client_of(fixture)
    fill(fixture, 6)
    client.pull(4)
    client.ack(2)
    fixture.advance(1.0)  # deliveries are written
    fixture = fixture.reopened(crash=crash)
    record = fixture.records()["c"]
    client = QueueClient(fixture, record)
    client.follow(b"a.>")
    assert client.queue.pending() == [1, 3, 4]  # type: ignore[union-attr]
    assert client.queue.backlog[0] == 5  # type: ignore[union-attr]
    assert client.pull() == [b"0", b"2", b"3", b"4", b"5"]
    assert [deliveries for _, deliveries, *_ in client.got] == [2, 2, 2, 1, 1]


def test_acknowledged_messages_leave_the_stream_when_all_queues_have_them(fixture: MqttFixture) -> None:
    one, two = client_of(fixture, "1"), client_of(fixture, "2")
    fill(fixture, 3)
    for client in (one, two):
        client.pull()
    one.ack(1, 2, 3)
    assert len(fixture.held("$MQTT_msgs")) == 3
    two.ack(1, 2)
    assert [seq for seq, _ in fixture.held("$MQTT_msgs")] == [3]


def test_a_lost_filter_lets_go_of_its_messages(fixture: MqttFixture) -> None:
    client = client_of(fixture, "c", b"a.>", b"b.>")
    fill(fixture, 2)
    fill(fixture, 2, 2, b"b.c")
    client.follow(b"b.>")
    assert [payload for _, payload in fixture.held("$MQTT_msgs")] == numbers(2, 2)
    assert client.pull() == numbers(2, 2)
    client.follow()
    assert fixture.held("$MQTT_msgs") == []
    fill(fixture, 1)
    assert fixture.held("$MQTT_msgs") == []


def test_a_full_queue_refuses_the_publisher(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path, mqtt=MqttStoreOptions(queue_msgs=3, queue_bytes=1000))
    client, other = client_of(fixture), client_of(fixture, "other", b"b.>")
    fill(fixture, 4)
    assert fixture.results[-4:] == [FULL, "", "", ""]  # refused at once, the others when they are on flash
    assert client.queue.backlog[0] == 3  # type: ignore[union-attr]
    assert (client.queue.refused, fixture.mqtt.refused) == (1, 1)  # type: ignore[union-attr]
    fill(fixture, 1, 9, b"b.c")
    assert other.pull() == [b"9"]
    client.pull(1)
    client.ack(1)
    fill(fixture, 1, 5)
    assert fixture.results[-1] == ""
    fixture.send(b"b.c", bytes(2000))  # room is looked for before, so that a queue takes one message of any size
    fixture.send(b"b.c", b"1")
    fixture.run()
    assert fixture.results[-2:] == [FULL, ""]


def test_nats_clients_cannot_take_or_acknowledge_what_is_queued(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    name = client.queue.name  # type: ignore[union-attr]
    fill(fixture, 2)
    client.pull(1)
    fixture.put(f"$JS.ACK.$MQTT_msgs.{name}.1.1.1.1.1".encode(), b"+ACK")
    reply = fixture.publish(f"$JS.API.CONSUMER.MSG.NEXT.$MQTT_msgs.{name}".encode(), b'{"batch":1,"no_wait":true}')
    fixture.run()
    statuses = [got.header for got in fixture.inbox.got if got.subject == reply]
    assert statuses == [b"NATS/1.0 409 Consumer is internal\r\n\r\n"]
    assert client.queue.pending() == [1]  # type: ignore[union-attr]
    assert client.pull() == [b"1"]


def test_a_receiver_that_gives_back_while_it_gets_messages_gets_them_again(fixture: MqttFixture) -> None:
    client = client_of(fixture)
    fill(fixture, 5)
    queue, plain = client.queue, client.on_message
    assert queue is not None

    def broken(sseq: int, deliveries: int, subject: bytes, header: bytes, payload: bytes) -> None:
        plain(sseq, deliveries, subject, header, payload)
        if sseq == 2 and deliveries == 1:
            queue.give_back()

    queue._member._on_message = broken  # type: ignore[union-attr]
    assert client.pull() == numbers(2)
    assert client.pull() == numbers(5)


# -- shared subscriptions ------------------------------------------------------------------------------------------------


def shared(fixture: MqttFixture, members: int) -> list[QueueClient]:
    queue = fixture.mqtt.shared("g", "a/#")
    queue.configure([b"$MQTT.msgs.a.>"], 100, fixture.done)
    fixture.run()
    clients = []
    for _ in range(members):
        client = QueueClient(fixture)
        client.queue = queue.join(client.on_message)
        clients.append(client)
    return clients


def test_members_take_turns_within_their_credit(fixture: MqttFixture) -> None:
    one, two = shared(fixture, 2)
    assert one.queue is not None
    one.queue.pull(2, 1 << 20)
    two.pull(100)
    fill(fixture, 10)
    assert (len(one.got), len(two.got)) == (2, 8)
    assert sorted([*one.got, *two.got])[:4] == [(n + 1, 1, b"a.b", b"%d" % n) for n in range(4)]


def test_what_a_member_leaves_goes_to_the_others_first(fixture: MqttFixture) -> None:
    one, two = shared(fixture, 2)
    fill(fixture, 6)
    assert one.pull(4) == numbers(4)
    one.ack(2)
    queue = fixture.mqtt.shared("g", "a/#")
    assert len(queue) == 2
    queue.remove(one.queue, fixture.done)  # type: ignore[arg-type]
    assert two.pull() == [b"0", b"2", b"3", b"4", b"5"]
    assert len(queue) == 1


def test_a_shared_queue_ends_with_its_last_member_and_its_messages_with_it(fixture: MqttFixture) -> None:
    (client,) = shared(fixture, 1)
    fill(fixture, 3)
    fixture.mqtt.shared("g", "a/#").remove(client.queue, fixture.done)  # type: ignore[arg-type]
    fixture.run()
    assert fixture.held("$MQTT_msgs") == []
    assert not fixture.stream("$MQTT_msgs").consumers
    fill(fixture, 1)
    assert fixture.held("$MQTT_msgs") == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_restart_keeps_a_shared_queue_only_if_a_session_has_the_subscription(
    fixture: MqttFixture, kept: bool
) -> None:
    (client,) = shared(fixture, 1)
    record = SessionRecord("c", subs={"$share/g/a/#" if kept else "a/#": SubOptions(qos=1)})
    fixture.mqtt.put_session(record, fixture.done)
    fill(fixture, 3)
    client.pull(2)
    fixture.advance(1.0)
    fixture = fixture.reopened(crash=True)
    assert len(fixture.stream("$MQTT_msgs").consumers) == kept
    assert len(fixture.held("$MQTT_msgs")) == 3 * kept
    if kept:
        (client,) = shared(fixture, 1)
        assert client.pull() == numbers(3)
    assert all(isinstance(each, Consumer) for each in fixture.stream("$MQTT_msgs").consumers.values())


def test_a_message_concerns_only_the_queues_that_want_it(fixture: MqttFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [client_of(fixture, f"c{number}", b"d.%d.>" % number) for number in range(50)]
    for client in clients:
        client.pull()
    flushed: list[str] = []
    plain = Consumer.flush

    def flush(consumer: Consumer) -> None:
        flushed.append(consumer.name)
        plain(consumer)

    monkeypatch.setattr(Consumer, "flush", flush)
    fill(fixture, 1, subject=b"d.7.x")
    clients[7].ack(1)
    assert set(flushed) == {clients[7].queue.name}  # type: ignore[union-attr]
    assert clients[7].got == [(1, 1, b"d.7.x", b"0")]
    assert fixture.held("$MQTT_msgs") == []


def test_a_filter_that_comes_or_goes_counts_for_the_next_message(fixture: MqttFixture) -> None:
    one, two = client_of(fixture, "1", b"a.>"), client_of(fixture, "2", b"b.>")
    one.follow(b"b.>", b"c")
    two.follow(b"a.>")
    fill(fixture, 1, 0, b"a.x")
    fill(fixture, 1, 1, b"b.x")
    fill(fixture, 1, 2, b"c")
    assert (one.pull(), two.pull()) == ([b"1", b"2"], [b"0"])
    one.ack(2, 3)
    two.ack(1)
    assert fixture.held("$MQTT_msgs") == []
