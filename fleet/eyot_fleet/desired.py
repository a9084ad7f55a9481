"""What every device should be: groups by labels, single devices, and one document for each device that follows from them.

All of it are values of the bucket `<name>_DESIRED`: `device.<name>`, `group.<name>` and `sources.<name>`. Its history is the
history of what was desired: each value says who wrote it, and why.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from eyot_fleet.errors import FleetError
from eyot_wire.desired import SETTINGS, DesiredDocument
from eyot_wire.trust.enrolment import is_device_name, is_label

if TYPE_CHECKING:
    from collections.abc import Iterable

LABELS_MAX: Final = 32
#: Greatest priority of a group; the least is its negative.
PRIORITY_MAX: Final = 1000
#: Bounds of a stream at the hub: JetStream has 64 bits for an age in nanoseconds, and for bytes.
AGE_MAX_S: Final = 9_000_000_000
BYTES_MAX: Final = 2**63 - 1
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STREAM: Final = re.compile(r"[^\s.*>/\\]{1,200}")
#: Sources of one stream. nats-server holds a consumer for each at its origin, and asks them all when the stream starts.
SHARD_SIZE: Final = 200
SHARDS_MAX: Final = 1000
_REASON_MAX: Final = 500


class DesiredError(FleetError):
    """What somebody desires cannot be had; the text says why."""


class Written(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who wrote a value, when (seconds since 1970), and why."""

    by: str = ""
    at: float = 0.0
    reason: str = ""


class DeviceSettings(Written, frozen=True, kw_only=True, omit_defaults=True):
    """`device.<name>`: one device."""

    #: besides those of its enrolment
    labels: tuple[str, ...] = ()
    #: of this device alone; its members count before those of groups
    settings: dict[str, Any] = {}
    #: the hub may remove the device's sources, though messages that it never copied may be lost
    released: bool = False
    #: the service removes all that it knows of the device, its sources first, and then this value
    forgotten: bool = False

    def check(self) -> None:
        """Raise DesiredError for what cannot be."""
        _check_labels(self.labels)
        _check_settings(self.settings)
        check_written(self)


class Group(Written, frozen=True, kw_only=True, omit_defaults=True):
    """`group.<name>`: all devices that have all of its labels. Of groups that say different, the higher priority counts."""

    labels: tuple[str, ...] = ()
    priority: int = 0
    settings: dict[str, Any] = {}

    def check(self) -> None:
        """Raise DesiredError for what cannot be."""
        _check_labels(self.labels)
        _check_settings(self.settings)
        check_written(self)
        if not -PRIORITY_MAX <= self.priority <= PRIORITY_MAX:
            raise DesiredError("a group's priority is -1000 to 1000")

    def has(self, labels: Iterable[str]) -> bool:
        """Return whether a device with these labels belongs to the group; a group without labels has all devices."""
        return set(self.labels).issubset(labels)


class SourceRule(Written, frozen=True, kw_only=True, omit_defaults=True):
    """`sources.<name>`: the hub's streams `<name>-0`, `<name>-1` and so on source one stream of each device that matches."""

    #: the devices' stream
    stream: str
    #: labels that a device must all have; (): all devices
    labels: tuple[str, ...] = ()
    #: sources of one stream at the hub
    shard_size: int = SHARD_SIZE
    replicas: int = 1
    max_age_s: float = 0.0
    max_bytes: int = -1
    filter_subject: str = ""

    def check(self) -> None:
        """Raise DesiredError for what cannot be."""
        _check_labels(self.labels)
        check_written(self)
        if not _STREAM.fullmatch(self.stream):
            raise DesiredError(f"{self.stream!r} cannot be the name of a stream")
        if not 1 <= self.shard_size <= 5000:
            raise DesiredError("a shard has 1 to 5000 sources")
        if self.replicas not in (1, 3, 5):
            raise DesiredError("replicas: expected 1, 3 or 5")
        if not 0 <= self.max_age_s <= AGE_MAX_S:
            raise DesiredError("max_age_s is 0 to 292 years")
        if not -1 <= self.max_bytes <= BYTES_MAX:
            raise DesiredError("max_bytes is -1, or up to 64 bits")


def check_name(kind: str, name: str) -> str:
    """Return the name of a device, group or rule. Raises DesiredError."""
    if not (is_device_name(name) if kind == "device" else _NAME.fullmatch(name)):
        raise DesiredError(f"{name[:100]!r} cannot be the name of a {kind}: letters, digits, - and _ only")
    return name


def normal_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels sorted, each once, in lower case as NATS's tags are. Raises DesiredError."""
    found = tuple(sorted({label.strip().lower() for label in labels}))
    _check_labels(found)
    return found


def document_of(
    name: str, labels: Iterable[str], groups: dict[str, Group], own: DeviceSettings | None
) -> DesiredDocument:
    """Return what a device should apply: its groups' settings, then its own. The revision is the content's digest."""
    labels = frozenset(labels)
    settings: dict[str, Any] = {}
    for _, group in sorted(groups.items(), key=lambda item: (item[1].priority, item[0])):
        if group.has(labels):
            settings = _merged(settings, group.settings)
    if own is not None:
        settings = _merged(settings, own.settings)
    if not settings:
        return DesiredDocument(device=name)
    digest = hashlib.sha256(msgspec.json.encode(settings, order="sorted")).hexdigest()[:16]
    return DesiredDocument(device=name, revision=digest, settings=settings)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return maps merged member by member; anything else of `second` replaces what `first` has."""
    found = dict(first)
    for key, value in second.items():
        before = found.get(key)
        found[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def _check_settings(settings: dict[str, Any]) -> None:
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise DesiredError(f"settings: {', '.join(unknown)[:200]}: a device takes {', '.join(SETTINGS)} only")
    for key, value in settings.items():
        if not isinstance(value, dict):
            raise DesiredError(f"settings: {key}: expected a map, as in the block `eyot {{ {key} {{ }} }}`")
    if len(msgspec.json.encode(settings)) > 32 * 1024:
        raise DesiredError("settings: at most 32 KiB")


def _check_labels(labels: tuple[str, ...]) -> None:
    if len(labels) > LABELS_MAX:
        raise DesiredError(f"at most {LABELS_MAX} labels")
    for label in labels:
        if not is_label(label):
            raise DesiredError(f"{label[:100]!r} cannot be a label: no spaces, commas, quotes, < or >")


def check_written(value: Written) -> None:
    """Raise DesiredError for a reason that is too long."""
    if len(value.reason) > _REASON_MAX:
        raise DesiredError(f"a reason has at most {_REASON_MAX} characters")
