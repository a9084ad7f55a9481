"""Validation of user tokens: the rules of the JWT library that nats-server and nsc use (nats-io/jwt v2, `UserClaims.Validate`).

The server refuses a user whose token has a mistake, even one that would limit nothing. Expiry times are not checked here.
"""

from __future__ import annotations

from datetime import datetime

from eyot_wire.time_zone import time_zone
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import Claims
from eyot_wire.trust.jwt_account_check import permission_mistakes
from eyot_wire.trust.jwt_rules import network_of


def user_mistakes(user: Claims) -> list[str]:
    """Return what makes a user's token invalid, in the library's words and order; empty if it is valid."""
    grant = user.nats
    found = permission_mistakes(grant.pub, grant.sub)
    for source in grant.sources:
        try:
            network_of(source)
        except ValueError:
            found.append(f'invalid cidr "{source}" in user src limits')
    for hours in grant.times or ():
        for name, text in (("start", hours.start), ("end", hours.end)):
            try:
                datetime.strptime(text, "%H:%M:%S")
            except ValueError:
                found.append(f'{name} in time range is invalid "{text}"')
    if grant.times_location:
        try:
            time_zone(grant.times_location)
        except (ValueError, KeyError, OSError):
            found.append(f'could not parse iana time zone by name: unknown time zone "{grant.times_location}"')
    if user.signed_for and not nkey.is_public(user.signed_for, "A"):
        found.append("account_id is not an account public key")
    return found
