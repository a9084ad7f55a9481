"""The parts of an archive read so far: messages in the store, everything else held until the end.

`waiting` are parts that were read and not stored yet. `store_some` stores a slice and returns whether it can continue
at once; otherwise `on_room` is called later.

Recovers what a stream stores among its positions: where TTLs begin, due times of schedules, and whether any message has an id.

A backup does not contain this, so it is derived from the messages' headers.

The log of a stream being restored: written to the store as it arrives, and no stream before it is complete.

Its record in the store begins with RESTORING instead of a configuration. One transaction at the end adds the
configuration and the consumers. A store that is opened with such a record (after a power cut) removes what was written.
Messages gather in transactions of some MiB, so that not every few of them need a flush; two may be in flight. When they
are, `has_room` is False and `on_room` is called later.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.ingest.dedupe import IDS_POSITION, NONE_YET, USED
from eyot_daemon.jetstream.ingest.schedules import (
    SCHEDULE,
    TIME_ZONE,
    InvalidPattern,
    InvalidTimeZone,
    Schedule,
    position_key,
)
from eyot_daemon.jetstream.nats_headers import MSG_ID, TTL, nats_fields
from eyot_daemon.jetstream.retention.expiry import TTL_POSITION
from eyot_daemon.jetstream.sourcing.resume_point import HEADER_INDEX_KEY, NOT_INDEXED, read_archived_positions
from eyot_store.errors import StoreError
from eyot_store.log.log import JUMP_MAX
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.values import (
    ArchivedMessage,
    ConsumerPart,
    EndPart,
    GonePart,
    MessagesPart,
    Part,
    PositionsPart,
    StatePart,
    StreamPart,
)
from eyot_wire.jetstream.error_codes import JSMemoryResourcesExceededErr, JSStorageResourcesExceededErr
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import StreamConfig

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn

RESTORING = b"restoring "
#: Messages staged in one turn.
SLICE_MESSAGES = 1024
SLICE_BYTES = 512 << 10
#: Bytes of one transaction.
TXN_BYTES = 4 << 20
UNDER_WAY_MAX = 2
#: Deletions processed in one turn.
GONE_SLICE = 1024


def is_restoring(config: bytes) -> bool:
    """Return whether a stream's record in the store belongs to an incomplete restore."""
    return config.startswith(RESTORING)


class RestoringLog:
    """`allow(size, messages)` is called before so many bytes are stored; it raises when there is no room for them."""

    def __init__(
        self,
        store: "Store",
        account: str,
        name: str,
        created_ns: int,
        *,
        memory: bool,
        allow: Callable[[int, int], None],
    ) -> None:
        self.store = store
        self.failure: StoreError | None = None
        self.on_room: Callable[[], None] = lambda: None
        self._allow = allow
        self._under_way = 0
        self._open: Txn | None = None  # gathers messages
        txn = store.begin()
        self.log: Log = store.create_stream(txn, account, name, RESTORING + name.encode(), created_ns, memory=memory)
        self.log.subjects()  # counted from the first message on, instead of all at the end
        self._submit(txn)

    @property
    def has_room(self) -> bool:
        return self._under_way < UNDER_WAY_MAX

    @property
    def is_committed(self) -> bool:
        """Whether every transaction is committed, or has failed."""
        return not self._under_way and self._open is None

    def flush(self) -> None:
        """Submit what has gathered."""
        if self._open is not None:
            txn, self._open = self._open, None
            self._submit(txn)

    def store_slice(self, messages: list[ArchivedMessage], at: int) -> int:
        """Store some of `messages` from `at` on; return where to continue. Raises what `allow` raises."""
        log = self.log
        end = at
        size = 0
        for each in messages[at : at + SLICE_MESSAGES]:
            size += log.message_bytes(each.subject, each.header, each.payload)
            end += 1
            if size >= SLICE_BYTES:
                break
        self._allow(size, end - at)
        txn = self._open = self._open or self.store.begin()
        for seq, ts_ns, subject, header, payload in messages[at:end]:
            log.append(txn, subject, header, payload, ts_ns, seq)
        if txn.bytes >= TXN_BYTES:
            self.flush()
        return end

    def remove_slice(self, seqs: Iterator[int]) -> bool:
        """Remove some of `seqs`, all of which are on flash; return False at the end."""
        txn = self.store.begin()
        more = False
        try:
            for count, seq in enumerate(seqs, 1):
                self.log.remove(txn, seq)
                if count == GONE_SLICE:
                    more = True
                    break
        except BaseException:
            self.store.abort(txn)
            raise
        if txn.parts:
            self._submit(txn)
        else:
            self.store.abort(txn)
        return more

    def gone(self, part: GonePart) -> Iterator[int]:
        """Yield the sequences of a part; those of its ranges and sets only where they hold messages, however large they are."""
        yield from part.seqs
        for first, last in part.ranges:
            yield from self._sequences_in(first, last)
        for first, last, dead in part.among:
            for base, bits in dead.nodes(first, last):
                for seq in self._sequences_in(max(base, first), min(base + bits.bit_length() - 1, last)):
                    if bits >> (seq - base) & 1:
                        yield seq

    def _sequences_in(self, first: int, last: int) -> Iterator[int]:
        """Sequences of the messages in a range."""
        seq = first
        while seq <= min(last, self.log.committed_seq):
            read = self.log.read(seq, max_messages=GONE_SLICE, max_bytes=SLICE_BYTES, up_to=last)
            yield from [message.seq for message in read.messages]
            if read.next_seq <= seq:
                return
            seq = read.next_seq

    def go_to(self, txn: "Txn", last_seq: int, last_ts_ns: int) -> None:
        """Make `last_seq` the last sequence, stored at `last_ts_ns`, although its message is deleted."""
        if last_seq <= self.log.state.last_seq:
            return
        if not last_ts_ns:
            self.log.skip_to(txn, last_seq)
            return
        # Only a message sets the time; the same transaction removes it again.
        self.log.append(txn, b"gone", b"", b"", last_ts_ns, last_seq)
        self.log.remove(txn, last_seq)

    def discard(self) -> None:
        """Forget everything."""
        if self._open is not None:
            self.store.abort(self._open)
            self._open = None
        if self.log.void:
            return
        txn = self.store.begin()
        self.log.delete(txn)
        self.store.submit(txn)

    def _submit(self, txn: "Txn") -> None:
        self._under_way += 1
        self.store.submit(txn, self._settle)

    def _settle(self, failure: StoreError | None) -> None:
        self._under_way -= 1
        self.failure = self.failure or failure
        self.on_room()


