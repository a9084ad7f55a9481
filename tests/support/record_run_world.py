"""What a twin of the store's hot functions makes of messages and records that a seed draws."""

from __future__ import annotations

from random import Random
from typing import Any

from eyot_store import _record_run, record_run
from eyot_store.codec import RecordCodec
from eyot_store.records import encode_body, pack_u64
from eyot_store.vault import Vault
from eyot_wire.frames import Published

TWINS: tuple[Any, Any] = (record_run, _record_run)


def recorded(twin: int, seed: int) -> list[Any]:
    """By twin 0 (plain) or 1 (compiled): records, answers and sizes of a run, and the notes of what is read back."""
    rng = Random(seed)
    hot = TWINS[twin]
    run = [_message(rng) for _ in range(rng.randrange(8))]
    seq = rng.choice([1, 9, 255, 1 << 32, rng.randrange(1, 1 << 62)])
    ts_ns = rng.choice([0, 127, (1 << 32) - 3, 1 << 32, 1_800_000_000_000_000_000, -5])
    codec = RecordCodec(7, Vault("aes", b"d" * 32) if rng.random() < 0.2 else None)
    size_max, header_max = rng.choice([0, 9, 1 << 62, 1 << 62]), rng.choice([0, 20, 65535])
    usual = record_run.Usual(size_max, header_max, b".$FI", b"\r\nNats-", b"\r\nNats-Msg-Id:", 30, 4)
    items: list[tuple[bytes, bytes]] = []
    added: dict[int, tuple[bytes, int]] = {}
    subjects: dict[bytes, list[int]] | None = {} if rng.random() < 0.7 else None
    seen: list[Any] = [hot.encode_run(run, seq, ts_ns, codec.salt, 30, 4, items, added, subjects)]
    seen += [list(items), added, subjects, hot.look_over(run, usual)]
    seen.append(hot.pub_acks(run, b'{"stream":"S", "seq":', seq))
    for at in range(rng.randrange(4)):  # others that may stand there
        key = pack_u64(seq + len(run) + at)
        body = rng.choice([rng.randbytes(rng.randrange(20)), encode_body((rng.randrange(1 << 40), b"s", b"", b"x"))])
        items.append((key, codec.summed(key, body)))
    found = [(key, _damaged(rng, value)) for key, value in codec.stored(items)]
    entries: dict[bytes | None, list[int]] = {b"a": [3, 0, 2, 0, 0]}
    opened = None if codec.opened is None else codec.body_or_none
    seen.append(hot.note_records(iter(found), rng.randrange(1, 12), codec.salt, opened, entries))
    return [*seen, entries]


def _message(rng: Random) -> Published:
    size = rng.choice([0, 1, 7, 8, 100, 255, 256, 300, 65535, 65536])
    subject = rng.choice([b"a", b"a.b", b"s" * 255, b"s" * 256, rng.randbytes(5)])
    reply = rng.choice([b"", b"r", b"_INBOX.x.1", b"r.$FI", b"$FI"])
    return Published(subject, reply, _header(rng), rng.randbytes(size))


def _header(rng: Random) -> bytes:
    fields = [b"Nats-Msg-Id:a", b"Nats-Msg-Id: \t b c \t", b"Nats-Msg-Id:", b"Nats-Msg-Id", b"Nats-Msg-Idx:1", b"Nats-"]
    fields += [b"nats-msg-id:1", b"X:Nats-Msg-Id:1", b"Nats-Msg-Id:\r", b"Nats-TTL:1", b"Nats-M", b"x"]
    usual = fields[:3] + fields[6:9]
    chosen = [rng.choice(fields if rng.random() < 0.1 else usual) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    ends = rng.choice([b"\r\n\r\n", b"\r\n\r\n", b"\r\n", b"\n", b""])
    return rng.choice([b"", b"NATS/1.0\r\n" + b"\r\n".join(chosen) + ends])


def _damaged(rng: Random, value: bytes) -> bytes:
    if rng.random() < 0.8:
        return value
    at = rng.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
