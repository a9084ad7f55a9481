"""A restore in progress: it receives the chunks of an archive; its result is a complete stream, or nothing.

A client sends chunks to `$JS.SNAPSHOT.RESTORE.<stream>.<id>`, each with a reply subject, and an empty one at the end. A
chunk is answered (empty) when little waits before it. A client that waits for answers therefore never runs far ahead
and never waits long (the `nats` tool waits five seconds); one that does not wait is abandoned when it is too far ahead.
The last answer is that of STREAM.CREATE: the stream, or the error, which may also answer an earlier chunk.

One step runs at a time: a thread parses one block of the archive, the loop stores its content, then the next block
follows. Stored data is not a stream before it is complete (`restored_parts.py`, `commit_stream`).

The last step of a restore: one transaction adds configuration and consumers to the messages, and starts the stream.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.backup.advisories import ArchiveAdvisories
from eyot_daemon.jetstream.backup.consumer_archive import config_of, records_of
from eyot_daemon.jetstream.backup.restored_parts import RestoredParts
from eyot_daemon.jetstream.config.stream import check_no_overlap, checked
from eyot_daemon.jetstream.consumer.consumers import check_restored
from eyot_daemon.jetstream.consumer.reader import ConsumerReader
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.stream.info import stream_info
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.jetstream.stream_core import Batch
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_store.errors import StoreError
from eyot_wire.archive.errors import ArchiveError, UnexpectedContent
from eyot_wire.archive.reader import ArchiveReader
from eyot_wire.archive.values import Part
from eyot_wire.jetstream.error_codes import (
    JSMemoryResourcesExceededErr,
    JSStorageResourcesExceededErr,
    JSStreamNameExistRestoreFailedErr,
    JSStreamRestoreErrF,
)
from eyot_wire.jetstream.errors import ApiError, JetStreamError, error, fail
from eyot_wire.jetstream.model import ConsumerConfig, ErrorPart, InvalidJson, StreamConfig, encode, encode_response
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.api_request import ApiRequest
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store.txn import Txn

log = logging.getLogger("eyot.jetstream")

#: (the stream, or the error)
Done = Callable[[Stream | None, StoreError | None], None]


def commit_stream(jsa: "JetStreamAccount", config: StreamConfig, parts: RestoredParts, done: Done) -> None:
    """Commit a restored stream. Raises JetStreamError, ArchiveError; the store then holds no stream."""
    if config.name in jsa.streams:
        raise fail(JSStreamNameExistRestoreFailedErr)
    config = checked(config, jsa.rules(config))  # again: there may be other streams now
    check_no_overlap(config, jsa.rules(config))
    restoring = parts.restoring
    store, log = restoring.store, restoring.log
    txn = store.begin()
    try:
        restoring.go_to(txn, parts.last_seq, parts.last_ts_ns)
        parts.stage_positions(txn)
        parts.marks.stage(log, txn, jsa.account.broker.clock.now_ns())
        in_memory = _stage_consumers(jsa, config, parts, txn)
        log.set_config(txn, encode(config))
    except BaseException:
        store.abort(txn)
        raise

    def settle(failure: StoreError | None) -> None:
        if parts.discarded:  # JetStream went off meanwhile
            failure = failure or StoreError("closed", "the restore was ended")
        if failure is not None:
            done(None, failure)
            return
        stream = jsa.restore_stream(log, config)
        jsa.start_stream(stream)
        advisories.stream_action(jsa.account, config.name, "create", jsa.domain)
        _tidy(stream, in_memory)
        done(stream, None)

    store.submit(txn, settle)


def _stage_consumers(jsa: "JetStreamAccount", config: StreamConfig, parts: RestoredParts, txn: "Txn") -> list[str]:
    """Stage the consumers' records; returns the names of those that live in memory."""
    log = parts.restoring.log
    clock = jsa.account.broker.clock
    found: dict[str, ConsumerConfig] = {}
    for part in parts.consumers:
        try:
            consumer, created_ns = config_of(part)
            if consumer.direct:
                continue  # its downstream creates it again
            check_restored(jsa, config, consumer, lambda: list(found.values()))
            name = consumer.durable_name or consumer.name
            if name in found:
                raise InvalidJson("there are two of the name")
            start = ConsumerReader(log, consumer).start(consumer, config)
            # Without a time of creation, as in flat archives, its progress says where it is: servers that write these know.
            held = log.seq_at_time(created_ns) - 1 if created_ns else 0
            records = records_of(part, consumer, created_ns, start, held, clock.monotonic(), clock.now_ns())
        except (JetStreamError, InvalidJson) as problem:
            why = problem.api_error.description if isinstance(problem, JetStreamError) else problem
            raise ArchiveError(f'error restoring consumer ["{part.name}"]: {why}') from None
        found[name] = consumer
        log.put_consumer(txn, name, *records)
    return [name for name, each in found.items() if each.mem_storage or config.storage == "memory"]


