"""Message schedules: what is refused, what is made and when, and that restarts neither lose nor repeat anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_store import StoreOptions
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import ns_to_rfc3339
from support.jetstream.fixture import Fixture
from support.manual_clock import ManualClock

S = 1_000_000_000
#: 2026-01-01T00:00:00Z
START = 1_767_225_600 * S


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path, clock=ManualClock(START))
    fixture.create(allow_msg_schedules=True, allow_msg_ttl=True)
    return fixture


def put(fixture: Fixture, pattern: str, subject: bytes = b"s.plan", payload: bytes = b"x", **more: str) -> Any:
    """A schedule for `s.made`: the PubAck, or the code of the refusal."""
    header = {"Nats-Schedule": pattern, "Nats-Schedule-Target": "s.made"}
    header |= {f"Nats-{name.replace('_', '-')}": value for name, value in more.items()}
    answer = fixture.put(subject, payload, header)
    return answer["error"]["err_code"] if "error" in answer else answer


def at(seconds: float) -> str:
    return f"@at {ns_to_rfc3339(START + int(seconds * S))}"


def held(fixture: Fixture, subject: bytes = b"s.made") -> list[tuple[bytes, bytes]]:
    """(header, payload) of everything on a subject."""
    read = fixture.stream().log.read(1, max_messages=10_000, max_bytes=1 << 30, filters=(subject,))
    return [(message.header, message.payload) for message in read.messages]


def test_once(fixture: Fixture) -> None:
    header = {"X": "y", "Nats-Msg-Id": "m", "Nats-TTL": "2h", "Nats-Schedule-TTL": "1h"}
    header |= {"Nats-Schedule": at(60), "Nats-Schedule-Target": "s.made"}
    fixture.put(b"s.plan", b"later", header)
    assert held(fixture, b"s.plan")[0][0].endswith(b"\r\nNats-Rollup: sub\r\n\r\n")
    fixture.advance(59)
    assert held(fixture) == []
    fixture.advance(2)
    made = b"NATS/1.0\r\nX: y\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: purge\r\nNats-TTL: 1h\r\n\r\n"
    assert held(fixture) == [(made, b"later")]
    assert held(fixture, b"s.plan") == []
    fixture.advance(3600)
    assert held(fixture) == []


def test_a_time_that_has_passed_is_made_up_for_at_once(fixture: Fixture) -> None:
    put(fixture, at(-1000), payload=b"late")
    fixture.advance(0.1)
    assert [payload for _, payload in held(fixture)] == [b"late"]


def test_again_and_again(fixture: Fixture) -> None:
    put(fixture, "@every 90s")
    for _ in range(30):
        fixture.advance(10)
    next_times = [header.split(b"Next: ")[1].split(b"\r\n")[0] for header, _ in held(fixture)]
    assert next_times == [b"2026-01-01T00:03:00Z", b"2026-01-01T00:04:30Z", b"2026-01-01T00:06:00Z"]
    assert len(held(fixture, b"s.plan")) == 1


def test_by_cron_in_a_time_zone(fixture: Fixture) -> None:
    put(fixture, "0 0 8 * * *", Schedule_Time_Zone="Europe/Prague")
    fixture.advance(6 * 3600 + 59 * 60)
    assert held(fixture) == []
    fixture.advance(61)
    fixture.advance(40)
    assert next(header for header, _ in held(fixture)).endswith(
        b"Nats-Schedule-Next: 2026-01-02T08:00:00+01:00\r\n\r\n"
    )


def test_what_was_missed_is_made_once(fixture: Fixture) -> None:
    put(fixture, "@every 10s")
    fixture.clock.advance(1000)
    fixture = fixture.restart()
    fixture.advance(0.1)
    assert len(held(fixture)) == 1
    fixture.advance(11)
    assert len(held(fixture)) == 2


def test_a_restart_knows_when_what_is_due(fixture: Fixture) -> None:
    put(fixture, at(100), payload=b"once")
    put(fixture, "@every 60s", b"s.plan2", payload=b"often")
    fixture.advance(61)
    fixture = fixture.restart()
    assert [payload for _, payload in held(fixture)] == [b"often"]
    fixture.advance(40)
    assert [payload for _, payload in held(fixture)] == [b"often", b"once"]
    fixture = fixture.restart()
    fixture.advance(40)
    assert [payload for _, payload in held(fixture)] == [b"often", b"once", b"often"]


YEARS = 14 * 365 * 86_400.0


@pytest.mark.parametrize("how", ["running", "restarted", "crashed"])
@pytest.mark.parametrize("pattern", ["@every 10s", "*/10 * * * * *"])
def test_schedules_go_on_after_a_start_in_2040(fixture: Fixture, pattern: str, how: str) -> None:
    """What repeats was due when the clock had been, next: it rested for years."""
    fixture.clock.jump(YEARS)
    fixture.advance(30)
    put(fixture, pattern)
    put(fixture, at(2 * YEARS), b"s.plan2")
    fixture.advance(11)
    assert len(held(fixture)) == 1
    fixture.clock.jump(-YEARS)
    if how != "running":
        fixture = fixture.restart() if how == "restarted" else fixture.crash()
    fixture.advance(30)
    before = len(held(fixture))
    for _ in range(3):
        fixture.advance(11)
    assert len(held(fixture)) == before + 3
    assert len(held(fixture, b"s.plan2")) == 1, "a time is a time"


def test_a_schedule_that_was_due_long_ago_by_a_corrected_clock_is_not_waited_for(fixture: Fixture) -> None:
    put(fixture, at(7200))
    fixture.advance(1)
    fixture.clock.jump(YEARS)
    fixture.advance(31)
    assert len(held(fixture)) == 1


@pytest.mark.parametrize("back_s", [-5.0, -3600.0, -10_000.0])
def test_a_small_correction_runs_nothing_by_cron_twice(fixture: Fixture, back_s: float) -> None:
    put(fixture, "0 0 12 * * *")
    fixture.advance(12 * 3600 + 1)
    assert len(held(fixture)) == 1
    fixture.clock.jump(back_s)
    fixture.advance(31)
    for _ in range(6):
        fixture.advance(1800)
    assert len(held(fixture)) == 1


def test_a_crash_repeats_nothing(fixture: Fixture) -> None:
    put(fixture, "@every 60s")
    fixture.advance(61)
    assert len(held(fixture)) == 1
    fixture.clock.advance(60)
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    fixture.broker.flush()
    fixture = fixture.crash()
    assert len(held(fixture)) == 1
    fixture.advance(0.1)
    assert len(held(fixture)) == 2


def test_a_new_schedule_takes_the_place_of_the_old_one(fixture: Fixture) -> None:
    put(fixture, at(10), payload=b"old")
    put(fixture, at(20), payload=b"new")
    assert len(held(fixture, b"s.plan")) == 1
    fixture.advance(15)
    assert held(fixture) == []
    fixture.advance(6)
    assert [payload for _, payload in held(fixture)] == [b"new"]


@pytest.mark.parametrize("how", ["plain", "scheduler", "delete", "purge"])
def test_a_schedule_ends(fixture: Fixture, how: str) -> None:
    put(fixture, "@every 10s")
    if how == "plain":
        fixture.put(b"s.plan", b"no schedule")
    elif how == "scheduler":
        fixture.put(b"s.other", b"", {"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "purge"})
        assert held(fixture, b"s.plan") == []
    elif how == "delete":
        fixture.request("STREAM.MSG.DELETE.S", {"seq": 1})
    else:
        fixture.request("STREAM.PURGE.S", {"filter": "s.plan"})
    fixture.advance(30)
    fixture.advance(30)
    assert held(fixture) == []
    assert not [key for key in fixture.stream().log.positions() if key.startswith(b"eyot.schedule.")]


def test_the_content_of_another_subject(fixture: Fixture) -> None:
    put(fixture, at(10), payload=b"own", Schedule_Source="s.state", Schedule_Rollup="sub")
    put(fixture, at(20), b"s.plan2", payload=b"own", Schedule_Source="s.state", Schedule_Rollup="sub")
    fixture.advance(11)
    assert [payload for _, payload in held(fixture)] == [b"own"]
    fixture.put(b"s.state", b"21.5", {"Unit": "C", "Nats-Msg-Id": "q"})
    fixture.advance(10)
    made = b"NATS/1.0\r\nUnit: C\r\nNats-Scheduler: s.plan2\r\nNats-Schedule-Next: purge\r\nNats-Rollup: sub\r\n\r\n"
    assert held(fixture) == [(made, b"21.5")]


@pytest.mark.parametrize(
    ("pattern", "more", "code"),
    [
        ("@foo", {}, 10189),
        ("@at never", {}, 10189),
        ("@every", {}, 10189),
        ("@every 500ms", {}, 10189),
        ("0 5 * * *", {}, 10189),
        ("@every 1h", {"Schedule_Time_Zone": "UTC"}, 10189),
        ("@daily", {"Schedule_Time_Zone": "X/Y"}, 10223),
        ("@daily", {"Schedule_Time_Zone": ""}, 10223),
        ("@daily", {"Schedule_Target": ""}, 10190),
        ("@daily", {"Schedule_Target": "s.plan"}, 10190),
        ("@daily", {"Schedule_Target": "s.*"}, 10190),
        ("@daily", {"Schedule_Target": "x.y"}, 10190),
        ("@daily", {"Schedule_TTL": "x"}, 10191),
        ("@daily", {"Rollup": "all"}, 10192),
        ("@daily", {"Schedule_Rollup": "all"}, 10192),
        ("@daily", {"Schedule_Source": "s.*"}, 10203),
        ("@daily", {"Schedule_Source": "s.plan"}, 10203),
        ("@daily", {"Schedule_Source": "s.made"}, 10203),
        ("@daily", {"Schedule_Source": "x"}, 10203),
        ("@daily", {"Scheduler": "s.other"}, 10212),
        ("@daily", {"Expected_Last_Subject_Sequence": "9"}, 10071),
    ],
)
def test_refusals(fixture: Fixture, pattern: str, more: dict[str, str], code: int) -> None:
    assert put(fixture, pattern, **more) == code
    assert fixture.stream().log.state.last_seq == 0


def test_nobody_else_speaks_for_a_scheduler(fixture: Fixture) -> None:
    for header in (
        {"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "2030-01-01T00:00:00Z"},
        {"Nats-Scheduler": "s.*", "Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "s.x", "Nats-Schedule-Next": "purge"},
        {"Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "s.plan"},
    ):
        assert fixture.put(b"s.x", b"", header)["error"]["err_code"] == 10212


def test_streams_without_schedules_refuse_them(fixture: Fixture) -> None:
    fixture.create("N")
    assert (
        fixture.put(b"n.a", b"", {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "n.b"})["error"]["err_code"]
        == 10188
    )
    fixture.create("T", allow_msg_schedules=True)
    header = {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "t.b", "Nats-Schedule-TTL": "1h"}
    assert fixture.put(b"t.a", b"", header)["error"]["err_code"] == 10166


def test_what_cannot_be_stored_when_it_is_due_is_tried_again(tmp_path: Path) -> None:
    options = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20)
    fixture = Fixture(tmp_path, clock=ManualClock(START), store_options=options)
    fixture.create(allow_msg_schedules=True)
    put(fixture, at(10), payload=b"x" * 50_000)
    while "error" not in fixture.put(b"s.fill", b"x" * 20_000):
        pass
    fixture.advance(11)
    assert held(fixture) == []
    fixture.request("STREAM.PURGE.S", {"filter": "s.fill"})
    for _ in range(4):
        fixture.advance(1)
    assert len(held(fixture)) == 1
    assert held(fixture, b"s.plan") == []


def test_what_cannot_be_read_when_it_is_due_is_tried_again_later(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fixture, at(10))
    tried = []

    def fails(seq: int) -> None:
        tried.append(seq)
        raise StoreError("io", "as expected")

    with monkeypatch.context() as failing:
        failing.setattr(fixture.stream().log, "get", fails)
        fixture.advance(11)
        fixture.run_on(5)
        assert tried == [1]
    fixture.advance(1)
    assert len(held(fixture)) == 1


def test_the_table_outlives_a_refused_batch(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, clock=ManualClock(START))
    fixture.create(allow_msg_schedules=True, allow_atomic=True)
    put(fixture, at(10))
    fixture.publish(b"s.plan", b"", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"})
    header = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1", "Nats-Expected-Stream": "X"}
    assert fixture.put(b"s.plan", b"", header)["error"]["err_code"] == 10060
    fixture.advance(11)
    assert len(held(fixture)) == 1


def test_consumers_get_what_is_made_like_anything_else(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, clock=ManualClock(START))
    fixture.create(allow_msg_schedules=True, max_msgs_per_subject=2, republish={"src": "s.made", "dest": "again"})
    fixture.account.subscribe(b"again", fixture.inbox)
    put(fixture, "@every 1s")
    for _ in range(5):
        fixture.advance(1)
    assert len(held(fixture)) == 2
    assert len([got for got in fixture.inbox.got if got.subject == b"again"]) >= 4
