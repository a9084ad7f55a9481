"""Claims of new operators, accounts and users, as nsc makes them, and edits that several commands share."""

from __future__ import annotations

import time
from typing import Any, Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.grants import UNLIMITED
from eyot_cli.trust.session import Report, Session, scoped_keys
from eyot_cli.trust.store import body
from eyot_cli.trust.values import parse_time, show_time, split_list
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt_sign import ClaimMembers

SYSTEM_ACCOUNT: Final = "SYS"
SYSTEM_USER: Final = "sys"
GENERATE: Final = "generate"
_MONITORING_PAGE: Final = "https://docs.nats.io/nats-server/configuration/sys_accounts"
#: What nsc exports from a system account: each account sees the monitoring of itself.
SYSTEM_EXPORTS: Final[list[dict[str, Any]]] = [
    {
        "name": "account-monitoring-services",
        "subject": "$SYS.REQ.ACCOUNT.*.*",
        "type": "service",
        "response_type": "Stream",
        "account_token_position": 4,
        "description": "Request account specific monitoring services for: SUBSZ, CONNZ, LEAFZ, JSZ and INFO",
        "info_url": _MONITORING_PAGE,
    },
    {
        "name": "account-monitoring-streams",
        "subject": "$SYS.ACCOUNT.*.>",
        "type": "stream",
        "account_token_position": 3,
        "description": "Account specific monitoring stream",
        "info_url": _MONITORING_PAGE,
    },
]


def new_operator(public: str, name: str) -> ClaimMembers:
    return {"sub": public, "name": name, "nats": {"type": "operator"}}


def new_account(public: str, name: str) -> ClaimMembers:
    """Return an account without limits, and without JetStream."""
    limits = UNLIMITED | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    nats = {"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "authorization": {}, "type": "account"}
    return {"sub": public, "name": name, "nats": nats}


def new_user(public: str, name: str, *, scoped: bool) -> ClaimMembers:
    """Return a user; a `scoped` one has only what its signing key's template grants."""
    return {
        "sub": public,
        "name": name,
        "nats": {"pub": {}, "sub": {}} | ({} if scoped else UNLIMITED) | {"type": "user"},
    }


def edit_times(members: ClaimMembers, start: str | None, expiry: str | None, report: Report) -> None:
    """Set begin and expiry. Raises Failure for a token that would never be valid."""
    now_s = time.time()
    for text, name, label in ((start, "nbf", "valid from"), (expiry, "exp", "expires")):
        if text is not None:
            members[name] = parse_time(text, now_s)
            report.ok(f"{label}: {show_time(members[name])}")
    if expiry is not None and members["exp"] and members["exp"] <= max(now_s, members.get("nbf") or 0):
        raise Failure(f"the token would have expired already ({show_time(members['exp'])}): name a later --expiry")


def edit_tags(members: ClaimMembers, added: tuple[str, ...], removed: tuple[str, ...], report: Report) -> None:
    """Add and remove tags; tags are in lower case, as in the library."""
    tags: list[str] = [str(tag) for tag in body(members).get("tags") or ()]
    for tag in (each.lower() for each in split_list(added)):
        if tag not in tags:
            tags.append(tag)
            report.ok(f"added tag {printable(tag)}")
    for tag in (each.lower() for each in split_list(removed)):
        if tag not in tags:
            raise Failure(f"there is no tag {printable(tag)}: the tags are {', '.join(map(printable, tags)) or 'none'}")
        tags.remove(tag)
        report.ok(f"removed tag {printable(tag)}")
    if tags:
        body(members)["tags"] = tags
    else:
        body(members).pop("tags", None)


def add_signing_keys(session: Session, members: ClaimMembers, role: str, keys: tuple[str, ...]) -> list[str]:
    """Add signing keys, `generate` for a new one; return their public keys."""
    added = []
    for text in split_list(keys):
        public = session.keystore.generate(role).public if text == GENERATE else session.public_key(text, role)
        present = list(body(members).get("signing_keys") or ())
        if public not in [key.get("key") if isinstance(key, dict) else key for key in present]:
            body(members)["signing_keys"] = sort_keys([*present, public])
        session.report.ok(f"added signing key {public}")
        added.append(public)
    if added:
        session.report.result["signing_keys"] = added
    return added


def remove_signing_keys(members: ClaimMembers, keys: tuple[str, ...], report: Report) -> None:
    """Remove signing keys by public key, or by the role of their scope. Raises Failure."""
    roles = {str(key.get("role")): str(key.get("key")) for key in scoped_keys(members)}
    for text in split_list(keys):
        public = roles.get(text, text)
        present = list(body(members).get("signing_keys") or ())
        kept = [key for key in present if (key.get("key") if isinstance(key, dict) else key) != public]
        if len(kept) == len(present):
            raise Failure(f"{printable(text)} is not among the signing keys: see `eyot trust list keys`")
        body(members)["signing_keys"] = kept
        report.ok(f"removed signing key {public}")


def sort_keys(keys: list[Any]) -> list[Any]:
    """Return signing keys in the library's order: by public key, with or without a scope."""
    return sorted(keys, key=lambda key: str(key.get("key")) if isinstance(key, dict) else str(key))


def make_system_account(session: Session, operator: ClaimMembers) -> None:
    """Make the system account with a signing key and a user, and name it in the operator's token (which the caller saves)."""
    own, signing = session.keystore.generate("A"), session.keystore.generate("A")
    account = new_account(own.public, SYSTEM_ACCOUNT)
    account["iss"] = next(iter(body(operator).get("signing_keys") or ()), "")  # preferred to the operator's own key
    body(account)["signing_keys"] = [signing.public]
    body(account)["exports"] = SYSTEM_EXPORTS
    session.save_account(account)
    session.report.ok(f"created system_account: name:{SYSTEM_ACCOUNT} id:{own.public}")
    pair = session.keystore.generate("U")
    session.save_user(account, new_user(pair.public, SYSTEM_USER, scoped=False), signing)
    session.report.ok(f"created system account user: name:{SYSTEM_USER} id:{pair.public}")
    body(operator)["system_account"] = own.public
