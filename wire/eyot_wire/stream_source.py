"""The header `Nats-Stream-Source`: which message of which origin a sourced message is a copy of.

A restarted source resumes from it, so every form nats-server ever wrote is read:

    2.15    <name> <seq> <filters> <destinations> <subject> [<stream identity>]
    2.12    <name> <seq> <filters> <destinations> <subject>      this is what is written here
    2.10    <name> <seq> <filters> <destinations>
    2.9     <name> <seq>
    older   the whole acknowledgement subject `$JS.ACK.<stream>.<consumer>.…`

`name` is the origin's stream, with `:<hash8 of the API prefix>` when external; filters and destinations are `>` when there
are none, several joined by form feeds.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from msgspec import Struct

from eyot_wire.ack import PREFIX, decode_ack_reply
from eyot_wire.nuid import DIGITS

HEADER: Final = b"Nats-Stream-Source"
_SEPARATOR: Final = "\f"


def hash8(text: str) -> str:
    """Eight base-62 characters from SHA-256, as nats-server names accounts, API prefixes and sync consumers."""
    return "".join([DIGITS[byte % 62] for byte in sha256(text.encode()).digest()[:8]])


def index_name(stream: str, api_prefix: str = "", consumer: str = "") -> str:
    """The first field: the stream's name, with the hash of an external origin's API prefix, and of the consumer that
    stands ready there (2.14)."""
    name = f"{stream}:{hash8(api_prefix)}" if api_prefix else stream
    return f"{name}:C={hash8(consumer)}" if consumer else name


def full_index(name: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> str:
    """What tells one source of a stream from another: `<name> <filters> <destinations>`."""
    return f"{name} {_listed(filters)} {_listed(destinations)}"


class StreamSourceValue(Struct, frozen=True):
    """A parsed header value. `index` is None in the forms that only name the stream."""

    name: str
    seq: int
    index: str | None = None
    subject: str = ""
    identity: str = ""

    def is_from(self, index: str) -> bool:
        """Whether this is a copy from the source with this `full_index`."""
        if self.index is not None:
            return self.index == index
        return index.split(" ", 1)[0] == self.name


def encode(name: str, seq: int, subject: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> bytes:
    """The header value for the origin's message `seq`, published there as `subject`."""
    text = f"{name} {seq} {_listed(filters)} {_listed(destinations)} {subject}"
    return text.encode("utf-8", "surrogateescape")


class SourceStamp:
    """`encode` prepared for one source: what does not change from message to message is worked out once."""

    __slots__ = ("_name", "_origin")

    def __init__(self, name: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> None:
        self._name = name.encode("utf-8", "surrogateescape")
        self._origin = f"{_listed(filters)} {_listed(destinations)}".encode("utf-8", "surrogateescape")

    def value(self, seq: int, subject: bytes) -> bytes:
        """The header value for the origin's message `seq`, published there on `subject`."""
        return b"%b %d %b %b" % (self._name, seq, self._origin, subject)

    def block(self, seq: int, subject: bytes) -> bytes:
        """The whole header block of a copy of a message that had none."""
        return b"NATS/1.0\r\nNats-Stream-Source: %b %d %b %b\r\n\r\n" % (self._name, seq, self._origin, subject)


def parse(value: bytes) -> StreamSourceValue | None:
    """Read a header value of any generation; None when it is none of them."""
    if value.startswith(PREFIX):
        reply = decode_ack_reply(value)
        return None if reply is None else StreamSourceValue(reply.stream.decode("utf-8", "replace"), reply.stream_seq)
    fields = value.decode("utf-8", "surrogateescape").split(" ")
    if len(fields) < 2 or len(fields) == 3 or not fields[0] or not (fields[1].isascii() and fields[1].isdigit()):
        return None
    name, seq = fields[0], int(fields[1])
    if len(fields) == 2:
        return StreamSourceValue(name, seq)
    index = f"{name} {fields[2]} {fields[3]}"
    subject = fields[4] if len(fields) > 4 else ""
    return StreamSourceValue(name, seq, index, subject, fields[5] if len(fields) > 5 else "")


def _listed(subjects: Iterable[str]) -> str:
    return _SEPARATOR.join([subject or ">" for subject in subjects]) or ">"
