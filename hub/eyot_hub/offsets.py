"""Positions in streams, as Spark's checkpoints hold them: per stream the last sequence read and the creation time.

`{"READINGS": {"created": "2026-01-31T08:00:00.123456789Z", "sequence": 1700, "row": 1700, "stored":
"2026-01-31T09:00:00Z"}}`. The creation time reveals a stream that was deleted and created again, whose sequences start
over. The stored time of a message that was read (`row`) reveals a stream whose end moved back and that has stored other
messages under the same sequences since (a power cut of the server, a restored backup).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from eyot_wire.go.time import ns_to_rfc3339, rfc3339_to_ns


class LastRow(NamedTuple):
    """A message that was read, and its stored time: another time at this sequence means another message."""

    sequence: int
    stored_ns: int


class Position(NamedTuple):
    """A position: everything up to `sequence` (inclusive) of the stream created at `created` has been read.

    `row` is the last known message of it; None: none was recorded.
    """

    sequence: int
    created: str
    row: LastRow | None = None


Positions: TypeAlias = dict[str, Position]


def to_json(positions: Positions) -> dict[str, dict[str, Any]]:
    """Return the form for Spark; equal positions give equal text."""
    return {stream: _as_json(at) for stream, at in sorted(positions.items())}


def _as_json(at: Position) -> dict[str, Any]:
    found: dict[str, Any] = {"created": at.created, "sequence": at.sequence}
    if at.row is not None:
        found |= {"row": at.row.sequence, "stored": ns_to_rfc3339(at.row.stored_ns)}
    return found


def from_json(offset: dict[str, Any]) -> Positions:
    """Parse a checkpoint's offset. Raises ValueError."""
    try:
        return {stream: Position(int(at["sequence"]), str(at["created"]), _row(at)) for stream, at in offset.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"not an offset of format jetstream: {offset!r}") from None


def _row(at: dict[str, Any]) -> LastRow | None:
    """Return the recorded message; older checkpoints have none."""
    return LastRow(int(at["row"]), rfc3339_to_ns(at["stored"])) if "row" in at else None


def backlog(start: Positions, latest: Positions) -> dict[str, int]:
    """Return how many sequences each stream holds beyond `start`; negative where its end moved back."""
    return {stream: at.sequence - _from(start, stream, at) for stream, at in latest.items()}


def limited(start: Positions, latest: Positions, messages_max: int) -> Positions:
    """Return `latest`, limited to `messages_max` messages beyond `start`, divided among streams by their backlogs.

    Every stream with a backlog advances by at least one message, so that none starves.
    """
    waiting = backlog(start, latest)
    total = sum(left for left in waiting.values() if left > 0)
    if total <= messages_max:
        return latest
    shared: Positions = {}
    for stream, at in latest.items():
        left = waiting[stream]
        share = max(1, left * messages_max // total) if left > 0 else left
        shared[stream] = at if share == left else Position(_from(start, stream, at) + share, at.created)
    return shared


def _from(start: Positions, stream: str, latest: Position) -> int:
    at = start.get(stream)
    return at.sequence if at is not None and at.created == latest.created else 0
