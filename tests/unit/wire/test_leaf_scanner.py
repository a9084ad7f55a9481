"""The leaf protocol's scanner and encoders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire import frames
from eyot_wire.frames import Connect, Err, Info, LeafMsg, LsAdd, LsDel, Op, Ping, ProtocolError
from eyot_wire.leaf_scanner import LeafScanner

HEADER = b"NATS/1.0\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"LS+ a\r\n", LsAdd(b"a")),
        (b"LS+ a q 3\r\n", LsAdd(b"a", b"q", 3)),
        (b"ls+\ta  q 0\r\n", LsAdd(b"a", b"q", 1)),
        (b"LS- a\r\n", LsDel(b"a")),
        (b"LS- a q\r\n", LsDel(b"a", b"q")),
        (b"LMSG a 1\r\nx\r\n", LeafMsg(b"a", payload=b"x")),
        (b"LMSG a r 1\r\nx\r\n", LeafMsg(b"a", b"r", payload=b"x")),
        (b"lmsg\ta  r 1\r\nx\r\n", LeafMsg(b"a", b"r", payload=b"x")),
        (b"LMSG a + r q1 q2 1\r\nx\r\n", LeafMsg(b"a", b"r", payload=b"x", queues=(b"q1", b"q2"))),
        (b"LMSG a + r 1\r\nx\r\n", LeafMsg(b"a", b"r", payload=b"x")),
        (b"LMSG a | q1 1\r\nx\r\n", LeafMsg(b"a", payload=b"x", queues=(b"q1",))),
        # Three arguments: the second is the reply, whatever it looks like.
        (b"LMSG a + 1\r\nx\r\n", LeafMsg(b"a", b"+", payload=b"x")),
        (b"HMSG a 12 13\r\n" + HEADER + b"x\r\n", LeafMsg(b"a", b"", HEADER, b"x")),
        (b"HMSG a r 12 13\r\n" + HEADER + b"x\r\n", LeafMsg(b"a", b"r", HEADER, b"x")),
        (b"HMSG a + r q 12 12\r\n" + HEADER + b"\r\n", LeafMsg(b"a", b"r", HEADER, b"", (b"q",))),
        (b"HMSG a | q p 12 13\r\n" + HEADER + b"x\r\n", LeafMsg(b"a", b"", HEADER, b"x", (b"q", b"p"))),
        (b"INFO {}\r\n", Info(b"{}")),
        (b"CONNECT {}\r\n", Connect(b"{}")),
        (b"-ERR 'Loop detected'\r\n", Err("Loop detected")),
        (b"PING\r\n", Ping()),
        (b"LS+ " + b"a" * 60000 + b"\r\n", LsAdd(b"a" * 60000)),
    ],
)
@pytest.mark.parametrize("piece", [0, 1, 5])
def test_operations(data: bytes, expected: Op, piece: int) -> None:
    scanner = LeafScanner()
    piece = piece if len(data) < 1000 else piece * 1000
    found: list[Op] = []
    for at in range(0, 2 * len(data), piece or 2 * len(data)):
        found += scanner.feed((data * 2)[at : at + (piece or 2 * len(data))])
    assert found == [expected, expected]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"LS+ a q\r\n", ""),
        (b"LS+ \r\n", ""),
        (b"LS+ a q 1 2\r\n", ""),
        (b"LS- \r\n", ""),
        (b"LS- a b c\r\n", ""),
        (b"LMSG a\r\n", ""),
        (b"LMSG \r\n", ""),
        (b"LMSG a x y 1\r\nx\r\n", ""),
        (b"LMSG a r x\r\n", ""),
        (b"HMSG a 1\r\n", ""),
        (b"HMSG a 5 3\r\n", ""),
        (b"HMSG a r x 12 13\r\n", ""),
        (b"PUB a 1\r\nx\r\n", "Unknown Protocol Operation"),
        (b"MSG a 1 1\r\nx\r\n", "Unknown Protocol Operation"),
        (b"LMSG a 1\r\nxy\r\n", "Unknown Protocol Operation"),
        (b"LS a\r\n", "Unknown Protocol Operation"),
        (b"LMSG a 1048577\r\n", "Maximum Payload Violation"),
        (b"LS+ " + b"a" * 65537 + b"\r\n", "maximum control line exceeded"),
    ],
)
def test_refused(data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        LeafScanner().feed(b"PING\r\n" + data)
    assert caught.value.text == text
    assert caught.value.ops == [Ping()]


words = st.from_regex(rb"[a-z.$]{1,8}", fullmatch=True)
groups = st.lists(words, max_size=3).map(tuple)
messages = st.builds(
    LeafMsg, words, st.one_of(st.just(b""), words), st.sampled_from([b"", HEADER]), st.binary(max_size=20), groups
)
interest = st.one_of(
    st.builds(LsAdd, words),
    st.builds(LsAdd, words, words, st.integers(1, 1000)),
    st.builds(LsDel, words, st.one_of(st.just(b""), words)),
)


def encode(op: Op) -> bytes:
    if isinstance(op, LeafMsg):
        return frames.encode_leaf_msg(op.subject, op.reply, op.header, op.payload, op.queues)
    if isinstance(op, LsAdd):
        return frames.encode_ls_add(op.subject, op.queue, op.weight)
    assert isinstance(op, LsDel)
    return frames.encode_ls_del(op.subject, op.queue)


@given(st.lists(st.one_of(messages, interest), max_size=8), st.integers(1, 40))
def test_what_is_encoded_is_read_again(ops: list[Op], piece: int) -> None:
    data = b"".join(map(encode, ops))
    assert LeafScanner().feed(data) == ops
    scanner = LeafScanner()
    found: list[Op] = []
    for at in range(0, len(data), piece):
        found += scanner.feed(data[at : at + piece])
    assert found == ops
