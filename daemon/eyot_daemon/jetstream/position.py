"""The record of how far a mirror or source has come: what is kept of the last message copied."""

import msgspec

#: What else is kept among a stream's positions.
OWN_KEYS = b"eyot."


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last message copied: its sequence at the origin, the life of the origin (`created` of its stream, or that one's identity where
    a message told it), its time there, the bytes of its
    header and payload, and the latest time of all that was copied of that life (clocks are set back, too), then sequences and times of a
    few messages before the last one. Of a mirror only where an origin that went back ended (and one more) and its `created`, and
    whether it holds messages of that life only (`whole`): the rest the mirror's own last message says."""

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
    """A record; the first form of it was the sequence alone."""
    position = _decode(value)
    return Position(position) if isinstance(position, int) else position
