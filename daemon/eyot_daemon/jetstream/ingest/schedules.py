"""Message schedules (ADR-51): the `Nats-Schedule` headers, what they mean, and which message they produce next, and when.

A pattern is `@at <RFC 3339 time>` (once), `@every <Go duration of at least 1s>`, or a cron expression (`cron.py`), the
latter in the zone of `Nats-Schedule-Time-Zone` or UTC. Times are ns since 1970.

A schedule is a message of the stream. Its due time is stored beside it, among the stream's positions, in the same
transaction. The message it produces and its next due time (or its end) are one transaction, too. A restart therefore
neither loses nor repeats anything: what was due meanwhile is produced once, at once.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Protocol

from eyot_daemon.jetstream.ingest.cron import Cron
from eyot_daemon.jetstream.ingest.due_times import Due, DueTimes
from eyot_daemon.jetstream.nats_headers import nats_fields, parse_ttl
from eyot_daemon.jetstream.stream_core import Batch
from eyot_daemon.jetstream.wall_clock import JUMP_NS_MIN
from eyot_store.errors import StoreError
from eyot_wire import headers
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.jetstream.error_codes import (
    JSMessageSchedulesDisabledErr,
    JSMessageSchedulesPatternInvalidErr,
    JSMessageSchedulesRollupInvalidErr,
    JSMessageSchedulesSchedulerInvalidErr,
    JSMessageSchedulesSourceInvalidErr,
    JSMessageSchedulesTargetInvalidErr,
    JSMessageSchedulesTimeZoneInvalidErr,
    JSMessageSchedulesTTLInvalidErr,
    JSMessageTTLDisabledErr,
)
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.model import NS_PER_S, StreamConfig, ns_to_rfc3339, rfc3339_to_ns
from eyot_wire.subject import is_literal, is_valid, matches
from eyot_wire.time_zone import time_zone

if TYPE_CHECKING:
    from eyot_daemon.jetstream.ingest.due_times import SetBack
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.turn.later_turns import LaterTurns
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store import Log, StoredMessage, Txn

log = logging.getLogger("eyot.jetstream")

SCHEDULE = b"Nats-Schedule"
TARGET = b"Nats-Schedule-Target"
_TTL = b"Nats-Schedule-TTL"
_ROLLUP = b"Nats-Schedule-Rollup"
SOURCE = b"Nats-Schedule-Source"
TIME_ZONE = b"Nats-Schedule-Time-Zone"
_NEXT = b"Nats-Schedule-Next"
SCHEDULER = b"Nats-Scheduler"

#: `Nats-Schedule-Next` of a message that ends its schedule.
PURGE = b"purge"
_NOT_PRODUCED = (
    b"Nats-Schedule",  # Nats-Scheduler too
    b"Nats-Expected-",
    b"Nats-Msg-Id:",
    b"Nats-TTL:",
    b"Nats-Rollup:",
    b"Nats-Batch-",
    b"Nats-Stream-Source:",
)


class InvalidPattern(ValueError):
    """`Nats-Schedule` cannot be read."""


class InvalidTimeZone(ValueError):
    """`Nats-Schedule-Time-Zone` names no zone."""


class Schedule:
    """A parsed pattern. Raises InvalidPattern, InvalidTimeZone."""

    __slots__ = ("_at_ns", "_cron", "_every_ns", "_zone")

    def __init__(self, pattern: bytes, time_zone: bytes | None = None) -> None:
        text = pattern.decode("ascii", "replace")
        self._at_ns = 0
        self._every_ns = 0
        self._cron: Cron | None = None
        self._zone: tzinfo = UTC
        try:
            if text.startswith("@at "):
                self._at_ns = rfc3339_to_ns(text[4:])
            elif text.startswith("@every "):
                self._every_ns = parse_duration_ns(text[7:])
                if self._every_ns < NS_PER_S:
                    raise ValueError("schedules repeat once a second at most")
            else:
                self._cron = Cron(text)
        except ValueError as err:
            raise InvalidPattern(str(err)) from None
        if time_zone is not None:
            if self._cron is None:
                raise InvalidPattern("only cron expressions have a time zone")
            self._zone = _zone(time_zone)

    @property
    def once(self) -> bool:
        return self._cron is None and not self._every_ns

    def never_due(self, stored_ns: int) -> bool:
        """Return whether nothing comes of it, as on the 30th of February."""
        return not self.once and not self.following(stored_ns)

    def first(self, stored_ns: int) -> int:
        """Return when a schedule that was stored at `stored_ns` falls due first; 0: never."""
        return self._at_ns if self.once else self.following(stored_ns)

    def following(self, after_ns: int) -> int:
        """Return when it falls due next, on whole seconds; 0: never again."""
        if self._cron is not None:
            return self._cron.next(after_ns, self._zone)
        if self._every_ns:
            return (after_ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S + self._every_ns
        return 0

    def after_set_back(self, due_ns: int, now_ns: int, back_ns: int) -> int:
        """Return when a schedule that is due at `due_ns` is due by a clock that was set back by `back_ns` to `now_ns`.

        A repeating schedule would rest until the clock is where it was: for years, after one start with a wrong clock. As
        with cron, a smaller correction runs nothing a second time.
        """
        if self.once or (self._cron is not None and back_ns < CRON_BACK_NS_MIN):
            return due_ns
        return min(due_ns, self.following(now_ns) or due_ns)

    def time_text(self, due_ns: int) -> str:
        """Return a due time as nats-server writes it: RFC 3339 in the schedule's zone."""
        if self._cron is None or self._zone is UTC:
            return ns_to_rfc3339(due_ns)
        local = datetime.fromtimestamp(due_ns // NS_PER_S, self._zone)
        return local.isoformat() if local.utcoffset() else ns_to_rfc3339(due_ns)


def _zone(name: bytes) -> tzinfo:
    text = name.decode("ascii", "replace")
    if not text:
        raise InvalidTimeZone(text)
    if text == "Local":
        local = datetime.now().astimezone().tzinfo
        assert local is not None
        return local
    try:
        return time_zone(text)
    except (KeyError, ValueError, OSError):
        raise InvalidTimeZone(text) from None


class Scheduled(Protocol):
    """Facts of a stream for the checks."""

    @property
    def config(self) -> StreamConfig: ...

    @property
    def now_ns(self) -> int:
        """The time that the message is stored with."""
        ...

    def ends_with_schedule(self, subject: bytes) -> bool:
        """Return whether the last message on `subject` is a schedule, or there is none."""
        ...


def check_schedule(
    fields: dict[bytes, bytes], subject: bytes, facts: Scheduled, *, scheduled: bool = False
) -> ApiError | None:
    """Return why a message's schedule headers are refused; None: they are valid, or absent. `scheduled`: a schedule made the message."""
    config = facts.config
    refused = _check_pattern(fields, facts.now_ns)
    if refused is not None or fields.get(SCHEDULE):
        if not config.allow_msg_schedules:
            return error(JSMessageSchedulesDisabledErr)
        refused = refused or _check_rest(fields, subject, config)
    if refused is not None or scheduled:
        return refused
    return _check_scheduler(fields, subject, facts)


def _check_pattern(fields: dict[bytes, bytes], now_ns: int) -> ApiError | None:
    zone, pattern = fields.get(TIME_ZONE), fields.get(SCHEDULE)
    try:
        if zone is not None:
            _zone(zone)
        if pattern and Schedule(pattern, zone).never_due(now_ns):
            return error(JSMessageSchedulesPatternInvalidErr)
    except InvalidPattern:
        return error(JSMessageSchedulesPatternInvalidErr)
    except InvalidTimeZone:
        return error(JSMessageSchedulesTimeZoneInvalidErr)
    return None


def _check_rest(fields: dict[bytes, bytes], subject: bytes, config: StreamConfig) -> ApiError | None:
    """Check the other headers of a schedule; return the error that refuses the message, if any."""
    ttl = fields.get(_TTL)
    try:
        if ttl:
            parse_ttl(ttl)
    except ValueError:
        return error(JSMessageSchedulesTTLInvalidErr)
    if fields.get(_ROLLUP) not in (None, b"", b"sub"):
        return error(JSMessageSchedulesRollupInvalidErr)
    if ttl and not config.allow_msg_ttl:
        return error(JSMessageTTLDisabledErr)
    target, source = fields.get(TARGET, b""), fields.get(SOURCE)
    if not _publishable(target) or target == subject:
        return error(JSMessageSchedulesTargetInvalidErr)
    if source and (source in (subject, target) or not _publishable(source)):
        return error(JSMessageSchedulesSourceInvalidErr)
    if not _within(target, config):
        return error(JSMessageSchedulesTargetInvalidErr)
    if source and not _within(source, config):
        return error(JSMessageSchedulesSourceInvalidErr)
    return (
        error(JSMessageSchedulesRollupInvalidErr) if (fields.get(b"Nats-Rollup") or b"sub").lower() != b"sub" else None
    )


def _check_scheduler(fields: dict[bytes, bytes], subject: bytes, facts: Scheduled) -> ApiError | None:
    """Check that a publisher does nothing but end another subject's schedule."""
    scheduler, following = fields.get(SCHEDULER, b""), fields.get(_NEXT)
    if not following:
        return error(JSMessageSchedulesSchedulerInvalidErr) if scheduler else None
    if following != PURGE or not _publishable(scheduler) or scheduler == subject:
        return error(JSMessageSchedulesSchedulerInvalidErr)
    if not facts.config.allow_msg_schedules:
        return error(JSMessageSchedulesDisabledErr)
    return None if facts.ends_with_schedule(scheduler) else error(JSMessageSchedulesSchedulerInvalidErr)


def ended_scheduler(fields: dict[bytes, bytes]) -> bytes:
    """Return the subject whose schedule a checked message ends; b"": none."""
    return fields.get(SCHEDULER, b"") if fields.get(_NEXT) == PURGE else b""


def produced_header(fields: dict[bytes, bytes], scheduler: bytes, header: bytes, following: str) -> bytes:
    """Return the header block of the message that a schedule makes.

    `fields`   the `Nats-` headers of the schedule on subject `scheduler`.
    `header`   the block of the message whose content is used, the schedule's own or its source's.
    `following`  when the schedule falls due again; "": this was the last time.
    """
    made = headers.strip(header, _NOT_PRODUCED) if header else b""
    made = headers.add_field(made, SCHEDULER, scheduler)
    made = headers.add_field(made, _NEXT, following.encode() or PURGE)
    if fields.get(_TTL):
        made = headers.add_field(made, b"Nats-TTL", fields[_TTL])
    if fields.get(_ROLLUP):
        made = headers.add_field(made, b"Nats-Rollup", fields[_ROLLUP])
    return made


def _publishable(subject: bytes) -> bool:
    return is_valid(subject) and is_literal(subject)


def _within(subject: bytes, config: StreamConfig) -> bool:
    return any(matches(pattern.encode(), subject) for pattern in config.subjects)


#: Position records of schedules: this and the schedule's sequence, 8 bytes; the value is when it is due, ns in 8 bytes.
POSITION = b"eyot.schedule."
#: Longest interval between checks of due times, seconds: the wall clock may be set meanwhile.
CHECK_S_MAX = 30.0
#: Delay before a failed store is repeated, seconds.
RETRY_S = 1.0
#: A clock that is set back by less runs nothing by cron a second time, ns.
CRON_BACK_NS_MIN = 3 * 3600 * NS_PER_S
#: Messages made in one turn.
DUE_PER_TURN = 1000
#: Due times corrected in one turn, after the clock was set back: each reads a message.
CORRECTED_PER_TURN = 64


class Schedules:
    """Table and timer.

    The table holds committed schedules; `staged` holds uncommitted ones. `store_due(due, now_ns)` stores the messages of due
    schedules.
    """

    def __init__(
        self, stream: "StreamCore", store_due: "Callable[[Sequence[Due], int], None]", later_turns: "LaterTurns"
    ) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._store_due = store_due
        self._later_turns = later_turns
        self._seqs: dict[bytes, int] = {}  # subject -> sequence of its schedule, staged ones too
        self._due = DueTimes()
        self._is_correcting = False
        self._timer: TimerHandle | None = None
        self._not_before = 0.0  # after a failed store

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

    def clock_jumped(self, ns: int) -> None:
        """Look anew at what is due: the wall clock jumped by `ns`."""
        if ns < 0:
            self._due.set_back(self._stream.clock.now_ns(), -ns)
            self._correct_later()
        self.stop()
        self.schedule()

    def _correct_later(self) -> None:
        """Correct due times in turns of their own: each reads a message, and there may be very many."""
        if self._due.uncorrected and not self._is_correcting:
            self._is_correcting = True
            self._later_turns.add(self._correct)

    def _correct(self) -> None:
        self._is_correcting = False
        if not self._stream.live:
            return
        self._due.correct(CORRECTED_PER_TURN, self._corrected)
        self._correct_later()
        self.schedule()

    def _corrected(self, due: Due, set_backs: "Iterable[SetBack]") -> int:
        """Return when a schedule is due by the clock that was set back; unchanged if it cannot be read."""
        try:
            message = self._log.get(due.seq)
        except StoreError as failure:
            log.error("Stream '%s > %s': %s", self._log.account, self._log.name, failure)
            return due.due_ns
        if message is None:
            return due.due_ns  # `make` removes its record
        fields = nats_fields(message.header)
        due_ns = due.due_ns
        with suppress(InvalidPattern, InvalidTimeZone):  # `make` says so
            schedule = Schedule(fields.get(SCHEDULE, b""), fields.get(TIME_ZONE))
            for now_ns, back_ns in set_backs:
                due_ns = schedule.after_set_back(due_ns, now_ns, back_ns)
        return due_ns

    def _load(self) -> None:
        self._seqs.clear()
        self._due = DueTimes()
        loaded: list[Due] = []
        for key, value in self._log.positions().items():
            if key.startswith(POSITION):
                seq = int.from_bytes(key[len(POSITION) :], "big")
                message = self._log.get_readable(seq)  # `make` ends one that cannot be read
                if message is not None:
                    self._seqs[message.subject] = seq
                loaded.append(Due(int.from_bytes(value, "big"), seq))
        self._due.push(loaded)
        now_ns = self._stream.clock.now_ns()
        back_ns = self._log.state.last_ts_ns - now_ns
        if back_ns >= JUMP_NS_MIN:
            self._due.set_back(now_ns, back_ns)
            self._correct_later()

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
                self._note_staged(batch, Due(due_ns, seq))

    def _note_staged(self, batch: Batch, due: Due) -> None:
        if not batch.schedules:
            batch.schedules_clock = self._due.clock
        batch.schedules.append(due)

    def ended(self, txn: "Txn", batch: Batch, subject: bytes) -> None:
        """End the schedule of `subject`, if there is one."""
        seq = self._seqs.pop(subject, 0)
        if seq:
            batch.schedules_before.append((subject, seq))
            self._log.delete_position(txn, position_key(seq))

    def committed(self, batch: Batch) -> None:
        if batch.schedules:
            self._due.push(batch.schedules, batch.schedules_clock)
            self._correct_later()
            self.schedule()

    def rolled_back(self, batch: Batch) -> None:
        """Roll back what was staged with `batch`: the table is as before, and due schedules are tried again."""
        for subject, seq in reversed(batch.schedules_before):
            if seq:
                self._seqs[subject] = seq
            else:
                self._seqs.pop(subject, None)
        if batch.schedules_due:
            self._due.push(batch.schedules_due)
            self._not_before = self._stream.clock.monotonic() + RETRY_S
            self.schedule()

    # -- the timer -------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the timer run when the next schedule is due."""
        first_ns = self._due.first_ns
        if first_ns is None or not self._stream.live:
            self.stop()
            return
        clock = self._stream.clock
        delay_s = min(max((first_ns - clock.now_ns()) / NS_PER_S, 0.0), CHECK_S_MAX)
        deadline = max(clock.monotonic() + delay_s, self._not_before)
        if self._timer is not None and self._timer.active:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._stream.timers.call_at(deadline, self._run)

    def _run(self) -> None:
        self._timer = None
        now_ns = self._stream.clock.now_ns()
        due: list[Due] = []
        while len(due) < DUE_PER_TURN and (one := self._due.pop(now_ns)) is not None:
            due.append(one)
        if due and self._stream.live:
            self._store_due(due, now_ns)
        self.schedule()

    # -- making messages -------------------------------------------------------------------------------------------

    def make(self, txn: "Txn", batch: Batch, due: Due, now_ns: int) -> tuple[bytes, bytes, bytes] | None:
        """Stage a due schedule's next time; return (subject, header, payload) of its message.

        None if the schedule no longer exists.
        """
        batch.schedules_due.append(due)
        try:
            message = self._log.get(due.seq)
        except StoreError as failure:
            if not failure.is_record_at(due.seq):
                raise
            log.error("Stream '%s > %s': a schedule ends: %s", self._log.account, self._log.name, failure)
            for subject in [each for each, seq in self._seqs.items() if seq == due.seq]:
                self.ended(txn, batch, subject)
            message = None
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
            self._note_staged(batch, Due(next_ns, due.seq))
        else:
            self.ended(txn, batch, message.subject)
            self._log.remove(txn, due.seq, why="schedule")
            batch.purged = True
        content = self._content(fields, message)
        following = schedule.time_text(next_ns) if next_ns else ""
        header = produced_header(fields, message.subject, content.header, following)
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
