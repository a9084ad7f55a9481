"""Fast batch publishing: acknowledgements and their times, gaps, refusals, bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.jetstream.ingest import atomic_batches
from eyot_daemon.jetstream.ingest.fast_batches import FLOW_DEFAULT, FastReply, parse_reply
from eyot_store import StoreOptions
from support.clients.destinations import Recorder
from support.jetstream.fixture import Fixture


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create(allow_batched=True)
    return fixture


def send(fixture: Fixture, rest: str, payload: bytes = b"x", header: bytes = b"") -> bytes:
    """Publish within a batch; returns the reply subject."""
    reply = f"_INBOX.fast.{rest}.$FI".encode()
    fixture.account.publish(b"s.a", reply, header, payload, origin=fixture.client)
    return reply


def told(fixture: Fixture, rest: str, payload: bytes = b"x", header: bytes = b"") -> list[Any]:
    """The same, committed: the answers."""
    fixture.inbox.got.clear()
    reply = send(fixture, rest, payload, header)
    fixture.commit()
    return [msgspec.json.decode(got.payload) for got in fixture.inbox.got if got.subject == reply]


def codes(answers: list[Any]) -> list[int]:
    return [answer["error"]["err_code"] for answer in answers]


def test_progress_is_told_when_it_is_on_flash(fixture: Fixture) -> None:
    fixture.inbox.got.clear()
    for seq in range(1, 7):
        send(fixture, f"b.3.fail.{seq}.{0 if seq == 1 else 1}", b"%d" % seq)
    fixture.broker.flush()
    assert fixture.inbox.got == []
    fixture.commit()
    assert [msgspec.json.decode(got.payload) for got in fixture.inbox.got] == [
        {"type": "ack", "seq": 0, "msgs": 3},
        {"type": "ack", "seq": 3, "msgs": 3},
        {"type": "ack", "seq": 6, "msgs": 3},
    ]
    assert told(fixture, "b.3.fail.7.2") == [{"stream": "S", "seq": 7, "batch": "b", "count": 7}]
    assert fixture.js.server.batch_budget.fast == 0


def test_a_batch_is_one_transaction_a_turn(fixture: Fixture) -> None:
    commits = fixture.store.stats.txns
    for seq in range(1, 101):
        send(fixture, f"b.100.fail.{seq}.{0 if seq == 1 else 1}")
    fixture.commit()
    assert fixture.store.stats.txns == commits + 1


def test_a_gap_ends_a_batch_that_must_be_whole(fixture: Fixture) -> None:
    told(fixture, "b.3.fail.1.0")
    assert told(fixture, "b.3.fail.3.1") == [
        {"type": "gap", "last_seq": 2, "seq": 3},
        {"stream": "S", "seq": 1, "batch": "b", "count": 1},
    ]
    assert codes(told(fixture, "b.3.fail.2.1")) == [10208]


def test_a_gap_is_told_where_it_does_not_matter(fixture: Fixture) -> None:
    told(fixture, "b.2.ok.1.0")
    assert told(fixture, "b.2.ok.4.1") == [
        {"type": "gap", "last_seq": 2, "seq": 4},
        {"type": "ack", "seq": 4, "msgs": 2},
    ]
    assert told(fixture, "b.2.ok.5.3") == [{"stream": "S", "seq": 2, "batch": "b", "count": 4}]


def test_the_number_of_batches_is_bounded_and_silence_ends_them(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_batches, "FAST_MAX", 2)
    told(fixture, "a.9.ok.1.0")
    told(fixture, "b.9.ok.1.0")
    assert codes(told(fixture, "c.9.ok.1.0")) == [10211]
    fixture.advance(6)
    told(fixture, "b.9.ok.2.1")
    fixture.advance(6)
    assert codes(told(fixture, "a.9.ok.2.1")) == [10208]
    assert told(fixture, "b.9.ok.3.2") == [{"stream": "S", "seq": 4, "batch": "b", "count": 3}]


def test_after_a_failing_commit_the_batch_is_unknown(tmp_path: Path) -> None:
    options = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20)
    fixture = Fixture(tmp_path, store_options=options)
    fixture.create(allow_batched=True)
    told(fixture, "b.1.ok.1.0")
    seq = 2
    while "error" not in (answers := told(fixture, f"b.1.ok.{seq}.1", b"x" * 100_000))[0]:
        seq += 1
    assert codes(answers) == [10077]
    assert codes(told(fixture, f"b.1.ok.{seq + 1}.1")) == [10208]
    assert len(fixture.held()) == seq - 1


def test_turning_it_off_forgets_what_is_open(fixture: Fixture) -> None:
    told(fixture, "b.9.ok.1.0")
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert codes(told(fixture, "b.9.ok.2.1")) == [10205]
    assert fixture.js.server.batch_budget.fast == 0


def test_a_stream_without_acknowledgements_tells_how_far_a_batch_is(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(allow_batched=True, no_ack=True)
    inbox = Recorder()
    fixture.account.subscribe(b"_INBOX.fast.>", inbox)
    for seq in range(1, 4):
        send(fixture, f"b.1.ok.{seq}.{0 if seq == 1 else 1}")
    fixture.commit()
    assert [msgspec.json.decode(got.payload)["seq"] for got in inbox.got] == [1, 2, 3]  # not how it begins
    send(fixture, "c.1.ok.2.1")
    fixture.commit()
    assert len(inbox.got) == 3  # nor what is wrong with a batch that is none
    assert len(fixture.held()) == 3


@given(
    st.text("abc-_", min_size=1, max_size=64),
    st.integers(0, 10**8),
    st.booleans(),
    st.integers(1, 10**15),
    st.integers(0, 4),
)
def test_reply_subjects_are_read_back(batch: str, flow: int, goes_on: bool, seq: int, op: int) -> None:
    reply = f"_INBOX.x.{batch}.{flow}.{'ok' if goes_on else 'fail'}.{seq}.{op}.$FI".encode()
    begins_or_goes_on = (seq == 1) if op == 0 else (seq > 1 or op not in (1, 3))
    expected = FastReply(batch.encode(), min(flow or FLOW_DEFAULT, 65_535), goes_on, seq, op)
    assert parse_reply(reply) == (expected if begins_or_goes_on else None)


@given(st.binary(max_size=60))
def test_nothing_in_a_reply_subject_breaks_anything(noise: bytes) -> None:
    parse_reply(noise + b".$FI")
    parse_reply(b"a.b.1.ok." + noise + b".1.$FI")
