"""Publishing into streams: PubAcks after the flush, headers and their order of checks, limits, faults."""

import json
from pathlib import Path
from typing import Any

import lmdb
import pytest

from eyot_store import StoreOptions
from eyot_store.environment import messages_db_name
from support.clients.destinations import Recorder
from support.jetstream.fixture import Fixture


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def code(answer: Any) -> int:
    number = answer["error"]["err_code"]
    assert isinstance(number, int)
    return number


def test_a_puback_leaves_only_after_the_commit_that_holds_its_message(fixture: Fixture) -> None:
    fixture.create()
    reply = fixture.publish(b"s.a", b"one")
    fixture.broker.flush()
    assert fixture.answer(reply) is None
    assert fixture.stream().log.state.messages == 1
    assert fixture.held() == []
    fixture.commit()
    assert fixture.answer(reply) == b'{"stream":"S","seq":1}'
    assert fixture.held() == [(1, b"one")]


def test_a_turn_is_one_transaction(fixture: Fixture) -> None:
    fixture.create()
    commits = fixture.store.stats.txns
    for number in range(100):
        fixture.publish(b"s.a", b"%d" % number)
    fixture.commit()
    assert fixture.store.stats.txns == commits + 1
    assert [payload for _, payload in fixture.held()] == [b"%d" % number for number in range(100)]


