"""Where a mirror or source resumes: its position record, or its messages.

The record is committed with the messages it covers, and Eyot's backups hold it. A stream from elsewhere (a nats-server's
backup, for example) has none, and neither has a mirror that is promoted: there the last message of each origin names it in
`Nats-Stream-Source`. Where a client may have written that header, it counts for nothing: the source copies from its start.

`SourceHeaderIndex` has, for each origin of a stream's messages, the last sequence, its epoch, and its stored time there. A
mirror may be promoted to the place of its origin (`mirror` is removed from its configuration, the origin's `sources` are
added). The origin tells its own positions (`positions.py`); later messages at least carry their sequences. A mirror records
both, in the transaction that stores the messages, as positions from which its future sources resume. A stream from
elsewhere, and messages from before any record, are scanned once.

`Predecessors` are messages that a stream already has from an origin, through sources with another configuration. A source
whose filters or transforms changed is another source, and so is one whose origin has another API prefix, since its domain
was renamed: it has a position of its own and starts from the beginning. The positions of its predecessors stay, so what
they copied is not stored again. The same origin has the same name and was created at the same nanosecond. Nothing is
regarded as a copy where the origin was created again since, or its epoch is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.sourcing.positions import OWN_KEYS, Position, PositionUpdate, encode_position, read_position
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import CHECKPOINTS_MAX, OriginPosition
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.native import has_headers
from eyot_wire.jetstream.stream_source import HEADER, Mark, identity_of, read_mark
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.log.log import Log

log = logging.getLogger("eyot.sync")

#: The key of the record of the messages that were scanned.
HEADER_INDEX_KEY = OWN_KEYS + b"marks"
#: What is looked through for marks at most: more would stop the daemon for too long.
_SEARCH_MESSAGES_MAX = 200_000
_CHUNK = 2048
_CHUNK_BYTES = 16 << 20
#: Marks of more origins than this are not noted, and none that are longer than a key may be: messages say what they like.
ORIGINS_MAX = 10_000
_INDEX_MAX = 480
_SEQ_MAX = 1 << 62
#: The key of a mirror's record.
MIRROR_KEY = OWN_KEYS + b"mirror"
#: Position updates that a mirror keeps until it has reached their sequences.
POSITION_UPDATES_MAX = 16


class ScanProgress(msgspec.Struct, frozen=True, array_like=True):
    """The headers of messages after `after` and up to `upto` are indexed; `after` is 0 when all messages are."""

    after: int = 0
    upto: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScanProgress).decode


def archived_positions(log: Log) -> bytes:
    """Return the committed positions of a stream's mirror or sources for its backup; b"" if it has none."""
    kept = (HEADER_INDEX_KEY, MIRROR_KEY)
    found = {key: value for key, value in log.positions().items() if key in kept or not key.startswith(OWN_KEYS)}
    return msgspec.msgpack.encode(found) if found else b""


def read_archived_positions(records: bytes) -> dict[bytes, bytes]:
    """Return what `archived_positions` made, checked. Raises ValueError."""
    found = msgspec.msgpack.decode(records, type=dict[bytes, bytes])
    for key, value in found.items():
        if key == HEADER_INDEX_KEY:
            _decode(value)
        elif len(key) > _INDEX_MAX or (key.startswith(OWN_KEYS) and key != MIRROR_KEY):
            raise ValueError("no position")
        elif not 0 <= read_position(value).seq <= _SEQ_MAX:
            raise ValueError("no sequence")
    return found


#: What a stream has whose headers say nothing: clients may have written them.
NOT_INDEXED = _encode(ScanProgress())


