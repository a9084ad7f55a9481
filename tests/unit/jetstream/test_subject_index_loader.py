"""What a stream knows of its subjects is gathered in slices when it is first needed: who asks waits, nobody else does, and the answers
are those that a walk at one stroke gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.stream import subject_index_loader
from eyot_store.log import reads as log_reads
from eyot_store.log import subjects as log_subjects
from support.js_consumers import ConsumerWorld

SUBJECTS, EACH = 10, 12
COUNT = SUBJECTS * EACH


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    monkeypatch.setattr(subject_index_loader, "SMALL", 5)
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(log_subjects, "WALK_MAX", 20)
    monkeypatch.setattr(log_reads, "WALK_MAX", 20)
    monkeypatch.setattr(log_reads, "SCAN_MAX", 10)
    return ConsumerWorld(tmp_path / "store")


def filled(world: ConsumerWorld, **config: Any) -> ConsumerWorld:
    """A stream whose subjects nobody has asked for."""
    world.create(allow_direct=True, **config)
    for number in range(COUNT):
        world.publish(b"s.%d" % (number % SUBJECTS), b"%d" % number)
    world.commit()
    world = world.restart()
    world.stream().log._subjects = None
    return world


def asked(world: ConsumerWorld, words: str, body: Any = None) -> bytes:
    """Ask, without letting timers run."""
    reply = world.publish(f"$JS.API.{words}".encode(), json.dumps(body).encode() if body is not None else b"")
    world.commit()
    return reply


def turns(world: ConsumerWorld) -> int:
    """Let everything come to its end; returns how many turns of timers that took."""
    count = 0
    while (deadline := world.broker.timers.next_deadline) is not None and deadline <= world.clock.monotonic():
        world.broker.timers.run_due(world.clock.monotonic(), limit=1)
        world.commit()
        count += 1
    return count


def test_information_waits_and_the_stream_goes_on(world: ConsumerWorld) -> None:
    world = filled(world)
    reply = asked(world, "STREAM.INFO.S", {"subjects_filter": ">"})
    listed = asked(world, "STREAM.LIST")
    for number in range(4):
        assert world.answer(reply) is None
        assert world.broker.timers.run_due(world.clock.monotonic(), limit=1)
        assert world.put(b"s.new", b"%d" % number)["seq"] == COUNT + number + 1
        world.request("STREAM.MSG.DELETE.S", {"seq": number + 1})
        world.request("STREAM.MSG.DELETE.S", {"seq": COUNT - number})
    assert turns(world) > 5
    info = json.loads(world.answer(reply) or b"{}")
    assert info["state"]["subjects"] == {
        **{f"s.{number}": EACH - (number < 4) - (number > 5) for number in range(SUBJECTS)},
        "s.new": 4,
    }
    assert json.loads(world.answer(listed) or b"{}")["streams"][0]["state"]["num_subjects"] == SUBJECTS + 1


def test_a_stream_that_goes_meanwhile(world: ConsumerWorld) -> None:
    world = filled(world)
    reply = asked(world, "STREAM.INFO.S", {"subjects_filter": ">"})
    world.broker.timers.run_due(world.clock.monotonic(), limit=1)
    world.request("STREAM.DELETE.S")
    turns(world)
    assert world.answer(reply) is not None


@pytest.mark.parametrize(
    ("body", "seq"),
    [
        ({"last_by_subj": "s.3"}, COUNT - 16),
        ({"next_by_subj": "s.rare", "seq": 2}, COUNT + 1),
        ({"next_by_subj": "s.4", "seq": 2}, 5),
        ({"next_by_subj": "s.none", "seq": 2}, None),
    ],
)
def test_single_messages_far_away(world: ConsumerWorld, body: dict[str, Any], seq: int | None) -> None:
    world = filled(world)
    world.put(b"s.rare")
    world.stream().log._subjects = None
    assert turns(world) == 0
    reply = asked(world, "STREAM.INFO.S")
    turns(world)
    assert world.answer(reply)
    log = world.stream().log
    world.request("STREAM.MSG.DELETE.S", {"seq": COUNT - 6})  # the last of s.3
    assert log.subjects().table.get(b"s.3") == (EACH - 1, 4, 0)
    reply, direct = asked(world, "STREAM.MSG.GET.S", body), asked(world, "DIRECT.GET.S", body)
    far = seq is None or seq > 20
    assert (world.answer(reply) is None) == far
    assert (turns(world) > 5) == far
    assert log.subjects().tracked == far
    found = json.loads(world.answer(reply) or b"")
    assert found.get("message", {}).get("seq") == seq
    assert ("error" in found) == (seq is None)
    assert world.answer(direct) is not None


@pytest.mark.parametrize("policy", ["by_start_sequence", "all"])
def test_consumers_are_told_what_is_pending(world: ConsumerWorld, policy: str) -> None:
    world = filled(world)
    config = {"name": "C", "filter_subject": "s.7", "deliver_policy": policy, "ack_policy": "explicit"}
    if policy == "by_start_sequence":
        config |= {"opt_start_seq": COUNT // 2 + 1}
    reply = asked(world, "CONSUMER.CREATE.S.C.s.7", {"stream_name": "S", "config": config})
    assert world.answer(reply) is None
    assert turns(world) > 5
    info = json.loads(world.answer(reply) or b"{}")
    assert info["num_pending"] == (EACH if policy == "all" else EACH // 2)
    refused = asked(world, "CONSUMER.CREATE.S.C.s.8", {"stream_name": "S", "config": config})
    turns(world)
    assert json.loads(world.answer(refused) or b"{}")["error"]["err_code"] == 10131


def test_a_bucket_makes_room_when_it_knows_for_whom(world: ConsumerWorld) -> None:
    """Puts are stored meanwhile; what they replace goes afterwards."""
    world = filled(world, max_msgs_per_subject=EACH)
    log = world.stream().log
    for number in range(3):
        assert world.put(b"s.0", b"%d" % number)["seq"] == COUNT + number + 1
    assert log.state.messages == COUNT + 3
    assert not log.subjects_known
    assert turns(world) > 5
    assert (log.state.messages, log.subject_count(b"s.0"), log.first_seq_for(b"s.0")) == (COUNT, EACH, 31)
