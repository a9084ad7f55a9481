"""Upgrades ring by ring: which devices may have a release, and whether the next ring opens. Pure: time comes as an argument.

A rollout is a value of the bucket `<name>_DESIRED`. A ring is a group, and a time for which the ring has to run well. The service
that leads compares the rings with their devices, writes what follows, and halts by itself when devices get worse.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from eyot_fleet.desired import DesiredError, Written, check_name, check_written
from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eyot_fleet.desired import Group
    from eyot_fleet.device_record import DeviceRecord

RUNNING: Final = "running"
HALTED: Final = "halted"
DONE: Final = "done"
ROLLED_BACK: Final = "rolled back"
STATES: Final = (RUNNING, HALTED, DONE, ROLLED_BACK)
RINGS_MAX: Final = 20
#: `OpenedRing.accepted` until the service has counted.
NOT_COUNTED: Final = -1
#: What a device calls an upgrade from which it went back.
WENT_BACK: Final = "returned"
#: Alerts that speak against a release, if they began after the ring was opened.
HEALTH_ALERTS: Final = frozenset({"store", "memory", "never_arrived", "config"})
BACKLOG_ALERT: Final = "behind"
#: Devices that a reason names.
NAMED_MAX: Final = 5
#: Characters of a reason that is made here.
REASON_MAX: Final = 500
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.~-]{0,63}")


class Ring(Struct, frozen=True, kw_only=True):
    """A group, and how long it has to run well with the release before the next ring opens, seconds."""

    group: str
    wait_s: float


class OpenedRing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a ring since it is open. Times are seconds since 1970, by the service's clock."""

    at: float
    #: since when enough of its devices run the release
    reached_at: float | None = None
    #: percent of its devices that were not linked when it was opened
    unlinked_before: float = 0.0
    #: devices that were worse when an operator resumed: they halt the rollout no more
    accepted: int = 0


class Rollout(Written, frozen=True, kw_only=True, omit_defaults=True):
    """`rollout.<name>`: one release on its way through rings. `reason`: why it was halted, or what its operator said."""

    #: of the release, without what Debian's release adds (`+deb12`)
    version: str
    rings: tuple[Ring, ...]
    state: str = RUNNING
    #: the rings that are open, in the order of `rings`
    opened: tuple[OpenedRing, ...] = ()
    #: the version that devices go back to; "" unless the rollout was rolled back
    back_to: str = ""
    #: when it was started: of two rollouts for one device the later one counts
    started_at: float = 0.0
    #: a ring halts when more of its devices are worse, percent
    halt_percent: float = 5.0
    #: enough devices of a ring run the release, percent of those that were heard since it was opened
    enough_percent: float = 90.0
    #: how long a device may be without a link before it counts as worse, seconds
    grace_s: float = 900.0

    def check(self) -> None:
        """Raise DesiredError for what cannot be."""
        check_written(self)
        for version in (self.version, self.back_to) if self.back_to else (self.version,):
            if not _VERSION.fullmatch(version):
                raise DesiredError(f"{version[:100]!r} cannot be a version: give it without Debian's release (+deb12)")
        if self.state not in STATES:
            raise DesiredError(f"state: expected one of {', '.join(STATES)}")
        if (self.state == ROLLED_BACK) != bool(self.back_to):
            raise DesiredError("a rollout that is rolled back names the version to go back to, and no other does")
        if not 1 <= len(self.rings) <= RINGS_MAX:
            raise DesiredError(f"a rollout has 1 to {RINGS_MAX} rings")
        names = [check_name("group", ring.group) for ring in self.rings]
        if len(set(names)) < len(names):
            raise DesiredError("each ring is another group")
        if any(not 0 <= ring.wait_s <= 366 * 86_400 for ring in self.rings):
            raise DesiredError("a ring waits for 0 s to a year")
        for percent in (self.halt_percent, self.enough_percent):
            if not 0 <= percent <= 100:
                raise DesiredError("halt_percent and enough_percent are 0 to 100")
        if not 0 <= self.grace_s <= 86_400:
            raise DesiredError("grace_s is 0 s to a day")

    def ring_of(self, labels: frozenset[str], groups: Mapping[str, Group]) -> int | None:
        """Return the first ring to which a device with these labels belongs; None: to no ring."""
        for number, ring in enumerate(self.rings):
            group = groups.get(ring.group)
            if group is not None and group.has(labels):
                return number
        return None

    def release_for(self, ring: int) -> str:
        """Return the version that devices of a ring may install, "" for none."""
        if ring >= len(self.opened) or self.state == HALTED:
            return ""
        return self.back_to if self.state == ROLLED_BACK else self.version


class RingProgress(Struct, kw_only=True):
    """A ring's devices at one time. `worse`: names and why, each device once."""

    group: str
    #: the group exists
    is_known: bool = True
    devices: int = 0
    #: devices that were heard since the ring was opened; the others say nothing about the release
    heard: int = 0
    upgraded: int = 0
    #: devices that are not linked, for longer than the grace: those of before are not counted against the release
    unlinked: list[str] = []
    worse: dict[str, str] = {}
    #: at the time of the look: all devices of the ring that are not linked
    unlinked_now: int = 0


def release_for(labels: Iterable[str], groups: Mapping[str, Group], rollouts: Mapping[str, Rollout]) -> str:
    """Return the version that a device with these labels may install, "" for none."""
    held = frozenset(labels)
    for _, rollout in sorted(rollouts.items(), key=lambda item: (-item[1].started_at, item[0])):
        ring = rollout.ring_of(held, groups)
        if ring is not None:
            return rollout.release_for(ring)
    return ""


