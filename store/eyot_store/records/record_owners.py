"""Finds out which of several streams a record belongs to, where nothing but the record is left."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from eyot_store.records.record import CRC_RESIDUE, salt_of


class RecordOwners:
    """Tells the stream of a record by its checksum.

    A stream's checksums begin with a salt of its own. CRC-32 is linear: what a salt adds to the checksum depends on the
    salt and on the number of bytes only. One checksum and one look-up therefore compare a record with all streams.
    """

    def __init__(self, stream_ids: Iterable[int]) -> None:
        self._salts = {salt_of(stream_id): stream_id for stream_id in stream_ids}
        #: By number of bytes: the stream by what its salt adds.
        self._by_size: dict[int, dict[int, int]] = {}

    def owner(self, key: bytes, record: bytes) -> int | None:
        """Return the stream for which the record under `key` is whole; None if it is none."""
        size = len(key) + len(record)
        streams = self._by_size.get(size)
        if streams is None:
            zeros = bytes(size)
            plain = crc32(zeros)
            streams = {crc32(zeros, salt) ^ plain: stream_id for salt, stream_id in self._salts.items()}
            self._by_size[size] = streams
        return streams.get(crc32(record, crc32(key)) ^ CRC_RESIDUE)
