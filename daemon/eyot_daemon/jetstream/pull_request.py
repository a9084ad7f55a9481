"""One pull request (`CONSUMER.MSG.NEXT`): its body read, its bounds checked, and the words of every status reply.

A status reply is a message without payload on the request's reply subject whose header block is one status line, some
with the request's remainder in `Nats-Pending-Messages` and `Nats-Pending-Bytes`. Source: ADR-13, ADR-42.
"""

import math

from eyot_wire.go.duration import format_duration
from eyot_wire.jetstream.consumer import NextRequest
from eyot_wire.jetstream.struct import InvalidJson, decode

NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING = b"NATS/1.0 408 Requests Pending\r\n\r\n"
MAX_WAITING = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
CONSUMER_DELETED = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
API_LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"
PIN_MISMATCH = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
WRONG_PIN = b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\n\r\n"


def bad_request(problem: str) -> bytes:
    return b"NATS/1.0 400 Bad Request - %b\r\n\r\n" % problem.encode()


class RefusedRequest(Exception):
    """The request is answered with `header` and forgotten."""

    def __init__(self, header: bytes) -> None:
        super().__init__(header.decode("utf-8", "replace").split("\r\n", 1)[0])
        self.header = header


class PullRequest:
    """A request that waits. `batch` and `max_bytes` are its remaining amounts (`max_bytes` 0: not limited).

    Times in monotonic seconds; `expires_at` is infinite when the request waits without limit.
    """

    __slots__ = (
        "batch",
        "delivered",
        "expires_at",
        "group",
        "heartbeat_at",
        "heartbeat_s",
        "max_bytes",
        "min_ack_pending",
        "min_pending",
        "no_bytes",
        "no_wait",
        "pin_id",
        "priority",
        "received_at",
        "reply",
    )

    def __init__(self, reply: bytes, received_at: float, wanted: NextRequest | None = None) -> None:
        wanted = wanted or NextRequest(batch=1)
        self.reply = reply
        self.received_at = received_at
        self.batch = wanted.batch
        self.max_bytes = max(0, wanted.max_bytes)
        self.no_bytes = min(0, wanted.max_bytes)  # the negative number that answers show
        self.expires_at = received_at + wanted.expires / 1e9 if wanted.expires else math.inf
        self.no_wait = wanted.no_wait
        self.heartbeat_s = wanted.idle_heartbeat / 1e9 if wanted.idle_heartbeat > 0 else 0.0
        self.heartbeat_at = received_at + self.heartbeat_s if self.heartbeat_s else math.inf
        self.group = wanted.group
        self.min_pending = wanted.min_pending
        self.min_ack_pending = wanted.min_ack_pending
        self.pin_id = wanted.id
        self.priority = wanted.priority
        self.delivered = 0

    def status(self, line: str) -> bytes:
        """Return `NATS/1.0 <line>` with the remaining amounts of the request."""
        return b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (
            line.encode(),
            self.batch,
            self.max_bytes or self.no_bytes,
        )


def read_request(body: bytes) -> NextRequest:
    """Return the body of a request: empty (one message), a number, or JSON. Raises RefusedRequest."""
    text = body.strip()
    if text.startswith(b"{"):
        try:
            wanted = decode(text, NextRequest, strict=False)
        except InvalidJson as err:
            raise RefusedRequest(bad_request(str(err))) from None
        if wanted.idle_heartbeat > 0 and wanted.idle_heartbeat * 2 > wanted.expires:
            raise RefusedRequest(bad_request("heartbeat value too large"))
        return wanted
    try:
        return NextRequest(batch=int(text))
    except ValueError:
        return NextRequest(batch=1)


def check_limits(wanted: NextRequest, max_batch: int, max_expires_ns: int, max_bytes: int) -> None:
    """Check a request against the consumer's own limits, 0: unlimited. Raises RefusedRequest."""
    if 0 < max_batch < wanted.batch:
        raise RefusedRequest(b"NATS/1.0 409 Exceeded MaxRequestBatch of %d\r\n\r\n" % max_batch)
    if 0 < max_expires_ns < wanted.expires:
        duration = format_duration(max_expires_ns).encode()
        raise RefusedRequest(b"NATS/1.0 409 Exceeded MaxRequestExpires of %b\r\n\r\n" % duration)
    if 0 < max_bytes < wanted.max_bytes:
        raise RefusedRequest(b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of %d\r\n\r\n" % max_bytes)


def check_priority(wanted: NextRequest, policy: str, groups: list[str]) -> None:
    """Check a request's priority against the consumer's policy. Raises RefusedRequest."""
    if (wanted.min_pending or wanted.min_ack_pending) and policy != "overflow":
        raise RefusedRequest(bad_request("Not a Overflow Priority consumer"))
    if wanted.id and policy != "pinned_client":
        raise RefusedRequest(bad_request("Not a Pinned Client Priority consumer"))
    if not 0 <= wanted.priority <= 9:
        raise RefusedRequest(bad_request("Priority must be between 0 and 9"))
    if policy == "none":
        return
    if not wanted.group:
        raise RefusedRequest(bad_request("Priority Group missing"))
    if wanted.group not in groups:
        raise RefusedRequest(bad_request("Invalid Priority Group"))


def idle_heartbeat(cseq: int, sseq: int, stalled_on: bytes = b"") -> bytes:
    """Return the header of a heartbeat: the last delivery, and the flow-control subject whose answer is awaited, if any."""
    header = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (cseq, sseq)
    if stalled_on:
        header += b"Nats-Consumer-Stalled: %b\r\n" % stalled_on
    return header + b"\r\n"
