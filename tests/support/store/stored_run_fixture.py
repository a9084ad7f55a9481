"""Runs of stored messages, made from a seed and used by it in any way there is: both twins must come to the same."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from support.clients.twins import STORED_RUNS

_encode = msgspec.msgpack.Encoder().encode
_SUBJECTS = [b"a", b"a.b", b"sensors.line-4.temperature", b"", b"x" * 300]
_TIMES = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 1_763_769_600_123_456_789, 2**63 - 1,
          -1, -32, -33, -128, -129, -32769, -(2**31) - 1, -(2**63)]  # fmt: skip


def stored(rng: Random, seq: int, salt: int) -> tuple[bytes, bytes]:
    """A record with its checksum, under its key."""
    header = rng.choice([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: %b\r\n\r\n" % (b"c" * 300)])
    payload = bytes(rng.choice([0, 1, 5, 128, 255, 256, 70_000 if rng.random() < 0.1 else 3]))
    key = struct.pack(">Q", seq)
    body = _encode((rng.choice(_TIMES), rng.choice(_SUBJECTS), header, payload))
    return key, body + struct.pack("<I", crc32(body, crc32(key, salt)))


def _damaged(rng: Random, record: bytes) -> bytes:
    changed = bytearray(record)
    kind = rng.randrange(4)
    if kind == 0:
        return record[: rng.randrange(len(record))]
    if kind == 1:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        changed[: rng.randrange(1, 16)] = rng.randbytes(rng.randrange(16))
    else:
        return _encode(rng.choice([[], [1], [1, b"a", b"", b"", b""], [1.5, b"a", b"", b""], ["x", b"a", b"", b""],
                                   [1, "a", b"", b""], [1, b"a", None, b""], {}, 7, [True, b"a", b"", b""],
                                   [2**63, b"a", b"", b""], [2**64 - 1, b"a", b"", b""]]))  # fmt: skip
    return bytes(changed)


def ran(twin: int, seed: int) -> list[Any]:
    """What becomes of a run of twin 0 (plain) or 1 (compiled) that is used as this seed says."""
    rng = Random(seed)
    salt = rng.choice([-1, 0, 2**32 - 1, rng.randrange(2**32)])
    run: Any = STORED_RUNS[twin](*rng.choice([(), (0,), (12,), (500,)]))
    seen: list[Any] = []
    known: dict[bytes, bool] = {}
    asked: list[bytes] = []
    seq = rng.choice([1, 1, 250, 2**32 - 3, 2**63])

    def wanted(subject: bytes) -> bool:
        asked.append(subject)
        return len(subject) % 2 == 1

    for _ in range(rng.randrange(1, 6)):
        pairs = []
        for _ in range(rng.choice([0, 1, 3, 30])):
            seq += rng.choice([1, 1, 1, 2, 9])
            key, record = stored(rng, seq, max(salt, 0))
            pairs.append((key, _damaged(rng, record) if rng.random() < 0.03 else record))
        last = rng.choice([2**64 - 1, 2**64 - 1, seq, max(seq - 2, 0)])
        source = iter(pairs) if rng.random() < 0.5 else pairs
        seen.append(run.gather(source, last, rng.choice([1, 5, 1000]), rng.choice([0, 500, 1 << 20]), salt))
        seen += [len(run), run.size, run.seqs(), run.sizes(rng.choice([0, 60]))]
        kind = rng.randrange(4)
        start = rng.randrange(len(run) + 1)
        if kind == 0:
            run.without(set(rng.sample(range(seq - 40, seq + 1), 20)), start)
        elif kind == 1:
            run.matching(wanted, known, start)
        elif kind == 2:
            run.cut(rng.randrange(len(run) + 3))
        seen += [run.seqs(), [run.seq(index) for index in range(len(run))]]
    out = bytearray(rng.choice([b"", b"before"]))
    start = rng.randrange(len(run) + 1)
    stop = rng.randrange(start, len(run) + 1)
    sid, prefix = rng.choice([b"1", b"9" * 30]), b"$JS.ACK.STREAM.consumer."
    cseq, pending = rng.choice([1, 10**9, 2**63]), rng.choice([0, 5, 10**12])
    seen.append(run.write_msgs(out, start, stop, sid, prefix, cseq, pending))
    seen += [
        bytes(out),
        asked,
        known,
        run.opened(start, stop),
        run.delivery_sizes(prefix, cseq, pending),
        run.header_holds(start, stop, b"A: b"),
        run.packed_size,
        run.packed(),
    ]
    size_max, chunk_bytes = rng.choice([2**40, 200, 0]), rng.choice([1, 500, 4096, 1 << 20])
    seen.append(run.write_lmsgs(start, stop, b"$JS.M.Ab", prefix, cseq, pending, size_max, chunk_bytes))
    return seen
