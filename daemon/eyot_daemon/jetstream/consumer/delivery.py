"""The shared part of pull and push delivery: reading ahead, encoding deliveries, and passing them to the account.

A turn of a consumer does a bounded amount of work; the rest follows in a later turn (`resume_at`). One range read
returns many messages. Sequence numbers are assigned to all of them before the first one leaves, because a subscriber
within the daemon may answer during the delivery. Every path of first deliveries calls `account_for` for that, and every
path of redeliveries `account_again`.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.router.route import LeafMember
from eyot_daemon.router.subscription import Kind
from eyot_store.errors import StoreError
from eyot_sync.policy.stream_gate import FULL, LOOK_AGAIN_S, UNLIMITED, Hold
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.headers import add_field

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.acks import Acks
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_daemon.router.route import FastTarget, Route
    from eyot_daemon.router.subscription import Destination, Subscription
    from eyot_store import StoredMessage
    from eyot_wire.native import StoredRun

    #: One client's connection, by the subscription, or one leaf link.
    PlainTarget = tuple[Subscription, FastTarget] | LeafMember

log = logging.getLogger("eyot.jetstream")

#: Deliveries of one consumer in one turn.
TURN_MESSAGES_MAX = 1024
#: The cost of an empty read in deliveries (it scanned many records).
EMPTY_READ_COST = 256
#: A client with more than this in its buffer, bytes, gets time to read. As much as others wait for in a turn: since
#: whoever waits for room is told, more would be no faster.
BACKLOG_MAX = 1 << 20
#: The same as a share of `max_pending`, where that is small: a turn adds up to twice `READ_BYTES_MAX`.
BACKLOG_SHARE = 4
#: The first and the longest pause before the next check of receivers that tell nobody when they have room, seconds.
BACKLOG_PAUSE_S_MIN = 0.005
BACKLOG_PAUSE_S_MAX = 0.25
#: A client that is full tells when its buffer was sent, and when it ends (`Room`). This check finds nothing.
TOLD_S_MAX = 30.0
#: Time to wait after the store could not be read.
READ_RETRY_S = 1.0

NEVER = float("inf")


def _only_client(route: "Route") -> "tuple[Subscription, FastTarget] | None":
    """Return the only connection on `route`, if it receives every message verbatim; else None."""
    if len(route.targets) != 1 or not route.simple:
        return None
    sub, _, dest = route.targets[0]
    if sub.slow or not sub.active or dest.closed or not dest.headers:
        return None
    return sub, dest


def _only_leaf(route: "Route") -> "LeafMember | None":
    """Return the only leaf link on `route`, if nothing else receives from `route`; else None."""
    return route.leaf_links[0] if len(route.leaf_links) == 1 and not route.plain and not route.groups else None


def _hold(route: "Route", stream: bytes, backlog_max: int) -> "Hold | None":
    """Return the reason that holds back deliveries of a stream on a route: a receiver's backlog, or a policy of a leaf link; or None."""
    for member in route.plain:
        if _is_full(member.sub.dest, backlog_max):
            return FULL
    for leaf in route.leaf_links:
        held = leaf.dest.hold(stream)
        if held is not None:
            return held
    for group in route.groups:
        # One member receives each message: the group can deliver as long as any member can.
        if not all(_is_full(member.sub.dest, backlog_max) for member in group.local):
            continue
        holds = [leaf.dest.hold(stream) for leaf in group.leaf_links]
        found = [held for held in holds if held is not None]
        if len(found) == len(holds) and (found or group.local):
            return min(found, key=lambda held: held.wait_s, default=FULL)
    return None


def _receivers(route: "Route") -> "Iterator[Destination]":
    for group in route.groups:
        for member in group.local:
            yield member.sub.dest
        for leaf in group.leaf_links:
            yield leaf.dest
    for member in route.plain:
        yield member.sub.dest
    for leaf in route.leaf_links:
        yield leaf.dest


def _allowance(route: "Route", stream: bytes) -> int:
    """Return the bytes of a stream that the links on the route accept at once."""
    leaf_links = [leaf.dest for leaf in route.leaf_links] + [
        leaf.dest for group in route.groups for leaf in group.leaf_links
    ]
    return min((dest.allowance(stream) for dest in leaf_links), default=UNLIMITED)


