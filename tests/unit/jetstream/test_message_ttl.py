"""Per-message TTLs and delete markers."""

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.nats_headers import NEVER, parse_ttl
from eyot_daemon.jetstream.retention.expiry import TtlTable
from eyot_store.errors import StoreError
from eyot_wire import headers
from support.clients.destinations import Recorder
from support.jetstream.fixture import Fixture

S = 1_000_000_000


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


@pytest.mark.parametrize(
    ("value", "ttl_ns"),
    [(b"never", NEVER), (b"00", 0), (b"5", 5 * S), (b"1s", S), (b"1h30m", 5400 * S), (b"1500ms", 1_500_000_000)],
)
def test_reading_ttls(value: bytes, ttl_ns: int) -> None:
    assert parse_ttl(value) == ttl_ns


@pytest.mark.parametrize("value", [b"-1", b"0", b"500ms", b"x", b"1.5", b"\xff"])
def test_what_is_no_ttl(fixture: Fixture, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_ttl(value)
    fixture.create(allow_msg_ttl=True)
    answer = fixture.put(b"s.a", b"", b"NATS/1.0\r\nNats-TTL: " + value + b"\r\n\r\n")
    assert answer["error"]["err_code"] == 10165


def test_messages_leave_when_their_time_has_passed(fixture: Fixture) -> None:
    fixture.create(allow_msg_ttl=True)
    fixture.put(b"s.a", b"5s", {"Nats-TTL": "5"})
    fixture.put(b"s.a", b"2s", {"Nats-TTL": "2s"})
    fixture.put(b"s.a", b"stays", {"Nats-TTL": "00"})
    fixture.put(b"s.a", b"stays too")
    fixture.advance(3)
    assert [payload for _, payload in fixture.held()] == [b"5s", b"stays", b"stays too"]
    fixture.advance(3)
    assert [payload for _, payload in fixture.held()] == [b"stays", b"stays too"]


def test_ttls_survive_a_restart_and_a_crash(fixture: Fixture) -> None:
    fixture.create(allow_msg_ttl=True)
    fixture.put(b"s.a", b"plain")
    for number in range(5):
        fixture.put(b"s.a", b"%d" % number, {"Nats-TTL": "10"})
    fixture = fixture.restart()
    fixture.advance(0)
    fixture.advance(11)
    assert fixture.held() == [(1, b"plain")]
    fixture.put(b"s.a", b"more", {"Nats-TTL": "10"})
    fixture = fixture.crash()
    fixture.advance(0)
    fixture.advance(11)
    assert fixture.held() == [(1, b"plain")]


def test_never_is_not_touched_by_age(fixture: Fixture) -> None:
    fixture.create(allow_msg_ttl=True, max_age=10 * S)
    fixture.put(b"s.a", b"never", {"Nats-TTL": "never"})
    for number in range(3):
        fixture.put(b"s.a", b"%d" % number)
    fixture.advance(6)
    fixture.put(b"s.a", b"later")
    fixture.advance(6)
    assert [payload for _, payload in fixture.held()] == [b"never", b"later"]
    fixture.advance(6)
    assert [payload for _, payload in fixture.held()] == [b"never"]
    fixture.put(b"s.a", b"last")
    fixture.advance(11)
    assert [payload for _, payload in fixture.held()] == [b"never"]


def test_the_last_message_of_a_subject_leaves_a_marker(fixture: Fixture) -> None:
    listener = Recorder()
    fixture.account.subscribe(b"live.>", listener)
    created = fixture.create(subject_delete_marker_ttl=60 * S, max_age=10 * S, republish={"src": ">", "dest": "live.>"})
    assert created["config"]["allow_msg_ttl"]
    assert created["config"]["allow_rollup_hdrs"]
    fixture.put(b"s.a", b"1")
    fixture.put(b"s.a", b"2")
    fixture.put(b"s.b", b"3")
    fixture.advance(5)
    fixture.put(b"s.b", b"4")
    fixture.advance(6)
    assert fixture.held() == [(4, b"4"), (5, b"")]
    marker = fixture.stream().log.get(5)
    assert marker is not None
    assert marker.subject == b"s.a"
    assert headers.get(marker.header, b"Nats-Marker-Reason") == b"MaxAge"
    assert headers.get(marker.header, b"Nats-TTL") == b"1m0s"
    assert headers.get(marker.header, b"Nats-Rollup") == b"sub"
    assert listener.subjects[-1] == b"live.s.a"
    fixture.advance(120)
    fixture.advance(120)
    assert fixture.held() == []


def test_a_marker_for_a_ttl(fixture: Fixture) -> None:
    fixture.create(subject_delete_marker_ttl=2 * S, max_msgs_per_subject=1)
    fixture.put(b"s.a", b"1", {"Nats-TTL": "1"})
    fixture.advance(1.5)
    assert fixture.held() == [(2, b"")]
    fixture.advance(1)
    assert fixture.held() == [(2, b"")]
    fixture.advance(2)
    assert fixture.held() == []


def test_a_ttl_shorter_than_the_markers_is_raised(fixture: Fixture) -> None:
    fixture.create(subject_delete_marker_ttl=60 * S)
    fixture.put(b"s.a", b"1", {"Nats-TTL": "5s"})
    message = fixture.stream().log.get(1)
    assert message is not None
    assert headers.get(message.header, b"Nats-TTL") == b"60"


def test_a_key_that_was_purged_leaves_no_marker(fixture: Fixture) -> None:
    fixture.create(subject_delete_marker_ttl=2 * S, max_msgs_per_subject=1)
    fixture.put(b"s.a", b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "2s"})
    fixture.advance(3)
    assert fixture.held() == []


def test_a_full_disk_does_not_lose_the_first_ttl(fixture: Fixture) -> None:
    fixture.create(allow_msg_ttl=True)
    fixture.publish(b"s.a", b"lost", {"Nats-TTL": "5"})
    fixture.broker.flush()
    fixture = fixture.crash()
    fixture.put(b"s.a", b"kept", {"Nats-TTL": "5"})
    fixture = fixture.restart()
    fixture.advance(0)
    fixture.advance(6)
    assert fixture.held() == []


@pytest.mark.parametrize("config", [{"allow_msg_ttl": True}, {"allow_msg_ttl": True, "max_age": 2 * S}])
def test_what_expires_on_a_full_disk_expires_later(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    """The removal fails; when the disk has room again, it is made."""
    fixture.create(**config)
    fixture.put(b"s.a", b"", {} if "max_age" in config else {"Nats-TTL": "2"})
    with monkeypatch.context() as full:
        committer = fixture.store._committer
        full.setattr(committer, "commit", lambda group: [StoreError("full", "as expected")] * len(group))
        fixture.advance(3)
        fixture.advance(1)
        assert len(fixture.held()) == 1
    fixture.advance(1)
    fixture.advance(1)
    assert fixture.held() == []


def test_the_table_forgets_what_is_gone() -> None:
    table = TtlTable()
    table.add((seq, 1000 + seq) for seq in range(5000))
    table.compact(3000, lambda seq: False)
    assert len(table) == 5000
    table.compact(10, lambda seq: seq % 500 == 0)
    assert len(table) == 10
    assert table.pop_due(2500, 100) == [(seq, 1000 + seq) for seq in (0, 500, 1000, 1500)]
    assert table.next_due_ns == 3000
