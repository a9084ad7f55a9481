"""Positions of mirrors and sources: the stored record, and what an origin answers about positions.

`Position` is the last copied message. The rest is the origin's side. `eyot.stored`: a downstream requests stored times
along with its consumer. `eyot.origins`: a mirror receives the positions of this stream's own sources. A mirror that is
promoted to this stream's place continues from these positions. It receives all positions when it requests a consumer, and
later changes with flow control, which is requested at most a second after a delivery.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import msgspec

from eyot_store.errors import StoreError
from eyot_sync.sourcing import stored_times
from eyot_sync.sourcing.upstream_positions import HEADER, KEY
from eyot_wire.jetstream.consumer import ConsumerInfo

if TYPE_CHECKING:
    from eyot_store.log.log import Log
    from eyot_wire.jetstream.consumer import ConsumerConfig

#: What else is kept among a stream's positions.
OWN_KEYS = b"eyot."


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last copied message of a mirror or source.

    `seq`, `ts_ns`, `size`: its sequence and time at the origin, the bytes of its header and payload. `identity`: the
    origin's epoch, as `created` of its stream or as the identity in a message. `newest_ns`: the latest time of all
    copied messages of that epoch (clocks are set back, too). `checkpoints`: sequences and times of some earlier
    messages. For a mirror, whose own last message says the rest, only one more than the last sequence of an origin that
    went back, the epoch, `whole`: the mirror holds messages of that epoch only, and `skipped`: up to this sequence it
    holds others (0: unknown).
    """

    seq: int = 0
    identity: str = ""
    ts_ns: int = 0
    size: int = 0
    newest_ns: int = 0
    checkpoints: tuple[tuple[int, int], ...] = ()
    whole: bool = False
    skipped: int = 0


encode_position = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Position | int).decode


def read_position(value: bytes) -> Position:
    """Return a record; the first form of it was the sequence alone."""
    position = _decode(value)
    return Position(position) if isinstance(position, int) else position


def with_stored_times(log: Log, info: ConsumerInfo) -> ConsumerInfo:
    """Return a new consumer's info with the stored times that its request names."""
    config = info.config
    asked = config.metadata.get(stored_times.KEY) if config is not None and config.direct else None
    if config is None or asked is None:
        return info

    def time_of(seq: int) -> int:
        try:
            message = log.get(seq)
        except StoreError:
            return 0  # damaged: no evidence
        return 0 if message is None else message.ts_ns

    metadata = config.metadata | {stored_times.KEY: stored_times.answer(asked, time_of)}
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=metadata))


#: The most bytes at once, which must fit into a message.
_ANSWER_BYTES_MAX = 256 << 10
_HEADER_BYTES_MAX = 32 << 10


class PositionUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The positions of a stream's sources when it had its messages up to `upto`, by the sources' keys.

    All of them (`whole`), or those that changed since the previous update.
    """

    upto: int
    positions: dict[bytes, Position]
    whole: bool = False


_encode_update = msgspec.msgpack.Encoder().encode
_decode_update = msgspec.msgpack.Decoder(PositionUpdate).decode


class UpstreamPositions:
    """The positions that were sent to the mirror of one consumer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: dict[bytes, bytes] = {}

    def whole(self) -> str:
        """Return all positions as text; "" if they exceed `_ANSWER_BYTES_MAX`."""
        now = self._now()
        text = self._text(now, whole=True)
        if len(text) > _ANSWER_BYTES_MAX:
            return ""
        self._told = now
        return text

    def news(self) -> bytes:
        """Return a header field with the positions that changed since they were sent, as many as fit into one; b"" if none did."""
        changed: dict[bytes, bytes] = {}
        size = 0
        for key, value in self._now().items():
            if self._told.get(key) != value and size < _HEADER_BYTES_MAX:
                changed[key] = value
                size += len(key) + len(value)
        if not changed:
            return b""
        self._told |= changed
        return b"%b: %b\r\n" % (HEADER, self._text(changed).encode())

    def _now(self) -> dict[bytes, bytes]:
        positions = self._log.positions().items()
        return {key: value for key, value in positions if not key.startswith(OWN_KEYS)}

    def _text(self, values: dict[bytes, bytes], *, whole: bool = False) -> str:
        positions = {key: read_position(value) for key, value in values.items()}
        return b64encode(_encode_update(PositionUpdate(self._log.committed_seq, positions, whole))).decode()


def asks_upstream_positions(config: ConsumerConfig) -> bool:
    """Return whether the consumer's downstream requests them."""
    return config.direct and KEY in config.metadata


def with_upstream_positions(positions: UpstreamPositions | None, info: ConsumerInfo) -> ConsumerInfo:
    """Return the info of a new consumer, with the positions that its request asks for."""
    config = info.config
    if config is None or positions is None:
        return info
    text = positions.whole()
    if not text:
        return info
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=config.metadata | {KEY: text}))


def read_position_update(text: str) -> PositionUpdate | None:
    """Return an origin's answer; None if that is none."""
    try:
        return _decode_update(b64decode(text, validate=True))
    except ValueError:  # what msgspec raises is one, too
        return None
