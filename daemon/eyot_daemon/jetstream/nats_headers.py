"""The `Nats-` headers of messages: their names, and their values.

Source: ADR-1, ADR-22, ADR-43 (TTLs), ADR-44 (API levels), ADR-49 (counters), ADR-50 (batches).
"""

import re

from eyot_daemon.version import API_LEVEL
from eyot_wire import headers
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.jetstream.model import NS_PER_S

MSG_ID = b"Nats-Msg-Id"
EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID = b"Nats-Expected-Last-Msg-Id"
ROLLUP = b"Nats-Rollup"
TTL = b"Nats-TTL"
MARKER_REASON = b"Nats-Marker-Reason"
INCREMENT = b"Nats-Incr"
COUNTER_SOURCES = b"Nats-Counter-Sources"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQUENCE = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"
REQUIRED_LEVEL = b"Nats-Required-Api-Level"
REQUEST_INFO = b"Nats-Request-Info"
STREAM_IDENTITY = b"Nats-Stream-Identity"
_LEVEL = re.compile(rb"[+-]?[0-9]{1,20}")

#: A number that no sequence has: the value of an unreadable expectation, as in nats-server.
NO_SEQ = (1 << 64) - 1

#: What a field that asks for something begins with, with the line end before it.
NATS_MARK = b"\r\nNats-"


def nats_fields(header: bytes) -> dict[bytes, bytes]:
    """First value of every field whose name begins with `Nats-`; names are case-sensitive.

    As in nats-server only blanks before the value are none of it: `a` and `a ` are two message ids, and `1h ` is no time.
    """
    fields: dict[bytes, bytes] = {}
    at = header.find(NATS_MARK)
    while at >= 0:
        end = header.find(b"\r\n", at + 2)
        name, colon, value = header[at + 2 : end if end >= 0 else len(header)].partition(b":")
        if colon:
            fields.setdefault(name, value.lstrip(b" "))
        at = header.find(NATS_MARK, at + 2)
    return fields


def parse_seq(text: bytes) -> int:
    """Return a sequence as text; NO_SEQ when it is none."""
    return int(text) if bytes.isdigit(text) and len(text) <= 20 else NO_SEQ


def level_is_offered(header: bytes, level: int = API_LEVEL) -> bool:
    """Return False if a request or message requires an API level above `level` (ADR-44)."""
    if not header:
        return True
    wanted = headers.get(header, REQUIRED_LEVEL)
    if not wanted:
        return True
    return _LEVEL.fullmatch(wanted) is not None and int(wanted) <= level


#: `Nats-TTL: never`
NEVER = -1
_TTL_NS_MIN = NS_PER_S


def parse_ttl(value: bytes) -> int:
    """Parse a `Nats-TTL` header to ns: seconds, or a Go duration of at least one second (`0` is not one); NEVER.

    Raises ValueError.
    """
    if value.lower() == b"never":
        return NEVER
    if bytes.isdigit(value) and value != b"0":
        return int(value) * NS_PER_S
    ttl_ns = parse_duration_ns(value.decode("ascii"))
    if ttl_ns < _TTL_NS_MIN:
        raise ValueError("a TTL is at least one second")
    return ttl_ns


def has_ttl(value: bytes) -> bool:
    """Return whether a `Nats-TTL` header names a time; a malformed one does not."""
    try:
        return parse_ttl(value) != 0
    except ValueError:
        return False
