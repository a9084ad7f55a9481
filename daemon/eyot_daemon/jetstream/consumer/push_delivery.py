"""Delivery to a deliver subject with a subscriber, within window, rate and pace, with heartbeats.

Limits of a push consumer: the flow-control window, and the rate limit. Pure; times in monotonic seconds.

Flow control (ADR-15 and nats-server): every delivery counts towards the bytes in flight. When more than half of the
window is in flight, one request is sent on the deliver subject, with its name as reply subject. The answer subtracts
what was in flight at the request, and doubles the window up to its limit. Above the window nothing is delivered, and
heartbeats name the subject of the awaited answer, in case request or answer were lost.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.consumer.delivery import NEVER, TURN_MESSAGES_MAX, Delivery
from eyot_daemon.jetstream.deliver_subject import has_interest, idle_heartbeat, interest_of
from eyot_daemon.jetstream.downstream.tracker import CONFIRM_WITHIN_S
from eyot_daemon.jetstream.downstream.uncertainty import SuspectResume
from eyot_daemon.jetstream.sourcing.positions import UpstreamPositions, asks_upstream_positions
from eyot_sync.sourcing.actions import CONFIRMED_CONSUMER
from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.acks import Acks
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_daemon.jetstream.consumer.delivery import PlainTarget
    from eyot_daemon.jetstream.downstream.downstream import HiddenConsumer
    from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker
    from eyot_store import StoredMessage
    from eyot_wire.native import StoredRun

#: The largest window, bytes.
WINDOW_MAX = 32 * 1024 * 1024
#: A window starts at this fraction of the largest one.
WINDOW_START = 16

#: In a receiver's answer (2.14, Eyot): its number of received deliveries.
LAST_CONSUMER = b"Nats-Last-Consumer"
#: In an acknowledging receiver's answer: the last stream sequence that it has processed (2.14).
LAST_STREAM = b"Nats-Last-Stream"
FLOW_CONTROL_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


class FlowControl:
    """The window of one push consumer. `awaited`: the subject of the pending answer, b"": none."""

    __slots__ = ("_asked_for", "awaited", "in_flight", "limit", "window")

    def __init__(self, limit: int = WINDOW_MAX) -> None:
        self.limit = limit
        self.window = max(1, limit // WINDOW_START)
        self.in_flight = 0
        self.awaited = b""
        self._asked_for = 0

    @property
    def stalled(self) -> bool:
        """Return whether deliveries must wait for an answer."""
        return self.in_flight > self.window

    def delivered(self, size: int) -> bool:
        """`size` bytes left; True if a request should follow them (`ask`)."""
        self.in_flight += size
        return not self.awaited and self.in_flight > self.window // 2

    def ask(self, subject: bytes) -> None:
        """Note that the request named `subject` is sent now."""
        self.awaited = subject
        self._asked_for = self.in_flight

    def answered(self, subject: bytes) -> bool:
        """Process an answer; return False if it is not the awaited one."""
        if subject != self.awaited:
            return False
        self.window = min(self.window * 2, self.limit)
        self.in_flight = max(0, self.in_flight - self._asked_for)
        self.awaited = b""
        self._asked_for = 0
        return True

    def reset(self) -> None:
        """Start over with a new subscriber: nothing is in flight to it."""
        self.window = max(1, self.limit // WINDOW_START)
        self.in_flight = 0
        self.awaited = b""
        self._asked_for = 0


class RateLimit:
    """A bucket of bytes that fills at `bits_per_s`. A message may overdraw it; the next one waits for the balance."""

    __slots__ = ("_balance", "_burst", "_filled_at", "_rate")

    def __init__(self, bits_per_s: int, now: float) -> None:
        self._rate = max(1.0, bits_per_s / 8)
        self._burst = self._rate  # one second's worth
        self._balance = self._burst
        self._filled_at = now

    def wait_s(self, now: float) -> float:
        """Return how long the next message must wait; 0: it may leave now."""
        self._balance = min(self._burst, self._balance + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return 0.0 if self._balance > 0 else -self._balance / self._rate + 1e-6

    def spend(self, size: int) -> None:
        self._balance -= size


#: Gaps between messages shorter than this are not replayed, seconds.
REPLAY_GAP_S_MIN = 0.001


class PushDelivery(Delivery):
    """The push side of a consumer."""

    def __init__(
        self,
        consumer: "ConsumerCore",
        acks: "Acks",
        sent: "Callable[[float], None]",
        downstream: "DownstreamTracker",
        hidden: "HiddenConsumer",
    ) -> None:
        """`downstream` tracks the downstream of a hidden consumer, which it knows as `hidden`: the consumer itself."""
        super().__init__(consumer, acks, sent)
        self._downstream = downstream
        self._hidden = hidden
        config = consumer.config
        now = consumer.clock.monotonic()
        self._subject = config.deliver_subject.encode()
        self._group = config.deliver_group.encode()
        self._heartbeat_s = config.idle_heartbeat / 1e9
        self._last_sent = now
        self.active = False
        self.inactive_since = now
        self.flow = FlowControl() if config.flow_control else None
        self._flow_acks = config.ack_policy == "flow_control"
        #: Last sequence sent at the latest flow-control request, and at the latest answered one: what the receiver has.
        self._asked_sseq = self._asked_cseq = 0
        self._asked_at = now
        self.confirmed_sseq = 0
        self.begun_after = consumer.state.delivered_sseq
        self._flow_prefix = b"$JS.FC.%b.%b." % (consumer.stream.name.encode(), consumer.name.encode())
        self._rate = RateLimit(config.rate_limit_bps, now) if config.rate_limit_bps else None
        # `original` replay keeps the pace of the messages that existed when it began; it catches up with the present
        self._replay_upto = consumer.stream.log.state.last_seq if config.replay_policy == "original" else 0
        self._replay_last_ns = 0
        self._replay_at = 0.0
        self._suspect_resume: SuspectResume | None = None
        self._is_starting = False
        self.upstream_positions: UpstreamPositions | None = None
        if asks_upstream_positions(config):
            self.upstream_positions = UpstreamPositions(consumer.stream.log)
            downstream.records.asked_by_mirror()
        interest_of(self.account).watch(self._subject, self)

    def _pass_over(self, sseq: int) -> None:
        super()._pass_over(sseq)
        if self.consumer.config.direct:
            self._downstream.passed_over(self._hidden, sseq)

    @property
    def idle(self) -> bool:
        """Return whether there is no subscriber: a wake-up would have nothing to do."""
        return not self.active

    # -- interest --------------------------------------------------------------------------------------------------

    def interest_changed(self) -> None:
        """Note a changed subscription; processed when the turn ends."""
        self.consumer.mark()

    @property
    def bound(self) -> bool:
        """Return whether there is a subscriber at present."""
        return has_interest(self.account, self._subject, self._group, copied=self.consumer.config.direct)

    def _look_for_interest(self, now: float) -> None:
        active = self.bound
        if active == self.active:
            return
        self.active = active
        if active:
            self._last_sent = now
            if self.consumer.config.direct:
                self._begin_copy(now)
        else:
            self.inactive_since = now
            self._suspect_resume = None
            if self.consumer.config.direct:
                self._downstream.left(self._hidden)
            if self.flow is not None:
                self.flow.reset()

    def _begin_copy(self, now: float) -> None:
        """Start serving a downstream, which has subscribed."""
        copied = self._downstream
        if copied.is_uncertain(self._hidden):
            self._suspect_resume = SuspectResume(now)
        else:
            self._start_copy()

    def _start_copy(self) -> None:
        """Start deliveries to an accepted downstream, once that is recorded."""
        self._is_starting = True
        self._downstream.reading(self._hidden, self._copy_started)

    def _copy_started(self) -> None:
        self._is_starting = False
        self.consumer.mark()

    def _is_doubted(self, now: float) -> bool:
        """Return whether a downstream must resume again before it gets messages that it has confirmed."""
        asked = self._suspect_resume
        if asked is None or not self.active:
            return False
        copied = self._downstream
        if asked.is_over(now):
            self._suspect_resume = None
            self._start_copy()
            return False
        if asked.is_due(now):
            copied.tell_to_ask(self._subject)
        self.resume_at = asked.next_at
        return True

    # -- delivering ------------------------------------------------------------------------------------------------

    def run(self, now: float) -> None:
        """Deliver what may be delivered."""
        self.resume_at = NEVER
        self._look_for_interest(now)
        if self._is_doubted(now) or self._is_starting:
            return
        budget = TURN_MESSAGES_MAX
        while self.active and not self._held_back(now):
            if budget <= 0:
                self.resume_at = now
                break
            if self.state.queued:
                used = self._redeliver(now)
            else:
                used = self._deliver_new(budget, now)
            if not used:
                break
            budget -= used
            if not self.state.queued and self.state.delivered_sseq >= self.consumer.stream.log.committed_seq:
                break  # nothing more: an empty read costs as much as one message
        if budget < TURN_MESSAGES_MAX:
            self._sent(now)
        if self._flow_acks and self.active and self.state.num_ack_pending * 2 >= self.consumer.config.max_ack_pending:
            self._ask_how_far()

    def _ask_how_far(self) -> None:
        """Request the receiver's position (acknowledging flow control): before the window is full, and with every heartbeat."""
        if self.flow is not None and not self.flow.awaited and self.state.num_ack_pending:
            self._ask_flow_control(self.flow)

    def _held_back(self, now: float) -> bool:
        """Window, rate, pace or a subscriber's full buffer forbid the next delivery for now."""
        if self.resume_at != NEVER:
            return True
        if self.flow is not None and self.flow.stalled:
            return True
        if self.backlogged(self.account.route(self._subject), now):
            return True
        if now < self._replay_at:
            self.resume_at = self._replay_at
            return True
        if self._rate is not None:
            wait_s = self._rate.wait_s(now)
            if wait_s > 0:
                self.resume_at = now + wait_s
                return True
        return False

    def _redeliver(self, now: float) -> int:
        state = self.state
        sseq = state.next_redelivery()
        if not sseq:
            return 1
        message = self.read_again(sseq, now)
        if message is None:
            return 1
        pending = self.reader.pending(state.delivered_sseq)
        cseq, deliveries = self.account_again(sseq, now)
        self.send(self.account.route(self._subject), message, self.ack_reply(message, cseq, deliveries, pending))
        self._last_sent = now
        size = self.size_of(message)
        if self._rate is not None:
            self._rate.spend(size)
        if self.flow is not None and self.flow.delivered(size):
            self._ask_flow_control(self.flow)
        return 1

    def _deliver_new(self, budget: int, now: float) -> int:
        room = self.state.room()
        if not room:
            return 0
        one_by_one = self._rate is not None or self.state.delivered_sseq < self._replay_upto
        if not one_by_one:
            used = self._deliver_run(min(room, budget), now)
            if used is not None:
                return used
        messages, upto = self.read_new(min(room, budget, 16 if one_by_one else budget), now)
        if not messages:
            return self.found_nothing(upto)[0]
        count = len(messages)
        admitted = self._admitted(messages, now) if one_by_one else self._within_window(messages)
        if admitted:
            admitted = min(admitted, self.within_allowance(messages))
        del messages[admitted:]
        if not messages:
            return 0
        pending = self.reader.pending(self.state.delivered_sseq)
        cseq = self.account_for([message.seq for message in messages], upto, now, more=len(messages) < count)
        self._push_all(messages, cseq, pending)
        self._pushed(now)
        return len(messages)

    def _deliver_run(self, count: int, now: float) -> int | None:
        """Do as `_deliver_new` when messages only need to be copied to one client or link; otherwise None."""
        target = self.plain_target(self.account.route(self._subject))
        found = None if target is None else self.read_run(count, now)
        if target is None or found is None:
            return None
        run, upto = found
        read = len(run)
        if not read:
            return self.found_nothing(upto)[0]
        if self.flow is not None:
            left = self.flow.window - self.flow.in_flight
            run.cut(bisect_right(run.sizes(self.overhead), left) + 1)
        self.cut_to_allowance(run)
        pending = self.reader.pending(self.state.delivered_sseq)
        cseq = self.account_for(run.seqs(), upto, now, more=len(run) < read)
        self._push_run(target, run, cseq, pending)
        self._pushed(now)
        return len(run)

    def _push_run(self, target: "PlainTarget", run: "StoredRun", cseq: int, pending: int) -> None:
        """Send first deliveries, with the flow-control request where half of the window is passed."""
        start, stop, flow = 0, len(run), self.flow
        if flow is not None:
            sizes = run.sizes(self.overhead)
            sent = 0
            while start < stop:
                half = sent + flow.window // 2 - flow.in_flight
                index = stop if flow.awaited else bisect_right(sizes, half, start)
                if index >= stop:
                    flow.delivered(sizes[-1] - sent)
                    break
                flow.delivered(sizes[index] - sent)
                sent = sizes[index]
                self.send_run(target, run, start, index + 1, cseq + start, pending - start)
                start = index + 1
                self._ask_flow_control(flow, run.seq(index), cseq + index)
        if start < stop:
            self.send_run(target, run, start, stop, cseq + start, pending - start)

    def _push_all(self, messages: "list[StoredMessage]", cseq: int, pending: int) -> None:
        """Send first deliveries, with the flow-control request where half of the window is passed."""
        route = self.account.route(self._subject)
        start = 0
        flow, rate = self.flow, self._rate
        if flow is not None or rate is not None:
            for index, message in enumerate(messages):
                size = self.size_of(message)
                if rate is not None:
                    rate.spend(size)
                if flow is not None and flow.delivered(size):
                    self.send_all(route, messages[start : index + 1], cseq + start, pending - start)
                    start = index + 1
                    self._ask_flow_control(flow, message.seq, cseq + index)
        if start < len(messages):
            self.send_all(route, messages[start:], cseq + start, pending - start)

    def _pushed(self, now: float) -> None:
        """Note that first deliveries left now."""
        self._last_sent = now
        self._ask_to_confirm(now)

    def _ask_to_confirm(self, now: float) -> None:
        """Request a downstream's position now and then, with any window: status shows its progress."""
        flow, delivered = self.flow, self.state.delivered_sseq
        if flow is None or flow.awaited or not self.consumer.config.direct or delivered <= self.confirmed_sseq:
            return
        if now >= self._asked_at + CONFIRM_WITHIN_S:
            self._ask_flow_control(flow)

    def _ask_flow_control(self, flow: FlowControl, sseq: int = 0, cseq: int = 0) -> None:
        """`sseq`, `cseq`: the last delivery that the answer confirms; 0: the last of all."""
        self._asked_sseq = sseq or self.state.delivered_sseq
        self._asked_cseq = cseq or self.state.delivered_cseq
        self._asked_at = self.consumer.clock.monotonic()
        subject = self._flow_prefix + short_id(length=4).encode()
        flow.ask(subject)
        header = FLOW_CONTROL_REQUEST
        if self.upstream_positions is not None:
            header = header[:-2] + self.upstream_positions.news() + b"\r\n"
        self.account.publish(self._subject, reply=subject, header=header)

    def _within_window(self, messages: "list[StoredMessage]") -> int:
        """Return how many of `messages` may leave before the flow-control window is full (at least one)."""
        flow = self.flow
        if flow is None:
            return len(messages)
        left = flow.window - flow.in_flight
        for index, message in enumerate(messages):
            left -= self.size_of(message)
            if left < 0:
                return index + 1
        return len(messages)

    def _admitted(self, messages: "list[StoredMessage]", now: float) -> int:
        """Return the deliverable messages; with a rate or original pace, the first one if it is due."""
        first = messages[0]
        if first.seq <= self._replay_upto:
            before, self._replay_last_ns = self._replay_last_ns, first.ts_ns
            gap_s = (first.ts_ns - before) / 1e9 if before else 0.0
            if gap_s > REPLAY_GAP_S_MIN:
                self._replay_at = self.resume_at = now + gap_s
                return 0
        return 1

    def flow_answered(self, subject: bytes, header: bytes) -> None:
        """Process a flow-control answer; an acknowledging one contains the receiver's position."""
        if self.flow is None or not self.flow.answered(subject):
            return
        seq = self._confirmed_by(header) if self.consumer.config.direct else 0
        if seq:
            self.confirmed_sseq = max(self.confirmed_sseq, seq)
            self._downstream.confirmed(self._hidden, seq)
        if self._flow_acks:
            last = parse_uint(headers.get(header, LAST_STREAM) or b"")
            if last is not None:
                self._acks.received_up_to(last)
        self.consumer.mark()

    def _confirmed_by(self, header: bytes) -> int:
        """Return the sequence up to which an answer confirms everything; 0: it confirms nothing.

        What a link dropped right before the request is not confirmed: the receiver answers before it notices the gap,
        and requests from there. It has everything that its request resumed after.
        """
        if not self._is_believed(header):
            return 0
        told = _position(header, LAST_CONSUMER)
        if self._asked_cseq <= told if told is not None else not self.left_out:
            return self._asked_sseq
        return min(self._asked_sseq, max(self.begun_after, _position(header, LAST_STREAM) or 0))

    def _is_believed(self, header: bytes) -> bool:
        """Return whether an answer comes from the receiver of this consumer's messages.

        The link of the present subscriber says whose an answer is. One that came behind the end of its subscription (LS-)
        or of its link says nothing; the downstream is asked again when it is back. nats-server's mirrors and sources
        answer every request on their deliver subject, also that of a second server of the same domain whose messages
        they do not accept.
        """
        if not self.bound:
            return False
        consumer = headers.get(header, CONFIRMED_CONSUMER)
        if consumer is not None:
            return consumer == self.consumer.name.encode()
        told = _position(header, LAST_CONSUMER)
        if told is not None and not self._asked_cseq <= told <= self.consumer.state.delivered_cseq:
            return False
        return not self._has_twin()

    def _has_twin(self) -> bool:
        """Return whether the subscriber is behind a link where another server serves this one's domain."""
        links = self.consumer.broker.leaf_connections()
        twins = {id(link) for link in links if link.state.twin}
        return bool(twins) and any(id(leaf.dest) in twins for leaf in self.account.route(self._subject).leaf_links)

    def reset(self) -> None:
        """Start over after a reset of the consumer."""
        if self.flow is not None:
            self.flow.reset()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        if self.active and self._heartbeat_s:
            return min(self.resume_at, self._last_sent + self._heartbeat_s)
        return self.resume_at

    def tick(self, now: float) -> None:
        """Time has passed: heartbeat if nothing else was sent for that long."""
        if not self.active or not self._heartbeat_s or now < self._last_sent + self._heartbeat_s:
            return
        state, flow = self.state, self.flow
        stalled_on = flow.awaited if flow is not None else b""
        held = self.reader.pending(state.delivered_sseq) if self.consumer.config.direct or self._flow_acks else 0
        header = idle_heartbeat(state.delivered_cseq, state.delivered_sseq, stalled_on, held)
        self.account.publish(self._subject, header=header)
        self._last_sent = now
        if self._flow_acks:
            self._ask_how_far()
        self._ask_to_confirm(now)

    def sweep(self, now: float) -> None:
        """Check the subscriber and send heartbeats while paused."""
        self._look_for_interest(now)

    def last_active(self, now: float) -> float:
        """Return when the consumer was last in use: now, with a subscriber."""
        self._look_for_interest(now)
        return now if self.active else self.inactive_since

    def end(self, *, deleted: bool) -> None:
        interest_of(self.account).unwatch(self._subject, self)

    def config_changed(self) -> None:
        super().config_changed()
        config = self.consumer.config
        now = self.consumer.clock.monotonic()
        self._rate = RateLimit(config.rate_limit_bps, now) if config.rate_limit_bps else None
        subject = config.deliver_subject.encode()
        if subject != self._subject:
            interest_of(self.account).unwatch(self._subject, self)
            self._subject = subject
            interest_of(self.account).watch(subject, self)
        self._group = config.deliver_group.encode()


def _position(header: bytes, name: bytes) -> int | None:
    """Return a position in an answer's header; None: it names none."""
    value = headers.get(header, name)
    return None if value is None else parse_uint(value)
