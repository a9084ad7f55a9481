r"""Frames of the client and leaf protocols: parsed operations and encoders.

A scanner turns bytes into operations, the encoders turn values into bytes. Operations are msgspec Structs without
garbage-collector tracking: to make one costs 30 ns, a third of a slotted class, and a large read leaves no work for the
garbage collector.

`Pub` is the most frequent. It keeps the parsed control line (`FrameLine`, shared by all repetitions of that line on one
connection) and `tail`: the bytes after the subject, `[reply ][hdr_len ]size\r\n[header]payload\r\n`. These bytes
are verbatim the end of a subscriber's MSG or HMSG frame, so that a delivery is `MSG <subject> <sid> ` + tail. Header
and payload are sliced on demand.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct, json

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
OK: Final = b"+OK\r\n"

# Payloads that acknowledge a message and say no more (all others: eyot_wire.jetstream.ack).
PLAIN_ACKS: Final = frozenset((b"", b"+ACK", b"+OK"))
# The most digits of a sequence.
ACK_DIGITS_MAX: Final = 18


class Connect(Struct, frozen=True, gc=False):
    """CONNECT: the JSON text as sent. repr() leaves the text out, since it may hold a password."""

    json: bytes

    def __repr__(self) -> str:
        return f"Connect(<{len(self.json)} bytes>)"


class Info(Struct, frozen=True, gc=False):
    """INFO: the JSON text as sent."""

    json: bytes


class Ping(Struct, frozen=True, gc=False):
    pass


class Pong(Struct, frozen=True, gc=False):
    pass


class Ok(Struct, frozen=True, gc=False):
    pass


class Err(Struct, frozen=True, gc=False):
    """-ERR: the text without its quotes."""

    text: str


class Sub(Struct, frozen=True, gc=False):
    """SUB <subject> [queue] <sid>. The subject is as sent, perhaps invalid."""

    subject: bytes
    queue: bytes
    sid: bytes


class Unsub(Struct, frozen=True, gc=False):
    """UNSUB <sid> [max_msgs]; max_msgs 0: unsubscribe at once."""

    sid: bytes
    max_msgs: int


class FrameLine(Struct, frozen=True, gc=False):
    """A parsed control line that precedes a payload; shared by repetitions of the same line."""

    subject: bytes
    reply: bytes
    header_size: int
    total: int  # header and payload, bytes
    length: int  # the line with its line end, bytes
    skip: int  # where the kept bytes begin, from the line's start
    prefix: bytes = b""  # what to insert before the kept bytes when the line cannot be forwarded verbatim
    sid: bytes = b""  # MSG, HMSG of the client protocol
    queues: tuple[bytes, ...] = ()  # LMSG, HMSG of the leaf protocol


class Pub(Struct, frozen=True, gc=False):
    """PUB or HPUB. `line.subject`, `line.reply` and `tail` are plain attributes for speed; the rest is computed."""

    line: FrameLine
    tail: bytes

    @property
    def subject(self) -> bytes:
        return self.line.subject

    @property
    def reply(self) -> bytes:
        return self.line.reply

    @property
    def header(self) -> bytes:
        line = self.line
        if not line.header_size:
            return b""
        start = len(self.tail) - line.total - 2
        return self.tail[start : start + line.header_size]

    @property
    def payload(self) -> bytes:
        line = self.line
        return self.tail[line.header_size - line.total - 2 : -2]

    @property
    def size(self) -> int:
        """Bytes of header and payload together."""
        return self.line.total


class Publishes:
    """Consecutive publishes as one operation; the compiled twin holds them as places in the read.

    A message's index is its position in the row.
    """

    __slots__ = ("pubs",)

    def __init__(self, pubs: list[Pub]) -> None:
        self.pubs = pubs

    def __len__(self) -> int:
        return len(self.pubs)

    def line(self, index: int) -> FrameLine:
        """Return the control line of a message."""
        return self.pubs[index].line

    def run(self, index: int) -> int:
        """Return how many messages, from this one on, share its control line; at least 1."""
        pubs = self.pubs
        line, end = pubs[index].line, index + 1
        while end < len(pubs) and pubs[end].line is line:
            end += 1
        return end - index

    def tails(self, index: int, count: int) -> list[bytes]:
        """Return, for `count` messages from this one on, the bytes after the subject in their frames."""
        return [pub.tail for pub in self.pubs[index : index + count]]

    def content(self, index: int) -> tuple[bytes, bytes]:
        """Return header and payload of a message."""
        pub = self.pubs[index]
        return pub.header, pub.payload

    def acknowledged(self, index: int, prefix: bytes) -> tuple[list[int], int]:
        """Return the stream sequences that the messages from this one on acknowledge, and the bytes of their payloads.

        Stops at the first message that is not a plain acknowledgement: a subject of `prefix`
        (`$JS.ACK.<stream>.<consumer>.`) and five numbers, no reply, no header, and a payload of PLAIN_ACKS.
        """
        seqs: list[int] = []
        size = 0
        for pub in self.pubs[index:]:
            line = pub.line
            if line.reply or line.header_size or not line.subject.startswith(prefix):
                break
            numbers = line.subject[len(prefix) :].split(b".")
            if (
                len(numbers) != 5
                or not all(bytes.isdigit(number) for number in numbers)
                or len(numbers[1]) > ACK_DIGITS_MAX
            ):
                break
            if pub.payload not in PLAIN_ACKS:
                break
            seqs.append(int(numbers[1]))
            size += line.total
        return seqs, size


class Msg(Struct, frozen=True, gc=False):
    """MSG or HMSG as a client receives it."""

    subject: bytes
    sid: bytes
    reply: bytes
    header: bytes
    payload: bytes


class LsAdd(Struct, frozen=True, gc=False):
    """LS+ <subject> [queue weight]. Weight 0: a plain subscription."""

    subject: bytes
    queue: bytes = b""
    weight: int = 0


class LsDel(Struct, frozen=True, gc=False):
    """LS- <subject> [queue]."""

    subject: bytes
    queue: bytes = b""


class LeafMsg(NamedTuple):
    """LMSG or HMSG of a leaf link. `queues`: groups of which one member each gets it, besides plain subscriptions."""

    subject: bytes
    reply: bytes = b""
    header: bytes = b""
    payload: bytes = b""
    queues: tuple[bytes, ...] = ()


Op = Connect | Info | Ping | Pong | Ok | Err | Pub | Publishes | Sub | Unsub | Msg | LsAdd | LsDel | LeafMsg


def detach_all(ops: list[Op]) -> None:
    """Copy the publishes among operations out of the buffer that they were read into, for use beyond the turn.

    The operations of one read share one copy of it, and what was copied before stays as it is.
    """


PING_OP: Final = Ping()
PONG_OP: Final = Pong()
OK_OP: Final = Ok()


class Published(NamedTuple):
    """A message as a subscription receives it."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