def _is_full(dest: "Destination", backlog_max: int) -> bool:
    return len(getattr(dest, "out", b"")) > backlog_max


class Delivery:
    """Base of PullDelivery and PushDelivery."""

    def __init__(self, consumer: "ConsumerCore", acks: "Acks", sent: "Callable[[float], None]") -> None:
        """`sent(now)` is called when messages were delivered."""
        self.consumer = consumer
        self._acks = acks
        self._sent = sent
        self.account = consumer.account
        self.state = consumer.state
        self.reader = consumer.reader
        self.resume_at = NEVER
        #: The link policy that deliveries wait for; "": none.
        self.held = ""
        self._stream = consumer.stream.name.encode()
        self._allowance = UNLIMITED
        self._backlog_pause_s = 0.0  # the end of the turn may empty the receiver's buffer
        self._backlog_max = min(BACKLOG_MAX, self.account.broker.options.max_pending // BACKLOG_SHARE)
        self._headers_only = consumer.config.headers_only
        #: A link dropped a delivery: it was too large for the peer, or the lane was full.
        self.left_out = False
        self.prefix = b"$JS.ACK.%b.%b." % (consumer.stream.name.encode(), consumer.name.encode())
        # tokens and dots around the numbers of an acknowledgement subject: delivery count, two sequences, time, pending
        self.overhead = len(self.prefix) + 40

    # -- reading ---------------------------------------------------------------------------------------------------

    def read_new(self, count: int, now: float) -> "tuple[list[StoredMessage], int]":
        """Return up to `count` new messages and how far the log was searched.

        A damaged message (always the first of a read) is logged and skipped, so that it does not block those after it.
        """
        above = self.state.delivered_sseq
        try:
            return self.reader.read(above, count)
        except StoreError as failure:
            if failure.reason != "corrupt" or failure.seq <= above:
                log.error("consumer %s cannot read: %s", self.consumer.path, failure)
                self.resume_at = now + READ_RETRY_S
                return [], above
            log.error("consumer %s skips a damaged message: %s", self.consumer.path, failure)
            self.reader.gave_back()
            self._pass_over(failure.seq)
            return [], failure.seq

    def read_run(self, count: int, now: float) -> "tuple[StoredRun, int] | None":
        """Return `read_new`'s messages unparsed; None if they must be read one by one, or cannot be read."""
        try:
            return self.reader.read_run(self.state.delivered_sseq, count)
        except StoreError:
            return None

    def read_again(self, sseq: int, now: float) -> "StoredMessage | None":
        """Return a message to redeliver; None when it is removed or damaged (then it is no longer pending) or the store fails."""
        try:
            message = self.consumer.stream.log.get(sseq)
        except StoreError as failure:
            log.error("consumer %s cannot redeliver: %s", self.consumer.path, failure)
            if failure.reason != "corrupt" or not failure.seq:
                self.resume_at = now + READ_RETRY_S
                return None
            message = None
            self._pass_over(sseq)
        if message is None:
            self.state.remove(sseq)
        return message

    def _pass_over(self, sseq: int) -> None:
        """Be done with a damaged message."""
        self._acks.passed_damaged()

    def found_nothing(self, upto: int) -> tuple[int, bool]:
        """Return the cost of an empty read up to `upto`, and whether there is nothing more to deliver."""
        searched = upto - self.state.delivered_sseq
        self.state.skip_to(upto)
        if searched and self.consumer.stream.log.damaged:
            self._acks.passed_damaged()
        end = self.consumer.stream.log.committed_seq
        return (EMPTY_READ_COST, False) if searched and upto < end else (0, upto >= end)

    # -- accounting ------------------------------------------------------------------------------------------------

    def account_for(self, sseqs: Sequence[int], upto: int, now: float, *, more: bool) -> int:
        """Account for first deliveries, before the first of them leaves; return its consumer sequence.

        `sseqs`: the sequences, ascending: what a read found, from its beginning. `upto`: how far that read searched;
        `more`: it found messages that are not delivered yet.
        """
        cseq = self.state.deliver(sseqs, now)
        self.reader.consumed(len(sseqs))
        if not more:
            self.state.skip_to(upto)
        self._acks.sent(sseqs, now)
        return cseq

    def account_again(self, sseq: int, now: float) -> tuple[int, int]:
        """Account for the redelivery of a queued message, before it leaves; return its (consumer sequence, deliveries)."""
        numbers = self.state.redeliver(sseq, now)
        self._acks.sent((sseq,), now)
        return numbers

    # -- sending ---------------------------------------------------------------------------------------------------

    def size_of(self, message: "StoredMessage") -> int:
        """Return a delivery's size for the flow-control window and the rate limit, bytes."""
        body = 0 if self._headers_only else len(message.payload)
        return len(message.subject) + len(message.header) + body + self.overhead

    def exact_size(self, message: "StoredMessage", reply: bytes) -> int:
        """Return a delivery's size for a pull request's `max_bytes`."""
        size = len(message.subject) + len(reply) + len(message.header)
        if not self._headers_only:
            return size + len(message.payload)
        added = len(b"Nats-Msg-Size: %d\r\n" % len(message.payload))
        return size + added if message.header else size + added + len(b"NATS/1.0\r\n\r\n")

    def ack_reply(self, message: "StoredMessage", cseq: int, deliveries: int, pending: int) -> bytes:
        return b"%b%d.%d.%d.%d.%d" % (self.prefix, deliveries, message.seq, cseq, message.ts_ns, pending)

    def send(self, route: "Route", message: "StoredMessage", reply: bytes, pin_id: str | None = None) -> None:
        """Send one delivery along `route`; receivers see the message's own subject."""
        header, payload = message.header, message.payload
        if self._headers_only:
            header = add_field(header, b"Nats-Msg-Size", b"%d" % len(payload))
            payload = b""
        if pin_id is not None:
            header = add_field(header, b"Nats-Pin-Id", pin_id.encode())
        self.account.deliver(route, reply, header, payload, origin=None, original=message.subject)

    def plain_target(self, route: "Route") -> "PlainTarget | None":
        """Return the receiver of verbatim first deliveries on `route` (`send_run`); None in all other cases."""
        return None if self._headers_only else _only_client(route) or _only_leaf(route)

    def send_run(self, target: "PlainTarget", run: "StoredRun", start: int, stop: int, cseq: int, pending: int) -> None:
        """Send the messages of `run` from `start` to before `stop` as first deliveries.

        `cseq`: consumer sequence of the first one; `pending`: the count before it.
        """
        if isinstance(target, LeafMember):
            self._send_run_to_leaf(target, FirstDeliveries(run, start, stop, self.prefix, cseq, pending))
            return
        sub, dest = target
        size = run.write_msgs(dest.out, start, stop, sub.sid, self.prefix, cseq, pending)
        self._count(sub, dest, stop - start, size)

    def _send_run_to_leaf(self, leaf: LeafMember, messages: FirstDeliveries) -> None:
        dest, subject = leaf.dest, leaf.subject
        if not dest.accepts(subject, None):
            return
        sent = dest.deliver_stored(self._stream, subject, messages)
        if sent is None:
            told = messages.one_by_one()
            count = dest.deliver_all_of(self._stream, subject, told)
            sent = count, sum(len(header) + len(payload) for _, header, payload in told[:count])
        self.left_out = self.left_out or sent[0] < len(messages)
        self.account.out_msgs += sent[0]
        self.account.out_bytes += sent[1]

    def _count(self, sub: "Subscription", dest: "FastTarget", count: int, size: int) -> None:
        """Count messages in a connection's buffer; `size`: their bytes of header and payload."""
        if not dest.dirty:
            dest.dirty = True
            self.consumer.broker.mark_dirty(dest)
        sub.delivered += count
        dest.out_msgs += count
        dest.out_bytes += size
        self.account.out_msgs += count
        self.account.out_bytes += size

    def send_all(self, route: "Route", messages: "list[StoredMessage]", cseq: int, pending: int) -> None:
        """Send first deliveries; `cseq`: consumer sequence of the first one, `pending`: the count before it.

        Where the route ends at one client connection, the usual case, the frames are built here and appended to its
        buffer in one piece. One leaf link gets them together.
        """
        target = self.plain_target(route)
        if isinstance(target, LeafMember):
            self._send_to_leaf(target, messages, cseq, pending)
            return
        if target is None:
            for message in messages:
                pending -= 1
                self.send(route, message, self.ack_reply(message, cseq, 1, pending))
                cseq += 1
            return
        sub, dest = target
        sid, prefix = sub.sid, self.prefix
        frames = []
        size = 0
        for message in messages:
            pending -= 1
            header, payload = message.header, message.payload
            reply = b"%b1.%d.%d.%d.%d" % (prefix, message.seq, cseq, message.ts_ns, pending)
            if header:
                total = len(header) + len(payload)
                frames.append(
                    b"HMSG %b %b %b %d %d\r\n%b%b\r\n"
                    % (message.subject, sid, reply, len(header), total, header, payload)
                )
            else:
                total = len(payload)
                frames.append(b"MSG %b %b %b %d\r\n%b\r\n" % (message.subject, sid, reply, total, payload))
            size += total
            cseq += 1
        dest.out.extend(b"".join(frames))
        self._count(sub, dest, len(messages), size)

    def _send_to_leaf(self, leaf: "LeafMember", messages: "list[StoredMessage]", cseq: int, pending: int) -> None:
        """Send as `Account.deliver` would, all at once: the reply carries the message's own subject."""
        dest, prefix = leaf.dest, self.prefix
        if not dest.accepts(leaf.subject, None):
            return
        told = [
            (
                b"%b1.%d.%d.%d.%d@%b"
                % (prefix, message.seq, at + cseq, message.ts_ns, pending - at - 1, message.subject),
                message.header,
                message.payload,
            )
            for at, message in enumerate(messages)
        ]
        sent = dest.deliver_all_of(self._stream, leaf.subject, told)
        self.left_out = self.left_out or sent < len(messages)
        self.account.out_msgs += sent
        self.account.out_bytes += sum(len(message.header) + len(message.payload) for message in messages)

    def backlogged(self, route: "Route", now: float) -> bool:
        """Return whether a receiver on the route has a backlog, or a link's policy holds the stream back.

        Sets `resume_at`, and `held` with the policy.
        """
        hold = _hold(route, self._stream, self._backlog_max)
        self._allowance = _allowance(route, self._stream) if hold is None else 0
        self.held = "" if hold is None or hold is FULL else hold.reason
        if hold is None:
            self._backlog_pause_s = 0.0
            return False
        if hold is not FULL:
            self.resume_at = now + min(hold.wait_s, LOOK_AGAIN_S)
            return True
        self.resume_at = now + self._backlog_pause_s
        if self._backlog_pause_s:
            is_told = True
            for dest in _receivers(route):
                room = getattr(dest, "room", None)
                if room is not None:
                    room.wait(self._look_again)
                # What a link holds for others may go without being sent.
                is_told = is_told and room is not None and dest.kind is Kind.CLIENT
            if is_told:
                self.resume_at = now + TOLD_S_MAX
        self._backlog_pause_s = min(max(self._backlog_pause_s * 2, BACKLOG_PAUSE_S_MIN), BACKLOG_PAUSE_S_MAX)
        return True

    def _look_again(self) -> None:
        """Have the consumer run in the next turn."""
        self.consumer.broker.timers.call_later(0.0, self.consumer.mark)

    def within_allowance(self, messages: "list[StoredMessage]") -> int:
        """Return how many of `messages` may leave before links reach their allowance (at least one). Call after `backlogged`."""
        left = self._allowance
        if left >= UNLIMITED:
            return len(messages)
        for index, message in enumerate(messages):
            left -= self.size_of(message)
            if left < 0:
                return max(1, index)
        return len(messages)

    def cut_to_allowance(self, run: "StoredRun") -> None:
        """Drop from a run what exceeds the allowance."""
        if self._allowance < UNLIMITED:
            run.cut(max(1, bisect_right(run.sizes(self.overhead), self._allowance)))

    # -- life cycle --------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Start over after a reset of the consumer."""

    def config_changed(self) -> None:
        self._headers_only = self.consumer.config.headers_only
        self.reader = self.consumer.reader
