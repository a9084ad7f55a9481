"""The numpy reading of packed records against the plain one: the same fields for any content."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_hub.frame_columns import TAIL, FrameError, Rows
from eyot_hub.packed_columns import packed_rows
from eyot_wire.jetstream.packed_range import unpack
from support.hub.packed import pack

Record = tuple[int, bytes, bytes, bytes]

# Sizes around the borders of MessagePack's forms, times of every width.
BYTES = st.one_of(st.binary(max_size=30), st.sampled_from([0, 255, 256, 65535, 65536]).map(bytes))
TIMES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-40, 300), st.just(1_767_225_600_000_000_000))
RECORDS = st.lists(st.tuples(TIMES, BYTES, BYTES, BYTES), max_size=6)


def scanned(payload: bytes, count: int, lead: int = 3) -> tuple[bytearray, Rows]:
    buffer = bytearray(lead) + payload + bytes(TAIL)
    return buffer, packed_rows(buffer, lead, lead + len(payload), count)


@given(records=RECORDS)
def test_the_same_fields(records: list[Record]) -> None:
    payload = pack([(number, msgspec.msgpack.encode(record)) for number, record in enumerate(records, 5)])
    buffer, rows = scanned(payload, len(records))
    found = [
        (
            int(rows.stream_seq[i]),
            (
                int(rows.stored_ns[i]),
                bytes(buffer[rows.subject_start[i] : rows.subject_end[i]]),
                bytes(buffer[rows.header_start[i] : rows.header_end[i]]),
                bytes(buffer[rows.payload_start[i] : rows.payload_end[i]]),
            ),
        )
        for i in range(len(rows))
    ]
    plain = [(seq, msgspec.msgpack.decode(record, type=Record)) for seq, record in unpack(payload, len(records))]
    assert found == plain == list(enumerate(records, 5))


def test_damage_is_refused_or_read_within_the_record() -> None:
    """Whatever a record holds, no field lies outside of it."""
    rng = random.Random(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(2000):
        records = [
            (rng.getrandbits(rng.randrange(1, 63)), *(rng.randbytes(rng.randrange(40)) for _ in "abc")) for _ in "ab"
        ]
        blobs = [bytearray(msgspec.msgpack.encode(record)) for record in records]
        damaged = rng.choice(blobs)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            buffer, rows = scanned(pack([(0, bytes(blob)) for blob in blobs]), len(blobs))
        except FrameError:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        for index, blob in enumerate(blobs):
            assert bytes(buffer[rows.subject_start[index] : rows.payload_end[index]]) in blob
    assert min(outcomes.values()) > 100, outcomes


def test_directories_that_do_not_fit() -> None:
    with pytest.raises(FrameError, match="shorter than its directory"):
        scanned(bytes(20), 2)
    with pytest.raises(FrameError, match="do not fill it"):
        scanned(bytes(30), 2)
