"""Joint publishes: several streams in one transaction, all or nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.ingest.joint import JointPublish, Run
from eyot_daemon.jetstream.ingest.stream_ingest import SubjectRemoval
from eyot_store import StoreError, Txn
from eyot_wire.frames import Published
from eyot_wire.jetstream.errors import ApiError
from support.jetstream.fixture import Fixture, header_block


class JointFixture:
    """A fixture with streams A, B and C, and the results of its joint publishes in the order of their answers."""

    def __init__(self, fixture: Fixture) -> None:
        self.fixture = fixture
        self.joint = JointPublish(fixture.broker, fixture.store)
        self.results: list[ApiError | None] = []

    def publish(self, *to: tuple[str, bytes], header: bytes = b"", extra: Any = None) -> None:
        """Publish a payload into streams, on the subject that is their name in lower case and `.x`."""
        changes = [
            (self.fixture.stream(name), Published(f"{name.lower()}.x".encode(), b"", header, payload))
            for name, payload in to
        ]
        self.joint.publish(changes, self.results.append, extra=extra)

    def codes(self) -> list[int]:
        return [0 if result is None else result.err_code for result in self.results]

    def states(self) -> list[Any]:
        """Everything of the streams that a publish changes."""
        found = []
        for name, stream in sorted(self.fixture.jsa.streams.items()):
            state = stream.log.state
            totals = sorted(stream.log.subject_totals())
            found.append((name, state.messages, state.bytes, state.last_seq, totals, len(stream.dedupe)))
        return found


@pytest.fixture
def joined(tmp_path: Path) -> JointFixture:
    fixture = Fixture(tmp_path)
    for name in ("A", "B", "C"):
        fixture.create(name, **({"discard": "new", "max_msgs": 2} if name == "C" else {}))
    return JointFixture(fixture)


def test_the_answer_comes_when_all_streams_have_it_on_flash(joined: JointFixture) -> None:
    commits = joined.fixture.store.stats.txns
    joined.publish(("A", b"one"), ("B", b"one"))
    joined.fixture.broker.flush()
    assert joined.results == []
    joined.fixture.commit()
    assert joined.results == [None]
    assert (joined.fixture.held("A"), joined.fixture.held("B")) == ([(1, b"one")], [(1, b"one")])
    assert joined.fixture.store.stats.txns == commits + 1


def test_the_publishes_of_a_turn_are_one_transaction(joined: JointFixture) -> None:
    commits = joined.fixture.store.stats.txns
    for number in range(50):
        joined.publish(("A", b"%d" % number), ("B", b"%d" % number))
    joined.fixture.commit()
    assert joined.results == [None] * 50
    assert joined.fixture.store.stats.txns == commits + 1
    assert [payload for _, payload in joined.fixture.held("B")] == [b"%d" % number for number in range(50)]


def test_one_refusal_stores_nothing_and_leaves_the_others_of_the_turn(joined: JointFixture) -> None:
    for number in range(4):
        joined.publish(("A", b"%d" % number), ("C", b"%d" % number), header=header_block({"Nats-Msg-Id": f"{number}"}))
    joined.fixture.commit()
    assert sorted(joined.codes()) == [0, 0, 10077, 10077]
    assert [payload for _, payload in joined.fixture.held("A")] == [b"0", b"1"]
    # The ids of what was refused are not remembered.
    answer = joined.fixture.put(b"a.x", b"again", {"Nats-Msg-Id": "3"})
    assert answer == {"stream": "A", "seq": 3}


class ToldRun(Run):
    """A run whose outcomes are kept, once they are known."""

    def __init__(self, changes: Sequence[tuple[Any, list[Published]]]) -> None:
        super().__init__(changes)
        self.outcomes: list[Any] = []

    def settled(self, outcomes: Sequence[Any] | None) -> None:
        self.outcomes.append(outcomes)


def run_of(joined: JointFixture, names: str, payloads: list[bytes]) -> list[Any]:
    """Hand in a run of publishes into these streams; returns the outcomes, once they are known."""
    changes = [
        (joined.fixture.stream(name), [Published(f"{name.lower()}.x".encode(), b"", b"", each) for each in payloads])
        for name in names
    ]
    run = ToldRun(changes)
    joined.joint.publish_run(run)
    assert joined.joint.last is run
    return run.outcomes


def test_a_run_is_stored_in_the_order_of_the_turn_in_its_transaction(joined: JointFixture) -> None:
    commits = joined.fixture.store.stats.txns
    joined.publish(("A", b"before"))
    outcomes = run_of(joined, "AB", [b"1", b"2"])
    joined.publish(("A", b"after"))
    joined.fixture.broker.flush()
    assert outcomes == []
    joined.fixture.commit()
    assert outcomes == [None]
    assert joined.results == [None, None]
    assert [payload for _, payload in joined.fixture.held("A")] == [b"before", b"1", b"2", b"after"]
    assert [payload for _, payload in joined.fixture.held("B")] == [b"1", b"2"]
    assert joined.fixture.store.stats.txns == commits + 1


@pytest.mark.parametrize("others", [True, False])
def test_each_publish_of_a_run_stands_for_itself(joined: JointFixture, others: bool) -> None:
    if others:
        joined.publish(("A", b"before"))
    outcomes = run_of(joined, "AC", [b"1", b"2", b"3"])
    joined.fixture.commit()
    (found,) = outcomes
    assert [0 if each is None else each.err_code for each in found] == [0, 0, 10077]
    held = [payload for _, payload in joined.fixture.held("A")]
    assert held == [b"before"] * others + [b"1", b"2"]
    assert [payload for _, payload in joined.fixture.held("C")] == [b"1", b"2"]


def test_a_run_that_the_disk_refuses_is_refused_as_a_whole(
    joined: JointFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(txn: Txn, done: Any = None) -> None:
        joined.fixture.store.abort(txn)
        raise StoreError("io", "the disk is gone")

    outcomes = run_of(joined, "AB", [b"1", b"2"])
    with monkeypatch.context() as patch:
        patch.setattr(joined.fixture.store, "submit", fail)
        joined.fixture.broker.flush()
    assert [[each.err_code for each in found] for found in outcomes] == [[10077, 10077]]
    joined.publish(("A", b"later"))
    joined.fixture.commit()
    assert joined.fixture.held("A") == [(1, b"later")]


def test_messages_that_were_queued_before_in_the_turn_are_stored_before(joined: JointFixture) -> None:
    reply = joined.fixture.publish(b"a.x", b"first")
    joined.publish(("A", b"second"))
    joined.fixture.commit()
    assert joined.fixture.held("A") == [(1, b"first"), (2, b"second")]
    assert joined.fixture.answer(reply) == b'{"stream":"A","seq":1}'


def test_operations_of_the_caller_commit_with_the_messages_or_not_at_all(joined: JointFixture) -> None:
    log = joined.fixture.stream("B").log

    def note(txn: Txn) -> None:
        log.put_position(txn, b"key", b"value")

    joined.publish(("A", b"1"), ("C", b"1"), extra=note)
    joined.fixture.broker.flush()
    crashed = JointFixture(joined.fixture.crash())
    assert b"key" not in crashed.fixture.stream("B").log.positions()
    assert crashed.fixture.held("A") == []
    crashed.publish(("C", b"1"))
    crashed.publish(("C", b"2"))
    crashed.fixture.commit()
    log = crashed.fixture.stream("B").log
    crashed.publish(("A", b"1"), ("C", b"3"), extra=note)
    crashed.fixture.commit()
    assert crashed.codes() == [0, 0, 10077]
    assert b"key" not in log.positions()
    crashed.publish(("A", b"1"), extra=note)
    crashed.fixture.commit()
    assert log.positions()[b"key"] == b"value"


def test_operations_of_the_caller_that_fail_refuse_the_publish(joined: JointFixture) -> None:
    def broken(txn: Txn) -> None:
        raise StoreError("io", "no such thing")

    before = joined.states()
    joined.publish(("A", b"1"), ("B", b"1"), extra=broken)
    joined.fixture.commit()
    assert joined.codes() == [10077]
    assert joined.states() == before


def test_a_duplicate_is_agreed_and_not_stored_again(joined: JointFixture) -> None:
    header = header_block({"Nats-Msg-Id": "same"})
    joined.publish(("A", b"1"), ("B", b"1"), header=header)
    joined.publish(("A", b"1"), ("B", b"1"), header=header)
    joined.fixture.commit()
    joined.publish(("A", b"1"), header=header)
    joined.fixture.commit()
    assert joined.codes() == [0, 0, 0]
    assert (joined.fixture.held("A"), joined.fixture.held("B")) == ([(1, b"1")], [(1, b"1")])


def test_a_duplicate_of_what_is_under_way_fails_with_its_original(
    joined: JointFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = header_block({"Nats-Msg-Id": "same"})
    store = joined.fixture.store
    joined.publish(("A", b"1"), header=header)
    # The original is refused on its way to the disk.
    monkeypatch.setattr(store, "options", replace(store.options, backlog_bytes_hard=-1))
    joined.fixture.broker.flush()
    monkeypatch.undo()
    joined.publish(("A", b"1"), ("B", b"1"), header=header)
    joined.fixture.commit()
    assert joined.codes() == [10167, 10167]
    assert (joined.fixture.held("A"), joined.fixture.held("B")) == ([], [])


def test_streams_without_interest_or_acknowledgements_agree_without_storing(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create("A", retention="interest")
    fixture.create("B", no_ack=True, max_msg_size=1)
    fixture.create("C")
    joined = JointFixture(fixture)
    joined.publish(("A", b"long"), ("B", b"long"), ("C", b"long"))
    fixture.commit()
    assert joined.codes() == [0]
    assert [fixture.held(name) for name in "ABC"] == [[], [], [(1, b"long")]]
    assert fixture.stream("A").log.state.last_seq == 1


def test_the_bound_of_what_is_uncommitted_holds(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, options=JetStreamOptions(buffered_msgs_max=3))
    for name in ("A", "B"):
        fixture.create(name)
    joined = JointFixture(fixture)
    for number in range(5):
        joined.publish(("A", b"%d" % number), ("B", b"%d" % number))
    fixture.broker.flush()
    assert fixture.broker.take_gate() is not None
    assert joined.codes() == [10167, 10167]
    fixture.commit()
    assert joined.codes() == [10167, 10167, 0, 0, 0]
    assert fixture.stream("A").ingest_limiter.refused == 2
    assert len(fixture.held("B")) == 3
    joined.publish(("A", b"5"))
    fixture.commit()
    assert joined.codes()[-1] == 0


def test_a_subject_is_emptied_with_what_is_stored_elsewhere(joined: JointFixture) -> None:
    joined.publish(("A", b"1"), ("B", b"1"))
    joined.publish(("A", b"2"))
    joined.fixture.commit()
    stream = joined.fixture.stream("A")
    joined.publish(("A", b"3"))
    joined.joint.publish([(stream, SubjectRemoval(b"a.x"))], joined.results.append)
    joined.publish(("A", b"4"))
    joined.fixture.commit()
    assert joined.codes() == [0] * 5
    assert joined.fixture.held("A") == [(4, b"4")]
    assert joined.fixture.held("B") == [(1, b"1")]


def test_a_stream_that_is_deleted_meanwhile_refuses(joined: JointFixture) -> None:
    stream = joined.fixture.stream("A")
    joined.publish(("B", b"1"), ("A", b"1"))
    joined.fixture.jsa.delete_stream(stream, lambda *_: None)
    joined.fixture.commit()
    assert joined.codes() == [10077]
    assert joined.fixture.held("B") == []


# -- against publishing one by one ---------------------------------------------------------------------------------------

#: name -> configuration
KINDS: dict[str, dict[str, Any]] = {
    "PLAIN": {},
    "FULL": {"discard": "new", "max_msgs": 4},
    "SMALL": {"max_msg_size": 60},
    "LAST": {"max_msgs_per_subject": 1, "discard": "new", "max_msgs": 3},
    "ROLL": {"max_msgs": 3},
    "NOBODY": {"retention": "interest"},
    "QUIET": {"no_ack": True, "discard": "new", "max_msgs": 2},
    "MEM": {"storage": "memory"},
}


@dataclass
class Model:
    """A stream as publishing sees it, in the simplest words."""

    kind: str
    messages: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    last: int = 0
    ids: set[str] = field(default_factory=set)

    def refuses(self, subject: bytes, payload: bytes, header: dict[str, str]) -> bool:
        """Whether the stream says no; streams without acknowledgements never do."""
        if self.kind == "QUIET" or header.get("Nats-Msg-Id", "") in self.ids:
            return False
        if "Nats-Expected-Last-Sequence" in header and int(header["Nats-Expected-Last-Sequence"]) != self.last:
            return True
        if self.kind == "SMALL":
            return len(payload) + len(header_block(header) if header else b"") > 60
        replaces = self.kind == "LAST" and any(each[1] == subject for each in self.messages)
        return len(self.messages) >= {"FULL": 4, "LAST": 3}.get(self.kind, 1 << 30) and not replaces

    def store(self, subject: bytes, payload: bytes, header: dict[str, str]) -> None:
        msg_id = header.get("Nats-Msg-Id", "")
        if msg_id in self.ids:
            return
        expected = header.get("Nats-Expected-Last-Sequence")
        if self.kind == "QUIET" and (len(self.messages) >= 2 or expected not in (None, str(self.last))):
            return
        self.last += 1
        if msg_id:
            self.ids.add(msg_id)
        if self.kind == "NOBODY":
            return
        if self.kind == "LAST":
            self.messages = [each for each in self.messages if each[1] != subject]
        self.messages.append((self.last, subject, payload))
        if self.kind == "ROLL":
            self.messages = self.messages[-3:]


def _note(outcome: dict[int, bool], at: int, error: ApiError | None) -> None:
    outcome[at] = error is not None


HEADERS = st.one_of(
    st.just({}),
    st.builds(lambda number: {"Nats-Msg-Id": f"id{number}"}, st.integers(0, 5)),
    st.builds(lambda seq: {"Nats-Expected-Last-Sequence": str(seq)}, st.integers(0, 4)),
)
MESSAGES = st.tuples(
    st.sampled_from(sorted(KINDS)), st.sampled_from([b"x", b"y"]), st.sampled_from([0, 5, 70]), HEADERS
)
TURNS = st.lists(st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(turns=TURNS)
def test_as_publishing_one_by_one_where_nobody_refuses_and_as_nothing_otherwise(turns: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fixture = Fixture(Path(folder))
        for name, config in KINDS.items():
            fixture.create(name, **config)
        joined = JointFixture(fixture)
        models = {name: Model(name) for name in KINDS}
        for number, turn in enumerate(turns):
            expected: list[bool] = []
            outcome: dict[int, bool] = {}
            for at, publish in enumerate(turn):
                after = {
                    name: Model(each.kind, list(each.messages), each.last, set(each.ids))
                    for name, each in models.items()
                }
                changes, refused = [], False
                for name, token, size, header in publish:
                    subject = name.lower().encode() + b"." + token
                    payload = b"%d-%d" % (number, at) + bytes(size)
                    refused = refused or after[name].refuses(subject, payload, header)
                    after[name].store(subject, payload, header)
                    changes.append(
                        (
                            fixture.stream(name),
                            Published(subject, b"", header_block(header) if header else b"", payload),
                        )
                    )
                if not refused:
                    models = after
                expected.append(refused)
                joined.joint.publish(changes, partial(_note, outcome, at))
            fixture.commit()
            assert [outcome[at] for at in range(len(turn))] == expected
            for name, model in models.items():
                log = fixture.stream(name).log
                read = log.read(1, max_messages=1000, max_bytes=1 << 30)
                assert [(each.seq, each.subject, each.payload) for each in read.messages] == model.messages, name
                assert (log.state.last_seq, log.state.messages) == (model.last, len(model.messages)), name
                assert len(fixture.stream(name).dedupe) == len(model.ids), name
        fixture.store.close()
