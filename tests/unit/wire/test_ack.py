"""Acknowledgement subjects and payloads."""

import pytest

from eyot_wire.jetstream.ack import (
    Ack,
    AckKind,
    AckReply,
    decode_ack_reply,
    parse_ack_payload,
    split_leaf_reply,
)
from support.jetstream.ack_replies import encode_ack_reply


def test_v1() -> None:
    reply = encode_ack_reply(b"ORIG", b"C", 1, 22, 3, 1795215637220265409, 2)
    assert reply == b"$JS.ACK.ORIG.C.1.22.3.1795215637220265409.2"
    assert decode_ack_reply(reply) == AckReply(b"ORIG", b"C", 1, 22, 3, 1795215637220265409, 2)


@pytest.mark.parametrize("domain", [b"_", b"hub"])
@pytest.mark.parametrize("more", [b"", b".token", b".token.more"])
def test_v2(domain: bytes, more: bytes) -> None:
    reply = b"$JS.ACK." + domain + b".abcd1234.ORIG.C.1.22.3.17.2" + more
    expected = AckReply(b"ORIG", b"C", 1, 22, 3, 17, 2, b"" if domain == b"_" else domain, b"abcd1234")
    assert decode_ack_reply(reply) == expected


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"_INBOX.x",
        b"$JS.ACK.",
        b"$JS.ACK.S.C.1.2.3.4",
        b"$JS.ACK.S.C.1.2.3.4.x",
        b"$JS.ACK.S.C.1.2.3.4.-5",
        b"$JS.ACK.S.C.1.2..4.5",
        b"$JS.ACK.S.C.1.2.3,3.4.5",
        b"$JS.ACK.d.S.C.1.2.3.4.5",
        b"$JS.FC.S.C.1.2.3.4.5",
    ],
)
def test_not_an_ack_reply(other: bytes) -> None:
    assert decode_ack_reply(other) is None


@pytest.mark.parametrize("subject", [b"o.0", b"a@b", b"a.b@c.d"])
@pytest.mark.parametrize("stream", [b"ORIG", b"O@RIG"])
def test_leaf_reply(stream: bytes, subject: bytes) -> None:
    reply = encode_ack_reply(stream, b"C@1", 1, 1, 1, 1, 2)
    assert split_leaf_reply(reply + b"@" + subject) == (reply, subject)
    assert split_leaf_reply(reply) == (reply, None)


def test_leaf_reply_of_v2_and_others() -> None:
    reply = b"$JS.ACK._.abcd1234.S.C.1.2.3.4.5"
    assert split_leaf_reply(reply + b"@x.y") == (reply, b"x.y")
    assert split_leaf_reply(b"_INBOX.a@b") == (b"_INBOX.a@b", None)
    assert split_leaf_reply(b"$JS.ACK.S@x.C") == (b"$JS.ACK.S@x.C", None)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", Ack(AckKind.ACK)),
        (b"+ACK", Ack(AckKind.ACK)),
        (b"+OK", Ack(AckKind.ACK)),
        (b"+WPI", Ack(AckKind.PROGRESS)),
        (b"-NAK", Ack(AckKind.NAK)),
        (b'-NAK {"delay": 1500000000}', Ack(AckKind.NAK, delay_ns=1_500_000_000)),
        (b'-NAK {"x":' + b"[" * 5000, Ack(AckKind.NAK)),
        (b"-NAK 10s", Ack(AckKind.NAK, delay_ns=10_000_000_000)),
        (b"-NAK later", Ack(AckKind.NAK)),
        (b"-NAK {", Ack(AckKind.NAK)),
        (b"-NAK -3s", Ack(AckKind.NAK)),
        (b"-NAK \xff", Ack(AckKind.NAK)),
        (b"+TERM", Ack(AckKind.TERM)),
        (b"+TERM bad data", Ack(AckKind.TERM, reason="bad data")),
        (b"+NXT", Ack(AckKind.NEXT)),
        (b'+NXT {"batch":5}', Ack(AckKind.NEXT, request=b'{"batch":5}')),
        (b"+NXT 10", Ack(AckKind.NEXT, request=b"10")),
        (b"+WPI!", None),
        (b"hello", None),
    ],
)
def test_payload(payload: bytes, expected: Ack | None) -> None:
    assert parse_ack_payload(payload) == expected
