"""The index of a stream's subjects loads in slices on first use: only requests that need it wait, and the answers are those of a
load in one go.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream import subject_index_loader
from eyot_store.log import reads as log_reads
from eyot_store.log import subjects as log_subjects
from eyot_store.records.record import ReadResult
from support.jetstream.consumers import ConsumerFixture

SUBJECTS, EACH = 10, 12
COUNT = SUBJECTS * EACH


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerFixture:
    monkeypatch.setattr(subject_index_loader, "SMALL", 5)
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(log_subjects, "WALK_MAX", 20)
    monkeypatch.setattr(log_reads, "WALK_MAX", 20)
    monkeypatch.setattr(log_reads, "SCAN_MAX", 10)
    return ConsumerFixture(tmp_path / "store")


def filled(fixture: ConsumerFixture, **config: Any) -> ConsumerFixture:
    """A stream whose subjects nobody has asked for."""
    fixture.create(allow_direct=True, **config)
    for number in range(COUNT):
        fixture.publish(b"s.%d" % (number % SUBJECTS), b"%d" % number)
    fixture.commit()
    fixture = fixture.restart()
    fixture.stream().log.index.loaded = None
    return fixture


def asked(fixture: ConsumerFixture, words: str, body: Any = None) -> bytes:
    """Ask, without letting timers run."""
    reply = fixture.publish(f"$JS.API.{words}".encode(), json.dumps(body).encode() if body is not None else b"")
    fixture.commit()
    return reply


def test_information_waits_and_the_stream_goes_on(fixture: ConsumerFixture) -> None:
    fixture = filled(fixture)
    reply = asked(fixture, "STREAM.INFO.S", {"subjects_filter": ">"})
    listed = asked(fixture, "STREAM.LIST")
    for number in range(4):
        assert fixture.answer(reply) is None
        assert fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
        assert fixture.put(b"s.new", b"%d" % number)["seq"] == COUNT + number + 1
        fixture.request("STREAM.MSG.DELETE.S", {"seq": number + 1})
        fixture.request("STREAM.MSG.DELETE.S", {"seq": COUNT - number})
    assert fixture.run_out() > 5
    info = json.loads(fixture.answer(reply) or b"{}")
    assert info["state"]["subjects"] == {
        **{f"s.{number}": EACH - (number < 4) - (number > 5) for number in range(SUBJECTS)},
        "s.new": 4,
    }
    assert json.loads(fixture.answer(listed) or b"{}")["streams"][0]["state"]["num_subjects"] == SUBJECTS + 1


def test_a_stream_that_goes_meanwhile(fixture: ConsumerFixture) -> None:
    fixture = filled(fixture)
    reply = asked(fixture, "STREAM.INFO.S", {"subjects_filter": ">"})
    fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
    fixture.request("STREAM.DELETE.S")
    fixture.run_out()
    assert fixture.answer(reply) is not None


@pytest.mark.parametrize(
    ("body", "seq"),
    [
        ({"last_by_subj": "s.3"}, COUNT - 16),
        ({"next_by_subj": "s.rare", "seq": 2}, COUNT + 1),
        ({"next_by_subj": "s.4", "seq": 2}, 5),
        ({"next_by_subj": "s.none", "seq": 2}, None),
    ],
)
def test_single_messages_far_away(fixture: ConsumerFixture, body: dict[str, Any], seq: int | None) -> None:
    fixture = filled(fixture)
    fixture.put(b"s.rare")
    fixture.stream().log.index.loaded = None
    assert fixture.run_out() == 0
    reply = asked(fixture, "STREAM.INFO.S")
    fixture.run_out()
    assert fixture.answer(reply)
    log = fixture.stream().log
    fixture.request("STREAM.MSG.DELETE.S", {"seq": COUNT - 6})  # the last of s.3
    assert log.subjects().table.get(b"s.3") == (EACH - 1, 4, 0)
    reply, direct = asked(fixture, "STREAM.MSG.GET.S", body), asked(fixture, "DIRECT.GET.S", body)
    far = seq is None or seq > 20
    assert (fixture.answer(reply) is None) == far
    assert (fixture.run_out() > 5) == far
    assert log.subjects().tracked == far
    found = json.loads(fixture.answer(reply) or b"")
    assert found.get("message", {}).get("seq") == seq
    assert ("error" in found) == (seq is None)
    assert fixture.answer(direct) is not None


@pytest.mark.parametrize("policy", ["by_start_sequence", "all"])
def test_consumers_are_told_what_is_pending(fixture: ConsumerFixture, policy: str) -> None:
    fixture = filled(fixture)
    config = {"name": "C", "filter_subject": "s.7", "deliver_policy": policy, "ack_policy": "explicit"}
    if policy == "by_start_sequence":
        config |= {"opt_start_seq": COUNT // 2 + 1}
    reply = asked(fixture, "CONSUMER.CREATE.S.C.s.7", {"stream_name": "S", "config": config})
    assert fixture.answer(reply) is None
    assert fixture.run_out() > 5
    info = json.loads(fixture.answer(reply) or b"{}")
    assert info["num_pending"] == (EACH if policy == "all" else EACH // 2)
    refused = asked(fixture, "CONSUMER.CREATE.S.C.s.8", {"stream_name": "S", "config": config})
    fixture.run_out()
    assert json.loads(fixture.answer(refused) or b"{}")["error"]["err_code"] == 10131


def test_a_bucket_makes_room_when_it_knows_for_whom(fixture: ConsumerFixture) -> None:
    """Puts are stored meanwhile; what they replace goes afterwards."""
    fixture = filled(fixture, max_msgs_per_subject=EACH)
    log = fixture.stream().log
    for number in range(3):
        assert fixture.put(b"s.0", b"%d" % number)["seq"] == COUNT + number + 1
    assert log.state.messages == COUNT + 3
    assert not log.subjects_known
    assert fixture.run_out() > 5
    assert (log.state.messages, log.subject_count(b"s.0"), log.first_seq_for(b"s.0")) == (COUNT, EACH, 31)


@pytest.mark.parametrize("words", ["last_by_subj", "next_by_subj"])
def test_those_that_waited_are_answered_in_order_over_several_turns(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Very many that waited took one turn: a second for a hundred gets of rare subjects in a large stream."""
    fixture = filled(fixture)
    monkeypatch.setattr(subject_index_loader, "_TURN_NS", -1)
    replies = [asked(fixture, "DIRECT.GET.S", {words: f"s.{number}"}) for number in range(8)]
    waited = answered = 0
    while fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1):
        fixture.commit()
        before, answered = answered, sum(fixture.answer(reply) is not None for reply in replies)
        assert [fixture.answer(reply) is not None for reply in replies] == sorted(
            (fixture.answer(reply) is not None for reply in replies), reverse=True
        )
        assert answered - before <= 1
        waited += 1
        if answered == 3:
            replies.append(asked(fixture, "DIRECT.GET.S", {words: "s.1"}))
            answered = sum(fixture.answer(reply) is not None for reply in replies)
        if (deadline := fixture.broker.timers.next_deadline) is None or deadline > fixture.clock.monotonic():
            break
    assert answered == len(replies)
    assert len(replies) >= 9