class RestoredHeaders:
    """Examines the messages of a stream that will have `config`."""

    def __init__(self, config: StreamConfig) -> None:
        self._ttls = config.allow_msg_ttl
        self._schedules_too = config.allow_msg_schedules
        self._first_ttl = 0
        self._ids = False
        self._schedules: dict[bytes, ArchivedMessage] = {}  # by subject; without payload

    def look_at(self, messages: list[ArchivedMessage]) -> None:
        if not self._ids:
            self._ids = any(MSG_ID in each.header for each in messages)
        if self._ttls and not self._first_ttl:
            self._first_ttl = next((each.seq for each in messages if TTL in each.header), 0)
        if self._schedules_too:
            for each in messages:
                if SCHEDULE in each.header:
                    self._schedules[each.subject] = each._replace(payload=b"")
                else:
                    self._schedules.pop(each.subject, None)  # it has ended

    def stage(self, log: "Log", txn: "Txn", now_ns: int) -> None:
        """Stage the results among the positions."""
        log.put_position(txn, IDS_POSITION, USED if self._ids else NONE_YET)
        if self._first_ttl:
            log.put_position(txn, TTL_POSITION, self._first_ttl.to_bytes(8, "big"))
        for each in self._schedules.values():
            due_ns = _due(each, now_ns)
            if due_ns and log.get(each.seq) is not None:
                log.put_position(txn, position_key(each.seq), due_ns.to_bytes(8, "big"))


def _due(message: ArchivedMessage, now_ns: int) -> int:
    """Return when a schedule is due; 0: never. A repeating one that was due before continues at its next time, not at once."""
    fields = nats_fields(message.header)
    try:
        schedule = Schedule(fields.get(SCHEDULE, b""), fields.get(TIME_ZONE))
    except (InvalidPattern, InvalidTimeZone):
        return 0
    due_ns = schedule.first(message.ts_ns)
    return schedule.following(now_ns) if 0 < due_ns < now_ns and not schedule.once else due_ns


#: Bytes of consumers' configurations and states, held until the messages are in.
CONSUMERS_BYTES_MAX = 32 << 20
_PENDING_BYTES = 200  # memory of a consumer's pending message


