"""What the page needs of the service. The service implements it; tests have one in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from eyot_fleet.history import HistoryPoint

if TYPE_CHECKING:
    from eyot_fleet.connection import Connection
    from eyot_fleet.desired import Group
    from eyot_fleet.device_index import DeviceIndex
    from eyot_fleet.rollout import Rollout


class Freshness(Struct, frozen=True, kw_only=True):
    """How fresh the index is."""

    #: the service is connected to the hub
    connected: bool
    #: since when it is or is not, seconds since 1970
    since: float
    #: why it is not connected
    error: str = ""


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One line of the audit stream."""

    #: seconds since 1970
    at: float
    #: who acted, and how they had logged in
    actor: str
    method: str = ""
    role: str = ""
    #: where the browser was
    address: str = ""
    action: str
    device: str = ""
    detail: str = ""
    #: `begun`, `done`, `refused` or `failed`
    outcome: str
    #: the same for the lines of one action
    id: str = ""


class Day(Struct, frozen=True, kw_only=True):
    """The last 24 hours of a device."""

    #: length of a point, seconds
    step_s: float
    points: list[HistoryPoint]


class Desired(Struct, frozen=True, kw_only=True):
    """What is desired of a device."""

    #: its own labels, besides those of its enrolment
    labels: tuple[str, ...]
    #: its own settings; those of its groups come first
    settings: dict[str, Any]
    #: what the device applies: the settings of its groups and its own
    applies: dict[str, Any]
    #: of the stored value, for a change that expects it; 0: there is none
    revision: int


class Backend(Protocol):
    """The service, as the page sees it. Every coroutine raises `FleetError` with a text for people."""

    @property
    def index(self) -> DeviceIndex:
        """The devices."""
        ...

    def now(self) -> float:
        """Return the time, seconds since 1970."""
        ...

    def freshness(self) -> Freshness:
        """Return whether the index follows the hub."""
        ...

    def connection(self) -> Connection:
        """Return the connection to the hub. Raises ConnectionLost while there is none."""
        ...

    def day(self, name: str) -> Day:
        """Return a device's day."""
        ...

    async def audit(self, entry: AuditEntry) -> None:
        """Store a line of the audit stream, at the hub when this returns."""
        ...

    async def audited(self, count: int, device: str = "") -> list[AuditEntry]:
        """Return the last lines of the audit stream, the newest first."""
        ...

    async def desired(self, name: str) -> Desired:
        """Return what is desired of a device."""
        ...

    def groups(self) -> dict[str, Group]:
        """Return the groups."""
        ...

    def rollouts(self) -> dict[str, Rollout]:
        """Return the rollouts."""
        ...

    async def group(self, name: str) -> tuple[Group | None, int]:
        """Return a group as it is stored, and its revision; 0 where there never was one."""
        ...

    async def set_group(self, name: str, group: Group | None, revision: int, actor: str) -> None:
        """Store or remove (None) a group, if the stored value has that revision. Raises Conflict and DesiredError."""
        ...

    async def start_rollout(self, name: str, rollout: Rollout, actor: str) -> None:
        """Start a rollout. Raises DesiredError."""
        ...

    async def steer_rollout(self, name: str, actor: str, to: str, reason: str, back_to: str) -> None:
        """Halt, resume or roll back a rollout: `to` is its state then. Raises Conflict and DesiredError."""
        ...

    async def forget(self, name: str, actor: str, reason: str) -> None:
        """Have the service forget a device that is gone for good. Raises DesiredError."""
        ...

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
        ...
