"""A question about the devices: which ones, in which order, which page; and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from eyot_fleet.device_record import STATES, DeviceRecord

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_SIZE_MAX: Final = 500
#: Characters of a search text that count.
TEXT_MAX: Final = 200
#: Counts by label that an answer has, the most frequent first.
LABELS_MAX: Final = 100


class QueryError(ValueError):
    """A query that cannot be answered; the text says what is wrong."""


def _state(record: DeviceRecord) -> int:
    return STATES.index(record.state)


#: Orders by name. A device for which the figure is unknown (None) comes last, ascending and descending.
SORTS: Final[dict[str, Callable[[DeviceRecord], str | float | None]]] = {
    "name": lambda record: record.name,
    "state": _state,
    "version": lambda record: record.version or None,
    "backlog": lambda record: record.backlog,
    "oldest": lambda record: record.oldest_s,
    "eta": lambda record: record.eta_s,
    "never_arrived": lambda record: record.never_arrived,
    "heard": lambda record: record.heard_at,
    "linked_since": lambda record: record.linked_since,
    "disk": lambda record: (
        None
        if record.disk_free_bytes is None or not record.disk_total_bytes
        else record.disk_free_bytes / record.disk_total_bytes
    ),
    "wear": lambda record: record.flash_used_percent,
    "certificate": lambda record: record.certificate_expires,
    "token": lambda record: record.token_expires,
    "clock": lambda record: None if record.clock_offset_s is None else abs(record.clock_offset_s),
    "alerts": lambda record: len(record.alerts),
}


class DeviceQuery(Struct, frozen=True, kw_only=True):
    """Which devices: every filter must hold. `page` begins with 0."""

    #: words that must all be in the name, a label, the domain, the version or an alert, whatever their case
    text: str = ""
    #: labels that a device must all have
    labels: tuple[str, ...] = ()
    #: states of which the device must have one; (): any
    states: tuple[str, ...] = ()
    #: kinds of alerts of which the device must have one; (): any; `*`: any alert at all
    alerts: tuple[str, ...] = ()
    sort: str = "state"
    descending: bool = False
    page: int = 0
    size: int = 50

    def check(self) -> None:
        """Check what a peer may have chosen. Raises QueryError."""
        if self.sort not in SORTS:
            raise QueryError(f"cannot sort by {self.sort!r}: expected one of {', '.join(SORTS)}")
        if not 1 <= self.size <= PAGE_SIZE_MAX:
            raise QueryError(f"a page has 1 to {PAGE_SIZE_MAX} devices, not {self.size}")
        if self.page < 0:
            raise QueryError("pages are counted from 0")
        for state in self.states:
            if state not in STATES:
                raise QueryError(f"unknown state {state!r}: expected one of {', '.join(STATES)}")
        if len(self.text) > TEXT_MAX:
            raise QueryError(f"a search text has at most {TEXT_MAX} characters")


class DevicePage(Struct, frozen=True, kw_only=True):
    """One page of the answer."""

    devices: list[DeviceRecord]
    #: devices that the filters leave, on all pages
    total: int
    #: all devices
    fleet: int
    #: revision of the index that the page shows
    revision: int
    #: devices that the filters leave, by state, by kind of alert, and by label (at most LABELS_MAX)
    states: dict[str, int]
    alerts: dict[str, int]
    labels: dict[str, int]
    #: sums over the devices that the filters leave
    backlog: int
    never_arrived: int