class RestoredParts:
    """Parts of a stream that will have `config` (checked)."""

    def __init__(self, jsa: "JetStreamAccount", config: StreamConfig) -> None:
        self.waiting: deque[Part] = deque()
        self.consumers: list[ConsumerPart] = []
        self.last_seq = self.last_ts_ns = 0
        self.on_room: Callable[[], None] = lambda: None
        self._jsa = jsa
        self._config = config
        self.marks = RestoredHeaders(config)
        self._log: RestoringLog | None = None
        self._at = 0  # index in the first waiting part
        self._gone: Iterator[int] | None = None
        self._consumers_bytes = 0
        self._on_committed: Callable[[StoreError | None], None] | None = None
        self._discarded = False
        self._positions: dict[bytes, bytes] = {}

    @property
    def restoring(self) -> RestoringLog:
        """The log, once the archive has begun. Raises ArchiveError before."""
        if self._log is None:
            raise ArchiveError("unexpected EOF")
        return self._log

    @property
    def stored_bytes(self) -> int:
        """Bytes stored so far."""
        return self._log.log.state.bytes if self._log is not None else 0

    @property
    def stored_messages(self) -> int:
        """How many messages the stream has so far."""
        return self._log.log.state.messages if self._log is not None else 0

    def store_some(self) -> bool:
        """Store a slice of the waiting parts. Raises ArchiveError, JetStreamError, StoreError."""
        if self._log is not None and self._log.failure is not None:
            raise self._log.failure
        part = self.waiting[0]
        match part:
            case MessagesPart(messages):
                if not self.restoring.has_room:
                    return False
                if not self._at:
                    self.marks.look_at(messages)
                self._at = self.restoring.store_slice(messages, self._at)
                if self._at < len(messages):
                    return True
                self._at = 0
            case GonePart():
                self.restoring.flush()
                if not self.restoring.is_committed:
                    return False
                self._gone = self._gone or self.restoring.gone(part)
                if self.restoring.remove_slice(self._gone):
                    return True
                self._gone = None
            case _:
                self._note(part)
        self.waiting.popleft()
        return True

    def when_committed(self, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` when everything stored so far is on flash, or has failed."""
        if self._log is None:
            then(None)
            return
        self._log.flush()
        if self._log.is_committed:
            then(self._log.failure)
        else:
            self._on_committed = then

    @property
    def discarded(self) -> bool:
        return self._discarded

    def discard(self) -> None:
        """Forget everything; a second call does nothing."""
        self.waiting.clear()
        if self._log is not None and not self._discarded:
            self._discarded = True
            self._log.discard()

    def stage_positions(self, txn: "Txn") -> None:
        """Stage where the stream's mirror or sources continue.

        An archive that does not say it leaves that to the headers of the messages, unless clients could write them.
        Streams in memory are archived only by servers that refuse such headers (Eyot, nats-server 2.15).
        """
        positions = self._positions
        written = bool(self._config.subjects) or self._config.mirror is not None
        if not positions and written and self._config.storage == "file":
            positions = {HEADER_INDEX_KEY: NOT_INDEXED}
        for key, value in positions.items():
            self.restoring.log.put_position(txn, key, value)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _note(self, part: Part) -> None:
        match part:
            case StreamPart(created_ns=created_ns):
                self._begin(created_ns or self._jsa.account.broker.clock.now_ns())
            case PositionsPart(records):
                try:
                    self._positions = read_archived_positions(records)
                except ValueError as problem:
                    raise ArchiveError(f"positions of mirrors and sources: {problem}") from None
            case StatePart(bytes=size):
                self._allow(size)
                self._begin(self._jsa.account.broker.clock.now_ns())
            case ConsumerPart(_, config, progress):
                self._consumers_bytes += len(config) + _PENDING_BYTES * len(progress.pending)
                if self._consumers_bytes > CONSUMERS_BYTES_MAX:
                    raise ArchiveError("the consumers' state is too large")
                self.consumers.append(part)
            case EndPart(last_seq, last_ts_ns):
                if last_seq > JUMP_MAX:
                    raise ArchiveError(f"last sequence {last_seq} is too high")
                self.last_seq, self.last_ts_ns = last_seq, last_ts_ns
            case _:
                raise AssertionError(part)

    def _begin(self, created_ns: int) -> None:
        self._log = RestoringLog(
            self._jsa.server.store,
            self._jsa.account.name,
            self._config.name,
            created_ns,
            memory=self._config.storage == "memory",
            allow=self._allow,
        )
        self._log.on_room = self._room

    def _allow(self, size: int, messages: int = 0) -> None:
        """Check that account and server have room for `size` more bytes. Raises JetStreamError."""
        storage = self._config.storage
        if self._jsa.no_storage_for(storage, size, messages) is not None:
            raise fail(JSStorageResourcesExceededErr if storage == "file" else JSMemoryResourcesExceededErr)

    def _room(self) -> None:
        assert self._log is not None
        if self._on_committed is not None and self._log.is_committed:
            then, self._on_committed = self._on_committed, None
            then(self._log.failure)
        else:
            self.on_room()
