"""Stages the messages of a turn at once: one transaction, answers after the flush.

A complete atomic batch (`atomic_batches.py`) is a transaction of its own, and so are messages of schedules. Refusals
are answered at the end of the turn; stored messages and duplicates when the transaction that contains them is on flash.
A turn with only duplicates of pending messages waits for these.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.ingest import fast_batches
from eyot_daemon.jetstream.ingest.atomic_batches import CONTAINS_DUPLICATE, MARK, BatchSoFar, Commit
from eyot_daemon.jetstream.ingest.limiter import TOO_MANY_REQUESTS
from eyot_daemon.jetstream.ingest.message_stager import MessageStager
from eyot_daemon.jetstream.nats_headers import (
    BATCH_ID,
    EXPECTED_LAST_MSG_ID,
    MSG_ID,
    REQUIRED_LEVEL,
    ROLLUP,
    TTL,
    nats_fields,
)
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.retention.expiry import due_of
from eyot_daemon.jetstream.stream_core import Batch, Republished
from eyot_store.errors import StoreError
from eyot_wire import headers
from eyot_wire.frames import Published
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.error_codes import (
    JSAtomicPublishDisabledErr,
    JSAtomicPublishUnsupportedHeaderBatchErr,
    JSBatchPublishDisabledErr,
    JSStreamSealedErr,
    JSStreamStoreFailedF,
    JSStreamTooManyRequests,
)
from eyot_wire.jetstream.errors import ApiError, JetStreamError, error
from eyot_wire.jetstream.model import encode
from eyot_wire.jetstream.native import mirrored_run, sourced_run

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.due_times import Due
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

NATS_FIELD = b"\r\nNats-"
SOURCE_FIELD = b"\r\nNats-Stream-Source:"
MSG_ID_FIELD = b"\r\nNats-Msg-Id:"
LAST_ID_FIELD = b"\r\n" + EXPECTED_LAST_MSG_ID + b":"
#: Fields of NATS in a mirror's message that ask for nothing.
_HARMLESS_FIELDS = (MSG_ID_FIELD, SOURCE_FIELD)


def _asks_for_something(header: bytes) -> bool:
    return header.count(NATS_FIELD) > sum(field in header for field in _HARMLESS_FIELDS)


class SubjectRemoval(NamedTuple):
    """The removal of everything that is stored on a literal subject, for streams with few messages of each subject."""

    subject: bytes


class StreamIngest(MessageStager):
    """The ingesting half of a stream."""

    # -- published messages ----------------------------------------------------------------------------------------

    def run(self, messages: list[Published]) -> None:
        """Stage one turn's messages, and answer those that are refused. What is stored is answered after the commit."""
        self._now_ns = self._start_ns()
        answers: list[tuple[bytes, bytes]] = []
        if not self.config.allow_atomic or not any(MARK in message.header for message in messages):
            self._run_single(messages, answers)
        else:
            self._run_mixed(messages, answers)
        for reply, answer in answers:
            self._stream.account.publish(reply, payload=answer)

    def _run_mixed(self, messages: list[Published], answers: list[tuple[bytes, bytes]]) -> None:
        """Store messages of which some are of atomic batches: messages before the commit of a batch are stored before it."""
        single: list[Published] = []
        for message in messages:
            fields = nats_fields(message.header) if MARK in message.header else {}
            if not fields.get(BATCH_ID) or self.config.sealed:
                single.append(message)
                continue
            taken = self._parts.batches.take(message, fields, self.refuses_batched(message))
            if isinstance(taken, Commit):
                self._run_single(single, answers)
                single = []
                self._run_atomic(taken, answers)
                continue
            if isinstance(taken, ApiError):
                self._stream.reject(taken)
            if message.reply and not self.config.no_ack:
                answers.append((message.reply, self._stream.refusal(taken) if isinstance(taken, ApiError) else b""))
        self._run_single(single, answers)

    def _run_single(self, messages: list[Published], answers: list[tuple[bytes, bytes]]) -> None:
        """Stage messages that are in no atomic batch, as one transaction."""
        if not messages:
            return
        msg_ids = self._plain_ids(messages)
        if msg_ids is not None:
            self._run_plain(messages, msg_ids)
            return
        stream = self._stream
        batch = Batch()
        subjects: set[bytes] = set()
        first_seq = self._log.state.last_seq + 1
        self._newest.clear()
        with stream.staging() as txn:
            for message in messages:
                try:
                    if described := fast_batches.reply_of(message):
                        outcome = self._take_fast(txn, batch, message, described, subjects)
                    else:
                        outcome = self._stage(txn, batch, message, subjects)
                except StoreError as failure:
                    self._newest.clear()
                    outcome = error(JSStreamStoreFailedF, err=failure.message)
                if outcome is None:
                    continue
                stream.reject(outcome)
                if message.reply and not self.config.no_ack:
                    answers.append((message.reply, stream.refusal(outcome)))
            stored = self._log.state.last_seq >= first_seq
            if stored:
                self._enforce(txn, batch, subjects)
        if stored:
            self._parts.limiter.note_staged(batch, txn.bytes)
            stream.submit(txn, batch)
        elif batch.acks:
            stream.after_commits(lambda failure: self.answer(batch, failure))

    def _run_plain(self, messages: list[Published], msg_ids: list[bytes]) -> None:
        """Stage a turn of plain messages, nearly all of them, on the fast path."""
        stream = self._stream
        batch = Batch()
        txn = stream.store.begin()
        try:
            self._stage_plain(txn, batch, messages, msg_ids)
        except BaseException:
            stream.store.abort(txn)
            self.rolled_back(batch)
            raise
        self._parts.limiter.note_staged(batch, txn.bytes)
        stream.submit(txn, batch)

    def _stage_plain(self, txn: "Txn", batch: Batch, messages: list[Published], msg_ids: list[bytes]) -> None:
        """Stage plain messages, and enforce the stream's limits."""
        self._take_plain(txn, batch, messages, msg_ids)
        if self._limited:
            per_subject = self.config.max_msgs_per_subject > 0
            self._enforce(txn, batch, {message.subject for message in messages} if per_subject else ())

    def _take_fast(
        self, txn: "Txn", batch: Batch, message: Published, described: bytes, subjects: set[bytes]
    ) -> ApiError | None:
        """Take a message of a fast batch, which `described` is a reply subject of: its answers leave with the transaction."""
        if self.config.sealed:
            return error(JSStreamSealedErr)
        refused = self.refuses_batched(message)
        if refused is not None:
            return refused
        if not self.config.allow_batched:
            return error(JSBatchPublishDisabledErr)

        def store(message: Published) -> int | fast_batches.Duplicate | ApiError:
            header = headers.remove(message.header, REQUIRED_LEVEL) if message.header else b""
            plain = message._replace(reply=b"", header=header)
            refused = self._stage(txn, batch, plain, subjects, so_far=BatchSoFar())
            if refused is not None and refused.err_code == CONTAINS_DUPLICATE:
                return fast_batches.Duplicate(self._taken_seq)
            return self._taken_seq if refused is None else refused

        answers = self._parts.fast_batches.take(message, described, store)
        if isinstance(answers, ApiError):
            return answers
        batch.acks += [(message.reply, answer) for answer in answers]
        return None

    def _run_atomic(self, commit: Commit, answers: list[tuple[bytes, bytes]]) -> None:
        """Stage a complete batch: all of it, or nothing and the error."""
        batch = Batch()
        subjects: set[bytes] = set()
        so_far = BatchSoFar()
        self._newest.clear()
        try:
            with self._stream.staging() as txn:
                for message in commit.messages:
                    if LAST_ID_FIELD in message.header and headers.get(message.header, EXPECTED_LAST_MSG_ID):
                        raise JetStreamError(
                            error(JSAtomicPublishUnsupportedHeaderBatchErr, header=EXPECTED_LAST_MSG_ID.decode())
                        )
                    refused = self._stage(txn, batch, message, subjects, so_far=so_far)
                    if refused is not None:
                        raise JetStreamError(refused)
                self._enforce(txn, batch, subjects)
        except (JetStreamError, StoreError) as failure:
            self.rolled_back(batch)
            refused = (
                failure.api_error
                if isinstance(failure, JetStreamError)
                else error(JSStreamStoreFailedF, err=failure.message)
            )
            self._stream.reject(refused, len(commit.messages))
            if commit.reply and not self.config.no_ack:
                answers.append((commit.reply, self._stream.refusal(refused)))
            return
        tail = b',"batch":%b,"count":%d}' % (encode(commit.id.decode("utf-8", "replace")), len(commit.messages))
        self._acknowledge(batch, commit.reply, self._log.state.last_seq, tail)
        self._parts.limiter.note_staged(batch, txn.bytes)
        self._stream.submit(txn, batch)

    def run_scheduled(self, due: "Sequence[Due]", now_ns: int) -> None:
        """Store what due schedules make, together with when they are due again."""
        stream = self._stream
        batch = Batch()
        subjects: set[bytes] = set()
        self._now_ns = self._start_ns()
        try:
            with stream.staging() as txn:
                for each in due:
                    made = self._parts.schedules.make(txn, batch, each, now_ns)
                    if made is None:
                        continue
                    subject, header, payload = made
                    message = Published(subject, b"", header, payload)
                    refused = self._stage(txn, batch, message, subjects, scheduled=True)
                    if refused is not None:
                        stream.reject(refused)
                        log.warning(
                            "Stream '%s > %s': the message scheduled for '%s' is not stored: %s",
                            self._log.account,
                            self._log.name,
                            subject.decode("utf-8", "replace"),
                            refused.description,
                        )
                self._enforce(txn, batch, subjects)
        except StoreError as failure:
            log.error("Stream '%s > %s': nothing is scheduled: %s", self._log.account, self._log.name, failure)
            self.rolled_back(batch)
            return
        if txn.parts:
            stream.submit(txn, batch)

    # -- together with other streams -------------------------------------------------------------------------------

    def stage_joint(self, txn: "Txn", batch: Batch, changes: "Sequence[Published | SubjectRemoval]") -> ApiError | None:
        """Stage changes of a transaction that has parts of other streams, in order, for publishers without a reply subject.

        Returns the first refusal; the caller rolls back. A stream without acknowledgements drops what it refuses, as
        always. Raises StoreError.
        """
        self._now_ns = self._start_ns()
        messages = [change for change in changes if isinstance(change, Published)]
        msg_ids = self._plain_ids(messages) if len(messages) == len(changes) else None
        if msg_ids is not None:
            self._stage_plain(txn, batch, messages, msg_ids)
            return None
        subjects: set[bytes] = set()
        for change in changes:
            if isinstance(change, SubjectRemoval):
                self._remove_subject(txn, batch, change.subject)
                continue
            refused = self._stage_alone(txn, batch, change, subjects)
            if refused is None:
                continue
            self._stream.reject(refused)
            if not self.config.no_ack:
                return refused
        if batch.stored:
            self._enforce(txn, batch, subjects)
        else:
            self._log.depend(txn)  # a duplicate is stored if its original is
        return None

    def _stage_alone(self, txn: "Txn", batch: Batch, message: Published, subjects: set[bytes]) -> ApiError | None:
        if MARK in message.header and nats_fields(message.header).get(BATCH_ID):
            return error(JSAtomicPublishDisabledErr)  # a batch is a transaction of its own
        return self._stage(txn, batch, message, subjects)

    def _remove_subject(self, txn: "Txn", batch: Batch, subject: bytes) -> None:
        while seq := self._log.first_seq_for(subject):
            if not self._log.remove(txn, seq):
                break
            batch.removed.append(seq)

    # -- copied messages -------------------------------------------------------------------------------------------

    def stage_copied(
        self, txn: "Txn", messages: Sequence[CopiedMessage], *, mirror: bool, skip_to: int
    ) -> tuple[Batch, int, ApiError | None]:
        """Stage messages of a mirror or source; stop at the first that a sealed or full stream, account or server refuses.

        Returns the batch of the transaction, the last origin sequence that was staged (0: none), and the refusal, if
        any. Sources drop repeated `Nats-Msg-Id` where the stream has a duplicate window; mirrors never do.
        """
        batch = Batch()
        subjects: set[bytes] = set()
        self._now_ns = self._start_ns()
        refusal = None
        taken = 0
        if self._appends_plainly and self._all_fit(messages):
            append = self._append_mirrored if mirror else self._append_sourced
            taken = append(txn, batch, list(messages), subjects)
            messages = messages[batch.stored :]
        for message in messages:
            subject = self.stored_subject(message.subject)
            known = mirror and message.origin_seq <= self._log.state.last_seq
            refusal = None if known else self._refuses_copied(subject, message)
            if refusal is not None:
                break
            try:
                if self._copy(txn, batch, message, subject, mirror):
                    subjects.add(subject)
            except JetStreamError as failure:
                refusal = failure.api_error
                break
            taken = message.origin_seq
        if mirror and refusal is None and skip_to:
            self._log.skip_to(txn, skip_to)
            taken = max(taken, skip_to)
        self._enforce(txn, batch, subjects)
        return batch, taken, refusal

    @property
    def _appends_plainly(self) -> bool:
        """Whether a copied message whose header asks for nothing is appended as it is."""
        special = (self._transform, self._counters, self._republisher)
        return self.config.discard != "new" and all(each is None for each in special)

    def _all_fit(self, messages: Sequence[CopiedMessage]) -> bool:
        """Return whether the limits of account and server leave room for all of these."""
        if not self._parts.room.storage_limited[self.config.storage]:
            return True
        sizes = (self._log.message_bytes(each.subject, each.header, each.payload) for each in messages)
        return self._no_space(sum(sizes), len(messages)) is None

    def _refuses_copied(self, subject: bytes, message: CopiedMessage) -> ApiError | None:
        """Return why a message of a mirror or source is not stored, to be tried again later; None: it is."""
        if self.config.sealed:
            return error(JSStreamSealedErr)
        size = self._log.message_bytes(subject, message.header, message.payload)
        refusal = self._no_space(size)
        if refusal is None and self.config.discard == "new":
            refusal = limits.refusal(self.config, self._log, subject, size)
        return refusal

    def _append_sourced(self, txn: "Txn", batch: Batch, messages: list[CopiedMessage], subjects: set[bytes]) -> int:
        """Append a source's messages up to the first whose header holds more of NATS' than where it is from.

        Returns the last origin sequence appended, 0 for none.
        """
        run = sourced_run(messages, NATS_FIELD, SOURCE_FIELD)
        if not run:
            return 0
        self._log.append_all(txn, run, self._now_ns)
        if self.config.max_msgs_per_subject > 0:
            subjects.update(message[0] for message in run)
        batch.stored = len(run)
        self._now_ns += len(run)
        self._last_msg_id = b""
        return messages[len(run) - 1].origin_seq

    def _append_mirrored(self, txn: "Txn", batch: Batch, messages: list[CopiedMessage], subjects: set[bytes]) -> int:
        """Append a mirror's messages up to the first whose header asks for something, or whose sequence is not above the last one.

        Returns the last origin sequence appended, 0 for none.
        """
        log, last_seq, at = self._log, self._log.state.last_seq, 0
        while at < len(messages):
            first = messages[at]
            if first.origin_seq > last_seq + 1 and not _asks_for_something(first.header):
                log.append(txn, first.subject, first.header, first.payload, first.ts_ns, first.origin_seq)
                last_seq = first.origin_seq
                at += 1
                continue
            run, times = mirrored_run(messages, at, last_seq, NATS_FIELD, _HARMLESS_FIELDS)
            if not run:
                break
            log.append_all(txn, run, times[0], times)
            last_seq += len(run)
            at += len(run)
        batch.stored = at
        if not at:
            return 0
        if self.config.max_msgs_per_subject > 0:
            subjects.update(message.subject for message in messages[:at])
        self._last_msg_id = nats_fields(messages[at - 1].header).get(MSG_ID, b"")
        return last_seq

    def _copy(self, txn: "Txn", batch: Batch, message: CopiedMessage, subject: bytes, mirror: bool) -> bool:
        fields = nats_fields(message.header)
        msg_id = fields.get(MSG_ID, b"")
        if mirror:
            seq, ts_ns = message.origin_seq, message.ts_ns
            if seq <= self._log.state.last_seq:
                return False
        else:
            if msg_id and self.duplicate_of(msg_id):
                return False
            seq, ts_ns = 0, self._now_ns
            self._now_ns = ts_ns + 1
        header, payload = message.header, message.payload
        total = None
        if self._counters is not None and not mirror:
            counted = self._counters.added(subject, header, fields, payload)
            if isinstance(counted, ApiError):
                raise JetStreamError(counted)
            total, header, payload = counted, counted.header, counted.payload
        before = self._log.last_seq_for(subject) if self._republisher is not None else 0
        seq = self._log.append(txn, subject, header, payload, ts_ns, seq or None)
        if total is not None and self._counters is not None:
            self._counters.stored(subject, seq, total)
        batch.stored += 1
        self._last_msg_id = msg_id
        if msg_id and not mirror:
            self._remember(txn, batch, msg_id, seq, ts_ns)
        if TTL in fields and self.config.allow_msg_ttl:
            for _, due_ns in due_of(seq, ts_ns, fields[TTL]):
                self._expire_later(txn, batch, seq, due_ns)
        rollup = fields.get(ROLLUP, b"").lower()
        if rollup in (b"sub", b"all") and self.config.allow_rollup_hdrs and not self.config.deny_purge:
            batch.note_purged(
                self._log.purge(txn, subject_filter=subject if rollup == b"sub" else b"", keep=1, why="rollup")
            )
        if self._republisher is not None:
            batch.republished.append(Republished(subject, header, payload, seq, ts_ns, before))
        return True

    # -- afterwards ------------------------------------------------------------------------------------------------

    def republish(self, batch: Batch) -> None:
        """Republish the messages of a committed batch."""
        if self._republisher is None:
            return
        for item in batch.republished:
            made = self._republisher.make(*item)
            if made is not None:
                self._stream.account.publish(made[0], header=made[1], payload=made[2])

    def answer(self, batch: Batch, failure: StoreError | None) -> None:
        """Answer the publishers of a batch."""
        if failure is not None:
            self.failed(batch, failure)
        else:
            self._stream.account.answer(batch.acks)

    def failed(self, batch: Batch, failure: StoreError) -> None:
        """Roll back a batch that was not committed, and inform its publishers."""
        self.rolled_back(batch)
        self._parts.fast_batches.drop_all()
        # Too much on its way to the disk is the publisher's pace; everything else is ours.
        busy = failure.reason == "busy"
        refused = error(JSStreamTooManyRequests) if busy else error(JSStreamStoreFailedF, err=failure.message)
        if batch.size:
            self._stream.reject(refused, batch.stored)
        text = self._stream.refusal(refused)
        for reply, _ in batch.acks:
            self._stream.account.publish(reply, header=TOO_MANY_REQUESTS if busy else b"", payload=text)

    def rolled_back(self, batch: Batch) -> None:
        """Forget what was staged with `batch` and is not stored."""
        self._parts.dedupe.forget(batch.msg_ids)
        self._last_msg_id = None
        self._newest.clear()
        if self._counters is not None:
            self._counters.forget()
        self._parts.expiry.commit_failed()
        self._parts.ids.commit_failed()
        self._parts.schedules.rolled_back(batch)
