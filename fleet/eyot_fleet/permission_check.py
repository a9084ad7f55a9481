"""What the service's logins must be allowed, and what a hub says that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from eyot_fleet.errors import NoAnswer, Refused
from eyot_fleet.fleet import CONFIG, STATUS
from eyot_fleet.link_events import EVENTS, LEAFZ
from eyot_wire.device_requests import PREFIX as DEVICE_PREFIX
from eyot_wire.subject import is_subset, overlaps
from eyot_wire.user_info import USER_INFO, UserPermissions, user_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eyot_fleet.config import FleetConfig
    from eyot_fleet.connection import Connection
    from eyot_wire.info import SubjectPermission

_INBOX: Final = "_INBOX.>"
_BUCKETS: Final = ("DEVICES", "HISTORY", "DESIRED", "REPORTED", "STATE")
#: requests of the JetStream API that the service makes, below `$JS.API.`
_REQUESTS: Final = (
    "STREAM.CREATE.*",
    "STREAM.UPDATE.*",
    "STREAM.INFO.*",
    "STREAM.NAMES",
    "CONSUMER.CREATE.>",
    "CONSUMER.MSG.NEXT.>",
    "DIRECT.GET.>",
)


class Needs(Struct, frozen=True):
    """Subjects that a login must be allowed to publish and to subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def hub_needs(config: FleetConfig) -> Needs:
    """Return what the login of `[hub]` needs."""
    prefix, name = config.devices.prefix, config.state.name
    publish = [f"$JS.API.{request}" for request in _REQUESTS]
    publish += [f"$KV.{name}_{bucket}.>" for bucket in _BUCKETS]
    publish += [f"{name}.AUDIT.*", _INBOX]  # an inbox: where a device waits for its configuration
    if config.web is not None:
        publish.append(f"{DEVICE_PREFIX}.>")
    return Needs(tuple(publish), (f"{prefix}.*.{STATUS}", f"{prefix}.*.{CONFIG}", _INBOX))


SYSTEM_NEEDS: Final = Needs((LEAFZ,), (*EVENTS, _INBOX))


async def lacking(connection: Connection, needs: Needs) -> list[str] | None:
    """Return what the login of a connection lacks, as in "publish to $JS.API.STREAM.NAMES"; None if the server does not tell.

    Raises ConnectionLost.
    """
    try:
        answer = await connection.request(USER_INFO, timeout_s=3.0)
        permissions = user_info(answer.payload).permissions or UserPermissions()
    except (NoAnswer, Refused, msgspec.MsgspecError):
        return None
    publish = _not_allowed(needs.publish, permissions.publish)
    if permissions.responses is not None and _INBOX in publish:
        publish.remove(_INBOX)
    subscribe = _not_allowed(needs.subscribe, permissions.subscribe)
    return [f"publish to {each}" for each in publish] + [f"subscribe to {each}" for each in subscribe]


def _not_allowed(needed: Iterable[str], permission: SubjectPermission) -> list[str]:
    return [each for each in needed if not _covers(permission, each)]


def _covers(permission: SubjectPermission, needed: str) -> bool:
    """Return whether all of a pattern is allowed, and nothing of it denied. A permission for a queue group alone does not count."""
    subject = needed.encode()
    if permission.allow is not None and not any(is_subset(subject, each) for each in _subjects(permission.allow)):
        return False
    return not any(overlaps(subject, each) for each in _subjects(permission.deny))


def _subjects(texts: Sequence[str] | None) -> list[bytes]:
    return [text.encode() for text in texts or () if " " not in text]
