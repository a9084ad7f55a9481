"""Permissions and limits of users, and of templates of scoped signing keys: nsc's flags, applied to a token's members."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.session import Report
from eyot_cli.trust.values import parse_duration, parse_number, split_list
from eyot_wire.quoting import printable

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
#: The members that a scoped user must not have.
GRANT_MEMBERS: Final = (
    *("pub", "sub", "resp", "subs", "data", "payload", "src", "times", "times_location", "bearer_token"),
    *("proxy_required", "allowed_connection_types"),
)
UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}
CONNECTION_TYPES: Final = ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
_LISTS: Final = {
    "allow_pub": ("pub", "allow"),
    "allow_sub": ("sub", "allow"),
    "deny_pub": ("pub", "deny"),
    "deny_sub": ("sub", "deny"),
}
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]")


def permission_options(function: Decorated) -> Decorated:
    """Add nsc's flags for permissions."""
    texts = {
        "--allow-pub": "add a subject that may be published to",
        "--allow-sub": "add a subject that may be subscribed to",
        "--allow-pubsub": "add a subject for both",
        "--deny-pub": "add a subject that may not be published to",
        "--deny-sub": "add a subject that may not be subscribed to",
        "--deny-pubsub": "add a denied subject for both",
        "--rm": "remove a subject from all of these lists",
    }
    for name, text in reversed(texts.items()):
        function = click.option(name, multiple=True, metavar="SUBJECT", help=f"{text}; several: commas or again")(
            function
        )
    function = click.option("--rm-response-perms", is_flag=True, help="remove the permission of responses")(function)
    function = click.option("--response-ttl", metavar="TIME", help="how long a response is allowed")(function)
    text = "how many responses are allowed, 1 without a number"
    return click.option(
        *("--allow-pub-response", "--max-responses"),
        "max_responses",
        is_flag=False,
        flag_value="1",
        metavar="[N]",
        help=text,
    )(function)


def limit_options(function: Decorated) -> Decorated:
    """Add nsc's flags for a user's limits."""
    for name, metavar, text in (
        ("--source-network", "CIDR", "add a network that the user may connect from"),
        ("--rm-source-network", "CIDR", "remove such a network"),
        ("--conn-type", "TYPE", f"add a connection type: {', '.join(CONNECTION_TYPES)}"),
        ("--rm-conn-type", "TYPE", "remove a connection type"),
        ("--time", "START-END", "add a time of day, as in 08:00:00-17:30:00"),
        ("--rm-time", "START", "remove a time of day by its start"),
    ):
        function = click.option(name, multiple=True, metavar=metavar, help=text)(function)
    for name, text in (("--subs", "subscriptions"), ("--data", "bytes"), ("--payload", "bytes of a message")):
        function = click.option(name, metavar="N", help=f"most {text}, -1: unlimited")(function)
    function = click.option("--locale", metavar="ZONE", help="time zone of --time, as in Europe/Berlin")(function)
    return click.option("--bearer/--no-bearer", default=None, help="log in without a signed nonce")(function)


def edit_permissions(grant: dict[str, Any], flags: dict[str, Any], report: Report) -> None:
    """Apply the flags of `permission_options`. Raises Failure."""
    asked = {name: split_list(flags[name]) for name in _LISTS}
    for kind in ("allow", "deny"):
        for both in split_list(flags[f"{kind}_pubsub"]):
            asked[f"{kind}_pub"].append(both)
            asked[f"{kind}_sub"].append(both)
    removed = split_list(flags["rm"])
    for name, (side, list_name) in _LISTS.items():
        rules = grant.setdefault(side, {})
        kept = set(rules.get(list_name) or ())
        for subject in asked[name]:
            _check_subject(subject, queue=side == "sub")
            report.ok(f"added {name.replace('_', ' ')} {printable(subject)}")
        rules[list_name] = sorted((kept | set(asked[name])) - set(removed))
        for subject in kept.intersection(removed):
            report.ok(f"removed {name.replace('_', ' ')} {printable(subject)}")
        if not rules[list_name]:
            del rules[list_name]
    _edit_responses(grant, flags, report)


