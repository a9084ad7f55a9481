"""What is known of one device. Times are seconds since 1970 by the service's clock, unless the field says otherwise.

Text in a record comes from a device or its operator: whoever shows it escapes it first. An unknown figure is None, never an
estimate.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

#: What needs somebody comes first; a list of devices is sorted in this order.
STATES: Final = ("failing", "incomplete", "silent", "not linked", "unknown", "behind", "new", "revoked", "synced")
SEVERITIES: Final = ("critical", "warning", "info")
#: A device is silent when nothing of it has been heard for so many of its own intervals.
SILENT_INTERVALS: Final = 3
#: Silence that is never told of, however short a device's interval is, seconds: a link that dials again takes some.
SILENT_MIN_S: Final = 30.0


class StreamRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stream of a device, and what the downstream that is furthest behind has of it. As of the device's report."""

    account: str
    name: str
    #: messages that the stream holds
    stored: int
    last_seq: int
    #: server or cluster of the downstream; "": nobody replicates the stream
    downstream: str = ""
    #: highest sequence that the downstream has confirmed; None without a downstream
    confirmed_seq: int | None = None
    #: messages that are not confirmed; None without a downstream
    backlog: int | None = None
    backlog_bytes: int | None = None
    #: age of the oldest unconfirmed message, seconds
    oldest_s: float | None = None
    eta_s: float | None = None
    never_arrived: int = 0
    error: str = ""


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something about a device that needs somebody. One device has at most one alert of a kind."""

    kind: str
    #: one of SEVERITIES
    severity: str
    text: str
    remedy: str = ""
    since: float


class ConfigRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Desired and reported configuration of one device. A revision is the digest of a document; "": none."""

    desired: str = ""
    #: when the present desired document came about
    desired_at: float | None = None
    reported: str = ""
    reported_at: float | None = None
    #: `applied`, `refused` or `rolled back`; "": the device has reported nothing
    outcome: str = ""
    error: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether the device runs with what is desired of it."""
        return self.desired == self.reported and self.outcome in ("", "applied")


class UpgradeRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a device's last upgrade ended, as the device says."""

    to: str = ""
    #: `upgraded`, `returned`: it went back, `superseded`; "": none is known
    outcome: str = ""
    reason: str = ""
    #: RFC 3339, by the device's clock
    at: str = ""
    #: when the service heard of it first
    heard_at: float = 0.0


class DeviceRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device."""

    name: str
    #: labels as `key:value` or one word, sorted, lower case
    labels: tuple[str, ...] = ()
    domain: str = ""
    version: str = ""
    #: when the device was enrolled; None: not known here
    enrolled_at: float | None = None
    revoked_at: float | None = None

    #: the link to the hub, as far as the hub knows; None: not known
    linked: bool | None = None
    linked_since: float | None = None
    rtt_ms: float | None = None
    link_error: str = ""

    #: when the last message of the device came; None: never
    heard_at: float | None = None
    #: the figures are as of this time by the device's own clock, RFC 3339; "": it has reported nothing
    reported_at: str = ""
    #: how often the device reports, seconds
    every_s: float = 60.0
    uptime_s: float | None = None
    #: what tells one report from another: the daemon's start, and the report's number since then
    boot: str = ""
    number: int = 0

    synced: bool = False
    backlog: int | None = None
    backlog_bytes: int | None = None
    #: age of the oldest unconfirmed message when it was reported, seconds
    oldest_s: float | None = None
    #: until everything is confirmed, seconds; None: not known
    eta_s: float | None = None
    never_arrived: int = 0
    messages: int = 0
    streams: tuple[StreamRecord, ...] = ()
    #: streams that a report left out, because it holds the first ones by need only
    streams_left_out: int = 0

    store_error: str = ""
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    flash_used_percent: int | None = None
    flash_lifetime_days: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    #: when the first of its own certificates expires, and the token that it presents to the hub
    certificate_expires: float | None = None
    token_expires: float | None = None
    #: the device's clock minus the hub's, seconds, with the message's time on its way; None: only heard of late
    clock_offset_s: float | None = None
    #: the device's system says that its clock is synchronized; None: not told
    clock_synchronized: bool | None = None

    config: ConfigRecord = ConfigRecord()
    upgrade: UpgradeRecord = UpgradeRecord()
    alerts: tuple[Alert, ...] = ()
    #: one of STATES, as of the last evaluation
    state: str = "new"

    def silent_after_s(self) -> float:
        """Return how long the device may say nothing before it is silent, seconds."""
        return max(SILENT_MIN_S, SILENT_INTERVALS * self.every_s)

    def oldest_now_s(self, now: float) -> float | None:
        """Return how old the oldest unconfirmed message is at `now`, if the hub has heard of no confirmation since."""
        if self.oldest_s is None or self.heard_at is None:
            return self.oldest_s
        return self.oldest_s + max(0.0, now - self.heard_at)


def state_of(record: DeviceRecord, now: float, listening_since: float = 0.0) -> str:
    """Return the state of a device at `now`: a device that is silent is never fine, whatever it said last.

    `listening_since`: since when this service hears devices without a break. Silence before it may be the service's own;
    a device that was silent already stays so until it says something.
    """
    if record.revoked_at is not None:
        return "revoked"
    if record.heard_at is None:
        return "new"
    if record.linked is False:
        return "not linked"
    after_s = record.silent_after_s()
    is_quiet = now - record.heard_at > after_s
    if is_quiet and (record.state == "silent" or now - listening_since > after_s):
        return "silent"
    if record.store_error or any(alert.severity == "critical" for alert in record.alerts):
        return "failing"
    if record.never_arrived:
        return "incomplete"
    if record.synced:
        return "synced"
    return "behind" if record.backlog else "unknown"
