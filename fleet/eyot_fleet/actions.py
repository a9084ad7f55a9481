"""What an operator can change: labels, groups, settings, which streams the hub sources. Each action has its line in the audit.

The page and the command line use the same. A change names the revision that it replaces, so that of two who edit the same
one is told.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from eyot_fleet.desired import DesiredError, DeviceSettings, Group, SourceRule, check_name, normal_labels
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.enrolment import EVERY_S as ENROLMENT_S
from eyot_fleet.errors import FleetError
from eyot_fleet.rollout import DONE, HALTED, NOT_COUNTED, ROLLED_BACK, RUNNING, Rollout
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_fleet.audit import Audit
    from eyot_fleet.state import State

T = TypeVar("T", bound=DeviceSettings | Group | SourceRule | Rollout)
_KINDS: Final[dict[type[Struct], str]] = {
    DeviceSettings: "device",
    Group: "group",
    SourceRule: "sources",
    Rollout: "rollout",
}


class Revision(Struct, frozen=True, kw_only=True):
    """One value of the desired configuration, as it was. `value` is None where it was removed."""

    revision: int
    at: float
    value: DeviceSettings | Group | SourceRule | Rollout | None


class Actions:
    """Changes at one connection. All raise FleetError: DesiredError for bad values, Conflict where somebody was first."""

    def __init__(self, state: State, audit: Audit) -> None:
        self._state = state
        self._audit = audit

    async def read(self, form: type[T], name: str) -> tuple[T | None, int]:
        """Return a value and its revision; None and the revision to replace where there is none."""
        found = await self._state.desired.get(self._key(form, name))
        if found is None:
            return None, 0
        if found.value is None:
            return None, found.revision
        return _decoded(found.value, form, name), found.revision

    async def write(self, name: str, value: T, by: str, revision: int | None = None) -> int:
        """Write a device's settings, a group or a rule; return its revision. `revision`: the one that it replaces, if it matters."""
        form = type(value)
        if not isinstance(value, Rollout):
            value = replace(value, labels=normal_labels(value.labels))
        value = replace(value, by=by, at=time.time())
        value.check()
        key = self._key(form, name)
        encoded = msgspec.json.encode(value)
        if revision is None:
            _, revision = await self.read(form, name)
        detail = {"value": msgspec.json.encode(value).decode(), "replaces": str(revision)}
        await self._audit.note(_KINDS[form], by, name, detail=detail)
        try:
            return await self._state.desired.put(key, encoded, revision)
        except FleetError as error:
            await self._audit.note(_KINDS[form], by, name, error=str(error))
            raise

    async def remove(self, form: type[T], name: str, by: str) -> bool:
        """Remove a group, a rule or a device's settings; return whether it was there. Streams and what they hold stay."""
        value, revision = await self.read(form, name)
        if value is None:
            return False
        await self._audit.note(f"{_KINDS[form]} removed", by, name)
        try:
            await self._state.desired.remove(self._key(form, name), revision)
        except FleetError as error:
            await self._audit.note(f"{_KINDS[form]} removed", by, name, error=str(error))
            raise
        return True

    async def set_labels(self, name: str, labels: tuple[str, ...], by: str, reason: str = "") -> int:
        """Set the operator's own labels of a device; those of its enrolment stay."""
        value, revision = await self.read(DeviceSettings, name)
        made = replace(value or DeviceSettings(), labels=labels, reason=reason)
        return await self.write(name, made, by, revision)

    async def release(self, name: str, by: str, reason: str) -> int:
        """Let the hub remove a device's sources, though what it never copied of them may be lost. `reason`: why that may be."""
        if not reason.strip():
            raise DesiredError("say why nothing of the device is needed any more: what the hub has not copied is lost")
        value, revision = await self.read(DeviceSettings, name)
        made = replace(value or DeviceSettings(), released=True, reason=reason)
        return await self.write(name, made, by, revision)

    async def forget(self, name: str, by: str, reason: str) -> int:
        """Have the service forget a device that is gone for good: its sources, its state, its alerts, its settings.

        Raises DesiredError for a device that is enrolled or linked, and FleetError for one that nobody knows.
        """
        if not reason.strip():
            raise DesiredError("say why the device is gone for good: what the hub has not copied of it is lost")
        check_name("device", name)
        found = await self._state.devices.get(name)
        if found is None or found.value is None:
            raise FleetError(f"no device {name} is known")
        try:
            record = decode_json(found.value, DeviceRecord)
        except msgspec.DecodeError:
            record = DeviceRecord(name=name)  # one that cannot be read can only be forgotten
        if record.enrolled_at is not None and record.revoked_at is None:
            raise DesiredError(
                f"{name} is enrolled: revoke it first (eyot fleet revoke {name}); "
                f"the service sees a revocation within {ENROLMENT_S:.0f} s"
            )
        # A link that nobody watches stays up in the record: what is silent does not come back by itself.
        if record.linked and time.time() - (record.heard_at or 0.0) <= record.silent_after_s():
            raise DesiredError(f"{name} is linked: it would come back with its next status")
        value, revision = await self.read(DeviceSettings, name)
        made = replace(value or DeviceSettings(), released=True, forgotten=True, reason=reason)
        return await self.write(name, made, by, revision)

    async def start_rollout(self, name: str, rollout: Rollout, by: str) -> int:
        """Start a rollout; the service opens its first ring. Raises DesiredError for a name that was used, or an unknown group."""
        found, revision = await self.read(Rollout, name)
        if found is not None and found.state != DONE:
            raise DesiredError(f"the rollout {name} is {found.state}: choose another name, or remove it")
        for ring in rollout.rings:
            if (await self.read(Group, ring.group))[0] is None:
                raise DesiredError(
                    f"there is no group {ring.group}: eyot-fleet group set {ring.group} --label LABEL makes one"
                )
        made = replace(rollout, state=RUNNING, opened=(), back_to="", started_at=time.time())
        return await self.write(name, made, by, revision)

    async def steer_rollout(self, name: str, by: str, to: str, reason: str = "", back_to: str = "") -> int:
        """Halt, resume or roll back a rollout: `to` is its state then. Raises DesiredError where that cannot be."""
        found, revision = await self.read(Rollout, name)
        if found is None:
            raise DesiredError(f"there is no rollout {name}")
        if to == HALTED and found.state == RUNNING:
            return await self.write(name, replace(found, state=HALTED, reason=reason), by, revision)
        if to == RUNNING and found.state == HALTED:
            opened = tuple(replace(each, accepted=NOT_COUNTED) for each in found.opened)
            return await self.write(name, replace(found, state=RUNNING, opened=opened, reason=reason), by, revision)
        if to == ROLLED_BACK and found.state != ROLLED_BACK:
            made = replace(found, state=ROLLED_BACK, back_to=back_to, reason=reason)
            return await self.write(name, made, by, revision)
        raise DesiredError(f"the rollout {name} is {found.state}: it cannot become {to}")

    async def history(self, form: type[T], name: str) -> list[Revision]:
        """Return what was desired before, the latest first, as far as the bucket has it."""
        found = []
        for entry in await self._state.desired.history(self._key(form, name)):
            value = None if entry.value is None else _decoded(entry.value, form, name)
            found.append(Revision(revision=entry.revision, at=entry.at, value=value))
        return found[::-1]

    @staticmethod
    def _key(form: type[T], name: str) -> str:
        kind = _KINDS[form]
        return f"{kind}.{check_name(kind, name)}"


def _decoded(value: bytes, form: type[T], name: str) -> T:
    try:
        return decode_json(value, form)
    except msgspec.DecodeError as error:
        raise FleetError(f"{_KINDS[form]} {name} at the hub cannot be read: {error}") from None
