"""Publishing into streams: PubAcks after the flush, headers and their order of checks, limits, faults."""

import json
from pathlib import Path
from typing import Any

import lmdb
import pytest

from eyot_store import StoreOptions
from eyot_store.environment import messages_db_name
from support.destinations import Recorder
from support.js_fixture import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def code(answer: Any) -> int:
    number = answer["error"]["err_code"]
    assert isinstance(number, int)
    return number


def test_a_puback_leaves_only_after_the_commit_that_holds_its_message(world: World) -> None:
    world.create()
    reply = world.publish(b"s.a", b"one")
    world.broker.flush()
    assert world.answer(reply) is None
    assert world.stream().log.state.messages == 1
    assert world.held() == []
    world.commit()
    assert world.answer(reply) == b'{"stream":"S","seq":1}'
    assert world.held() == [(1, b"one")]


def test_a_turn_is_one_transaction(world: World) -> None:
    world.create()
    commits = world.store.stats.txns
    for number in range(100):
        world.publish(b"s.a", b"%d" % number)
    world.commit()
    assert world.store.stats.txns == commits + 1
    assert [payload for _, payload in world.held()] == [b"%d" % number for number in range(100)]


def test_the_domain_is_in_the_puback_and_in_front_of_the_api(tmp_path: Path) -> None:
    world = World(tmp_path, domain="hub")
    assert world.request("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}, prefix="$JS.hub.API")["did_create"]
    reply = world.publish(b"s", b"x", {"Nats-Msg-Id": "1"})
    again = world.publish(b"s", b"x", {"Nats-Msg-Id": "1"})
    world.commit()
    assert world.answer(reply) == b'{"stream":"S","domain":"hub","seq":1}'
    assert world.answer(again) == b'{"stream":"S","domain":"hub","seq":1,"duplicate": true}'


def test_a_repetition_of_what_is_under_way_is_acknowledged_with_it(world: World) -> None:
    world.create()
    world.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    world.broker.flush()
    again = world.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    world.broker.flush()
    assert world.answer(again) is None
    world.commit()
    assert json.loads(world.answer(again) or b"") == {"stream": "S", "seq": 1, "duplicate": True}


def test_duplicates_are_known_within_the_window_and_after_a_restart(world: World) -> None:
    world.create(duplicate_window=10_000_000_000)
    assert world.put(b"s.a", b"x", {"Nats-Msg-Id": "1"})["seq"] == 1
    assert world.put(b"s.b", b"y", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    world.clock.advance(5)
    world = world.restart()
    assert world.put(b"s.b", b"y", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1, "duplicate": True}
    world.clock.advance(6)
    assert world.put(b"s.b", b"y", {"Nats-Msg-Id": "1"})["seq"] == 2


def test_what_was_not_committed_is_not_a_duplicate_after_a_crash(world: World) -> None:
    world.create()
    world.publish(b"s.a", b"x", {"Nats-Msg-Id": "1"})
    world.broker.flush()
    world = world.crash()
    assert world.put(b"s.a", b"x", {"Nats-Msg-Id": "1"}) == {"stream": "S", "seq": 1}


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
    world: World, header: dict[str, str], err_code: int, text: str | None
) -> None:
    world.create()
    world.put(b"s.a", b"1")
    world.put(b"s.b", b"2", {"Nats-Msg-Id": "two"})
    answer = world.put(b"s.a", b"3", header)
    assert code(answer) == err_code
    assert text is None or answer["error"]["description"] == text
    assert (answer["stream"], answer["seq"]) == ("S", 0)
    assert world.stream().log.state.messages == 2


def test_expectations_that_hold_are_stored(world: World) -> None:
    world.create()
    assert world.put(b"s.a", b"1", {"Nats-Expected-Last-Sequence": "0"})["seq"] == 1
    assert world.put(b"s.a", b"2", {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Msg-Id": "m"})["seq"] == 2
    assert world.put(b"s.new", b"3", {"Nats-Expected-Last-Subject-Sequence": "0"})["seq"] == 3
    assert world.put(b"s.a", b"4", {"Nats-Expected-Stream": "S", "Nats-Expected-Last-Msg-Id": ""})["seq"] == 4


def test_expectations_count_what_the_same_turn_stored(world: World) -> None:
    world.create()
    replies = [world.publish(b"s.a", b"%d" % n, {"Nats-Expected-Last-Sequence": str(n)}) for n in (0, 1, 1, 2)]
    world.commit()
    answers = [json.loads(world.answer(reply) or b"") for reply in replies]
    assert [answer["seq"] for answer in answers] == [1, 2, 0, 3]
    assert code(answers[2]) == 10071


def test_rollups_leave_the_message_that_rolls_up(world: World) -> None:
    world.create(allow_rollup_hdrs=True)
    for subject in (b"s.a", b"s.b", b"s.a"):
        world.put(subject, subject)
    world.put(b"s.a", b"sub", {"Nats-Rollup": "SUB"})
    assert world.held() == [(2, b"s.b"), (4, b"sub")]
    world.put(b"s.a", b"all", {"Nats-Rollup": "all"})
    assert world.held() == [(5, b"all")]
    assert code(world.put(b"s.a", b"?", {"Nats-Rollup": "some"})) == 10111


def test_sizes(world: World) -> None:
    world.create(max_msg_size=10)
    assert world.put(b"s.a", b"0123456789")["seq"] == 1
    assert code(world.put(b"s.a", b"0123456789a")) == 10054
    assert code(world.put(b"s.a", b"", {"A": "b"})) == 10054


def test_old_messages_make_room(world: World) -> None:
    world.create(max_msgs=3)
    for number in range(10):
        world.publish(b"s.a", b"%d" % number)
    world.commit()
    assert world.held() == [(8, b"7"), (9, b"8"), (10, b"9")]


def test_old_bytes_make_room(world: World) -> None:
    world.create(max_bytes=150)
    for number in range(10):
        world.put(b"s.a", b"%04d" % number)
    assert world.held() == [(7, b"0006"), (8, b"0007"), (9, b"0008"), (10, b"0009")]
    assert world.stream().log.state.bytes == 4 * 37


def test_each_subject_keeps_its_newest(world: World) -> None:
    world.create(max_msgs_per_subject=2)
    for number in range(6):
        world.publish(b"s.%d" % (number % 2), b"%d" % number)
    world.commit()
    world.put(b"s.0", b"6")
    assert world.held() == [(4, b"3"), (5, b"4"), (6, b"5"), (7, b"6")]


def test_new_messages_are_refused_when_full(world: World) -> None:
    world.create(max_msgs=2, discard="new")
    assert [world.put(b"s.a", b"")["seq"] for _ in range(3)] == [1, 2, 0]
    answer = world.put(b"s.a", b"")
    assert (code(answer), answer["error"]["description"]) == (10077, "maximum messages exceeded")
    world.request("STREAM.PURGE.S")
    assert world.put(b"s.a", b"")["seq"] == 3


def test_new_bytes_are_refused_when_full(world: World) -> None:
    world.create(max_bytes=80, discard="new")
    answers = [world.put(b"s.a", b"1234") for _ in range(3)]
    assert answers[1]["seq"] == 2
    assert answers[2]["error"]["description"] == "maximum bytes exceeded"


def test_discard_new_per_subject(world: World) -> None:
    world.create(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    assert world.put(b"s.a", b"")["seq"] == 1
    assert world.put(b"s.a", b"")["error"]["description"] == "maximum messages per subject exceeded"
    assert world.put(b"s.b", b"")["seq"] == 2


def test_a_full_stream_takes_what_replaces_an_older_message_of_its_subject(world: World) -> None:
    world.create(max_msgs=2, max_msgs_per_subject=1, discard="new")
    world.put(b"s.a", b"1")
    world.put(b"s.b", b"2")
    assert world.put(b"s.a", b"3")["seq"] == 3
    assert code(world.put(b"s.c", b"4")) == 10077
    assert world.held() == [(2, b"2"), (3, b"3")]


def test_messages_leave_when_they_are_too_old(world: World) -> None:
    world.create(max_age=10_000_000_000)
    world.put(b"s.a", b"1")
    world.advance(6)
    world.put(b"s.a", b"2")
    world.advance(5)
    assert world.held() == [(2, b"2")]
    world.advance(6)
    assert world.held() == []
    state = world.request("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (3, 2, 0)
    world.put(b"s.a", b"3")
    world.advance(11)
    assert world.held() == []


def test_a_stream_without_acks_answers_nothing(world: World) -> None:
    world.create(no_ack=True, max_msg_size=2)
    assert world.put(b"s.a", b"x") is None
    assert world.put(b"s.a", b"too long") is None
    assert world.held() == [(1, b"x")]


def test_a_sealed_stream_takes_nothing(world: World) -> None:
    world.create()
    world.put(b"s.a", b"x")
    updated = world.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "sealed": True})
    assert updated["config"]["deny_purge"]
    assert code(world.put(b"s.a", b"y")) == 10109
    assert code(world.request("STREAM.PURGE.S")) == 10109


def test_request_info_is_not_stored(world: World) -> None:
    world.create()
    world.put(b"s.a", b"x", {"Nats-Request-Info": "{}", "Mine": "1"})
    message = world.stream().log.get(1)
    assert message is not None
    assert message.header == b"NATS/1.0\r\nMine: 1\r\n\r\n"


def test_subjects_are_transformed_before_they_are_looked_at(world: World) -> None:
    world.create(subject_transform={"src": "s.*", "dest": "t.{{wildcard(1)}}.x"}, max_msgs_per_subject=1)
    world.put(b"s.a", b"1")
    world.put(b"s.a", b"2")
    message = world.stream().log.get(2)
    assert message is not None
    assert message.subject == b"t.a.x"
    assert world.held() == [(2, b"2")]


def test_stored_messages_are_republished(world: World) -> None:
    listener = Recorder()
    world.account.subscribe(b"copy.>", listener)
    world.create(republish={"src": "s.*", "dest": "copy.{{wildcard(1)}}"})
    world.put(b"s.a", b"1")
    world.publish(b"s.a", b"2", {"Mine": "x"})
    world.broker.flush()
    assert len(listener.got) == 1
    world.commit()
    assert [(got.subject, got.payload) for got in listener.got] == [(b"copy.a", b"1"), (b"copy.a", b"2")]
    header = listener.got[1].header.decode()
    assert header.startswith(
        "NATS/1.0\r\nMine: x\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 2\r\nNats-Time-Stamp: "
    )
    assert header.endswith("Nats-Last-Sequence: 1\r\n\r\n")


def test_republishing_headers_only_tells_the_size(world: World) -> None:
    listener = Recorder()
    world.account.subscribe(b"copy.s.a", listener)
    world.create(republish={"dest": "copy.>", "headers_only": True})
    world.put(b"s.a", b"12345")
    assert listener.got[0].payload == b""
    assert b"Nats-Msg-Size: 5\r\n" in listener.got[0].header


def test_interest_retention_keeps_nothing_that_nobody_wants(world: World) -> None:
    world.create(retention="interest")
    assert world.put(b"s.a", b"x") == {"stream": "S", "seq": 1}
    assert world.put(b"s.a", b"x")["seq"] == 2
    assert world.held() == []
    world = world.restart()
    assert world.put(b"s.a", b"x")["seq"] == 3


def test_times_ascend_when_the_clock_is_nudged_back(world: World) -> None:
    world.create()
    world.put(b"s.a", b"1")
    world.clock.jump(-0.5)
    world.put(b"s.a", b"2")
    world.clock.jump(-3600)
    world.put(b"s.a", b"3")
    times = [message.ts_ns for message in (world.stream().log.get(seq) for seq in (1, 2, 3)) if message]
    assert times[1] == times[0] + 1
    assert times[2] < times[0]


def test_a_full_disk_refuses_with_a_code_and_forgets_what_it_promised(tmp_path: Path) -> None:
    small = StoreOptions(inline=True, flush=False, map_size=1 << 20, map_size_max=1 << 20, map_reserve=256 << 10)
    world = World(tmp_path, store_options=small)
    world.create()
    replies = [world.publish(b"s.a", bytes(60_000), {"Nats-Msg-Id": str(number)}) for number in range(40)]
    world.commit()
    answers = [json.loads(world.answer(reply) or b"") for reply in replies]
    assert all(code(answer) == 10077 for answer in answers)
    assert world.stream().log.state.messages == 0
    assert world.stream().log.state.last_seq == 0
    assert world.put(b"s.a", b"small", {"Nats-Msg-Id": "0"}) == {"stream": "S", "seq": 1}
    assert world.held() == [(1, b"small")]


def test_too_much_under_way_is_refused(tmp_path: Path) -> None:
    tight = StoreOptions(inline=True, flush=False, backlog_bytes_hard=10_000)
    world = World(tmp_path, store_options=tight)
    world.create()
    first = world.publish(b"s.a", bytes(20_000))
    world.broker.flush()
    second = world.publish(b"s.a", b"x")
    world.commit()
    assert json.loads(world.answer(first) or b"")["seq"] == 1
    assert code(json.loads(world.answer(second) or b"")) == 10167


def test_memory_streams_do_not_wait_for_the_disk(world: World) -> None:
    world.create(storage="memory")
    reply = world.publish(b"s.a", b"x")
    world.broker.flush()
    assert world.answer(reply) == b'{"stream":"S","seq":1}'
    assert world.restart().request("STREAM.NAMES")["streams"] is None


def test_account_limits_refuse_storage(tmp_path: Path) -> None:
    from eyot_daemon.config.accounts import AccountJetStreamOptions

    world = World(tmp_path, limits=AccountJetStreamOptions(file_max=80))
    world.create()
    assert [world.put(b"s.a", b"1234")["seq"] for _ in range(2)] == [1, 2]
    assert code(world.put(b"s.a", b"1234")) == 10002


def test_a_record_with_a_flipped_bit_is_named_and_keeps_nobody_from_publishing(world: World) -> None:
    world.create(max_msgs=2)
    world.put(b"s.a", b"flipped")
    world.put(b"s.a", b"whole")
    stream_id = world.stream().log.id
    world.js.stop()
    world.store.close()
    flip_a_bit(world.path, stream_id, seq=1)
    world = World(world.path)
    answer = world.request("STREAM.MSG.GET.S", {"seq": 1})
    assert code(answer) == 10051
    assert "sequence 1" in answer["error"]["description"]
    assert world.put(b"s.a", b"more")["seq"] == 3
    assert world.request("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2


def flip_a_bit(path: Path, stream_id: int, seq: int) -> None:
    with lmdb.open(str(path), max_dbs=16) as environment:
        db = environment.open_db(messages_db_name(stream_id), create=False)
        with environment.begin(db=db, write=True) as txn:
            key = seq.to_bytes(8, "big")
            value = bytearray(txn.get(key))
            value[len(value) // 2] ^= 1
            txn.put(key, bytes(value))
