"""Converts permissions of tokens to those of the configuration."""

from __future__ import annotations

from eyot_daemon.config.permissions import (
    RESPONSE_EXPIRES_S_DEFAULT,
    RESPONSE_MAX_DEFAULT,
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from eyot_wire.trust.jwt import ResponseRule, SubjectRules


def permissions_of(pub: SubjectRules, sub: SubjectRules, resp: ResponseRule | None) -> Permissions | None:
    """Return the permissions, None if unrestricted. With `resp` and no publish list, only replies are allowed."""
    publish = _direction(pub)
    responses = None
    if resp is not None:
        responses = ResponsePermission(
            max_messages=resp.max or RESPONSE_MAX_DEFAULT, expires_s=resp.ttl / 1e9 or RESPONSE_EXPIRES_S_DEFAULT
        )
        if publish.allow is None:
            publish = SubjectPermission(allow=(), deny=publish.deny)
    permissions = Permissions(publish=publish, subscribe=_direction(sub), allow_responses=responses)
    return None if permissions.unrestricted else permissions


def _direction(rules: SubjectRules) -> SubjectPermission:
    allow = tuple(subject.encode() for subject in rules.allow) or None
    return SubjectPermission(allow=allow, deny=tuple(subject.encode() for subject in rules.deny))
