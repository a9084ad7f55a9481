"""Counters: sums of any size, what a counter refuses, and sums from several origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.ingest.counters import Counters
from support.jetstream.fixture import Fixture
from support.jetstream.schemas import check_pub_ack


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create("C", allow_msg_counter=True)
    return fixture


def add(fixture: Fixture, increment: str, subject: bytes = b"c.a", payload: bytes = b"", **more: str) -> Any:
    """The new sum, or the code of the refusal."""
    header = {"Nats-Incr": increment} | {f"Nats-{name.replace('_', '-')}": value for name, value in more.items()}
    answer = check_pub_ack(fixture.put(subject, payload, header))
    return answer["error"]["err_code"] if "error" in answer else answer["val"]


def test_each_message_holds_the_sum(fixture: Fixture) -> None:
    assert [add(fixture, each) for each in ("+1", "5", "-3", "0", "+0")] == ["1", "6", "3", "3", "3"]
    assert add(fixture, "9" * 60) == str(int("9" * 60) + 3)
    assert add(fixture, "-7", b"c.b") == "-7"
    assert fixture.held("C")[2] == (3, b'{"val":"3"}')


def test_sums_of_one_turn_build_on_each_other(fixture: Fixture) -> None:
    replies = [fixture.publish(b"c.a", b"", {"Nats-Incr": "2"}) for _ in range(50)]
    fixture.commit()
    assert fixture.answer(replies[-1]) == b'{"stream":"C","seq":50,"val":"100"}'


def test_a_restart_goes_on_from_the_sum(fixture: Fixture) -> None:
    add(fixture, "41")
    assert add(fixture.restart(), "1") == "42"


def test_a_crash_forgets_what_was_not_committed(fixture: Fixture) -> None:
    add(fixture, "41")
    fixture.publish(b"c.a", b"", {"Nats-Incr": "100"})
    fixture.broker.flush()
    assert add(fixture.crash(), "1") == "42"


@pytest.mark.parametrize("increment", ["1.5", "abc", "+-1", "0x10", "1_0", "9" * 4001])
def test_what_is_no_number_is_refused(fixture: Fixture, increment: str) -> None:
    assert add(fixture, increment) == 10171


def test_a_sum_may_be_long(fixture: Fixture) -> None:
    assert add(fixture, "9" * 4000) == "9" * 4000
    assert add(fixture, "1") == "1" + "0" * 4000


def test_refusals(fixture: Fixture) -> None:
    assert add(fixture, "1", payload=b"x") == 10170
    assert add(fixture, "") == 10169
    assert fixture.put(b"c.a", b"")["error"]["err_code"] == 10169
    for name, value in [
        ("Rollup", "sub"),
        ("Expected_Stream", "C"),
        ("Expected_Last_Sequence", "0"),
        ("Expected_Last_Subject_Sequence", "0"),
        ("Expected_Last_Msg_Id", "x"),
    ]:
        assert add(fixture, "1", **{name: value}) == 10171
    fixture.create("S")
    assert add(fixture, "1", b"s.a") == 10168


def test_a_repeated_id_adds_nothing(fixture: Fixture) -> None:
    assert add(fixture, "1", Msg_Id="a") == "1"
    again = fixture.put(b"c.a", b"", {"Nats-Incr": "1", "Nats-Msg-Id": "a"})
    assert again == {"stream": "C", "seq": 1, "duplicate": True}
    assert add(fixture, "1", Msg_Id="b") == "2"


def test_counters_in_an_atomic_batch(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create("C", allow_msg_counter=True, allow_atomic=True)
    for seq, more in ((1, {}), (2, {"Nats-Batch-Commit": "1"})):
        header = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(seq), "Nats-Incr": "2", **more}
        reply = fixture.publish(b"c.a", b"", header)
    fixture.commit()
    assert fixture.answer(reply) == b'{"stream":"C","seq":2,"batch":"b","count":2}'
    assert fixture.held("C")[-1] == (2, b'{"val":"4"}')


def copied(counters: Counters, fixture: Fixture, value: str, source: str) -> Any:
    """What is stored for the copy of a counter's message with this sum."""
    header = f"NATS/1.0\r\nNats-Incr: 1\r\nNats-Stream-Source: {source}\r\n\r\n".encode()
    fields = {b"Nats-Incr": b"1", b"Nats-Stream-Source": source.encode()}
    return counters.added(b"c.a", header, fields, b'{"val":"%b"}' % value.encode())


