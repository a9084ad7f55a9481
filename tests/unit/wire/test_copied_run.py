"""Runs of copied messages: both twins do the same, and the compiled one takes nothing for bytes that is none."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_wire import _copied_run
from eyot_wire.frames import PING_OP, LeafMsg
from eyot_wire.jetstream import copied_run, native
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.leaf_scanner import LeafScanner

TWINS: tuple[Any, Any] = (copied_run, _copied_run)
NUMBER_MAX = (1 << 63) - 1
NUMBERS = (b"0", b"1", b"2", b"007", b"", b"x", b"-1", b" 1", b"%d" % NUMBER_MAX, b"%d" % (NUMBER_MAX + 1), b"9" * 40)


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.read_run is _copied_run.read_run
    assert native.stamp_run is _copied_run.stamp_run
    for name in native.__all__:
        assert getattr(native, name) is getattr(_copied_run, name)


def _reply(rng: Random, seq: int, at: int) -> bytes:
    tokens = [b"$JS", b"ACK", b"S", b"c", b"1", b"%d" % seq, b"%d" % at, b"%d" % rng.choice([0, 1 << 60]), b"3@a.b@c"]
    if rng.random() < 0.15:
        index = rng.randrange(len(tokens))
        tokens[index] = rng.choice([*NUMBERS, b"9" * 5000, b"d", b"5@x", b"@", b"3.@", b"c.c"])
    if rng.random() < 0.05:
        del tokens[rng.randrange(len(tokens))]
    return b".".join(tokens)


def _run(rng: Random) -> list[LeafMsg]:
    seq, run = rng.choice([1, 7, NUMBER_MAX - 3]), []
    for at in range(1, rng.randrange(8)):
        run.append(LeafMsg(b"d", _reply(rng, seq, at), rng.choice([b"", b"NATS/1.0\r\n\r\n"]), rng.randbytes(at)))
        seq += rng.choice([1, 1, 1, 3, 0])
    return run


@settings(max_examples=1000)
@given(st.integers(0, 2**48))
@example(0)
def test_both_read_the_same(seed: int) -> None:
    found = []
    for twin in TWINS:
        rng = Random(seed)
        run = _run(rng)
        old = rng.choice([None, None, lambda seq, ts_ns: seq == 8])
        into: list[Any] = ["before"]
        found.append((twin.read_run(run, b"c", 0, rng.choice([0, 6]), old, into), into))
    assert found[0] == found[1]


def test_a_whole_run_is_read() -> None:
    run = [LeafMsg(b"d", b"$JS.ACK.S.c.1.%d.%d.5.%d@a.b" % (9 + at, 1 + at, 3 - at), b"", b"p") for at in range(4)]
    for twin in TWINS:
        into: list[Any] = []
        assert twin.read_run(run, b"c", 0, 8, None, into) == (4, 0)
        assert into == [(9 + at, 5, b"a.b", b"", b"p") for at in range(4)]


def _copied(rng: Random) -> CopiedMessage:
    return CopiedMessage(
        rng.choice([0, 1, 10, 1 << 40, NUMBER_MAX]),
        rng.randrange(1 << 62),
        rng.choice([b"", b"a", b"a.b" * 9]),
        rng.choice([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        rng.randbytes(5),
    )


@settings(max_examples=200)
@given(st.integers(0, 2**48))
def test_both_stamp_the_same(seed: int) -> None:
    stamp = lambda header, seq, subject: header + b"%d %b" % (seq, subject)  # noqa: E731
    found = []
    for twin in TWINS:
        rng = Random(seed)
        batch = [_copied(rng) for _ in range(rng.randrange(5))]
        found.append(twin.stamp_run(batch, b"NATS/1.0\r\nX: ", b" > ", stamp))
    assert found[0] == found[1]


def test_what_is_no_message_is_refused() -> None:
    wrong: Any
    for wrong in ([1], [LeafMsg(b"d", 5)], [LeafMsg(b"d", "text")], [(b"d", b"r", b"", b"", ())]):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            _copied_run.read_run(wrong, b"c", 0, 0, None, [])
    message: Any = _copied(Random(1))._replace(header=b"", subject="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _copied_run.stamp_run([message], b"", b"", lambda *_: b"")
    for wrong in ([1], [LeafMsg(b"d")], [message._replace(ts_ns="text")]):
        with pytest.raises(TypeError):
            _copied_run.newest_ns(wrong)


MARKS = (b"\r\nNats-", b"\r\nNats-Msg-Id:", b"\r\nNats-Stream-Source:")
HEADERS = (
    b"",
    b"",
    b"",
    b"NATS/1.0\r\nA: b\r\n\r\n",
    b"NATS/1.0%b a\r\n\r\n" % MARKS[1],
    b"NATS/1.0%b a%b b\r\n\r\n" % MARKS[1:],
)


def _origin_messages(rng: Random) -> list[CopiedMessage]:
    copies, seq = [], 5
    for _ in range(rng.randrange(9)):
        seq += rng.choice([1, 1, 1, 1, 0, 2, -3])
        header = rng.choice([*HEADERS, b"NATS/1.0%bTTL: 1\r\n\r\n" % MARKS[0], HEADERS[4] + HEADERS[4]])
        copies.append(_copied(rng)._replace(origin_seq=seq, header=header))
    return copies


@settings(max_examples=600)
@given(st.integers(0, 2**48))
def test_both_make_the_same_runs(seed: int) -> None:
    found = []
    for twin in TWINS:
        rng = Random(seed)
        copies = _origin_messages(rng)
        at = rng.randrange(len(copies) + 1)
        found.append(
            [
                twin.mirrored_run(copies, at, 5, MARKS[0], MARKS[1:]),
                twin.sourced_run(copies, MARKS[0], MARKS[2]),
                twin.has_headers(copies),
                twin.newest_ns(copies),
            ]
        )
    assert found[0] == found[1]


def test_a_mirrored_run_ends_at_a_gap_and_where_a_header_asks_for_something() -> None:
    rng = Random(3)
    headers = [b"", b"", HEADERS[5], b"", b"NATS/1.0%bTTL: 1\r\n\r\n" % MARKS[0], b""]
    copies = [_copied(rng)._replace(origin_seq=seq, header=header) for seq, header in enumerate(headers, 8)]
    for twin in TWINS:
        run, times = twin.mirrored_run(copies, 0, 7, MARKS[0], MARKS[1:])
        assert run == [(each.subject, b"", each.header, each.payload) for each in copies[:4]]
        assert times == [each.ts_ns for each in copies[:4]]
        assert twin.mirrored_run(copies, 5, 7, MARKS[0], MARKS[1:]) == ([], [])
        assert len(twin.mirrored_run(copies, 5, 12, MARKS[0], MARKS[1:])[0]) == 1


@settings(max_examples=300)
@given(st.integers(0, 2**48))
def test_both_find_the_same_in_a_read(seed: int) -> None:
    found = []
    for twin in TWINS:
        rng = Random(seed)
        read: list[Any] = [
            LeafMsg(rng.choice([b"a", b"a", b"a", b"ab"]), b"", rng.choice(HEADERS), rng.randbytes(3))
            for _ in range(rng.randrange(1, 9))
        ]
        at = rng.randrange(len(read))
        answers = [twin.content_bytes(read), twin.same_subject(read, at, rng.choice(MARKS))]
        read[rng.randrange(len(read))] = rng.choice([PING_OP, read[0]])
        found.append([*answers, twin.other_kind(read, at, LeafMsg)])
    assert found[0] == found[1]


def test_runs_of_what_is_no_message_are_refused() -> None:
    wrong: Any = [LeafMsg(b"d", b"", "text", b"")]  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _copied_run.content_bytes(wrong)
    with pytest.raises(TypeError):
        _copied_run.has_headers(wrong)
    with pytest.raises(IndexError):
        _copied_run.same_subject([], 0, b"x")
    with pytest.raises(IndexError):
        _copied_run.other_kind([], -1, LeafMsg)
    message: Any = _copied(Random(1))._replace(origin_seq=1, header=b"", subject="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _copied_run.mirrored_run([message], 0, 0, MARKS[0], ())
    with pytest.raises(ValueError):
        _copied_run.mirrored_run([message], 0, 0, b"", ())


def test_messages_are_no_work_for_the_collector() -> None:
    """They come by the hundred thousand, and the collector would look at each; it never forgets a named tuple."""
    replies = [b"$JS.ACK.S.c.1.%d.%d.5.0@a" % (at, at) for at in range(1, 6)]
    read = LeafScanner().feed(b"".join(b"LMSG d %b 1\r\nx\r\n" % reply for reply in replies))
    copies: list[CopiedMessage] = []
    assert native.read_run(read, b"c", 0, 0, None, copies) == (5, 0)
    stamped = native.stamp_run(copies, b"NATS/1.0\r\nX: ", b" > ", lambda header, seq, subject: header)
    runs = [native.mirrored_run(copies, 0, 0, MARKS[0], ())[0], native.sourced_run(stamped, MARKS[0], b"X: ")]
    for messages in (read, copies, stamped, *runs):
        assert [gc.is_tracked(message) for message in messages] == [False] * 5