class ProtocolError(Exception):
    """Bytes that break the protocol.

    `text`: nats-server's words for `-ERR '...'`; empty where nats-server only closes. `detail`: for the log. `ops`: the
    operations of the same feed before the offence. `close`: the connection must end.
    """

    def __init__(self, text: str, detail: str = "", *, close: bool = True) -> None:
        super().__init__(text or detail)
        self.text = text
        self.detail = detail or text
        self.close = close
        self.ops: list[Op] = []


UNKNOWN_OPERATION: Final = "Unknown Protocol Operation"
MAX_PAYLOAD: Final = "Maximum Payload Violation"
MAX_CONTROL_LINE: Final = "maximum control line exceeded"


def encode_msg(subject: bytes, sid: bytes, reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Encode MSG, or HMSG when there is a header: a delivery to a client."""
    if header:
        size = len(header)
        if reply:
            return b"HMSG %b %b %b %d %d\r\n%b%b\r\n" % (
                subject, sid, reply, size, size + len(payload), header, payload,
            )  # fmt: skip
        return b"HMSG %b %b %d %d\r\n%b%b\r\n" % (subject, sid, size, size + len(payload), header, payload)
    if reply:
        return b"MSG %b %b %b %d\r\n%b\r\n" % (subject, sid, reply, len(payload), payload)
    return b"MSG %b %b %d\r\n%b\r\n" % (subject, sid, len(payload), payload)


def encode_pub(subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"") -> bytes:
    """Encode PUB, or HPUB when there is a header: a client's publish."""
    if header:
        size = len(header)
        if reply:
            return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, size, size + len(payload), header, payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, size, size + len(payload), header, payload)
    if reply:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def encode_sub(subject: bytes, sid: bytes, queue: bytes = b"") -> bytes:
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def encode_unsub(sid: bytes) -> bytes:
    return b"UNSUB %b\r\n" % sid


def encode_leaf_msg(
    subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"", queues: Iterable[bytes] = ()
) -> bytes:
    """Encode LMSG, or HMSG when there is a header, for a leaf link; `queues`: the groups selected for the other side."""
    parts = [b"HMSG" if header else b"LMSG", subject]
    groups = tuple(queues)
    if groups:
        parts += (b"+", reply) if reply else (b"|",)
        parts += groups
    elif reply:
        parts.append(reply)
    if header:
        parts.append(b"%d" % len(header))
    parts.append(b"%d\r\n" % (len(header) + len(payload)))
    return b"%b%b%b\r\n" % (b" ".join(parts), header, payload)


def encode_ls_add(subject: bytes, queue: bytes = b"", weight: int = 0) -> bytes:
    return b"LS+ %b %b %d\r\n" % (subject, queue, weight) if queue else b"LS+ %b\r\n" % subject


def encode_ls_del(subject: bytes, queue: bytes = b"") -> bytes:
    return b"LS- %b %b\r\n" % (subject, queue) if queue else b"LS- %b\r\n" % subject


def encode_err(text: str) -> bytes:
    """Encode -ERR with the text in quotes."""
    return b"-ERR '%b'\r\n" % text.encode("utf-8", "surrogateescape")


def encode_info(info: Struct) -> bytes:
    """Encode INFO from one of the Structs of `eyot_wire.info`."""
    return b"INFO %b\r\n" % json.encode(info)


def encode_connect(connect: Struct) -> bytes:
    """Encode CONNECT from one of the Structs of `eyot_wire.info`."""
    return b"CONNECT %b\r\n" % json.encode(connect)