def test_one_that_fails_does_not_keep_the_others_waiting(
    fixture: ConsumerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = filled(fixture)
    loader = fixture.stream().subject_index_loader
    called: list[int] = []

    def fails() -> None:
        raise RuntimeError("planted")

    for fn in (fails, lambda: called.append(1), lambda: called.append(2)):
        loader.then(fn)
    fixture.run_out()
    assert "planted" in caplog.text
    loader.then(lambda: called.append(3))
    fixture.run_out()
    assert called == [1, 2, 3]


def test_a_near_message_is_searched_for_in_slices(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search in each turn; what was passed over is not read again, and whoever asks next gets what is there then."""
    fixture = filled(fixture)
    near = fixture.put(b"s.near")["seq"]
    for number in range(COUNT):
        fixture.publish(b"s.%d" % (number % SUBJECTS))
    fixture.commit()
    asked(fixture, "STREAM.INFO.S", {"subjects_filter": ">"})
    fixture.run_out()
    monkeypatch.setattr(log_reads, "_SLICE_NS", -1)
    monkeypatch.setattr(subject_index_loader, "_TURN_NS", -1)
    read_from: list[int] = []
    read = log_reads.LogReads.read

    def noted(reads: log_reads.LogReads, from_seq: int, **limits: Any) -> ReadResult:
        read_from.append(from_seq)
        return read(reads, from_seq, **limits)

    monkeypatch.setattr(log_reads.LogReads, "read", noted)
    body = {"next_by_subj": "s.near", "seq": near - 15}
    replies = [asked(fixture, "STREAM.MSG.GET.S", body) for _ in range(2)]
    assert read_from == [near - 15]
    assert [fixture.answer(reply) for reply in replies] == [None, None]
    assert fixture.run_out() >= 4
    assert [json.loads(fixture.answer(reply) or b"{}")["message"]["seq"] for reply in replies] == [near, near]
    assert read_from.count(near - 15) == 2
    fixture.request("STREAM.MSG.DELETE.S", {"seq": near})
    later = fixture.put(b"s.near")["seq"]
    reply = asked(fixture, "STREAM.MSG.GET.S", body)
    fixture.run_out()
    assert json.loads(fixture.answer(reply) or b"{}")["message"]["seq"] == later
