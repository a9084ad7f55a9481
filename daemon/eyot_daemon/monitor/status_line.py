"""The state of the device in one line, for `systemctl status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from eyot_daemon.router.broker import Broker
    from eyot_wire.status import LinkStatus, StoreStatus, SyncStatus

_SPOKE = "spoke"
_UNITS = ("B", "kB", "MB", "GB", "TB")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def status_line(broker: Broker) -> str:
    """Return links, backlog and disk, in this order; parts that are not configured are left out. Raises OSError of the disk's figures."""
    providers = broker.providers
    parts = [
        _links([link for link in providers.links() if link.role == _SPOKE]),
        _backlog(providers.downstream()),
        _disk(providers.store()),
    ]
    return "; ".join(("Serving", *filter(None, parts)))


def _links(links: list[LinkStatus]) -> str:
    if not links:
        return ""
    down = [link for link in links if link.state != "up"]
    text = f"links: {len(links) - len(down)} of {len(links)} up"
    why = next((f" ({link.name}: {link.last_error})" for link in down if link.last_error), "")
    return text + why


def _backlog(downstreams: list[SyncStatus]) -> str:
    """Return the backlog of the downstream that lacks most, and the age of the oldest message that any lacks."""
    if not downstreams:
        return ""
    furthest = max(downstreams, key=lambda each: each.backlog)
    uncertain = " at least" if any(each.uncertain for each in downstreams) else ""
    if not furthest.backlog:
        return "backlog: unconfirmed" if uncertain else "backlog: none"
    ages = [each.oldest_s for each in downstreams if each.oldest_s is not None]
    oldest = f", oldest {_age(max(ages))}" if ages else ""
    return f"backlog:{uncertain} {counted(furthest.backlog, 'message')}{oldest}"


def _disk(store: StoreStatus | None) -> str:
    if store is None:
        return ""
    if store.error:
        return f"store: {store.error}"
    if store.free_bytes is None or not store.total_bytes:
        return ""
    return f"disk: {_size(store.free_bytes)} free of {_size(store.total_bytes)}"


def _size(size: float) -> str:
    """Return a size of two digits or more."""
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def _age(seconds: float) -> str:
    for unit, length in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
