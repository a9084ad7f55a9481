"""Runs of stored messages: both twins write exactly the stored messages, for any arguments."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire import native
from eyot_wire.jetstream.packed_range import unpack
from eyot_wire.stored_run import KNOWN_SUBJECTS_MAX
from support.clients.twins import STORED_RUNS
from support.store.stored_run_fixture import ran, stored
from support.store.stored_runs import written_of

twins = pytest.mark.parametrize("twin", STORED_RUNS, ids=["plain", "compiled"])
EVERYTHING = 2**64 - 1


def records(count: int, salt: int = 0) -> list[tuple[bytes, bytes]]:
    rng = Random(count)
    return [stored(rng, seq, salt) for seq in range(1, count + 1)]


def test_the_compiled_twin_is_chosen() -> None:
    assert native.StoredRun is STORED_RUNS[1]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**48))
def test_both_twins_come_to_the_same(seed: int) -> None:
    assert ran(1, seed) == ran(0, seed)


def made(twin: type, fields: list[tuple[bytes, bytes, bytes]], ts_ns: int = 7) -> Any:
    def binary(data: bytes) -> bytes:
        return b"\xc6" + struct.pack(">I", len(data)) + data

    run = twin()
    pairs = [
        (struct.pack(">Q", 3 * number), b"\x94\xd3" + struct.pack(">q", ts_ns) + b"".join(map(binary, each)) + b"tail")
        for number, each in enumerate(fields, 1)
    ]
    assert run.gather(pairs, EVERYTHING, 1 << 20, 1 << 30) in (0, 3 * len(fields) + 1)
    return run


@twins
def test_what_is_written_is_what_was_stored(twin: type) -> None:
    fields = [
        (b"a.b", b"", b"x"),
        (b"c", b"NATS/1.0\r\n\r\n", b""),
        (b"d", b"", b""),
        (b"e", b"NATS/1.0\r\nA: b\r\n\r\n", b"y"),
    ]
    run = made(twin, fields)
    out = bytearray(b"+OK\r\n")
    assert run.write_msgs(out, 0, 4, b"12", b"$JS.ACK.S.C.", 41, 4) == 1 + 12 + 18 + 1
    assert bytes(out) == (
        b"+OK\r\n"
        b"MSG a.b 12 $JS.ACK.S.C.1.3.41.7.3 1\r\nx\r\n"
        b"HMSG c 12 $JS.ACK.S.C.1.6.42.7.2 12 12\r\nNATS/1.0\r\n\r\n\r\n"
        b"MSG d 12 $JS.ACK.S.C.1.9.43.7.1 0\r\n\r\n"
        b"HMSG e 12 $JS.ACK.S.C.1.12.44.7.0 18 19\r\nNATS/1.0\r\nA: b\r\n\r\ny\r\n"
    )
    replies = (
        b"$JS.ACK.S.C.1.3.41.7.3",
        b"$JS.ACK.S.C.1.6.42.7.2",
        b"$JS.ACK.S.C.1.9.43.7.1",
        b"$JS.ACK.S.C.1.12.44.7.0",
    )
    sizes = [len(reply) + sum(map(len, each)) for reply, each in zip(replies, fields, strict=True)]
    assert run.delivery_sizes(b"$JS.ACK.S.C.", 41, 4) == sizes
    assert written_of(run) == {3 * n: (7, *each) for n, each in enumerate(fields, 1)}


@twins
def test_what_is_written_for_a_link(twin: type) -> None:
    fields = [(b"a.b", b"", b"x"), (b"c", b"NATS/1.0\r\n\r\n", b""), (b"d", b"", b"y" * 50), (b"e", b"", b"z")]
    run = made(twin, fields)
    first = b"LMSG $JS.M.Ab $JS.ACK.S.C.1.3.41.7.3@a.b 1\r\nx\r\n"
    second = b"HMSG $JS.M.Ab $JS.ACK.S.C.1.6.42.7.2@c 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    third = b"LMSG $JS.M.Ab $JS.ACK.S.C.1.9.43.7.1@d 50\r\n%b\r\n" % (b"y" * 50)
    last = b"LMSG $JS.M.Ab $JS.ACK.S.C.1.12.44.7.0@e 1\r\nz\r\n"

    def written(size_max: int, chunk_bytes: int, start: int = 0, stop: int = 4) -> Any:
        return run.write_lmsgs(start, stop, b"$JS.M.Ab", b"$JS.ACK.S.C.", 41 + start, 4 - start, size_max, chunk_bytes)

    assert written(999, 9999) == [(first + second + third + last, 4, 64)]
    assert written(999, 1) == [(first, 1, 1), (second, 1, 12), (third, 1, 50), (last, 1, 1)]
    assert written(999, len(first + second)) == [(first + second, 2, 13), (third, 1, 50), (last, 1, 1)]
    # One that is too large for the peer leaves a gap in the consumer's sequence.
    assert written(49, 9999) == [(first + second + last, 3, 14)]
    assert written(0, 9999) == []
    assert written(999, 9999, 3) == [(last, 1, 1)]
    assert written(999, 9999, 2, 2) == []
    assert run.header_holds(0, 4, b"NATS")
    assert not run.header_holds(0, 1, b"NATS")
    assert run.opened(1, 3) == [(6, 7, *fields[1]), (9, 7, *fields[2])]


@twins
def test_what_is_packed_is_what_was_stored(twin: type) -> None:
    pairs = records(40, salt=5)
    run = twin()
    assert (run.packed(), run.packed_size) == (b"", 0)
    assert run.gather(pairs, EVERYTHING, 99, 1 << 30, 5) == 0
    run.without({3, 40}, 0)
    kept = [(seq, record[:-4]) for seq, (_, record) in enumerate(pairs, 1) if seq not in (3, 40)]
    assert unpack(run.packed(), 38) == kept
    assert len(run.packed()) == run.packed_size


@twins
def test_what_a_record_costs(twin: type) -> None:
    pairs = records(20)
    size = sum(len(record) + 12 for _, record in pairs[:6])
    for room, next_seq in ((size, 7), (size - 1, 6)):
        run = twin(12)
        assert run.gather(pairs, EVERYTHING, 99, room, 0) == next_seq
        assert run.size == sum(len(record) + 12 for _, record in pairs[: next_seq - 1])


@twins
def test_where_a_run_ends(twin: type) -> None:
    pairs = records(20, salt=5)

    def gathered(last: int = EVERYTHING, count: int = 99, room: int = 1 << 30, salt: int = 5) -> tuple[int, int]:
        run = twin()
        return run.gather(pairs, last, count, room, salt), len(run)

    assert gathered() == (0, 20)
    assert gathered(last=20) == (0, 20)
    assert gathered(last=7) == (0, 7)
    assert gathered(count=3) == (4, 3)
    assert gathered(room=0) == (2, 1)
    size = sum(len(record) for _, record in pairs[:6])
    assert gathered(room=size) == (7, 6)
    assert gathered(room=size - 1) == (6, 5)
    assert gathered(salt=6) == (1, 0)
    assert gathered(salt=-1) == (0, 20)


@twins
def test_a_damaged_record_ends_a_run(twin: type) -> None:
    pairs = records(9)
    for index, bit in ((0, 3), (4, 0), (4, 77), (8, 9)):
        key, record = pairs[index]
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        run = twin()
        assert (
            run.gather([*pairs[:index], (key, bytes(changed)), *pairs[index + 1 :]], EVERYTHING, 99, 1 << 30, 0)
            == index + 1
        )
        assert run.seqs() == list(range(1, index + 1))
    run = twin()
    # A record under another sequence, cut short, or of another shape.
    assert run.gather([(pairs[1][0], pairs[0][1])], EVERYTHING, 9, 999, 0) == 2
    body = pairs[0][1][:-4]
    for end in range(len(body)):
        assert run.gather([(pairs[0][0], body[:end])], EVERYTHING, 9, 1 << 30) == 1
    assert len(run) == 0
    assert run.gather([(pairs[0][0], body)], EVERYTHING, 9, 1 << 30) == 0


@twins
def test_what_comes_before_an_error_of_the_source_is_kept(twin: type) -> None:
    def source() -> Any:
        yield from records(3)
        raise OSError("gone")

    run = twin()
    with pytest.raises(OSError, match="gone"):
        run.gather(source(), EVERYTHING, 99, 1 << 30, 0)
    assert run.seqs() == [1, 2, 3]


@twins
def test_what_is_no_pair_or_key(twin: type) -> None:
    run = twin()
    for wrong in ((b"123", b""), (b"", b""), (b"123456789", b"")):
        with pytest.raises(ValueError, match="a key is not a sequence"):
            run.gather([wrong], EVERYTHING, 9, 9)
    with pytest.raises(IndexError):
        run.seq(0)
    with pytest.raises(IndexError):
        run.write_msgs(bytearray(), 0, 1, b"1", b"p.", 1, 1)
    with pytest.raises(IndexError):
        run.cut(-1)


@twins
def test_answers_are_asked_for_once_and_bounded(twin: type) -> None:
    run = made(twin, [(b"s.%d" % (number % 5000), b"", b"") for number in range(12_000)])
    asked: list[bytes] = []

    def wanted(subject: bytes) -> bool:
        asked.append(subject)
        return subject.endswith(b"7")

    known: dict[bytes, bool] = {}
    run.matching(wanted, known, 0)
    assert len(run) == 1200
    assert len(known) <= KNOWN_SUBJECTS_MAX
    assert asked[:5000] == [b"s.%d" % number for number in range(5000)]
    few = made(twin, [(b"a", b"", b""), (b"a", b"", b""), (b"b", b"", b""), (b"a", b"", b"")])
    asked.clear()
    few.matching(wanted, {b"b": True}, 1)
    assert (asked, few.seqs()) == ([b"a"], [3, 9])


def test_the_checksum_is_zlibs() -> None:
    """At every length: eight bytes at a time, and the rest."""
    rng = Random(1)
    for size in range(64):
        body = b"\x94\x05\xc4\x01a\xc4\x00\xc4" + bytes([size]) + rng.randbytes(size)
        key = struct.pack(">Q", rng.randrange(2**64))
        salt = rng.randrange(2**32)
        record = body + struct.pack("<I", crc32(body, crc32(key, salt)))
        run = STORED_RUNS[1]()
        assert run.gather([(key, record)], EVERYTHING, 9, 999, salt) == 0
        assert run.gather([(key, record)], EVERYTHING, 9, 999, salt ^ 1) == struct.unpack(">Q", key)[0]
