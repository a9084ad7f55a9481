"""Heads and payloads of packed replies come back as they were; what is broken is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.jetstream.packed_range import END, RangeHead, decode_head, unpack
from support.hub.packed import pack

NUMBERS = st.integers(0, 2**63 - 1)
ITEMS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=8)


@given(numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_a_head_comes_back(numbers: tuple[int, int, int, int, int]) -> None:
    first, last, count, stream_first, created = numbers
    head = RangeHead(
        state=END, first_seq=first, last_seq=last, count=count, stream_first=stream_first, created_ns=created
    )
    assert decode_head(head.encode()) == head


@given(items=ITEMS)
def test_a_payload_comes_back(items: list[tuple[int, bytes]]) -> None:
    assert unpack(pack(items), len(items)) == items


def test_what_is_no_reply() -> None:
    assert decode_head(b"") is None
    assert decode_head(b"NATS/1.0 503\r\n\r\n") is None
    with pytest.raises(ValueError, match="Eyot-Last-Sequence is b'x', no number"):
        decode_head(b"NATS/1.0\r\nEyot-Range: end\r\nEyot-First-Sequence: 1\r\nEyot-Last-Sequence: x\r\n\r\n")
    with pytest.raises(ValueError, match="shorter than its directory"):
        unpack(bytes(11), 1)
    with pytest.raises(ValueError, match="do not fill"):
        unpack(bytes(13), 1)
