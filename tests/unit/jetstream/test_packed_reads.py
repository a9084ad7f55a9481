"""STREAM.EYOT_RANGE: what its replies cover and hold, and the errors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_daemon.jetstream.api import packed_reads
from eyot_store.records.record import StoredMessage
from eyot_wire.jetstream.packed_range import RangeHead, decode_head, unpack
from support.jetstream.fixture import Fixture

Reply = tuple[RangeHead, list[tuple[int, StoredMessage]]]


@pytest.fixture(params=["file", "memory"])
def fixture(tmp_path: Path, request: pytest.FixtureRequest) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create(storage=request.param)
    for number in range(1, 31):
        fixture.put(b"s.%d" % (number % 3), b"%03d" % number, {"Mine": "x"} if number % 2 else b"")
    return fixture


def read(fixture: Fixture, **asked: Any) -> list[Reply]:
    found = []
    for header, payload in fixture.messages("STREAM.EYOT_RANGE.S", {"first_seq": 1, **asked}):
        head = decode_head(header)
        assert head is not None, payload
        records = [
            (seq, msgspec.msgpack.decode(record, type=StoredMessage)) for seq, record in unpack(payload, head.count)
        ]
        assert all(head.first_seq <= seq <= head.last_seq for seq, _ in records)
        found.append((head, records))
    for (one, _), (following, _) in pairwise(found):
        assert following.first_seq == one.last_seq + 1
        assert one.state == "more"
    return found


def sequences(replies: list[Reply]) -> list[int]:
    return [seq for _, records in replies for seq, _ in records]


def refused(fixture: Fixture, body: Any, stream: str = "S") -> dict[str, Any]:
    answer: dict[str, Any] = fixture.request(f"STREAM.EYOT_RANGE.{stream}", body)["error"]
    return answer


def test_records_come_as_they_are_stored(fixture: Fixture) -> None:
    ((head, records),) = read(fixture)
    assert (head.state, head.first_seq, head.last_seq, head.count, head.stream_first) == ("end", 1, 30, 30, 1)
    assert head.created_ns == fixture.stream().created_ns
    for seq, message in records:
        stored = fixture.stream().log.get(seq)
        assert stored is not None
        assert (message.subject, message.header, message.payload) == (stored.subject, stored.header, stored.payload)
        assert message.ts_ns == stored.ts_ns


def test_a_part_of_the_stream(fixture: Fixture) -> None:
    assert sequences(read(fixture, first_seq=7, last_seq=9)) == [7, 8, 9]
    ((head, records),) = read(fixture, first_seq=29, last_seq=99)
    assert ([seq for seq, _ in records], head.last_seq, head.state) == ([29, 30], 99, "end")
    ((head, records),) = read(fixture, first_seq=31, last_seq=40)
    assert (records, head.first_seq, head.last_seq, head.state) == ([], 31, 40, "end")


def test_replies_and_requests_are_bounded(fixture: Fixture) -> None:
    replies = read(fixture, max_reply=packed_reads.packed_range.HEAD_BYTES_MAX + 200)
    assert sequences(replies) == list(range(1, 31))
    assert len(replies) > 5
    replies = read(fixture, max_bytes=300)
    assert replies[-1][0].state == "pause"
    last = replies[-1][0].last_seq
    assert sequences(replies) == list(range(1, last + 1))
    assert last < 12
    assert sequences(read(fixture, first_seq=last + 1)) == list(range(last + 1, 31))
    ((head, records),) = read(fixture, max_bytes=1)
    assert (len(records), head.state) == (1, "pause")


def test_gaps_are_covered(fixture: Fixture) -> None:
    for seq in (1, 2, 5, 30):
        fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})
    ((head, records),) = read(fixture)
    assert [seq for seq, _ in records] == [seq for seq in range(1, 31) if seq not in (1, 2, 5, 30)]
    assert (head.first_seq, head.last_seq, head.stream_first) == (1, 30, 3)
    fixture.request("STREAM.PURGE.S", {"seq": 11})
    ((head, records),) = read(fixture, first_seq=4, last_seq=12)
    assert ([seq for seq, _ in records], head.first_seq, head.stream_first) == ([11, 12], 4, 11)


@pytest.mark.parametrize("filters", [["s.1"], ["s.1", "s.0"], ["s.>"], ["none"], ["s.2", "none.*"]])
def test_filters(fixture: Fixture, filters: list[str]) -> None:
    wanted = [n for n in range(1, 31) if "s.>" in filters or f"s.{n % 3}" in filters]
    replies = read(fixture, filters=filters)
    assert sequences(replies) == wanted
    assert (replies[0][0].first_seq, replies[-1][0].last_seq, replies[-1][0].state) == (1, 30, "end")
    replies = read(fixture, filters=filters, max_bytes=100)
    assert replies[-1][0].state == ("pause" if wanted else "end")
    assert sequences(replies) == wanted[: len(sequences(replies))]


def test_what_is_staged_is_waited_for(fixture: Fixture) -> None:
    fixture.publish(b"s.9", b"new")
    assert sequences(read(fixture)) == list(range(1, 32))


def test_an_empty_request_is_answered_with_what_is_spoken(fixture: Fixture) -> None:
    answer = fixture.request("STREAM.EYOT_RANGE.S")
    assert answer == {
        "type": "io.nats.jetstream.api.v1.eyot_range_response",
        "version": 1,
        "max_bytes": packed_reads.REQUEST_BYTES_MAX,
    }


def test_errors(fixture: Fixture) -> None:
    assert refused(fixture, b"", "T")["err_code"] == 10059
    assert refused(fixture, b"{")["err_code"] == 10025
    assert refused(fixture, {"last_seq": 3})["err_code"] == 10003
    assert refused(fixture, {"first_seq": 1, "filters": ["a..b"]})["err_code"] == 10003
    fixture.js.server.packed_reads_open = packed_reads.OPEN_MAX
    assert refused(fixture, {"first_seq": 1})["err_code"] == 10023
    fixture.js.server.packed_reads_open = 0
    assert sequences(read(fixture)) == list(range(1, 31))
    assert fixture.js.server.packed_reads_open == 0


def test_a_reader_that_is_gone_is_not_read_for(fixture: Fixture) -> None:
    fixture.account.publish(
        b"$JS.API.STREAM.EYOT_RANGE.S",
        b"nobody.listens",
        payload=b'{"first_seq":1,"max_reply":1}',
        origin=fixture.client,
    )
    before = fixture.account.out_msgs
    fixture.commit()
    assert (fixture.js.server.packed_reads_open, fixture.account.out_msgs) == (0, before)
