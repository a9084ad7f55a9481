"""How one message gets into a stream: the checks in nats-server's order, and staging it.

The order is that of `messages/headers.py`, then size, account, interest, limits. `StreamIngest` decides what makes up a transaction and
when its answers leave.
"""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.ingest import fast_batches
from eyot_daemon.jetstream.messages.batch import Batch, Republished
from eyot_daemon.jetstream.messages.batch_headers import BatchSoFar, check_in_batch
from eyot_daemon.jetstream.messages.counters import Counters, Sum
from eyot_daemon.jetstream.messages.headers import (
    BATCH_ID,
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQ,
    EXPECTED_LAST_SUBJECT_SEQ,
    EXPECTED_STREAM,
    HEADER_BYTES_MAX,
    MSG_ID,
    NATS_MARK,
    REQUEST_INFO,
    ROLLUP,
    STORE,
    TTL,
    Verdict,
    check,
    nats_fields,
)
from eyot_daemon.jetstream.messages.message_ttl import parse_ttl
from eyot_daemon.jetstream.messages.republish import Republisher
from eyot_daemon.jetstream.messages.schedule import SCHEDULE, ended_scheduler
from eyot_daemon.jetstream.retention import limits
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
from eyot_wire.jetstream.model import NS_PER_S, PubAckError, StreamConfig, encode
from eyot_wire.transform import Transform

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.log.log import Log
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

_USUAL_FIELDS = (
    b"\r\n%b:" % MSG_ID,
    b"\r\n%b:" % EXPECTED_STREAM,
    b"\r\n%b:" % EXPECTED_LAST_SEQ,
    b"\r\n%b:" % EXPECTED_LAST_SUBJECT_SEQ,
    b"\r\n%b:" % EXPECTED_LAST_MSG_ID,
)

#: A clock that was set back by less than this does not show in the stored times.
CLOCK_STEP_NS = 1_000_000_000


class _Checked(NamedTuple):
    """A message as it is to be stored, what its headers ask for, and the sum of a counter."""

    subject: bytes
    header: bytes
    payload: bytes
    fields: dict[bytes, bytes]
    verdict: Verdict
    total: Sum | None


