"""The store's two twins, compiled and plain: the same records, acknowledgements and notes, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_store import _record_run, hot
from eyot_store.records import decode_record, salt_of, seq_of
from support.record_run_world import recorded

SALT = salt_of(7)


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert hot.COMPILED
    assert hot.encode_run is _record_run.encode_run


@settings(max_examples=500)
@given(st.integers(0, 2**48))
def test_both_make_the_same(seed: int) -> None:
    assert recorded(1, seed) == recorded(0, seed)


@settings(max_examples=100)
@given(st.integers(0, 2**48))
def test_records_say_what_the_messages_said(seed: int) -> None:
    """... and of what is read back, everything counts for somebody's subject, or for nobody's."""
    _, items, added, subjects, _, _, (count, _), entries = recorded(1, seed)
    assert [seq_of(key) for key, _ in items] == list(added)
    for key, record in items:
        message = decode_record(SALT, key, record)
        assert added[message.seq][0] == message.subject
    if subjects is not None:
        assert sum(entry[0] for entry in subjects.values()) == len(items)
    assert sum(entry[0] for entry in entries.values()) == 3 + count


def test_what_is_no_message_is_refused() -> None:
    """C looks at what it is given before it takes it for bytes."""
    wrong: Any
    for wrong in ([b"a"], [(b"a", b"b")], [(b"a", b"", b"", "text")], [("a", b"", b"", b"")]):
        with pytest.raises(TypeError):
            _record_run.encode_run(wrong, 1, 1 << 40, 0, 30, 4, [], {}, None)
