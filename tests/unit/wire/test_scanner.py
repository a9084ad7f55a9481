"""The client protocol's scanner: operations read in any pieces, and refusals.

The refusals are those of a nats-server 2.9.10; tests/interop/connections/test_scanner_against_nats_server.py repeats that comparison.
"""

import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire import frames
from eyot_wire.frames import (
    Connect,
    Err,
    FrameLine,
    Info,
    Msg,
    Ok,
    Op,
    Ping,
    Pong,
    ProtocolError,
    Pub,
    Sub,
    Unsub,
)
from eyot_wire.native import Publishes, detach_all
from eyot_wire.scanner import Scanner

UNKNOWN = "Unknown Protocol Operation"
TOO_LONG = "maximum control line exceeded"
TOO_BIG = "Maximum Payload Violation"
SILENT = ""


def make_pub(subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"") -> Pub:
    """Make a Pub as the scanner would."""
    total = len(header) + len(payload)
    sizes = b"%d %d" % (len(header), total) if header else b"%d" % total
    lead = (reply + b" " + sizes if reply else sizes) + b"\r\n"
    skip = (5 if header else 4) + len(subject) + 1
    line = FrameLine(subject, reply, len(header), total, skip + len(lead), skip)
    return Pub(line, b"".join((lead, header, payload, b"\r\n")))


def meaning(op: Op) -> object:
    """An operation without the details of how its bytes are kept."""
    if isinstance(op, Pub):
        return ("PUB", op.subject, op.reply, op.header, op.payload, op.tail, op.size)
    return op


def scan(data: bytes, piece: int = 0, role: str = "server") -> list[object]:
    scanner = Scanner("server" if role == "server" else "client")
    if not piece:
        return [meaning(op) for op in scanner.feed(data)]
    found: list[object] = []
    for at in range(0, len(data), piece):
        found += [meaning(op) for op in scanner.feed(memoryview(bytearray(data[at : at + piece])))]
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"PING\r\n", Ping()),
        (b"ping\n", Ping()),
        (b"PINGxx\r\n", Ping()),
        (b"PING" + b"x" * 5000 + b"\r\n", Ping()),
        (b"PoNG \r\n", Pong()),
        (b"+OK\r\n", Ok()),
        (b"-ERR 'Stale Connection'\r\n", Err("Stale Connection")),
        (b"-err\tx\r\n", Err("x")),
        (b'CONNECT {"a":1}\r\n', Connect(b'{"a":1}')),
        (b"CONNECT{}\r\n", Connect(b"{}")),
        (b"CONNECT\r\n", Connect(b"")),
        (b"CONNECT\t {} \r\n", Connect(b"{} ")),
        (b"INFO {}\r\n", Info(b"{}")),
        (b"SUB a 1\r\n", Sub(b"a", b"", b"1")),
        (b"SUB a q 1\r\n", Sub(b"a", b"q", b"1")),
        (b"sub\ta..b \t q\t1 \r\n", Sub(b"a..b", b"q", b"1")),
        (b"UNSUB 1\r\n", Unsub(b"1", 0)),
        (b"UNSUB 1 5\r\n", Unsub(b"1", 5)),
        (b"UNSUB 1 x\r\n", Unsub(b"1", 0)),
        (b"UNSUB 1 -1\r\n", Unsub(b"1", 0)),
    ],
)
def test_operations_without_payload(data: bytes, expected: Op) -> None:
    assert Scanner().feed(data) == [expected]
    assert type(Scanner().feed(data)[0]) is type(expected)


