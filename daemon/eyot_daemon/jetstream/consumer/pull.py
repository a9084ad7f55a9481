"""The pull requests of a consumer: each one read and checked, those that wait, and the choice of the one for the next message.

A request (`CONSUMER.MSG.NEXT`) is answered with messages and status replies. A status reply is a message without payload
on the request's reply subject whose header block is one status line, some with the request's remainder in
`Nats-Pending-Messages` and `Nats-Pending-Bytes`. Source: ADR-13, ADR-42.

Requests are served in turn, one message each. Priority groups (ADR-42) change the order: `prioritized` serves the
lowest priority number first, `overflow` skips requests whose thresholds are not reached, `pinned_client` serves only
the client with the current pin id, until it has been silent for the pin's time to live.

Nothing here sends: status lines gather in `out` as (reply subject, header block), and `interested` returns whether a
request's reply subject has a subscriber. It is called when a message is to be sent there or requests are counted. Only
then a request without one is dropped silently: a client that reconnects meanwhile gets its messages. `max_waiting`
bounds the queue. A request beyond it is refused with a status, except one with heartbeats: its client retries at its
own pace.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from eyot_daemon.jetstream.deliver_subject import idle_heartbeat
from eyot_wire.go.duration import format_duration
from eyot_wire.jetstream.consumer import NextRequest
from eyot_wire.jetstream.struct import InvalidJson, decode

NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING = b"NATS/1.0 408 Requests Pending\r\n\r\n"
MAX_WAITING = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
CONSUMER_DELETED = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
API_LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"
PIN_MISMATCH = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"


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


#: As Go reads one: `int` also accepts underscores.
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")


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
    number = int(text) if _NUMBER.fullmatch(text) else 1
    return NextRequest(batch=number if abs(number) < 1 << 63 else 1)


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


#: A full queue is searched for requests without a listener at most this often.
FULL_SWEEP_S = 1.0
#: With more requests, each message searches its own.
IN_TURN_MAX = 16


class Pin:
    """The pinned client of a group: its id, when it was pinned, and when it loses the pin without activity."""

    __slots__ = ("group", "id", "pinned_at", "until")

    def __init__(self) -> None:
        self.id = ""
        self.group = ""
        self.pinned_at = 0.0
        self.until = math.inf

    def assign(self, pin_id: str, group: str, now: float, ttl_s: float) -> None:
        self.id, self.group, self.pinned_at, self.until = pin_id, group, now, now + ttl_s

    def clear(self) -> None:
        self.id, self.until = "", math.inf


class PullQueue:
    """Waiting requests of one consumer. Times in monotonic seconds."""

    def __init__(
        self,
        max_waiting: int,
        interested: Callable[[bytes], bool],
        new_pin_id: Callable[[], str],
        *,
        policy: str = "none",
        pin_ttl_s: float = 120.0,
    ) -> None:
        self.max_waiting = max_waiting
        self.policy = policy
        self.pin_ttl_s = pin_ttl_s
        self.pin = Pin()
        self.pinned: list[str] = []
        self.out: list[tuple[bytes, bytes]] = []
        self.last_active = -math.inf
        self._interested = interested
        self._new_pin_id = new_pin_id
        self._waiting: deque[PullRequest] = deque()
        self._full_sweep_at = -math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PullRequest]:
        return iter(self._waiting)

    def demand(self) -> int:
        """Return the number of messages requested in all (a request for 0 counts as one)."""
        return sum(max(1, request.batch) for request in self._waiting)

    # -- arriving --------------------------------------------------------------------------------------------------

    def add(self, wanted: NextRequest, reply: bytes, now: float, available: int, delivered: tuple[int, int]) -> None:
        """Add a request while `available` messages could be delivered. Raises RefusedRequest."""
        self.last_active = now
        if self.pin.id:
            if wanted.id == self.pin.id:
                self.pin.until = now + self.pin_ttl_s
            elif wanted.id:
                raise RefusedRequest(PIN_MISMATCH)
        if self.full and now - self._full_sweep_at >= FULL_SWEEP_S:
            self._full_sweep_at = now
            self.sweep(now, False, delivered)
            self.drop_unheard()
        if wanted.no_wait:
            if available == 0 and not wanted.expires:
                raise RefusedRequest(NO_MESSAGES)
            if available > 0 and self._waiting:
                self.sweep(now, False, delivered)
                self.drop_unheard()
                if available < sum(request.batch for request in self._waiting):
                    raise RefusedRequest(REQUESTS_PENDING)
        if self.full:
            if wanted.idle_heartbeat > 0:
                return
            raise RefusedRequest(MAX_WAITING)
        request = PullRequest(reply, now, wanted)
        if self.policy == "prioritized":
            self._insert(request)
        else:
            self._waiting.append(request)

    @property
    def full(self) -> bool:
        return 0 < self.max_waiting <= len(self._waiting)

    # -- serving ---------------------------------------------------------------------------------------------------

    def solo(self, now: float) -> PullRequest | None:
        """Return the only request, if it has no conditions: the caller serves it at once (`served`)."""
        if len(self._waiting) == 1 and self.policy == "none":
            request = self._waiting[0]
            if not request.max_bytes and now < request.expires_at and self._interested(request.reply):
                return request
        return None

    def served(self, request: PullRequest, count: int, now: float) -> None:
        """`count` messages went to `request`, the one that `solo` returned."""
        request.delivered += count
        request.batch -= count
        if request.batch <= 0:
            self._waiting.popleft()
        elif request.heartbeat_s:
            request.heartbeat_at = now + request.heartbeat_s
        self.last_active = now

    def in_turn(self, now: float) -> "Sequence[PullRequest]":
        """Return all requests, if none has conditions, so that only turns and amounts matter; otherwise none."""
        waiting = self._waiting
        if self.policy != "none" or len(waiting) > IN_TURN_MAX:
            return ()
        if any(now >= request.expires_at or not self._interested(request.reply) for request in waiting):
            return ()
        return waiting

    def shared(self, sizes: "Sequence[int]") -> int:
        """Return how many messages of these sizes (bytes) can be delivered in turn without completing any request."""
        waiting, count = self._waiting, len(sizes)
        number = len(waiting)
        while count:
            for at, request in enumerate(waiting):
                share = sizes[at:count:number]
                if request.batch <= len(share) or 0 < request.max_bytes <= sum(share):
                    break
            else:
                return count
            count //= 2
        return 0

    def hand_out(self, sizes: "Sequence[int]", now: float) -> None:
        """Account for messages of these sizes, as many as `shared` returned."""
        waiting = self._waiting
        number = len(waiting)
        for at, request in enumerate(waiting):
            share = sizes[at::number]
            if share:
                if request.max_bytes:
                    request.max_bytes -= sum(share)
                request.delivered += len(share)
                request.batch -= len(share)
                if request.heartbeat_s:
                    request.heartbeat_at = now + request.heartbeat_s
        waiting.rotate(-(len(sizes) % number))
        self.last_active = now

    def take(self, size: int, now: float, num_pending: int, ack_pending: int) -> PullRequest | None:
        """Return the request for the next message of `size` bytes, and subtract its share; None: no request has room for it.

        `num_pending` includes the message itself. A request that is completed by it leaves the queue; if bytes of it
        remain, the caller sends `batch_completed` after the message.
        """
        waiting = self._waiting
        passed_over = 0
        while waiting and passed_over < len(waiting):
            request = waiting[0]
            pin_id = self.pin.id
            if now >= request.expires_at:
                self._finish(request, request.status("408 Request Timeout"))
            elif not self._interested(request.reply):
                waiting.popleft()
            elif self.policy == "pinned_client" and not self._may_pin(request, now):
                if request.pin_id:
                    self._finish(request, request.status("423 Nats-Wrong-Pin-Id"))
                else:
                    waiting.rotate(-1)
                    passed_over += 1
            elif self.policy == "overflow" and not _overflows(request, num_pending, ack_pending):
                waiting.rotate(-1)
                passed_over += 1
            elif 0 < request.max_bytes < size:
                if self.pin.id != pin_id:
                    self.pin.clear()  # it got the pin for this very message
                self._finish(request, request.status("409 Message Size Exceeds MaxBytes"))
            else:
                return self._hand_to(request, size, now)
        return None

    @staticmethod
    def batch_completed(request: PullRequest) -> bytes:
        """Return the status after the last message of a request with bytes left; b"" for none."""
        if request.batch <= 0 and request.max_bytes > 0:
            request.batch = 0
            return request.status("409 Batch Completed")
        return b""

    def _hand_to(self, request: PullRequest, size: int, now: float) -> PullRequest:
        if request.max_bytes:
            request.max_bytes -= size
            if not request.max_bytes:
                request.batch = 1
        request.delivered += 1
        request.batch -= 1
        self._waiting.popleft()
        if request.batch > 0:
            if request.heartbeat_s:
                request.heartbeat_at = now + request.heartbeat_s
            if self.policy == "prioritized":
                self._insert(request)
            else:
                self._waiting.append(request)
        self.last_active = now
        return request

    def _may_pin(self, request: PullRequest, now: float) -> bool:
        if not self.pin.id:
            if request.pin_id:
                return False
            if not request.group:
                return True  # a `+NXT`: it names no group, and pins no client
            self.pin.assign(self._new_pin_id(), request.group, now, self.pin_ttl_s)
            self.pinned.append(self.pin.id)
            request.pin_id = self.pin.id
        return request.pin_id == self.pin.id

    def unpin(self) -> None:
        """Remove the pin; the client's waiting requests are informed when it is their turn."""
        self.pin.clear()

    def _insert(self, request: PullRequest) -> None:
        waiting = self._waiting
        at = len(waiting)
        while at and waiting[at - 1].priority > request.priority:
            at -= 1
        waiting.insert(at, request)

    # -- waiting ---------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """Time of the next `sweep` (an expiry, a heartbeat, the end of a pin), monotonic seconds; infinity: never."""
        deadline = self.pin.until
        for request in self._waiting:
            if request.expires_at < deadline:
                deadline = request.expires_at
            if request.heartbeat_at < deadline:
                deadline = request.heartbeat_at
        return deadline

    def sweep(self, now: float, exhausted: bool, delivered: tuple[int, int]) -> None:
        """Answer expired requests, and send due heartbeats.

        `exhausted`: there is nothing to deliver at present, so no_wait requests end here. They do not end while
        max_ack_pending holds back the rest, except with the first due heartbeat or expiry. `delivered`: the consumer's
        last delivery (cseq, sseq), for heartbeats.
        """
        exhausted = exhausted or any(now >= min(one.expires_at, one.heartbeat_at) for one in self._waiting)
        for request in list(self._waiting):
            if now >= request.expires_at:
                self._finish(request, request.status("408 Request Timeout"))
            elif exhausted and request.no_wait and (request.expires_at == math.inf or request.delivered):
                self._finish(request, NO_MESSAGES)
            elif now >= request.heartbeat_at:
                if not self._interested(request.reply):
                    self._waiting.remove(request)
                    continue
                self.out.append((request.reply, idle_heartbeat(*delivered)))
                request.heartbeat_at = now + request.heartbeat_s

    def drop_unheard(self) -> None:
        """Drop the requests without a subscriber."""
        unheard = [request for request in self._waiting if not self._interested(request.reply)]
        for request in unheard:
            self._waiting.remove(request)

    def end_all(self, header: Callable[[PullRequest], bytes]) -> None:
        """Answer every waiting request with `header(request)` when the consumer ends."""
        while self._waiting:
            request = self._waiting.popleft()
            self.out.append((request.reply, header(request)))

    def _finish(self, request: PullRequest, header: bytes) -> None:
        if self._waiting and self._waiting[0] is request:
            self._waiting.popleft()
        else:
            self._waiting.remove(request)
        self.out.append((request.reply, header))


def _overflows(request: PullRequest, num_pending: int, ack_pending: int) -> bool:
    """Return whether an overflow request's threshold of pending or unacknowledged messages is reached."""
    if not request.min_pending > 0 and not request.min_ack_pending > 0:
        return True
    return 0 < request.min_pending <= num_pending or 0 < request.min_ack_pending <= ack_pending
