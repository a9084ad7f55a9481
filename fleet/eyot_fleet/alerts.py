"""What about a device needs somebody. Pure: the record, the time and the alerts so far decide.

Each rule has a threshold at which its alert begins and an easier one at which it ends, so that a figure that trembles at a
threshold makes one alert. One device has at most one alert of each kind, so alerts are bounded by the number of rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from eyot_fleet.device_record import Alert, DeviceRecord
from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"
_DAY_S: Final = 86_400.0
_MIB: Final = 1 << 20


class AlertLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where on something needs somebody: `[alerts]` of the configuration. Times in seconds."""

    #: age of the oldest unconfirmed message
    behind_s: float = 6 * 3600.0
    #: time without a word, for devices that are neither revoked nor new
    silent_s: float = 15 * 60.0
    #: free part of the store's file system, percent
    disk_percent: float = 10.0
    wear_percent: float = 90.0
    lifetime_days: int = 180
    memory_free_bytes: int = 32 * _MIB
    clock_s: float = 60.0
    certificate_days: float = 14.0
    token_days: float = 7.0
    #: time that a device may take to apply what is desired of it
    config_s: float = 2 * 3600.0


class _Found(NamedTuple):
    severity: str
    text: str
    remedy: str = ""


class _Context(NamedTuple):
    record: DeviceRecord
    now: float
    limits: AlertLimits
    #: the alert of this kind is there already: the easier threshold counts
    standing: bool
    listening_since: float


def _store(at: _Context) -> _Found | None:
    error = at.record.store_error
    return _Found(CRITICAL, f"messages cannot be stored: {error}", "see the device's log") if error else None


def _disk(at: _Context) -> _Found | None:
    free, total = at.record.disk_free_bytes, at.record.disk_total_bytes
    if free is None or not total:
        return None
    percent = 100.0 * free / total
    limit = at.limits.disk_percent * (1.2 if at.standing else 1.0)
    if percent >= limit:
        return None
    severity = CRITICAL if percent < at.limits.disk_percent / 4 else WARNING
    return _Found(severity, f"{percent:.0f} % of the disk is free", "bound the streams (max_bytes), or free space")


def _wear(at: _Context) -> _Found | None:
    used, days = at.record.flash_used_percent, at.record.flash_lifetime_days
    if used is not None and used >= at.limits.wear_percent:
        severity = CRITICAL if used > 100 else WARNING
        return _Found(severity, f"{used} % of the flash's life is used", "plan a new disk")
    limit = at.limits.lifetime_days * (1.2 if at.standing else 1.0)
    if days is not None and days < limit:
        return _Found(
            WARNING, f"the flash lasts {counted(days, 'day')} at this rate", "set a budget: eyot { flash { budget } }"
        )
    return None


def _memory(at: _Context) -> _Found | None:
    free = at.record.memory_free_bytes
    if free is None or free >= at.limits.memory_free_bytes * (1.5 if at.standing else 1.0):
        return None
    return _Found(WARNING, f"{free // _MIB} MiB of memory are left", "")


def _expiry(what: str, expires: float | None, warn_days: float, remedy: str, at: _Context) -> _Found | None:
    if expires is None:
        return None
    days = (expires - at.now) / _DAY_S
    if days >= warn_days:
        return None
    if days <= 0:
        return _Found(CRITICAL, f"the {what} has expired", remedy)
    return _Found(CRITICAL if days < 1 else WARNING, f"the {what} expires in {counted(round(days), 'day')}", remedy)


def _certificate(at: _Context) -> _Found | None:
    return _expiry(
        "certificate", at.record.certificate_expires, at.limits.certificate_days, "renew the file, then reload", at
    )


def _token(at: _Context) -> _Found | None:
    remedy = "see the device's journal: journalctl -u eyot-renew"
    return _expiry("token for the hub", at.record.token_expires, at.limits.token_days, remedy, at)


def _clock(at: _Context) -> _Found | None:
    offset = at.record.clock_offset_s
    if offset is None or abs(offset) <= at.limits.clock_s / (2 if at.standing else 1):
        return None
    way = "ahead of" if offset > 0 else "behind"
    severity = CRITICAL if abs(offset) > _DAY_S else WARNING
    return _Found(severity, f"the clock is {_span(abs(offset))} {way} the hub's", "set up NTP (timedatectl)")


