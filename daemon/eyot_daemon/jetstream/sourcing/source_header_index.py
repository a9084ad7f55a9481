"""Where the messages of a stream are from: for each origin, up to where, of which life of it, and stored there when.

A mirror may be told to take the place of what it copies (`mirror` is taken out of its configuration, the origin's `sources` are put in). What
that stream knows of its own origins it tells (`upstream_positions.py`); of what came since, the messages are marked with their sequences at least
(`Nats-Stream-Source`). A mirror notes both as it copies, in the transaction that stores the messages, as positions: those that its sources
will go on from. A stream that came from elsewhere, and what a mirror stored before it noted anything, is looked through once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from eyot_daemon.jetstream.downstream.upstream_positions import PositionUpdate
from eyot_daemon.jetstream.position import OWN_KEYS, Position, encode_position, read_position
from eyot_sync.sourcing.origin_check import CHECKPOINTS_MAX
from eyot_wire.jetstream.stream_source import HEADER, Mark, read_mark

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

log = logging.getLogger("eyot.sync")

#: The key of the record that says which messages were looked at.
MARKS_KEY = OWN_KEYS + b"marks"
#: What is looked through for marks at most: more would stop the daemon for too long.
_SEARCH_MESSAGES_MAX = 200_000
_CHUNK = 2048
_CHUNK_BYTES = 16 << 20
#: Marks of more origins than this are not noted, and none that are longer than a key may be: messages say what they like.
ORIGINS_MAX = 10_000
_INDEX_MAX = 480
#: A mirror that is behind keeps so many of the things that it was told for when it has come as far.
TOLD_MAX = 16


class ScanProgress(msgspec.Struct, frozen=True, array_like=True):
    """The marks of messages after `after` and up to `upto` are among the positions; `after` is 0 when there is nothing left to look at."""

    after: int = 0
    upto: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScanProgress).decode


class Marked(Protocol):
    """A message of a mirror, as it is stored."""

    @property
    def origin_seq(self) -> int: ...

    @property
    def header(self) -> bytes: ...

    @property
    def payload(self) -> bytes: ...


class LastOf:
    """The last message of one origin."""

    __slots__ = ("_position", "seen")

    def __init__(self, position: Position) -> None:
        self._position = position
        self.seen: list[tuple[int, int]] = [*position.checkpoints]
        if position.ts_ns:
            self.seen.append((position.seq, position.ts_ns))

    def take(self, mark: Mark, size: int) -> None:
        """A later message of it."""
        before = self._position
        newest_ns = before.newest_ns
        epoch = mark.identity
        if not epoch and mark.seq > before.seq:
            epoch = before.identity  # as far as can be told
        if epoch != before.identity:
            newest_ns, self.seen = 0, []
        elif mark.seq <= before.seq:
            self.seen = []  # the origin was set back: what was before is no witness
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
    """What a mirror notes of its messages."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._looked: ScanProgress
        self._last: dict[bytes, LastOf]
        self._told: list[PositionUpdate] = []
        self.reload()

    def reload(self) -> None:
        """Go back to what is on flash: what was noted since is not."""
        log_of = self._stream.log
        positions = log_of.positions()
        record = positions.get(MARKS_KEY)
        last_seq = log_of.state.last_seq
        self._looked = ScanProgress(last_seq, last_seq) if record is None else _decode(record)
        self._last = {
            key: LastOf(read_position(value)) for key, value in positions.items() if not key.startswith(OWN_KEYS)
        }

    def told(self, told: PositionUpdate | None) -> None:
        """The origin says what it knows of its origins: it counts when the mirror has got as far as that."""
        if told is None or told.upto < self._stream.log.state.last_seq:
            return
        if told.whole:
            self._told.clear()
        self._told.append(told)
        if len(self._told) > TOLD_MAX:
            # What is not told again is as it was.
            first, second = self._told[:2]
            self._told[:2] = [
                PositionUpdate(second.upto, first.positions | second.positions, first.whole or second.whole)
            ]

    def _believe(self, told: PositionUpdate) -> set[bytes]:
        """What the messages up to here say is known better."""
        last = self._last
        news = {key: at for key, at in told.positions.items() if key not in last or last[key].position != at}
        last |= {key: LastOf(position) for key, position in news.items()}
        if told.whole:
            self._looked = ScanProgress(0, self._looked.upto)
        return set(news)

    def note(self, messages: Iterable[Marked], taken: int) -> Iterator[tuple[bytes, bytes]]:
        """The records that say what messages up to `taken` are marked with, and what was told of those; nothing where there is nothing."""
        upto, last = self._looked.upto, self._last
        changed: set[bytes] = set()
        for each in messages:
            while self._told and each.origin_seq > self._told[0].upto:
                changed |= self._believe(self._told.pop(0))
            if HEADER not in each.header or not upto < each.origin_seq <= taken:
                continue
            mark = read_mark(each.header)
            if mark is None or not _add(last, mark, len(each.header) + len(each.payload)):
                continue
            changed.add(mark.key)
        while self._told and taken >= self._told[0].upto:
            changed |= self._believe(self._told.pop(0))
        if not changed:
            return
        self._looked = ScanProgress(self._looked.after, taken)
        yield MARKS_KEY, _encode(self._looked)
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
    """What messages say whose marks nobody noted, by the source's key (or only its name): kept from now on, looked for once."""
    positions = stream.log.positions()
    record = positions.get(MARKS_KEY)
    if record is None:
        upto = stream.log.committed_seq
        if not stream.log.state.messages or any(not key.startswith(OWN_KEYS) for key in positions):
            return {}
    else:
        upto = min(_decode(record).after, stream.log.committed_seq)
        if not upto or upto < stream.log.state.first_seq:
            return {}
    found = {key: each.position for key, each in _marks_upto(stream, upto).items() if key not in positions}
    txn = stream.store.begin()
    stream.log.put_position(txn, MARKS_KEY, _encode(ScanProgress(0, stream.log.committed_seq)))
    for key, position in found.items():
        stream.log.put_position(txn, key, encode_position(position))
        log.info("%r goes on after %d of %r, as its messages say", stream, position.seq, key)
    stream.store.submit(txn)
    return found


def _marks_upto(stream: Stream, upto: int) -> dict[bytes, LastOf]:
    """The last marks of each origin among the messages up to `upto`."""
    last: dict[bytes, LastOf] = {}
    seq = max(1, stream.log.state.first_seq, upto - _SEARCH_MESSAGES_MAX + 1)
    while seq <= upto:
        read = stream.log.read(seq, max_messages=_CHUNK, max_bytes=_CHUNK_BYTES)
        for message in read.messages:
            if message.seq <= upto and HEADER in message.header:
                mark = read_mark(message.header)
                if mark is not None:
                    _add(last, mark, len(message.header) + len(message.payload))
        seq = read.next_seq
    return last