def progress_of(
    rollout: Rollout, groups: Mapping[str, Group], records: Iterable[DeviceRecord], now: float
) -> list[RingProgress]:
    """Return all rings with their devices at `now`."""
    found = [
        RingProgress(group=ring.group, is_known=ring.group in groups, unlinked=[], worse={}) for ring in rollout.rings
    ]
    known: dict[tuple[str, ...], int | None] = {}
    for record in records:
        if record.revoked_at is not None:
            continue
        if record.labels not in known:
            known[record.labels] = rollout.ring_of(frozenset(record.labels), groups)
        number = known[record.labels]
        if number is not None:
            _count(found[number], rollout, number, record, now)
    return found


def _count(ring: RingProgress, rollout: Rollout, number: int, record: DeviceRecord, now: float) -> None:
    ring.devices += 1
    is_unlinked = record.state in ("silent", "not linked")
    ring.unlinked_now += is_unlinked
    if is_version(record.version, rollout.version):
        ring.upgraded += 1
    if number >= len(rollout.opened):
        return
    opened = rollout.opened[number].at
    if record.heard_at is None or record.heard_at <= opened:
        return
    ring.heard += 1
    why = _worse(rollout, record, opened)
    if why:
        ring.worse[record.name] = why
    elif is_unlinked:
        since = record.heard_at
        if record.state == "not linked" and record.linked_since is not None:
            since = max(opened, record.linked_since)
        if now - since > rollout.grace_s:
            ring.unlinked.append(record.name)


def _worse(rollout: Rollout, record: DeviceRecord, opened: float) -> str:
    """Return why a device speaks against the release, "" if it does not."""
    upgrade = record.upgrade
    if upgrade.outcome == WENT_BACK and upgrade.heard_at >= opened and is_version(upgrade.to, rollout.version):
        return f"went back: {upgrade.reason}" if upgrade.reason else "went back"
    if not is_version(record.version, rollout.version):
        return ""
    for alert in record.alerts:
        if alert.since >= opened and (alert.kind in HEALTH_ALERTS or alert.kind == BACKLOG_ALERT):
            return alert.text
    return ""


def is_version(found: str, wanted: str) -> bool:
    """Return whether a version is the wanted one, whatever Debian's release adds to it."""
    return found == wanted or found.startswith(f"{wanted}+")


def next_step(rollout: Rollout, progress: list[RingProgress], now: float) -> Rollout | None:
    """Return what follows from the rings, None if nothing does."""
    if rollout.state != RUNNING:
        return None
    counted = _counted(rollout, progress)
    if counted != rollout:
        return counted
    for number, opened in enumerate(rollout.opened):
        problem = _problem(rollout, opened, progress[number])
        if problem:
            return replace(rollout, state=HALTED, reason=problem)
    if not rollout.opened:
        return _opened(rollout, progress, now)
    last, number = rollout.opened[-1], len(rollout.opened) - 1
    if last.reached_at is None:
        if not _is_reached(rollout, progress[number]):
            return None
        return replace(rollout, opened=(*rollout.opened[:-1], replace(last, reached_at=now)), reason="")
    if now - last.reached_at < rollout.rings[number].wait_s:
        return None
    if number + 1 < len(rollout.rings):
        return _opened(rollout, progress, now)
    return replace(rollout, state=DONE, reason="")


def _opened(rollout: Rollout, progress: list[RingProgress], now: float) -> Rollout:
    """Return the rollout with the next ring open."""
    ring = progress[len(rollout.opened)]
    before = 100.0 * ring.unlinked_now / ring.devices if ring.devices else 0.0
    return replace(rollout, opened=(*rollout.opened, OpenedRing(at=now, unlinked_before=before)), reason="")


def _counted(rollout: Rollout, progress: list[RingProgress]) -> Rollout:
    """Return the rollout with the counts that an operator's resumption asks for."""
    opened = tuple(
        replace(each, accepted=_against(each, ring)) if each.accepted == NOT_COUNTED else each
        for each, ring in zip(rollout.opened, progress, strict=False)
    )
    return replace(rollout, opened=opened)


def _against(opened: OpenedRing, ring: RingProgress) -> int:
    """Return how many devices of a ring speak against the release."""
    expected = math.ceil(opened.unlinked_before * ring.heard / 100.0)
    return len(ring.worse) + max(0, len(ring.unlinked) - expected)


def _problem(rollout: Rollout, opened: OpenedRing, ring: RingProgress) -> str:
    """Return why a ring halts the rollout, "" if it does not."""
    if not ring.is_known:
        return f"ring {ring.group}: there is no such group any more"
    against = _against(opened, ring)
    if against - opened.accepted <= ring.heard * rollout.halt_percent / 100.0:
        return ""
    named = [f"{name}: {why}" for name, why in sorted(ring.worse.items())]
    named += [f"{name}: no link" for name in sorted(ring.unlinked)]
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    text = (
        f"ring {ring.group}: worse: {against} of {counted(ring.heard, 'device')} ({'; '.join(named[:NAMED_MAX])}{more})"
    )
    return text[:REASON_MAX]


def _is_reached(rollout: Rollout, ring: RingProgress) -> bool:
    if not ring.devices:
        return True
    return ring.heard > 0 and ring.upgraded > 0 and ring.upgraded >= ring.heard * rollout.enough_percent / 100.0