class MessageStager:
    """Staging of single messages for one stream. Rebuilt when the stream's configuration changes."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._log: Log = stream.log
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
        domain = b'"domain":%b,' % encode(stream.jsa.domain) if stream.jsa.domain else b""
        self._counters = Counters(stream.log) if self.config.allow_msg_counter else None
        size_max = self.config.max_msg_size
        self._fast_path_rules = FastPathRules(
            size_max=size_max if size_max >= 0 else 1 << 62,
            header_max=HEADER_BYTES_MAX,
            reply_end=fast_batches.MARK,
            special=NATS_MARK,
            fields=_USUAL_FIELDS,
            stream=self.config.name.encode(),
            cost=stream.log.message_bytes(b"", b"", b""),
            header_cost=stream.log.header_bytes,
        )
        # What is published without a header that asks for something is stored as it comes, as long as there is room for it.
        self._plain = (
            transform is None
            and self._republisher is None
            and self._counters is None
            and not (self.config.sealed or self.config.allow_msg_schedules)
            and not (self.config.discard == "new" and self.config.discard_new_per_subject)
            and self.config.retention != "interest"
        )
        self._refuses = self.config.discard == "new" and max(self.config.max_msgs, self.config.max_bytes) > 0
        self._limited = max(self.config.max_msgs, self.config.max_bytes, self.config.max_msgs_per_subject) > 0
        self.ack_head = b'{"stream":%b,%b"seq":' % (encode(self.config.name), domain)
        self._last_msg_id: bytes | None = None  # None: to be looked up
        self._now_ns = 0  # the stored time of the next message
        self._taken_seq = 0  # the sequence under which the last message taken is stored

    # -- StreamFacts -----------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        return self._log.state.last_seq

    def last_msg_id(self) -> bytes:
        if self._last_msg_id is None:
            newest = self._log.get(self._log.committed_seq)
            self._last_msg_id = (headers.get(newest.header, MSG_ID) or b"") if newest is not None else b""
        return self._last_msg_id

    def last_seq_for(self, subject_filter: bytes) -> int:
        matching = self._log.subjects().matching(subject_filter)
        return max((self._log.last_seq_for(subject) for subject, *_ in list(matching)), default=0)

    def ends_with_schedule(self, subject: bytes) -> bool:
        newest = self._log.last_for(subject)
        return newest is None or bool(headers.get(newest.header, SCHEDULE))

    def duplicate_of(self, msg_id: bytes) -> int:
        return self._stream.dedupe.find(msg_id, self._now_ns)

    def _enforce(self, txn: "Txn", batch: Batch, subjects: Collection[bytes]) -> None:
        """Make room. A record that cannot be read stays where it is: that must not keep new ones from being stored."""
        if self.config.max_msgs_per_subject > 0 and not self._stream.subject_index_loader.done:
            sweep = self._stream.sweep
            sweep.overdue.update(subjects)
            self._stream.subject_index_loader.then(sweep.enforce_overdue)
            subjects = ()
        try:
            batch.removed += limits.enforce(self.config, self._log, txn, subjects, self._stream.sweep.overdue)
        except StoreError as failure:
            log.error("Stream '%s > %s': limits not enforced: %s", self._log.account, self._log.name, failure)

    def _start_ns(self) -> int:
        """The time of the batch: the clock's, but not before the last message if the clock was only nudged."""
        self._stream.jsa.engine.watch_clock()
        now_ns = self._stream.broker.clock.now_ns()
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
        """Stage one message, or say why it is refused. `so_far`: as `check_in_batch` takes it, `scheduled` as `check`."""
        subject, reply, _, payload = message
        if self._transform is not None:
            subject = self._transform.apply(subject) or subject
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
        if not self._stream.retention.has_interest(subject):
            seq = self._skip(txn, batch, subject, verdict)
        else:
            kept = self._store_checked(txn, batch, _Checked(subject, header, payload, fields, verdict, total), so_far)
            if isinstance(kept, ApiError):
                return kept
            seq = kept
            subjects.add(subject)
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
        """The header as it is to be stored, NATS' fields in it, and what they say is to happen to the message."""
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
        """How long the message may live (ns, 0: for ever), and its header, which says so. Raises ValueError."""
        ttl_ns = parse_ttl(fields[TTL]) if fields.get(TTL) else 0
        if 0 < ttl_ns < self._ttl_ns_min:
            ttl_ns = self._ttl_ns_min
            header = headers.set_field(header, TTL, b"%d" % (ttl_ns // NS_PER_S))
        return ttl_ns, header

    def _skip(self, txn: "Txn", batch: Batch, subject: bytes, verdict: Verdict) -> int:
        """Nobody will ever read it: the sequence is used up, the publisher is answered, nothing is kept but the id."""
        seq = self._log.state.last_seq + 1
        self._log.skip_to(txn, seq)
        if verdict.rollup:
            batch.note_purged(
                self._log.purge(txn, subject_filter=subject if verdict.rollup == b"sub" else b"", why="rollup")
            )
        if verdict.msg_id:
            batch.msg_ids[verdict.msg_id] = seq
            self._stream.dedupe.add(verdict.msg_id, seq, self._now_ns)
        return seq

    def _plain_ids(self, messages: list[Published]) -> list[bytes] | None:
        """The ids of messages of which nothing has to be looked at but sizes, `Nats-Msg-Id` and what they expect, if all is as they
        expect, there is room, and no id was stored before: empty where there are none, b"" for a message without one. None: there is
        more to one of them."""
        if not self._plain:
            return None
        size, msg_ids, expected = scan_batch(messages, self._fast_path_rules)
        if size < 0 or (self._refuses and not self._has_room(len(messages), size)):
            return None
        jsa = self._stream.jsa
        storage = self.config.storage
        if jsa.storage_limited[storage] and jsa.no_storage_for(storage, size, len(messages)) is not None:
            return None
        if expected and not self._is_as_expected(messages, msg_ids, expected):
            return None
        if msg_ids and not self._stream.dedupe.all_new(msg_ids, self._now_ns):
            return None
        return msg_ids

    def _has_room(self, count: int, size: int) -> bool:
        """Whether a stream that discards new messages has room for all of these, whatever they replace."""
        config, state = self.config, self._log.state
        return (config.max_msgs <= 0 or state.messages + count <= config.max_msgs) and (
            config.max_bytes <= 0 or state.bytes + size <= config.max_bytes
        )

    def _is_as_expected(self, messages: list[Published], msg_ids: list[bytes], expected: list[Expected]) -> bool:
        """Whether what messages expect is so when it is their turn; all of them are stored, then."""
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
        """The last sequence of a subject; -1 where it is not known at once."""
        if not self._stream.subject_index_loader.done:
            return -1
        try:
            return self._log.last_seq_for(subject)
        except StoreError:
            return -1  # who looks closer is told

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
            batch.msg_ids = self._stream.dedupe.add_all(msg_ids, first, ts_ns)
            if batch.msg_ids:
                self._stream.ids.record(txn)
        if not self.config.no_ack:
            batch.acks += pub_acks(messages, self.ack_head, first)

    def _note_schedules(self, txn: "Txn", batch: Batch, subject: bytes, seq: int, fields: dict[bytes, bytes]) -> None:
        """What a stored message means for schedules: it is one, or ends its own subject's or another's."""
        schedules = self._stream.schedules
        schedules.staged(txn, batch, subject, seq, fields, self._log.state.last_ts_ns)
        scheduler = ended_scheduler(fields)
        if scheduler:
            schedules.ended(txn, batch, scheduler)
            batch.note_purged(self._log.purge(txn, subject_filter=scheduler, why="schedule"))

    def refuses_batched(self, message: Published) -> ApiError | None:
        """What nats-server looks at before it looks for the batch of a message."""
        subject, _, header, payload = message
        jsa = self._stream.jsa
        if jsa.storage_limited[self.config.storage]:
            size = self._log.message_bytes(subject, header, payload)
            refusal = jsa.no_storage_for(self.config.storage, size)
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

    def _no_space(self, size: int) -> ApiError | None:
        """What account and server have left."""
        jsa = self._stream.jsa
        storage = self.config.storage
        return jsa.no_storage_for(storage, size) if jsa.storage_limited[storage] else None

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
        self._stream.ids.record(txn)
        batch.msg_ids[msg_id] = seq
        self._stream.dedupe.add(msg_id, seq, ts_ns)

    def _expire_later(self, txn: "Txn", batch: Batch, seq: int, due_ns: int) -> None:
        batch.ttls.append((seq, due_ns))
        self._stream.expiry.record(txn, seq)

    def _acknowledge(self, batch: Batch, reply: bytes, seq: int, tail: bytes) -> None:
        if reply and not self.config.no_ack:
            batch.acks.append((reply, self.ack_head + b"%d" % seq + tail))

    def refusal(self, api_error: ApiError) -> bytes:
        return encode(PubAckError(error=api_error, stream=self.config.name))
