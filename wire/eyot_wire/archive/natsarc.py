"""The flat archive of nats-server 2.15: consecutive entries, no files.

    "NATSARC1", then entries: name length, time (ns, signed), sequence, header size, payload size (varints), name, header,
    payload

The first entry is `state.json`. As many `consumers/NAME` entries as the state counts follow, with configuration and
state in JSON. Then come the messages, with the subject as name, and an empty entry at the end.

Source: nats-server's archive.go and stream_backup.go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.values import (
    ArchivedMessage,
    ConsumerPart,
    ConsumerProgress,
    EndPart,
    MessagesPart,
    Part,
    StatePart,
)
from eyot_wire.archive.varint import BYTES_MAX, unzigzag, uvarint, varint
from eyot_wire.archive.window import MORE, Wait, Window
from eyot_wire.go.time import ZERO_TIME, rfc3339_to_ns
from eyot_wire.subject import is_well_formed
from eyot_wire.untrusted import decode_json

MAGIC = b"NATSARC1"
NAME_MAX = 1 << 20
FILE_MAX = 4 << 20
PIECE_MESSAGES = 4096
"""Messages returned in one go: they need several times as much memory as their bytes."""
MESSAGE_MAX = 64 << 20
_CONSUMERS = b"consumers/"


class _State(msgspec.Struct):
    first_seq: int = 0
    last_seq: int = 0
    last_ts: str = ZERO_TIME
    consumer_count: int = 0
    bytes: int = 0


class _Pair(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Pending(msgspec.Struct, rename="pascal"):
    sequence: int = 0
    timestamp: int = 0


class _Progress(msgspec.Struct, omit_defaults=True):
    delivered: _Pair
    ack_floor: _Pair
    pending: dict[int, _Pending] = {}
    redelivered: dict[int, int] = {}


class _Consumer(msgspec.Struct):
    config: msgspec.Raw
    state: _Progress


_encode = msgspec.json.Encoder().encode


def read(window: Window, stream: str, give: Callable[[Part], None]) -> Wait:
    """Read a whole flat archive.

    The stream's name is not checked, since the archive does not hold it. Raises ArchiveError.
    """
    yield from window.skip(len(MAGIC))
    state = yield from _state(window)
    give(StatePart(state.first_seq, state.last_seq, state.bytes))
    for _ in range(state.consumer_count):
        give((yield from _consumer(window)))
    last = yield from _messages(window, max(state.first_seq - 1, 0), give)
    give(EndPart(max(last, state.last_seq), rfc3339_to_ns(state.last_ts)))


def _state(window: Window) -> Generator[bool | None, None, _State]:
    name, body = yield from _file(window)
    if name != b"state.json":
        raise ArchiveError("expected state.json first")
    try:
        state = decode_json(body, _State)
        rfc3339_to_ns(state.last_ts)
    except ValueError as error:
        raise ArchiveError(f"error in state.json: {error}") from None
    if min(state.first_seq, state.last_seq, state.consumer_count, state.bytes) < 0:
        raise ArchiveError("error in state.json: negative numbers")
    return state


def _consumer(window: Window) -> Generator[bool | None, None, ConsumerPart]:
    entry, body = yield from _file(window)
    if not entry.startswith(_CONSUMERS):
        raise ArchiveError(f'expected consumer, found "{entry.decode("utf-8", "replace")}"')
    name = entry.removeprefix(_CONSUMERS).decode("utf-8", "surrogateescape")
    try:
        found = decode_json(body, _Consumer)
    except msgspec.MsgspecError as error:
        raise ArchiveError(f'failed to decode consumer "{name}" state: {error}') from None
    state = found.state
    progress = ConsumerProgress(
        delivered=(state.delivered.consumer_seq, state.delivered.stream_seq),
        ack_floor=(state.ack_floor.consumer_seq, state.ack_floor.stream_seq),
        pending={seq: (each.sequence, each.timestamp) for seq, each in state.pending.items()},
        redelivered=state.redelivered,
    )
    return ConsumerPart(name, bytes(found.config), progress)


def _messages(window: Window, before: int, give: Callable[[Part], None]) -> Generator[bool | None, None, int]:
    """Read all messages; return the last message's sequence, or `before` if there is none."""
    last = before
    held: list[ArchivedMessage] = []
    while True:
        entry = _Entry(window)
        for _ in entry.read(MESSAGE_MAX):
            if held:
                give(MessagesPart(held))
                held = []
            yield None
        if not entry.seq:
            if entry.name or entry.ts_ns or entry.body:
                raise ArchiveError("expected message sequence")
            break
        if entry.seq <= last:
            raise ArchiveError(f"message sequence {entry.seq} out of order")
        if not is_well_formed(entry.name):
            raise ArchiveError(f"message sequence {entry.seq} has no valid subject")
        last = entry.seq
        size = entry.header_size
        held.append(ArchivedMessage(last, entry.ts_ns, entry.name, entry.body[:size], entry.body[size:]))
        if len(held) == PIECE_MESSAGES:
            give(MessagesPart(held))
            held = []
            yield MORE
    if held:
        give(MessagesPart(held))
    return last


def _file(window: Window) -> Generator[bool | None, None, tuple[bytes, bytes]]:
    entry = _Entry(window)
    yield from entry.read(FILE_MAX)
    return entry.name, entry.body


class _Entry:
    """One entry; `read` fills it."""

    __slots__ = ("_window", "body", "header_size", "name", "seq", "ts_ns")

    def __init__(self, window: Window) -> None:
        self._window = window
        self.name = self.body = b""
        self.ts_ns = self.seq = self.header_size = 0

    def read(self, body_max: int) -> Wait:
        window = self._window
        name_size = yield from _uvarint(window)
        time = yield from _uvarint(window)
        self.seq = yield from _uvarint(window)
        self.header_size = yield from _uvarint(window)
        size = self.header_size + (yield from _uvarint(window))
        self.ts_ns = unzigzag(time)
        if name_size > NAME_MAX or size > body_max or self.seq >> 62:
            raise ArchiveError("archive: invalid archive stream")
        self.name = yield from window.take(name_size)
        self.body = yield from window.take(size)


def _uvarint(window: Window) -> Generator[bool | None, None, int]:
    value = shift = 0
    while shift < 7 * BYTES_MAX:
        while not window.left:
            yield None
        byte = window.data[window.at]
        window.at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value
        shift += 7
    raise ArchiveError("archive: invalid archive stream")


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_entry(name: bytes, ts_ns: int, seq: int, header: bytes, payload: bytes) -> bytes:
    """Encode one entry."""
    numbers = (uvarint(len(name)), varint(ts_ns), uvarint(seq), uvarint(len(header)), uvarint(len(payload)))
    return b"".join((*numbers, name, header, payload))


def encode_consumer(name: str, config: bytes, progress: ConsumerProgress, ts_ns: int) -> bytes:
    """Encode a consumer's entry."""
    state = _Progress(
        delivered=_Pair(*progress.delivered),
        ack_floor=_Pair(*progress.ack_floor),
        pending={seq: _Pending(*each) for seq, each in progress.pending.items()},
        redelivered=progress.redelivered,
    )
    body = b'{"config":%b,"state":%b}' % (config, _encode(state))
    return encode_entry(_CONSUMERS + name.encode("utf-8", "surrogateescape"), ts_ns, 0, b"", body)


END = encode_entry(b"", 0, 0, b"", b"")
