"""The store's two twins, compiled and plain: the same records, acknowledgements and notes, byte for byte."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_store import _record_run, _subject_change, native, record_run, subject_change
from eyot_store.records.record import decode_record, salt_of, seq_of
from support.store.record_run_fixture import recorded

SALT = salt_of(7)


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.COMPILED
    assert native.encode_run is _record_run.encode_run
    assert native.Change is _subject_change.Change


@settings(max_examples=500)
@given(st.integers(0, 2**48))
def test_both_make_the_same(seed: int) -> None:
    assert recorded(1, seed) == recorded(0, seed)


@settings(max_examples=100)
@given(st.integers(0, 2**48))
def test_records_say_what_the_messages_said(seed: int) -> None:
    (counted, written), items, run, *_ = recorded(1, seed)
    assert written == sum(len(record) for _, record in items)
    for (key, record), message in zip(items, run, strict=True):
        stored = decode_record(SALT, key, record)
        assert (stored.subject, stored.header, stored.payload) == (message.subject, message.header, message.payload)
    weighed = native.count_bytes(items, SALT, None, 30, 4)
    assert [each[:2] for each in weighed] == [
        (seq_of(key), message.subject) for (key, _), message in zip(items, run, strict=True)
    ]
    assert sum(each[2] for each in weighed) == counted


def test_what_is_no_message_is_refused() -> None:
    """C looks at what it is given before it takes it for bytes."""
    wrong: Any
    for wrong in ([b"a"], [(b"a", b"b")], [(b"a", b"", b"", "text")], [("a", b"", b"", b"")]):
        with pytest.raises(TypeError):
            _record_run.encode_run(wrong, 1, 1 << 40, 0, 30, 4, [])


def test_what_is_no_record_is_refused() -> None:
    wrong: Any
    change = _subject_change.Change()
    for wrong in ([b"a"], [(b"k" * 8,)], [(b"k" * 8, "text")], [("k" * 8, b"r")], [[b"k" * 8, b"r"]]):
        with pytest.raises(TypeError):
            change.came_run(wrong)
    for wrong in ([b"a"], [(b"k" * 8,)], [(b"k" * 8, "text")], [(b"k" * 8, memoryview(b"abcd")[::2])]):
        with pytest.raises(TypeError):
            _record_run.count_bytes(wrong, -1, None, 0, 0)
    with pytest.raises(ValueError, match="8 bytes"):
        change.went_record(b"short", b"", 0, None)


def test_many_subjects_are_told_apart() -> None:
    changes = [_subject_change.Change(), subject_change.Change()]
    for change in changes:
        for seq in range(1, 20_000):
            change.came(b"s.%d" % (seq * 7 % 9000), seq)
            if seq % 3 == 0:
                change.went(b"s.%d" % (seq % 12_000), seq)
    assert changes[0].entries() == changes[1].entries()
    assert changes[0].encoded(4096) == changes[1].encoded(4096)


@pytest.mark.parametrize("size", [*range(300), 4096, 65_537])
def test_the_checksum_is_that_of_zlib_for_every_length_and_place(size: int) -> None:
    """Long texts take another way than short ones, in steps of 64 and 16 bytes."""
    data = random.Random(size).randbytes(size + 9)
    for start in (0, 1, 9):
        text = memoryview(data)[start : start + size]
        for before in (0, 1, 0xFFFFFFFF, 0x12345678):
            assert native.checksum(text, before) == record_run.checksum(text, before) == zlib.crc32(text, before)
