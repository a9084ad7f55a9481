"""The schedules of one stream: which subject produces which message next, and when.

A schedule is a message of the stream. Its due time is stored beside it, among the stream's positions, in the same
transaction. The message it produces and its next due time (or its end) are one transaction, too. A restart therefore
neither loses nor repeats anything: what was due meanwhile is produced once, at once.
"""

import heapq
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.messages.batch import Batch
from eyot_daemon.jetstream.messages.headers import nats_fields
from eyot_daemon.jetstream.messages.schedule import (
    SCHEDULE,
    SOURCE,
    TARGET,
    TIME_ZONE,
    InvalidPattern,
    InvalidTimeZone,
    Schedule,
    produced_header,
)
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import NS_PER_S

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store import Log, StoredMessage, Txn

log = logging.getLogger("eyot.jetstream")

#: Position records of schedules: this and the schedule's sequence, 8 bytes; the value is when it is due, ns in 8 bytes.
POSITION = b"eyot.schedule."
#: Longest interval between checks of due times, seconds: the wall clock may be set meanwhile.
CHECK_S_MAX = 30.0
#: Delay before a failed store is repeated, seconds.
RETRY_S = 1.0
#: Messages made in one turn.
DUE_PER_TURN = 1000


class Due(NamedTuple):
    """A schedule of the table."""

    due_ns: int
    seq: int


class Schedules:
    """Table and timer.

    The table holds committed schedules; `staged` holds uncommitted ones. `store_due(due, now_ns)` stores the messages of due
    schedules.
    """

    def __init__(self, stream: "StreamCore", store_due: "Callable[[Sequence[Due], int], None]") -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._store_due = store_due
        self._seqs: dict[bytes, int] = {}  # subject -> sequence of its schedule, staged ones too
        self._heap: list[Due] = []
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the stored schedules when the stream starts."""
        self._load()
        self.schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _load(self) -> None:
        self._seqs.clear()
        self._heap = []
        for key, value in self._log.positions().items():
            if key.startswith(POSITION):
                seq = int.from_bytes(key[len(POSITION) :], "big")
                message = self._log.get(seq)
                if message is not None:
                    self._seqs[message.subject] = seq
                self._heap.append(Due(int.from_bytes(value, "big"), seq))
        heapq.heapify(self._heap)

    # -- what is stored --------------------------------------------------------------------------------------------

    def staged(
        self, txn: "Txn", batch: Batch, subject: bytes, seq: int, fields: dict[bytes, bytes], ts_ns: int
    ) -> None:
        """Note a staged message on `subject`: a schedule, or one that ends the subject's schedule."""
        pattern = fields.get(SCHEDULE)
        if not pattern and subject not in self._seqs:
            return
        self.ended(txn, batch, subject)
        if pattern:
            due_ns = Schedule(pattern, fields.get(TIME_ZONE)).first(ts_ns)
            if due_ns:
                self._log.put_position(txn, position_key(seq), due_ns.to_bytes(8, "big"))
                batch.schedules_before.append((subject, self._seqs.get(subject, 0)))
                self._seqs[subject] = seq
                batch.schedules.append(Due(due_ns, seq))

    def ended(self, txn: "Txn", batch: Batch, subject: bytes) -> None:
        """End the schedule of `subject`, if there is one."""
        seq = self._seqs.pop(subject, 0)
        if seq:
            batch.schedules_before.append((subject, seq))
            self._log.delete_position(txn, position_key(seq))

    def committed(self, batch: Batch) -> None:
        for due in batch.schedules:
            heapq.heappush(self._heap, Due(*due))
        if batch.schedules:
            self.schedule()

    def rolled_back(self, batch: Batch) -> None:
        """Roll back what was staged with `batch`: the table is as before, and due schedules are tried again."""
        for subject, seq in reversed(batch.schedules_before):
            if seq:
                self._seqs[subject] = seq
            else:
                self._seqs.pop(subject, None)
        for due in batch.schedules_due:
            heapq.heappush(self._heap, Due(*due))
        if batch.schedules_due:
            self.schedule(RETRY_S)

    # -- the timer -------------------------------------------------------------------------------------------------

    def schedule(self, delay_s_min: float = 0.0) -> None:
        """Have the timer run when the next schedule is due."""
        if not self._heap or not self._stream.live:
            self.stop()
            return
        clock = self._stream.clock
        delay_s = min(max((self._heap[0].due_ns - clock.now_ns()) / NS_PER_S, delay_s_min), CHECK_S_MAX)
        deadline = clock.monotonic() + delay_s
        if self._timer is not None and self._timer.active:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._stream.timers.call_at(deadline, self._run)

    def _run(self) -> None:
        self._timer = None
        now_ns = self._stream.clock.now_ns()
        due: list[Due] = []
        while self._heap and self._heap[0].due_ns <= now_ns and len(due) < DUE_PER_TURN:
            due.append(heapq.heappop(self._heap))
        if due and self._stream.live:
            self._store_due(due, now_ns)
        self.schedule()

    # -- making messages -------------------------------------------------------------------------------------------

    def make(self, txn: "Txn", batch: Batch, due: Due, now_ns: int) -> tuple[bytes, bytes, bytes] | None:
        """Stage a due schedule's next time; return (subject, header, payload) of its message.

        None if the schedule no longer exists.
        """
        batch.schedules_due.append(due)
        message = self._log.get(due.seq)
        if message is None or self._seqs.get(message.subject) != due.seq:
            self._log.delete_position(txn, position_key(due.seq))
            return None
        fields = nats_fields(message.header)
        try:
            schedule = Schedule(fields.get(SCHEDULE, b""), fields.get(TIME_ZONE))
        except (InvalidPattern, InvalidTimeZone) as err:
            # It could be read when it was stored: a time zone that the system no longer has.
            log.error("Stream '%s > %s': the schedule at %d ends: %s", self._log.account, self._log.name, due.seq, err)
            self.ended(txn, batch, message.subject)
            return None
        next_ns = 0
        if not schedule.once:
            # What was missed while the clock or the daemon stood still is made once, not over and over.
            next_ns = schedule.following(due.due_ns)
            if 0 < next_ns <= now_ns:
                next_ns = schedule.following(now_ns)
        if next_ns:
            self._log.put_position(txn, position_key(due.seq), next_ns.to_bytes(8, "big"))
            batch.schedules.append(Due(next_ns, due.seq))
        else:
            self.ended(txn, batch, message.subject)
            self._log.remove(txn, due.seq, why="schedule")
            batch.purged = True
        content = self._content(fields, message)
        header = produced_header(fields, message.subject, content.header, next_ns)
        return fields.get(TARGET, b""), header, content.payload

    def _content(self, fields: dict[bytes, bytes], message: "StoredMessage") -> "StoredMessage":
        """Return the message whose headers and payload are used: the last of the source's subject, if it names one that has any."""
        source = fields.get(SOURCE)
        if source:
            try:
                return self._log.last_for(source) or message
            except StoreError as failure:
                log.error("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
        return message


def position_key(seq: int) -> bytes:
    """Return where the due time of the schedule at `seq` is kept."""
    return POSITION + seq.to_bytes(8, "big")
