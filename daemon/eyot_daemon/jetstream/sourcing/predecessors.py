"""Messages that a stream already has from an origin, through sources with another configuration.

A source whose filters or transforms changed is another source, and so is one whose origin has another API prefix, since
its domain was renamed: it has a position of its own and starts from the beginning. The positions of its predecessors
stay, so what they copied is not stored again. The same origin has the same name and was created at the same nanosecond.
Nothing is regarded as a copy where the origin was created again since, or its epoch is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.position import OWN_KEYS, Position
from eyot_daemon.jetstream.sourcing.resume_point import stored_position
from eyot_sync.sourcing.actions import Copied
from eyot_sync.sourcing.origin import Origin
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream


Predecessor = tuple[Position, list[bytes]]


def predecessors(stream: Stream, origin: Origin) -> list[Predecessor]:
    """Positions and filters of the sources of this origin that the stream had and has no more."""
    present = {Origin.of(each).key for each in stream.config.sources}
    found: list[Predecessor] = []
    for key in stream.log.positions():
        if key.startswith(OWN_KEYS) or key in present:
            continue
        name, filters, _ = [*key.split(b" "), b"", b""][:3]
        position = stored_position(stream, key)
        if name.partition(b":")[0] == origin.stream.encode("utf-8", "surrogateescape") and position.identity:
            found.append((position, filters.split(b"\f")))
    return found


class Predecessors:
    """The predecessors of one source, as they are when it begins; false without any."""

    def __init__(self, predecessors: Sequence[Predecessor]) -> None:
        self._predecessors = predecessors

    def __bool__(self) -> bool:
        return bool(self._predecessors)

    @property
    def seqs(self) -> list[int]:
        """Up to where they copied: the times at which the origin has these say whether it was set back since."""
        return [position.seq for position, _ in self._predecessors]

    def without(self, batch: list[Copied], identity: str, stored: Mapping[int, int], ended: int | None) -> list[Copied]:
        """Return the messages of a batch that were not copied before.

        `identity`: epoch of the batch's origin; `stored`: times at which the origin stored the messages of `seqs`, as far as
        known; `ended`: the origin's last sequence when it answered. If the origin was set back, messages older than the last
        copied one count as copied.
        """
        epoch = identity_of(identity)
        filters = [
            (position.seq, upto_ns, pattern)
            for position, patterns in self._predecessors
            if identity_of(position.identity) == epoch and batch[0].origin_seq <= position.seq
            for upto_ns in (_upto_ns(position, stored.get(position.seq, 0), ended),)
            for pattern in patterns
        ]
        if not filters:
            return batch
        return [
            each
            for each in batch
            if not any(
                each.origin_seq <= seq and each.ts_ns <= upto_ns and matches(pattern, each.subject)
                for seq, upto_ns, pattern in filters
            )
        ]


def _upto_ns(position: Position, stored_ns: int, ended: int | None) -> int:
    """Return the newest time of what was copied; without a limit where the sequence says it all."""
    other = stored_ns and stored_ns != position.ts_ns
    lost = ended is not None and ended < position.seq
    return max(position.ts_ns, position.newest_ns) if position.ts_ns and (other or lost) else 1 << 63
