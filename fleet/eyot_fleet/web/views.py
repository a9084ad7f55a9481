"""What the page shows of a device: a row of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from eyot_fleet.device_record import SEVERITIES, Alert

if TYPE_CHECKING:
    from eyot_fleet.device_record import DeviceRecord

#: Labels and alerts of a row; the device's own page shows all.
ROW_LABELS_MAX = 6
ROW_ALERTS_MAX = 3


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device in the list. Ages are as of `heard_at`: the page lets them grow."""

    name: str
    state: str
    labels: tuple[str, ...] = ()
    more_labels: int = 0
    version: str = ""
    linked: bool | None = None
    linked_since: float | None = None
    heard_at: float | None = None
    backlog: int | None = None
    backlog_bytes: int | None = None
    oldest_s: float | None = None
    eta_s: float | None = None
    never_arrived: int = 0
    alerts: tuple[Alert, ...] = ()
    more_alerts: int = 0


def row_of(record: DeviceRecord) -> Row:
    """Return the row of a device."""
    alerts = sorted(record.alerts, key=lambda alert: SEVERITIES.index(alert.severity))
    return Row(
        name=record.name,
        state=record.state,
        labels=record.labels[:ROW_LABELS_MAX],
        more_labels=max(0, len(record.labels) - ROW_LABELS_MAX),
        version=record.version,
        linked=record.linked,
        linked_since=record.linked_since,
        heard_at=record.heard_at,
        backlog=record.backlog,
        backlog_bytes=record.backlog_bytes,
        oldest_s=record.oldest_s,
        eta_s=record.eta_s,
        never_arrived=record.never_arrived,
        alerts=tuple(alerts[:ROW_ALERTS_MAX]),
        more_alerts=max(0, len(alerts) - ROW_ALERTS_MAX),
    )
