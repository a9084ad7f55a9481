"""Bytes that a peer may send: well-formed traffic in every spelling, the same damaged, and garbage; and ways to cut them.

Everything is drawn from a `random.Random`, so that a seed repeats it.
"""

from __future__ import annotations

from random import Random

WORDS = [
    b"a",
    b"b",
    b"a.b",
    b"c.d.e",
    b"_INBOX.x.1",
    b"$JS.API.INFO",
    b"*",
    b">",
    b"a.*",
    b"q",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\x00",
]
SPACES = [b" ", b" ", b" ", b" ", b" ", b"  ", b"\t", b" \t "]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r\r\n"]
SIZES = [b"0", b"1", b"2", b"007", b"-1", b"+1", b"1e3", b"", b"99999999999999999999", b"999999999", b"4294967297",
         b"2147483648", b"1048577", b"\xd9\xa1", b"0x10", b"1 "]  # fmt: skip
HEADERS = [b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"no header at all", b"\r\n"]
VERBS = {
    "PUB": [b"PUB", b"PUB", b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR"],
    "MSG": [b"MSG", b"MSG", b"HMSG", b"INFO", b"PING", b"PONG", b"+OK", b"-ERR"],
    "LMSG": [b"LMSG", b"LMSG", b"HMSG", b"LS+", b"LS-", b"PING", b"PONG", b"INFO", b"CONNECT", b"-ERR"],
}
PAYLOAD_VERBS = (b"PUB", b"HPUB", b"MSG", b"HMSG", b"LMSG")


def traffic(rng: Random, message: str, frames: int) -> bytes:
    """Well-formed frames of one side, usual spellings mostly. `message`: PUB, MSG or LMSG, as a Grammar says it."""
    found: list[bytes] = []
    while len(found) < frames:
        frame = _frame(rng, message)
        found += [frame] * (rng.randrange(1, 20) if rng.random() < 0.1 else 1)
    return b"".join(found)


def damaged(rng: Random, data: bytes) -> bytes:
    """The same with one to four things wrong."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(7)
        if kind == 0:
            changed[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            del changed[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            changed[at:at] = rng.choice([*SIZES, *ENDS, *SPACES, b"\x00", rng.randbytes(5)])
        elif kind == 3:
            start = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + rng.randrange(1, 60)]
        elif kind == 4:
            del changed[at:]
        elif kind == 5:
            changed[at:at] = b"PUB " + b"x" * rng.choice([100, 4090, 4096, 4097, 65536])
        else:
            digits = [index for index, byte in enumerate(changed) if 48 <= byte <= 57]
            if digits:
                index = rng.choice(digits)
                changed[index : index + 1] = rng.choice(SIZES)
    return bytes(changed)


def garbage(rng: Random, size: int) -> bytes:
    """Random bytes, or random words."""
    if rng.random() < 0.5:
        return rng.randbytes(rng.randrange(size + 1))
    words = [*WORDS, *SPACES, *ENDS, *SIZES, *VERBS["PUB"], *VERBS["LMSG"]]
    return b"".join(rng.choices(words, k=rng.randrange(1, max(2, size // 4))))


def hostile(rng: Random, message: str) -> bytes:
    """Any of it."""
    kind = rng.random()
    if kind < 0.3:
        return traffic(rng, message, rng.randrange(1, 40))
    if kind < 0.85:
        return damaged(rng, traffic(rng, message, rng.randrange(1, 40)))
    return garbage(rng, 400)


def cut(rng: Random, data: bytes) -> list[bytes]:
    """The data in pieces, in order: all at once, byte by byte, or anyhow."""
    kind = rng.random()
    if kind < 0.2 or not data:
        return [data]
    if kind < 0.3 and len(data) < 5000:
        return [data[at : at + 1] for at in range(len(data))]
    most = rng.choice([2, 7, 40, 300, 5000])
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = rng.randrange(1, most + 1)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def _frame(rng: Random, message: str) -> bytes:
    verb = rng.choice(VERBS[message])
    rules = rng.random() < 0.8

    def space() -> bytes:
        return b" " if rules else rng.choice(SPACES)

    end = b"\r\n" if rules else rng.choice(ENDS)
    spelled = verb if rules else bytes(rng.choice([byte, byte | 32]) for byte in verb)
    if verb not in PAYLOAD_VERBS:
        return spelled + _arguments(rng, verb, space) + end
    header = rng.choice(HEADERS) if verb[:1] == b"H" else b""
    if header and rng.random() < 0.05:
        header = b""
    payload = rng.choice([b"", b"x" * rng.randrange(200), rng.randbytes(rng.randrange(50)), b"PUB a 1\r\nx\r\n"])
    parts = [spelled, rng.choice(WORDS)]
    if message == "MSG":
        parts.append(b"%d" % rng.randrange(1, 20))
    kind = rng.random()
    if kind < 0.4:
        parts.append(rng.choice(WORDS))
    elif kind < 0.5 and message == "LMSG":
        parts += rng.choice([[b"+", b"r"], [b"|"], [b"+"]]) + rng.choices(WORDS, k=rng.randrange(3))
    if verb[:1] == b"H":
        parts.append(b"%d" % len(header))
    parts.append(b"%d" % (len(header) + len(payload)))
    line = parts[0]
    for part in parts[1:]:
        line += space() + part
    return line + end + header + payload + b"\r\n"


def _arguments(rng: Random, verb: bytes, space: object) -> bytes:
    gap = space() if callable(space) else b" "
    if verb in (b"CONNECT", b"INFO"):
        return gap + rng.choice(
            [b"{}", b'{"verbose":false}', b'{"headers":true,"no_responders":true}', b"{", b"[]", b""]
        )
    if verb in (b"SUB", b"UNSUB", b"LS+", b"LS-"):
        parts = rng.choices([*WORDS, b"1", b"2", b"3"], k=rng.randrange(1, 4))
        return gap + gap.join(parts)
    if verb == b"-ERR":
        return gap + rng.choice([b"'x'", b"x", b"", b"\xff"])
    return rng.choice([b"", b"", b" ", b" x"])