def test_the_domain_is_in_the_puback_and_in_front_of_the_api(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, domain="hub")
    assert fixture.request("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}, prefix="$JS.hub.API")["did_create"]
    reply = fixture.publish(b"s", b"x", {"Nats-Msg-Id": "1"})
    again = fixture.publish(b"s", b"x", {"Nats-Msg-Id": "1"})
    fixture.commit()
    assert fixture.answer(reply) == b'{"stream":"S","domain":"hub","seq":1}'
    assert fixture.answer(again) == b'{"stream":"S","domain":"hub","seq":1,"duplicate": true}'


def test_a_repetition_of_what_is_under_way_is_acknowledged_with_it(fixture: Fixture) -> None:
    fixture.create()
    fixture.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    fixture.broker.flush()
    again = fixture.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    fixture.broker.flush()
    assert fixture.answer(again) is None
    fixture.commit()
    assert json.loads(fixture.answer(again) or b"") == {"stream": "S", "seq": 1, "duplicate": True}


def test_duplicates_are_known_within_the_window_and_after_a_restart(fixture: Fixture) -> None:
    fixture.create(duplicate_window=10_000_000_000)
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"})["seq"] == 1
    assert fixture.put(b"s.b", b"y", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    fixture.clock.advance(5)
    fixture = fixture.restart()
    assert fixture.put(b"s.b", b"y", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    fixture.clock.advance(6)
    assert fixture.put(b"s.b", b"y", {"Nats-Msg-Id": "1"})["seq"] == 2


def test_what_was_not_committed_is_not_a_duplicate_after_a_crash(fixture: Fixture) -> None:
    fixture.create()
    fixture.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    fixture.broker.flush()
    fixture = fixture.crash()
    assert fixture.put(b"s.a", b"x", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1}


@pytest.mark.parametrize(
    ("header", "err_code", "text"),
    [
        ({"Nats-Expected-Stream": "X"}, 10060, "expected stream does not match"),
        ({"Nats-Expected-Last-Sequence": "7"}, 10071, "wrong last sequence: 2"),
        ({"Nats-Expected-Last-Sequence": "0"}, 10071, "wrong last sequence: 2"),
        ({"Nats-Expected-Last-Sequence": "-2"}, 10071, "wrong last sequence: 2"),
        ({"Nats-Expected-Last-Subject-Sequence": "2"}, 10071, "wrong last sequence: 1"),
        ({"Nats-Expected-Last-Subject-Sequence-Subject": "s.b"}, 10193, None),
        (
            {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Subject-Sequence-Subject": "s.*"},
            10071,
            "wrong last sequence: 2",
        ),
        ({"Nats-Expected-Last-Msg-Id": "zz"}, 10070, "wrong last msg ID: two"),
        ({"Nats-TTL": "1h"}, 10166, "per-message TTL is disabled"),
        ({"Nats-Incr": "+1"}, 10168, "message counters is disabled"),
        ({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}, 10174, "atomic publish is disabled"),
        ({"Nats-Schedule": "@at 2030-01-01T00:00:00Z"}, 10188, "message schedules is disabled"),
        ({"Nats-Rollup": "sub"}, 10111, None),
        ({"Big": "x" * 65_535}, 10097, "header size exceeds maximum allowed of 64k"),
        # The sequences are looked at before the duplicate window (nats-server 2.12).
        ({"Nats-Msg-Id": "two", "Nats-Expected-Last-Sequence": "9"}, 10071, "wrong last sequence: 2"),
    ],
)
def test_headers_that_do_not_hold_are_refused(
    fixture: Fixture, header: dict[str, str], err_code: int, text: str | None
) -> None:
    fixture.create()
    fixture.put(b"s.a", b"1")
    fixture.put(b"s.b", b"2", {"Nats-Msg-Id": "two"})
    answer = fixture.put(b"s.a", b"3", header)
    assert code(answer) == err_code
    assert text is None or answer["error"]["description"] == text
    assert (answer["stream"], answer["seq"]) == ("S", 0)
    assert fixture.stream().log.state.messages == 2


def test_expectations_that_hold_are_stored(fixture: Fixture) -> None:
    fixture.create()
    assert fixture.put(b"s.a", b"1", {"Nats-Expected-Last-Sequence": "0"})["seq"] == 1
    assert fixture.put(b"s.a", b"2", {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Msg-Id": "m"})["seq"] == 2
    assert fixture.put(b"s.new", b"3", {"Nats-Expected-Last-Subject-Sequence": "0"})["seq"] == 3
    assert fixture.put(b"s.a", b"4", {"Nats-Expected-Stream": "S", "Nats-Expected-Last-Msg-Id": ""})["seq"] == 4


def test_expectations_count_what_the_same_turn_stored(fixture: Fixture) -> None:
    fixture.create()
    replies = [fixture.publish(b"s.a", b"%d" % n, {"Nats-Expected-Last-Sequence": str(n)}) for n in (0, 1, 1, 2)]
    fixture.commit()
    answers = [json.loads(fixture.answer(reply) or b"") for reply in replies]
    assert [answer["seq"] for answer in answers] == [1, 2, 0, 3]
    assert code(answers[2]) == 10071


def test_rollups_leave_the_message_that_rolls_up(fixture: Fixture) -> None:
    fixture.create(allow_rollup_hdrs=True)
    for subject in (b"s.a", b"s.b", b"s.a"):
        fixture.put(subject, subject)
    fixture.put(b"s.a", b"sub", {"Nats-Rollup": "SUB"})
    assert fixture.held() == [(2, b"s.b"), (4, b"sub")]
    fixture.put(b"s.a", b"all", {"Nats-Rollup": "all"})
    assert fixture.held() == [(5, b"all")]
    assert code(fixture.put(b"s.a", b"?", {"Nats-Rollup": "some"})) == 10111


def test_sizes(fixture: Fixture) -> None:
    fixture.create(max_msg_size=10)
    assert fixture.put(b"s.a", b"0123456789")["seq"] == 1
    assert code(fixture.put(b"s.a", b"0123456789a")) == 10054
    assert code(fixture.put(b"s.a", b"", {"A": "b"})) == 10054


def test_old_messages_make_room(fixture: Fixture) -> None:
    fixture.create(max_msgs=3)
    for number in range(10):
        fixture.publish(b"s.a", b"%d" % number)
    fixture.commit()
    assert fixture.held() == [(8, b"7"), (9, b"8"), (10, b"9")]


def test_old_bytes_make_room(fixture: Fixture) -> None:
    fixture.create(max_bytes=150)
    for number in range(10):
        fixture.put(b"s.a", b"%04d" % number)
    assert fixture.held() == [(7, b"0006"), (8, b"0007"), (9, b"0008"), (10, b"0009")]
    assert fixture.stream().log.state.bytes == 4 * 37


def test_each_subject_keeps_its_newest(fixture: Fixture) -> None:
    fixture.create(max_msgs_per_subject=2)
    for number in range(6):
        fixture.publish(b"s.%d" % (number % 2), b"%d" % number)
    fixture.commit()
    fixture.put(b"s.0", b"6")
    assert fixture.held() == [(4, b"3"), (5, b"4"), (6, b"5"), (7, b"6")]


def test_new_messages_are_refused_when_full(fixture: Fixture) -> None:
    fixture.create(max_msgs=2, discard="new")
    assert [fixture.put(b"s.a", b"")["seq"] for _ in range(3)] == [1, 2, 0]
    answer = fixture.put(b"s.a", b"")
    assert (code(answer), answer["error"]["description"]) == (10077, "maximum messages exceeded")
    fixture.request("STREAM.PURGE.S")
    assert fixture.put(b"s.a", b"")["seq"] == 3


def test_new_bytes_are_refused_when_full(fixture: Fixture) -> None:
    fixture.create(max_bytes=80, discard="new")
    answers = [fixture.put(b"s.a", b"1234") for _ in range(3)]
    assert answers[1]["seq"] == 2
    assert answers[2]["error"]["description"] == "maximum bytes exceeded"


def test_a_stream_over_a_lowered_limit_lets_messages_be_replaced(fixture: Fixture) -> None:
    """The values of a bucket whose `max_bytes` was lowered can be put again, and deleted; larger ones are refused."""
    config = {"subjects": ["s.>"], "max_msgs_per_subject": 1, "discard": "new"}
    fixture.create(**config)
    for subject in (b"s.a", b"s.b", b"s.c"):
        fixture.put(subject, b"12345")
    assert "error" not in fixture.request("STREAM.UPDATE.S", {"name": "S", **config, "max_bytes": 60})
    assert fixture.put(b"s.a", b"54321")["seq"] == 4
    assert fixture.put(b"s.b", b"")["seq"] == 5
    assert fixture.put(b"s.c", b"123456")["error"]["description"] == "maximum bytes exceeded"
    assert fixture.put(b"s.d", b"")["error"]["description"] == "maximum bytes exceeded"


def test_discard_new_per_subject(fixture: Fixture) -> None:
    fixture.create(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    assert fixture.put(b"s.a", b"")["seq"] == 1
    assert fixture.put(b"s.a", b"")["error"]["description"] == "maximum messages per subject exceeded"
    assert fixture.put(b"s.b", b"")["seq"] == 2


def test_a_full_stream_takes_what_replaces_an_older_message_of_its_subject(fixture: Fixture) -> None:
    fixture.create(max_msgs=2, max_msgs_per_subject=1, discard="new")
    fixture.put(b"s.a", b"1")
    fixture.put(b"s.b", b"2")
    assert fixture.put(b"s.a", b"3")["seq"] == 3
    assert code(fixture.put(b"s.c", b"4")) == 10077
    assert fixture.held() == [(2, b"2"), (3, b"3")]


def test_messages_leave_when_they_are_too_old(fixture: Fixture) -> None:
    fixture.create(max_age=10_000_000_000)
    fixture.put(b"s.a", b"1")
    fixture.advance(6)
    fixture.put(b"s.a", b"2")
    fixture.advance(5)
    assert fixture.held() == [(2, b"2")]
    fixture.advance(6)
    assert fixture.held() == []
    state = fixture.request("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (3, 2, 0)
    fixture.put(b"s.a", b"3")
    fixture.advance(11)
    assert fixture.held() == []


def test_a_stream_without_acks_answers_nothing(fixture: Fixture) -> None:
    fixture.create(no_ack=True, max_msg_size=2)
    assert fixture.put(b"s.a", b"x") is None
    assert fixture.put(b"s.a", b"too long") is None
    assert fixture.held() == [(1, b"x")]


def test_a_sealed_stream_takes_nothing(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"x")
    updated = fixture.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "sealed": True})
    assert updated["config"]["deny_purge"]
    assert code(fixture.put(b"s.a", b"y")) == 10109
    assert code(fixture.request("STREAM.PURGE.S")) == 10109


def test_request_info_is_not_stored(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"x", {"Nats-Request-Info": "{}", "Mine": "1"})
    message = fixture.stream().log.get(1)
    assert message is not None
    assert message.header == b"NATS/1.0\r\nMine: 1\r\n\r\n"


def test_subjects_are_transformed_before_they_are_looked_at(fixture: Fixture) -> None:
    fixture.create(subject_transform={"src": "s.*", "dest": "t.{{wildcard(1)}}.x"}, max_msgs_per_subject=1)
    fixture.put(b"s.a", b"1")
    fixture.put(b"s.a", b"2")
    message = fixture.stream().log.get(2)
    assert message is not None
    assert message.subject == b"t.a.x"
    assert fixture.held() == [(2, b"2")]


def test_stored_messages_are_republished(fixture: Fixture) -> None:
    listener = Recorder()
    fixture.account.subscribe(b"copy.>", listener)
    fixture.create(republish={"src": "s.*", "dest": "copy.{{wildcard(1)}}"})
    fixture.put(b"s.a", b"1")
    fixture.publish(b"s.a", b"2", {"Mine": "x"})
    fixture.broker.flush()
    assert len(listener.got) == 1
    fixture.commit()
    assert [(got.subject, got.payload) for got in listener.got] == [(b"copy.a", b"1"), (b"copy.a", b"2")]
    header = listener.got[1].header.decode()
    assert header.startswith(
        "NATS/1.0\r\nMine: x\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 2\r\nNats-Time-Stamp: "
    )
    assert header.endswith("Nats-Last-Sequence: 1\r\n\r\n")


def test_republishing_headers_only_tells_the_size(fixture: Fixture) -> None:
    listener = Recorder()
    fixture.account.subscribe(b"copy.s.a", listener)
    fixture.create(republish={"dest": "copy.>", "headers_only": True})
    fixture.put(b"s.a", b"12345")
    assert listener.got[0].payload == b""
    assert b"Nats-Msg-Size: 5\r\n" in listener.got[0].header


def test_interest_retention_keeps_nothing_that_nobody_wants(fixture: Fixture) -> None:
    fixture.create(retention="interest")
    assert fixture.put(b"s.a", b"x") == {"stream": "S", "seq": 1}
    assert fixture.put(b"s.a", b"x")["seq"] == 2
    assert fixture.held() == []
    fixture = fixture.restart()
    assert fixture.put(b"s.a", b"x")["seq"] == 3


def test_times_ascend_when_the_clock_is_nudged_back(fixture: Fixture) -> None:
    fixture.create()
    fixture.put(b"s.a", b"1")
    fixture.clock.jump(-0.5)
    fixture.put(b"s.a", b"2")
    fixture.clock.jump(-3600)
    fixture.put(b"s.a", b"3")
    times = [message.ts_ns for message in (fixture.stream().log.get(seq) for seq in (1, 2, 3)) if message]
    assert times[1] == times[0] + 1
    assert times[2] < times[0]


def test_a_full_disk_refuses_with_a_code_and_forgets_what_it_promised(tmp_path: Path) -> None:
    small = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20, map_reserve=256 << 10)
    fixture = Fixture(tmp_path, store_options=small)
    fixture.create()
    replies = [fixture.publish(b"s.a", bytes(60_000), {"Nats-Msg-Id": str(number)}) for number in range(40)]
    fixture.commit()
    answers = [json.loads(fixture.answer(reply) or b"") for reply in replies]
    assert all(code(answer) == 10077 for answer in answers)
    assert fixture.stream().log.state.messages == 0
    assert fixture.stream().log.state.last_seq == 0
    assert fixture.put(b"s.a", b"small", {"Nats-Msg-Id": "0"}) == {"stream": "S", "seq": 1}
    assert fixture.held() == [(1, b"small")]


def test_too_much_under_way_is_refused(tmp_path: Path) -> None:
    tight = StoreOptions(inline=True, flush=False, backlog_bytes_hard=10_000)
    fixture = Fixture(tmp_path, store_options=tight)
    fixture.create()
    first = fixture.publish(b"s.a", bytes(20_000))
    fixture.broker.flush()
    second = fixture.publish(b"s.a", b"x")
    fixture.commit()
    assert json.loads(fixture.answer(first) or b"")["seq"] == 1
    assert code(json.loads(fixture.answer(second) or b"")) == 10167


def test_memory_streams_do_not_wait_for_the_disk(fixture: Fixture) -> None:
    fixture.create(storage="memory")
    reply = fixture.publish(b"s.a", b"x")
    fixture.broker.flush()
    assert fixture.answer(reply) == b'{"stream":"S","seq":1}'
    assert fixture.restart().request("STREAM.NAMES")["streams"] is None


def test_account_limits_refuse_storage(tmp_path: Path) -> None:
    from eyot_daemon.config.accounts import AccountJetStreamOptions

    fixture = Fixture(tmp_path, limits=AccountJetStreamOptions(file_max=80))
    fixture.create()
    assert [fixture.put(b"s.a", b"1234")["seq"] for _ in range(2)] == [1, 2]
    assert code(fixture.put(b"s.a", b"1234")) == 10002


def test_a_record_with_a_flipped_bit_is_named_and_keeps_nobody_from_publishing(fixture: Fixture) -> None:
    fixture.create(max_msgs=2)
    fixture.put(b"s.a", b"flipped")
    fixture.put(b"s.a", b"whole")
    stream_id = fixture.stream().log.id
    fixture.js.stop()
    fixture.store.close()
    flip_a_bit(fixture.path, stream_id, seq=1)
    fixture = Fixture(fixture.path)
    answer = fixture.request("STREAM.MSG.GET.S", {"seq": 1})
    assert code(answer) == 10051
    assert "sequence 1" in answer["error"]["description"]
    assert fixture.put(b"s.a", b"more")["seq"] == 3
    assert fixture.request("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2


def flip_a_bit(path: Path, stream_id: int, seq: int) -> None:
    with lmdb.open(str(path), max_dbs=16) as environment:
        db = environment.open_db(messages_db_name(stream_id), create=False)
        with environment.begin(db=db, write=True) as txn:
            key = seq.to_bytes(8, "big")
            value = bytearray(txn.get(key))
            value[len(value) // 2] ^= 1
            txn.put(key, bytes(value))


def test_headers_without_an_id_leave_nothing_in_the_duplicate_window(fixture: Fixture) -> None:
    fixture.create()
    for number in range(3):
        fixture.publish(b"s.a", b"%d" % number, {"X": "y"})
        fixture.commit()
    window = fixture.stream().dedupe
    assert not window._order
    answers = [fixture.publish(b"s.a", b"3", {"Nats-Msg-Id": "id"}) for _ in range(2)]
    fixture.publish(b"s.a", b"4", {"X": "y"})
    fixture.commit()
    assert [fixture.answer(reply) for reply in answers] == [
        b'{"stream":"S","seq":4}',
        b'{"stream":"S","seq":4,"duplicate": true}',
    ]
    assert dict(window.ids()) == {b"id": 4}
    expecting = fixture.publish(b"s.a", b"6", {"Nats-Expected-Last-Msg-Id": "id"})
    fixture.commit()
    assert code(json.loads(fixture.answer(expecting) or b"")) == 10070
