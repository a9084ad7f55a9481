"""What MQTT keeps on flash for one account: sessions, their queues, and retained messages.

The streams have nats-server's names, so that its tools show them:

| stream | subjects | content |
|---|---|---|
| `$MQTT_sess` | `$MQTT.sess.>` | a record for each session; packet identifiers as positions |
| `$MQTT_msgs` | `$MQTT.msgs.>` | messages of QoS 1 and 2 until all queues have them acknowledged |
| `$MQTT_rmsgs` | `$MQTT.rmsgs.>` | retained messages, one for each subject |

All changes go through one `JointPublish`, in their order: a publish with its streams, its queue entry, its retained copy
and its packet identifier is one transaction, and so is the end of a session.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.ingest.joint import Change, JointPublish, JointStream, RunDone
from eyot_daemon.jetstream.ingest.stream_ingest import SubjectRemoval
from eyot_daemon.mqtt.counters import Drops
from eyot_daemon.mqtt.gathered_run import GatheredRun, RunTargets
from eyot_daemon.mqtt.packet_ids import PacketIdChange, StoredPacketIds
from eyot_daemon.mqtt.retained_store import RETAINED_PREFIX, Retained
from eyot_daemon.mqtt.session_queue import (
    QUEUE_PREFIX,
    Done,
    Queue,
    QueueContext,
    QueueFilter,
    SessionQueue,
    SharedQueue,
)
from eyot_daemon.mqtt.session_record import (
    HELD,
    PUBREL,
    SessionRecord,
    decode_record,
    encode_record,
    session_hash,
)
from eyot_daemon.mqtt.store_streams import MqttStoreOptions, open_streams, set_bounds
from eyot_store.errors import StoreError
from eyot_wire.frames import Published
from eyot_wire.jetstream.error_codes import JSStreamStoreFailedF
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.nuid import DIGITS, nuid
from eyot_wire.quoting import printable
from eyot_wire.sublist import SubList

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.consumer.consumers import Consumers
    from eyot_daemon.jetstream.consumer.local_delivery import OnMessage
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.jetstream.stream_core import Expired
    from eyot_store import Txn
    from eyot_wire.mqtt.plain_publishes import AckedPublishes
    from eyot_wire.native import Match

log = logging.getLogger("eyot.mqtt")

_SHARED: Final = "share_"
#: Records that are read in one turn at the start.
SLICE: Final = 256


class _Left:
    """What a session leaves on flash: keys of positions, and its queue."""

    __slots__ = ("consumer", "keys", "queue")

    def __init__(self, keys: list[bytes], queue: str) -> None:
        self.keys = keys
        self.queue = queue
        self.consumer: Consumer | None = None


class MqttStore:
    """The store of one account; `open` first. All methods belong to the loop's thread."""

    retained: Retained
    _packet_ids: StoredPacketIds

    def __init__(
        self, jsa: JetStreamAccount, consumers: Consumers, options: MqttStoreOptions, drops: Drops | None = None
    ) -> None:
        """Make a store that is not open; `drops` counts what expires on flash, for the account."""
        self.jsa = jsa
        self.options = options
        self._drops = drops or Drops()
        self._consumers = consumers
        self._joint = JointPublish(jsa.server.broker, jsa.server.store)
        self._filters: SubList[QueueFilter] = SubList()
        self._records: list[SessionRecord] = []
        #: client id by its hash
        self._ids: dict[str, str] = {}
        #: hashes of sessions that could not be deleted: the next one of that id deletes what is left
        self._undeleted: dict[str, _Left] = {}
        self._queues: dict[str, SessionQueue] = {}
        self._shared: dict[str, SharedQueue] = {}
        self._has_streams = False

    # -- opening -----------------------------------------------------------------------------------------------------

    def open(self, done: Done) -> None:
        """Find or make the streams, and read the sessions; `done` with "" or with what is wrong."""
        if not self.jsa.enabled:
            done(f"MQTT needs JetStream, which is not enabled for account {self.jsa.account.name}")
            return
        open_streams(self.jsa, self.options, lambda made: self._made(made, done), done)

    def _made(self, made: list[Stream], done: Done) -> None:
        self._sessions, self._queued, self._retained_stream = made
        self.retained = Retained(self._retained_stream)
        self.retained.start()
        self._queued.when_expired.append(self._queued_expired)
        self._retained_stream.when_expired.append(lambda gone: self._drops.count("expired", len(gone)))
        context = self._context = QueueContext(self.jsa, self._consumers, self._queued, self._filters, self._drops)
        context.msgs_max, context.bytes_max = self.options.queue_msgs, self.options.queue_bytes
        self._has_streams = True
        try:
            self._packet_ids = StoredPacketIds(self._sessions.log)
        except StoreError as failure:
            done(f"the identifiers of sessions cannot be read: {failure.message}")
            return
        self._read_records(1, done)

    def _read_records(self, seq: int, done: Done) -> None:
        """Read a slice of the records; at the end remove what no record has."""
        try:
            read = self._sessions.log.read_on(seq, max_messages=SLICE, max_bytes=1 << 20)
        except StoreError as failure:
            done(f"sessions cannot be read: {failure.message}")
            return
        for message in read.messages:
            try:
                record = decode_record(message.payload)
            except msgspec.MsgspecError as problem:
                log.error("The MQTT session at %s is not readable: %s", message.seq, problem)
                continue
            self._ids[session_hash(record.client_id)] = record.client_id
            self._records.append(record)
        if read.next_seq <= self._sessions.log.committed_seq:
            self._sessions.core.timers.call_later(0.0, partial(self._read_records, read.next_seq, done))
        else:
            self._remove_orphans(done)

    def _remove_orphans(self, done: Done) -> None:
        """Remove queues and identifiers without a session: a power cut came between two transactions."""
        named = {record.queue for record in self._records}
        for record in self._records:
            named.update(_shared_name(*shared) for each in record.subs if (shared := _shared_parts(each)))
        orphans = [
            consumer
            for consumer in self._queued.consumers.values()
            if isinstance(consumer, Consumer) and consumer.internal and consumer.name not in named
        ]
        lost = self._packet_ids.forget_others(self._ids)
        if not orphans and not lost:
            done("")
            return

        def stage(txn: Txn) -> None:
            for consumer in orphans:
                consumer.stage_delete(txn)
            self._packet_ids.stage_removal(txn, lost)

        self._joint.publish((), lambda refused: done(_text(refused)), extra=stage)

    @property
    def over(self) -> bool:
        """One of the streams has ended."""
        return any(stream.ended for stream in (self._sessions, self._queued, self._retained_stream))

    def stop(self) -> None:
        """Stop with the daemon."""
        self.retained.stop()

    # -- sessions ----------------------------------------------------------------------------------------------------

    def sessions(self) -> Iterator[SessionRecord]:
        """Return the sessions that were on flash at `open`, once."""
        records, self._records = self._records, []
        yield from records

    def wants(self, subject: bytes) -> bool:
        """Return whether a queue takes messages on `subject`."""
        return self._filters.has_interest(QUEUE_PREFIX + subject)

    def last_queued(self) -> int:
        """Return the last sequence of the queued messages, those under way included: for `SubOptions.since`."""
        return self._queued.log.state.last_seq

    def set_options(self, options: MqttStoreOptions) -> None:
        """Use other bounds from now on. What a shorter age has passed goes; all else that is there stays."""
        self.options = options
        if not self._has_streams:
            return
        self._context.msgs_max, self._context.bytes_max = options.queue_msgs, options.queue_bytes
        set_bounds(self.jsa, (self._queued, self._retained_stream), options)

    def _queued_expired(self, gone: Sequence[Expired]) -> None:
        """Count out what has left `$MQTT_msgs` for its age, for each queue that still had it to deliver."""
        for each in gone:
            for queue in {entry.owner: None for entry in self._filters.match(each.subject).plain}:
                queue.expired(each.seq, each.size)

    @property
    def _is_full(self) -> bool:
        """Whether the queues of the account together may store nothing more."""
        state, options = self._queued.log.state, self.options
        return 0 <= options.queued_msgs <= state.messages or 0 <= options.queued_bytes <= state.bytes

    def queued_at(self, sseq: int) -> int:
        """Return when a queued message was stored, Unix time in ns; 0: it cannot be read."""
        try:
            stored = self._queued.log.get(sseq)
        except StoreError:
            return 0
        return 0 if stored is None else stored.ts_ns

    @property
    def queued_state(self) -> tuple[int, int]:
        """Messages that wait for sessions, each once, and their bytes."""
        state = self._queued.log.state
        return state.messages, state.bytes

    def put_session(self, record: SessionRecord, done: Done) -> None:
        """Write a session's record; `done` when it is on flash, or with the reason why not."""
        session = session_hash(record.client_id)
        new = session not in self._ids
        if self._ids.setdefault(session, record.client_id) != record.client_id:
            done("the client id collides with another one")
            return
        leftover = self._undeleted.pop(session, None)

        def settled(refused: ApiError | None) -> None:
            if refused is not None:
                if leftover is not None:
                    self._undeleted[session] = leftover
                if new:
                    self._ids.pop(session, None)
            done(_text(refused))

        message = Published(self._subject(session), b"", b"", encode_record(record))
        extra = None if leftover is None else partial(self._stage_forget, leftover)
        self._joint.publish([(self._sessions, message)], settled, extra=extra)

    def delete_session(self, record: SessionRecord, done: Done) -> None:
        """Delete a session, its queue and its packet identifiers, in one transaction."""
        session = session_hash(record.client_id)
        if self._ids.get(session) != record.client_id:
            done("")  # it was never written
            return
        queue = self._queues.pop(record.queue, None)
        if queue is not None:
            queue.close()
        left = _Left(self._packet_ids.forget(session), record.queue)
        del self._ids[session]

        def settled(refused: ApiError | None) -> None:
            if refused is not None:
                self._ids.setdefault(session, record.client_id)
                self._undeleted[session] = left
            done(_text(refused))

        removal = SubjectRemoval(self._subject(session))
        self._joint.publish([(self._sessions, removal)], settled, extra=partial(self._stage_forget, left))

    def _stage_forget(self, left: _Left, txn: Txn) -> None:
        """Stage the removal of a session's packet identifiers and of its queue."""
        self._packet_ids.stage_removal(txn, left.keys)
        consumer = left.consumer or self._queued.consumers.get(left.queue)
        if isinstance(consumer, Consumer):
            left.consumer = consumer  # the stream forgets it at once
            consumer.stage_delete(txn)

    def _subject(self, session: str) -> bytes:
        domain = f"{self.jsa.domain}." if self.jsa.domain else ""
        return f"$MQTT.sess.{domain}{session}".encode()

    # -- packet identifiers ------------------------------------------------------------------------------------------

    def held_ids(self, record: SessionRecord) -> dict[int, bytes]:
        """Return the QoS 2 publishes of the client that are not released: digests by packet identifier."""
        return self._packet_ids.of(HELD, session_hash(record.client_id))

    def release(self, record: SessionRecord, packet_id: int, done: Done) -> None:
        """Remove a held identifier; `done` when it is gone from flash: PUBCOMP may be sent."""
        self._store_packet_id(self._packet_ids.remove(HELD, session_hash(record.client_id), packet_id), done)

    def put_pubrel(self, record: SessionRecord, packet_id: int, sseq: int, done: Done) -> None:
        """Note that the client has the queued message `sseq`; `done` when it is on flash: PUBREL may be sent."""
        change = self._packet_ids.put(PUBREL, session_hash(record.client_id), packet_id, b"%d" % sseq)
        self._store_packet_id(change, done)

    def remove_pubrel(self, record: SessionRecord, packet_id: int, sseq: int) -> None:
        """Remove a PUBREL that was answered; after a power cut it may be sent again. Not one for another message."""
        session = session_hash(record.client_id)
        if self._packet_ids.get(PUBREL, session, packet_id) == b"%d" % sseq:
            self._store_packet_id(self._packet_ids.remove(PUBREL, session, packet_id), lambda error: None)

    def pubrels(self, record: SessionRecord) -> dict[int, int]:
        """Return the PUBRELs that are not answered: sequence of the message by packet identifier."""
        stored = self._packet_ids.of(PUBREL, session_hash(record.client_id))
        return {packet_id: int(value) for packet_id, value in stored.items()}

    def _store_packet_id(self, change: PacketIdChange, done: Done) -> None:
        """Make a change in a transaction of its own."""

        def settled(refused: ApiError | None) -> None:
            if refused is not None:
                change.undo()
            done(_text(refused))

        self._joint.publish((), settled, extra=change.stage)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(
        self,
        targets: Sequence[tuple[JointStream, Published]],
        *,
        hold: tuple[SessionRecord, int, bytes] | None = None,
        retain: Published | None = None,
        unretain: bytes | None = None,
        queue: Published | None = None,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Store a publish everywhere in one transaction; `done` when it is on flash, or with the first refusal.

        `targets`   the streams of the subject, each with the message for it
        `hold`      session, packet identifier and digest of a QoS 2 publish; only of sessions that `put_session` wrote
        `retain`    the message to retain, on `$MQTT.rmsgs.<subject>`
        `unretain`  the subject whose retained message is removed
        `queue`     the message for sessions, on `$MQTT.msgs.<subject>`; refused if the queue of one of them is full
        """
        changes: list[tuple[JointStream, Change]] = list(targets)
        queues: list[Queue] = []
        if queue is not None:
            queues = list({entry.owner: None for entry in self._filters.match(queue.subject).plain})
            if queues and self._is_full:
                self._context.refused += 1
                done(error(JSStreamStoreFailedF, err="the queues of the account's sessions are full"))
                return
            full = [each for each in queues if not each.room]
            if full:
                for each in full:
                    each.note_refused()
                done(error(JSStreamStoreFailedF, err="the queue of a session is full"))
                return
            changes.append((self._queued, queue))
        if retain is not None:
            changes.append((self._retained_stream, retain))
        if unretain is not None:
            changes.append((self._retained_stream, SubjectRemoval(RETAINED_PREFIX + unretain)))
        size = 0 if queue is None else len(queue.subject) + len(queue.header) + len(queue.payload)
        for each in queues:
            each.count(1, size)
        held: PacketIdChange | None = None
        if hold is not None:
            record, packet_id, digest = hold
            held = self._packet_ids.put(HELD, session_hash(record.client_id), packet_id, digest)

        def settled(refused: ApiError | None) -> None:
            if refused is not None:
                for each in queues:
                    each.count(-1, -size)
                if held is not None:
                    held.undo()
            else:
                for each in queues:
                    each.wake()
                if retain is not None:
                    self.retained.stored(retain.subject, retain.header)
            done(refused)

        self._joint.publish(changes, settled, extra=None if held is None else held.stage)

    def filters_of(self, queue_subject: bytes) -> Match[QueueFilter]:
        """Return the filters of the queues that take a subject, which has QUEUE_PREFIX; the same object while they are the same."""
        return self._filters.match(queue_subject)

    def run_targets(
        self, streams: Sequence[tuple[JointStream, bytes]], queue_subject: bytes, filters: Match[QueueFilter]
    ) -> RunTargets:
        """Return where runs are stored: in streams, with the subject that each stores, and in the queues of these filters."""
        targets, subjects = tuple(stream for stream, _ in streams), tuple(subject for _, subject in streams)
        if not filters:
            return RunTargets(targets, subjects)
        queues = tuple({entry.owner: None for entry in filters.plain})
        return RunTargets((*targets, self._queued), (*subjects, queue_subject), queues)

    def publish_run(self, targets: RunTargets, header: bytes, run: AckedPublishes, done: RunDone) -> bool:
        """Store a run of publishes as `publish` does each, without an identifier and not retained, behind the last of the turn.

        `done` is called when all is on flash, with None, or with the outcome of each. False: a queue is full, or nearly;
        nothing has happened.
        """
        queues = targets.queues
        if queues:
            if self._is_full:
                return False
            size = (len(targets.subjects[-1]) + len(header)) * run.count + run.payload_bytes
            for queue in queues:
                if not queue.has_room(run.count, size):
                    return False
            for queue in queues:
                queue.count(run.count, size)
        gathered = self._joint.last
        if not (isinstance(gathered, GatheredRun) and gathered.goes_to(targets)):
            gathered = GatheredRun(targets)
            self._joint.publish_run(gathered)
        gathered.add(targets.subjects, header, run.payloads, done)
        return True

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def refused(self) -> int:
        """Publishes refused because a queue was full, since the start."""
        return self._context.refused

    def queue(self, record: SessionRecord, on_message: OnMessage) -> SessionQueue:
        """Return a session's queue; names a new one in the record, which the caller writes.

        `on_message(sseq, deliveries, subject, header, payload)`; `subject` as it was published.
        """
        if not record.queue:
            record.queue = f"{session_hash(record.client_id)}_{nuid()}"
        queue = self._queues[record.queue] = SessionQueue(self._context, record.queue, on_message)
        return queue

    def shared(self, group: str, topic_filter: str) -> SharedQueue:
        """Return the queue of a group with a filter of its shared subscription, as named in `$share/GROUP/FILTER`.

        It is removed with its last member; at `open`, where no session has that subscription.
        """
        name = _shared_name(group, topic_filter)
        found = self._shared.get(name)
        if found is None:
            found = self._shared[name] = SharedQueue(self._context, name, self._emptied)
        return found

    def _emptied(self, queue: SharedQueue, done: Done) -> None:
        if self._shared.get(queue.name) is queue:
            del self._shared[queue.name]
        queue.delete(done)


def _shared_parts(topic_filter: str) -> tuple[str, str] | None:
    """Return group and filter of a shared subscription; None: it is not one."""
    if not topic_filter.startswith("$share/"):
        return None
    group, _, shared = topic_filter.removeprefix("$share/").partition("/")
    return group, shared


def _shared_name(group: str, topic_filter: str) -> str:
    digest = hashlib.sha256(f"{group}/{topic_filter}".encode("utf-8", "surrogatepass")).digest()
    return _SHARED + "".join(DIGITS[byte % 62] for byte in digest[:22])


def _text(refused: ApiError | None) -> str:
    return "" if refused is None else printable(refused.description)
