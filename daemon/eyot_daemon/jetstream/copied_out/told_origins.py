"""What a stream knows of its own origins, told to its mirrors: Eyot's own addition to the metadata of a request for a consumer.

A mirror asks (`"eyot.origins": "?"`); the answer says how far the stream goes and up to where each of its sources has come then, in the
form in which positions are kept. A server that does not know of it gives the request's text back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.copied_out.copied_out import copied_out_of
from eyot_daemon.jetstream.copies.position import OWN_KEYS, Position, read_position
from eyot_wire.jetstream.consumer import ConsumerInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

KEY = "eyot.origins"
ASKED = "?"
#: More is not told: an answer has to fit into a message, and over a link.
_TOLD_BYTES_MAX = 256 << 10


class Told(msgspec.Struct, frozen=True, array_like=True):
    """The positions of a stream's sources when it had its messages up to `upto`, by the sources' keys."""

    upto: int
    positions: dict[bytes, Position]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Told).decode


def with_told_origins(stream: Stream, info: ConsumerInfo) -> ConsumerInfo:
    """What is said of a new consumer, with the origins that its request asks for. From now on copies say by themselves what they are
    of: there is somebody who notes it."""
    config = info.config
    if config is None or not config.direct or KEY not in config.metadata:
        return info
    copied_out_of(stream).asked_by_mirror()
    positions = stream.log.positions().items()
    told = Told(
        stream.log.committed_seq, {key: read_position(at) for key, at in positions if not key.startswith(OWN_KEYS)}
    )
    text = b64encode(_encode(told)).decode()
    if len(text) > _TOLD_BYTES_MAX:
        return info
    return msgspec.structs.replace(info, config=msgspec.structs.replace(config, metadata=config.metadata | {KEY: text}))


def read(text: str) -> Told | None:
    """An origin's answer; None if that is none."""
    try:
        return _decode(b64decode(text, validate=True))
    except ValueError:  # what msgspec raises is one, too
        return None
