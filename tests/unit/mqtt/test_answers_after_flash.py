"""What a client is told of its session, and of its filters, is on flash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.mqtt.session_queue import SessionQueue
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from support.mqtt.cuts import Connection, Server

T = PacketType
LEVEL = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def connection(server: Server) -> Connection:
    """A connection of the one client that has sent CONNECT."""
    made = Connection(server, LEVEL)
    made.send(encoder.connect(Connect(LEVEL, "c", False, 0, properties=Properties(session_expiry_interval=3600))))
    return made


def connected(server: Server) -> Connection:
    made = connection(server)
    server.settle()
    assert [got.type for got in made.got()] == [T.CONNACK]
    return made


def subscribe(packet_id: int, topic_filter: str, qos: int = 1) -> bytes:
    return encoder.subscribe(LEVEL, Subscribe(packet_id, [SubscriptionRequest(topic_filter, qos)]))


def unsubscribe(packet_id: int, topic_filter: str) -> bytes:
    return encoder.unsubscribe(LEVEL, Unsubscribe(packet_id, [topic_filter]))


def filters(server: Server) -> dict[str, int]:
    """The filters of the session after a power cut, and their QoS."""
    again = server.power_cut()
    session = again.sessions.session("c")
    assert session is not None
    found = {topic_filter: options.qos for topic_filter, options in session.record.subs.items()}
    again.stop()
    return found


def test_a_publish_behind_a_subscribe_is_not_acknowledged_before_it(server: Server) -> None:
    client = connected(server)
    client.send(subscribe(1, "s/#"))
    client.send(encoder.publish(LEVEL, "s/a", b"x", qos=1, packet_id=2))
    answered: list[PacketType] = []
    while T.PUBACK not in answered:
        assert server.turn(), f"nothing is under way, and these were sent: {answered}"
        answered += [got.type for got in client.got()]
    assert T.SUBACK in answered[: answered.index(T.PUBACK)]
    assert filters(server) == {"s/#": 1}


def test_many_packets_in_one_piece_are_stored_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each storing writes all filters of the session: 1,000 SUBSCRIBEs took two seconds."""
    configured: list[int] = []
    configure = SessionQueue.configure

    def counted(queue: SessionQueue, filters: Sequence[bytes], *rest: Any) -> None:
        configured.append(len(filters))
        configure(queue, filters, *rest)

    monkeypatch.setattr(SessionQueue, "configure", counted)
    client = connected(server)
    client.send(b"".join(subscribe(number, f"s/{number}") + encoder.PINGREQ for number in range(1, 251)))
    server.settle()
    assert configured == [250]
    answers = [got.packet_id for got in client.got() if got.type is T.SUBACK]
    assert answers == list(range(1, 251))
    leaves = b"".join(unsubscribe(number, f"s/{number}") for number in range(1, 250))
    client.send(leaves + encoder.publish(LEVEL, "s/250", b"x", qos=1, packet_id=251))
    server.settle()
    assert configured == [250, 1]
    kinds = [got.type for got in client.got()]
    assert kinds == [T.UNSUBACK] * 249 + [T.PUBLISH, T.PUBACK] or kinds == [T.UNSUBACK] * 249 + [T.PUBACK, T.PUBLISH]
    assert filters(server) == {"s/250": 1}


@pytest.mark.parametrize("packet", [subscribe, unsubscribe])
def test_a_repetition_is_answered_when_the_first_is_on_flash(
    server: Server, packet: Callable[[int, str], bytes]
) -> None:
    client = connected(server)
    if packet is unsubscribe:
        client.send(subscribe(1, "s/#"))
        server.settle()
        client.got()
    client.send(packet(2, "s/#"))
    client.send(packet(3, "s/#"))
    server.fixture.broker.flush()
    assert client.got() == []
    server.settle()
    assert [got.packet_id for got in client.got()] == [2, 3]
    assert filters(server) == ({} if packet is unsubscribe else {"s/#": 1})


def test_the_session_of_two_connects_at_once_is_on_flash_when_one_is_answered(server: Server) -> None:
    first, second = connection(server), connection(server)
    server.fixture.broker.flush()
    assert (first.got(), second.got()) == ([], [])
    server.settle()
    assert [got.type for got in second.got()] == [T.CONNACK]
    assert filters(server) == {}


def test_what_is_refused_leaves_what_was_changed_meanwhile(server: Server) -> None:
    client = connected(server)
    client.send(subscribe(1, "old"))
    server.settle()
    client.got()
    store, waiting = server.sessions.store, []
    put_session = store.put_session
    store.put_session = lambda record, done: waiting.append(done)  # type: ignore[method-assign, assignment]
    for packet_id, topic_filter in enumerate(("a", "b", "old"), 2):
        client.send(subscribe(packet_id, topic_filter, 2))
    server.settle()
    for done in waiting[:2]:
        done("no room")
    store.put_session = put_session  # type: ignore[method-assign]
    client.send(subscribe(5, "c"))
    waiting[2]("")
    server.settle()
    assert [(got.packet_id, got.codes) for got in client.got()] == [
        (2, [ReasonCode.UNSPECIFIED_ERROR]),
        (3, [ReasonCode.UNSPECIFIED_ERROR]),
        (4, [2]),
        (5, [1]),
    ]
    assert filters(server) == {"old": 2, "c": 1}
