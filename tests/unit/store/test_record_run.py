"""The store's two twins, compiled and plain: the same records, acknowledgements and notes, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_store import _record_run, hot, record_run
from eyot_store.codec import RecordCodec
from eyot_store.records import decode_record, encode_body, pack_u64, salt_of
from eyot_store.vault import Vault
from eyot_wire.frames import Published

TWINS: tuple[Any, Any] = (record_run, _record_run)
SIZES = st.sampled_from([0, 1, 7, 8, 9, 100, 255, 256, 300, 65535, 65536])

texts = st.builds(lambda size, byte: bytes([byte]) * size, SIZES, st.integers(0, 255))
subjects = st.one_of(st.sampled_from([b"a", b"a.b", b"", b"s" * 255, b"s" * 256]), st.binary(max_size=12))
replies = st.sampled_from([b"", b"r", b"_INBOX.x.1", b"r.$FI", b"$FI"])
headers = st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n"])
messages = st.lists(st.builds(Published, subjects, replies, headers, texts), max_size=6)
numbers = st.one_of(st.integers(1, 1 << 62), st.sampled_from([1, 9, 10, 255, 256, 1 << 32]))
times = st.sampled_from([0, 1, 127, 128, (1 << 32) - 3, 1 << 32, 1_800_000_000_000_000_000, -5])


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert hot.COMPILED
    assert hot.encode_run is _record_run.encode_run


@settings(max_examples=300, deadline=None)
@given(messages, numbers, times, st.integers(0, 2**32 - 1), st.booleans())
def test_encoding(run: list[Published], seq: int, ts_ns: int, stream_id: int, known: bool) -> None:
    seen = []
    salt = salt_of(stream_id)
    for twin in TWINS:
        items: list[tuple[bytes, bytes]] = []
        added: dict[int, tuple[bytes, int]] = {}
        by_subject: dict[bytes, list[int]] | None = {} if known else None
        sizes = twin.encode_run(run, seq, ts_ns, salt, 30, 4, items, added, by_subject)
        seen.append((sizes, items, added, by_subject))
    assert seen[0] == seen[1]
    for at, (key, record) in enumerate(seen[1][1]):
        message = decode_record(salt, key, record)
        assert (message.seq, message.ts_ns) == (seq + at, ts_ns + at)
        assert (message.subject, message.header, message.payload) == (run[at].subject, run[at].header, run[at].payload)


@settings(max_examples=200, deadline=None)
@given(messages, numbers, st.sampled_from([0, 9, 300, 1 << 62]))
@example([Published(b"a", b"r", b"", b"x")], (1 << 63) - 1, 1)
def test_sizes_and_acknowledgements(run: list[Published], seq: int, payload_max: int) -> None:
    head = b'{"stream":"S", "seq":'
    seen = [(twin.plain_size(run, payload_max, b".$FI"), twin.pub_acks(run, head, seq)) for twin in TWINS]
    assert seen[0] == seen[1]


bodies = st.one_of(
    st.builds(lambda ts_ns, subject, payload: encode_body((ts_ns, subject, b"", payload)), times, subjects, texts),
    st.binary(max_size=20),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(bodies, st.booleans()), max_size=8), numbers, st.integers(1, 5), st.booleans())
def test_noting_subjects(found: list[tuple[bytes, bool]], seq: int, limit: int, sealed: bool) -> None:
    """Records that are damaged, or that are none, count for nobody's subject."""
    codec = RecordCodec(7, Vault("aes", b"d" * 32) if sealed else None)
    records = []
    for at, (body, damaged) in enumerate(found):
        key = pack_u64(seq + at)
        [(_, value)] = codec.stored([(key, codec.summed(key, body))])
        records.append((key, bytes([value[0] ^ 1]) + value[1:] if damaged else value))
    opened = codec.body_or_none if sealed else None
    seen = []
    for twin in TWINS:
        entries: dict[bytes | None, list[int]] = {b"a": [3, 0, 2, 0, 0]}
        seen.append((twin.note_records(iter(records), limit, codec.salt, opened, entries), entries))
    assert seen[0] == seen[1]
    assert sum(entry[0] for entry in seen[1][1].values()) == 3 + min(limit, len(found))


def test_what_is_no_message_is_refused() -> None:
    """C looks at what it is given before it takes it for bytes."""
    wrong: Any
    for wrong in ([b"a"], [(b"a", b"b")], [(b"a", b"", b"", "text")], [("a", b"", b"", b"")]):
        with pytest.raises(TypeError):
            _record_run.encode_run(wrong, 1, 1 << 40, 0, 30, 4, [], {}, None)
