"""Purges, expiry and lowered limits that take away much: in slices, with the same outcome, and with others' turns in between."""

from pathlib import Path

import pytest

from eyot_daemon.jetstream.retention import limits, purging
from support.js_fixture import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(purging, "PURGE_SLICE", 10)
    monkeypatch.setattr(limits, "PURGE_SLICE", 10)
    monkeypatch.setattr(limits, "ENFORCED_MAX", 10)
    return World(tmp_path / "store")


def filled(world: World, count: int = 100, **config: object) -> None:
    world.create(**config)
    for number in range(count):
        world.publish(b"s.%d" % (number % 5), b"%d" % number)
    world.commit()
    for seq in (20, 21, 50):
        world.request("STREAM.MSG.DELETE.S", {"seq": seq})


def seqs(world: World) -> list[int]:
    return [seq for seq, _ in world.held()]


LIVE = [seq for seq in range(1, 101) if seq not in (20, 21, 50)]


def test_a_purge_up_to_a_sequence(world: World) -> None:
    filled(world)
    before = world.store.stats.commits
    assert world.request("STREAM.PURGE.S", {"seq": 60})["purged"] == 56
    assert world.store.stats.commits - before >= 5
    assert seqs(world) == list(range(60, 101))
    assert world.request("STREAM.INFO.S")["state"]["num_subjects"] == 5
    assert world.restart().stream().log.state.messages == 41


def test_a_purge_that_keeps_the_newest(world: World) -> None:
    filled(world)
    assert world.request("STREAM.PURGE.S", {"keep": 55})["purged"] == 42
    assert seqs(world) == LIVE[42:]


def test_a_purge_of_a_subject(world: World) -> None:
    filled(world)
    before = world.store.stats.commits
    gone = [seq for seq in LIVE if seq % 5 == 3]
    assert world.request("STREAM.PURGE.S", {"filter": "s.2"})["purged"] == len(gone) == 20
    assert world.store.stats.commits - before >= 2
    assert seqs(world) == [seq for seq in LIVE if seq not in gone]


def test_a_purge_of_a_subject_that_keeps_some_or_stops_at_a_sequence(world: World) -> None:
    filled(world)
    assert world.request("STREAM.PURGE.S", {"filter": "s.2", "keep": 3})["purged"] == 17
    assert [seq for seq in seqs(world) if seq % 5 == 3] == [88, 93, 98]
    assert world.request("STREAM.PURGE.S", {"filter": "s.3", "seq": 70})["purged"] == 14
    assert [seq for seq in seqs(world) if seq % 5 == 4] == [74, 79, 84, 89, 94, 99]


def test_what_is_published_meanwhile_stays(world: World) -> None:
    filled(world)
    reply = world.publish(b"$JS.API.STREAM.PURGE.S", b'{"filter":"s.2"}')
    world.broker.flush()
    world.store.commit_now()  # the first slice is through, the others are not
    assert world.answer(reply) is None
    world.publish(b"s.2", b"late")
    world.commit()
    assert world.answer(reply) is not None
    assert [seq for seq in seqs(world) if seq % 5 == 3 or seq > 100] == [101]


def test_expiry_goes_by_slices(world: World) -> None:
    filled(world, 60, max_age=int(10e9))
    world.advance(5)
    for number in range(60):
        world.publish(b"s.0", b"young %d" % number)
    world.commit()
    before = world.store.stats.commits
    world.advance(6)
    for _ in range(20):
        world.advance(0.05)
    assert seqs(world) == list(range(61, 121))
    assert world.store.stats.commits - before >= 5


def test_limits_that_were_lowered_come_into_force_by_slices(world: World) -> None:
    filled(world)
    before = world.store.stats.commits
    world.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 7})
    assert seqs(world) == list(range(94, 101))
    assert world.store.stats.commits - before >= 5