@pytest.mark.parametrize(
    ("data", "subject", "reply", "header", "payload", "tail"),
    [
        (b"PUB a 5\r\nhello\r\n", b"a", b"", b"", b"hello", b"5\r\nhello\r\n"),
        (b"pub a 0\r\n\r\n", b"a", b"", b"", b"", b"0\r\n\r\n"),
        (b"PUB a r 5\r\nhello\r\n", b"a", b"r", b"", b"hello", b"r 5\r\nhello\r\n"),
        (b"PUB a 005\r\nhello\r\n", b"a", b"", b"", b"hello", b"005\r\nhello\r\n"),
        (b"PUB  a\t 5 \r\nhello\r\n", b"a", b"", b"", b"hello", b"5\r\nhello\r\n"),
        (b"PUB\ta r\t5\r\nhello\r\n", b"a", b"r", b"", b"hello", b"r 5\r\nhello\r\n"),
        (b"PUB a 5\nhello\r\n", b"a", b"", b"", b"hello", b"5\r\nhello\r\n"),
        (b"PuB a 2\r\n\r\n\r\n", b"a", b"", b"", b"\r\n", b"2\r\n\r\n\r\n"),
        (b"PUB a\rb 1\r\nx\r\n", b"a\rb", b"", b"", b"x", b"1\r\nx\r\n"),
        (b"PUB a\x0bb 1\r\nx\r\n", b"a\x0bb", b"", b"", b"x", b"1\r\nx\r\n"),
        (
            b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
            b"a",
            b"",
            b"NATS/1.0\r\n\r\n",
            b"hi",
            b"12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        ),
        (
            b"hpub a r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
            b"a",
            b"r",
            b"NATS/1.0\r\n\r\n",
            b"",
            b"r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        ),
        (
            b"HPUB a  12 12\r\nNATS/1.0\r\n\r\n\r\n",
            b"a",
            b"",
            b"NATS/1.0\r\n\r\n",
            b"",
            b"12 12\r\nNATS/1.0\r\n\r\n\r\n",
        ),
        # Without a header it goes out as MSG, so its tail has one size.
        (b"HPUB a r 0 5\r\nhello\r\n", b"a", b"r", b"", b"hello", b"r 5\r\nhello\r\n"),
    ],
)
def test_publishes(data: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, tail: bytes) -> None:
    expected = ("PUB", subject, reply, header, payload, tail, len(header) + len(payload))
    for piece in (0, 1, 2, 3, 7):
        assert scan(data, piece) == [expected]
        assert scan(data * 3, piece) == [expected] * 3


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\r\n", UNKNOWN),
        (b"FOO\r\n", UNKNOWN),
        (b" PING\r\n", UNKNOWN),
        (b"PUBa 1\r\n", UNKNOWN),
        (b"PUB\r\n", UNKNOWN),
        (b"PUB\n", UNKNOWN),
        (b"SUB\r\n", UNKNOWN),
        (b"UNSUB\r\n", UNKNOWN),
        (b"-ERR\r\n", UNKNOWN),
        (b"+\r\n", UNKNOWN),
        (b"MSG a 1 1\r\nx\r\n", UNKNOWN),
        (b"LMSG a 1\r\nx\r\n", UNKNOWN),
        (b"LS+ a\r\n", UNKNOWN),
        (b"\x16\x03\x01\x02", UNKNOWN),
        (b"X", UNKNOWN),
        (b"PX", UNKNOWN),
        (b"PUBX", UNKNOWN),
        (b"UNSUX", UNKNOWN),
        (b"PUB a 1\r\nxy\r\n", UNKNOWN),
        (b"PUB a 1\r\nx\n\r\n", UNKNOWN),
        (b"PUB a 1\r\nx\ry", UNKNOWN),
        (b"PUB \r\n", SILENT),
        (b"PUB a\r\n", SILENT),
        (b"PUB a b c 1\r\nx\r\n", SILENT),
        (b"PUB a x\r\n", SILENT),
        (b"PUB a +1\r\nx\r\n", SILENT),
        (b"PUB a -1\r\n\r\n", SILENT),
        (b"PUB a 1\r\r\nx\r\n", SILENT),
        (b"PUB a 1234567890\r\n", SILENT),
        (b"PUB a \xd9\xa1\r\nx\r\n", SILENT),
        (b"HPUB a 5\r\nhello\r\n", SILENT),
        (b"HPUB a 12 5\r\n", SILENT),
        (b"HPUB a x 5\r\n", SILENT),
        (b"HPUB a -1 5\r\n", SILENT),
        (b"HPUB a b c 1 1\r\n", SILENT),
        (b"SUB \r\n", SILENT),
        (b"SUB a\r\n", SILENT),
        (b"SUB a b c d\r\n", SILENT),
        (b"UNSUB \r\n", SILENT),
        (b"UNSUB 1 2 3\r\n", SILENT),
        (b"INFO\r\n", SILENT),
        (b"PUB a 1048577\r\n", TOO_BIG),
        (b"PUB a 123456789\r\n", TOO_BIG),
        (b"HPUB a 12 1048577\r\n", TOO_BIG),
        (b"PUB " + b"a" * 4095 + b" 1\r\nx\r\n", TOO_LONG),
        (b"PUB " + b"a" * 4094 + b" 1  \r\nx\r\n", TOO_LONG),
        (b"SUB " + b"a" * 4095 + b" 1\r\n", TOO_LONG),
        (b"UNSUB " + b"a" * 4097 + b"\r\n", TOO_LONG),
        (b"CONNECT {" + b" " * 4095 + b"}\r\n", TOO_LONG),
        (b"-ERR " + b"x" * 5000 + b"\r\n", TOO_LONG),
        (b"PUB " + b"a" * 4097, TOO_LONG),
    ],
)
def test_refused(data: bytes, text: str) -> None:
    before = b"PUB a 1\r\nx\r\nPING\r\n"
    scanner = Scanner()
    with pytest.raises(ProtocolError) as caught:
        scanner.feed(before + data)
    assert caught.value.text == text
    assert caught.value.detail
    assert caught.value.close
    assert [meaning(op) for op in caught.value.ops] == [meaning(make_pub(b"a", payload=b"x")), Ping()]
    with pytest.raises(ProtocolError) as again:
        scanner.feed(b"PING\r\n")
    assert again.value.ops == []
    assert again.value.text == text


