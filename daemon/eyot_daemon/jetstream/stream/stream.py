"""A stream: a configuration, its log, and its consumers.

As a destination of the broker it collects the messages that a turn publishes to its subjects, and stages them at the
end of the turn (`ingest/stream_ingest.py`). Every change is submitted to the store as one transaction with a `Batch` of
the answers to send. `_settled` sends them when the transaction is on flash, or rolls back when it failed. Batches
complete in order.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.config.rules import DAEMON_STREAMS
from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker
from eyot_daemon.jetstream.ingest.atomic_batches import AtomicBatches
from eyot_daemon.jetstream.ingest.dedupe import DedupeWindow, IdsMark
from eyot_daemon.jetstream.ingest.due_times import Due
from eyot_daemon.jetstream.ingest.fast_batches import FastBatches
from eyot_daemon.jetstream.ingest.limiter import IngestLimiter
from eyot_daemon.jetstream.ingest.message_stager import IngestParts, StorageRoom
from eyot_daemon.jetstream.ingest.rollup_search import RollupSearch
from eyot_daemon.jetstream.ingest.schedules import Schedules
from eyot_daemon.jetstream.ingest.stream_ingest import StreamIngest
from eyot_daemon.jetstream.nats_headers import MSG_ID, nats_fields
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.retention.expiry import CLOCK_POSITION, Expiry
from eyot_daemon.jetstream.retention.retention import Retention, Sweep
from eyot_daemon.jetstream.sourcing.deregistration import stage_deregistrations
from eyot_daemon.jetstream.stream_core import Batch, CommitCallback, ConsumerPort, Expired, StreamCore
from eyot_daemon.jetstream.subject_index_loader import SubjectIndexLoader
from eyot_daemon.jetstream.wall_clock import ClockCredits
from eyot_daemon.router.retired import retire
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_store.errors import StoreError
from eyot_wire.frames import Published
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.error_codes import JSStreamNotFoundErr, JSStreamStoreFailedF
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import StreamConfig, encode
from eyot_wire.native import IngestQueue

if TYPE_CHECKING:
    from eyot_daemon.jetstream.server_context import ServerContext
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.broker import Broker
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

RestoreConsumers = Callable[["Stream", str], None]
"""Makes a stored consumer of a stream live again, by its name; all of them for ""."""

_REBUILD_MESSAGES = 1024
_REBUILD_BYTES = 16 << 20


class SourcedResult(NamedTuple):
    """What was stored, or staged, of copied messages: all up to the origin's `last_seq` (0: none); `error`: why not all of them."""

    last_seq: int
    error: ApiError | None


