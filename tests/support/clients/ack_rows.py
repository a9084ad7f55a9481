"""Acknowledgements in a read, plain ones and others, made from a seed: both twins must find the same in them."""

from __future__ import annotations

from random import Random
from typing import Any

from support.clients import hostile
from support.clients.twins import GRAMMARS, SCANNERS

PREFIX = b"$JS.ACK.S.C."
_NUMBERS = [
    b"1",
    b"1",
    b"7",
    b"0",
    b"123456789012345678",
    b"1234567890123456789",
    b"007",
    b"",
    b"x",
    b"-1",
    b"1_0",
]
_WORDS = [b"+ACK", b"+ACK", b"+ACK", b"", b"+OK", b"+WPI", b"+ack", b"-NAK", b"+ACK ", b"+OKAY", b"+TERM"]


def frames(rng: Random) -> bytes:
    """A read of publishes, most of them acknowledgements."""
    found = []
    for number in range(rng.randrange(1, 30)):
        prefix = PREFIX if rng.random() < 0.95 else rng.choice([b"$JS.ACK.S.D.", b"$JS.ACK.S.C", b"$JS.", b""])
        tokens = [b"1", b"%d" % number, b"%d" % (number + 5), b"1763769600123456789", b"0"]
        if rng.random() < 0.1:
            tokens[rng.randrange(5)] = rng.choice(_NUMBERS)
        if rng.random() < 0.05:
            tokens = tokens[: rng.randrange(5)] if rng.random() < 0.5 else [*tokens, b"1"]
        subject = (prefix + b".".join(tokens)) or b"x"
        reply = b" r" if rng.random() < 0.05 else b""
        word = rng.choice(_WORDS) if rng.random() < 0.2 else b"+ACK"
        if rng.random() < 0.05:
            found.append(b"HPUB %b%b 12 %d\r\nNATS/1.0\r\n\r\n%b\r\n" % (subject, reply, 12 + len(word), word))
        else:
            found.append(b"PUB %b%b %d\r\n%b\r\n" % (subject, reply, len(word), word))
    return b"".join(found)


def acknowledged(twin: int, seed: int) -> list[Any]:
    """What the rows of a read acknowledge, from each of their messages on, by twin 0 (plain) or 1 (compiled)."""
    rng = Random(seed)
    data = frames(rng)
    scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
    pieces = [data] if rng.random() < 0.5 else hostile.cut(rng, data)
    prefix = PREFIX if rng.random() < 0.9 else rng.choice([b"", b"$JS.ACK.S.", b"nothing."])
    seen: list[Any] = []
    for piece in pieces:
        for row in scanner.feed(piece):
            # Where a row ends is the scanner's own business.
            at = 0
            while at < len(row):
                seqs, size = row.acknowledged(at, prefix)
                assert [row.acknowledged(at + step, prefix)[0] for step in range(len(seqs))] == [
                    seqs[step:] for step in range(len(seqs))
                ]
                seen += seqs or [row.content(at), size]
                at += len(seqs) or 1
    return seen
