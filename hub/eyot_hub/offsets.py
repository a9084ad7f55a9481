"""Positions in streams, as they stand in Spark's checkpoints: per stream the last sequence read and when it was created.

`{"READINGS": {"created": "2026-01-31T08:00:00.123456789Z", "sequence": 1700}}`. The time of creation tells a stream that was
deleted and created again, whose sequences start over, from the one that was being read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias


class Position(NamedTuple):
    """Everything up to `sequence` (inclusive) of the stream created at `created` has been read."""

    sequence: int
    created: str


Positions: TypeAlias = dict[str, Position]


def to_json(positions: Positions) -> dict[str, dict[str, Any]]:
    """The form for Spark; the same positions always give the same text."""
    return {stream: {"created": at.created, "sequence": at.sequence} for stream, at in sorted(positions.items())}


def from_json(offset: dict[str, Any]) -> Positions:
    """Raises ValueError when the checkpoint holds something else."""
    try:
        return {stream: Position(int(at["sequence"]), str(at["created"])) for stream, at in offset.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"not an offset of format jetstream: {offset!r}") from None


def limited(start: Positions, latest: Positions, messages_max: int) -> Positions:
    """`latest`, but at most `messages_max` messages beyond `start`, shared among streams by their backlogs.

    Every stream with a backlog advances by at least one message, so that none starves.
    """
    backlog = {stream: at.sequence - _from(start, stream, at) for stream, at in latest.items()}
    total = sum(left for left in backlog.values() if left > 0)
    if total <= messages_max:
        return latest
    shared: Positions = {}
    for stream, at in latest.items():
        left = backlog[stream]
        share = max(1, left * messages_max // total) if left > 0 else left
        shared[stream] = Position(_from(start, stream, at) + share, at.created)
    return shared


def _from(start: Positions, stream: str, latest: Position) -> int:
    at = start.get(stream)
    return at.sequence if at is not None and at.created == latest.created else 0
