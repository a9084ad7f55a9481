"""Thousands of packets of one client in one piece: others are served between, filters are written a bounded number of times, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.mqtt.connection import OPS_MAX
from eyot_daemon.mqtt.session_queue import SessionQueue
from eyot_daemon.mqtt.session_record import SessionRecord
from eyot_daemon.mqtt.subscribing import STORED_PER_OPERATION
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, Subscribe, SubscriptionRequest, Unsubscribe, Will
from support.mqtt.cuts import Connection, Server

T = PacketType
LEVEL = 4
COUNT = 10 * OPS_MAX
#: Filters of which each storing takes a turn's operations.
MANY = OPS_MAX * STORED_PER_OPERATION


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def connected(server: Server, client_id: str = "c", *, clean: bool = True, will: Will | None = None) -> Connection:
    made = Connection(server, LEVEL)
    made.send(encoder.connect(Connect(LEVEL, client_id, clean, will=will)))
    server.settle()
    assert [got.type for got in made.got()] == [T.CONNACK]
    return made


def subscribe(packet_id: int, *filters: str, qos: int = 1) -> bytes:
    return encoder.subscribe(LEVEL, Subscribe(packet_id, [SubscriptionRequest(each, qos) for each in filters]))


def unsubscribe(packet_id: int, topic_filter: str) -> bytes:
    return encoder.unsubscribe(LEVEL, Unsubscribe(packet_id, [topic_filter]))


def publish(packet_id: int, topic: str = "s/x") -> bytes:
    return encoder.publish(LEVEL, topic, b"x", qos=1, packet_id=packet_id)


def numbered(count: int) -> bytes:
    return b"".join(subscribe(number, f"t/{number}") for number in range(1, count + 1))


def later_turn(server: Server) -> bool:
    """One turn that nobody's bytes begin; False: nothing is due."""
    fixture = server.fixture
    ran = bool(fixture.broker.timers.run_due(fixture.clock.monotonic(), 1))
    fixture.broker.flush()
    return ran


def filters(server: Server, client_id: str = "c") -> dict[str, Any]:
    session = server.sessions.session(client_id)
    return {} if session is None else session.record.subs


class Written:
    """How often filters were written, and how many of these are not on flash: now, and at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = self.under_way = self.most = 0
        configure = SessionQueue.configure

        def counted(queue: SessionQueue, wanted: Sequence[bytes], window: int, done: Any) -> None:
            self.times += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)

            def settled(error: str) -> None:
                self.under_way -= 1
                done(error)

            configure(queue, wanted, window, settled)

        monkeypatch.setattr(SessionQueue, "configure", counted)


def test_others_are_answered_between_the_slices(server: Server) -> None:
    client, other = connected(server), connected(server, "other")
    client.send(numbered(COUNT))
    handled = len(filters(server))
    assert handled == OPS_MAX
    while handled < COUNT:
        other.send(encoder.PINGREQ)
        server.fixture.broker.flush()
        assert [got.type for got in other.got()] == [T.PINGRESP]
        assert later_turn(server)
        assert handled <= len(filters(server)) <= handled + OPS_MAX
        handled = len(filters(server))
    server.settle()
    assert [got.packet_id for got in client.got()] == list(range(1, COUNT + 1))


def test_what_comes_meanwhile_waits_behind(server: Server) -> None:
    client = connected(server)
    client.send(numbered(COUNT))
    client.send(unsubscribe(COUNT + 1, "t/1"))
    assert "t/1" in filters(server)
    while later_turn(server):
        pass
    assert [got.packet_id for got in client.got()] == list(range(1, COUNT + 2))
    assert len(filters(server)) == COUNT - 1


def test_filters_are_written_once_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 pairs of SUBSCRIBE and PUBLISH beside 9,000 filters, 30 KB, stopped the daemon for minutes and took a gigabyte."""
    client = connected(server, clean=False)
    client.send(subscribe(1, *(f"f/{number}" for number in range(MANY))))
    server.settle()
    client.got()
    written = Written(monkeypatch)
    pairs = [subscribe(2 * number, f"p/{number}") + publish(2 * number + 1) for number in range(1, 21)]
    client.send(b"".join(pairs))
    server.fixture.broker.flush()
    assert written.times == 1
    while later_turn(server):
        pass
    assert written.times == 1
    server.settle()
    assert (written.times, written.most, written.under_way) == (20, 1, 0)
    assert [(got.type, got.packet_id) for got in client.got()] == [
        (kind, 2 * number + at) for number in range(1, 21) for at, kind in enumerate((T.SUBACK, T.PUBACK))
    ]


def test_what_came_before_the_end_is_carried_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """DISCONNECT among it: the will is dropped. The filters are written once."""
    watcher = connected(server, "watcher")
    watcher.send(subscribe(1, "will", "last", qos=0))
    client = connected(server, clean=False, will=Will("will", b"gone"))
    client.send(subscribe(1, *(f"f/{number}" for number in range(MANY))))
    server.settle()
    watcher.got()
    written = Written(monkeypatch)
    pairs = b"".join(subscribe(2 * number, f"p/{number}") + publish(2 * number + 1) for number in range(1, 21))
    client.send(pairs + encoder.publish(LEVEL, "last", b"word") + encoder.disconnect())
    client.lose()
    assert written.times <= 2
    server.settle()
    assert [(got.type, got.payload) for got in watcher.got()] == [(T.PUBLISH, b"word")]
    assert len(filters(server)) == MANY + 20


def test_a_fault_ends_the_connection_behind_what_came_before_it(server: Server) -> None:
    client = connected(server, clean=False)
    client.send(numbered(COUNT) + b"\x00\x00")
    client.send(unsubscribe(COUNT + 1, "t/1"))
    wire = client._wire
    assert not wire.closed
    while not wire.closed:
        assert server.turn() or later_turn(server)
    assert len(filters(server)) == COUNT


def test_a_connection_that_is_closed_gets_no_later_turn(server: Server) -> None:
    client = connected(server, clean=False)
    client.send(numbered(COUNT))
    session = client._wire.session
    assert session is not None
    session.close("Kicked", linger=False)
    assert client._wire.held is not None
    assert not client._wire.held.is_shut
    server.settle()
    assert len(filters(server)) == OPS_MAX


class Counted(bytes):
    """A filter that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return bytes(self) == other

    __hash__ = bytes.__hash__


def test_one_filter_more_costs_no_look_at_all_pairs(server: Server) -> None:
    queue = server.sessions.store.queue(SessionRecord("q"), lambda *queued: None)
    subjects = [Counted(b"a.%d" % number) for number in range(1000)]
    queue.configure(subjects, 100, lambda error: None)
    Counted.compared = 0
    queue.configure([*subjects, Counted(b"b")], 100, lambda error: None)
    assert Counted.compared <= 10 * len(subjects)
