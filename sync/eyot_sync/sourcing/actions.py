"""What a copier has its owner do, what it is given and what it hands on, and how it is doing.

The owner carries out the actions that each report returns, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec import Struct

from eyot_wire.jetstream.errors import ApiError


class Phase(Enum):
    """What a copier is doing."""

    WAITING = "waiting"
    REQUESTED = "requested"
    ACTIVE = "active"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Listen on the deliver subject and on the inboxes of the two responses; all are new for each request."""

    deliver: bytes
    reply: bytes
    identity_reply: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Stop listening there: the consumer at the origin loses its interest and goes away."""

    deliver: bytes
    reply: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """Ask the origin for a consumer."""

    subject: bytes
    reply: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Identify:
    """Ask the origin which life it is in (STREAM.INFO). Where nobody listens, say so with `unidentified`."""

    subject: bytes
    reply: bytes


@dataclass(frozen=True, slots=True)
class FetchLastMessage:
    """Ask the origin for the last message that was copied, listening on `reply`. Where nobody listens, say so with `unproven`."""

    subject: bytes
    reply: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer flow control: an empty message on `subject`; its header says how far a consumer that stands ready may settle."""

    subject: bytes
    header: bytes = b""


@dataclass(frozen=True, slots=True)
class Skip:
    """The origin has nothing up to and including `seq` (mirrors keep the origin's sequences)."""

    seq: int


@dataclass(frozen=True, slots=True)
class Release:
    """Tell the origin that nobody will come back to this consumer; what it kept for it alone it may let go."""

    subject: bytes


Action = Release | Subscribe | Unsubscribe | Request | Identify | FetchLastMessage | Answer | Skip


class Copied(Struct, frozen=True, gc=False):
    """A message to store. For a mirror `origin_seq` and `ts_ns` are its own; a source gives it new ones."""

    origin_seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class Delivered(Protocol):
    """A message as it comes over a leaf link: its reply is `<ack subject>@<subject at the origin>`."""

    @property
    def reply(self) -> bytes: ...

    @property
    def header(self) -> bytes: ...

    @property
    def payload(self) -> bytes: ...


@dataclass(slots=True)
class Progress:
    """How the copy is doing, for stream info and status. Times are the owner's monotonic seconds, None: never."""

    lag: int = 0
    heard_at: float | None = None
    error: ApiError | None = None
    copied: int = 0
    requests: int = 0
    gaps: int = 0
    dropped_old: int = 0
    last_seq: int = 0
    committed_seq: int = 0
    behind: bool = False
    epochs: int = 0
    note: str = ""


#: In an answer to flow control of an Eyot mirror or source: the consumer whose messages it confirms.
CONFIRMED_CONSUMER = b"Eyot-Consumer"


def settled_header(consumer: str, consumer_seq: int, stream_seq: int) -> bytes:
    """The header of an answer to flow control: of which consumer, and how far its deliveries and the origin's sequences are settled."""
    return b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n%b: %b\r\n\r\n" % (
        consumer_seq,
        stream_seq,
        CONFIRMED_CONSUMER,
        consumer.encode(),
    )
