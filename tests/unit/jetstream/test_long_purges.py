"""Purges, expiry and lowered limits that take away much: in slices, with the same outcome, and with others' turns in between."""

from pathlib import Path

import pytest

from eyot_daemon.jetstream.retention import limits
from support.jetstream.fixture import Fixture


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fixture:
    monkeypatch.setattr(limits, "PURGE_SLICE", 10)
    monkeypatch.setattr("eyot_store.log.removals.SCAN_MAX", 40)
    monkeypatch.setattr(limits, "ENFORCED_MAX", 10)
    return Fixture(tmp_path / "store")


def filled(fixture: Fixture, count: int = 100, **config: object) -> None:
    fixture.create(**config)
    for number in range(count):
        fixture.publish(b"s.%d" % (number % 5), b"%d" % number)
    fixture.commit()
    for seq in (20, 21, 50):
        fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})


def seqs(fixture: Fixture) -> list[int]:
    return [seq for seq, _ in fixture.held()]


LIVE = [seq for seq in range(1, 101) if seq not in (20, 21, 50)]


def test_a_purge_up_to_a_sequence(fixture: Fixture) -> None:
    filled(fixture)
    before = fixture.store.stats.commits
    assert fixture.request("STREAM.PURGE.S", {"seq": 60})["purged"] == 56
    assert fixture.store.stats.commits - before >= 5
    assert seqs(fixture) == list(range(60, 101))
    assert fixture.request("STREAM.INFO.S")["state"]["num_subjects"] == 5
    assert fixture.restart().stream().log.state.messages == 41


def test_a_purge_that_keeps_the_newest(fixture: Fixture) -> None:
    filled(fixture)
    assert fixture.request("STREAM.PURGE.S", {"keep": 55})["purged"] == 42
    assert seqs(fixture) == LIVE[42:]


def test_a_purge_of_a_subject(fixture: Fixture) -> None:
    filled(fixture)
    before = fixture.store.stats.commits
    gone = [seq for seq in LIVE if seq % 5 == 3]
    assert fixture.request("STREAM.PURGE.S", {"filter": "s.2"})["purged"] == len(gone) == 20
    assert fixture.store.stats.commits - before >= 2
    assert seqs(fixture) == [seq for seq in LIVE if seq not in gone]


def test_a_purge_of_a_subject_that_keeps_some_or_stops_at_a_sequence(fixture: Fixture) -> None:
    filled(fixture)
    assert fixture.request("STREAM.PURGE.S", {"filter": "s.2", "keep": 3})["purged"] == 17
    assert [seq for seq in seqs(fixture) if seq % 5 == 3] == [88, 93, 98]
    assert fixture.request("STREAM.PURGE.S", {"filter": "s.3", "seq": 70})["purged"] == 14
    assert [seq for seq in seqs(fixture) if seq % 5 == 4] == [74, 79, 84, 89, 94, 99]


def test_what_is_published_meanwhile_stays(fixture: Fixture) -> None:
    filled(fixture)
    reply = fixture.publish(b"$JS.API.STREAM.PURGE.S", b'{"filter":"s.2"}')
    fixture.broker.flush()
    fixture.store.commit_now()  # the first slice is through, the others are not
    assert fixture.answer(reply) is None
    fixture.publish(b"s.2", b"late")
    fixture.commit()
    assert fixture.answer(reply) is not None
    assert [seq for seq in seqs(fixture) if seq % 5 == 3 or seq > 100] == [101]


def test_expiry_goes_by_slices(fixture: Fixture) -> None:
    filled(fixture, 60, max_age=int(10e9))
    fixture.advance(5)
    for number in range(60):
        fixture.publish(b"s.0", b"young %d" % number)
    fixture.commit()
    before = fixture.store.stats.commits
    fixture.advance(6)
    for _ in range(20):
        fixture.advance(0.05)
    assert seqs(fixture) == list(range(61, 121))
    assert fixture.store.stats.commits - before >= 5


def test_limits_that_were_lowered_come_into_force_by_slices(fixture: Fixture) -> None:
    filled(fixture)
    before = fixture.store.stats.commits
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 7})
    assert seqs(fixture) == list(range(94, 101))
    assert fixture.store.stats.commits - before >= 5
