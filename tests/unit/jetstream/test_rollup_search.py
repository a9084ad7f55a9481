"""Roll-ups whose messages have to be searched for: in slices, with the outcome of a stream that knows where they are."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from eyot_daemon.jetstream import subject_index_loader
from eyot_daemon.jetstream.ingest import rollup_search
from eyot_store.log import subjects as log_subjects
from eyot_store.log.subjects import SubjectIndex
from support.jetstream.consumers import ConsumerFixture

SUBJECTS, EACH = 10, 12
COUNT = SUBJECTS * EACH
ROLLUP = {"Nats-Rollup": "sub"}


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerFixture:
    monkeypatch.setattr(log_subjects, "KEYS_MAX", 5)
    monkeypatch.setattr(log_subjects, "_TRACK_READS", 2)
    monkeypatch.setattr(rollup_search, "WALK_MAX", 20)
    monkeypatch.setattr(subject_index_loader, "SMALL", 5)
    monkeypatch.setattr("eyot_store.log.removals._CHUNK", 4)
    fixture = ConsumerFixture(tmp_path / "store")
    fixture.create(allow_rollup_hdrs=True, allow_direct=True)
    for number in range(COUNT):
        fixture.publish(b"s.%d" % (number % SUBJECTS), b"%d" % number)
    fixture.commit()
    return fixture.restart()  # without what memory knows


@pytest.fixture(params=["tracked", "too large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stream that can be tracked, and one that is too large for it."""
    if request.param == "too large":
        for module in (log_subjects, rollup_search):
            monkeypatch.setattr(module, "TRACKED_MESSAGES_MAX", 50)
    return request.param


def seqs_of(fixture: ConsumerFixture) -> dict[bytes, list[int]]:
    """Return the sequences of each subject."""
    found: dict[bytes, list[int]] = {}
    for message in fixture.stream().log.read(1, max_messages=1000, max_bytes=1 << 20).messages:
        found.setdefault(message.subject, []).append(message.seq)
    return found


def answered(fixture: ConsumerFixture, reply: bytes) -> dict[str, object]:
    answer = fixture.answer(reply)
    assert answer is not None
    return json.loads(answer)


def test_others_have_their_turns_and_messages_keep_their_order(fixture: ConsumerFixture, size: str) -> None:
    fixture.create("OTHER", subjects=["other"])
    first = fixture.publish(b"s.3", b"rolled up", ROLLUP)
    fixture.commit()
    second = fixture.publish(b"s.4", b"behind it")
    third = fixture.publish(b"s.5", b"rolled up later", ROLLUP)
    fixture.commit()
    assert [fixture.answer(reply) for reply in (first, second, third)] == [None] * 3
    assert fixture.stream().log.state.last_seq == COUNT
    assert fixture.put(b"other", b"x")["seq"] == 1
    assert fixture.run_out() > 5
    assert [answered(fixture, reply)["seq"] for reply in (first, second, third)] == [COUNT + 1, COUNT + 2, COUNT + 3]
    left = seqs_of(fixture)
    assert left[b"s.3"] == [COUNT + 1]
    assert left[b"s.5"] == [COUNT + 3]
    assert left[b"s.4"] == [*range(5, COUNT + 1, SUBJECTS), COUNT + 2]
    assert fixture.stream().log.subjects().tracked == (size == "tracked")


def test_a_stream_that_is_deleted_meanwhile_answers(fixture: ConsumerFixture, size: str) -> None:
    reply = fixture.publish(b"s.3", b"rolled up", ROLLUP)
    fixture.commit()
    assert fixture.answer(reply) is None
    assert fixture.request("STREAM.DELETE.S")["success"]
    fixture.run_out()
    assert answered(fixture, reply)["error"]["err_code"] == 10059  # type: ignore[index]


