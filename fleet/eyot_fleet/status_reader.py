"""From a device's status message to its record. Pure: the message, the record and the time decide.

A device speaks for itself only: the name is a token of the subject, which the hub's permissions bind to the device, and a
message that names another device is refused.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from eyot_fleet.device_record import DeviceRecord, StreamRecord
from eyot_wire.device_requests import is_token
from eyot_wire.status import DeviceStatus
from eyot_wire.trust.enrolment import is_device_name
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_wire.status import DeviceStreamStatus

#: Bytes of a status that are read.
STATUS_BYTES_MAX: Final = 256 * 1024
STREAMS_MAX: Final = 200
TEXT_MAX: Final = 300
#: Intervals that a device may claim, seconds.
EVERY_MIN_S: Final = 1.0
EVERY_MAX_S: Final = 7 * 86_400.0
_COUNT_MAX: Final = 2**63 - 1


class StatusError(Exception):
    """A message that is no status of the device that its subject names. `forged`: it names another device."""

    def __init__(self, text: str, *, forged: bool = False) -> None:
        super().__init__(text)
        self.forged = forged


def name_in(subject: str, prefix: str, last: str) -> str:
    """Return the device's name in `<prefix>.<name>.<last>`. Raises StatusError."""
    rest = subject.removeprefix(f"{prefix}.")
    name, _, tail = rest.partition(".")
    if rest == subject or tail != last or not is_device_name(name):
        raise StatusError("the subject names no device")
    return name


def read_status(name: str, payload: bytes) -> DeviceStatus:
    """Return the status that device `name` has published. Raises StatusError."""
    if len(payload) > STATUS_BYTES_MAX:
        raise StatusError(f"a status of {len(payload):,} bytes: at most {STATUS_BYTES_MAX:,} are read")
    try:
        status = decode_json(payload, DeviceStatus)
    except msgspec.DecodeError as error:
        raise StatusError(f"no status: {error}") from None
    if status.device != name:
        raise StatusError(f"a status of {status.device[:TEXT_MAX]!r} on the subject of {name}", forged=True)
    if status.domain and not is_token(status.domain):  # a stream of all devices would be refused for this one's source
        raise StatusError(f"{status.domain[:TEXT_MAX]!r} can be no domain")
    return status


def seconds_of(text: str | None) -> float | None:
    """Return RFC 3339 as seconds since 1970; None for none, and for what is no time."""
    if not text:
        return None
    try:
        # Python reads six digits of a second.
        head, dot, tail = text.partition(".")
        digits = len(tail) - len(tail.lstrip("0123456789"))
        return datetime.fromisoformat(head + dot + tail[: min(digits, 6)] + tail[digits:]).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def is_newer(record: DeviceRecord, status: DeviceStatus, heard_at: float, *, live: bool) -> bool:
    """Return whether a status is later than what the record shows.

    `live`: it came over the link just now. Others come from a stream, maybe weeks after they were made. Within one start
    of the daemon the number decides. Of different starts nothing but the way decides: clocks of devices may be wrong.
    """
    if not record.reported_at:
        return True
    if status.boot and status.boot == record.boot:
        return status.number > record.number
    if live:
        return True
    return record.heard_at is None or heard_at - record.heard_at > record.silent_after_s()


def updated(record: DeviceRecord, status: DeviceStatus, heard_at: float, *, live: bool) -> DeviceRecord:
    """Return the record with what a status says. `heard_at`: when the hub got it, seconds since 1970."""
    heard = heard_at if record.heard_at is None else max(heard_at, record.heard_at)
    made_at = seconds_of(status.at)
    linked, since = record.linked, record.linked_since
    if live and status.linked and linked is not True:
        linked, since = True, heard_at
    return replace(
        record,
        domain=_text(status.domain),
        version=_text(status.version),
        linked=linked,
        linked_since=since,
        rtt_ms=_figure(status.rtt_ms),
        link_error=_text(status.link_error),
        heard_at=heard,
        reported_at=_text(status.at),
        every_s=min(EVERY_MAX_S, max(EVERY_MIN_S, _figure(status.every_s) or 60.0)),
        uptime_s=_figure(status.uptime_s),
        boot=_text(status.boot),
        number=_count(status.number) or 0,
        synced=status.synced,
        backlog=_count(status.backlog),
        backlog_bytes=_count(status.backlog_bytes),
        oldest_s=_figure(status.oldest_s),
        eta_s=_figure(status.eta_s),
        never_arrived=_count(status.never_arrived) or 0,
        messages=_count(status.messages) or 0,
        streams=tuple(map(_stream, status.streams[:STREAMS_MAX])),
        streams_left_out=(_count(status.streams_left_out) or 0) + max(0, len(status.streams) - STREAMS_MAX),
        store_error=_text(status.store_error),
        disk_free_bytes=_count(status.disk_free_bytes),
        disk_total_bytes=_count(status.disk_total_bytes),
        flash_used_percent=_count(status.flash_used_percent),
        flash_lifetime_days=_count(status.flash_lifetime_days),
        memory_bytes=_count(status.memory_bytes),
        memory_free_bytes=_count(status.memory_free_bytes),
        certificate_expires=seconds_of(status.certificate_expires),
        token_expires=seconds_of(status.token_expires),
        clock_offset_s=made_at - heard_at if live and made_at is not None else record.clock_offset_s,
        clock_synchronized=status.clock_synchronized,
    )


def made_at(status: DeviceStatus, heard_at: float, *, live: bool) -> float | None:
    """Return when a status was made, by the hub's clock; None where the device's clock cannot be believed."""
    if live:
        return heard_at
    at = seconds_of(status.at)
    return None if at is None or status.clock_synchronized is False or at > heard_at else at


def _stream(stream: DeviceStreamStatus) -> StreamRecord:
    return StreamRecord(
        account=_text(stream.account),
        name=_text(stream.name),
        stored=_count(stream.messages) or 0,
        last_seq=_count(stream.last_seq) or 0,
        downstream=_text(stream.peer),
        confirmed_seq=_count(stream.confirmed_seq),
        backlog=_count(stream.backlog),
        backlog_bytes=_count(stream.backlog_bytes),
        oldest_s=_figure(stream.oldest_s),
        eta_s=_figure(stream.eta_s),
        never_arrived=_count(stream.never_arrived) or 0,
        error=_text(stream.error),
    )


def _text(value: str | None) -> str:
    return "" if value is None else value[:TEXT_MAX]


def _count(value: int | None) -> int | None:
    return None if value is None else min(_COUNT_MAX, max(0, value))


def _figure(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) or value < 0 else value
