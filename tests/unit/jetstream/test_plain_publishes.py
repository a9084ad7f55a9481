"""The fast path of publishes against storing message by message: the same answers, records, ids and limits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.ingest.message_stager import MessageStager
from support.jetstream.fixture import Fixture

#: Of the window for duplicates, ns.
WINDOW_NS = 100_000_000


def lived(seed: int, path: Path) -> list[Any]:
    """What a stream of this seed answers, holds and remembers after some turns; the clock moves between them."""
    rng = Random(seed)
    limits = AccountJetStreamOptions(file_max=rng.choice([3_000, 1 << 20])) if rng.random() < 0.3 else None
    fixture = Fixture(path, limits=limits)
    config: dict[str, Any] = {"duplicate_window": rng.choice([WINDOW_NS, WINDOW_NS, 0])}
    for name, values in (
        ("max_msgs", [0, 5]),
        ("max_msgs_per_subject", [0, 0, 2]),
        ("max_bytes", [0, 0, 400]),
        ("max_msg_size", [-1, -1, 60]),
        ("retention", ["limits", "workqueue"]),
        ("allow_msg_ttl", [False, True]),
        ("allow_atomic", [False, True]),
        ("discard", ["old", "old", "new"]),
        ("no_ack", [False, False, False, True]),
    ):
        config[name] = rng.choice(values)
    if config["discard"] == "new" and config["max_msgs_per_subject"]:
        config["discard_new_per_subject"] = rng.random() < 0.3
    if config["max_bytes"]:
        config.pop("max_msg_size")
    answer = fixture.create(**config)
    seen: list[Any] = [answer.get("error")]
    if "error" in answer:
        fixture.store.crash()
        return seen
    for _ in range(rng.randrange(1, 8)):
        expecting = rng.random() < 0.5
        replies = [
            fixture.publish(
                rng.choice([b"s.a", b"s.b", b"s.c"]),
                rng.choice([b"", b"x", b"y" * 30]),
                _expecting(rng, fixture, at) if expecting else _header(rng),
            )
            for at in range(rng.choice([1, 2, 5, 9]))
        ]
        if rng.random() < 0.3:
            fixture.broker.flush()
        else:
            fixture.commit()
        seen.append(replies)
        fixture.clock.advance(rng.choice([0, 0.04, 0.2]))
    fixture.commit()
    log = fixture.stream().log
    stored = log.read(1, max_messages=999, max_bytes=1 << 30).messages
    seen += [(got.subject, got.header, got.payload) for got in fixture.inbox.got]
    seen += [(each.seq, each.ts_ns, each.subject, each.header, each.payload) for each in stored]
    now_ns = fixture.clock.now_ns()
    seen += [fixture.stream().dedupe.find(b"%d" % number, now_ns) for number in range(6)]
    seen += [len(fixture.stream().dedupe), log.state.messages, log.state.bytes, log.state.last_seq, log.positions()]
    if limits is None:
        fixture = fixture.restart()
        seen += [fixture.stream().dedupe.find(b"%d" % number, now_ns) for number in range(6)]
    fixture.store.crash()
    return seen


def _header(rng: Random) -> dict[str, str] | bytes:
    kind = rng.random()
    msg_id = str(rng.randrange(6) if rng.random() < 0.3 else rng.randrange(6, 1 << 30))
    if kind < 0.3:
        return b""
    if kind < 0.4:
        return {"X": "nothing"}
    if kind < 0.85:
        return {"Nats-Msg-Id": msg_id}
    if kind < 0.9:
        return b"NATS/1.0\r\nNats-Msg-Id: \r\nNats-Msg-Id:" + msg_id.encode() + b"\r\n\r\n"
    others = [
        {"Nats-Expected-Last-Msg-Id": msg_id},
        {"Nats-Expected-Stream": rng.choice("ST"), "Nats-Msg-Id": msg_id},
        {"Nats-Expected-Last-Sequence": str(rng.randrange(9))},
        {"Nats-TTL": "1h"},
        {"Nats-Rollup": "sub"},
        {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
        {"nats-msg-id": msg_id},
    ]
    return rng.choice(others)


def _expecting(rng: Random, fixture: Fixture, at: int) -> dict[str, str]:
    """Headers of the message at place `at` of a turn whose expectations are mostly met."""
    log = fixture.stream().log
    wrong = rng.random() < 0.1
    fields = {"Nats-Msg-Id": str(rng.randrange(6, 1 << 30))} if rng.random() < 0.5 else {}
    kind = rng.randrange(5)
    if kind == 0:
        fields["Nats-Expected-Last-Sequence"] = str(log.state.last_seq + at + wrong)
    elif kind == 1:
        seq = rng.choice(
            [log.last_seq_for(rng.choice([b"s.a", b"s.b", b"s.c"])), log.state.last_seq + rng.randrange(at + 1)]
        )
        fields["Nats-Expected-Last-Subject-Sequence"] = str(seq)
    elif kind == 2:
        fields["Nats-Expected-Stream"] = "T" if wrong else "S"
    elif kind == 3:
        fields["Nats-Expected-Last-Msg-Id"] = rng.choice(["", "7"])
    return fields


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**48))
def test_both_ways_come_to_the_same(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        quickly = lived(seed, Path(folder) / "q")
        with patch.object(MessageStager, "_plain_ids", lambda *_: None):
            one_by_one = lived(seed, Path(folder) / "o")
    assert quickly == one_by_one


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were stored with little ado, turn by turn."""
    taken: list[int] = []
    real = MessageStager._take_plain

    def noted(self: MessageStager, txn: Any, batch: Any, messages: list[Any], msg_ids: list[bytes]) -> None:
        taken.append(len(messages))
        real(self, txn, batch, messages, msg_ids)

    monkeypatch.setattr(MessageStager, "_take_plain", noted)
    return taken