def test_what_waits_counts_as_uncommitted(fixture: ConsumerFixture, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = fixture.stream().ingest_limiter
    monkeypatch.setattr(limiter, "_msgs_max", 10)
    replies = [fixture.publish(b"s.%d" % number, b"x", ROLLUP) for number in range(6)]
    fixture.commit()
    assert limiter.shut_gate() is limiter.gate
    opened: list[int] = []
    limiter.gate.wait(lambda: opened.append(1), 1e9)
    replies += [fixture.publish(b"s.1", b"x") for _ in range(6)]
    fixture.commit()
    fixture.run_out()
    assert opened == [1]
    assert limiter.shut_gate() is None
    outcomes = [answered(fixture, reply).get("seq", 0) for reply in replies]
    assert outcomes == [*range(COUNT + 1, COUNT + 11), 0, 0]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("seed", range(6))
def test_random_bursts_leave_what_they_leave_where_all_is_known(
    fixture: ConsumerFixture, size: str, storage: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two streams with the same messages, one is tracked from the beginning."""

    def play(name: str, *, known: bool) -> object:
        rng = Random(seed)
        prefix = name.encode().lower()
        fixture.create(name, subjects=[f"{name.lower()}.>"], allow_rollup_hdrs=True, storage=storage)
        log, replies = fixture.stream(name).log, []
        for number in range(COUNT):
            fixture.publish(b"%b.%d" % (prefix, number % SUBJECTS))
        fixture.commit()
        if known:
            with monkeypatch.context() as patched:
                patched.setattr(log_subjects, "TRACKED_MESSAGES_MAX", 1 << 30)
                log.track()
        for _ in range(30):
            for _ in range(rng.randrange(6)):
                subject = b"%b.%d" % (prefix, rng.randrange(SUBJECTS))
                header = {"Nats-Rollup": "all"} if rng.random() < 0.02 else rng.choice([{}, {}, ROLLUP])
                replies.append(fixture.publish(subject, b"x", header))
            if rng.random() < 0.4:
                fixture.commit()
            if rng.random() < 0.2:
                fixture.run_out()
        fixture.commit()
        fixture.run_out()
        read = log.read(1, max_messages=1000, max_bytes=1 << 20).messages
        left = [(message.seq, message.subject.removeprefix(prefix)) for message in read]
        counts = {subject.removeprefix(prefix): number for subject, number in log.subject_totals()}
        assert sum(counts.values()) == len(left) == log.state.messages
        return left, counts, log.state.first_seq, [answered(fixture, reply)["seq"] for reply in replies]

    assert play("A", known=False) == play("B", known=True)


def test_a_search_looks_at_each_record_once(fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many subjects are rolled up, and however many messages each has."""
    for module in (log_subjects, rollup_search):
        monkeypatch.setattr(module, "TRACKED_MESSAGES_MAX", 50)
    log = fixture.stream().log
    log.subjects()
    looked_at, heads = [], log.view.records.heads

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(records, name)

        def heads(self, first: int, last: int, limit: int) -> object:
            found = heads(first, last, limit)
            looked_at.extend(found[0])
            return found

    records = log.view.records
    monkeypatch.setattr(log.view, "records", Counting())
    for number in range(SUBJECTS):
        fixture.publish(b"s.%d" % number, b"x", ROLLUP)
    fixture.commit()
    fixture.run_out()
    assert log.state.messages == SUBJECTS
    assert len(looked_at) <= COUNT


def test_roll_ups_of_few_messages_do_not_wait(fixture: ConsumerFixture) -> None:
    fixture.stream().log.subjects()
    for number in range(3):
        assert fixture.put(b"s.new", b"%d" % number, ROLLUP)["seq"] == COUNT + 1 + number
    assert fixture.run_out() == 0


def test_no_burst_outside_of_a_search_reads_the_stream_more_than_twice(
    fixture: ConsumerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roll-ups of a source are staged at once: the stream is tracked as soon as searches have read as much as that does."""
    log = fixture.stream().log
    log.subjects()
    looked_at: list[object] = []
    search = SubjectIndex._have_tracked

    def have_tracked(index: SubjectIndex, passed: int, *, soon: bool) -> bool:
        looked_at.append(index._missed)
        return search(index, passed, soon=soon)

    monkeypatch.setattr(SubjectIndex, "_have_tracked", have_tracked)
    txn = fixture.store.begin()
    for number in range(SUBJECTS):
        log.append(txn, b"s.%d" % number, b"", b"x", 1)
        assert log.purge(txn, subject_filter=b"s.%d" % number, keep=1, why="rollup") == EACH
    fixture.store.submit(txn)
    fixture.store.commit_now()
    assert log.subjects().tracked
    assert max(looked_at) <= COUNT + 5
    assert log.state.messages == SUBJECTS