def _edit_responses(grant: dict[str, Any], flags: dict[str, Any], report: Report) -> None:
    if flags["rm_response_perms"]:
        grant.pop("resp", None)
        report.ok("removed response permissions")
        return
    if flags["max_responses"] is not None:
        count = parse_number(flags["max_responses"])
        grant["resp"] = {"ttl": 0} | (grant.get("resp") or {}) | {"max": count}
        report.ok(f"set max responses to {count}")
    if flags["response_ttl"] is not None:
        ttl = parse_duration(flags["response_ttl"])
        grant["resp"] = {"max": 0} | (grant.get("resp") or {}) | {"ttl": ttl}
        report.ok(f"set response ttl to {flags['response_ttl']}")


def edit_limits(grant: dict[str, Any], flags: dict[str, Any], report: Report) -> None:
    """Apply the flags of `limit_options`. Raises Failure."""
    for name in UNLIMITED:
        if flags[name] is not None:
            grant[name] = parse_number(flags[name])
            report.ok(f"set {name} to {grant[name]}")
    if flags["bearer"] is not None:
        _set(grant, "bearer_token", flags["bearer"])
        report.ok(f"changed bearer to {flags['bearer']}")
    for flag, member, check in (
        ("source_network", "src", _network),
        ("conn_type", "allowed_connection_types", _connection_type),
    ):
        added = [check(each) for each in split_list(flags[flag])]
        gone = [each.upper() if flag == "conn_type" else each for each in split_list(flags[f"rm_{flag}"])]
        if added or gone:
            kept = [each for each in grant.get(member) or () if each not in (*added, *gone)]
            _set(grant, member, sorted(kept + added))
            report.ok(f"set {flag.replace('_', '-')} to {', '.join(kept + added) or 'all'}")
    _edit_times(grant, flags, report)


def _edit_times(grant: dict[str, Any], flags: dict[str, Any], report: Report) -> None:
    times = [each for each in grant.get("times") or () if each.get("start") not in flags["rm_time"]]
    for text in flags["time"]:
        start, _, end = text.partition("-")
        if not _CLOCK.fullmatch(start) or not _CLOCK.fullmatch(end):
            raise Failure(f"{printable(text)} is no time of day: write START-END, as in 08:00:00-17:30:00")
        times.append({"start": start, "end": end})
        report.ok(f"added time {start}-{end}")
    _set(grant, "times", times)
    if flags["locale"] is not None:
        try:
            ZoneInfo(flags["locale"])
        except (ValueError, OSError, KeyError):
            raise Failure(f"{printable(flags['locale'])} is no time zone: write one like Europe/Berlin") from None
        grant["times_location"] = flags["locale"]


def without_grant(members: dict[str, Any]) -> dict[str, Any]:
    """Return a user's members without permissions and limits, as users of scoped keys must be."""
    kept = {name: value for name, value in members.items() if name not in GRANT_MEMBERS}
    return {"pub": {}, "sub": {}} | kept


def has_grant(members: dict[str, Any]) -> bool:
    return any(members.get(name) for name in GRANT_MEMBERS)


def _set(members: dict[str, Any], name: str, value: Any) -> None:
    if value:
        members[name] = value
    else:
        members.pop(name, None)


def _check_subject(subject: str, *, queue: bool) -> None:
    parts = re.sub(r"\{\{.*?\}\}", "x", subject).split(" ")
    if not 1 <= len(parts) <= (2 if queue else 1) or any(not all(part.split(".")) for part in parts):
        raise Failure(f"{printable(subject)!r} is no subject: tokens between dots, none of them empty")


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Failure(f"{printable(text)} is no network: write one like 192.0.2.0/24") from None
    return text.lower()


def _connection_type(text: str) -> str:
    if text.upper() not in CONNECTION_TYPES:
        raise Failure(f"{printable(text)} is no connection type: they are {', '.join(CONNECTION_TYPES)}")
    return text.upper()
