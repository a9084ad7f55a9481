"""What groups consist of: how many devices, in which states, how far behind. Pure.

Devices with equal labels, as far as any group names them, are counted together first: many groups cost little.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from eyot_fleet.device_record import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eyot_fleet.desired import Group
    from eyot_fleet.device_record import DeviceRecord


class GroupSummary(Struct, frozen=True, kw_only=True):
    """One group, with sums over its devices."""

    name: str
    #: labels that a device of the group has; (): every device belongs to the group
    labels: tuple[str, ...]
    priority: int
    settings: dict[str, Any]
    devices: int
    #: devices by state
    states: dict[str, int]
    #: the state of STATES that needs somebody most; "" without devices
    worst: str
    #: devices with an alert
    alerted: int
    backlog: int
    never_arrived: int
    #: devices that do not run with what is desired of them
    not_applied: int


class _Sum:
    """Devices with equal labels."""

    def __init__(self, labels: frozenset[str]) -> None:
        self.labels = labels
        self.states: Counter[str] = Counter()
        self.alerted = self.backlog = self.never_arrived = self.not_applied = 0

    def add(self, record: DeviceRecord) -> None:
        self.states[record.state] += 1
        self.alerted += bool(record.alerts)
        self.backlog += record.backlog or 0
        self.never_arrived += record.never_arrived
        self.not_applied += not record.config.is_applied


def summaries(groups: Mapping[str, Group], records: Iterable[DeviceRecord]) -> list[GroupSummary]:
    """Return all groups, the one that needs somebody most first."""
    used = frozenset(label for group in groups.values() for label in group.labels)
    sums: dict[frozenset[str], _Sum] = {}
    for record in records:
        labels = used.intersection(record.labels)
        found = sums.get(labels)
        if found is None:
            found = sums[labels] = _Sum(labels)
        found.add(record)
    holders: defaultdict[str, list[_Sum]] = defaultdict(list)
    for each in sums.values():
        for label in each.labels:
            holders[label].append(each)
    every = list(sums.values())
    made = [_summary(name, group, every, holders) for name, group in groups.items()]
    return sorted(made, key=_need)


def _summary(name: str, group: Group, every: list[_Sum], holders: Mapping[str, list[_Sum]]) -> GroupSummary:
    candidates = every
    if group.labels:
        candidates = min((holders.get(label, []) for label in group.labels), key=len)
    members = [each for each in candidates if group.has(each.labels)]
    states: Counter[str] = Counter()
    for each in members:
        states.update(each.states)
    return GroupSummary(
        name=name,
        labels=group.labels,
        priority=group.priority,
        settings=group.settings,
        devices=states.total(),
        states=dict(states),
        worst=min(states, key=STATES.index, default=""),
        alerted=sum(each.alerted for each in members),
        backlog=sum(each.backlog for each in members),
        never_arrived=sum(each.never_arrived for each in members),
        not_applied=sum(each.not_applied for each in members),
    )


def _need(group: GroupSummary) -> tuple[int, int, str]:
    if not group.worst:
        return len(STATES), 0, group.name
    return STATES.index(group.worst), -group.states[group.worst], group.name
