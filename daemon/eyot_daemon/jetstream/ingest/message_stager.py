"""How one message gets into a stream: the checks in nats-server's order, and staging it.

The order is that of `headers.check`, then size, account, interest, limits. `StreamIngest` decides what makes up a transaction and
when its answers leave.

Republishing of stored messages (ADR-28): another subject, and headers that say where the message is stored.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from eyot_daemon.jetstream.ingest import fast_batches
from eyot_daemon.jetstream.ingest.atomic_batches import BatchSoFar, check_in_batch
from eyot_daemon.jetstream.ingest.counters import Counters, Sum
from eyot_daemon.jetstream.ingest.dedupe import DedupeWindow, IdsMark
from eyot_daemon.jetstream.ingest.headers import HEADER_BYTES_MAX, STORE, Verdict, check
from eyot_daemon.jetstream.ingest.schedules import SCHEDULE, ended_scheduler
from eyot_daemon.jetstream.nats_headers import (
    BATCH_ID,
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_STREAM,
    MSG_ID,
    NATS_MARK,
    REQUEST_INFO,
    ROLLUP,
    TTL,
    nats_fields,
    parse_ttl,
)
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.stream_core import Batch, Republished
from eyot_store.errors import StoreError
from eyot_store.native import pub_acks, scan_batch
from eyot_store.record_run import Expected, FastPathRules
from eyot_wire import headers
from eyot_wire.frames import Published
from eyot_wire.jetstream.error_codes import (
    JSAtomicPublishDisabledErr,
    JSMessageTTLInvalidErr,
    JSStreamHeaderExceedsMaximumErr,
    JSStreamMessageExceedsMaximumErr,
    JSStreamSealedErr,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import NS_PER_S, Republish, StorageType, StreamConfig, ns_to_rfc3339
from eyot_wire.subject import is_literal, matches
from eyot_wire.transform import Transform

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.atomic_batches import AtomicBatches
    from eyot_daemon.jetstream.ingest.fast_batches import FastBatches
    from eyot_daemon.jetstream.ingest.limiter import IngestLimiter
    from eyot_daemon.jetstream.ingest.schedules import Schedules
    from eyot_daemon.jetstream.retention.expiry import Expiry
    from eyot_daemon.jetstream.retention.retention import Retention, Sweep
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.jetstream.subject_index_loader import SubjectIndexLoader
    from eyot_daemon.jetstream.wall_clock import WallClock
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")


class Republisher:
    """Republishes messages of `stream` by a checked `republish` configuration. The stream stores messages on `subjects`.

    A destination that an update left empty is `>`. Messages that the stream would then store, and republish, again are left out.
    nats-server republishes them until the headers are too long.
    """

    def __init__(self, stream: str, config: Republish, subjects: Sequence[str] = ()) -> None:
        self._stream = stream.encode()
        self._own = [subject.encode() for subject in subjects] if config.dest == ">" else []
        self._headers_only = config.headers_only
        self._transform = Transform(config.src.encode(), config.dest.encode(), republish=True)

    def make(
        self, subject: bytes, header: bytes, payload: bytes, seq: int, ts_ns: int, last_seq: int
    ) -> tuple[bytes, bytes, bytes] | None:
        """(subject, header, payload) to publish for a stored message; None when `src` does not match it.

        `last_seq` is the sequence of the message before on the same subject, 0 when there was none.
        """
        dest = self._transform.apply(subject)
        if dest is None or any(matches(own, dest) for own in self._own):
            return None
        fields = [
            (b"Nats-Stream", self._stream),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % seq),
            (b"Nats-Time-Stamp", ns_to_rfc3339(ts_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % last_seq),
        ]
        if self._headers_only:
            fields.append((b"Nats-Msg-Size", b"%d" % len(payload)))
            payload = b""
        for name, value in fields:
            header = headers.add_field(header, name, value)
        return dest, header, payload


_COMMON_FIELDS = (
    b"\r\n%b:" % MSG_ID,
    b"\r\n%b:" % EXPECTED_STREAM,
    b"\r\n%b:" % EXPECTED_LAST_SEQ,
    b"\r\n%b:" % EXPECTED_LAST_SUBJECT_SEQ,
    b"\r\n%b:" % EXPECTED_LAST_MSG_ID,
)

#: A clock that was set back by less than this does not show in the stored times.
CLOCK_STEP_NS = 1_000_000_000


class _Checked(NamedTuple):
    """A checked message in its stored form, the verdict on its headers, and the sum of a counter."""

    subject: bytes
    header: bytes
    payload: bytes
    fields: dict[bytes, bytes]
    verdict: Verdict
    total: Sum | None


class StorageRoom(Protocol):
    """The room that the limits of account and server leave."""

    @property
    def storage_limited(self) -> Mapping[StorageType, bool]:
        """Whether storage of each kind is limited, so that `no_storage_for` must be called."""
        ...

    def no_storage_for(self, storage: StorageType, size: int, messages: int = 1) -> ApiError | None:
        """Return why `size` more bytes cannot be stored."""
        ...


class IngestParts(Struct, frozen=True):
    """The parts of a stream that take part in ingest."""

    dedupe: DedupeWindow
    ids: IdsMark
    expiry: "Expiry"
    schedules: "Schedules"
    retention: "Retention"
    sweep: "Sweep"
    subject_index_loader: "SubjectIndexLoader"
    limiter: "IngestLimiter"
    batches: "AtomicBatches"
    fast_batches: "FastBatches"
    wall_clock: "WallClock"
    room: StorageRoom


class MessageStager:
    """Staging of single messages for one stream. `configure` follows the stream's configuration."""

    def __init__(self, stream: "StreamCore", parts: IngestParts) -> None:
        self._stream = stream
        self._parts = parts
        self._log: Log = stream.log
        self.configure()

    def configure(self) -> None:
        """Apply a changed configuration."""
        stream = self._stream
        self.config: StreamConfig = stream.config
        transform = self.config.subject_transform
        self._transform: Transform | None = None
        if transform is not None:
            self._transform = Transform((transform.src or ">").encode(), transform.dest.encode())
        self._republisher: Republisher | None = None
        if self.config.republish is not None and self.config.republish.dest:
            self._republisher = Republisher(self.config.name, self.config.republish, self.config.subjects)
        # A marker must outlive what it marks. With one message a subject there is nothing older to come back.
        self._ttl_ns_min = 0 if self.config.max_msgs_per_subject == 1 else self.config.subject_delete_marker_ttl
        self._counters = Counters(stream.log) if self.config.allow_msg_counter else None
        size_max = self.config.max_msg_size
        self._fast_path_rules = FastPathRules(
            size_max=size_max if size_max >= 0 else 1 << 62,
            header_max=HEADER_BYTES_MAX,
            reply_end=fast_batches.MARK,
            special=NATS_MARK,
            fields=_COMMON_FIELDS,
            stream=self.config.name.encode(),
            cost=stream.log.message_bytes(b"", b"", b""),
            header_cost=stream.log.backend.header_bytes,
        )
        # A message whose header asks for nothing is stored unchanged, as long as there is room for it.
        self._plain = (
            transform is None
            and self._republisher is None
            and self._counters is None
            and not (self.config.sealed or self.config.allow_msg_schedules)
            and not (self.config.discard == "new" and self.config.discard_new_per_subject)
        )
        self._by_interest = self.config.retention == "interest"
        self._refuses = self.config.discard == "new" and max(self.config.max_msgs, self.config.max_bytes) > 0
        self._limited = max(self.config.max_msgs, self.config.max_bytes, self.config.max_msgs_per_subject) > 0
        self.ack_head = stream.ack_head
        self._last_msg_id: bytes | None = None  # None: to be looked up
        self._now_ns = 0  # the stored time of the next message
        self._taken_seq = 0  # the sequence under which the last staged message is stored
        #: The newest sequences that filters with wildcards match, while messages are staged: each is a look at all subjects.
        self._newest: dict[bytes, int] = {}

    # -- StreamFacts -----------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        return self._log.state.last_seq

    @property
    def now_ns(self) -> int:
        return self._now_ns

    def last_msg_id(self) -> bytes:
        if self._last_msg_id is None:
            newest = self._log.get_readable(self._log.committed_seq)
            self._last_msg_id = nats_fields(newest.header).get(MSG_ID, b"") if newest is not None else b""
        return self._last_msg_id

    def last_seq_for(self, subject_filter: bytes) -> int:
        if is_literal(subject_filter):
            return self._log.last_seq_for(subject_filter)
        known = self._newest.get(subject_filter)
        if known is None:
            known = self._newest[subject_filter] = self._log.newest_seq(subject_filter)
        return known

    def ends_with_schedule(self, subject: bytes) -> bool:
        newest = self._log.last_for(subject)
        return newest is None or bool(nats_fields(newest.header).get(SCHEDULE))

    def duplicate_of(self, msg_id: bytes) -> int:
        return self._parts.dedupe.find(msg_id, self._now_ns)

    def _note_newest(self, subject: bytes, seq: int, *, removes_others: bool) -> None:
        """Note a stored message for the messages behind it, which expect one to be the last on their filter."""
        if removes_others:
            self._newest.clear()
        for subject_filter in self._newest:
            if matches(subject_filter, subject):
                self._newest[subject_filter] = seq

    def _enforce(self, txn: "Txn", batch: Batch, subjects: Collection[bytes]) -> None:
        """Make room. A record that cannot be read stays where it is: that must not keep new ones from being stored."""
        self._newest.clear()
        if self.config.max_msgs_per_subject > 0 and not self._parts.subject_index_loader.done:
            sweep = self._parts.sweep
            sweep.overdue.update(subjects)
            self._parts.subject_index_loader.then(sweep.enforce_overdue)
            subjects = ()
        try:
            batch.removed += limits.enforce(self.config, self._log, txn, subjects, self._parts.sweep.overdue)
        except StoreError as failure:
            log.error("Stream '%s > %s': limits not enforced: %s", self._log.account, self._log.name, failure)

    def stored_subject(self, subject: bytes) -> bytes:
        """Return the subject under which a message on `subject` is stored."""
        return subject if self._transform is None else self._transform.apply(subject) or subject

    def _start_ns(self) -> int:
        """Begin a batch; return its time: the clock's, but not before the last message if the clock was only nudged."""
        self._newest.clear()  # of earlier transactions
        now_ns = self._parts.wall_clock.watch()
        last_ns = self._log.state.last_ts_ns
        return last_ns + 1 if 0 <= last_ns - now_ns < CLOCK_STEP_NS else now_ns

    def _stage(
        self,
        txn: "Txn",
        batch: Batch,
        message: Published,
        subjects: set[bytes],
        *,
        so_far: BatchSoFar | None = None,
        scheduled: bool = False,
    ) -> ApiError | None:
        """Stage one message, or return why it is refused. `so_far` is for `check_in_batch`, `scheduled` for `check`."""
        published_on, reply, _, payload = message
        subject = self.stored_subject(published_on)
        if self.config.sealed:
            return error(JSStreamSealedErr)
        header, fields, verdict = self._check_header(message, subject, so_far, scheduled=scheduled)
        if verdict.error is not None:
            self._taken_seq = verdict.duplicate
            return verdict.error
        if verdict.duplicate:
            self._taken_seq = verdict.duplicate
            self._acknowledge(batch, reply, verdict.duplicate, b',"duplicate": true}')
            return None
        total = None
        tail = b"}"
        if self._counters is not None:
            counted = self._counters.added(subject, header, fields, payload)
            if isinstance(counted, ApiError):
                return counted
            total, header, payload = counted, counted.header, counted.payload
            tail = b',"val":"%d"}' % total.value
        refusal = self._too_large(header, payload)
        if refusal is not None:
            return refusal
        if not self._parts.retention.has_interest(subject):
            seq = self._skip(txn, batch, subject, verdict)
            self._newest.clear()
        else:
            kept = self._store_checked(txn, batch, _Checked(subject, header, payload, fields, verdict, total), so_far)
            if isinstance(kept, ApiError):
                return kept
            seq = kept
            subjects.add(subject)
            if self._newest:
                self._note_newest(subject, seq, removes_others=bool(verdict.rollup))
        if so_far is not None:
            so_far.subjects.add(subject)
            if verdict.msg_id:
                so_far.msg_ids.add(verdict.msg_id)
        self._taken_seq = seq
        self._acknowledge(batch, reply, seq, tail)
        return None

    def _store_checked(self, txn: "Txn", batch: Batch, message: _Checked, so_far: BatchSoFar | None) -> int | ApiError:
        """Store it, with all that hangs on it, if there is room: its sequence, or why not."""
        config, subject, fields = self.config, message.subject, message.fields
        refusal = self._no_space(self._log.message_bytes(subject, message.header, message.payload))
        if refusal is not None:
            return refusal
        try:
            ttl_ns, header = self._lifetime(fields, message.header)
        except ValueError:
            return error(JSMessageTTLInvalidErr)
        if config.discard == "new":
            size = self._log.message_bytes(subject, header, message.payload)
            rolls = bool(fields.get(ROLLUP))
            if so_far is None:
                refusal = limits.refusal(config, self._log, subject, size, rollup=rolls)
            else:
                refusal = limits.refusal_in_batch(config, self._log, subject, size, so_far, rollup=rolls)
            if refusal is not None:
                return refusal
        seq = self._store(txn, batch, message._replace(header=header))
        if config.discard == "new" and config.max_msgs_per_subject > 0:
            # What the message replaces must not count against the next one of the same turn.
            self._enforce(txn, batch, (subject,))
        if ttl_ns > 0:
            self._expire_later(txn, batch, seq, self._log.state.last_ts_ns + ttl_ns)
        if config.allow_msg_schedules:
            self._note_schedules(txn, batch, subject, seq, fields)
        return seq

    def _check_header(
        self, message: Published, subject: bytes, so_far: BatchSoFar | None, *, scheduled: bool
    ) -> tuple[bytes, dict[bytes, bytes], Verdict]:
        """Return the header in its stored form, the `Nats-` fields in it, and the verdict on them."""
        header, payload = message.header, message.payload
        if not header:
            return header, {}, STORE
        if REQUEST_INFO in header:
            header = headers.remove(header, REQUEST_INFO)
        fields = nats_fields(header)
        if so_far is not None:
            verdict = check_in_batch(fields, subject, self, payload, so_far)
        elif fields.get(BATCH_ID) and not self.config.allow_atomic:
            verdict = Verdict(self.refuses_batched(message) or error(JSAtomicPublishDisabledErr))
        else:
            verdict = check(fields, subject, self, payload, scheduled=scheduled)
        if fields.get(SCHEDULE) and ROLLUP not in fields:
            header = headers.add_field(header, ROLLUP, b"sub")
        return header, fields, verdict

    def _lifetime(self, fields: dict[bytes, bytes], header: bytes) -> tuple[int, bytes]:
        """Return the message's TTL (ns; 0: none) and the header that carries it. Raises ValueError."""
        ttl_ns = parse_ttl(fields[TTL]) if fields.get(TTL) else 0
        if 0 < ttl_ns < self._ttl_ns_min:
            ttl_ns = self._ttl_ns_min
            header = headers.set_field(header, TTL, b"%d" % (ttl_ns // NS_PER_S))
        return ttl_ns, header

    def _skip(self, txn: "Txn", batch: Batch, subject: bytes, verdict: Verdict) -> int:
        """Nobody will ever read it: the sequence is used up, the publisher is answered, nothing is kept but the id."""
        seq = self._log.state.last_seq + 1
        self._log.skip_to(txn, seq)
        self._last_msg_id = verdict.msg_id
        if verdict.rollup:
            batch.note_purged(
                self._log.purge(txn, subject_filter=subject if verdict.rollup == b"sub" else b"", why="rollup")
            )
        if verdict.msg_id:
            batch.msg_ids[verdict.msg_id] = seq
            self._parts.dedupe.add(verdict.msg_id, seq, self._now_ns)
        return seq

    def _plain_ids(self, messages: list[Published]) -> list[bytes] | None:
        """Return the ids of messages that need no checks besides sizes, `Nats-Msg-Id` and expectations, if all of these hold.

        There must be room, and no id stored before. Empty without ids, b"" for a message without one. None: a message
        needs more checks.
        """
        if not self._plain or (self._by_interest and not self._all_wanted(messages)):
            return None
        size, msg_ids, expected = scan_batch(messages, self._fast_path_rules)
        if size < 0 or (self._refuses and not self._has_room(len(messages), size)):
            return None
        room = self._parts.room
        storage = self.config.storage
        if room.storage_limited[storage] and room.no_storage_for(storage, size, len(messages)) is not None:
            return None
        if expected and not self._is_as_expected(messages, msg_ids, expected):
            return None
        if not any(msg_ids):
            return []  # headers without an id, as all of MQTT's: there is nothing to look for, and nothing to remember
        if not self._parts.dedupe.all_new(msg_ids, self._now_ns):
            return None
        return msg_ids

    def _all_wanted(self, messages: list[Published]) -> bool:
        """Return whether a consumer wants each of these messages: what nobody wants uses up its sequence alone."""
        wanted = self._parts.retention.has_interest
        return all(wanted(subject) for subject in {message.subject for message in messages})

    def _has_room(self, count: int, size: int) -> bool:
        """Return whether a stream that discards new messages has room for all of these, even if they replace nothing."""
        config, state = self.config, self._log.state
        return (config.max_msgs <= 0 or state.messages + count <= config.max_msgs) and (
            config.max_bytes <= 0 or state.bytes + size <= config.max_bytes
        )

    def _is_as_expected(self, messages: list[Published], msg_ids: list[bytes], expected: list[Expected]) -> bool:
        """Return whether what messages expect is so when it is their turn; all of them are stored, then."""
        last_seq = self._log.state.last_seq
        here: dict[bytes, int] = {}  # last sequences of the subjects of those before
        looked_at = 0
        for at, seq, subject_seq, msg_id in expected:
            if seq >= 0 and seq != last_seq + at:
                return False
            if msg_id and msg_id != (msg_ids[at - 1] if at else self.last_msg_id()):
                return False
            if subject_seq < 0:
                continue
            while looked_at < at:
                looked_at += 1
                here[messages[looked_at - 1].subject] = last_seq + looked_at
            subject = messages[at].subject
            if subject_seq != (here.get(subject) or self._last_soon(subject)):
                return False
        return True

    def _last_soon(self, subject: bytes) -> int:
        """Return the last sequence of a subject; -1 where it is not known at once."""
        if not self._parts.subject_index_loader.done:
            return -1
        try:
            return self._log.last_seq_for(subject)
        except StoreError:
            return -1  # the read that follows reports the error

    def _take_plain(self, txn: "Txn", batch: Batch, messages: list[Published], msg_ids: list[bytes]) -> None:
        """Stage messages that are all plain: the same as `_stage` for each, at a fraction of its cost."""
        ts_ns = self._now_ns
        first = self._log.append_all(txn, messages, ts_ns)
        count = len(messages)
        self._now_ns += count
        self._taken_seq = first + count - 1
        batch.stored += count
        self._last_msg_id = b""
        if msg_ids:
            self._last_msg_id = msg_ids[-1]
            batch.msg_ids = self._parts.dedupe.add_all(msg_ids, first, ts_ns)
            if batch.msg_ids:
                self._parts.ids.record(txn)
        if not self.config.no_ack:
            batch.acks += pub_acks(messages, self.ack_head, first)

    def _note_schedules(self, txn: "Txn", batch: Batch, subject: bytes, seq: int, fields: dict[bytes, bytes]) -> None:
        """Apply a stored message to the schedules: it is one, or ends that of its own subject or another's."""
        schedules = self._parts.schedules
        schedules.staged(txn, batch, subject, seq, fields, self._log.state.last_ts_ns)
        scheduler = ended_scheduler(fields)
        if scheduler:
            schedules.ended(txn, batch, scheduler)
            batch.note_purged(self._log.purge(txn, subject_filter=scheduler, why="schedule"))

    def refuses_batched(self, message: Published) -> ApiError | None:
        """Return the error that nats-server finds before it looks up the batch of a message; None: there is none."""
        subject, _, header, payload = message
        room = self._parts.room
        if room.storage_limited[self.config.storage]:
            size = self._log.message_bytes(subject, header, payload)
            refusal = room.no_storage_for(self.config.storage, size)
            if refusal is not None:
                return refusal
        return (
            error(JSStreamMessageExceedsMaximumErr)
            if 0 <= self.config.max_msg_size < len(header) + len(payload)
            else None
        )

    def _too_large(self, header: bytes, payload: bytes) -> ApiError | None:
        if 0 <= self.config.max_msg_size < len(header) + len(payload):
            return error(JSStreamMessageExceedsMaximumErr)
        return error(JSStreamHeaderExceedsMaximumErr) if len(header) > HEADER_BYTES_MAX else None

    def _no_space(self, size: int, messages: int = 1) -> ApiError | None:
        """Return why the limits of account and server leave no room for so many bytes."""
        room = self._parts.room
        storage = self.config.storage
        return room.no_storage_for(storage, size, messages) if room.storage_limited[storage] else None

    def _store(self, txn: "Txn", batch: Batch, message: _Checked) -> int:
        subject, header, payload, _, verdict, total = message
        before = self._log.last_seq_for(subject) if self._republisher is not None else 0
        ts_ns = self._now_ns
        self._now_ns = ts_ns + 1
        seq = self._log.append(txn, subject, header, payload, ts_ns)
        batch.stored += 1
        self._last_msg_id = b""
        if total is not None and self._counters is not None:
            self._counters.stored(subject, seq, total)
        if verdict.msg_id:
            self._remember(txn, batch, verdict.msg_id, seq, ts_ns)
        if verdict.rollup:
            rolled = subject if verdict.rollup == b"sub" else b""
            batch.note_purged(self._log.purge(txn, subject_filter=rolled, keep=1, why="rollup"))
        if self._republisher is not None:
            batch.republished.append(Republished(subject, header, payload, seq, ts_ns, before))
        return seq

    def _remember(self, txn: "Txn", batch: Batch, msg_id: bytes, seq: int, ts_ns: int) -> None:
        self._last_msg_id = msg_id
        self._parts.ids.record(txn)
        batch.msg_ids[msg_id] = seq
        self._parts.dedupe.add(msg_id, seq, ts_ns)

    def _expire_later(self, txn: "Txn", batch: Batch, seq: int, due_ns: int) -> None:
        batch.ttls.append((seq, due_ns))
        self._parts.expiry.record(txn, seq)

    def _acknowledge(self, batch: Batch, reply: bytes, seq: int, tail: bytes) -> None:
        if reply and not self.config.no_ack:
            batch.acks.append((reply, self.ack_head + b"%d" % seq + tail))