class Stream:
    """A live stream. `start` subscribes to its subjects; `stop` (the daemon stops) and `delete` end it."""

    kind = Kind.JETSTREAM

    def __init__(
        self,
        account: "Account",
        stream_log: "Log",
        config: StreamConfig,
        server: "ServerContext",
        room: StorageRoom,
        restore_consumers: "RestoreConsumers",
    ) -> None:
        """`server`: what all streams share; `room`: what the account has left."""
        self.account = account
        self._restore_consumers = restore_consumers
        self.broker: Broker = server.broker
        self.store: Store = server.store
        self.log = stream_log
        self.wall_clock = server.wall_clock
        options = server.options
        core = self.core = StreamCore(account, server.store, stream_log, config, options.domain, self._settled)
        self._ended = self._deleted = False
        self._committed_config = config
        self._failing = ""  # the reason of the last commit's failure
        self._consumers: dict[str, ConsumerPort] = {}
        self._woken: dict[str, ConsumerPort] = {}  # those that commits wake, by name
        #: Called after each commit that stored messages.
        self.when_stored: list[Callable[[], None]] = []
        #: called with messages that grew too old, before the consumers hear of it
        self.when_expired: list[Callable[[Sequence[Expired]], None]] = []
        self._subscriptions: dict[str, Subscription] = {}
        #: What was published since the last turn.
        self.ingest_queue = IngestQueue(self)
        self.dedupe = DedupeWindow(config.duplicate_window)
        self.ids = IdsMark(stream_log)
        self.downstream = DownstreamTracker(core, self._consumers, server.wall_clock)
        self.sweep = Sweep(core, lambda: self.retention.unneeded())
        self.retention = self.downstream.retention = Retention(
            core, self._consumers, self.downstream.records, self.sweep.begin
        )
        self.expiry = Expiry(core, server.wall_clock)
        self.schedules = Schedules(core, self.store_scheduled, self.broker.later_turns)
        self.batches = AtomicBatches(core, server.batch_budget)
        self.fast_batches = FastBatches(core, server.batch_budget)
        self.subject_index_loader = SubjectIndexLoader(core)
        self.ingest_limiter = IngestLimiter(
            core, server.store_gate, options.buffered_msgs_max, options.buffered_bytes_max
        )
        self.ingest = StreamIngest(
            core,
            IngestParts(
                dedupe=self.dedupe,
                ids=self.ids,
                expiry=self.expiry,
                schedules=self.schedules,
                retention=self.retention,
                sweep=self.sweep,
                subject_index_loader=self.subject_index_loader,
                limiter=self.ingest_limiter,
                batches=self.batches,
                fast_batches=self.fast_batches,
                wall_clock=server.wall_clock,
                room=room,
            ),
        )

        self.rollup_search = RollupSearch(
            core, self.subject_index_loader, self.ingest_limiter, self.ingest.stored_subject, self._ingest_held
        )

    def __repr__(self) -> str:
        return f"<Stream {self.account.name}/{self.name}>"

    @property
    def name(self) -> str:
        return self.core.name

    @property
    def config(self) -> StreamConfig:
        """The configuration in force."""
        return self.core.config

    @property
    def live(self) -> bool:
        """Started and not ended."""
        return self.core.live

    @property
    def ended(self) -> bool:
        """Stopped or deleted, before its creation was on flash perhaps: it never starts again."""
        return self._ended

    @property
    def created_ns(self) -> int:
        return self.log.created_ns

    @property
    def consumers(self) -> Mapping[str, ConsumerPort]:
        return self._consumers

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe, and start what runs by time."""
        assert not self._ended, "who was deleted has no log any more"
        self.core.live = True
        self._subscribe()
        self.sweep.start(has_leftovers=self.retention.may_hold_leftovers())
        if self.config.max_msgs_per_subject > 0:
            self.subject_index_loader.then(lambda: None)  # the first message will need it
        self.expiry.start()
        if self.config.allow_msg_schedules:
            self.schedules.start()

    def rebuild_dedupe(self, leap_ns: int = 0) -> None:
        """Fill the duplicate window from the tail of the log (after a restart).

        `leap_ns`: by how much the clock leapt since the last run; by that no id has aged, nor by the jumps that were
        noted.
        """
        messages, window = self.log, self.dedupe.window_ns
        if window <= 0 or not messages.state.messages or self.ids.none_yet:
            return
        self.dedupe.clear()
        begin_ns = self.broker.clock.now_ns() - window
        credits = ClockCredits(messages.positions().get(CLOCK_POSITION))
        first = max(messages.state.first_seq, 1)
        for last, credited_ns in list(credits.segments(first, messages.committed_seq)):
            more_ns = credited_ns + leap_ns
            seq = messages.seq_at_time(begin_ns - more_ns, from_seq=first, up_to=last)
            while seq <= last:
                read = messages.read_on(seq, max_messages=_REBUILD_MESSAGES, max_bytes=_REBUILD_BYTES, up_to=last)
                for message in read.messages:
                    msg_id = nats_fields(message.header).get(MSG_ID) if MSG_ID in message.header else b""
                    if msg_id:
                        self.dedupe.add(msg_id, message.seq, message.ts_ns + more_ns)
                seq = read.next_seq
            first = last + 1

    def stop(self) -> None:
        """Stop with the daemon: nothing new is accepted, consumers end. Pending transactions still commit."""
        self._unsubscribe_all()
        self.core.live, self._ended = False, True
        for consumer in list(self._consumers.values()):
            consumer.stop()
        self._end_timers()
        self.downstream.stop()

    def delete(self, done: CommitCallback) -> None:
        """Remove the stream and all it holds; `done` is called when that is on flash."""
        self._unsubscribe_all()
        self.core.live, self._ended, self._deleted = False, True, True
        self._end_timers()
        retire(
            self.broker.later_turns,
            [sub for consumer in list(self._consumers.values()) for sub in consumer.stream_deleted()],
        )
        self._consumers.clear()
        self._woken.clear()
        self.downstream.stop()
        txn = self.store.begin()
        self.log.delete(txn)
        batch = Batch()
        batch.then += [self.downstream.deleted, done]
        self.submit(txn, batch)

    def _end_timers(self) -> None:
        self.expiry.stop()
        self.schedules.stop()
        self.batches.drop_all()
        self.fast_batches.drop_all()

    def update(self, config: StreamConfig, done: CommitCallback) -> None:
        """Change the configuration (checked before); `done` is called when it is on flash."""
        core = self.core
        old, core.config = core.config, config
        self._configure()
        batch = Batch()
        with self.staging() as txn:
            self.log.set_config(txn, encode(config))
            stage_deregistrations(core, txn, old, config)
            batch.removed = limits.enforce(config, self.log, txn, ())
            if config.retention == "interest" and old.retention == "limits" and self._consumers:
                self.retention.drop_unneeded(txn)
                batch.purged = True
            if 0 < config.max_msgs_per_subject != old.max_msgs_per_subject:
                batch.removed += self.sweep.begin(txn)

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                self._committed_config = config
            elif core.config is config:
                core.config = self._committed_config  # updates before this one may have failed, too
                self._configure()
                self._follow_config()
            done(failure)
            self._enforce_more(config, failure)

        batch.then.append(settle)
        self.submit(txn, batch)
        self._follow_config()

    def _configure(self) -> None:
        """Let what takes messages in follow the configuration."""
        config = self.config
        self.ingest.configure()
        self.dedupe.set_window(config.duplicate_window, self.broker.clock.now_ns())
        if not config.allow_atomic:
            self.batches.drop_all()
        if not config.allow_batched:
            self.fast_batches.drop_all()

    def _follow_config(self) -> None:
        """Let subscriptions, timers and consumers follow the configuration."""
        self._subscribe()
        if self.live:
            self.expiry.schedule()
            self.schedules.schedule()
        for consumer in list(self._consumers.values()):
            consumer.stream_updated()

    def _enforce_more(self, config: StreamConfig, failure: StoreError | None) -> None:
        """Enforce lowered limits, one slice a transaction."""
        if failure is not None or self.config is not config or not self.live or not limits.exceeded(config, self.log):
            return
        batch = Batch()
        with self.staging() as txn:
            batch.removed = limits.enforce(config, self.log, txn, ())
        if batch.removed:
            batch.then.append(lambda failure: self._enforce_more(config, failure))
            self.submit(txn, batch)
        else:
            self.store.abort(txn)

    def _subscribe(self) -> None:
        """Subscribe to the configured subjects, and only to these; unchanged subscriptions stay."""
        if not self.live or self.name in DAEMON_STREAMS:
            return
        wanted = set(self.config.subjects)
        for subject in list(self._subscriptions):
            if subject not in wanted:
                self.account.unsubscribe(self._subscriptions.pop(subject))
        for subject in self.config.subjects:
            if subject not in self._subscriptions:
                subscription = self.account.subscribe(subject.encode(), self)
                subscription.ingest_queue = self.ingest_queue
                self._subscriptions[subject] = subscription

    def _unsubscribe_all(self) -> None:
        for subscription in self._subscriptions.values():
            self.account.unsubscribe(subscription)
        self._subscriptions.clear()

    # -- Destination -----------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Queue one published message for the end of the turn."""
        if not self.ingest_queue:
            self.broker.mark_dirty(self)
        self.ingest_queue.add(Published(subject, reply, header, payload))
        return True

    def flush(self) -> None:
        """End of the turn: ingest the queued messages."""
        messages = self.ingest_queue.take()
        if not messages:
            return
        if not self.core.live:
            self._refuse_late(messages)
            return
        messages = self.ingest_limiter.admitted(messages)
        if messages and not self.rollup_search.holds(messages):
            self.ingest.run(messages)
        gate = self.ingest_limiter.shut_gate()
        if gate is not None:
            self.broker.hold_back(gate)

    def _ingest_held(self, messages: list[Published]) -> None:
        """Ingest messages that waited for a search."""
        if self.core.live:
            self.ingest.run(messages)
        else:
            self._refuse_late(messages)

    def _refuse_late(self, messages: Sequence[Published]) -> None:
        """Answer publishers whose messages came in the turn that deleted the stream, or waited for a search."""
        if not self._deleted:
            return
        refused = error(JSStreamNotFoundErr)
        self.core.reject(refused, len(messages))
        for message in messages:
            if message.reply:
                self.account.publish(message.reply, payload=self.core.refusal(refused))

    def store_scheduled(self, due: Sequence[Due], now_ns: int) -> None:
        """Store the messages that due schedules make."""
        self.ingest.run_scheduled(due, now_ns)

    # -- transactions ----------------------------------------------------------------------------------------------

    def staging(self) -> "AbstractContextManager[Txn]":
        """Return a transaction that is rolled back if what stages it fails."""
        return self.core.staging()

    def submit(self, txn: "Txn", batch: Batch) -> None:
        """Submit a transaction of this stream; `batch` settles with its result."""
        self.core.submit(txn, batch)

    def after_commits(self, fn: CommitCallback) -> None:
        """Call `fn` when everything staged so far is through; at once when nothing is under way."""
        self.core.after_commits(fn)

    def _settled(self, batch: Batch, failure: StoreError | None) -> None:
        """Process the result of a transaction: answer publishers, wake consumers."""
        if batch.size:
            self.ingest_limiter.settled(batch, refused=failure is not None)
        if failure is not None:
            self._note_failure(failure)
            self.ingest.failed(batch, failure)
        else:
            self._failing = ""
            if batch.republished:
                self.ingest.republish(batch)
            if batch.acks:
                self.account.answer(batch.acks)
            if self._consumers or batch.expired:
                self._tell_consumers(batch)
            if batch.stored:
                if batch.ttls or self.core.config.max_age:
                    self.expiry.stored(batch.ttls)
                for step in self.when_stored:
                    step()
            if batch.schedules:
                self.schedules.committed(batch)

    def _note_failure(self, failure: StoreError) -> None:
        """Log a failure, once until something commits again. What a deleted stream does not store is none."""
        if self.live and failure.reason != self._failing:
            self._failing = failure.reason
            log.error("Stream '%s > %s' cannot store: %s", self.account.name, self.name, failure)

    def _tell_consumers(self, batch: Batch) -> None:
        if batch.expired:
            for step in self.when_expired:
                step(batch.expired)
        if not self._consumers:
            return
        if batch.removed:
            self._tell_removed(batch.removed)
        if batch.expired:
            self._tell_expired(batch.expired)
        if batch.purged:
            for consumer in list(self._consumers.values()):
                consumer.purged(singly=batch.singly)
        if batch.stored or batch.purged:
            self.wake_consumers()

    def _tell_removed(self, seqs: Sequence[int]) -> None:
        for consumer in list(self._consumers.values()):
            consumer.messages_removed(seqs)

    def _tell_expired(self, expired: Sequence[Expired]) -> None:
        """Tell the consumers that want the subjects: a stream of MQTT has one for each session."""
        seqs: dict[ConsumerPort, list[int]] = {}
        for each in expired:
            for consumer in self.retention.index.matching(each.subject):
                seqs.setdefault(consumer, []).append(each.seq)
        for consumer, gone in seqs.items():
            consumer.messages_removed(gone)

    # -- consumers -------------------------------------------------------------------------------------------------

    def wake_consumers(self) -> None:
        for consumer in list(self._woken.values()):
            consumer.wake()

    def add_consumer(self, consumer: ConsumerPort) -> None:
        self._consumers[consumer.name] = consumer
        if not consumer.internal:
            self._woken[consumer.name] = consumer
        self.retention.index.add(consumer)

    def remove_consumer(self, consumer: ConsumerPort, txn: "Txn | None" = None) -> None:
        if self._consumers.get(consumer.name) is not consumer:
            return
        del self._consumers[consumer.name]
        self._woken.pop(consumer.name, None)
        self.retention.index.remove(consumer)
        # A work queue keeps a worker's messages for the next one.
        if txn is not None and (self.config.retention == "interest" or consumer.config.direct):
            self.retention.drop_unneeded(txn)

    def restore_consumer(self, name: str) -> None:
        """Serve a consumer again if it is still on flash: its deletion failed, and so did the creation of a successor."""
        if self.live and name not in self._consumers:
            self._restore_consumers(self, name)

    def consumer_acked(self, consumer: ConsumerPort, seqs: Iterable[int], txn: "Txn") -> None:
        self.retention.acked(consumer, seqs, txn)

    # -- removing messages -----------------------------------------------------------------------------------------

    def purge(
        self, *, below_seq: int, subject_filter: bytes, keep: int, done: Callable[[int, StoreError | None], None]
    ) -> None:
        """Remove messages (shapes as STREAM.PURGE); `done(removed, error)` when that is on flash."""
        if limits.is_long(self.log, below_seq, subject_filter, keep):
            # Uncommitted messages are to be purged, too: wait for their commit.
            self.after_commits(lambda _: limits.Purge(self.core, below_seq, subject_filter, keep, done).run())
            return
        with self.staging() as txn:
            removed = self.log.purge(txn, below_seq=below_seq, subject_filter=subject_filter, keep=keep)
            if below_seq > self.log.state.last_seq + 1 and subject_filter in (b"", b">"):
                self.log.skip_to(txn, below_seq - 1)
        batch = Batch()
        batch.note_purged(removed)
        batch.purged = True
        batch.singly = batch.singly and bool(keep or subject_filter not in (b"", b">"))
        batch.then.append(lambda failure: done(removed, failure))
        self.submit(txn, batch)

    def delete_message(self, seq: int, done: CommitCallback) -> bool:
        """Remove one message; False when there is none (then `done` is not called)."""
        with self.staging() as txn:
            if not self.log.remove(txn, seq):
                return False
        batch = Batch()

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                self._tell_removed((seq,))
            done(failure)

        batch.then.append(settle)
        self.submit(txn, batch)
        return True

    # -- copying ---------------------------------------------------------------------------------------------------

    def ingest_copied(
        self,
        messages: Sequence[CopiedMessage],
        *,
        mirror: bool,
        positions: Callable[[int], Iterable[tuple[bytes, bytes]]] = lambda taken: (),
        skip_to: int = 0,
        on_done: Callable[[SourcedResult], None],
        on_refused: Callable[[SourcedResult], None] = lambda result: None,
    ) -> None:
        """Store messages of a mirror's or source's origin together with the position that follows from them.

        `messages`  ascending by origin sequence. A mirror keeps sequence and time; a source gives new ones.
        `positions` (key, value) of the position records for the last copied origin sequence; committed with the messages.
        `skip_to`   mirrors only: the origin holds nothing up to and including this sequence.
        `on_refused`  called at once with what is staged, if that is not all: a full stream accepts only some. What follows
                    must not be passed before the refused ones.
        `on_done`   called after the commit of what is staged, or its failure; not if nothing is.
        """
        try:
            with self.staging() as txn:
                batch, taken, refusal = self.ingest.stage_copied(txn, messages, mirror=mirror, skip_to=skip_to)
                for key, value in positions(taken) if taken else ():
                    self.log.put_position(txn, key, value)
        except StoreError as failure:
            on_refused(SourcedResult(0, error(JSStreamStoreFailedF, err=failure.message)))
            return
        if refusal is not None:
            on_refused(SourcedResult(taken, refusal))
        if not taken:
            return

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                on_done(SourcedResult(0, error(JSStreamStoreFailedF, err=failure.message)))
            else:
                on_done(SourcedResult(taken, None))

        if not txn.parts:
            # All of it was staged before: whether it is there is known when that is through.
            self.store.abort(txn)
            self.after_commits(settle)
            return
        batch.then.append(settle)
        self.submit(txn, batch)


def after_all_commits(streams: Iterable[Stream], fn: Callable[[], None]) -> None:
    """Call `fn` when what has been staged so far in these streams is through."""
    waiting = 1

    def settled(_: StoreError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            fn()

    for stream in streams:
        waiting += 1
        stream.after_commits(settled)
    settled(None)
