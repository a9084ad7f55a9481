"""Delivery to pull requests, redeliveries first, within `max_ack_pending`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.consumer.delivery import NEVER, TURN_MESSAGES_MAX, Delivery
from eyot_daemon.jetstream.consumer.local_delivery import LocalDelivery
from eyot_daemon.jetstream.consumer.pull import (
    API_LEVEL,
    CONSUMER_DELETED,
    PullQueue,
    PullRequest,
    RefusedRequest,
    check_limits,
    check_priority,
    read_request,
)
from eyot_daemon.jetstream.nats_headers import level_is_offered
from eyot_wire.jetstream.consumer import NextRequest
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.acks import Acks
    from eyot_daemon.jetstream.consumer.core import ConsumerCore
    from eyot_daemon.jetstream.consumer.delivery import PlainTarget
    from eyot_store import StoredMessage

#: Priority policies by which a request may wait although there are messages.
CHOOSY = ("overflow", "pinned_client")


class PullDelivery(Delivery):
    """The pull side of a consumer."""

    def __init__(self, consumer: "ConsumerCore", acks: "Acks", sent: "Callable[[float], None]") -> None:
        super().__init__(consumer, acks, sent)
        config = consumer.config
        self.queue = PullQueue(
            config.max_waiting,
            self.account.has_interest,
            nuid,
            policy=config.priority_policy,
            pin_ttl_s=config.priority_timeout / 1e9,
        )
        self.queue.last_active = consumer.clock.monotonic()
        #: Receivers within the daemon; None without any.
        self.local: LocalDelivery | None = None

    @property
    def idle(self) -> bool:
        """Return whether no request waits: a wake-up would have nothing to do."""
        return not len(self.queue) and (self.local is None or self.local.idle)

    def receivers(self) -> LocalDelivery:
        """Return the delivery to receivers within the daemon."""
        if self.local is None:
            self.local = LocalDelivery(self, self._acks, self._sent)
        return self.local

    @property
    def active(self) -> bool:
        return len(self.queue) > 0

    # -- requests --------------------------------------------------------------------------------------------------

    def request(self, reply: bytes, header: bytes, body: bytes) -> None:
        """Add a pull request (or the request part of `+NXT`). Served when the turn ends."""
        if not reply:
            return
        config = self.consumer.config
        try:
            if not level_is_offered(header):
                raise RefusedRequest(API_LEVEL)
            wanted = read_request(body)
            check_limits(wanted, config.max_batch, config.max_expires, config.max_bytes)
            if body.lstrip().startswith(b"{"):  # a number has no priorities, and is accepted
                check_priority(wanted, config.priority_policy, config.priority_groups)
        except RefusedRequest as refused:
            self.account.publish(reply, header=refused.header)
            return
        if wanted.no_wait:
            # Messages published before the request count, even if they are not on flash yet.
            self.consumer.stream.after_commits(lambda _: self._add(wanted, reply))
        else:
            self._add(wanted, reply)

    def _add(self, wanted: NextRequest, reply: bytes) -> None:
        if self.consumer.closed:
            return
        now = self.consumer.clock.monotonic()
        available = self.reader.pending(self.state.delivered_sseq) + self.state.queued if wanted.no_wait else 0
        try:
            self.queue.add(wanted, reply, now, available, self._delivered())
        except RefusedRequest as refused:
            self.account.publish(reply, header=refused.header)
        self._publish_statuses()
        self.consumer.mark()

    # -- delivering ------------------------------------------------------------------------------------------------

    def run(self, now: float) -> None:
        """Deliver what may be delivered to the waiting requests."""
        self.resume_at = NEVER
        if self.local is not None:
            self.local.run(now)
        queue = self.queue
        budget = TURN_MESSAGES_MAX
        exhausted = False
        while len(queue) and self.resume_at == NEVER:
            if budget <= 0:
                self.resume_at = now
                break
            used = self._redeliver(now) if self.state.queued else 0
            if not used and not self.state.queued:
                used, exhausted = self._deliver_new(budget, now)
            if not used:
                # Requests that wait because it is not for them that messages wait end as if there were none.
                ready = self.state.queued or self.state.room()
                if queue.policy in CHOOSY and self.resume_at == NEVER and ready:
                    exhausted = True
                break
            budget -= used
        if budget < TURN_MESSAGES_MAX:
            self._sent(now)
        if len(queue):
            queue.sweep(now, exhausted, self._delivered())
        self._publish_statuses()

    def _redeliver(self, now: float) -> int:
        """Redeliver one message; return 0 when no request is open for it."""
        state = self.state
        sseq = state.next_redelivery()
        if not sseq:
            return 0
        message = self.read_again(sseq, now)
        if message is None:
            return 1
        pending = self.reader.pending(state.delivered_sseq)
        reply = self.ack_reply(message, state.delivered_cseq + 1, state.deliveries(sseq) + 1, pending)
        request = self.queue.take(self.exact_size(message, reply), now, pending + 1, state.num_ack_pending)
        self._publish_statuses()
        if request is None:
            return 0
        self.account_again(sseq, now)
        self._hand_over(request, message, reply)
        return 1

    def _deliver_new(self, budget: int, now: float) -> tuple[int, bool]:
        """Deliver new messages; return the used budget, and whether there is nothing more to deliver."""
        room = self.state.room()
        if not room:
            return 0, False
        wanted = min(self.queue.demand(), room, budget)
        request = self.queue.solo(now)
        if request is not None:
            used = self._deliver_run(request, wanted, now)
            if used is not None:
                return used
        else:
            requests = self.queue.in_turn(now)
            target = self._one_client(requests)
            if target is not None:
                used = self._deliver_in_turn(target, wanted, now)
                if used is not None:
                    return used
                wanted = min(wanted, len(requests))  # one of them is completed
        messages, upto = self.read_new(wanted, now)
        if not messages:
            return self.found_nothing(upto)
        given = self._give_solo(messages, upto, now)
        return self._give_in_turn(messages, upto, now) if given is None else given, False

    def _deliver_run(self, request: PullRequest, count: int, now: float) -> tuple[int, bool] | None:
        """Do as `_deliver_new` when messages only need to be copied to one client or link with the only request; otherwise None."""
        route = self.account.route(request.reply)
        target = self.plain_target(route)
        found = None if target is None else self.read_run(count, now)
        if target is None or found is None:
            return None
        run, upto = found
        read = len(run)
        if not read:
            return self.found_nothing(upto)
        if self.backlogged(route, now):
            return 0, False
        run.cut(max(1, min(request.batch, read)))
        self.cut_to_allowance(run)
        pending = self.reader.pending(self.state.delivered_sseq)
        cseq = self.account_for(run.seqs(), upto, now, more=len(run) < read)
        self.queue.served(request, len(run), now)
        self.send_run(target, run, 0, len(run), cseq, pending)
        return len(run), False

    def _one_client(self, requests: "Sequence[PullRequest]") -> "PlainTarget | None":
        """Return the plain client of all these requests, if they share one subscription: it gets the same in any order."""
        found = None
        for request in requests:
            target = self.plain_target(self.account.route(request.reply))
            if not isinstance(target, tuple) or (found is not None and found[0] is not target[0]):
                return None
            found = target
        return found

    def _deliver_in_turn(self, target: "PlainTarget", count: int, now: float) -> tuple[int, bool] | None:
        """Do as `_deliver_new` for unconditional requests of one plain client, while none is completed; otherwise None."""
        found = self.read_run(count, now)
        if found is None:
            return None
        run, upto = found
        read = len(run)
        if not read:
            return self.found_nothing(upto)
        if self.backlogged(self.account.route(next(iter(self.queue)).reply), now):
            return 0, False
        self.cut_to_allowance(run)
        pending = self.reader.pending(self.state.delivered_sseq)
        sizes = run.delivery_sizes(self.prefix, self.state.delivered_cseq + 1, pending)
        shared = self.queue.shared(sizes)
        if not shared:
            return None
        run.cut(shared)
        cseq = self.account_for(run.seqs(), upto, now, more=shared < read)
        self.queue.hand_out(sizes[:shared], now)
        self.send_run(target, run, 0, shared, cseq, pending)
        return shared, False

    def _give_solo(self, messages: "list[StoredMessage]", upto: int, now: float) -> int | None:
        """Deliver all that may go to the only request, and remove the rest from `messages`; None if it has conditions."""
        request = self.queue.solo(now)
        if request is None:
            return None
        route = self.account.route(request.reply)
        if self.backlogged(route, now):
            return 0
        read = len(messages)
        del messages[max(1, request.batch) :]
        del messages[self.within_allowance(messages) :]
        pending = self.reader.pending(self.state.delivered_sseq)
        cseq = self.account_for([message.seq for message in messages], upto, now, more=len(messages) < read)
        self.queue.served(request, len(messages), now)
        self.send_all(route, messages, cseq, pending)
        return len(messages)

    def _give_in_turn(self, messages: "list[StoredMessage]", upto: int, now: float) -> int:
        """Deliver message by message in turn."""
        state = self.state
        pending = self.reader.pending(state.delivered_sseq)
        given = 0
        for message in messages:
            reply = self.ack_reply(message, state.delivered_cseq + 1, 1, pending - 1)
            request = self.queue.take(self.exact_size(message, reply), now, pending, state.num_ack_pending)
            self._publish_statuses()
            if request is None:
                break
            pending -= 1
            given += 1
            self.account_for((message.seq,), upto, now, more=given < len(messages))
            self._hand_over(request, message, reply)
        return given

    def _hand_over(self, request: PullRequest, message: "StoredMessage", reply: bytes) -> None:
        route = self.account.route(request.reply)
        self.send(route, message, reply, request.pin_id if self.queue.policy == "pinned_client" else None)
        completed = self.queue.batch_completed(request)
        if completed:
            self.account.publish(request.reply, header=completed)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        return min(self.resume_at, self.queue.next_deadline)

    def tick(self, now: float) -> None:
        """Time has passed: the pin of a client that was silent too long ends. Requests are swept by `run`."""
        pin = self.queue.pin
        if now >= pin.until:
            group = pin.group
            self.queue.unpin()
            self.consumer.advisories.unpinned(group, "timeout")

    def sweep(self, now: float) -> None:
        """Answer expired requests and send heartbeats, delivering nothing (while paused); those that do not wait end."""
        self.queue.sweep(now, self.consumer.paused, self._delivered())
        self._publish_statuses()

    def last_active(self, now: float) -> float:
        """Return when the consumer was last in use: now, if a request waits."""
        if len(self.queue):
            self.sweep(now)
            self.queue.drop_unheard()
            if len(self.queue):
                self.queue.last_active = now
        return self.queue.last_active

    def num_waiting(self) -> int:
        """Return the number of requests that have not expired and whose clients are present."""
        self.sweep(self.consumer.clock.monotonic())
        self.queue.drop_unheard()
        return len(self.queue)

    def unpin(self, group: str) -> None:
        """Handle CONSUMER.UNPIN: remove the pin, if any; publish the advisory in any case."""
        self.queue.unpin()
        self.consumer.advisories.unpinned(group, "admin")
        self.consumer.mark()

    def end(self, *, deleted: bool) -> None:
        """Inform the waiting requests that the consumer ends."""
        self.queue.end_all(lambda request: CONSUMER_DELETED if deleted else request.status("409 Server Shutdown"))
        self._publish_statuses()

    def config_changed(self) -> None:
        super().config_changed()
        config = self.consumer.config
        self.queue.policy = config.priority_policy
        self.queue.pin_ttl_s = config.priority_timeout / 1e9

    # -- inside ----------------------------------------------------------------------------------------------------

    def _delivered(self) -> tuple[int, int]:
        return self.state.delivered_cseq, self.state.delivered_sseq

    def _publish_statuses(self) -> None:
        """Publish the statuses of the queue."""
        queue = self.queue
        if queue.out:
            out, queue.out = queue.out, []
            for reply, header in out:
                self.account.publish(reply, header=header)
        if queue.pinned:
            pinned, queue.pinned = queue.pinned, []
            for pin_id in pinned:
                self.consumer.advisories.pinned(queue.pin.group, pin_id)