def test_copies_add_what_their_origin_has_changed_by(fixture: Fixture) -> None:
    log = fixture.stream("C").log
    counters = Counters(log)

    def store(value: str, source: str) -> bytes:
        total = copied(counters, fixture, value, source)
        with fixture.stream("C").staging() as txn:
            seq = log.append(txn, b"c.a", total.header, total.payload, log.state.last_seq + 1)
            counters.stored(b"c.a", seq, total)
        fixture.store.submit(txn)
        fixture.commit()
        assert isinstance(total.header, bytes)
        return total.header + total.payload

    assert store("5", "A 1 > > a.x").endswith(b'Nats-Counter-Sources: {"A":{"a.x":"5"}}\r\n\r\n{"val":"5"}')
    # A message of the origin was missed: 12 is 7 more, not 1.
    assert b"Nats-Incr: 7\r\n" in store("12", "A 3 > > a.x")
    assert store("100", "B 1 > > b.x").endswith(b'{"A":{"a.x":"12"},"B":{"b.x":"100"}}\r\n\r\n{"val":"112"}')
    # What is counted here keeps the origins' sums with it.
    assert add(fixture, "1") == "113"
    message = log.get(4)
    assert message is not None
    assert b'Nats-Counter-Sources: {"A":{"a.x":"12"},"B":{"b.x":"100"}}' in message.header
    assert store("90", "B 2 > > b.x").endswith(b'{"val":"103"}')


def test_a_publisher_cannot_change_what_origins_have_counted(fixture: Fixture) -> None:
    log = fixture.stream("C").log
    assert add(fixture, "1", Counter_Sources=' {"B":{},"A":{"a.x":"5"}}') == "1"
    assert add(fixture, "1", Counter_Sources='{"A":{"a.x":"100"}}') == "2"
    assert add(fixture, "1", Counter_Sources="junk") == "3"
    for seq in (2, 3):
        message = log.get(seq)
        assert message is not None
        assert b'Nats-Counter-Sources: {"A":{"a.x":"5"},"B":{}}\r\n' in message.header
    # The first message of a subject has nothing else to go by.
    assert add(fixture, "1", b"c.b", Counter_Sources="junk") == "1"
    assert add(fixture, "1", b"c.b") == 10172
    assert [add(fixture, "1", b"c.c", Counter_Sources="null"), add(fixture, "1", b"c.c")] == ["1", "2"]


def test_a_sum_of_an_origin_that_is_no_number_counts_as_none(fixture: Fixture) -> None:
    assert add(fixture, "1", Counter_Sources='{"A":{"a.x":"y"}}') == "1"
    total = copied(Counters(fixture.stream("C").log), fixture, "5", "A 1 > > a.x")
    assert total.payload == b'{"val":"6"}'
    assert b"Nats-Incr: 5\r\n" in total.header


def test_a_message_that_is_no_counter_breaks_its_subject(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.create("C", allow_msg_counter=True)
    log = fixture.stream("C").log
    with fixture.stream("C").staging() as txn:
        log.append(txn, b"c.a", b"", b"no sum", 1)
    fixture.store.submit(txn)
    fixture.commit()
    assert add(fixture, "1") == 10172


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"discard": "new"}, "counter stream cannot use discard new"),
        ({"retention": "interest"}, "counter stream can only use limits retention"),
        ({"allow_msg_ttl": True}, "counter stream cannot use message TTLs"),
        ({"allow_msg_schedules": True}, "counter stream cannot use message schedules"),
    ],
)
def test_what_a_counter_stream_cannot_be(fixture: Fixture, config: dict[str, Any], words: str) -> None:
    answer = fixture.create("D", allow_msg_counter=True, **config)
    assert answer["error"] == {"code": 500, "err_code": 10052, "description": words}
