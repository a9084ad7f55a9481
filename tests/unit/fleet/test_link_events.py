"""Which devices are linked, from the events and lists of the hub's system account."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eyot_fleet.link_events import LinkTable
from eyot_wire.frames import Msg
from eyot_wire.trust.enrolment_record import EnrolledDevice

AT = "2026-11-25T12:00:00Z"
AT_S = 1_795_608_000.0


def event(what: str, number: int = 7, **client: Any) -> Msg:
    told = {"id": number, "acc": "A", "name": "pump", "kind": "Leafnode", "user": "a", **client}
    body = {"timestamp": AT, "server": {"id": "HUB"}, "client": told}
    return Msg(f"$SYS.ACCOUNT.A.{what}".encode(), b"1", b"", b"", json.dumps(body).encode())


def leafz(*numbers: int, server: str = "HUB") -> bytes:
    links = [{"id": number, "name": "pump", "account": "A"} for number in numbers]
    return json.dumps({"data": {"server_id": server, "leafs": links}}).encode()


def enrolled_device(name: str, key: str) -> EnrolledDevice:
    return EnrolledDevice(
        name=name, key=key, token="t", role="device", device_lifetime_s=0, enrolled_at=0, renewed_at=0, expires=0
    )


@pytest.fixture
def table() -> LinkTable:
    return LinkTable("A")


def test_a_link_comes_and_goes(table: LinkTable) -> None:
    assert table.take_event(event("CONNECT"), {}) == ("pump", True, AT_S)
    assert table.is_linked("pump")
    assert table.take_event(event("DISCONNECT"), {}) == ("pump", False, AT_S)
    assert not table.is_linked("pump")


def test_the_end_of_a_link_counts_that_no_list_and_no_event_told_of(table: LinkTable) -> None:
    assert table.take_event(event("DISCONNECT"), {}) == ("pump", False, AT_S)
    assert table.take_lists([leafz()]) == {}


def test_an_old_links_end_after_the_new_ones_begin_changes_nothing(table: LinkTable) -> None:
    table.take_event(event("CONNECT", 7), {})
    assert table.take_event(event("CONNECT", 8), {}) is None
    assert table.take_event(event("DISCONNECT", 7), {}) is None
    assert table.is_linked("pump")


def test_other_accounts_clients_and_what_is_no_event_are_left_out(table: LinkTable) -> None:
    assert table.take_event(event("CONNECT", acc="B"), {}) is None
    assert table.take_event(event("CONNECT", kind="Client"), {}) is None
    assert table.take_event(event("CONNECT", name=""), {}) is None
    assert table.take_event(Msg(b"$SYS.ACCOUNT.A.CONNECT", b"1", b"", b"", b"["), {}) is None
    assert not table.is_linked("pump")


def test_a_link_with_another_key_than_the_enrolled_one_is_not_the_devices(table: LinkTable) -> None:
    enrolled = {"pump": enrolled_device("pump", "UPUMP")}
    assert table.take_event(event("CONNECT", user="UTHIEF"), enrolled) is None
    assert table.take_lists([leafz(7)]) == {}  # lists do not tell of keys
    assert (table.is_linked("pump"), table.foreign) == (False, 1)
    assert table.take_event(event("DISCONNECT", user="UTHIEF"), enrolled) is None
    assert table.take_event(event("CONNECT", 8, user="UPUMP"), enrolled) == ("pump", True, AT_S)
    enrolled = {"pump": enrolled_device("pump", "UPUMP2")}  # enrolled again, while the old link is up
    assert table.take_event(event("DISCONNECT", 8, user="UPUMP"), enrolled) == ("pump", False, AT_S)


def test_lists_make_up_for_events_and_leave_servers_alone_that_did_not_answer(table: LinkTable) -> None:
    assert table.take_lists([leafz(7), leafz(8, server="OTHER")]) == {"pump": True}
    assert table.take_lists([leafz()]) == {}
    assert table.is_linked("pump")
    assert table.take_lists([leafz(server="OTHER")]) == {"pump": False}
