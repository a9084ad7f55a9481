"""Where a mirror or source resumes: its position record, or its messages.

The record is committed with the messages it covers. A stream from elsewhere (a nats-server's backup, for example) has
none, and neither has a mirror that is promoted: there the last message of each origin names it in `Nats-Stream-Source`
(`source_header_index.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.position import OWN_KEYS, Position, read_position
from eyot_daemon.jetstream.sourcing.source_header_index import look_through
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import CHECKPOINTS_MAX, OriginPosition

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

#: The key of a mirror's record.
MIRROR_KEY = OWN_KEYS + b"mirror"


def stored_position(stream: Stream, key: bytes) -> Position:
    """Return the record under `key`."""
    value = stream.log.positions().get(key)
    return Position() if value is None else read_position(value)


def mirror_position(stream: Stream) -> OriginPosition:
    """Return the last message of its origin that a mirror has, as long as it has it."""
    last_seq = stream.log.state.last_seq
    message = stream.log.get(last_seq) if last_seq else None
    if message is None:
        return OriginPosition(last_seq)
    return OriginPosition(last_seq, message.ts_ns, len(message.header) + len(message.payload))


def mirror_checkpoints(stream: Stream) -> list[tuple[int, int]]:
    """Sequences and times of the messages before a mirror's last one, if it has them."""
    last_seq = stream.log.state.last_seq
    messages = (stream.log.get(seq) for seq in range(max(1, last_seq - CHECKPOINTS_MAX), last_seq))
    return [(each.seq, each.ts_ns) for each in messages if each is not None]


def source_position(stream: Stream, origin: Origin) -> Position:
    """Return the position after which a source continues. An old header names the origin only, not which source of it."""
    positions = stream.log.positions()
    if origin.key in positions:
        return read_position(positions[origin.key])
    found = look_through(stream)
    name = origin.name.encode("utf-8", "surrogateescape")
    if origin.key in found or name in found:
        return found.get(origin.key) or found[name]
    return read_position(positions[name]) if name in positions else Position()
