"""The content of an archive as values: parts in the order of the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from eyot_wire.archive.seqset import SeqSet


class ArchivedMessage(NamedTuple):
    """A message as it was stored; `ts_ns` since the epoch, `header` the whole header block or empty."""

    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class StreamPart(NamedTuple):
    """First part of a tar archive: the stream's configuration as JSON and its creation time (ns; 0: unknown)."""

    config: bytes
    created_ns: int


class PositionsPart(NamedTuple):
    """Of a tar archive that Eyot made: `records`, where the stream's mirror or sources continue, as Eyot encodes them."""

    records: bytes


class StatePart(NamedTuple):
    """First part of a flat archive: the state as JSON.

    The archive does not say how messages before `first_seq` were removed.
    """

    first_seq: int
    last_seq: int
    bytes: int


class MessagesPart(NamedTuple):
    """Messages in ascending order."""

    messages: list[ArchivedMessage]


class GonePart(NamedTuple):
    """Messages of earlier parts that are deleted.

    `seqs` are single sequences and ranges are inclusive. Of the ranges in sets, given as (first, last, set), only the
    set's members are deleted. Ranges and sets may cover far more sequences than the archive has messages.
    """

    seqs: Sequence[int] = ()
    ranges: Sequence[tuple[int, int]] = ()
    among: Sequence[tuple[int, int, SeqSet]] = ()


class ConsumerPart(NamedTuple):
    """A consumer: `config` as JSON (in a tar archive with the members `Created` and `Name`), and its progress."""

    name: str
    config: bytes
    progress: ConsumerProgress


class EndPart(NamedTuple):
    """The archive is complete.

    `last_seq`: the stream's last sequence, whether or not its message still exists; `last_ts_ns`: its time, 0 if
    unknown.
    """

    last_seq: int
    last_ts_ns: int


class ConsumerProgress(msgspec.Struct, kw_only=True):
    """A consumer's progress. Positions are (consumer sequence, stream sequence).

    `pending`: stream sequence -> (consumer sequence of its first delivery, time of its last delivery in ns).
    `redelivered`: stream sequence -> number of redeliveries (deliveries - 1).
    """

    delivered: tuple[int, int] = (0, 0)
    ack_floor: tuple[int, int] = (0, 0)
    pending: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    redelivered: dict[int, int] = msgspec.field(default_factory=dict)


Part = StreamPart | PositionsPart | StatePart | MessagesPart | GonePart | ConsumerPart | EndPart