@pytest.mark.parametrize("data", [b"FOO\r\n", b"PUB a 1\r\nxy\r\n", b"PUB a 1\r\n", b"PUB a x\r\n", b"X"])
@pytest.mark.parametrize("piece", [1, 2, 5])
def test_refused_in_pieces_too(data: bytes, piece: int) -> None:
    def feed_all() -> None:
        scanner = Scanner(max_payload=0)
        for at in range(0, len(data), piece):
            scanner.feed(data[at : at + piece])

    with pytest.raises(ProtocolError):
        feed_all()


@pytest.mark.parametrize(
    "data",
    [
        b"PUB " + b"a" * 4094 + b" 1\r\nx\r\n",
        b"PUB   " + b"a" * 4094 + b" 1\r\nx\r\n",
        b"SUB " + b"a" * 4094 + b" 1\r\n",
        b"CONNECT {" + b" " * 4094 + b"}\r\n",
        b"PUB a 1048576\r\n" + b"x" * 1048576 + b"\r\n",
    ],
)
def test_limits_are_exact(data: bytes) -> None:
    assert len(Scanner().feed(data)) == 1
    for piece in (1000, 4099, 4100, 4101):
        assert len(scan(data, piece)) == 1


@pytest.mark.parametrize(
    "start", [b"P", b"PU", b"PUB", b"PUB ", b"h", b"-er", b"+", b"PUB " + b"a" * 4096, b"CONNECT", b"pong"]
)
def test_an_incomplete_line_waits(start: bytes) -> None:
    scanner = Scanner()
    assert scanner.feed(start) == []
    assert scanner.pending == len(start)


def test_a_line_exactly_at_the_limit_may_be_cut_before_its_end() -> None:
    scanner = Scanner()
    assert scanner.feed(b"PUB " + b"a" * 4094 + b" 1\r") == []
    assert len(scanner.feed(b"\nx\r\n")) == 1


@pytest.mark.parametrize("piece", [50, 4096, 20_000])
def test_what_follows_ping_is_ignored_however_long_it_is(piece: int) -> None:
    data = b"PING" + b"PUB xy" * 2000 + b"\r\nPONG\r\n"
    scanner = Scanner()
    found: list[Op] = []
    for at in range(0, len(data), piece):
        found += scanner.feed(data[at : at + piece])
        assert scanner.pending <= 4096 + piece
    assert found == [Ping(), Pong()]


@pytest.mark.parametrize("word", [b"PUB", b"HPUB", b"SUB", b"CONNECT", b"PING", b"-ERR"])
def test_endless_white_space_is_not_kept(word: bytes) -> None:
    scanner = Scanner()
    assert scanner.feed(word) == []
    for _ in range(100):
        assert scanner.feed(b" \t" * 1000) == []
        assert scanner.pending <= 4096 + 2000
    if word == b"PUB":
        assert [meaning(op) for op in scanner.feed(b"a 1\r\nx\r\n")] == [meaning(make_pub(b"a", payload=b"x"))]


def test_limits_can_change() -> None:
    scanner = Scanner(max_payload=10)
    assert len(scanner.feed(b"PUB a 10\r\n0123456789\r\n" * 2)) == 2
    scanner.max_payload = 9
    with pytest.raises(ProtocolError, match=TOO_BIG):
        scanner.feed(b"PUB a 10\r\n0123456789\r\n")
    scanner = Scanner()
    assert len(scanner.feed(b"PUB abcdef 1\r\nx\r\n")) == 1
    scanner.max_control_line = 7
    assert (scanner.max_control_line, scanner.max_payload) == (7, 1024 * 1024)
    with pytest.raises(ProtocolError, match=TOO_LONG):
        scanner.feed(b"PUB abcdef 1\r\nx\r\n")


