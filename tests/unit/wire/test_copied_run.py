"""Runs of copied messages: both twins do the same, and the compiled one takes nothing for bytes that is none."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_wire import _copied_run
from eyot_wire.frames import LeafMsg
from eyot_wire.jetstream import copied_run, native

TWINS: tuple[Any, Any] = (copied_run, _copied_run)
NUMBER_MAX = (1 << 63) - 1
NUMBERS = (b"0", b"1", b"2", b"007", b"", b"x", b"-1", b" 1", b"%d" % NUMBER_MAX, b"%d" % (NUMBER_MAX + 1), b"9" * 40)


def make(seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> tuple[Any, ...]:
    return seq, ts_ns, subject, header, payload


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.read_run is _copied_run.read_run
    assert native.stamp_run is _copied_run.stamp_run


def _reply(rng: Random, seq: int, at: int) -> bytes:
    tokens = [b"$JS", b"ACK", b"S", b"c", b"1", b"%d" % seq, b"%d" % at, b"%d" % rng.choice([0, 1 << 60]), b"3@a.b@c"]
    if rng.random() < 0.15:
        index = rng.randrange(len(tokens))
        tokens[index] = rng.choice([*NUMBERS, b"d", b"5@x", b"@", b"3.@", b"c.c"])
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
        found.append((twin.read_run(run, b"c", 0, rng.choice([0, 6]), old, make, into), into))
    assert found[0] == found[1]


def test_a_whole_run_is_read() -> None:
    run = [LeafMsg(b"d", b"$JS.ACK.S.c.1.%d.%d.5.%d@a.b" % (9 + at, 1 + at, 3 - at), b"", b"p") for at in range(4)]
    for twin in TWINS:
        into: list[Any] = []
        assert twin.read_run(run, b"c", 0, 8, None, make, into) == (4, 0)
        assert into == [(9 + at, 5, b"a.b", b"", b"p") for at in range(4)]


class Message:
    """Like the messages of an origin."""

    def __init__(self, rng: Random) -> None:
        self.origin_seq = rng.choice([0, 1, 10, 1 << 40, NUMBER_MAX])
        self.ts_ns = rng.randrange(1 << 62)
        self.subject = rng.choice([b"", b"a", b"a.b" * 9])
        self.header = rng.choice([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
        self.payload = rng.randbytes(5)


@settings(max_examples=200)
@given(st.integers(0, 2**48))
def test_both_stamp_the_same(seed: int) -> None:
    stamp = lambda header, seq, subject: header + b"%d %b" % (seq, subject)  # noqa: E731
    found = []
    for twin in TWINS:
        rng = Random(seed)
        batch = [Message(rng) for _ in range(rng.randrange(5))]
        found.append(twin.stamp_run(batch, b"NATS/1.0\r\nX: ", b" > ", stamp, make))
    assert found[0] == found[1]


def test_what_is_no_message_is_refused() -> None:
    wrong: Any
    for wrong in ([1], [LeafMsg("d", 5)], [LeafMsg(b"d", "text")]):  # type: ignore[arg-type]
        with pytest.raises((TypeError, AttributeError)):
            _copied_run.read_run(wrong, b"c", 0, 0, None, make, [])
    message = Message(Random(1))
    message.header, message.subject = b"", "text"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        _copied_run.stamp_run([message], b"", b"", lambda *_: b"", make)
