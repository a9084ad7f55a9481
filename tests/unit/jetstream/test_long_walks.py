"""What has to look at a whole stream does so in slices: with the same outcome, with others' turns in between, and over restarts."""

import json
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.retention import limits, sweep
from eyot_store.log import reads as log_reads
from eyot_store.log import subjects as log_subjects
from eyot_wire import headers
from support.js_consumers import ConsumerWorld
from support.js_fixture import World

SUBJECTS, EACH = 10, 12
COUNT = SUBJECTS * EACH


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    monkeypatch.setattr(sweep, "SWEEP_SLICE", 7)
    monkeypatch.setattr(limits, "ENFORCED_MAX", 7)
    monkeypatch.setattr("eyot_store.log.removals._CHUNK", 5)
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(log_reads, "SCAN_MAX", 16)
    return ConsumerWorld(tmp_path / "store")


def filled(world: World, **config: Any) -> None:
    world.create(**config)
    for number in range(COUNT):
        world.publish(b"s.%d" % (number % SUBJECTS), b"%d" % number)
    world.commit()


def seqs(world: World) -> list[int]:
    log = world.stream().log
    found: list[int] = []
    seq = 1
    while seq <= log.committed_seq:
        read = log.read(seq, max_messages=1000, max_bytes=1 << 20)
        found += [message.seq for message in read.messages]
        seq = read.next_seq
    return found


def update(world: World, **config: Any) -> None:
    """Ask for another configuration; the answer comes, and nothing that takes long is done yet."""
    reply = world.publish(b"$JS.API.STREAM.UPDATE.S", json.dumps({"name": "S", "subjects": ["s.>"], **config}).encode())
    world.broker.flush()
    world.store.commit_now()
    world.broker.flush()
    assert b'"error"' not in (world.answer(reply) or b'"error"')


def turns(world: World) -> int:
    """Let everything come to its end; returns how many turns of timers that took."""
    count = 0
    while True:
        deadline = world.broker.timers.next_deadline
        if deadline is None or deadline > world.clock.monotonic():
            return count
        world.broker.timers.run_due(world.clock.monotonic(), limit=1)
        world.commit()
        count += 1


NEWEST = {keep: list(range(COUNT - keep * SUBJECTS + 1, COUNT + 1)) for keep in (1, 2, 3)}


def test_fewer_messages_for_each_subject(world: ConsumerWorld) -> None:
    filled(world)
    update(world, max_msgs_per_subject=2)
    assert len(seqs(world)) > COUNT - 20
    assert turns(world) > 5
    assert seqs(world) == NEWEST[2]
    assert set(dict(world.stream().log.subject_totals(b">")).values()) == {2}
    assert sweep.KEY not in world.stream().log.positions()


def test_others_are_answered_in_between_and_what_they_publish_is_right(world: ConsumerWorld) -> None:
    filled(world)
    update(world, max_msgs_per_subject=2)
    for number in range(SUBJECTS):
        deadline = world.broker.timers.next_deadline
        assert deadline is not None
        world.broker.timers.run_due(world.clock.monotonic(), limit=1)
        assert world.put(b"s.%d" % number, b"new")["seq"] == COUNT + number + 1
        assert world.request("STREAM.INFO.S")["state"]["last_seq"] == COUNT + number + 1
    turns(world)
    assert seqs(world) == list(range(COUNT - SUBJECTS + 1, COUNT + SUBJECTS + 1))


def test_a_limit_that_is_lowered_again_meanwhile(world: ConsumerWorld) -> None:
    filled(world)
    update(world, max_msgs_per_subject=3)
    world.broker.timers.run_due(world.clock.monotonic(), limit=1)
    update(world, max_msgs_per_subject=1)
    turns(world)
    assert seqs(world) == NEWEST[1]