def test_a_large_payload_in_small_pieces() -> None:
    payload = bytes(range(256)) * 4096
    data = frames.encode_pub(b"big", b"r", b"", payload)
    scanner = Scanner()
    found: list[Op] = []
    for at in range(0, len(data), 1000):
        found += scanner.feed(memoryview(data)[at : at + 1000])
    (op,) = found
    assert isinstance(op, Pub)
    assert op.payload == payload
    assert op.tail == data[len(b"PUB big ") :]
    assert scanner.pending == 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"MSG a 1 5\r\nhello\r\n", Msg(b"a", b"1", b"", b"", b"hello")),
        (b"MSG a 1 r 5\r\nhello\r\n", Msg(b"a", b"1", b"r", b"", b"hello")),
        (b"msg  a\t1 5\r\nhello\r\n", Msg(b"a", b"1", b"", b"", b"hello")),
        (b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", Msg(b"a", b"1", b"", b"NATS/1.0\r\n\r\n", b"hi")),
        (b"HMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\n", Msg(b"a", b"1", b"r", b"NATS/1.0\r\n\r\n", b"")),
        (b"INFO {} \r\n", Info(b"{} ")),
        (b"+OK\r\n", Ok()),
        (b"-ERR 'Authorization Violation'\r\n", Err("Authorization Violation")),
        (b"PING\r\n", Ping()),
    ],
)
def test_client_role(data: bytes, expected: Op) -> None:
    for piece in (0, 1, 3):
        assert scan(data * 2, piece, "client") == [expected, expected]


@pytest.mark.parametrize(
    "data", [b"PUB a 1\r\n", b"MSG a 1\r\n", b"HMSG a 1 5\r\n", b"MSG a 1 r x 5\r\n", b"HMSG a 1 5 3\r\n"]
)
def test_client_role_refuses(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Scanner("client").feed(data)


words = st.binary(min_size=1, max_size=12).map(lambda text: text.translate(None, b" \t\r\n")).filter(bool)
payloads = st.one_of(st.binary(max_size=40), st.just(b"\r\n"), st.just(b"PUB a 1\r\n"))
publishes = st.builds(
    make_pub, words, st.one_of(st.just(b""), words), st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]), payloads
)


@settings(max_examples=200)
@given(st.lists(publishes, max_size=12), st.data())
def test_any_pieces_give_the_same(pubs: list[Pub], data: st.DataObject) -> None:
    encoded = b"".join(frames.encode_pub(op.subject, op.reply, op.header, op.payload) for op in pubs)
    expected = [meaning(op) for op in pubs]
    assert scan(encoded) == expected
    scanner = Scanner()
    found: list[object] = []
    at = 0
    while at < len(encoded):
        size = data.draw(st.integers(1, 30))
        found += [meaning(op) for op in scanner.feed(encoded[at : at + size])]
        at += size
    assert found == expected
    # The tail is what follows the subject in a MSG or HMSG.
    for op in pubs:
        frame = frames.encode_msg(op.subject, b"7", op.reply, op.header, op.payload)
        assert frame.startswith((b"MSG ", b"HMSG "))
        assert frame.split(b" ", 1)[1] == op.subject + b" 7 " + op.tail


@given(st.binary(max_size=200), st.integers(1, 20))
def test_garbage_ends_in_operations_or_a_protocol_error(data: bytes, piece: int) -> None:
    for role in ("server", "client"):
        scanner = Scanner(role)
        with suppress(ProtocolError):
            for at in range(0, len(data), piece):
                scanner.feed(data[at : at + piece])


verbs = st.sampled_from([b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"CONNECT", b"PUB a 3\r\nabc\r\n", b"HPUB"])
pieces = st.sampled_from(
    [b" ", b"  ", b"\t", b"a", b"b.c", b"1", b"3", b"0", b"\r\n", b"\r\n", b"\n", b"abc", b"\r", b"-2"]
)


@settings(max_examples=400)
@given(st.lists(st.one_of(verbs, pieces), max_size=20).map(b"".join))
def test_cutting_changes_nothing(data: bytes) -> None:
    def outcome(piece: int) -> tuple[list[object], str | None]:
        scanner = Scanner()
        found: list[object] = []
        try:
            for at in range(0, len(data), piece):
                found += [meaning(op) for op in scanner.feed(data[at : at + piece])]
        except ProtocolError as error:
            return found + [meaning(op) for op in error.ops], error.text
        return found, None

    assert outcome(1) == outcome(len(data) or 1) == outcome(3)


