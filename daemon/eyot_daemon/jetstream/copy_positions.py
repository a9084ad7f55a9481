"""Where a mirror or source goes on: its position record, or what the messages themselves say.

The record commits with the messages it covers. A stream that came from elsewhere (a nats-server's backup, say) has none: its last
message of each origin names it in `Nats-Stream-Source`, in any of the forms nats-server ever wrote.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from eyot_sync.origin import Origin
from eyot_sync.proof import WITNESSES_MAX, Reached
from eyot_wire import headers
from eyot_wire.stream_source import HEADER, parse

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream import Stream

log = logging.getLogger("eyot.sync")

#: The key of a mirror's record.
MIRROR_KEY = b"eyot.mirror"
#: What else is kept among a stream's positions.
OWN_KEYS = b"eyot."
#: What is looked through for the marks of a source without record: more would stop the daemon for too long.
_SEARCH_MESSAGES_MAX = 200_000
_CHUNK = 2048
_CHUNK_BYTES = 16 << 20


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last message copied: its sequence at the origin, the `created` of the origin's stream, its time there, the bytes of its
    header and payload, and the latest time of all that was copied of that life (clocks are set back, too), then sequences and times of a few messages before the last one. Of a mirror only where an origin that went back ended (and one more) and its `created`: the rest the mirror's
    own last message says."""

    seq: int = 0
    identity: str = ""
    ts_ns: int = 0
    size: int = 0
    newest_ns: int = 0
    witnesses: tuple[tuple[int, int], ...] = ()


encode_position = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Position | int).decode


def stored_position(stream: Stream, key: bytes) -> Position:
    """The record under `key`; the first form of it was the sequence alone."""
    value = stream.log.positions().get(key)
    if value is None:
        return Position()
    position = _decode(value)
    return Position(position) if isinstance(position, int) else position


def mirror_reached(stream: Stream) -> Reached:
    """The last message of its origin that a mirror has, as long as it has it."""
    last_seq = stream.log.state.last_seq
    message = stream.log.get(last_seq) if last_seq else None
    if message is None:
        return Reached(last_seq)
    return Reached(last_seq, message.ts_ns, len(message.header) + len(message.payload))


def mirror_witnesses(stream: Stream) -> list[tuple[int, int]]:
    """Sequences and times of the messages before a mirror's last one, if it has them."""
    last_seq = stream.log.state.last_seq
    messages = (stream.log.get(seq) for seq in range(max(1, last_seq - WITNESSES_MAX), last_seq))
    return [(each.seq, each.ts_ns) for each in messages if each is not None]


def source_position(stream: Stream, origin: Origin) -> Position:
    """Where a source goes on."""
    positions = stream.log.positions()
    if origin.key in positions:
        return stored_position(stream, origin.key)
    if not stream.log.state.messages or any(not key.startswith(OWN_KEYS) for key in positions):
        return Position()  # a source that is new here
    found = _marked_position(stream, origin.key.decode("utf-8", "surrogateescape"))
    if found.seq:
        # Another source may have a position before this one copies anything; after a restart the marks would not be asked any more.
        txn = stream.store.begin()
        stream.log.put_position(txn, origin.key, encode_position(found))
        stream.store.submit(txn)
    return found


def _marked_position(stream: Stream, index: str) -> Position:
    """The newest message that bears the source's mark, looked for from the end."""
    state = stream.log.state
    upto = stream.log.committed_seq
    stop = max(state.first_seq, upto - _SEARCH_MESSAGES_MAX + 1)
    while upto >= stop:
        begin = max(stop, upto - _CHUNK + 1)
        found = 0
        seq = begin
        while seq <= upto:
            read = stream.log.read(seq, max_messages=_CHUNK, max_bytes=_CHUNK_BYTES)
            for message in read.messages:
                if message.seq <= upto and HEADER in message.header:
                    mark = parse(headers.get(message.header, HEADER) or b"")
                    if mark is not None and mark.is_from(index):
                        found = mark.seq
            seq = read.next_seq
        if found:
            log.info("%r goes on after %d of %s, as its messages say", stream, found, index)
            return Position(found)
        upto = begin - 1
    return Position()
