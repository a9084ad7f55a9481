"""Per-message TTLs and delete markers."""

from pathlib import Path

import pytest

from eyot_daemon.jetstream.messages.message_ttl import NEVER, TtlTable, parse_ttl
from eyot_wire import headers
from support.destinations import Recorder
from support.js_fixture import World

S = 1_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("value", "ttl_ns"),
    [(b"never", NEVER), (b"00", 0), (b"5", 5 * S), (b"1s", S), (b"1h30m", 5400 * S), (b"1500ms", 1_500_000_000)],
)
def test_reading_ttls(value: bytes, ttl_ns: int) -> None:
    assert parse_ttl(value) == ttl_ns


@pytest.mark.parametrize("value", [b"-1", b"0", b"500ms", b"x", b"1.5", b"\xff"])
def test_what_is_no_ttl(world: World, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_ttl(value)
    world.create(allow_msg_ttl=True)
    answer = world.put(b"s.a", b"", b"NATS/1.0\r\nNats-TTL: " + value + b"\r\n\r\n")
    assert answer["error"]["err_code"] == 10165


def test_messages_leave_when_their_time_has_passed(world: World) -> None:
    world.create(allow_msg_ttl=True)
    world.put(b"s.a", b"5s", {"Nats-TTL": "5"})
    world.put(b"s.a", b"2s", {"Nats-TTL": "2s"})
    world.put(b"s.a", b"stays", {"Nats-TTL": "00"})
    world.put(b"s.a", b"stays too")
    world.advance(3)
    assert [payload for _, payload in world.held()] == [b"5s", b"stays", b"stays too"]
    world.advance(3)
    assert [payload for _, payload in world.held()] == [b"stays", b"stays too"]


def test_ttls_survive_a_restart_and_a_crash(world: World) -> None:
    world.create(allow_msg_ttl=True)
    world.put(b"s.a", b"plain")
    for number in range(5):
        world.put(b"s.a", b"%d" % number, {"Nats-TTL": "10"})
    world = world.restart()
    world.advance(0)
    world.advance(11)
    assert world.held() == [(1, b"plain")]
    world.put(b"s.a", b"more", {"Nats-TTL": "10"})
    world = world.crash()
    world.advance(0)
    world.advance(11)
    assert world.held() == [(1, b"plain")]


def test_never_is_not_touched_by_age(world: World) -> None:
    world.create(allow_msg_ttl=True, max_age=10 * S)
    world.put(b"s.a", b"never", {"Nats-TTL": "never"})
    for number in range(3):
        world.put(b"s.a", b"%d" % number)
    world.advance(6)
    world.put(b"s.a", b"later")
    world.advance(6)
    assert [payload for _, payload in world.held()] == [b"never", b"later"]
    world.advance(6)
    assert [payload for _, payload in world.held()] == [b"never"]
    world.put(b"s.a", b"last")
    world.advance(11)
    assert [payload for _, payload in world.held()] == [b"never"]


def test_the_last_message_of_a_subject_leaves_a_marker(world: World) -> None:
    listener = Recorder()
    world.account.subscribe(b"live.>", listener)
    created = world.create(subject_delete_marker_ttl=60 * S, max_age=10 * S, republish={"src": ">", "dest": "live.>"})
    assert created["config"]["allow_msg_ttl"]
    assert created["config"]["allow_rollup_hdrs"]
    world.put(b"s.a", b"1")
    world.put(b"s.a", b"2")
    world.put(b"s.b", b"3")
    world.advance(5)
    world.put(b"s.b", b"4")
    world.advance(6)
    assert world.held() == [(4, b"4"), (5, b"")]
    marker = world.stream().log.get(5)
    assert marker is not None
    assert marker.subject == b"s.a"
    assert headers.get(marker.header, b"Nats-Marker-Reason") == b"MaxAge"
    assert headers.get(marker.header, b"Nats-TTL") == b"1m0s"
    assert headers.get(marker.header, b"Nats-Rollup") == b"sub"
    assert listener.subjects[-1] == b"live.s.a"
    world.advance(120)
    world.advance(120)
    assert world.held() == []


def test_a_marker_for_a_ttl(world: World) -> None:
    world.create(subject_delete_marker_ttl=2 * S, max_msgs_per_subject=1)
    world.put(b"s.a", b"1", {"Nats-TTL": "1"})
    world.advance(1.5)
    (seq, payload) = world.held()[0]
    assert (seq, payload) == (2, b"")
    world.advance(3)
    assert world.held() == []


def test_a_ttl_shorter_than_the_markers_is_raised(world: World) -> None:
    world.create(subject_delete_marker_ttl=60 * S)
    world.put(b"s.a", b"1", {"Nats-TTL": "5s"})
    message = world.stream().log.get(1)
    assert message is not None
    assert headers.get(message.header, b"Nats-TTL") == b"60"


def test_a_key_that_was_purged_leaves_no_marker(world: World) -> None:
    world.create(subject_delete_marker_ttl=2 * S, max_msgs_per_subject=1)
    world.put(b"s.a", b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "2s"})
    world.advance(3)
    assert world.held() == []


def test_a_full_disk_does_not_lose_the_first_ttl(world: World) -> None:
    world.create(allow_msg_ttl=True)
    world.publish(b"s.a", b"lost", {"Nats-TTL": "5"})
    world.broker.flush()
    world = world.crash()
    world.put(b"s.a", b"kept", {"Nats-TTL": "5"})
    world = world.restart()
    world.advance(0)
    world.advance(6)
    assert world.held() == []


def test_the_table_forgets_what_is_gone() -> None:
    table = TtlTable()
    table.add((seq, 1000 + seq) for seq in range(5000))
    table.compact(3000, lambda seq: False)
    assert len(table) == 5000
    table.compact(10, lambda seq: seq % 500 == 0)
    assert len(table) == 10
    assert table.pop_due(2500, 100) == [0, 500, 1000, 1500]
    assert table.next_due_ns == 3000
