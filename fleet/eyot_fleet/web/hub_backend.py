"""The service as the page sees it: its fleet in memory, and the hub while it is connected."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from eyot_fleet.desired import DesiredError, DeviceSettings, Group
from eyot_fleet.errors import Conflict, ConnectionLost
from eyot_fleet.history import STEP_S
from eyot_fleet.web.backend import AuditEntry, Day, Desired, Freshness
from eyot_wire.go.time import rfc3339_to_ns

if TYPE_CHECKING:
    from eyot_fleet.audit import AuditLine
    from eyot_fleet.connection import Connection
    from eyot_fleet.device_index import DeviceIndex
    from eyot_fleet.hub_session import HubSession
    from eyot_fleet.rollout import Rollout
    from eyot_fleet.service import Service

#: Lines of the audit stream that are looked through for those of one device.
LOOKED_THROUGH: Final = 1000
#: Members of an entry that are not members of a line.
_DETAILS: Final = ("role", "method", "address", "outcome", "id")


class HubBackend:
    """Implements `backend.Backend` on a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def index(self) -> DeviceIndex:
        """The devices."""
        return self._service.fleet.index

    def now(self) -> float:
        """Return the time, seconds since 1970."""
        return time.time()

    def freshness(self) -> Freshness:
        """Return whether the index follows the hub: the service is connected, and has loaded what the hub knows."""
        service, session = self._service, self._service.session
        if session is None:
            return Freshness(connected=False, since=service.since, error=service.error)
        if not session.loaded.is_set():
            return Freshness(connected=False, since=service.since, error="the state at the hub is being loaded")
        return Freshness(connected=True, since=service.since)

    def connection(self) -> Connection:
        """Return the connection to the hub. Raises ConnectionLost while there is none."""
        return self._session().connection

    def day(self, name: str) -> Day:
        """Return a device's day."""
        return Day(step_s=STEP_S, points=self._service.fleet.history(name, self.now()))

    async def audit(self, entry: AuditEntry) -> None:
        """Store a line of the audit stream, at the hub when this returns."""
        failed = entry.outcome in ("refused", "failed")
        detail = {each: text for each in _DETAILS if (text := getattr(entry, each))}
        if entry.detail:
            detail["detail"] = entry.detail
        error = (entry.detail or entry.outcome) if failed else ""
        await self._session().audit.note(entry.action, entry.actor, entry.device, error=error, detail=detail)

    async def audited(self, count: int, device: str = "") -> list[AuditEntry]:
        """Return the last lines of the audit stream, the newest first; those of one device among the last thousand."""
        lines = await self._session().audit.latest(LOOKED_THROUGH if device else count)
        return [_entry(line) for line in lines if not device or line.target == device][:count]

    async def desired(self, name: str) -> Desired:
        """Return what is desired of a device."""
        own, revision = await self._session().actions.read(DeviceSettings, name)
        own = own or DeviceSettings()
        applies = self._service.fleet.document(name).settings
        return Desired(labels=own.labels, settings=own.settings, applies=applies, revision=revision)

    def groups(self) -> dict[str, Group]:
        """Return the groups."""
        return self._service.fleet.groups

    def rollouts(self) -> dict[str, Rollout]:
        """Return the rollouts."""
        return self._service.fleet.rollouts

    async def group(self, name: str) -> tuple[Group | None, int]:
        """Return a group as it is stored, and its revision; 0 where there never was one."""
        return await self._session().actions.read(Group, name)

    async def set_group(self, name: str, group: Group | None, revision: int, actor: str) -> None:
        """Store or remove (None) a group, if the stored value has that revision. Raises Conflict and DesiredError."""
        actions = self._session().actions
        if group is not None:
            await actions.write(name, group, actor, revision)
            return
        _, present = await actions.read(Group, name)
        if present != revision:
            raise Conflict("somebody else has changed it meanwhile")
        if not await actions.remove(Group, name, actor):
            raise DesiredError(f"there is no group {name}")

    async def start_rollout(self, name: str, rollout: Rollout, actor: str) -> None:
        """Start a rollout. Raises DesiredError."""
        await self._session().actions.start_rollout(name, rollout, actor)

    async def steer_rollout(self, name: str, actor: str, to: str, reason: str, back_to: str) -> None:
        """Halt, resume or roll back a rollout: `to` is its state then. Raises Conflict and DesiredError."""
        await self._session().actions.steer_rollout(name, actor, to, reason, back_to)

    async def forget(self, name: str, actor: str, reason: str) -> None:
        """Have the service forget a device that is gone for good. Raises DesiredError."""
        await self._session().actions.forget(name, actor, reason)

    async def desire(
        self,
        name: str,
        revision: int,
        actor: str,
        *,
        labels: tuple[str, ...] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Store a device's own labels or settings, if the stored value has that revision. Raises Conflict and DesiredError."""
        actions = self._session().actions
        own, present = await actions.read(DeviceSettings, name)
        if present != revision:
            raise Conflict("somebody else has changed it meanwhile")
        changed = replace(own or DeviceSettings(), reason="")
        if labels is not None:
            changed = replace(changed, labels=labels)
        if settings is not None:
            changed = replace(changed, settings=settings)
        await actions.write(name, changed, actor, revision)

    def _session(self) -> HubSession:
        session = self._service.session
        if session is None:
            raise ConnectionLost(f"the hub cannot be reached: {self._service.error}")
        return session


def _entry(line: AuditLine) -> AuditEntry:
    """Return a line as the page shows it. Lines of the command line and of the service itself have no browser."""
    detail = dict(line.detail)
    known = {each: detail.pop(each, "") for each in _DETAILS}
    outcome = known.pop("outcome") or ("failed" if line.error else "done")
    text = detail.pop("detail", "") or line.error
    rest = msgspec.json.encode(detail).decode() if detail else ""
    return AuditEntry(
        at=_seconds(line.at),
        actor=line.by,
        action=line.event,
        device=line.target,
        detail=" ".join(each for each in (text, rest) if each),
        outcome=outcome,
        **known,
    )


def _seconds(at: str) -> float:
    """Return seconds since 1970 of an RFC 3339 time, 0 for anything else."""
    try:
        return rfc3339_to_ns(at) / 1e9
    except ValueError:
        return 0.0
