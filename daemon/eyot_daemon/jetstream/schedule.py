"""Message schedules (ADR-51): the `Nats-Schedule` headers of one message, what they mean, and what they make.

A pattern is `@at <RFC 3339 time>` (once), `@every <Go duration of at least 1s>`, or a cron expression (see `cron.py`), the
latter in the zone of `Nats-Schedule-Time-Zone` or UTC. Times are ns since 1970.
"""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from eyot_daemon.jetstream.cron import NS_PER_S, Cron
from eyot_daemon.jetstream.message_ttl import parse_ttl
from eyot_wire import headers
from eyot_wire.duration import parse_duration_ns
from eyot_wire.js_errors import ApiError, error
from eyot_wire.js_model import StreamConfig, ns_to_rfc3339, rfc3339_to_ns
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
    if text == "Local":
        local = datetime.now().astimezone().tzinfo
        assert local is not None
        return local
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidTimeZone(text) from None


def check_schedule(
    fields: dict[bytes, bytes], subject: bytes, config: StreamConfig, *, scheduled: bool
) -> ApiError | None:
    """Why a message's schedule headers cannot be taken; None: they can, or there are none."""
    refused = None if scheduled else _check_scheduler(fields, subject, config)
    pattern = fields.get(SCHEDULE)
    if refused is not None or not pattern:
        return refused
    if not config.allow_msg_schedules:
        return error(10188)
    try:
        Schedule(pattern, fields.get(TIME_ZONE))
    except InvalidPattern:
        return error(10189)
    except InvalidTimeZone:
        return error(10223)
    ttl = fields.get(_TTL)
    if ttl:
        try:
            parse_ttl(ttl)
        except ValueError:
            return error(10191)
        if not config.allow_msg_ttl:
            return error(10166)
    target = fields.get(TARGET, b"")
    if not _publishable(target) or target == subject or not _within(target, config):
        return error(10190)
    source = fields.get(SOURCE)
    if source is not None and (not _publishable(source) or source in (subject, target) or not _within(source, config)):
        return error(10203)
    if fields.get(b"Nats-Rollup", b"sub").lower() != b"sub" or fields.get(_ROLLUP, b"sub") != b"sub":
        return error(10192)
    return None


def _check_scheduler(fields: dict[bytes, bytes], subject: bytes, config: StreamConfig) -> ApiError | None:
    """A publisher may end another subject's schedule, and nothing else."""
    if SCHEDULER not in fields and _NEXT not in fields:
        return None
    if not config.allow_msg_schedules:
        return error(10188)
    scheduler = fields.get(SCHEDULER, b"")
    if fields.get(_NEXT) != PURGE or not _publishable(scheduler) or scheduler == subject:
        return error(10212)
    return None


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
