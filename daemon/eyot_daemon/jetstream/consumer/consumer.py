"""A consumer: its configuration and state, bound to a stream, an account and the clock.

Decisions are made elsewhere: by the delivery state (`jetstream/consumer/state.py`), the reader, the pull queue, the
flow-control window. This module combines them. Every event (an acknowledgement, a pull request, a commit of its stream,
a subscription, a timer) is noted at once and processed when the turn ends (`flush`): deliver what may be delivered,
submit the changed state to the store, set the one timer.

Life cycle: created by `Consumers` (create or restore), `start`, and then `delete` (API or inactivity),
`stream_deleted`, `not_created`, or `stop`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.config.rules import DAEMON_STREAMS, INTERNAL, answered
from eyot_daemon.jetstream.consumer.acks import Acks
from eyot_daemon.jetstream.consumer.core import ConsumerCore
from eyot_daemon.jetstream.consumer.delivery import NEVER
from eyot_daemon.jetstream.consumer.pull_delivery import PullDelivery
from eyot_daemon.jetstream.consumer.push_delivery import PushDelivery
from eyot_daemon.jetstream.consumer.reader import ConsumerReader
from eyot_daemon.jetstream.consumer.removal_wait import LOOK_AGAIN_S, RemovalWait
from eyot_daemon.jetstream.consumer.state import ConsumerState, ack_rules
from eyot_daemon.jetstream.consumer.stored_state import StateWriter, encode_state
from eyot_daemon.jetstream.sourcing.positions import UpstreamPositions
from eyot_daemon.router.ack_sinks import Ack
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_store.errors import StoreError
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.model import ConsumerConfig, ConsumerInfo, PriorityGroupState, SequenceInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store import Txn

log = logging.getLogger("eyot.jetstream")

#: The longest interval between checks of a wall-clock time, because the clock may be set.
WALL_CHECK_S_MAX = 60.0

_ACK = b"ack"
_FLOW = b"fc"
_REMOVED = "Unacknowledged message was deleted"

Done = Callable[[StoreError | None], None]


class Consumer:
    """One consumer of one stream. Implements ConsumerPort towards the stream and Destination towards the broker."""

    kind = Kind.JETSTREAM

    def __init__(
        self,
        stream: "Stream",
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        reader: ConsumerReader,
        state: ConsumerState,
    ) -> None:
        self.stream = stream
        self.account = stream.account
        self.broker = stream.broker
        self.name = name
        self.created_ns = created_ns
        self.state = state
        state.keeps_given_up = stream.config.retention == "interest"
        core = self._core = ConsumerCore(stream.core, name, config, reader, state, self.mark)
        #: Only the daemon itself receives and acknowledges its messages.
        self.internal = stream.name in DAEMON_STREAMS and INTERNAL in config.metadata
        #: The configuration that is on flash.
        self.committed_config = config
        self.durable = not config.mem_storage and not config.direct and stream.log.durable
        self.path = core.path
        self.advisories = core.advisories
        self.writer = StateWriter(
            core, lambda seqs, txn: stream.consumer_acked(self, seqs, txn), persistent=self.durable
        )
        self.acks = Acks(core, self.writer, self.request_next, lambda sseq: stream.retention.is_leftover_of(self, sseq))
        self.push: PushDelivery | None = None
        self.pull: PullDelivery | None = None
        if config.deliver_subject:
            self.push = PushDelivery(core, self.acks, self.sent, stream.downstream, self)
        else:
            self.pull = PullDelivery(core, self.acks, self.sent)
        self.delivery: PushDelivery | PullDelivery = self.push or self.pull  # type: ignore[assignment]
        self._subs: list[Subscription] = []
        self._stores: list[list[Done]] = []  # few; an empty deque takes 700 bytes
        self._started = False
        self._marked = False
        self._timer: TimerHandle | None = None
        self._delivered_ns = 0
        self._acked_ns = 0
        self._was_paused = False
        self._held = 0  # announcements of its start that are in flight
        self._removal_wait: RemovalWait | None = None  # few need one

    def __repr__(self) -> str:
        return f"<Consumer {self.path}>"

    @property
    def config(self) -> ConsumerConfig:
        """The configuration in force."""
        return self._core.config

    @property
    def reader(self) -> ConsumerReader:
        return self._core.reader

    @property
    def closed(self) -> bool:
        """Deleted or stopped."""
        return self._core.closed

    @property
    def bound(self) -> bool:
        """Return whether this is a push consumer with a subscriber."""
        return self.push is not None and self.push.bound

    @property
    def upstream_positions(self) -> UpstreamPositions | None:
        """The stream's positions in its own origins, as sent to the mirror on this consumer; None: the mirror does not ask."""
        return self.push.upstream_positions if self.push is not None else None

    # -- life cycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen for acknowledgements and begin to deliver."""
        self._started = True
        stream, name = self.stream.name.encode(), self.name.encode()
        if self.config.ack_policy not in ("none", "flow_control") and not self.internal:
            subject = b"$JS.ACK.%b.%b.*.*.*.*.*" % (stream, name)
            sub = self.account.subscribe(subject, self, sid=_ACK)
            self._subs.append(sub)
            self.account.acknowledgement_sinks().register(sub, self)
        if self.config.flow_control:
            subject = b"$JS.FC.%b.%b.*" % (stream, name)
            self._subs.append(self.account.subscribe(subject, self, sid=_FLOW))
        self.mark()

    def delete(self, done: Done | None = None) -> None:
        """End the consumer and forget its state; `done` is called when that is on flash.

        If it fails, the consumer is served again as it is stored.
        """
        if self.closed:
            if done is not None:
                done(None)
            return

        def settle(failure: StoreError | None) -> None:
            if failure is not None and self.durable:
                self.stream.restore_consumer(self.name)
            if done is not None:
                done(failure)

        store = self.stream.store
        txn = store.begin()
        self.stage_delete(txn)
        store.submit(txn, settle)

    def stage_delete(self, txn: "Txn") -> None:
        """End the consumer, and stage that its state is forgotten; may be repeated in another transaction."""
        if not self.closed:
            self._close(deleted=True)
            self.advisories.deleted()
        if self.durable:
            self.stream.log.delete_consumer(txn, self.name)
        if self.stream.consumers.get(self.name) is self:
            self.stream.remove_consumer(self, txn)
        else:
            self.stream.retention.drop_unneeded(txn)

    def stream_deleted(self) -> list[Subscription]:
        """End with the stream. Return the subscriptions, for the caller to retire with those of all its consumers."""
        subs = self._end(deleted=True)
        self.advisories.deleted()
        return subs

    def not_created(self) -> None:
        """End: its creation failed, and nobody was told of it."""
        self._close(deleted=True)

    def discard(self) -> None:
        """End, and write nothing: what is in memory is not what is stored."""
        self._close(deleted=False)
        self.stream.remove_consumer(self)

    def stop(self) -> None:
        if not self.closed:
            self.writer.close(self.broker.clock.monotonic())
            self._close(deleted=False)

    def _close(self, *, deleted: bool) -> None:
        for sub in self._end(deleted=deleted):
            self.account.unsubscribe(sub)

    def _end(self, *, deleted: bool) -> list[Subscription]:
        """Stop delivering; return the subscriptions, which are still in the account."""
        self._core.closed = True
        self.delivery.end(deleted=deleted)
        subs = self._subs.copy()
        self._subs.clear()
        for sub in subs:
            self.account.acknowledgement_sinks().unregister(sub)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return subs

    # -- storing ---------------------------------------------------------------------------------------------------

    def encoded_state(self) -> bytes:
        """Return the present delivery state in its stored form."""
        clock = self.broker.clock
        return encode_state(self.state, clock.monotonic(), clock.now_ns())

    def storing(self, txn: "Txn", done: Done) -> None:
        """Hand in a transaction that writes this consumer's configuration."""
        callbacks = [done]
        self._stores.append(callbacks)

        def settle(failure: StoreError | None) -> None:
            self._stores.remove(callbacks)
            for callback in callbacks:
                callback(failure)

        self.stream.store.submit(txn, settle)

    def when_stored(self, done: Done) -> None:
        """Call `done` when the configuration in force is on flash."""
        if self._stores:
            self._stores[-1].append(done)
        else:
            done(None)

    # -- configuration ---------------------------------------------------------------------------------------------

    def update(self, config: ConsumerConfig) -> None:
        """Apply a checked configuration; the caller stores it."""
        old, self._core.config = self.config, config
        self.state.set_rules(ack_rules(config), self.broker.clock.monotonic())
        if (old.filter_subject, old.filter_subjects) != (config.filter_subject, config.filter_subjects):
            self._core.reader = ConsumerReader(self.stream.log, config)
            self.stream.retention.index.add(self)
        if config.pause_until != old.pause_until:
            self._was_paused = False  # the requester publishes the advisory
        self._core.read_pause()
        self.acks.config_changed()
        self.delivery.config_changed()
        self.mark()

    def reset(self, seq: int) -> int:
        """Continue at `seq` as a new consumer would, at 0 after the ack floor; return where it continues.

        The caller stores the result. Raises JetStreamError 10204 when the delivery policy does not allow that.
        """
        if seq:
            self.reader.check_reset(self.config, seq)
            self.reader.last_per_subject = None
        else:
            seq = self.state.ack_floor()[1] + 1
            self.reader.begin_again(seq - 1)
            self.find_earlier_lasts()
        self.acks.forget_all()
        self.state.reset(seq - 1)
        self.reader.gave_back()
        self.delivery.reset()
        self._delivered_ns = self._acked_ns = 0
        self.hold()
        return seq

    def hold(self) -> None:
        """Deliver nothing until `go_on`."""
        self._held += 1

    def go_on(self) -> None:
        """Resume deliveries after the announcement of the start was sent."""
        self._held -= 1
        self.mark()

    def find_earlier_lasts(self) -> None:
        """Deliver nothing until the list of `last_per_subject` is whole, which is begun anew."""
        if self.reader.earlier is not None:
            self.hold()
            self._find_earlier(self.reader)

    def _find_earlier(self, reader: ConsumerReader) -> None:
        if self.closed:
            return
        try:
            found = reader.find_earlier()
        except StoreError:
            found = True  # whoever reads the messages meets the damage, too, and tells
        if found:
            self.go_on()
        else:
            self.broker.timers.call_later(0.0, lambda: self._find_earlier(reader))

    def stream_updated(self) -> None:
        self.state.keeps_given_up = self.stream.config.retention == "interest"
        self.acks.config_changed()
        self.mark()

    @property
    def paused(self) -> bool:
        return self._core.paused

    def pause_left_ns(self) -> int:
        """Return how long the consumer stays paused, limited to Go's durations; 0: not paused."""
        return self._core.pause_left_ns()

    # -- events ------------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Something is to be done when the turn ends."""
        if not self._marked and not self.closed:
            self._marked = True
            self.broker.mark_dirty(self)

    def wake(self) -> None:
        if not self.delivery.idle:
            self.mark()

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Process an acknowledgement or a flow-control answer."""
        if self.closed:
            return False
        if sub.sid == _ACK:
            self.acks.received(subject, reply, payload)
        elif self.push is not None:
            self.push.flow_answered(subject, header)
        return True

    def acknowledge(self, acks: Sequence[Ack]) -> None:
        """Process consecutive acknowledgements."""
        if not self.closed:
            self.acks.received_all(acks)

    @property
    def takes_plain_acks(self) -> bool:
        return self.acks.takes_plain

    def acknowledge_plain(self, sseqs: list[int]) -> None:
        """Process consecutive plain acknowledgements, given by the sequences that they acknowledge."""
        if not self.closed:
            self.acks.received_plain(sseqs)

    def request_next(self, reply: bytes, header: bytes, body: bytes) -> None:
        """Process a pull request. A push consumer refuses it."""
        if self.internal:
            if reply:
                self.account.publish(reply, header=b"NATS/1.0 409 Consumer is internal\r\n\r\n")
        elif self.pull is not None:
            self.pull.request(reply, header, body)
        elif reply:
            self.account.publish(reply, header=b"NATS/1.0 409 Consumer is push based\r\n\r\n")

    def wants(self, subject: bytes) -> bool:
        return self.reader.wants(subject)

    def needs(self, seq: int, subject: bytes | None) -> bool:
        if subject is not None and not self.reader.wants(subject):
            return False
        state = self.state
        if seq > state.delivered_sseq or seq in state.pending:
            return True
        return (state.keeps_given_up and seq in state.redelivered) or self.acks.is_unconfirmed(seq)

    def messages_removed(self, seqs: Sequence[int]) -> None:
        self.reader.removed(seqs, self.state.delivered_sseq)
        self.state.forget_given_up(seqs)
        if self.state.pending:
            self.acks.removed(seqs, _REMOVED)
            self.mark()

    def purged(self, *, singly: bool = False) -> None:
        if self.closed:
            return
        if self.stream.log.taking_upto and self.stream.core.commits_under_way:
            # What another removal hides may come back.
            self.stream.after_commits(lambda _: self.purged(singly=singly))
            return
        self.reader.gave_back()
        log_state, state = self.stream.log.state, self.state
        # Of what is not on flash yet nothing is gone.
        first = min(log_state.first_seq or log_state.last_seq + 1, self.stream.log.committed_seq + 1)
        if singly:
            self.acks.removed([sseq for sseq in state.pending if sseq < first or not self._is_there(sseq)], _REMOVED)
        gone = state.remove_below(first)
        if log_state.num_deleted:
            state.forget_given_up([sseq for sseq in state.given_up() if not self._is_there(sseq)])
            gone += [sseq for sseq in list(state.pending) if not self._is_there(sseq) and state.remove(sseq)]
        if gone:
            self.acks.forget(gone)
            self.writer.acknowledged((), drop=False)
        self.mark()

    def _is_there(self, sseq: int) -> bool:
        try:
            return self.stream.log.get(sseq) is not None
        except StoreError:
            return True  # reported when it is read

    def sent(self, now: float) -> None:
        """Messages were delivered."""
        self._delivered_ns = self.broker.clock.now_ns()
        self.writer.delivered(now)

    # -- the end of the turn ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Deliver, write, set the timer."""
        self._marked = False
        if self.closed or not self._started:
            return
        now = self.broker.clock.monotonic()
        if self.acks.moved:
            self.acks.moved = False
            self._acked_ns = self.broker.clock.now_ns()
        if not self._held:
            self._note_pause()
        if self._held or self.paused:
            self.delivery.resume_at = NEVER
            self.delivery.sweep(now)
        elif self._waits_for_removal(now):
            self.delivery.resume_at = now + LOOK_AGAIN_S
            self.delivery.sweep(now)
        else:
            self.delivery.run(now)
        for given_up in self.state.take_given_up():
            self.acks.forget((given_up.sseq,))
            self.advisories.max_deliveries(given_up.sseq, given_up.deliveries)
            self.writer.acknowledged((), drop=False)
        self.writer.flush(now)
        self._set_timer(now)

    def _note_pause(self) -> None:
        """Tell of the end of a pause."""
        if self.paused:
            self._was_paused = True
        elif self._was_paused:
            self._was_paused = False
            self.advisories.paused(self.config.pause_until or "", paused=False)

    def _waits_for_removal(self, now: float) -> bool:
        """Return whether what comes next is being removed, and may come back: then it would be passed over."""
        log, state = self.stream.log, self.state
        upto, wait = log.taking_upto, self._removal_wait
        if upto <= state.delivered_sseq and not (upto and state.queued):
            self._removal_wait = None
            return False
        if wait is None:
            wait = self._removal_wait = RemovalWait(log.taken, now)
        if not wait.holds(log.taken, now):
            return False
        if self.stream.core.commits_under_way:
            self.stream.after_commits(lambda _: self.mark())
        return True

    def _set_timer(self, now: float) -> None:
        if self.closed:
            return
        deadline = min(
            self.state.next_due,
            self.delivery.next_deadline(),
            self.writer.next_deadline,
            self._inactive_at(),
        )
        pause_s = self.pause_left_ns() / 1e9
        if pause_s:
            deadline = min(deadline, now + min(pause_s, WALL_CHECK_S_MAX))
        timer = self._timer
        if timer is not None and timer.active:
            if timer.deadline <= deadline:
                return
            timer.cancel()
        self._timer = self.broker.timers.call_at(deadline, self._time_passed) if deadline != float("inf") else None

    def _time_passed(self) -> None:
        self._timer = None
        if self.closed:
            return
        now = self.broker.clock.monotonic()
        if self.state.expire(now):
            self.writer.delivered(now)
        self.delivery.tick(now)
        if now >= self._inactive_at() and now >= self.delivery.last_active(now) + self._threshold_s:
            log.debug("consumer %s was inactive for %s s", self.path, self._threshold_s)
            self.delete()
            return
        self.mark()

    @property
    def _threshold_s(self) -> float:
        return self.config.inactive_threshold / 1e9

    def _inactive_at(self) -> float:
        """Return when to check whether the consumer is still in use; infinity without a threshold."""
        if not self.config.inactive_threshold:
            return float("inf")
        if self.push is not None:
            since = float("inf") if self.push.active else self.push.inactive_since
        else:
            assert self.pull is not None
            since = self.pull.queue.last_active  # waiting requests are checked then
        return since + self._threshold_s

    # -- information -------------------------------------------------------------------------------------------------

    def info(self, *, listed: bool = False) -> ConsumerInfo:
        """Return the consumer's info. `listed`: for the answer to LIST, which shows the stored configuration."""
        state = self.state
        floor_cseq, floor_sseq = state.ack_floor()
        left_ns = self.pause_left_ns()
        config = self.config
        if not listed:
            config = msgspec.structs.replace(config, metadata=answered(config.metadata))
        delivered_at = ns_to_rfc3339(self._delivered_ns) if self._delivered_ns else None
        acked_at = ns_to_rfc3339(self._acked_ns) if self._acked_ns else None
        return ConsumerInfo(
            stream_name=self.stream.name,
            name=self.name,
            created=ns_to_rfc3339(self.created_ns),
            config=config,
            delivered=SequenceInfo(
                consumer_seq=state.delivered_cseq, stream_seq=state.delivered_sseq, last_active=delivered_at
            ),
            ack_floor=SequenceInfo(consumer_seq=floor_cseq, stream_seq=floor_sseq, last_active=acked_at),
            num_ack_pending=state.num_ack_pending,
            num_redelivered=state.num_redelivered,
            num_waiting=self.pull.num_waiting() if self.pull is not None else 0,
            num_pending=self.reader.pending(state.delivered_sseq),
            push_bound=self.bound,
            paused=left_ns > 0,
            pause_remaining=left_ns,
            ts=ns_to_rfc3339(self.broker.clock.now_ns()),
            priority_groups=self._groups(),
        )

    def _groups(self) -> list[PriorityGroupState]:
        if self.pull is None:
            return []
        pin = self.pull.queue.pin
        now, now_ns = self.broker.clock.monotonic(), self.broker.clock.now_ns()
        groups = []
        for group in self.config.priority_groups:
            if pin.id and pin.group == group:
                pinned_ns = now_ns - int((now - pin.pinned_at) * 1e9)
                groups.append(
                    PriorityGroupState(group=group, pinned_client_id=pin.id, pinned_ts=ns_to_rfc3339(pinned_ns))
                )
            else:
                groups.append(PriorityGroupState(group=group))
        return groups
