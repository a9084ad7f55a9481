"""Message schedules (ADR-51): the `Nats-Schedule` headers of one message, what they mean, and what they make.

A pattern is `@at <RFC 3339 time>` (once), `@every <Go duration of at least 1s>`, or a cron expression (see `cron.py`), the
latter in the zone of `Nats-Schedule-Time-Zone` or UTC. Times are ns since 1970.
"""

from datetime import UTC, datetime, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from eyot_daemon.jetstream.messages.cron import NS_PER_S, Cron
from eyot_daemon.jetstream.messages.message_ttl import parse_ttl
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
from eyot_wire.jetstream.model import StreamConfig, ns_to_rfc3339, rfc3339_to_ns
from eyot_wire.subject import is_literal, is_valid, matches

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
                self._at_ns = rfc3339_to_ns(text[4:].strip())
            elif text.startswith("@every "):
                self._every_ns = parse_duration_ns(text[7:].strip())
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

    def first(self, stored_ns: int) -> int:
        """When a schedule that was stored at `stored_ns` falls due first; 0: never."""
        return self._at_ns if self.once else self.following(stored_ns)

    def following(self, after_ns: int) -> int:
        """When it falls due next, on whole seconds; 0: never again."""
        if self._cron is not None:
            return self._cron.next(after_ns, self._zone)
        if self._every_ns:
            return (after_ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S + self._every_ns
        return 0


def _zone(name: bytes) -> tzinfo:
    text = name.decode("ascii", "replace")
    if not text:
        raise InvalidTimeZone(text)
    if text == "Local":
        local = datetime.now().astimezone().tzinfo
        assert local is not None
        return local
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidTimeZone(text) from None


class Scheduled(Protocol):
    """What the checks need to know of a stream."""

    @property
    def config(self) -> StreamConfig: ...

    def ends_with_schedule(self, subject: bytes) -> bool:
        """True if the last message on `subject` is a schedule, or there is none."""
        ...


def check_schedule(
    fields: dict[bytes, bytes], subject: bytes, facts: Scheduled, *, scheduled: bool = False
) -> ApiError | None:
    """Why a message's schedule headers cannot be taken; None: they can, or there are none. `scheduled`: a schedule made it."""
    config = facts.config
    refused = _check_pattern(fields)
    if refused is not None or fields.get(SCHEDULE):
        if not config.allow_msg_schedules:
            return error(JSMessageSchedulesDisabledErr)
        refused = refused or _check_rest(fields, subject, config)
    if refused is not None or scheduled:
        return refused
    return _check_scheduler(fields, subject, facts)


def _check_pattern(fields: dict[bytes, bytes]) -> ApiError | None:
    zone, pattern = fields.get(TIME_ZONE), fields.get(SCHEDULE)
    try:
        if zone is not None:
            _zone(zone)
        if pattern:
            Schedule(pattern, zone)
    except InvalidPattern:
        return error(JSMessageSchedulesPatternInvalidErr)
    except InvalidTimeZone:
        return error(JSMessageSchedulesTimeZoneInvalidErr)
    return None


def _check_rest(fields: dict[bytes, bytes], subject: bytes, config: StreamConfig) -> ApiError | None:
    """What goes with a pattern."""
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
    """A publisher may end another subject's schedule, and nothing else."""
    scheduler, following = fields.get(SCHEDULER, b""), fields.get(_NEXT)
    if not following:
        return error(JSMessageSchedulesSchedulerInvalidErr) if scheduler else None
    if following != PURGE or not _publishable(scheduler) or scheduler == subject:
        return error(JSMessageSchedulesSchedulerInvalidErr)
    if not facts.config.allow_msg_schedules:
        return error(JSMessageSchedulesDisabledErr)
    return None if facts.ends_with_schedule(scheduler) else error(JSMessageSchedulesSchedulerInvalidErr)


def ended_scheduler(fields: dict[bytes, bytes]) -> bytes:
    """The subject whose schedule a checked message ends; b"": none."""
    return fields.get(SCHEDULER, b"") if fields.get(_NEXT) == PURGE else b""


def produced_header(fields: dict[bytes, bytes], scheduler: bytes, header: bytes, next_ns: int) -> bytes:
    """The header block of the message that a schedule makes.

    `fields`   the `Nats-` headers of the schedule on subject `scheduler`.
    `header`   the block of the message whose content is used, the schedule's own or its source's.
    `next_ns`  when the schedule falls due again; 0: this was the last time.
    """
    made = headers.strip(header, _NOT_PRODUCED) if header else b""
    made = headers.add_field(made, SCHEDULER, scheduler)
    made = headers.add_field(made, _NEXT, ns_to_rfc3339(next_ns).encode() if next_ns else PURGE)
    if fields.get(_TTL):
        made = headers.add_field(made, b"Nats-TTL", fields[_TTL])
    if fields.get(_ROLLUP):
        made = headers.add_field(made, b"Nats-Rollup", fields[_ROLLUP])
    return made


def _publishable(subject: bytes) -> bool:
    return is_valid(subject) and is_literal(subject)


def _within(subject: bytes, config: StreamConfig) -> bool:
    return any(matches(pattern.encode(), subject) for pattern in config.subjects)
