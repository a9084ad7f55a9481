"""A device's record of enrolment, which `eyot fleet enrol` keeps as `devices/<name>.json` and `eyot-fleet` reads."""

from __future__ import annotations

from msgspec import Struct


class EnrolledDevice(Struct, kw_only=True, omit_defaults=True):
    """A device that was enrolled. Times: seconds since the epoch."""

    name: str
    key: str
    #: id of the token that enrolled it
    token: str
    role: str
    device_lifetime_s: int
    enrolled_at: int
    #: when its present token was made, and until when that is valid (0: always)
    renewed_at: int
    expires: int
    #: tags of the device's user, which are its labels
    tags: tuple[str, ...] = ()
    #: what the device says of itself
    facts: dict[str, str] = {}
