"""Removal by time: of messages older than max_age, and of messages whose own TTL (ADR-43) has passed.

Each stream has one timer, set for the next due time. Without per-message TTLs, messages that are too old are removed as one range.
With them, each message is checked, because `Nats-TTL: never` stays and because the last message of a subject may leave a
marker behind (`subject_delete_marker_ttl`). TTLs are kept in memory; after a restart they are read back from the log, a
bounded piece a turn, starting at the first message that ever had one (remembered among the stream's positions).
A message with a TTL leaves when its stored time plus the TTL has passed. Times are wall time in ns since the epoch.
"""

import heapq
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.nats_headers import MARKER_REASON, NEVER, TTL, nats_fields, parse_ttl
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.stream_core import Batch, Expired, Republished
from eyot_daemon.jetstream.wall_clock import ClockCredits
from eyot_store.errors import StoreError
from eyot_wire import headers
from eyot_wire.go.duration import format_duration
from eyot_wire.jetstream.model import NS_PER_S

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.jetstream.wall_clock import WallClock
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store import Log, StoredMessage, Txn
_SLACK = 1024


class TtlTable:
    """Due times by sequence. Messages that are removed for other reasons stay listed until they are due or `compact` runs."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add (sequence, due time) pairs."""
        for seq, due_ns in entries:
            heapq.heappush(self._heap, (due_ns, seq))

    @property
    def next_due_ns(self) -> int:
        """Time at which the first message falls due, ns since the epoch; 0: none does."""
        return self._heap[0][0] if self._heap else 0

    def pop_due(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        """Take at most `limit` messages that are due out of the table: (sequence, due time)."""
        due: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            due_ns, seq = heapq.heappop(self._heap)
            due.append((seq, due_ns))
        return due

    def shift(self, ns: int) -> None:
        """Move all due times of the table by `ns`."""
        self._heap = [(due_ns + ns, seq) for due_ns, seq in self._heap]

    def compact(self, messages: int, exists: Callable[[int], bool]) -> None:
        """Drop removed messages when the table lists far more than the stream's `messages`; checking each is then worth its cost."""
        if len(self._heap) > 2 * messages + _SLACK:
            self._heap = [entry for entry in self._heap if exists(entry[1])]
            heapq.heapify(self._heap)


log = logging.getLogger("eyot.jetstream")

#: Shortest interval between checks, seconds, so that a steady stream does not cause a transaction per message.
CHECK_S_MIN = 0.25
#: Longest interval between checks, seconds, because the wall clock may be set.
CHECK_S_MAX = 3600.0
#: Messages checked in one turn, where each one is checked.
MESSAGES_PER_TURN = 4096
_READ_BYTES = 16 << 20
#: The position record that holds the first sequence with a TTL.
TTL_POSITION = b"eyot.ttl"
#: The position record that holds what jumps of the clock add to the times of messages.
CLOCK_POSITION = b"eyot.clock"


class Expiry:
    """The timer and tables of one stream."""

    def __init__(self, stream: "StreamCore", wall_clock: "WallClock") -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._wall_clock = wall_clock
        self._ttls = TtlTable()
        self._timer: TimerHandle | None = None
        self._age_from = 0  # everything below that is still there never expires by age
        self._scan_from = 0  # TTLs below are in the table; 0: all are
        self._scan_to = 0
        self._recorded = False
        self._more = False
        self._credits = ClockCredits()
        #: While the clock is in doubt: the last message of the last run, and what its time was to be corrected by then.
        self._doubted: tuple[int, int] | None = None

    def start(self) -> None:
        """Start with the stream; stored TTLs are read in the following turns."""
        positions = self._log.positions()
        self._credits = ClockCredits(positions.get(CLOCK_POSITION))
        first = positions.get(TTL_POSITION)
        if first is not None:
            self._recorded = True
            self._scan_from = int.from_bytes(first, "big")
            self._scan_to = self._log.committed_seq
        leap_ns = self._wall_clock.trust.leap_of(self._log.state.last_ts_ns)
        if leap_ns and self._log.state.last_seq:
            self._doubted = self._log.state.last_seq, self._credits.of(self._log.state.last_seq)
            self.clock_jumped(leap_ns)
        self.schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clock_jumped(self, ns: int) -> None:
        """Correct for a jump of the wall clock by `ns`, by which no message has aged.

        Also where nothing ages at present: an age limit may be set later.
        """
        if not self._log.state.last_seq:
            return
        self._credits.jumped(self._log.state.last_seq, ns)
        self._credits.forget_below(self._log.state.first_seq)
        self._ttls.shift(ns)
        with self._stream.staging() as txn:
            self._log.put_position(txn, CLOCK_POSITION, self._credits.encode())
        self._stream.submit(txn, Batch())
        self.schedule()

    def clock_was_right(self) -> None:
        """Undo the correction of a suspected jump at the start: the time has passed, so stored messages are as old as they look."""
        if self._doubted is None:
            return
        (last_seq, before_ns), self._doubted = self._doubted, None
        self._credits.add(last_seq, before_ns - self._credits.of(last_seq))
        with self._stream.staging() as txn:
            self._log.put_position(txn, CLOCK_POSITION, self._credits.encode())
        self._stream.submit(txn, Batch())
        first = self._log.positions().get(TTL_POSITION)
        if first is not None:
            # Recompute all due times.
            self._ttls = TtlTable()
            self._scan_from, self._scan_to = int.from_bytes(first, "big"), self._log.committed_seq
        self._age_from = 0
        self.schedule()

    def record(self, txn: "Txn", seq: int) -> None:
        """Record the first message with a TTL together with it, in `txn`."""
        if not self._recorded:
            self._log.put_position(txn, TTL_POSITION, seq.to_bytes(8, "big"))
            self._recorded = True

    def stored(self, ttls: list[tuple[int, int]]) -> None:
        """Note committed messages; `ttls`: (sequence, due time) of those that have a TTL."""
        if ttls:
            self._ttls.add(ttls)
        elif not self._stream.config.max_age or (self._timer is not None and self._timer.active):
            return  # the newest message is due last
        self.schedule()

    def commit_failed(self) -> None:
        """Roll back what was staged, possibly the record of the first TTL."""
        self._recorded = TTL_POSITION in self._log.positions()

    # -- the timer -------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the timer run when the next message is due, if it would not run before that anyway."""
        due_ns = self._next_due_ns()
        if due_ns is None:
            self.stop()
            return
        clock = self._stream.clock
        delay_s = min(max((due_ns - clock.now_ns()) / NS_PER_S, CHECK_S_MIN), CHECK_S_MAX)
        if self._more or self._scan_from:
            delay_s = 0.0
        deadline = clock.monotonic() + delay_s
        if self._timer is not None and self._timer.active:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._stream.timers.call_at(deadline, self._run)

    def _next_due_ns(self) -> int | None:
        """Return when the next message leaves; None: nothing will leave by time."""
        if not self._stream.live:
            return None
        if self._more or self._scan_from:
            return 0
        dues = [self._ttls.next_due_ns] if self._ttls else []
        max_age = self._stream.config.max_age
        if max_age and self._log.state.messages:
            oldest_ns = self._oldest_ns()
            if oldest_ns:
                dues.append(oldest_ns + max_age)
        return min(dues, default=None)

    def _oldest_ns(self) -> int:
        """Return the stored time of the oldest message that age can remove; 0: there is none."""
        state = self._log.state
        if self._age_from <= state.first_seq and not self._credits:
            return state.first_ts_ns
        if self._age_from > state.last_seq:
            return 0
        try:
            return limits.oldest_ns(self._log, max(self._age_from, state.first_seq), self._credits)
        except StoreError:
            return 0  # the stream goes offline

    def _run(self) -> None:
        self._timer = None
        if not self._stream.live:
            return
        self._wall_clock.watch()
        batch = Batch()
        self._more = False
        now_ns = self._stream.clock.now_ns()
        try:
            self._scan()
            with self._stream.staging() as txn:
                gone = self._expire_age(txn, batch, now_ns)
                due = self._ttls.pop_due(now_ns, MESSAGES_PER_TURN)
                gone += self._expire_ttls(txn, batch, now_ns, due)
        except StoreError as failure:
            # Tried again when the next message is stored or due; the record that cannot be read is named.
            log.error("Stream '%s > %s': nothing expires: %s", self._log.account, self._log.name, failure)
            return
        if gone:
            batch.purged = gone > len(batch.expired)
            batch.then.append(partial(self._settled, due))
            self._stream.submit(txn, batch)
        else:
            self.schedule()

    def _settled(self, due: list[tuple[int, int]], failure: StoreError | None) -> None:
        """Continue after a transaction. If it failed, what it removed is there and due still; the next try is not at once."""
        if failure is not None:
            self._ttls.add(due)
            self._age_from, self._more = 0, False
        self.schedule()

    # -- age -------------------------------------------------------------------------------------------------------

    def _expire_age(self, txn: "Txn", batch: Batch, now_ns: int) -> int:
        config = self._stream.config
        if not config.max_age:
            return 0
        horizon_ns = now_ns - config.max_age
        if not config.allow_msg_ttl:
            gone, self._more = limits.expire(self._log, txn, horizon_ns, self._credits)
            return gone
        gone = 0
        start = max(self._age_from, self._log.state.first_seq, 1)
        try:
            read = self._log.read(start, max_messages=MESSAGES_PER_TURN, max_bytes=_READ_BYTES)
        except StoreError as failure:
            if not failure.is_record_at(start):
                raise
            return self._expire_damaged(txn, failure, horizon_ns)
        for message in read.messages:
            if message.ts_ns + self._credits.of(message.seq) > horizon_ns:
                self._age_from = message.seq
                return gone
            if nats_fields(message.header).get(TTL) != b"never":
                self._remove(txn, batch, message, now_ns, "max_age")
                gone += 1
        self._age_from = read.next_seq
        self._more = read.next_seq <= self._log.committed_seq
        return gone

    def _expire_damaged(self, txn: "Txn", failure: StoreError, horizon_ns: int) -> int:
        """Stage the removal of a message that cannot be read, if the next one that can be read is too old; return how many are removed."""
        if limits.oldest_ns(self._log, failure.seq, self._credits) > horizon_ns:
            self._age_from = failure.seq
            return 0
        self._remove_damaged(txn, failure, "max_age")
        self._age_from, self._more = failure.seq + 1, failure.seq < self._log.committed_seq
        return 1

    def _remove_damaged(self, txn: "Txn", failure: StoreError, why: str) -> None:
        log.error("Stream '%s > %s': a damaged message expires: %s", self._log.account, self._log.name, failure)
        self._log.remove(txn, failure.seq, why)

    # -- TTLs ------------------------------------------------------------------------------------------------------

    def _expire_ttls(self, txn: "Txn", batch: Batch, now_ns: int, due: list[tuple[int, int]]) -> int:
        gone = 0
        for seq, _ in due:
            try:
                message = self._log.get(seq)
            except StoreError as failure:
                if not failure.is_record_at(seq):
                    raise
                self._remove_damaged(txn, failure, "ttl")
                gone += 1
                continue
            if message is not None:
                self._remove(txn, batch, message, now_ns, "ttl")
                gone += 1
        self._more = self._more or len(due) == MESSAGES_PER_TURN
        self._ttls.compact(self._log.state.messages, self._log.holds)
        return gone

    def _remove(self, txn: "Txn", batch: Batch, message: "StoredMessage", now_ns: int, why: str) -> None:
        self._log.remove(txn, message.seq, why)
        size = len(message.subject) + len(message.header) + len(message.payload)
        batch.expired.append(Expired(message.seq, message.subject, size))
        marker_ttl = self._stream.config.subject_delete_marker_ttl
        if not marker_ttl or self._log.subject_count(message.subject):
            return
        if headers.get(message.header, MARKER_REASON) is not None:
            return  # a marker leaves no marker
        if headers.get(message.header, b"KV-Operation") == b"PURGE":
            return  # the key is known to be gone
        header = b"NATS/1.0\r\n%b: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n" % (
            MARKER_REASON,
            format_duration(marker_ttl).encode(),
        )
        seq = self._log.append(txn, message.subject, header, b"", now_ns)
        self.record(txn, seq)
        batch.stored += 1
        batch.ttls.append((seq, now_ns + marker_ttl))
        batch.republished.append(Republished(message.subject, header, b"", seq, now_ns, message.seq))

    def _scan(self) -> None:
        """Read a piece of the log for TTLs that were stored before the restart."""
        if not self._scan_from:
            return
        read = self._log.read_on(
            self._scan_from, max_messages=MESSAGES_PER_TURN, max_bytes=_READ_BYTES, up_to=self._scan_to
        )
        for message in read.messages:
            value = nats_fields(message.header).get(TTL) if TTL in message.header else None
            if value is not None:
                self._ttls.add(due_of(message.seq, message.ts_ns + self._credits.of(message.seq), value))
        self._scan_from = read.next_seq if read.next_seq <= self._scan_to else 0


def due_of(seq: int, ts_ns: int, value: bytes) -> list[tuple[int, int]]:
    """Return the table's entry for a stored message with a `Nats-TTL` of `value`; none if it does not expire by itself."""
    try:
        ttl_ns = parse_ttl(value)
    except ValueError:
        return []  # stored by a copy that did not look at it
    return [] if ttl_ns in (0, NEVER) else [(seq, ts_ns + ttl_ns)]