def _behind(at: _Context) -> _Found | None:
    age = at.record.oldest_now_s(at.now) if at.record.backlog else None
    if age is None or age <= at.limits.behind_s / (2 if at.standing else 1):
        return None
    return _Found(
        WARNING, f"the hub lacks {counted(at.record.backlog, 'message')}, the oldest of {_span(age)} ago", "eyot sync"
    )


def _lost(at: _Context) -> _Found | None:
    count = at.record.never_arrived
    if not count:
        return None
    return _Found(
        WARNING, f"{counted(count, 'message')} never arrived", "eyot sync; then eyot sync forget STREAM HUB --lost"
    )


def _silent(at: _Context) -> _Found | None:
    heard = at.record.heard_at
    if heard is None or at.record.revoked_at is not None:
        return None
    since = heard if at.standing else max(heard, at.listening_since)
    if at.now - since <= max(at.limits.silent_s, at.record.silent_after_s()):
        return None
    return _Found(WARNING, f"silent for {_span(at.now - heard)}", "is the device on, and is its link up?")


def _config(at: _Context) -> _Found | None:
    config = at.record.config
    if config.outcome in ("refused", "rolled back"):
        return _Found(WARNING, f"configuration {config.outcome}: {config.error}", "change what is desired")
    if config.desired and not config.is_applied and config.desired_at is not None:
        late_s = at.now - config.desired_at
        if late_s > at.limits.config_s:
            remedy = "is eyot-configure.timer enabled on the device?"
            return _Found(INFO, f"what is desired has not been applied for {_span(late_s)}", remedy)
    return None


def _upgrade(at: _Context) -> _Found | None:
    upgrade = at.record.upgrade
    if upgrade.outcome != "returned":
        return None
    because = f": {upgrade.reason}" if upgrade.reason else ""
    return _Found(WARNING, f"went back from {upgrade.to}{because}", "eyot upgrade status on the device")


#: Kinds that this module decides; alerts of other kinds are whoever's who raised them.
RULES: Final[dict[str, Callable[[_Context], _Found | None]]] = {
    "store": _store,
    "disk": _disk,
    "wear": _wear,
    "memory": _memory,
    "certificate": _certificate,
    "token": _token,
    "clock": _clock,
    "behind": _behind,
    "never_arrived": _lost,
    "silent": _silent,
    "config": _config,
    "upgrade": _upgrade,
}
#: Alerts of other kinds that one device may have.
OTHERS_MAX: Final = 5


def alerts_of(record: DeviceRecord, now: float, limits: AlertLimits, listening_since: float = 0.0) -> tuple[Alert, ...]:
    """Return the alerts of a record at `now`; those that go on keep their beginning. Alerts of other kinds stay."""
    standing = {alert.kind: alert for alert in record.alerts}
    found = [alert for alert in record.alerts if alert.kind not in RULES]
    for kind, rule in RULES.items():
        before = standing.get(kind)
        said = rule(_Context(record, now, limits, before is not None, listening_since))
        if said is not None:
            since = now if before is None else before.since
            found.append(Alert(kind=kind, severity=said.severity, text=said.text, remedy=said.remedy, since=since))
    return tuple(sorted(found, key=lambda alert: (_ORDER[alert.severity], alert.kind)))


def with_alert(alerts: Iterable[Alert], alert: Alert) -> tuple[Alert, ...]:
    """Return the alerts with one of a kind that no rule decides; it keeps the beginning of the one before."""
    before = next((each for each in alerts if each.kind == alert.kind), None)
    kept = [each for each in alerts if each.kind != alert.kind]
    if before is None and sum(each.kind not in RULES for each in kept) >= OTHERS_MAX:
        return tuple(kept)
    since = alert.since if before is None else before.since
    made = Alert(kind=alert.kind, severity=alert.severity, text=alert.text, remedy=alert.remedy, since=since)
    return tuple(sorted([*kept, made], key=lambda each: (_ORDER[each.severity], each.kind)))


def without_alert(alerts: Iterable[Alert], kind: str) -> tuple[Alert, ...]:
    """Return the alerts without one kind."""
    return tuple(each for each in alerts if each.kind != kind)


_ORDER: Final = {CRITICAL: 0, WARNING: 1, INFO: 2}


def _span(seconds: float) -> str:
    for size, unit in ((_DAY_S, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
