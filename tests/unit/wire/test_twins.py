"""The two twins, compiled and plain: the same results for any input."""

from __future__ import annotations

import socket
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_wire import native
from eyot_wire.mapping import MappingTable
from eyot_wire.sublist import SubList
from support.clients import hostile
from support.clients.ack_rows import acknowledged
from support.clients.fan_out_fixture import fanned_out
from support.clients.twins import FAN_OUTS, GRAMMARS, SCANNERS, assert_same
from support.clients.write_through_fixture import written

seeds = st.integers(0, 2**48)
messages = st.sampled_from(sorted(GRAMMARS))


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.COMPILED
    assert native.FrameScanner is SCANNERS[1]


@settings(max_examples=400, deadline=None)
@given(seeds, messages, st.sampled_from([5, 12, 40, 4096]), st.sampled_from([0, 3, 60, 1 << 20, 2**31 + 7]))
def test_scanning_hostile_bytes(seed: int, message: str, max_control_line: int, max_payload: int) -> None:
    rng = Random(seed)
    pieces = hostile.cut(rng, hostile.hostile(rng, message))
    assert_same(message, pieces, max_control_line, max_payload)


tokens = st.one_of(
    st.sampled_from(
        [b"PUB", b"HPUB", b"MSG", b"HMSG", b"LMSG", b"pub", b"SUB", b"PING", b"CONNECT {}", b"LS+", b"+OK"]
    ),
    st.sampled_from(hostile.SPACES + hostile.ENDS + hostile.SIZES + [b"a", b"b.c", b"abc", b"+", b"|", b"12", b"3"]),
    st.sampled_from(
        [b"PUB a 3\r\nabc\r\n", b"HPUB a 2 3\r\nabc\r\n", b"MSG a 1 r 1\r\nx\r\n", b"LMSG a | q 1\r\nx\r\n"]
    ),
    st.binary(max_size=4),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(tokens, max_size=24).map(b"".join), messages, st.lists(st.integers(1, 40), max_size=12))
