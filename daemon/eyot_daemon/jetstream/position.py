"""The stored position of a mirror or source: the last copied message."""

import msgspec

#: What else is kept among a stream's positions.
OWN_KEYS = b"eyot."


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last copied message of a mirror or source.

    `seq`, `ts_ns`, `size`: its sequence and time at the origin, the bytes of its header and payload. `identity`: the
    origin's epoch, as `created` of its stream or as the identity in a message. `newest_ns`: the latest time of all
    copied messages of that epoch (clocks are set back, too). `checkpoints`: sequences and times of some earlier
    messages. For a mirror, whose own last message says the rest, only one more than the last sequence of an origin that
    went back, the epoch, and `whole`: the mirror holds messages of that epoch only.
    """

    seq: int = 0
    identity: str = ""
    ts_ns: int = 0
    size: int = 0
    newest_ns: int = 0
    checkpoints: tuple[tuple[int, int], ...] = ()
    whole: bool = False


encode_position = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Position | int).decode


def read_position(value: bytes) -> Position:
    """Return a record; the first form of it was the sequence alone."""
    position = _decode(value)
    return Position(position) if isinstance(position, int) else position
