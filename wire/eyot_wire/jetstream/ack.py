"""JetStream acknowledgement subjects and payloads.

A delivered message's reply subject says where to acknowledge it, and describes it:

- v1, 9 tokens: `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>`
- v2, 11 tokens and more: `$JS.ACK.<domain|_>.<account
  hash>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>[.<token>…]`

`delivered` counts deliveries of this message from 1, `sseq` and `cseq` are stream and consumer sequence, `ts` is the
store time in ns, `pending` the number of messages after this one. Over a leaf link `@<original subject>` follows the
reply, since the message travels there under the consumer's deliver subject. Source: nats-server's consumer.go.
"""

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.untrusted import decode_json

PREFIX: Final = b"$JS.ACK."
#: End of the reply subject of a message in a fast batch (ADR-50), which says what the message is in the batch.
FAST_BATCH_END: Final = b".$FI"

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_NUMBERS: Final = msgspec.json.Decoder(tuple[_Number, _Number, _Number, _Number, _Number])


class AckReply(Struct, frozen=True, gc=False):
    """The fields of an acknowledgement subject."""

    stream: bytes
    consumer: bytes
    delivered: int
    stream_seq: int
    consumer_seq: int
    ts_ns: int
    pending: int
    domain: bytes = b""  # v2 only; b"" when `_`
    account_hash: bytes = b""  # v2 only


def decode_ack_reply(reply: bytes) -> AckReply | None:
    """Parse a v1 or v2 acknowledgement subject (without `@` part); None when it is neither."""
    if not reply.startswith(PREFIX):
        return None
    tokens = reply.split(b".")
    count = len(tokens)
    if count == 9:
        at, domain, account = 2, b"", b""
    elif count >= 11:
        at, domain, account = 4, tokens[2], tokens[3]
    else:
        return None
    numbers = tokens[at + 2 : at + 7]
    if not bytes.isdigit(b"".join(numbers)):
        return None
    try:
        # msgspec reads five numbers in the time in which int() reads three.
        delivered, sseq, cseq, ts_ns, pending = _NUMBERS.decode(b"[%b]" % b",".join(numbers))
    except msgspec.DecodeError:
        return None
    if domain == b"_":
        domain = b""
    return AckReply(tokens[at], tokens[at + 1], delivered, sseq, cseq, ts_ns, pending, domain, account)


def split_leaf_reply(reply: bytes) -> tuple[bytes, bytes | None]:
    """Split `<ack reply>@<original subject>`; `(reply, None)` without such a part.

    The separator is the first `@` after the eighth dot: tokens of stream, consumer and subject may contain `@`
    themselves.
    """
    if 64 not in reply or not reply.startswith(PREFIX):
        return reply, None
    lead = reply.split(b".", 8)
    if len(lead) < 9:
        return reply, None
    last, border, _ = lead[8].partition(b"@")
    if not border:
        return reply, None
    at = len(reply) - len(lead[8]) + len(last)
    return reply[:at], reply[at + 1 :]


class AckKind(Enum):
    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    TERM = "+TERM"
    NEXT = "+NXT"


class Ack(Struct, frozen=True):
    """A parsed acknowledgement payload."""

    kind: AckKind
    delay_ns: int = 0  # NAK: redeliver no earlier than this
    reason: str = ""  # TERM
    request: bytes = b""  # NEXT: body of a pull request, b"" for one message


class _NakOptions(Struct):
    delay: int = 0


_ACK: Final = Ack(AckKind.ACK)
_PROGRESS: Final = Ack(AckKind.PROGRESS)


def parse_ack_payload(payload: bytes) -> Ack | None:
    """Parse an acknowledgement payload; None for an unknown one, which a server ignores."""
    if payload in (b"", b"+ACK", b"+OK"):
        return _ACK
    if payload == b"+WPI":
        return _PROGRESS
    if payload.startswith(b"-NAK"):
        return Ack(AckKind.NAK, delay_ns=_nak_delay_ns(payload[4:].strip()))
    if payload.startswith(b"+NXT"):
        return Ack(AckKind.NEXT, request=payload[4:].strip())
    if payload.startswith(b"+TERM"):
        return Ack(AckKind.TERM, reason=payload[5:].strip().decode("utf-8", "replace"))
    return None


def _nak_delay_ns(argument: bytes) -> int:
    """Return the delay of a NAK; 0 for a malformed delay, as in nats-server."""
    try:
        if argument.startswith(b"{"):
            return max(0, decode_json(argument, _NakOptions).delay)
        return max(0, parse_duration_ns(argument.decode())) if argument else 0
    except (msgspec.DecodeError, ValueError):
        return 0
