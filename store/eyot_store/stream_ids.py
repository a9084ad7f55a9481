"""Ids of streams: they ascend, and none is used twice.

The unnamed database has the next one as decimal digits, under a key of its own and without a checksum. What is damaged there is found by the
ids that the store has: one that was used already must not be given to a new stream, which would get the old one's messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from eyot_store.environment import NEXT_ID_KEY
from eyot_store.pages.survey import deleted_number, stream_number
from eyot_store.records.record import pack_u64, unpack_u64

_DIGITS_MAX = 18
_COUNTERS = b":counters"


class NextId(NamedTuple):
    """The id for the next stream."""

    value: int
    problem: str
    """What is wrong with the record of it; empty: nothing."""


def next_stream_id(txn: Any, streams: Any) -> NextId:
    """Return the id for the next stream, from an LMDB transaction; `streams`: the database with the streams' entries."""
    above = 1 + max(_used(txn, streams), default=0)
    value = recorded_id(txn)
    if not value:
        return NextId(above, "the id of the next stream is missing or damaged")
    if value < above:
        return NextId(above, f"the id of the next stream is {value}, and {above - 1} is used already")
    return NextId(value, "")


def recorded_id(txn: Any) -> int:
    """Return the id that is recorded for the next stream; 0: none that is sound."""
    found = txn.get(NEXT_ID_KEY)
    text = bytes(found) if found is not None else b""
    return int(text) if bytes.isdigit(text) and len(text) <= _DIGITS_MAX else 0


def put_next_id(txn: Any, value: int) -> None:
    """Write the id for the next stream."""
    txn.put(NEXT_ID_KEY, b"%d" % value)


def _used(txn: Any, streams: Any) -> Iterator[int]:
    """Yield the ids of entries, and those in the names of databases, counters and marks of deleted streams; or 0."""
    for key, _ in txn.cursor(streams):
        if len(key) == len(pack_u64(0)):
            yield unpack_u64(key)[0]
    for key, _ in txn.cursor():
        name = bytes(key).removesuffix(_COUNTERS)
        yield stream_number(name) or deleted_number(name)
