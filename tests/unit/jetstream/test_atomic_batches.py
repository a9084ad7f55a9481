"""Atomic batch publishing: all of a batch or nothing, its refusals, its bounds, its advisories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.jetstream.ingest import atomic_batches
from eyot_store import StoreOptions
from support.clients.destinations import Recorder
from support.jetstream.fixture import Fixture
from support.jetstream.schemas import check_pub_ack


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create(allow_atomic=True)
    return fixture


#: Two messages of `put` in a stream.
BYTES_OF_TWO = 206


def put(fixture: Fixture, batch: str, seq: int, payload: bytes = b"x", subject: bytes = b"s.a", **more: Any) -> Any:
    """One message of a batch: "" when it is held, else the decoded PubAck or error code."""
    header = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(seq)}
    header |= {f"Nats-{name.replace('_', '-')}": str(value) for name, value in more.items()}
    reply = fixture.publish(subject, payload, header)
    fixture.commit()
    answer = fixture.answer(reply)
    assert answer is not None
    if not answer:
        return ""
    decoded = msgspec.json.decode(answer)
    return decoded["error"]["err_code"] if "error" in decoded else check_pub_ack(decoded)


def abandoned(fixture: Fixture) -> Recorder:
    recorder = Recorder()
    fixture.account.subscribe(b"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>", recorder)
    return recorder


def reasons(recorder: Recorder) -> list[tuple[str, str]]:
    return [(each["batch"], each["reason"]) for each in (msgspec.json.decode(got.payload) for got in recorder.got)]


def test_nothing_is_stored_before_the_commit_and_all_of_it_then(fixture: Fixture) -> None:
    assert put(fixture, "b", 1, b"one") == ""
    assert put(fixture, "b", 2, b"two") == ""
    assert fixture.held() == []
    commits = fixture.store.stats.txns
    assert put(fixture, "b", 3, b"three", Batch_Commit=1) == {"stream": "S", "seq": 3, "batch": "b", "count": 3}
    assert fixture.store.stats.txns == commits + 1
    assert fixture.held() == [(1, b"one"), (2, b"two"), (3, b"three")]


def test_the_end_of_a_batch_may_be_said_without_a_message(fixture: Fixture) -> None:
    put(fixture, "b", 1, b"one")
    assert put(fixture, "b", 2, b"", Batch_Commit="eob") == {"stream": "S", "seq": 1, "batch": "b", "count": 1}
    message = fixture.stream().log.get(1)
    assert message is not None
    assert message.header.endswith(b"Nats-Batch-Commit: 1\r\n\r\n")


def test_a_turn_keeps_the_order_of_batches_and_single_messages(fixture: Fixture) -> None:
    replies = [
        fixture.publish(b"s.a", b"first"),
        fixture.publish(b"s.a", b"b1", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}),
        fixture.publish(b"s.a", b"second"),
        fixture.publish(b"s.a", b"b2", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}),
        fixture.publish(b"s.a", b"third"),
    ]
    fixture.commit()
    assert [payload for _, payload in fixture.held()] == [b"first", b"second", b"b1", b"b2", b"third"]
    assert fixture.answer(replies[4]) == b'{"stream":"S","seq":5}'


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Batch_Commit": "2"}, 10200),
        ({"Expected_Last_Msg_Id": "a", "Batch_Commit": 1}, 10177),
        ({"Expected_Last_Sequence": 7, "Batch_Commit": 1}, 10071),
        ({"Expected_Last_Sequence": 1, "Batch_Commit": 1}, 10164),
        ({"Expected_Last_Subject_Sequence": 0, "Batch_Commit": 1}, 10164),
        (
            {"Expected_Last_Subject_Sequence": 0, "Expected_Last_Subject_Sequence_Subject": "s.*", "Batch_Commit": 1},
            10164,
        ),
        ({"Msg_Id": "same", "Batch_Commit": 1}, 10201),
        ({"Rollup": "sub", "Batch_Commit": 1}, 10111),
        ({"Expected_Stream": "X", "Batch_Commit": 1}, 10060),
        ({"TTL": "1h", "Batch_Commit": 1}, 10166),
    ],
)
def test_one_message_that_is_refused_refuses_the_batch(fixture: Fixture, headers: dict[str, Any], code: int) -> None:
    assert put(fixture, "b", 1, Msg_Id="same") == ""
    assert put(fixture, "b", 2, **headers) == code
    assert fixture.held() == []
    assert fixture.stream().log.state.last_seq == 0
    # Nothing of it is remembered either.
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "same"}) == {"stream": "S", "seq": 1}


@pytest.mark.parametrize(
    "limit", [{"max_msgs": 2}, {"max_bytes": BYTES_OF_TWO}, {"max_msgs": 2, "max_bytes": BYTES_OF_TWO}]
)
def test_a_batch_that_would_pass_the_limits_is_refused(tmp_path: Path, limit: dict[str, int]) -> None:
    fixture = Fixture(tmp_path)
    fixture.create(allow_atomic=True, discard="new", **limit)
    put(fixture, "b", 1)
    put(fixture, "b", 2)
    assert put(fixture, "b", 3, Batch_Commit=1) == 10077
    assert fixture.held() == []
    put(fixture, "b", 1)
    assert put(fixture, "b", 2, Batch_Commit=1)["count"] == 2
    assert fixture.stream().log.state.bytes == BYTES_OF_TWO


def test_ids_numbers_and_streams_that_do_not_fit(fixture: Fixture) -> None:
    assert put(fixture, "b", 2) == 10176
    assert put(fixture, "b", 0) == 10176
    assert put(fixture, "q" * 65, 1) == 10179
    assert fixture.put(b"s.a", b"", {"Nats-Batch-Id": "b"})["error"]["err_code"] == 10175
    assert fixture.put(b"s.a", b"", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "x"})["error"]["err_code"] == 10175
    fixture.create("D")
    header = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    assert fixture.put(b"d.a", b"", header)["error"]["err_code"] == 10174
    assert fixture.put(b"s.a", b"", {"Nats-Batch-Id": "", "Nats-Batch-Sequence": "1"}) == {"stream": "S", "seq": 1}


def test_what_is_dropped_is_told(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    events = abandoned(fixture)
    put(fixture, "gap", 1)
    assert put(fixture, "gap", 3) == 10176
    assert put(fixture, "gap", 2) == 10176
    assert put(fixture, "level", 1, Required_Api_Level=99) == 10185
    monkeypatch.setattr(atomic_batches, "MESSAGES_MAX", 2)
    put(fixture, "large", 1)
    put(fixture, "large", 2)
    assert put(fixture, "large", 3) == 10199
    put(fixture, "idle", 1)
    fixture.advance(5)
    put(fixture, "idle", 2)
    fixture.advance(9)
    assert len(fixture.stream().batches) == 1
    fixture.advance(2)
    assert put(fixture, "idle", 3, Batch_Commit=1) == 10199
    assert reasons(events) == [
        ("gap", "incomplete"),
        ("level", "unsupported"),
        ("large", "large"),
        ("idle", "timeout"),
    ]
    assert fixture.js.server.batch_budget.atomic == 0
    assert fixture.js.server.batch_budget.bytes == 0


def test_the_number_of_open_batches_and_their_bytes_are_bounded(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_batches, "OPEN_MAX", 2)
    assert [put(fixture, f"b{number}", 1) for number in range(3)] == ["", "", 10210]
    assert put(fixture, "b0", 2, Batch_Commit=1)["count"] == 2
    assert put(fixture, "b2", 1) == ""
    fixture.js.server.batch_budget.bytes_max = fixture.js.server.batch_budget.bytes + 100
    events = abandoned(fixture)
    assert put(fixture, "b2", 2, b"x" * 200) == 10210
    assert reasons(events) == [("b2", "large")]


def test_a_commit_that_fails_on_disk_stores_nothing(tmp_path: Path) -> None:
    fixture = Fixture(
        tmp_path, store_options=StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20)
    )
    fixture.create(allow_atomic=True)
    for seq in range(1, 20):
        put(fixture, "b", seq, b"x" * 100_000)
    assert put(fixture, "b", 20, Batch_Commit=1, Msg_Id="m") == 10077
    assert fixture.held() == []
    assert put(fixture, "c", 1, Batch_Commit=1, Msg_Id="m")["seq"] == 1


def test_turning_batches_off_drops_those_that_are_open(fixture: Fixture) -> None:
    put(fixture, "b", 1)
    fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert put(fixture, "b", 2, Batch_Commit=1) == 10174
    assert fixture.js.server.batch_budget.atomic == 0
