"""The origin's side of `eyot.origins`: a mirror is told up to where this stream's own sources have come.

It may be told to take this stream's place, when this one is gone: then it knows of each origin what is known here. All is told when it
asks for a consumer, and with flow control, which it is asked no later than a second after a delivery, what has changed since.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from eyot_daemon.jetstream.position import OWN_KEYS, Position, read_position
from eyot_sync.sourcing.upstream_positions import HEADER, KEY
from eyot_wire.jetstream.consumer import ConsumerInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.consumer import Consumer

#: More is not told at once: it has to fit into a message.
_ANSWER_BYTES_MAX = 256 << 10
_HEADER_BYTES_MAX = 32 << 10


class PositionUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The positions of a stream's sources when it had its messages up to `upto`, by the sources' keys: all of them (`whole`), or those
    that are not what was told before."""

    upto: int
    positions: dict[bytes, Position]
    whole: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PositionUpdate).decode


class UpstreamPositions:
    """What the mirror behind one consumer was told."""

    def __init__(self, consumer: Consumer) -> None:
        self._stream = consumer.stream
        self._told: dict[bytes, bytes] = {}
        downstreams_of(consumer.stream).asked_by_mirror()

    def whole(self) -> str:
        """All there is to tell; "" if that is too much."""
        now = self._now()
        text = self._text(now, whole=True)
        if len(text) > _ANSWER_BYTES_MAX:
            return ""
        self._told = now
        return text

    def news(self) -> bytes:
        """A header field with what is not as it was told, as much of it as is told at once; b"" if there is nothing."""
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
        positions = self._stream.log.positions().items()
        return {key: value for key, value in positions if not key.startswith(OWN_KEYS)}

    def _text(self, values: dict[bytes, bytes], *, whole: bool = False) -> str:
        positions = {key: read_position(value) for key, value in values.items()}
        return b64encode(_encode(PositionUpdate(self._stream.log.committed_seq, positions, whole))).decode()


def upstream_positions_of(consumer: Consumer) -> UpstreamPositions | None:
    """For a consumer whose reader asks for it."""
    config = consumer.config
    return UpstreamPositions(consumer) if config.direct and KEY in config.metadata else None


def with_upstream_positions(consumer: Consumer, info: ConsumerInfo) -> ConsumerInfo:
    """What is said of a new consumer, with the origins that its request asks for."""
    config, push = info.config, consumer.push
    if config is None or push is None or push.upstream_positions is None:
        return info
    text = push.upstream_positions.whole()
    if not text:
        return info
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=config.metadata | {KEY: text}))


def read_position_update(text: str) -> PositionUpdate | None:
    """An origin's answer; None if that is none."""
    try:
        return _decode(b64decode(text, validate=True))
    except ValueError:  # what msgspec raises is one, too
        return None
