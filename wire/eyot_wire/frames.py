"""Frames of the client and leaf protocols: parsed operations and encoders.

A scanner turns bytes into operations, the encoders turn values into bytes. Operations are msgspec Structs without
garbage-collector tracking: making one costs 30 ns, a third of a slotted class, and a large read leaves nothing for the
collector to walk.

`Pub` is the hot one. It keeps the parsed control line (`PubLine`, shared by all repetitions of that line on one
connection) and `tail`: the bytes after the subject, `[reply ][hdr_len ]size\\r\\n[header]payload\\r\\n`, which are verbatim
the tail of the MSG or HMSG frame for a subscriber, so that delivery is `MSG <subject> <sid> ` + tail. Header and payload
are cut out only when asked for.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct, json

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
OK: Final = b"+OK\r\n"

# What acknowledges a message and says no more (eyot_wire.jetstream.ack knows what else may be said).
PLAIN_ACKS: Final = frozenset((b"", b"+ACK", b"+OK"))
# Digits of a sequence, at most.
ACK_DIGITS_MAX: Final = 18


class Connect(Struct, frozen=True, gc=False):
    """CONNECT: the JSON text as sent. It may hold a password, so it does not show itself."""

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
    """UNSUB <sid> [max_msgs]; max_msgs 0: at once."""

    sid: bytes
    max_msgs: int


class FrameLine(Struct, frozen=True, gc=False):
    """A parsed control line that a payload follows. Shared between repetitions of the same line."""

    subject: bytes
    reply: bytes
    header_size: int
    total: int  # header and payload, bytes
    length: int  # the line with its line end, bytes
    skip: int  # where the bytes that the operation keeps start, counted from the line's start
    prefix: bytes = b""  # what to put before the kept bytes when the line is not fit to be passed on verbatim
    sid: bytes = b""  # MSG, HMSG of the client protocol
    queues: tuple[bytes, ...] = ()  # LMSG, HMSG of the leaf protocol


class Pub(Struct, frozen=True, gc=False):
    """PUB or HPUB. `line.subject`, `line.reply`, `tail` are plain attributes for hot paths; the rest is derived."""

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
        """Bytes of header and payload."""
        return self.line.total


class Publishes:
    """Publishes in a row, as one operation. The compiled one holds them unopened, as places in the read.

    The index of a message says where it stands in the row.
    """

    __slots__ = ("pubs",)

    def __init__(self, pubs: list[Pub]) -> None:
        self.pubs = pubs

    def __len__(self) -> int:
        return len(self.pubs)

    def detach(self) -> None:
        """Copy the messages out of the buffer they were read into: for who keeps them beyond the turn."""

    def line(self, index: int) -> FrameLine:
        """The control line of a message."""
        return self.pubs[index].line

    def run(self, index: int) -> int:
        """How many messages, from this one on, share its control line; 1 at least."""
        pubs = self.pubs
        line, end = pubs[index].line, index + 1
        while end < len(pubs) and pubs[end].line is line:
            end += 1
        return end - index

    def tails(self, index: int, count: int) -> list[bytes]:
        """Of `count` messages from this one on, what followed the subject in their frames."""
        return [pub.tail for pub in self.pubs[index : index + count]]

    def content(self, index: int) -> tuple[bytes, bytes]:
        """Header and payload of a message."""
        pub = self.pubs[index]
        return pub.header, pub.payload

    def acknowledged(self, index: int, prefix: bytes) -> tuple[list[int], int]:
        """The stream sequences that the messages from this one on acknowledge, as far as they are plain acknowledgements: on a subject
        of `prefix` and five numbers (`$JS.ACK.<stream>.<consumer>.` and what stands behind it), without reply and header, saying
        no more than that. And how many bytes of payload those messages have together."""
        seqs: list[int] = []
        size = 0
        for pub in self.pubs[index:]:
            line = pub.line
            if line.reply or line.header_size or not line.subject.startswith(prefix):
                break
            numbers = line.subject[len(prefix) :].split(b".")
            if len(numbers) != 5 or not all(number.isdigit() for number in numbers) or len(numbers[1]) > ACK_DIGITS_MAX:
                break
            if pub.payload not in PLAIN_ACKS:
                break
            seqs.append(int(numbers[1]))
            size += line.total
        return seqs, size


def make_pub(subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"") -> Pub:
    """A Pub as the scanner would give it."""
    total = len(header) + len(payload)
    sizes = b"%d %d" % (len(header), total) if header else b"%d" % total
    lead = (reply + b" " + sizes if reply else sizes) + b"\r\n"
    skip = (5 if header else 4) + len(subject) + 1
    line = FrameLine(subject, reply, len(header), total, skip + len(lead), skip)
    return Pub(line, b"".join((lead, header, payload, b"\r\n")))


class Msg(Struct, frozen=True, gc=False):
    """MSG or HMSG, as a client receives it."""

    subject: bytes
    sid: bytes
    reply: bytes
    header: bytes
    payload: bytes


class LsAdd(Struct, frozen=True, gc=False):
    """LS+ <subject> [queue weight]. Weight 0 for a plain subscription."""

    subject: bytes
    queue: bytes = b""
    weight: int = 0


class LsDel(Struct, frozen=True, gc=False):
    """LS- <subject> [queue]."""

    subject: bytes
    queue: bytes = b""


class LeafMsg(Struct, frozen=True, gc=False):
    """LMSG or HMSG of a leaf link. `queues`: the groups one member each shall get it, besides plain subscriptions."""

    subject: bytes
    reply: bytes = b""
    header: bytes = b""
    payload: bytes = b""
    queues: tuple[bytes, ...] = ()


ClientOp = Connect | Pub | Publishes | Sub | Unsub | Ping | Pong | Info | Ok | Err
ServerOp = Info | Msg | Ping | Pong | Ok | Err
LeafOp = Info | Connect | LsAdd | LsDel | LeafMsg | Ping | Pong | Ok | Err
Op = Connect | Info | Ping | Pong | Ok | Err | Pub | Publishes | Sub | Unsub | Msg | LsAdd | LsDel | LeafMsg

PING_OP: Final = Ping()
PONG_OP: Final = Pong()
OK_OP: Final = Ok()


class Published(NamedTuple):
    """A message as a subscription delivered it."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


