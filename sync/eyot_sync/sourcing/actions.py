"""The interface of a `SourceConsumer`: actions for its owner, received messages, and progress.

The owner carries out the actions that each report returns, in order.
"""

from __future__ import annotations

from msgspec import Struct

from eyot_wire.jetstream.errors import ApiError


class Subscribe(Struct, frozen=True):
    """Listen on the deliver subject and on the inboxes of the two responses; all are new for each request."""

    deliver: bytes
    reply: bytes
    identity_reply: bytes


class Unsubscribe(Struct, frozen=True):
    """Stop listening there: the consumer at the origin loses its interest and goes away."""

    deliver: bytes
    reply: bytes


class Request(Struct, frozen=True):
    """Request a consumer at the origin."""

    subject: bytes
    reply: bytes
    body: bytes


class Identify(Struct, frozen=True):
    """Request the origin's epoch (STREAM.INFO). Without responders, call `unidentified`."""

    subject: bytes
    reply: bytes


class FetchLastMessage(Struct, frozen=True):
    """Request the last copied message from the origin, with the answer on `reply`. Without responders, call `unproven`."""

    subject: bytes
    reply: bytes
    body: bytes


class Answer(Struct, frozen=True):
    """Answer flow control: an empty message on `subject`; its header confirms a pre-created consumer's deliveries."""

    subject: bytes
    header: bytes = b""


class Skip(Struct, frozen=True):
    """The origin has nothing up to and including `seq` (mirrors keep the origin's sequences)."""

    seq: int


class Release(Struct, frozen=True):
    """Delete this abandoned consumer at the origin. The deregistration, which lets go of what was kept, follows by itself."""

    subject: bytes


Action = Release | Subscribe | Unsubscribe | Request | Identify | FetchLastMessage | Answer | Skip


class Progress(Struct):
    """Progress of a mirror or source, for stream info and status. Times are the owner's monotonic seconds, None: never."""

    lag: int = 0
    #: The origin holds these messages back at present.
    held_back: bool = False
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


#: In an answer to flow control of an Eyot mirror or source: the consumer whose messages are confirmed.
CONFIRMED_CONSUMER = b"Eyot-Consumer"


def ack_position_header(consumer: str, consumer_seq: int, stream_seq: int) -> bytes:
    """Return the header of an answer to flow control: the consumer, its confirmed deliveries, and the origin's confirmed sequence."""
    return b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n%b: %b\r\n\r\n" % (
        consumer_seq,
        stream_seq,
        CONFIRMED_CONSUMER,
        consumer.encode(),
    )
