"""Pages about very many things are built and written in slices, and say what they said when they were built at once."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from eyot_daemon.client.connection import ClientConnection
from eyot_daemon.monitor.accounts import SubszQuery, subsz
from eyot_daemon.monitor.connz import LOOKED_AT_MAX, ConnzQuery, connz
from eyot_daemon.monitor.metrics import exposition
from eyot_daemon.monitor.page_text import page_text
from eyot_daemon.monitor.system_services import SystemServices
from eyot_daemon.turn.slices import ROWS_MAX, Slices, at_once
from eyot_wire.status import StreamStatus
from support.clients.client_turns import ClientTurns

COUNT = 10 * ROWS_MAX


class Fixture(ClientTurns):
    def subscribed(self, count: int = COUNT) -> ClientConnection:
        client, _ = self.client()
        self.send(client, b"".join(b"SUB s.%d %d\r\n" % (number, number) for number in range(count)))
        self.rest()
        return client


def slices_of(slices: Slices[Any]) -> int:
    return sum(1 for _ in slices)


def test_subscriptions() -> None:
    fixture = Fixture()
    fixture.subscribed()
    query = SubszQuery(subscriptions=True, limit=2 * COUNT)
    page = at_once(subsz(fixture.broker, query))
    listed = [each["subject"] for each in page["subscriptions_list"]]
    assert [each for each in listed if each.startswith("s.")] == [f"s.{number}" for number in range(COUNT)]
    assert page["total"] == len(listed)
    assert slices_of(subsz(fixture.broker, query)) >= COUNT // ROWS_MAX
    assert slices_of(subsz(fixture.broker, SubszQuery())) == 0


def test_subscriptions_that_end_meanwhile_are_listed() -> None:
    fixture = Fixture()
    client = fixture.subscribed()
    slices = subsz(fixture.broker, SubszQuery(subscriptions=True, limit=2 * COUNT))
    next(slices)
    client.close("Kicked", linger=False)
    fixture.rest()
    assert len(at_once(slices)["subscriptions_list"]) >= COUNT


@pytest.mark.parametrize("shown", ["1", "detail"])
def test_connections(shown: str) -> None:
    fixture = Fixture()
    client = fixture.subscribed()
    query = ConnzQuery(subscriptions=shown)
    (row,) = at_once(connz(fixture.clients, query))["connections"]
    members = row["subscriptions_list" if shown == "1" else "subscriptions_list_detail"]
    subjects = members if shown == "1" else [each["subject"] for each in members]
    assert subjects == [sub.subject.decode() for sub in client.subs.values()]
    assert slices_of(connz(fixture.clients, query)) == COUNT // ROWS_MAX
    assert slices_of(connz(fixture.clients, ConnzQuery())) == 0


def test_a_connection_with_one_of_many_subjects() -> None:
    fixture = Fixture()
    fixture.subscribed(2 * LOOKED_AT_MAX)
    query = ConnzQuery(filter_subject=f"s.{2 * LOOKED_AT_MAX - 1}", account="$G")
    assert at_once(connz(fixture.clients, query))["total"] == 1
    assert slices_of(connz(fixture.clients, query)) == 1
    assert at_once(connz(fixture.clients, ConnzQuery(filter_subject="other", account="$G")))["total"] == 0


def test_a_request_of_the_system_account_is_answered_in_a_later_turn() -> None:
    fixture = Fixture()
    fixture.subscribed()
    published: list[bytes] = []

    class Account:
        def publish(self, reply: bytes, payload: bytes) -> None:
            published.append(payload)

    services = object.__new__(SystemServices)
    services.broker, services.clients = fixture.broker, fixture.clients
    services._seq = 0
    service = services._server_services()["SUBSZ"]
    services._answer(Account(), b"r", b'{"subscriptions":true,"limit":100000}', service)  # type: ignore[arg-type]
    turns = 0
    while not published:
        assert fixture.later_turn()
        turns += 1
    assert turns >= COUNT // ROWS_MAX
    assert len(msgspec.json.decode(published[0])["data"]["subscriptions_list"]) >= COUNT


def test_metrics_of_many_streams() -> None:
    fixture = Fixture()
    fixture.broker.providers.streams = lambda: [
        StreamStatus(account="A", name=f"S{n}", messages=n, bytes=2, first_seq=1, last_seq=1, committed_seq=1)
        for n in range(COUNT)
    ]
    text = at_once(exposition(fixture.clients))
    assert text.count(b'\neyot_stream_messages{account="A",stream="S') == COUNT
    assert slices_of(exposition(fixture.clients)) >= COUNT // ROWS_MAX


@pytest.mark.parametrize("seed", range(20))
def test_the_text_is_that_of_one_piece(seed: int) -> None:
    drawn = random.Random(seed)

    def value(depth: int) -> object:
        kind = drawn.randrange(8 if depth < 4 else 5)
        if kind < 5:
            return drawn.choice((None, True, 0, 1.5, "", 'a\n"b', "é", [], {}))
        count = drawn.choice((0, 1, 3, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX) if depth < 2 else (0, 1, 2))
        if kind < 7:
            return [value(depth + 1) for _ in range(count)]
        return {f"k{n}": value(depth + 1) for n in range(min(count, 5))}

    for page in ([value(1) for _ in range(3)], {f"k{n}": value(1) for n in range(5)}, value(0)):
        assert at_once(page_text(page)) == msgspec.json.format(msgspec.json.encode(page), indent=2)


def test_a_long_text_is_written_in_slices() -> None:
    assert slices_of(page_text({"a": [{"b": list(range(COUNT))}], "c": {}})) >= COUNT // ROWS_MAX
    assert slices_of(page_text({"a": [1, 2, 3]})) == 0