def test_ids_take_the_short_way(tmp_path: Path, taken: list[int]) -> None:
    """... but where one of them was there before."""
    fixture = Fixture(tmp_path)
    fixture.create()
    for number in range(3):
        fixture.publish(b"s.a", b"x", {"Nats-Msg-Id": str(number)})
    fixture.commit()
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "2"}) == {"stream": "S", "seq": 3, "duplicate": True}
    fixture.publish(b"s.a", b"x", {"Nats-Msg-Id": "3"})
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "3"})["seq"] == 4
    assert fixture.put(b"s.a", b"x", {"Nats-Rollup": "sub"})["error"]["err_code"] == 10111
    assert taken == [3]


def test_what_is_as_expected_takes_the_short_way(tmp_path: Path, taken: list[int]) -> None:
    """... as clients put into buckets: such streams discard new messages, and may be full."""
    fixture = Fixture(tmp_path)
    fixture.create(discard="new", max_msgs_per_subject=1)
    expect = "Nats-Expected-Last-Subject-Sequence"
    for at, key in enumerate((b"s.a", b"s.b", b"s.a")):
        fixture.publish(key, b"x", {expect: str(1 if at == 2 else 0)})
    fixture.publish(b"s.c", b"x", {"Nats-Expected-Stream": "S", "Nats-Expected-Last-Sequence": "3"})
    fixture.commit()
    assert taken == [4]
    assert fixture.put(b"s.b", b"x", {expect: "2", "Nats-Msg-Id": "i"})["seq"] == 5
    assert fixture.put(b"s.b", b"x", {"Nats-Expected-Last-Msg-Id": "i"})["seq"] == 6
    assert taken == [4, 1, 1]
    assert fixture.put(b"s.a", b"x", {expect: "1"})["error"]["err_code"] == 10071
    assert fixture.put(b"s.d", b"x", {"Nats-Expected-Last-Sequence": "5"})["error"]["err_code"] == 10071
    assert fixture.put(b"s.d", b"x", {"Nats-Expected-Last-Msg-Id": "i"})["error"]["err_code"] == 10070
    assert fixture.put(b"s.d", b"x", {"Nats-Expected-Stream": "T"})["error"]["err_code"] == 10060
    assert taken == [4, 1, 1]


def test_ids_of_a_commit_that_failed_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture(tmp_path)
    fixture.create()
    with monkeypatch.context() as patched:
        patched.setattr(fixture.store._driver._committer, "_attempt", _fails)  # type: ignore[attr-defined]
        assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"})["error"]["err_code"] == 10077
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"})["seq"] == 1


def _fails(_: Any) -> None:
    raise OSError(5, "Input/output error")
