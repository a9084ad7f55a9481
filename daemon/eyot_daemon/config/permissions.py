"""Configured publish and subscribe permissions of a user.

`permissions { publish: ..., subscribe: ..., allow_responses: ... }` of users, `default_permissions` of accounts and of
`authorization` all become a `Permissions`, which the broker's access check and the leaf links use. An entry of a
subscribe list is `subject` or `subject queue`, separated by one space; the queue part may contain wildcards.
"""

from __future__ import annotations

from msgspec import Struct

RESPONSE_MAX_DEFAULT = 1
RESPONSE_EXPIRES_S_DEFAULT = 120.0


class SubjectPermission(Struct, frozen=True, kw_only=True):
    """Allowed and denied subjects of one direction; deny beats allow.

    `allow` None means everything is allowed, an empty tuple that nothing is.
    """

    allow: tuple[bytes, ...] | None = None
    deny: tuple[bytes, ...] = ()


class ResponsePermission(Struct, frozen=True, kw_only=True):
    """`allow_responses`: how often and for how long the reply subject of a received message may be published to.

    `max_messages` and `expires_s` negative mean without limit.
    """

    max_messages: int = RESPONSE_MAX_DEFAULT
    expires_s: float = RESPONSE_EXPIRES_S_DEFAULT


class Permissions(Struct, frozen=True, kw_only=True):
    """Permissions of one user or leaf link; all defaults mean that nothing is restricted."""

    publish: SubjectPermission = SubjectPermission()
    subscribe: SubjectPermission = SubjectPermission()
    allow_responses: ResponsePermission | None = None

    @property
    def unrestricted(self) -> bool:
        """True if nothing is restricted, so that the access check can be left out."""
        return self == UNRESTRICTED


UNRESTRICTED = Permissions()