def test_a_limit_that_is_lifted_meanwhile_takes_nothing_more(world: ConsumerWorld) -> None:
    filled(world)
    update(world, max_msgs_per_subject=1)
    world.broker.timers.run_due(world.clock.monotonic(), limit=1)
    world.commit()
    left = seqs(world)
    update(world)
    turns(world)
    assert seqs(world) == left
    assert sweep.KEY not in world.stream().log.positions()


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_in_the_midst_goes_on(world: ConsumerWorld, crash: bool) -> None:
    filled(world)
    update(world, max_msgs_per_subject=2)
    world.broker.timers.run_due(world.clock.monotonic(), limit=1)
    world.commit()
    assert len(seqs(world)) > len(NEWEST[2])
    again = world.crash() if crash else world.restart()
    turns(again)
    assert seqs(again) == NEWEST[2]
    assert turns(again.restart()) == 0


def test_a_write_that_fails_is_tried_again(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from eyot_store.errors import StoreError

    filled(world)
    update(world, max_msgs_per_subject=2)
    committer = world.store._committer
    with monkeypatch.context() as broken:
        broken.setattr(committer, "commit", lambda group: [StoreError("io", "as expected")] * len(group))
        turns(world)
    assert len(seqs(world)) == COUNT
    world.clock.advance(sweep.RETRY_S)
    turns(world)
    assert seqs(world) == NEWEST[2]


def test_interest_that_comes_into_force(world: ConsumerWorld) -> None:
    filled(world)
    for name, subject in (("A", "s.1"), ("B", "s.2")):
        assert "error" not in world.add(name, ack_policy="explicit", filter_subject=subject)
    update(world, retention="interest")
    assert len(seqs(world)) > COUNT - 20
    assert turns(world) > 5
    assert seqs(world) == [seq for seq in range(1, COUNT + 1) if (seq - 1) % SUBJECTS in (1, 2)]
    reply = world.publish(b"$JS.API.CONSUMER.DELETE.S.B")
    world.commit()
    assert b'"success":true' in (world.answer(reply) or b"")
    turns(world)
    assert seqs(world) == [seq for seq in range(1, COUNT + 1) if (seq - 1) % SUBJECTS == 1]
    world.request("CONSUMER.DELETE.S.A")
    assert seqs(world) == []


def test_sequences_are_gathered_beside_what_goes_on(world: ConsumerWorld) -> None:
    """A sparse filter makes the log worth tracking: that happens in slices, and nothing is missed meanwhile."""
    filled(world, max_msgs=1000)
    log = world.stream().log
    log.subjects()
    assert log.read(1, max_messages=10, max_bytes=1 << 20, filters=(b"s.none",)).messages == []
    number = 0
    while not log.subjects().tracked:
        assert world.broker.timers.run_due(world.clock.monotonic(), limit=1)
        number += 1
        world.put(b"s.new", b"%d" % number)
        world.request("STREAM.MSG.DELETE.S", {"seq": number})
        world.request("STREAM.MSG.DELETE.S", {"seq": COUNT - number})
    assert number > 5
    tracked = sorted(log.subjects().matching(b">"))
    log._subjects = None
    fresh = sorted(log.track().matching(b">"))
    assert tracked == fresh


def test_a_purge_meanwhile_begins_anew(world: ConsumerWorld) -> None:
    filled(world)
    log = world.stream().log
    log.subjects()
    assert not log.track_some()
    world.request("STREAM.PURGE.S", {"keep": 30})
    while not log.track_some():
        pass
    assert [count for _, count, _, _ in log.subjects().matching(b">")] == [3] * SUBJECTS


def test_a_subject_whose_oldest_is_far_away_is_cut_down_a_little_later(world: ConsumerWorld) -> None:
    filled(world, max_msgs_per_subject=EACH)
    world = world.restart()  # the numbers come from one pass, sequences are not kept
    log = world.stream().log
    for number in range(3):
        world.publish(b"s.0", b"more %d" % number)
        world.commit()
    assert log.subject_count(b"s.0") >= EACH
    turns(world)
    assert log.subjects().tracked
    assert log.subject_count(b"s.0") == EACH
    assert [seq for seq in seqs(world) if seq <= COUNT and (seq - 1) % SUBJECTS == 0] == list(
        range(31, COUNT, SUBJECTS)
    )


def test_a_log_too_large_to_be_tracked_is_walked_instead(world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (log_subjects, log_reads, sweep):
        monkeypatch.setattr(room, "TRACKED_MESSAGES_MAX", 50)
    filled(world, max_msgs_per_subject=EACH)
    world = world.restart()
    for number in range(3):
        world.publish(b"s.0", b"more %d" % number)
        world.commit()
    turns(world)
    log = world.stream().log
    assert not log.subjects().tracked
    assert log.subject_count(b"s.0") == EACH


def test_a_key_that_is_put_several_times_in_a_turn_needs_no_look_at_the_stream(world: ConsumerWorld) -> None:
    filled(world, max_msgs_per_subject=EACH)
    update(world, max_msgs_per_subject=1)
    turns(world)
    world.js.stop()
    world.store.close()
    world = ConsumerWorld(world.path)
    for number in range(100):
        world.publish(b"s.more.%d" % number)
    world.commit()
    for number in range(4):
        world.publish(b"s.0", b"more %d" % number)
    world.commit()
    assert turns(world) == 0
    log = world.stream().log
    assert not log.subjects().tracked
    assert (log.subject_count(b"s.0"), log.first_seq_for(b"s.0")) == (1, log.state.last_seq)


@pytest.mark.parametrize("tracked", [False, True])
def test_the_last_of_some_subjects_as_of_long_ago(world: ConsumerWorld, tracked: bool) -> None:
    filled(world, allow_direct=True)
    for seq in (18, 28):  # of s.7, which is left with 8 below 38
        world.request("STREAM.MSG.DELETE.S", {"seq": seq})
    if tracked:
        world.stream().log.track()
    asked = {"multi_last": ["s.1", "s.7", "s.9"], "up_to_seq": 36}
    reply = world.publish(b"$JS.API.DIRECT.GET.S", json.dumps(asked).encode())
    world.commit()
    assert world.put(b"s.7", b"new")["seq"] == COUNT + 1
    assert (turns(world) >= 5) != tracked
    answers = [got.header for got in world.inbox.got if got.subject == reply]
    assert [headers.get(header, b"Nats-Sequence") for header in answers[:-1]] == [b"8", b"30", b"32"]
    assert [headers.get(header, b"Nats-Num-Pending") for header in answers] == [b"2", b"1", b"0", b"0"]
    assert headers.status(answers[-1]) == (204, "EOB")


@pytest.mark.parametrize("filters", [["s.1", "s.7"], []])
def test_counting_from_the_middle_of_a_stream_too_large_to_track(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch, filters: list[str]
) -> None:
    monkeypatch.setattr(log_subjects, "TRACKED_MESSAGES_MAX", 10)
    monkeypatch.setattr(log_reads, "TRACKED_MESSAGES_MAX", 10)
    monkeypatch.setattr(log_reads, "WALK_MAX", 5)
    filled(world)
    world.request("STREAM.MSG.DELETE.S", {"seq": 100})  # no subject of the filters, but a gap
    config = {"durable_name": "c", "deliver_policy": "by_start_sequence", "opt_start_seq": 41, "ack_policy": "none"}
    config |= {"filter_subjects": filters}
    body = json.dumps({"stream_name": "S", "config": config}).encode()
    reply = world.publish(b"$JS.API.CONSUMER.CREATE.S.c", body)
    world.commit()
    world.broker.timers.run_due(world.clock.monotonic(), limit=1)
    assert world.answer(reply) is None
    assert world.put(b"s.1", b"meanwhile")["seq"] == COUNT + 1
    world.request("STREAM.MSG.DELETE.S", {"seq": 2})  # s.1, counted already
    world.request("STREAM.MSG.DELETE.S", {"seq": 118})  # s.7, above where it begins
    assert turns(world) >= 1
    answer = json.loads(world.answer(reply) or b"{}")
    assert answer["num_pending"] == (16 if filters else 79)
