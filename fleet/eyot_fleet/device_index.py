"""All devices in memory, and questions about them. A question costs time in proportion to the devices; see `docs/operate/fleet.md`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from eyot_fleet.change_feed import ChangeFeed
from eyot_fleet.device_query import LABELS_MAX, SORTS, DevicePage, DeviceQuery
from eyot_fleet.device_record import DeviceRecord, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Devices that one service keeps; what comes beyond is counted and left out.
DEVICES_MAX: Final = 50_000


class DeviceIndex:
    """The devices by name. All changes go through `put`, `remove` and `evaluate`, which tell the feed."""

    def __init__(self, devices_max: int = DEVICES_MAX) -> None:
        self.feed = ChangeFeed()
        #: devices that found no room
        self.left_out = 0
        #: since when devices are heard without a break (seconds since 1970); infinite while the hub is away
        self.listening_since = 0.0
        self._devices_max = devices_max
        self._records: dict[str, DeviceRecord] = {}
        #: what `text` searches, by name
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[DeviceRecord]:
        return iter(self._records.values())

    @property
    def revision(self) -> int:
        """Counts changes of the index."""
        return self.feed.revision

    def get(self, name: str) -> DeviceRecord | None:
        """Return what is known of a device."""
        return self._records.get(name)

    def put(self, record: DeviceRecord, now: float) -> DeviceRecord | None:
        """Keep a record, with its state at `now`; return it as kept. None: there is no room for another device."""
        if record.name not in self._records and len(self._records) >= self._devices_max:
            self.left_out += 1
            return None
        state = state_of(record, now, self.listening_since)
        kept = record if record.state == state else replace(record, state=state)
        if kept != self._records.get(kept.name):
            self._keep(kept)
            self.feed.publish(frozenset((kept.name,)))
        return kept

    def remove(self, name: str) -> bool:
        """Forget a device; return whether it was there."""
        self._texts.pop(name, None)
        if self._records.pop(name, None) is None:
            return False
        self.feed.publish(frozenset((name,)))
        return True

    def evaluate(self, now: float) -> list[DeviceRecord]:
        """Bring all states up to `now`, for silence comes without a message; return the records that changed."""
        changed = []
        for record in self._records.values():
            state = state_of(record, now, self.listening_since)
            if state != record.state:
                changed.append(replace(record, state=state))
        for record in changed:
            self._keep(record)
        self.feed.publish(frozenset(record.name for record in changed))
        return changed

    def query(self, query: DeviceQuery) -> DevicePage:
        """Return one page of the devices that a query asks for. Raises QueryError."""
        query.check()
        found = list(self._matching(query))
        key = SORTS[query.sort]
        known = [(value, record) for record in found if (value := key(record)) is not None]
        known.sort(key=lambda pair: pair[1].name)
        known.sort(key=lambda pair: pair[0], reverse=query.descending)
        unknown = [record for record in found if key(record) is None] if len(known) < len(found) else []
        ordered = [record for _, record in known] + sorted(unknown, key=lambda record: record.name)
        start = query.page * query.size
        return DevicePage(
            devices=ordered[start : start + query.size],
            total=len(found),
            fleet=len(self._records),
            revision=self.revision,
            states=dict(Counter(record.state for record in found)),
            alerts=dict(Counter(alert.kind for record in found for alert in record.alerts)),
            labels=dict(Counter(label for record in found for label in record.labels).most_common(LABELS_MAX)),
            backlog=sum(record.backlog or 0 for record in found),
            never_arrived=sum(record.never_arrived for record in found),
        )

    def names(self, query: DeviceQuery) -> list[str]:
        """Return the names of all devices that a query's filters leave, sorted. Raises QueryError."""
        query.check()
        return sorted(record.name for record in self._matching(query))

    def _matching(self, query: DeviceQuery) -> Iterable[DeviceRecord]:
        found: Iterable[DeviceRecord] = self._records.values()
        if query.states:
            states = frozenset(query.states)
            found = (record for record in found if record.state in states)
        if query.labels:
            labels = frozenset(query.labels)
            found = (record for record in found if labels.issubset(record.labels))
        if "*" in query.alerts:
            found = (record for record in found if record.alerts)
        elif query.alerts:
            kinds = frozenset(query.alerts)
            found = (record for record in found if any(alert.kind in kinds for alert in record.alerts))
        words = query.text.casefold().split()
        if words:
            texts = self._texts
            found = (record for record in found if all(word in texts[record.name] for word in words))
        return found

    def _keep(self, record: DeviceRecord) -> None:
        before = self._records.get(record.name)
        self._records[record.name] = record
        if before is None or _searched(before) != _searched(record):
            self._texts[record.name] = "\n".join(_searched(record)).casefold()


def _searched(record: DeviceRecord) -> tuple[str, ...]:
    return (record.name, record.domain, record.version, *record.labels, *(alert.text for alert in record.alerts))