class LastOf:
    """The last message of one origin."""

    __slots__ = ("_position", "seen")

    def __init__(self, position: Position) -> None:
        self._position = position
        self.seen: list[tuple[int, int]] = [*position.checkpoints]
        if position.ts_ns:
            self.seen.append((position.seq, position.ts_ns))

    def take(self, mark: Mark, size: int) -> None:
        """Note a later message of the origin."""
        before = self._position
        newest_ns = before.newest_ns
        epoch = mark.identity
        if not epoch and mark.seq > before.seq:
            epoch = before.identity  # the header names no epoch; assume the one before
        if epoch != before.identity:
            newest_ns, self.seen = 0, []
        elif mark.seq <= before.seq:
            self.seen = []  # the origin was set back: earlier messages are no evidence
        stored_ns = mark.stored_ns
        if stored_ns:
            self.seen.append((mark.seq, stored_ns))
            del self.seen[: -CHECKPOINTS_MAX - 1]
        self._position = Position(mark.seq, epoch, stored_ns, size, max(newest_ns, stored_ns))

    @property
    def position(self) -> Position:
        last = self._position
        return msgspec.structs.replace(last, checkpoints=tuple(each for each in self.seen if each[0] < last.seq))


class SourceHeaderIndex:
    """Positions of a mirror in its origin's origins, from the headers of its messages and the origin's updates."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._looked: ScanProgress
        self._last: dict[bytes, LastOf]
        self._told: list[PositionUpdate] = []
        #: No client can have written the headers of the origin's messages.
        self.only_sourced = False
        #: The origin tells its positions: it is an Eyot, which refuses such headers from clients.
        self._is_told = False
        self.reload()

    def reload(self) -> None:
        """Return to the committed state; drop what was noted since."""
        log_of = self._stream.log
        positions = log_of.positions()
        record = positions.get(HEADER_INDEX_KEY)
        last_seq = log_of.state.last_seq
        self._is_recorded = record is not None
        self._looked = ScanProgress(last_seq, last_seq) if record is None else _decode(record)
        self._last = {
            key: LastOf(read_position(value)) for key, value in positions.items() if not key.startswith(OWN_KEYS)
        }

    def told(self, told: PositionUpdate | None) -> None:
        """Note the origin's positions in its own origins; they count when the mirror has reached that point."""
        if told is None:
            return
        self._is_told = True
        if told.upto < self._stream.log.state.last_seq:
            return
        if told.whole:
            self._told.clear()
        self._told.append(told)
        if len(self._told) > POSITION_UPDATES_MAX:
            # Positions that an update does not name are unchanged.
            first, second = self._told[:2]
            self._told[:2] = [
                PositionUpdate(second.upto, first.positions | second.positions, first.whole or second.whole)
            ]

    def _believe(self, told: PositionUpdate) -> set[bytes]:
        """Adopt the positions of an origin's update; return the keys whose position changed."""
        last = self._last
        news = {key: at for key, at in told.positions.items() if key not in last or last[key].position != at}
        last |= {key: LastOf(position) for key, position in news.items()}
        if told.whole:
            self._looked = ScanProgress(0, self._looked.upto)
        return set(news)

    def note(self, messages: Sequence[CopiedMessage], taken: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) of the records of the source headers of messages up to `taken`, and of the origin's updates for them.

        Headers that a client of the origin may have written are passed over, then and in later searches: a source that
        continued there would leave messages out.
        """
        upto, last = self._looked.upto, self._last
        believed = self.only_sourced or self._is_told
        changed: set[bytes] = set()
        doubted = False
        for each in messages if self._told or has_headers(messages) else ():
            while self._told and each.origin_seq > self._told[0].upto:
                changed |= self._believe(self._told.pop(0))
            if HEADER not in each.header or not upto < each.origin_seq <= taken:
                continue
            mark = read_mark(each.header)
            if mark is not None and not believed:
                doubted = True
            elif mark is not None and _add(last, mark, len(each.header) + len(each.payload)):
                changed.add(mark.key)
        while self._told and taken >= self._told[0].upto:
            changed |= self._believe(self._told.pop(0))
        if doubted and (self._looked.after or not self._is_recorded):
            log.warning(
                "%r: clients of its origin may have written %s: no source continues there",
                self._stream,
                HEADER.decode(),
            )
        elif not changed:
            return
        self._looked = ScanProgress(0 if doubted else self._looked.after, taken)
        self._is_recorded = True
        yield HEADER_INDEX_KEY, _encode(self._looked)
        for index in changed:
            yield index, encode_position(last[index].position)


def _add(last: dict[bytes, LastOf], mark: Mark, size: int) -> bool:
    found = last.get(mark.key)
    if found is None:
        if len(mark.key) > _INDEX_MAX or len(last) >= ORIGINS_MAX or mark.key.startswith(OWN_KEYS):
            return False
        found = last[mark.key] = LastOf(Position())
    found.take(mark, size)
    return True


def look_through(stream: Stream) -> dict[bytes, Position]:
    """Return positions from the headers of messages that are not indexed yet, by the source's key, or by its name only.

    The search runs once; its result is stored.
    """
    positions = stream.log.positions()
    record = positions.get(HEADER_INDEX_KEY)
    if record is None:
        upto = stream.log.committed_seq
        if not stream.log.state.messages or any(not key.startswith(OWN_KEYS) for key in positions):
            return {}
    else:
        upto = min(_decode(record).after, stream.log.committed_seq)
        if not upto or upto < stream.log.state.first_seq:
            return {}
    found = {key: each.position for key, each in _last_headers_upto(stream, upto).items() if key not in positions}
    txn = stream.store.begin()
    stream.log.put_position(txn, HEADER_INDEX_KEY, _encode(ScanProgress(0, stream.log.committed_seq)))
    for key, position in found.items():
        stream.log.put_position(txn, key, encode_position(position))
        log.info("%r continues after %d of %r, as the headers of its messages say", stream, position.seq, key)
    stream.store.submit(txn)
    return found


def _last_headers_upto(stream: Stream, upto: int) -> dict[bytes, LastOf]:
    """Return the last marks of each origin among the messages up to `upto`."""
    last: dict[bytes, LastOf] = {}
    seq = max(1, stream.log.state.first_seq, upto - _SEARCH_MESSAGES_MAX + 1)
    while seq <= upto:
        read = stream.log.read_on(seq, max_messages=_CHUNK, max_bytes=_CHUNK_BYTES)
        for message in read.messages:
            if message.seq <= upto and HEADER in message.header:
                mark = read_mark(message.header)
                if mark is not None:
                    _add(last, mark, len(message.header) + len(message.payload))
        seq = read.next_seq
    return last


def stored_position(stream: Stream, key: bytes) -> Position:
    """Return the record under `key`."""
    value = stream.log.positions().get(key)
    return Position() if value is None else read_position(value)


def mirror_position(stream: Stream) -> OriginPosition:
    """Return the last message of its origin that a mirror has, as long as it has it and can read it."""
    last_seq = stream.log.state.last_seq
    message = stream.log.get_readable(last_seq) if last_seq else None
    if message is None:
        return OriginPosition(last_seq)
    return OriginPosition(last_seq, message.ts_ns, len(message.header) + len(message.payload))


def mirror_checkpoints(stream: Stream) -> list[tuple[int, int]]:
    """Sequences and times of the messages before a mirror's last one, if it has them."""
    last_seq = stream.log.state.last_seq
    messages = (stream.log.get_readable(seq) for seq in range(max(1, last_seq - CHECKPOINTS_MAX), last_seq))
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
        """Up to where they copied, and some messages before: the times at which the origin has these say whether it was set back.

        The last one may have been purged there.
        """
        positions = [position for position, _ in self._predecessors]
        before = [seq for position in positions for seq, _ in position.checkpoints]
        return [position.seq for position in positions] + before

    def without(
        self, batch: list[CopiedMessage], identity: str, stored: Mapping[int, int], ended: int | None
    ) -> list[CopiedMessage]:
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
            for upto_ns in (_upto_ns(position, stored, ended),)
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


def _upto_ns(position: Position, stored: Mapping[int, int], ended: int | None) -> int:
    """Return the newest time of what was copied; without a limit where the sequence says it all."""
    known = [(position.seq, position.ts_ns), *position.checkpoints]
    other = any(stored.get(seq, 0) not in (0, ts_ns) for seq, ts_ns in known if ts_ns)
    lost = ended is not None and ended < position.seq
    return max(position.ts_ns, position.newest_ns) if position.ts_ns and (other or lost) else 1 << 63
