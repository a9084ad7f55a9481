"""The header `Nats-Stream-Source`: identifies the origin's message that a sourced message was copied from.

A restarted source resumes from it, so every form that nats-server ever wrote is read:

    here    <name> <seq> <filters> <destinations> <subject> <stream identity> <stored at the origin, ns since 1970>
                                                                 where a new epoch of the origin begins
    2.15    <name> <seq> <filters> <destinations> <subject> [<stream identity>]
    2.12    <name> <seq> <filters> <destinations> <subject>      written here otherwise
    2.10    <name> <seq> <filters> <destinations>
    2.9     <name> <seq>
    older   the whole acknowledgement subject `$JS.ACK.<stream>.<consumer>.…`

`name` is the origin's stream, with `:<hash8 of the API prefix>` when external. Filters and destinations are `>` when
there are none, several joined by form feeds. The identity distinguishes the epochs of a stream: it is the hash of the
creation time. The last field, which nats-server ignores, distinguishes the message from another message with the same
sequence.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import Struct

from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.ack import PREFIX, decode_ack_reply
from eyot_wire.nuid import DIGITS

HEADER: Final = b"Nats-Stream-Source"
_SEPARATOR: Final = "\f"
_LINE: Final = b"\r\n" + HEADER + b":"


def hash8(text: str) -> str:
    """Return eight base-62 characters from SHA-256, as nats-server names accounts, API prefixes and sync consumers."""
    return "".join([DIGITS[byte % 62] for byte in sha256(text.encode()).digest()[:8]])


def index_name(stream: str, api_prefix: str = "", consumer: str = "") -> str:
    """Return the first field: the stream's name, with the hash of an external origin's API prefix.

    With a pre-created consumer (nats-server 2.14), the hash covers its name, too.
    """
    name = f"{stream}:{hash8(api_prefix)}" if api_prefix else stream
    return f"{name}:C={hash8(consumer)}" if consumer else name


def full_index(name: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> str:
    """Return the key that distinguishes the sources of a stream: `<name> <filters> <destinations>`."""
    return f"{name} {_listed(filters)} {_listed(destinations)}"


def identity_of(created: str) -> str:
    """Return a stream's identity as nats-server 2.15 computes it from `created` in its info; "" and an identity stay unchanged."""
    return created if not created or ":" not in created else hash8(created)


class StreamSourceValue(Struct, frozen=True):
    """A parsed header value. `index` is None in forms that only name the stream; `stored_ns` is 0 where it is missing."""

    name: str
    seq: int
    index: str | None = None
    subject: str = ""
    identity: str = ""
    stored_ns: int = 0


class Mark(NamedTuple):
    """A source's position as read from a header.

    The source's `full_index` (or only its name), the sequence at the origin, the origin's epoch ("": missing), and the
    time at which the origin stored the message, ns since 1970 (0: missing).
    """

    key: bytes
    seq: int
    identity: str
    stored_ns: int


def encode(name: str, seq: int, subject: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> bytes:
    """Return the header value for the origin's message `seq`, published there as `subject`."""
    text = f"{name} {seq} {_listed(filters)} {_listed(destinations)} {subject}"
    return text.encode("utf-8", "surrogateescape")


class SourceStamp:
    """`encode` prepared for one source: the constant fields are computed once.

    `epoch` is `epoch_field` of the origin's identity; b"" if that is unknown, which omits `stored_ns`, too.
    """

    __slots__ = ("_name", "_origin")

    def __init__(self, name: str, filters: Iterable[str] = (), destinations: Iterable[str] = ()) -> None:
        self._name = name.encode("utf-8", "surrogateescape")
        self._origin = f"{_listed(filters)} {_listed(destinations)}".encode("utf-8", "surrogateescape")

    def value(self, seq: int, subject: bytes, epoch: bytes = b"", stored_ns: int = 0) -> bytes:
        """Return the header value for the origin's message `seq`, published there on `subject`."""
        if epoch:
            return b"%b %d %b %b%b%d" % (self._name, seq, self._origin, subject, epoch, stored_ns)
        return b"%b %d %b %b" % (self._name, seq, self._origin, subject)

    @property
    def around_seq(self) -> tuple[bytes, bytes]:
        """Return what stands before and after the sequence in a block of its own, up to the subject; without an epoch."""
        return b"NATS/1.0\r\nNats-Stream-Source: %b " % self._name, b" %b " % self._origin

    def block(self, seq: int, subject: bytes, epoch: bytes = b"", stored_ns: int = 0) -> bytes:
        """Return the whole header block of a copied message that had no header."""
        return b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % self.value(seq, subject, epoch, stored_ns)


def epoch_field(created: str) -> bytes:
    """Return the identity field for an origin with this `created` in its info."""
    return b" %b " % identity_of(created).encode("utf-8", "surrogateescape") if created else b""


def read_mark(header: bytes) -> Mark | None:
    """Return the position in a header block, in any form; None if there is no readable one."""
    at = header.find(_LINE)
    if at < 0:
        return None
    at += len(_LINE)
    value = header[at : header.find(b"\r\n", at)].strip(b" \t")
    fields = value.split(b" ")
    if len(fields) == 7:
        seq, stored_ns = parse_uint(fields[1]), parse_uint(fields[6])
        if seq is not None and stored_ns is not None:
            index = b"%b %b %b" % (fields[0], fields[2], fields[3])
            return Mark(index, seq, fields[5].decode("utf-8", "surrogateescape"), stored_ns)
    found = parse(value)
    if found is None:
        return None
    index = (found.name if found.index is None else found.index).encode("utf-8", "surrogateescape")
    return Mark(index, found.seq, found.identity, found.stored_ns)


def parse(value: bytes) -> StreamSourceValue | None:
    """Parse a header value of any form; None for other text."""
    if value.startswith(PREFIX):
        reply = decode_ack_reply(value)
        return None if reply is None else StreamSourceValue(reply.stream.decode("utf-8", "replace"), reply.stream_seq)
    fields = value.decode("utf-8", "surrogateescape").split(" ")
    if len(fields) < 2 or len(fields) == 3 or not fields[0]:
        return None
    name, seq = fields[0], parse_uint(fields[1])
    if seq is None:
        return None
    if len(fields) == 2:
        return StreamSourceValue(name, seq)
    index = f"{name} {fields[2]} {fields[3]}"
    subject, identity, stored = [*fields[4:7], "", "", ""][:3]
    return StreamSourceValue(name, seq, index, subject, identity, parse_uint(stored) or 0)


def _listed(subjects: Iterable[str]) -> str:
    return _SEPARATOR.join([subject or ">" for subject in subjects]) or ">"
