"""The column scanner against the wire's own scanner: for any frames, cut anywhere, the same messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_hub.columns import StreamLabels, batch
from eyot_hub.frame_columns import LEAD, TAIL, FrameColumns, FrameError, slices
from eyot_hub.origins import Origins
from eyot_wire.frames import Msg, encode_msg
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.scanner import Scanner
from support.jetstream.ack_replies import encode_ack_reply

SID = b"d"
LABELS = StreamLabels("S", None, None, Origins())
INTERLUDES = [b"PING\r\n", b"+OK\r\n", b"PONG\r\n", b'INFO {"server_id":"x"}\r\n', b"-ERR 'Slow Consumer'\r\n"]
STATUS = encode_msg(b"_INBOX.eyot.1", SID, b"", b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n", b"")

payloads = st.one_of(
    st.binary(max_size=60),
    # What looks like protocol: line ends, whole frames.
    st.lists(
        st.sampled_from(
            [
                b"\r\n",
                b"MSG a d 5",
                b"HMSG a d 1 5",
                b"MSG ",
                b"PING\r\n",
                b"\n",
                b"$JS.ACK.S.C.1.1.1.1.1",
                b" 3\r\nabc\r\n",
            ]
        ),
        max_size=6,
    ).map(b"".join),
)
subjects = st.lists(st.sampled_from([b"a", b"sensor", "größe".encode(), b"x1", b"$KV"]), min_size=1, max_size=4).map(
    b".".join
)
headers = st.sampled_from([b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: x\r\nB:2\r\n\r\n"])


@st.composite
def deliveries(draw: st.DrawFn) -> list[bytes]:
    """Frames of one consumer, with other frames in between."""
    frames = []
    sequence = draw(st.integers(1, 10**18))
    v2 = draw(st.booleans())
    for number in range(draw(st.integers(0, 12))):
        sequence += draw(st.integers(1, 1000))
        pending = draw(st.integers(0, 10**12))
        ts_ns = draw(st.integers(0, 2**63 - 1))
        reply = encode_ack_reply(b"S", b"C", 1, sequence, number + 1, ts_ns, pending)
        if v2:
            reply = reply.replace(b"$JS.ACK.", b"$JS.ACK.hub.aBcDeFgH.") + draw(st.sampled_from([b"", b".token"]))
        frames.append(encode_msg(draw(subjects), SID, reply, draw(headers), draw(payloads)))
        frames += draw(st.lists(st.sampled_from([*INTERLUDES, STATUS]), max_size=1))
    return frames


def scanned(data: bytes, cuts: list[int]) -> tuple[list[tuple[object, ...]], list[bytes]]:
    """Everything that FrameColumns finds when `data` arrives in pieces."""
    scanner = FrameColumns(SID, b"S", b"C")
    rows: list[tuple[object, ...]] = []
    others: list[bytes] = []
    rest = b""
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = rest + data[begin:end]
        buffer = bytearray(LEAD) + bytearray(piece) + bytearray(TAIL)
        found = scanner.scan(buffer, LEAD, LEAD + len(piece))
        others += found.others
        rest = piece[found.end - LEAD :]
        part = found.rows
        table = batch(buffer, part, LABELS, with_headers=True)
        for index, row in enumerate(table.to_pylist()):
            size = int(part.payload_start[index] - part.header_start[index])
            header = bytes(buffer[int(part.header_start[index]) : int(part.header_start[index]) + size])
            rows.append(
                (
                    row["subject"].encode(),
                    header,
                    row["payload"],
                    row["sequence"],
                    int(part.consumer_seq[index]),
                    int(part.stored_ns[index]),
                    int(part.pending[index]),
                )
            )
    assert rest == b""
    return rows, others


@settings(max_examples=300, deadline=None)
@given(deliveries(), st.data())
def test_same_messages_as_the_scanner(frames: list[bytes], data: st.DataObject) -> None:
    text = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    expected, statuses = [], 0
    for op in Scanner("client").feed(text):
        if isinstance(op, Msg):
            ack = decode_ack_reply(op.reply)
            if ack is None:
                statuses += 1
            else:
                expected.append(
                    (op.subject, op.header, op.payload, ack.stream_seq, ack.consumer_seq, ack.ts_ns, ack.pending)
                )
    rows, others = scanned(text, cuts)
    assert rows == expected
    assert sum(other == STATUS for other in others) == statuses
    assert len(rows) + len(others) == len(frames)


def test_a_message_of_another_consumer_is_not_taken() -> None:
    foreign = encode_msg(b"a", SID, encode_ack_reply(b"S", b"D", 1, 5, 1, 7, 0), b"", b"x")
    rows, others = scanned(foreign, [])
    assert rows == []
    assert others == [foreign]


def test_a_reply_that_only_looks_like_one_is_not_taken() -> None:
    odd = [b"$JS.ACK.S.C.1.x.1.7.0", b"$JS.ACK.S.C.1.1.1", b"", b"$JS.ACK.S.C.1.1.1.1." + b"9" * 30]
    frames = [encode_msg(b"a", SID, reply, b"", b"x") for reply in odd]
    rows, others = scanned(b"".join(frames), [])
    assert (rows, others) == ([], frames)


def test_invalid_utf8_in_a_subject_becomes_a_replacement_character() -> None:
    frame = encode_msg(b"a\xff", SID, encode_ack_reply(b"S", b"C", 1, 5, 1, 7, 0), b"", b"x")
    rows, _ = scanned(frame, [])
    assert rows[0][0] == "a\ufffd".encode()


def test_a_control_line_without_a_size_is_no_protocol() -> None:
    data = b"MSG a d $JS.ACK.S.C.1.1.1.1.x\r\nfoo\r\n"
    buffer = bytearray(LEAD) + bytearray(data) + bytearray(TAIL)
    with pytest.raises(FrameError, match="size"):
        FrameColumns(SID, b"S", b"C").scan(buffer, LEAD, LEAD + len(data))


def test_slices_cut_out_bytes() -> None:
    import numpy as np

    data = pa.py_buffer(b"hello world")
    assert slices(data, np.array([0, 6]), np.array([5, 6])).to_pylist() == [b"hello", b""]
    assert slices(data, np.array([], dtype=np.int64), np.array([], dtype=np.int64)).to_pylist() == []
