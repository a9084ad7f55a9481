"""What a server says of the user who asks: the answer of `$SYS.REQ.USER.INFO`."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct, field

from eyot_wire.info import SubjectPermission

USER_INFO: Final = "$SYS.REQ.USER.INFO"


class UserPermissions(Struct, frozen=True):
    """What a user may; `responses`: how often and for how long (nanoseconds) it may answer what it hears, None: by `publish` alone."""

    publish: SubjectPermission = field(default_factory=SubjectPermission)
    subscribe: SubjectPermission = field(default_factory=SubjectPermission)
    responses: dict[str, int] | None = None


class UserInfo(Struct, frozen=True):
    """A user by its name or public key, and its account. `expires`: nanoseconds from now, 0: never."""

    user: str = ""
    account: str = ""
    expires: int = 0
    permissions: UserPermissions | None = None


class _Answer(Struct, frozen=True):
    data: UserInfo = field(default_factory=UserInfo)


def user_info(payload: bytes) -> UserInfo:
    """Decode an answer. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(payload, type=_Answer).data