class ProtocolError(Exception):
    """Bytes that break the protocol.

    `text`: nats-server's words for `-ERR '...'`; empty where nats-server says nothing and only closes.
    `detail`: for the log. `ops`: the operations of the same feed that came before. `close`: the connection must end.
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
    """MSG, or HMSG when there is a header: what a server sends to a client."""
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
    """PUB, or HPUB when there is a header: what a client sends."""
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


def encode_unsub(sid: bytes, max_msgs: int = 0) -> bytes:
    return b"UNSUB %b %d\r\n" % (sid, max_msgs) if max_msgs > 0 else b"UNSUB %b\r\n" % sid


def encode_leaf_msg(
    subject: bytes, reply: bytes = b"", header: bytes = b"", payload: bytes = b"", queues: Iterable[bytes] = ()
) -> bytes:
    """LMSG, or HMSG when there is a header, for a leaf link; `queues` are the groups chosen on the other side."""
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
    """-ERR with the text in quotes."""
    return b"-ERR '%b'\r\n" % text.encode("utf-8", "surrogateescape")


def encode_info(info: Struct) -> bytes:
    """INFO from one of the Structs of `eyot_wire.info`."""
    return b"INFO %b\r\n" % json.encode(info)


def encode_connect(connect: Struct) -> bytes:
    """CONNECT from one of the Structs of `eyot_wire.info`."""
    return b"CONNECT %b\r\n" % json.encode(connect)
