"""Message schedules: what is refused, what is made and when, and that restarts neither lose nor repeat anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.turn.clock import ManualClock
from eyot_store import StoreOptions
from eyot_wire.jetstream.model import ns_to_rfc3339
from support.js_fixture import World

S = 1_000_000_000
#: 2026-01-01T00:00:00Z
START = 1_767_225_600 * S


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, clock=ManualClock(START))
    world.create(allow_msg_schedules=True, allow_msg_ttl=True)
    return world


def put(world: World, pattern: str, subject: bytes = b"s.plan", payload: bytes = b"x", **more: str) -> Any:
    """A schedule for `s.made`: the PubAck, or the code of the refusal."""
    header = {"Nats-Schedule": pattern, "Nats-Schedule-Target": "s.made"}
    header |= {f"Nats-{name.replace('_', '-')}": value for name, value in more.items()}
    answer = world.put(subject, payload, header)
    return answer["error"]["err_code"] if "error" in answer else answer


def at(seconds: float) -> str:
    return f"@at {ns_to_rfc3339(START + int(seconds * S))}"


def held(world: World, subject: bytes = b"s.made") -> list[tuple[bytes, bytes]]:
    """(header, payload) of everything on a subject."""
    read = world.stream().log.read(1, max_messages=10_000, max_bytes=1 << 30, filters=(subject,))
    return [(message.header, message.payload) for message in read.messages]


def test_once(world: World) -> None:
    header = {"X": "y", "Nats-Msg-Id": "m", "Nats-TTL": "2h", "Nats-Schedule-TTL": "1h"}
    header |= {"Nats-Schedule": at(60), "Nats-Schedule-Target": "s.made"}
    world.put(b"s.plan", b"later", header)
    assert held(world, b"s.plan")[0][0].endswith(b"\r\nNats-Rollup: sub\r\n\r\n")
    world.advance(59)
    assert held(world) == []
    world.advance(2)
    made = b"NATS/1.0\r\nX: y\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: purge\r\nNats-TTL: 1h\r\n\r\n"
    assert held(world) == [(made, b"later")]
    assert held(world, b"s.plan") == []
    world.advance(3600)
    assert held(world) == []


def test_a_time_that_has_passed_is_made_up_for_at_once(world: World) -> None:
    put(world, at(-1000), payload=b"late")
    world.advance(0.1)
    assert [payload for _, payload in held(world)] == [b"late"]


def test_again_and_again(world: World) -> None:
    put(world, "@every 90s")
    for _ in range(30):
        world.advance(10)
    next_times = [header.split(b"Next: ")[1].split(b"\r\n")[0] for header, _ in held(world)]
    assert next_times == [b"2026-01-01T00:03:00Z", b"2026-01-01T00:04:30Z", b"2026-01-01T00:06:00Z"]
    assert len(held(world, b"s.plan")) == 1


def test_by_cron_in_a_time_zone(world: World) -> None:
    put(world, "0 0 8 * * *", Schedule_Time_Zone="Europe/Prague")
    world.advance(6 * 3600 + 59 * 60)
    assert held(world) == []
    world.advance(61)
    world.advance(40)
    assert next(header for header, _ in held(world)).endswith(b"Nats-Schedule-Next: 2026-01-02T07:00:00Z\r\n\r\n")


def test_what_was_missed_is_made_once(world: World) -> None:
    put(world, "@every 10s")
    world.clock.advance(1000)
    world = world.restart()
    world.advance(0.1)
    assert len(held(world)) == 1
    world.advance(11)
    assert len(held(world)) == 2


def test_a_restart_knows_when_what_is_due(world: World) -> None:
    put(world, at(100), payload=b"once")
    put(world, "@every 60s", b"s.plan2", payload=b"often")
    world.advance(61)
    world = world.restart()
    assert [payload for _, payload in held(world)] == [b"often"]
    world.advance(40)
    assert [payload for _, payload in held(world)] == [b"often", b"once"]
    world = world.restart()
    world.advance(40)
    assert [payload for _, payload in held(world)] == [b"often", b"once", b"often"]


def test_a_crash_repeats_nothing(world: World) -> None:
    put(world, "@every 60s")
    world.advance(61)
    assert len(held(world)) == 1
    world.clock.advance(60)
    world.broker.timers.run_due(world.clock.monotonic())
    world.broker.flush()
    world = world.crash()
    assert len(held(world)) == 1
    world.advance(0.1)
    assert len(held(world)) == 2


def test_a_new_schedule_takes_the_place_of_the_old_one(world: World) -> None:
    put(world, at(10), payload=b"old")
    put(world, at(20), payload=b"new")
    assert len(held(world, b"s.plan")) == 1
    world.advance(15)
    assert held(world) == []
    world.advance(6)
    assert [payload for _, payload in held(world)] == [b"new"]


@pytest.mark.parametrize("how", ["plain", "scheduler", "delete", "purge"])
def test_a_schedule_ends(world: World, how: str) -> None:
    put(world, "@every 10s")
    if how == "plain":
        world.put(b"s.plan", b"no schedule")
    elif how == "scheduler":
        world.put(b"s.other", b"", {"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "purge"})
        assert held(world, b"s.plan") == []
    elif how == "delete":
        world.request("STREAM.MSG.DELETE.S", {"seq": 1})
    else:
        world.request("STREAM.PURGE.S", {"filter": "s.plan"})
    world.advance(30)
    world.advance(30)
    assert held(world) == []
    assert not [key for key in world.stream().log.positions() if key.startswith(b"eyot.schedule.")]


def test_the_content_of_another_subject(world: World) -> None:
    put(world, at(10), payload=b"own", Schedule_Source="s.state", Schedule_Rollup="sub")
    put(world, at(20), b"s.plan2", payload=b"own", Schedule_Source="s.state", Schedule_Rollup="sub")
    world.advance(11)
    assert [payload for _, payload in held(world)] == [b"own"]
    world.put(b"s.state", b"21.5", {"Unit": "C", "Nats-Msg-Id": "q"})
    world.advance(10)
    made = b"NATS/1.0\r\nUnit: C\r\nNats-Scheduler: s.plan2\r\nNats-Schedule-Next: purge\r\nNats-Rollup: sub\r\n\r\n"
    assert held(world) == [(made, b"21.5")]


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
def test_refusals(world: World, pattern: str, more: dict[str, str], code: int) -> None:
    assert put(world, pattern, **more) == code
    assert world.stream().log.state.last_seq == 0


def test_nobody_else_speaks_for_a_scheduler(world: World) -> None:
    for header in (
        {"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "2030-01-01T00:00:00Z"},
        {"Nats-Scheduler": "s.*", "Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "s.x", "Nats-Schedule-Next": "purge"},
        {"Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "s.plan"},
    ):
        assert world.put(b"s.x", b"", header)["error"]["err_code"] == 10212


def test_streams_without_schedules_refuse_them(world: World) -> None:
    world.create("N")
    assert (
        world.put(b"n.a", b"", {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "n.b"})["error"]["err_code"] == 10188
    )
    world.create("T", allow_msg_schedules=True)
    header = {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "t.b", "Nats-Schedule-TTL": "1h"}
    assert world.put(b"t.a", b"", header)["error"]["err_code"] == 10166


def test_what_cannot_be_stored_when_it_is_due_is_tried_again(tmp_path: Path) -> None:
    options = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20)
    world = World(tmp_path, clock=ManualClock(START), store_options=options)
    world.create(allow_msg_schedules=True)
    put(world, at(10), payload=b"x" * 50_000)
    while "error" not in world.put(b"s.fill", b"x" * 20_000):
        pass
    world.advance(11)
    assert held(world) == []
    world.request("STREAM.PURGE.S", {"filter": "s.fill"})
    for _ in range(4):
        world.advance(1)
    assert len(held(world)) == 1
    assert held(world, b"s.plan") == []


def test_the_table_outlives_a_refused_batch(tmp_path: Path) -> None:
    world = World(tmp_path, clock=ManualClock(START))
    world.create(allow_msg_schedules=True, allow_atomic=True)
    put(world, at(10))
    world.publish(b"s.plan", b"", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"})
    header = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1", "Nats-Expected-Stream": "X"}
    assert world.put(b"s.plan", b"", header)["error"]["err_code"] == 10060
    world.advance(11)
    assert len(held(world)) == 1


def test_consumers_get_what_is_made_like_anything_else(tmp_path: Path) -> None:
    world = World(tmp_path, clock=ManualClock(START))
    world.create(allow_msg_schedules=True, max_msgs_per_subject=2, republish={"src": "s.made", "dest": "again"})
    world.account.subscribe(b"again", world.inbox)
    put(world, "@every 1s")
    for _ in range(5):
        world.advance(1)
    assert len(held(world)) == 2
    assert len([got for got in world.inbox.got if got.subject == b"again"]) >= 4
