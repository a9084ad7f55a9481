"""What an archive says, as values: the parts a reader gives, in the order in which they stand in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from eyot_wire.archive.seqset import SeqSet


class ArchivedMessage(NamedTuple):
    """A message as it was stored: `ts_ns` since the epoch, `header` the whole block or empty."""

    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class StreamPart(NamedTuple):
    """A tar archive's first part: the stream's configuration as JSON, and when it was created (ns; 0: not told)."""

    config: bytes
    created_ns: int


class StatePart(NamedTuple):
    """A flat archive's first part: the state as JSON. Where messages before `first_seq` went is not told."""

    first_seq: int
    last_seq: int
    bytes: int


class MessagesPart(NamedTuple):
    """Messages, ascending."""

    messages: list[ArchivedMessage]


class GonePart(NamedTuple):
    """Messages that came before and are deleted: single sequences, whole ranges (both ends included), and of other ranges those
    that are in a set, as (first, last, set). Ranges and sets may be far larger than what came."""

    seqs: Sequence[int] = ()
    ranges: Sequence[tuple[int, int]] = ()
    among: Sequence[tuple[int, int, SeqSet]] = ()


class ConsumerPart(NamedTuple):
    """A consumer: `config` as JSON (a tar archive's has the members `Created` and `Name` in it), and where it stands."""

    name: str
    config: bytes
    progress: ConsumerProgress


class EndPart(NamedTuple):
    """The archive is complete. `last_seq`: the stream's last sequence, whether or not its message is still there;
    `last_ts_ns`: its time, 0 when that is not told."""

    last_seq: int
    last_ts_ns: int


class ConsumerProgress(msgspec.Struct, kw_only=True):
    """Where a consumer stands. Positions are (consumer sequence, stream sequence).

    `pending`      stream sequence -> (consumer sequence of its first delivery, time of its last delivery in ns).
    `redelivered`  stream sequence -> how often it was delivered again (deliveries - 1).
    """

    delivered: tuple[int, int] = (0, 0)
    ack_floor: tuple[int, int] = (0, 0)
    pending: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    redelivered: dict[int, int] = msgspec.field(default_factory=dict)


Part = StreamPart | StatePart | MessagesPart | GonePart | ConsumerPart | EndPart
