"""What a twin of the store's hot functions makes of messages and records that a seed draws."""

from __future__ import annotations

from random import Random
from typing import Any

from eyot_store import _record_run, _subject_change, record_run, subject_change
from eyot_store.records.codec import RecordCodec
from eyot_store.records.record import encode_body, pack_u64
from eyot_store.records.store_cipher import StoreCipher
from eyot_wire.frames import Published

TWINS: tuple[Any, Any] = (record_run, _record_run)
CHANGES: tuple[Any, Any] = (subject_change.Change, _subject_change.Change)

NAMES = (
    b"Msg-Id",
    b"Expected-Stream",
    b"Expected-Last-Sequence",
    b"Expected-Last-Subject-Sequence",
    b"Expected-Last-Msg-Id",
)
FIELDS: Any = tuple(b"\r\nNats-%b:" % name for name in NAMES)

Items = list[tuple[bytes, bytes]]


def recorded(twin: int, seed: int) -> list[Any]:
    """By twin 0 (plain) or 1 (compiled): records, answers and sizes of a run, and the notes of what is read back."""
    rng = Random(seed)
    hot = TWINS[twin]
    run = [_message(rng) for _ in range(rng.randrange(8))]
    seq = rng.choice([1, 9, 255, 1 << 32, rng.randrange(1, 1 << 62)])
    ts_ns = rng.choice([0, 127, (1 << 32) - 3, 1 << 32, 1_800_000_000_000_000_000, -5])
    codec = RecordCodec(7, StoreCipher("aes", b"d" * 32) if rng.random() < 0.2 else None)
    size_max, header_max = rng.choice([0, 9, 1 << 62, 1 << 62]), rng.choice([0, 20, 65535])
    rules = record_run.FastPathRules(size_max, header_max, b".$FI", b"\r\nNats-", FIELDS, b"S", 30, 4)
    items: Items = []
    times = [ts_ns + rng.choice([0, 1, 1 << 33]) for _ in run] if rng.random() < 0.4 else None
    seen: list[Any] = [hot.encode_run(run, seq, ts_ns, codec.salt, 30, 4, items, times)]
    seen += [list(items), run, hot.scan_batch(run, rules)]
    seen.append(hot.pub_acks(run, b'{"stream":"S", "seq":', seq))
    for at in range(rng.randrange(4)):  # others that may stand there
        key = pack_u64(seq + len(run) + at)
        body = rng.choice([rng.randbytes(rng.randrange(20)), encode_body((rng.randrange(1 << 40), b"s", b"", b"x"))])
        items.append((key, codec.summed(key, body)))
    found = [(key, _damaged(rng, value)) for key, value in codec.stored(items)]
    salt = rng.choice([codec.salt, codec.salt, -1])
    seen.append(hot.count_bytes(found, salt, codec.reading[1], 30, 4))
    seen.append(
        hot.count_bytes([(memoryview(key), memoryview(value)) for key, value in found], salt, codec.reading[1], 30, 4)
    )
    return [*seen, *_noted(rng, CHANGES[twin](), codec, items, found)]


def _noted(rng: Random, change: Any, codec: RecordCodec, items: Items, found: Items) -> list[Any]:
    """What a change of the index makes of records, ``items`` as they were and ``found`` as they were read back."""
    for _ in range(3):
        change.came(b"a", rng.randrange(1, 9))
    counted = change.came_all(iter(found), rng.randrange(12), rng.choice([0, 300, 1 << 20]), *codec.reading)
    taken = 3 + counted[0]
    if rng.random() < 0.5:
        change.came_run(items)
        taken += len(items)
    for key, value in found:
        if rng.random() < 0.3:
            taken -= change.went_record(key, value, *codec.reading)
    if rng.random() < 0.3:
        change.went(rng.choice([None, b"", b"a", b"z" * 300]), rng.choice([1, 1 << 40]))
        taken -= 1
    entries = change.entries()
    encoded = change.encoded(rng.choice([1, 2, 100]))
    assert sum(count for _, count in encoded) == sum(entry[1] for entry in entries) == taken
    return [counted, len(change), entries, encoded]


def _message(rng: Random) -> Published:
    size = rng.choice([0, 1, 7, 8, 100, 255, 256, 300, 65535, 65536])
    subject = rng.choice([b"a", b"a.b", b"s" * 255, b"s" * 256, rng.randbytes(5)])
    reply = rng.choice([b"", b"r", b"_INBOX.x.1", b"r.$FI", b"$FI"])
    return Published(subject, reply, _header(rng), rng.randbytes(size))


def _header(rng: Random) -> bytes:
    fields = [b"Nats-Msg-Id:a", b"Nats-Msg-Id: \t b c \t", b"Nats-Msg-Id:", b"Nats-Msg-Id", b"Nats-Msg-Idx:1", b"Nats-"]
    fields += [b"nats-msg-id:1", b"X:Nats-Msg-Id:1", b"Nats-Msg-Id:\r", b"Nats-TTL:1", b"Nats-M", b"x"]
    values = [b"", b" 1 ", b"0", b"007", b"S", b" S", b"T", b"x", b"-1", b"+1", b"1" * 18, b"1" * 19, b"\xb2"]
    rules = fields[:3] + fields[6:9] + [b"Nats-%b:%b" % (rng.choice(NAMES), rng.choice(values)) for _ in range(3)]
    chosen = [rng.choice(fields if rng.random() < 0.1 else rules) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    ends = rng.choice([b"\r\n\r\n", b"\r\n\r\n", b"\r\n", b"\n", b""])
    return rng.choice([b"", b"NATS/1.0\r\n" + b"\r\n".join(chosen) + ends])


def _damaged(rng: Random, value: bytes) -> bytes:
    if rng.random() < 0.8:
        return value
    at = rng.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