@example(b"PUB a 0\r\n\r\n", "PUB", [])
@example(b"PUB a 4294967297\r\n", "PUB", [])
@example(b"HPUB a r 0 3\r\nabc\r\n", "PUB", [14])
@example(b"PUB a\r 1\r\nx\r\n", "PUB", [5])
@example(b"PUB  1\r\nx\r\n", "PUB", [])
@example(b"PUB \r\n", "PUB", [])
@example(b"HMSG a 0 1\r\nx\r\n", "LMSG", [])
@example(b"LMSG a + 1\r\nx\r\n", "LMSG", [3, 3])
def test_scanning_tokens_in_any_order(data: bytes, message: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    assert_same(message, [*pieces, data[at:]])


@pytest.mark.parametrize("word", [b"PUB ", b"SUB ", b"CONNECT ", b"PING", b"HPUB a ", b"-ERR "])
@pytest.mark.parametrize("size", [4092, 4096, 4097, 65536, 100_000])
def test_long_control_lines(word: bytes, size: int) -> None:
    for line in (word + b"a" * size + b" 1\r\nx\r\n", word + b"a" * size, word + b" " * size + b"a 1\r\nx\r\n"):
        for limit in (4096, 65536):
            for piece in (len(line), 4095, 1000):
                pieces = [line[at : at + piece] for at in range(0, len(line), piece)]
                assert_same("PUB", pieces, limit)


def test_a_large_payload_in_pieces() -> None:
    data = b"PUB big r 300000\r\n" + bytes(range(256)) * 1171 + b"x" * 224 + b"\r\nPING\r\n"
    for size in (1, 17, 4096, 262_144):
        assert_same("PUB", [data[at : at + size] for at in range(0, len(data), size)][:20000])


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_fan_out(seed: int) -> None:
    plain, compiled = (fanned_out(twin, seed) for twin in (0, 1))
    assert compiled == plain


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_long_frames_written_past_the_buffers(seed: int) -> None:
    plain, compiled = (written(twin, seed) for twin in (0, 1))
    assert compiled == plain


def test_long_frames_do_not_go_through_the_buffer() -> None:
    """Nor does a peer that is gone lose any: the transport finds them in `out`, and the error at its own attempt."""
    twin = FAN_OUTS[1]
    client, publisher, index = twin.OutBuffer(), twin.OutBuffer(), SubList()
    ours, peer = socket.socketpair()
    with ours, peer:
        sub = plain_interest(twin, client)
        index.insert(sub)
        fan_out = twin.FanOut(twin.Traffic(), index, MappingTable(), Random(1).random, lambda one: None)
        scanner = SCANNERS[1](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
        frame = b"PUB a 40000\r\n" + b"x" * 40_000 + b"\r\n"
        client.fd = ours.fileno()
        client.out += b"PONG\r\n"
        (row,) = scanner.feed(frame)
        assert fan_out.publish(row, 0, publisher, None, False) == 1
        assert not client.out
        assert peer.recv(100_000) == b"PONG\r\nMSG a 1 40000\r\n" + b"x" * 40_000 + b"\r\n"
        peer.close()
        (row,) = scanner.feed(frame)
        assert fan_out.publish(row, 0, publisher, None, False) == 1
        assert client.out == b"MSG a 1 40000\r\n" + b"x" * 40_000 + b"\r\n"
        assert client.fd == -1


def plain_interest(twin: ModuleType, dest: object) -> Any:
    """A subscription to `a` with the id 1."""
    sub = type("Sub", (twin.Interest,), {"__slots__": ("queue", "subject")})(dest, b"1")
    sub.subject, sub.queue = b"a", b""
    return sub


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_acknowledgements_in_a_row(seed: int) -> None:
    plain, compiled = (acknowledged(twin, seed) for twin in (0, 1))
    assert compiled == plain


@pytest.mark.parametrize("twin", [0, 1])
def test_what_a_row_acknowledges(twin: int) -> None:
    def found(data: bytes, at: int = 0) -> object:
        scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
        (row,) = scanner.feed(data)
        return row.acknowledged(at, b"$JS.ACK.S.C.")

    plain = b"PUB $JS.ACK.S.C.1.12.9.1763769600.3 4\r\n+ACK\r\n"
    assert found(plain) == ([12], 4)
    assert found(plain + b"PUB $JS.ACK.S.C.2.7.9.1.0 0\r\n\r\n" + b"PUB $JS.ACK.S.C.2.7.9.1.0 3\r\n+OK\r\n") == (
        [12, 7, 7],
        7,
    )
    for other in (
        b"PUB $JS.ACK.S.D.1.12.9.1.3 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1.2.3 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1. 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1..9.1.1 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.1x.9.1.1 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.1234567890123456789.9.1.1 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1.3 reply 4\r\n+ACK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1.3 4\r\n-NAK\r\n",
        b"PUB $JS.ACK.S.C.1.12.9.1.3 5\r\n+ACK \r\n",
        b"HPUB $JS.ACK.S.C.1.12.9.1.3 12 16\r\nNATS/1.0\r\n\r\n+ACK\r\n",
    ):
        assert found(other) == ([], 0)
        assert found(plain + other + plain) == ([12], 4)
        assert found(plain + other + plain, 2) == ([12], 4)


@pytest.mark.parametrize("twin", [0, 1])
def test_a_destination_that_cannot_send_is_asked_each_mebibyte(twin: int) -> None:
    room = FAN_OUTS[twin]
    flushes: list[int] = []

    class Client(room.OutBuffer):  # type: ignore[name-defined,misc]
        def flush(self) -> None:
            flushes.append(len(self.out))
            if len(flushes) == 3:
                self.closed = True

    index: SubList = SubList()
    client, publisher = Client(), room.OutBuffer()
    sub_type = type("Sub", (room.Interest,), {"__slots__": ("queue", "subject")})
    sub = sub_type(client, b"1")
    sub.subject, sub.queue = b"a", b""
    index.insert(sub)
    traffic = room.Traffic()
    fan_out = room.FanOut(traffic, index, MappingTable(), Random(1).random, lambda one: None)
    scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
    frame = b"PUB a 50000\r\n" + b"x" * 50000 + b"\r\n"
    for _ in range(100):
        (row,) = scanner.feed(frame)
        assert fan_out.publish(row, 0, publisher, None, False) == 1
    assert [size >> 20 for size in flushes] == [1, 2, 3]
    assert publisher.in_msgs == 100
    assert traffic.out_msgs == client.out_msgs == sub.delivered < 100


@pytest.mark.parametrize("twin", [0, 1])
def test_a_publisher_closed_by_its_own_flood_stops(twin: int) -> None:
    room = FAN_OUTS[twin]

    class Client(room.OutBuffer):  # type: ignore[name-defined,misc]
        def flush(self) -> None:
            self.closed = True

    index: SubList = SubList()
    client = Client()
    sub_type = type("Sub", (room.Interest,), {"__slots__": ("queue", "subject")})
    sub = sub_type(client, b"1")
    sub.subject, sub.queue = b">", b""
    index.insert(sub)
    fan_out = room.FanOut(room.Traffic(), index, MappingTable(), Random(1).random, lambda one: None)
    scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
    (row,) = scanner.feed(b"".join(b"PUB a.%d 1000\r\n%b\r\n" % (number, b"x" * 1000) for number in range(3000)))
    stop = fan_out.publish(row, 0, client, None, False)
    assert 1000 < stop < 3000
    assert client.in_msgs == client.out_msgs == sub.delivered == stop


@pytest.mark.parametrize("twin", [0, 1])
@pytest.mark.parametrize("how", ["publish", "share"])
def test_a_member_that_closes_in_the_middle_is_passed_over(twin: int, how: str) -> None:
    room = FAN_OUTS[twin]

    class Breaks(room.OutBuffer):  # type: ignore[name-defined,misc]
        def flush(self) -> None:
            self.closed = True

    index: SubList = SubList()
    sub_type = type("Sub", (room.Interest,), {"__slots__": ("queue", "subject")})
    subs = [sub_type(client, b"1") for client in (Breaks(), Breaks(), room.OutBuffer())]
    for sub in subs:
        sub.subject, sub.queue = b"a", b"q"
        index.insert(sub)
    traffic = room.Traffic()
    fan_out = room.FanOut(traffic, index, MappingTable(), Random(1).random, lambda one: None)
    tail = b"50000\r\n" + b"x" * 50000 + b"\r\n"
    members = [(sub, b"a") for sub in subs]
    if how == "share":
        assert fan_out.share(members, [tail] * 100, 50000, False) == 100
    else:
        scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
        for _ in range(100):
            (row,) = scanner.feed(b"PUB a " + tail)
            assert fan_out.publish(row, 0, room.OutBuffer(), None, False) == 1
    assert [sub.dest.closed for sub in subs] == [True, True, False]
    assert sum(sub.delivered for sub in subs) == traffic.out_msgs == 100
    assert all(sub.dest.out.count(b"MSG a 1 ") == sub.delivered == sub.dest.out_msgs for sub in subs)
    assert fan_out.share(members[:2], [tail] * 3, 50000, False) == 0
    assert not fan_out.append(subs[0], b"a", [tail], 50000, False)
    assert traffic.out_msgs == 100


class _Anyone:
    """An index in which one match answers everything."""

    def __init__(self, match: object) -> None:
        self.recent: dict[bytes, object] = {}
        self._match = match

    def match(self, subject: bytes) -> object:
        return self._match


@pytest.mark.parametrize("kind", [0, 1], ids=["plain", "compiled"])
def test_a_subscription_that_loses_its_destination_in_the_middle_of_a_fan_out(kind: int) -> None:
    """What a mark does to the other subscriptions of a match is an error of its own, not a pointer into nothing."""
    twin = FAN_OUTS[kind]
    first, second, publisher = twin.OutBuffer(), twin.OutBuffer(), twin.OutBuffer()
    subs = twin.Interest(first, b"1"), twin.Interest(second, b"2")

    def mark(out_buffer: object) -> None:
        if out_buffer is first:
            subs[1].__init__(object(), b"2")

    fan_out = twin.FanOut(
        twin.Traffic(), _Anyone(twin.Match(subs)), MappingTable(rng=Random(1)), Random(1).random, mark
    )
    [row] = SCANNERS[kind](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=99).feed(
        b"PUB a 1\r\nx\r\n"
    )
    with pytest.raises((TypeError, AttributeError)):
        fan_out.publish(row, 0, publisher, None, False)
    assert first.out == b"MSG a 1 1\r\nx\r\n"
    assert second.out == b""


def test_compiled_fields_that_hold_memory_cannot_be_taken_away() -> None:
    twin = FAN_OUTS[1]
    out_buffer = twin.OutBuffer()
    for thing, name in (
        (twin.Interest(out_buffer, b"1"), "sid"),
        (twin.Interest(out_buffer, b"1"), "dest"),
        (twin.Match(()), "plain"),
        (twin.Match(()), "groups"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, name, None)
        with pytest.raises(AttributeError):
            delattr(thing, name)