def expanded(ops: list[Op]) -> list[object]:
    """Operations with rows of publishes taken apart."""
    found: list[object] = []
    for op in ops:
        if not isinstance(op, Publishes):
            found.append(meaning(op))
            continue
        tails = op.tails(0, len(op))
        for index in range(len(op)):
            line = op.line(index)
            content = op.content(index)
            found.append(("PUB", line.subject, line.reply, *content, tails[index], line.total))
    return found


def test_publishes_in_a_row_are_one_operation() -> None:
    data = b"".join(b"PUB a.%d r 4\r\n%04d\r\n" % (number // 10, number) for number in range(1000))
    row, ping, last = Scanner(batches=True).feed(data + b"PING\r\nPUB a.b 4\r\nlast\r\n")
    assert isinstance(row, Publishes)
    assert isinstance(ping, Ping)
    assert isinstance(last, Publishes)
    assert (len(row), len(last)) == (1000, 1)
    assert expanded([row, ping, last]) == scan(data + b"PING\r\nPUB a.b 4\r\nlast\r\n")
    assert row.line(11).subject == b"a.1"
    assert row.content(999) == (b"", b"0999")
    assert row.tails(998, 2) == [b"r 4\r\n0998\r\n", b"r 4\r\n0999\r\n"]
    with pytest.raises(IndexError):
        row.line(1000)
    assert all(isinstance(op, Pub) for op in Scanner().feed(data))


def test_a_row_outlives_its_buffer_once_detached() -> None:
    buffer = bytearray(b"PING\r\n" + b"PUB a 1\r\nx\r\nPUB b r 1\r\ny\r\nPING\r\nPUB c 1\r\nz\r\n")
    ops = Scanner(batches=True).feed(memoryview(buffer))
    detach_all(ops)
    buffer[:] = b"?" * len(buffer)
    detach_all(ops)  # what was copied stays
    rows = [op for op in ops if isinstance(op, Publishes)]
    assert [op[1:3] + op[4:5] for op in expanded(rows)] == [  # type: ignore[index]
        (b"a", b"", b"x"),
        (b"b", b"r", b"y"),
        (b"c", b"", b"z"),
    ]


def test_rows_of_one_read_share_one_copy_of_it() -> None:
    read = b"".join(b"PUB a.%d 1\r\nx\r\nPING\r\n" % number for number in range(2000))
    scanner = Scanner(batches=True)
    ops = scanner.feed(memoryview(bytearray(read)))
    tracemalloc.start()
    try:
        detach_all(ops)
        assert tracemalloc.get_traced_memory()[0] < 2 * len(read)
    finally:
        tracemalloc.stop()


def test_a_row_knows_where_its_control_line_changes() -> None:
    line, other = b"PUB a 1\r\nx\r\n", b"PUB b 1\r\nx\r\n"
    (row,) = Scanner(batches=True).feed(line + line * 3 + other + line * 2)
    assert isinstance(row, Publishes)
    assert [row.run(index) for index in range(len(row))] == [4, 3, 2, 1, 1, 2, 1]


blocks = st.builds(
    lambda subject, header, sizes, count: (subject, header, sizes * count),
    st.sampled_from([b"a", b"b", b"c.d"]),
    st.sampled_from([b"", b"NATS/1.0\r\n\r\n"]),
    st.lists(st.integers(0, 6), min_size=1, max_size=2),
    st.integers(1, 90),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(blocks, max_size=5), st.randoms(use_true_random=False), st.integers(0, 3))
def test_batches_change_nothing(blocks: list[tuple[bytes, bytes, list[int]]], rng: Random, damage: int) -> None:
    data = bytearray()
    for subject, header, sizes in blocks:
        for size in sizes:
            payload = bytes(rng.choices(b"PUB a\r\n1", k=size))
            data += frames.encode_pub(subject, b"", header, payload)
    for _ in range(damage):
        if data:
            data[rng.randrange(len(data))] = rng.choice(b"PUB a\r\n1x")

    def outcome(batches: bool, piece: int) -> tuple[list[object], str | None]:
        scanner = Scanner(batches=batches)
        found: list[object] = []
        try:
            for at in range(0, len(data), piece):
                found += expanded(scanner.feed(data[at : at + piece]))
        except ProtocolError as error:
            return found + expanded(error.ops), error.text
        return found, None

    plain = outcome(False, len(data) or 1)
    assert outcome(True, len(data) or 1) == plain
    assert outcome(True, rng.randint(300, 3000)) == plain
