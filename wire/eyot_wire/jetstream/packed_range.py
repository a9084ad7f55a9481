"""Packed range reads: Eyot's own request for many records of a stream at once (docs/packed-reads.md, ADR 0009).

A request on `$JS.API.STREAM.EYOT_RANGE.<stream>` is a RangeRequest in JSON. Its replies are messages with the header
below and this payload:

    keys      count * 8 bytes   sequences, big-endian, ascending
    lengths   count * 4 bytes   of the records, little-endian
    records                     MessagePack [ts_ns, subject, header, payload] each, as they are stored

`StoredRun.packed` makes such payloads. The answer to an empty request is a RangeOffer, by which a client detects the
extension.
"""

from __future__ import annotations

import struct
from typing import Final

from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.struct import JsStruct, UInt, always, empty
from eyot_wire.stored_run import PACKED_COST

WORDS: Final = "STREAM.EYOT_RANGE"
VERSION: Final = 1
KEY_BYTES: Final = 8
LENGTH_BYTES: Final = 4
#: Bytes of keys and lengths for each record.
DIRECTORY_BYTES: Final = PACKED_COST

#: Another reply to the same request follows.
MORE: Final = "more"
#: The request's byte limit is reached; ask again from `last_seq + 1`.
PAUSE: Final = "pause"
#: The range is complete.
END: Final = "end"

_STATE: Final = b"Eyot-Range"
_FIELDS: Final = (
    b"Eyot-First-Sequence",
    b"Eyot-Last-Sequence",
    b"Eyot-Records",
    b"Eyot-Stream-First",
    b"Eyot-Stream-Created",
)


class RangeRequest(JsStruct, kw_only=True):
    """A request for the records of [first_seq, last_seq] whose subject matches one of `filters` (none: all).

    `max_bytes`: bytes of all replies to this request together; a single record may exceed it. `max_reply`: bytes of one
    reply, the smallest `max_payload` on the way; 0: the server's own.
    """

    first_seq: UInt = 0
    last_seq: UInt = 0
    filters: list[str] = empty(list)
    max_bytes: UInt = 0
    max_reply: UInt = 0


class RangeOffer(JsStruct, kw_only=True):
    """The answer to an empty request: the server's abilities."""

    version: int = always(VERSION)
    max_bytes: int = always(0)


class UnreadablePart(JsStruct, kw_only=True):
    """Accompanies error 10051 when a record is damaged: its sequence (0: not a single record)."""

    unreadable_seq: int = 0


class RangeHead(JsStruct, kw_only=True):
    """The head of a reply.

    `state`: MORE, PAUSE or END. `first_seq, last_seq`: the reply covers every record of this range and none beyond.
    `count`: records in the reply. `stream_first`: the stream's first sequence at the time of the read; records below it
    are gone. `created_ns`: the stream's creation time; another value means another stream.
    """

    state: str
    first_seq: int
    last_seq: int
    count: int
    stream_first: int
    created_ns: int

    def encode(self) -> bytes:
        """Return the header block of the reply."""
        numbers = (self.first_seq, self.last_seq, self.count, self.stream_first, self.created_ns)
        lines = [b"NATS/1.0", b"%b: %b" % (_STATE, self.state.encode())]
        lines += [b"%b: %d" % (name, number) for name, number in zip(_FIELDS, numbers, strict=True)]
        return b"\r\n".join(lines) + headers.END


HEAD_BYTES_MAX: Final = 300


def decode_head(header: bytes) -> RangeHead | None:
    """Return the head of a reply; None for other messages (an error in JSON, a status). Raises ValueError for a malformed one."""
    state = headers.get(header, _STATE)
    if state is None:
        return None
    numbers = []
    for name in _FIELDS:
        value = headers.get(header, name) or b""
        number = parse_uint(value)
        if number is None:
            raise ValueError(f"{name.decode()} is {value!r}, no number")
        numbers.append(number)
    first_seq, last_seq, count, stream_first, created_ns = numbers
    return RangeHead(
        state=state.decode("ascii", "replace"),
        first_seq=first_seq,
        last_seq=last_seq,
        count=count,
        stream_first=stream_first,
        created_ns=created_ns,
    )


def unpack(payload: bytes, count: int) -> list[tuple[int, bytes]]:
    """Return (sequence, record) of a reply's payload: the plain twin of faster readers. Raises ValueError."""
    at = count * (KEY_BYTES + LENGTH_BYTES)
    if len(payload) < at:
        raise ValueError("the payload is shorter than its directory")
    keys = struct.unpack_from(f">{count}Q", payload)
    lengths = struct.unpack_from(f"<{count}I", payload, count * KEY_BYTES)
    if at + sum(lengths) != len(payload):
        raise ValueError("the records do not fill the payload")
    found = []
    for key, length in zip(keys, lengths, strict=True):
        found.append((key, payload[at : at + length]))
        at += length
    return found
