"""Which stream a record belongs to is found by its checksum, for all damaged streams at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyot_store.check.salvage import RecordOwners
from eyot_store.records.record import encode_record, is_whole, pack_u64, salt_of

STREAMS = (1, 2, 3, 70_000, 1 << 40)


@given(st.sampled_from(STREAMS), st.integers(1, (1 << 64) - 1), st.binary(max_size=40), st.binary(max_size=300))
def test_a_record_belongs_to_the_stream_whose_checksum_fits(stream: int, seq: int, subject: bytes, body: bytes) -> None:
    key = pack_u64(seq)
    record = encode_record(salt_of(stream), key, 1, subject, b"", body)
    assert RecordOwners(dict.fromkeys(STREAMS)).owner(key, record) == stream
    assert RecordOwners({each: None for each in STREAMS if each != stream}).owner(key, record) is None


@given(st.binary(min_size=8, max_size=8), st.binary(max_size=60))
def test_what_is_no_record_belongs_to_no_stream(key: bytes, data: bytes) -> None:
    whole = [each for each in STREAMS if is_whole(salt_of(each), key, data)]
    assert RecordOwners(dict.fromkeys(STREAMS)).owner(key, data) == (whole[0] if whole else None)
