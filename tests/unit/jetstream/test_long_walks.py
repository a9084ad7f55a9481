"""What has to look at a whole stream does so in slices: with the same outcome, with others' turns in between, and over restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.retention import limits, retention
from eyot_daemon.router.retired import REMOVED_MAX
from eyot_store.log import reads as log_reads
from eyot_store.log import subjects as log_subjects
from eyot_wire import headers
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.fixture import Fixture

pytestmark = pytest.mark.quick_machine

SUBJECTS, EACH = 10, 12
COUNT = SUBJECTS * EACH


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerFixture:
    monkeypatch.setattr(retention, "SWEEP_SLICE", 7)
    monkeypatch.setattr(limits, "ENFORCED_MAX", 7)
    monkeypatch.setattr("eyot_store.log.removals._CHUNK", 5)
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(log_reads, "SCAN_MAX", 16)
    return ConsumerFixture(tmp_path / "store")


def filled(fixture: Fixture, **config: Any) -> None:
    fixture.create(**config)
    for number in range(COUNT):
        fixture.publish(b"s.%d" % (number % SUBJECTS), b"%d" % number)
    fixture.commit()


def seqs(fixture: Fixture) -> list[int]:
    log = fixture.stream().log
    found: list[int] = []
    seq = 1
    while seq <= log.committed_seq:
        read = log.read(seq, max_messages=1000, max_bytes=1 << 20)
        found += [message.seq for message in read.messages]
        seq = read.next_seq
    return found


def update(fixture: Fixture, **config: Any) -> None:
    """Ask for another configuration; the answer comes, and nothing that takes long is done yet."""
    reply = fixture.publish(
        b"$JS.API.STREAM.UPDATE.S", json.dumps({"name": "S", "subjects": ["s.>"], **config}).encode()
    )
    fixture.broker.flush()
    fixture.store.commit_now()
    fixture.broker.flush()
    assert b'"error"' not in (fixture.answer(reply) or b'"error"')


def turns(fixture: Fixture) -> int:
    """Let everything come to its end; returns how many turns of timers that took."""
    count = 0
    while True:
        deadline = fixture.broker.timers.next_deadline
        if deadline is None or deadline > fixture.clock.monotonic():
            return count
        fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
        fixture.commit()
        count += 1


NEWEST = {keep: list(range(COUNT - keep * SUBJECTS + 1, COUNT + 1)) for keep in (1, 2, 3)}


def test_fewer_messages_for_each_subject(fixture: ConsumerFixture) -> None:
    filled(fixture)
    update(fixture, max_msgs_per_subject=2)
    assert len(seqs(fixture)) > COUNT - 20
    assert turns(fixture) > 5
    assert seqs(fixture) == NEWEST[2]
    assert set(dict(fixture.stream().log.subject_totals(b">")).values()) == {2}
    assert retention.KEY not in fixture.stream().log.positions()


def test_others_are_answered_in_between_and_what_they_publish_is_right(fixture: ConsumerFixture) -> None:
    filled(fixture)
    update(fixture, max_msgs_per_subject=2)
    for number in range(SUBJECTS):
        deadline = fixture.broker.timers.next_deadline
        assert deadline is not None
        fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
        assert fixture.put(b"s.%d" % number, b"new")["seq"] == COUNT + number + 1
        assert fixture.request("STREAM.INFO.S")["state"]["last_seq"] == COUNT + number + 1
    turns(fixture)
    assert seqs(fixture) == list(range(COUNT - SUBJECTS + 1, COUNT + SUBJECTS + 1))


def test_a_limit_that_is_lowered_again_meanwhile(fixture: ConsumerFixture) -> None:
    filled(fixture)
    update(fixture, max_msgs_per_subject=3)
    fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
    update(fixture, max_msgs_per_subject=1)
    turns(fixture)
    assert seqs(fixture) == NEWEST[1]


def test_a_limit_that_is_lifted_meanwhile_takes_nothing_more(fixture: ConsumerFixture) -> None:
    filled(fixture)
    update(fixture, max_msgs_per_subject=1)
    fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
    fixture.commit()
    left = seqs(fixture)
    update(fixture)
    turns(fixture)
    assert seqs(fixture) == left
    assert retention.KEY not in fixture.stream().log.positions()


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_in_the_midst_goes_on(fixture: ConsumerFixture, crash: bool) -> None:
    filled(fixture)
    update(fixture, max_msgs_per_subject=2)
    fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
    fixture.commit()
    assert len(seqs(fixture)) > len(NEWEST[2])
    again = fixture.crash() if crash else fixture.restart()
    turns(again)
    assert seqs(again) == NEWEST[2]
    assert turns(again.restart()) == 0


def test_a_write_that_fails_is_tried_again(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from eyot_store.errors import StoreError

    filled(fixture)
    update(fixture, max_msgs_per_subject=2)
    committer = fixture.store._committer
    with monkeypatch.context() as broken:
        broken.setattr(committer, "commit", lambda group: [StoreError("io", "as expected")] * len(group))
        turns(fixture)
    assert len(seqs(fixture)) == COUNT
    fixture.clock.advance(retention.RETRY_S)
    turns(fixture)
    assert seqs(fixture) == NEWEST[2]


def test_interest_that_comes_into_force(fixture: ConsumerFixture) -> None:
    filled(fixture)
    for name, subject in (("A", "s.1"), ("B", "s.2")):
        assert "error" not in fixture.add(name, ack_policy="explicit", filter_subject=subject)
    update(fixture, retention="interest")
    assert len(seqs(fixture)) > COUNT - 20
    assert turns(fixture) > 5
    assert seqs(fixture) == [seq for seq in range(1, COUNT + 1) if (seq - 1) % SUBJECTS in (1, 2)]
    reply = fixture.publish(b"$JS.API.CONSUMER.DELETE.S.B")
    fixture.commit()
    assert b'"success":true' in (fixture.answer(reply) or b"")
    turns(fixture)
    assert seqs(fixture) == [seq for seq in range(1, COUNT + 1) if (seq - 1) % SUBJECTS == 1]
    fixture.request("CONSUMER.DELETE.S.A")
    assert seqs(fixture) == []


def test_sequences_are_gathered_beside_what_goes_on(fixture: ConsumerFixture) -> None:
    """A sparse filter makes the log worth tracking: that happens in slices, and nothing is missed meanwhile."""
    filled(fixture, max_msgs=1000)
    log = fixture.stream().log
    log.subjects()
    assert log.read(1, max_messages=10, max_bytes=1 << 20, filters=(b"s.none",)).messages == []
    number = 0
    while not log.subjects().tracked:
        assert fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
        number += 1
        fixture.put(b"s.new", b"%d" % number)
        fixture.request("STREAM.MSG.DELETE.S", {"seq": number})
        fixture.request("STREAM.MSG.DELETE.S", {"seq": COUNT - number})
    assert number > 5
    tracked = sorted(log.subjects().matching(b">"))
    log.index.loaded = None
    fresh = sorted(log.track().matching(b">"))
    assert tracked == fresh


def test_a_purge_meanwhile_begins_anew(fixture: ConsumerFixture) -> None:
    filled(fixture)
    log = fixture.stream().log
    log.subjects()
    assert not log.track_some()
    fixture.request("STREAM.PURGE.S", {"keep": 30})
    while not log.track_some():
        pass
    assert [count for _, count, _, _ in log.subjects().matching(b">")] == [3] * SUBJECTS


def test_a_subject_whose_oldest_is_far_away_is_cut_down_a_little_later(fixture: ConsumerFixture) -> None:
    filled(fixture, max_msgs_per_subject=EACH)
    fixture = fixture.restart()  # the numbers come from one pass, sequences are not kept
    log = fixture.stream().log
    for number in range(3):
        fixture.publish(b"s.0", b"more %d" % number)
        fixture.commit()
    assert log.subject_count(b"s.0") >= EACH
    turns(fixture)
    assert log.subjects().tracked
    assert log.subject_count(b"s.0") == EACH
    assert [seq for seq in seqs(fixture) if seq <= COUNT and (seq - 1) % SUBJECTS == 0] == list(
        range(31, COUNT, SUBJECTS)
    )


def test_a_log_too_large_to_be_tracked_is_walked_instead(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (log_subjects, log_reads, retention):
        monkeypatch.setattr(room, "TRACKED_MESSAGES_MAX", 50)
    filled(fixture, max_msgs_per_subject=EACH)
    fixture = fixture.restart()
    for number in range(3):
        fixture.publish(b"s.0", b"more %d" % number)
        fixture.commit()
    turns(fixture)
    log = fixture.stream().log
    assert not log.subjects().tracked
    assert log.subject_count(b"s.0") == EACH


def test_a_key_that_is_put_several_times_in_a_turn_needs_no_look_at_the_stream(fixture: ConsumerFixture) -> None:
    filled(fixture, max_msgs_per_subject=EACH)
    update(fixture, max_msgs_per_subject=1)
    turns(fixture)
    fixture.js.stop()
    fixture.store.close()
    fixture = ConsumerFixture(fixture.path)
    for number in range(100):
        fixture.publish(b"s.more.%d" % number)
    fixture.commit()
    for number in range(4):
        fixture.publish(b"s.0", b"more %d" % number)
    fixture.commit()
    assert turns(fixture) == 0
    log = fixture.stream().log
    assert not log.subjects().tracked
    assert (log.subject_count(b"s.0"), log.first_seq_for(b"s.0")) == (1, log.state.last_seq)


@pytest.mark.parametrize("tracked", [False, True])
def test_the_last_of_some_subjects_as_of_long_ago(fixture: ConsumerFixture, tracked: bool) -> None:
    filled(fixture, allow_direct=True)
    for seq in (18, 28):  # of s.7, which is left with 8 below 38
        fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})
    if tracked:
        fixture.stream().log.track()
    asked = {"multi_last": ["s.1", "s.7", "s.9"], "up_to_seq": 36}
    reply = fixture.publish(b"$JS.API.DIRECT.GET.S", json.dumps(asked).encode())
    fixture.commit()
    assert fixture.put(b"s.7", b"new")["seq"] == COUNT + 1
    assert (turns(fixture) >= 5) != tracked
    answers = [got.header for got in fixture.inbox.got if got.subject == reply]
    assert [headers.get(header, b"Nats-Sequence") for header in answers[:-1]] == [b"8", b"30", b"32"]
    assert [headers.get(header, b"Nats-Num-Pending") for header in answers] == [b"2", b"1", b"0", b"0"]
    assert headers.status(answers[-1]) == (204, "EOB")


@pytest.mark.parametrize("filters", [["s.1", "s.7"], []])
def test_counting_from_the_middle_of_a_stream_too_large_to_track(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch, filters: list[str]
) -> None:
    monkeypatch.setattr(log_subjects, "TRACKED_MESSAGES_MAX", 10)
    monkeypatch.setattr(log_reads, "TRACKED_MESSAGES_MAX", 10)
    monkeypatch.setattr(log_reads, "WALK_MAX", 5)
    filled(fixture)
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 100})  # no subject of the filters, but a gap
    config = {"durable_name": "c", "deliver_policy": "by_start_sequence", "opt_start_seq": 41, "ack_policy": "none"}
    config |= {"filter_subjects": filters}
    body = json.dumps({"stream_name": "S", "config": config}).encode()
    reply = fixture.publish(b"$JS.API.CONSUMER.CREATE.S.c", body)
    fixture.commit()
    fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
    assert fixture.answer(reply) is None
    assert fixture.put(b"s.1", b"meanwhile")["seq"] == COUNT + 1
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 2})  # s.1, counted already
    fixture.request("STREAM.MSG.DELETE.S", {"seq": 118})  # s.7, above where it begins
    assert turns(fixture) >= 1
    answer = json.loads(fixture.answer(reply) or b"{}")
    assert answer["num_pending"] == (16 if filters else 79)


def acknowledge(fixture: Fixture, consumer: str) -> int:
    """Publish an acknowledgement; return how many took it."""
    return fixture.account.publish(b"$JS.ACK.S.%b.1.1.1.1.0" % consumer.encode(), origin=fixture.client)


def test_the_consumers_of_a_deleted_stream_end_at_once_and_their_subscriptions_by_slices(fixture: Fixture) -> None:
    fixture.create()
    names = [f"c{number}" for number in range(REMOVED_MAX)]
    for name in names:
        config = {"durable_name": name, "ack_policy": "explicit", "deliver_subject": "d", "flow_control": True}
        config |= {"idle_heartbeat": 1_000_000_000}
        fixture.request(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    before = len(list(fixture.account.subscriptions()))
    reply = fixture.publish(b"$JS.API.STREAM.DELETE.S")
    fixture.commit()
    assert fixture.answer(reply) is not None
    left = len(list(fixture.account.subscriptions()))
    assert before - REMOVED_MAX - 2 <= left < before, "some of them in this turn; two of the stream"
    assert not any(acknowledge(fixture, name) for name in names)
    # A stream of the same name has nothing to do with what is left.
    fixture.create()
    config = {"durable_name": "c1", "ack_policy": "explicit"}
    fixture.request("CONSUMER.CREATE.S.c1", {"stream_name": "S", "config": config})
    fixture.run_on()
    assert acknowledge(fixture, "c1")
    assert len(list(fixture.account.subscriptions())) < before - REMOVED_MAX