def _tidy(stream: Stream, in_memory: list[str]) -> None:
    """Consumers in memory have no records; and the stream may hold more than its limits now allow."""
    batch = Batch()
    with stream.staging() as txn:
        for name in in_memory:
            stream.log.delete_consumer(txn, name)
        batch.removed = limits.enforce(stream.config, stream.log, txn, ())
        if stream.config.max_msgs_per_subject > 0:
            batch.removed += stream.sweep.begin(txn)
        if not txn.parts:
            stream.store.abort(txn)
            return
    stream.submit(txn, batch)


#: Time limit between chunks.
IDLE_S = 5.0
#: Bytes of waiting chunks: up to this many are answered, and up to this many are accepted.
ANSWERED_MAX = 1 << 20
WAITING_MAX = 16 << 20
_CHUNK_OVERHEAD = 256  # memory per chunk besides its payload

_ANSWER = "stream_create_response"


class _Chunk:
    """A chunk that waits; `reply` is empty once it was answered."""

    __slots__ = ("payload", "reply", "size")

    def __init__(self, reply: bytes, payload: bytes) -> None:
        self.reply = reply
        self.payload = payload
        self.size = len(payload) + _CHUNK_OVERHEAD


class Restore:
    """One restore. `ended` is called once, with any result."""

    kind = Kind.JETSTREAM

    def __init__(self, request: "ApiRequest", config: StreamConfig, ended: Callable[[], None]) -> None:
        self.config = config
        self.deliver_subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{nuid()}"
        self.parts = RestoredParts(request.jsa, config)
        self._jsa = request.jsa
        self._account = request.jsa.account
        self._timers = self._account.broker.timers
        self._beside = request.jsa.server.beside
        self._advisories = ArchiveAdvisories(request.jsa, config.name, request.origin)
        self._ended = ended
        self._reader = ArchiveReader(config.name)
        self._chunks: deque[_Chunk] = deque()
        self._waiting = 0  # bytes in them
        self._received = 0
        self._reply = b""  # of the end, once it is being worked on
        self._muted = False  # a chunk came without a reply subject
        self._unread = False  # the reader may have further parts of earlier bytes
        self._working = False
        self._refusal: ApiError | None = None  # waits for a chunk to be the answer of
        self._committing = False
        self._over = False
        self._subscription: Subscription | None = None
        self._timer: TimerHandle | None = None
        self.parts.on_room = self._advance

    def __repr__(self) -> str:
        return f"<Restore {self._account.name}/{self.config.name}>"

    @property
    def stored_bytes(self) -> int:
        """Bytes stored so far."""
        return self.parts.stored_bytes

    @property
    def stored_messages(self) -> int:
        return self.parts.stored_messages

    @property
    def _path(self) -> str:
        return f"'{self._account.name} > {self.config.name}'"

    # -- life cycle --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Accept chunks from now on."""
        log.info("Starting restore for stream %s", self._path)
        self._advisories.restore_created()
        self._subscription = self._account.subscribe(self.deliver_subject.encode(), self)
        self._idle_from_now()

    def stop(self) -> None:
        """Stop with the daemon, or with JetStream of the account; remove everything."""
        self._fail(StoreError("closed", "the server shuts down"))
        self._close()

    def _close(self) -> None:
        """End: accept and answer nothing more."""
        if self._over:
            return
        self._over = True
        self._chunks.clear()
        if self._subscription is not None:
            self._account.unsubscribe(self._subscription)
        if self._timer is not None:
            self._timer.cancel()
        self._ended()

    # -- chunks ----------------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        if self._over or self._committing:
            return True
        chunk = _Chunk(reply, payload)
        self._muted = self._muted or not reply
        self._chunks.append(chunk)
        self._waiting += chunk.size
        self._account.broker.mark_dirty(self)
        return True

    def flush(self) -> None:
        if self._over:
            return
        self._idle_from_now()
        if self._muted:
            self._fail(ArchiveError(f"restore for stream {self._path} requires reply subject for each chunk"))
            self._close()
            return
        if self._waiting > WAITING_MAX:
            self._fail(ArchiveError("chunks came faster than they were answered"))
        self._advance()
        self._answer()

    def _answer(self) -> None:
        """Answer the chunks before which little waits."""
        if self._over or self._refusal is not None:
            return
        before = 0
        for chunk in self._chunks:
            before += chunk.size
            if before > ANSWERED_MAX and chunk is not self._chunks[0]:
                return
            if chunk.payload and chunk.reply:
                self._account.publish(chunk.reply)
                chunk.reply = b""

    def _idle_from_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later(IDLE_S, self._idle)

    def _idle(self) -> None:
        if self._over or self._committing:
            return
        if self._chunks or self._working or self._unread or self.parts.waiting:
            self._idle_from_now()
            return
        log.warning("restore for stream %s is stalled", self._path)
        self.parts.discard()
        self._close()

    # -- work ------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do the next possible step."""
        if self._over or self._working or self._committing:
            return
        if self._refusal is not None:
            self._refuse()
            return
        try:
            self._do_next()
        except Exception as problem:
            self._fail(problem)

    def _do_next(self) -> None:
        while True:
            if self.parts.waiting:
                if self.parts.store_some():
                    self._timers.call_later(0, self._advance)  # others have their turn
                return
            if self._unread:
                self._working = True
                self._beside.run(self._step, self._stepped)
                return
            self._answer()
            if not self._chunks:
                return
            chunk = self._chunks.popleft()
            self._waiting -= chunk.size
            self._received += len(chunk.payload)
            if not chunk.payload:
                self._reply = chunk.reply
                self._reader.end()
                self._committing = True
                self.parts.when_committed(self._commit)
                return
            self._idle_from_now()
            self._reader.feed(chunk.payload)
            self._unread = True

    def _step(self) -> list[Part] | ArchiveError | None:
        """Parse one block, outside the loop."""
        try:
            return self._reader.step()
        except ArchiveError as problem:
            return problem

    def _stepped(self, parts: list[Part] | ArchiveError | None, failure: StoreError | None) -> None:
        """Process the parts of one block."""
        self._working = False
        if self._over:
            self.parts.discard()
            return
        if failure is not None:
            self._fail(failure)
            return
        if isinstance(parts, ArchiveError):
            self._fail(parts)
            return
        if parts is None:
            self._unread = False
        else:
            self.parts.waiting.extend(parts)
        self._advance()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _commit(self, failure: StoreError | None) -> None:
        """Finish when all messages are on flash, and start the stream."""
        if self._over:
            return
        try:
            if failure is not None:
                raise failure
            commit_stream(self._jsa, self.config, self.parts, self._committed)
        except Exception as problem:
            self._fail(problem)

    def _committed(self, stream: Stream | None, failure: StoreError | None) -> None:
        if stream is None:
            self._fail(failure or StoreError("closed", "the stream was not stored"))
            return
        log.info("Completed restore of %d bytes for stream %s", self._received, self._path)
        self._advisories.restore_complete(self._received)
        self._account.publish(
            self._reply, payload=encode_response(_ANSWER, stream_info(stream, self._jsa.sourcing, created=True))
        )
        self._close()

    def _fail(self, problem: Exception) -> None:
        """Remove everything, and report the reason with the next answer."""
        if self._over or self._refusal is not None:
            return
        self._refusal = self._error_of(problem)
        log.warning("Restore failed for stream %s: %s", self._path, self._refusal.description)
        self._committing = False
        self.parts.discard()
        self._advisories.restore_complete(self._received)
        self._refuse()

    def _refuse(self) -> None:
        reply = self._reply or next((chunk.reply for chunk in self._chunks if chunk.reply), b"")
        if reply and self._refusal is not None:
            self._account.publish(reply, payload=encode_response(_ANSWER, ErrorPart(error=self._refusal)))
            self._close()

    def _error_of(self, problem: Exception) -> ApiError:
        if isinstance(problem, JetStreamError):
            return problem.api_error
        if isinstance(problem, UnexpectedContent):
            log.error("Restore of stream %s: %s", self._path, problem.what)
            return error(JSStreamRestoreErrF, err=f"unexpected content (account={self._account.name})")
        if isinstance(problem, StoreError) and problem.reason == "full":
            return error(
                JSStorageResourcesExceededErr if self.config.storage == "file" else JSMemoryResourcesExceededErr
            )
        if isinstance(problem, StoreError):
            return error(JSStreamRestoreErrF, err=problem.message)
        if isinstance(problem, ArchiveError):
            return error(JSStreamRestoreErrF, err=problem)
        log.error("Restore of stream %s", self._path, exc_info=problem)
        return error(JSStreamRestoreErrF, err="internal error")
