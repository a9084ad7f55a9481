"""`eyot trust describe`: what a token says, as a table, as JSON, or as it is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private
from eyot_cli.terminal.show import Piece, print_json, print_line, print_table, size
from eyot_cli.trust.command import TrustGroup, account_option, in_session, name_options
from eyot_cli.trust.session import Session
from eyot_cli.trust.store import body
from eyot_cli.trust.tokens import find_token
from eyot_cli.trust.values import show_time
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt import JwtError, UserGrant
from eyot_wire.trust.jwt_account import AccountBody, ActivationBody, OperatorBody
from eyot_wire.trust.jwt_sign import ClaimMembers, activation_hash, decode_members

Row = tuple[Piece, Piece]
_BYTES = ("data", "payload", "mem_storage", "disk_storage", "mem_max_stream_bytes", "disk_max_stream_bytes")
_KEY_SHOWN = 12
#: Members that a kind of token has, whose form is checked. Other kinds are shown as JSON, and other members with `--json`.
_SHOWN = {
    "operator": OperatorBody.__struct_fields__,
    "account": AccountBody.__struct_fields__,
    "user": UserGrant.__struct_fields__,
    "activation": ActivationBody.__struct_fields__,
}
_COMMON = ("type", "version", "tags", "issuer_account")


@click.group("describe", cls=TrustGroup)
def describe() -> None:
    """Show what a JWT says."""


def _output_options(function: Any) -> Any:
    function = click.option("-o", "--output-file", "output", metavar="FILE", help="file; by default the output")(
        function
    )
    function = click.option("-F", "--field", metavar="PATH", help="only this member, as in nats.limits.conn")(function)
    function = click.option("-J", "as_json", is_flag=True, help="the body as JSON, as with --json")(function)
    return click.option("-R", "--raw", is_flag=True, help="the JWT itself")(function)


@describe.command("operator")
@name_options("operator")
@_output_options
@in_session
def describe_operator(session: Session, given: str | None, name: str | None, **flags: Any) -> None:
    """Show an operator, the one in use by default."""
    store = session.environment.store(given or name or "")
    _show(session, read_text(store.operator_path), flags)


@describe.command("account")
@name_options("account")
@_output_options
@in_session
def describe_account(session: Session, given: str | None, name: str | None, **flags: Any) -> None:
    """Show an account, the one in use by default."""
    called = session.account_name(given or name)
    _show(session, read_text(session.store.account_path(called)), flags)


@describe.command("user")
@name_options("user")
@account_option
@_output_options
@in_session
def describe_user(session: Session, given: str | None, name: str | None, account: str | None, **flags: Any) -> None:
    """Show a user, the only one by default."""
    of = session.account_name(account)
    users = session.store.users(of)
    called = given or name or (users[0] if len(users) == 1 else None)
    if called is None:
        raise Failure(f"which user? Name it with -n: {', '.join(map(printable, users)) or 'the account has none'}")
    session.store.user(of, called)
    _show(session, read_text(session.store.user_path(of, called)), flags)


@describe.command("jwt")
@click.option("-f", "--file", "file", required=True, metavar="FILE", help="file with a JWT or credentials")
@_output_options
@in_session
def describe_jwt(session: Session, file: str, **flags: Any) -> None:
    """Show any JWT."""
    _show(session, find_token(read_text(Path(file).expanduser())), flags)


def _show(session: Session, token: str, flags: dict[str, Any]) -> None:
    try:
        members = decode_members(token)
    except JwtError as error:
        raise Failure(f"the JWT is invalid: {printable(str(error))}") from error
    if flags["output"]:
        path = Path(flags["output"]).expanduser()
        text = token if flags["raw"] else json.dumps(_member(members, flags["field"]) if flags["field"] else members)
        write_private(path, f"{text}\n".encode(), mode=0o644)
        session.report.ok(f"wrote {printable(str(path))}")
    elif flags["raw"]:
        print_line(token)
    elif flags["field"]:
        print_json(_member(members, flags["field"]))
    elif flags["as_json"] or session.report.as_json or body(members).get("type") not in _SHOWN:
        print_json(members)
    else:
        kind = str(body(members)["type"])
        shown = (*_SHOWN[kind], *_COMMON)
        members["nats"] = {name: value for name, value in body(members).items() if name in shown}
        names = {session.store.account(name)["sub"]: name for name in _known_accounts(session)}
        print_table(f"{kind.capitalize()} {members.get('name', '')}", ("", ""), _rows(members, names), "")
        for title, columns, rows in _tables(members, names):
            print_table(title, columns, rows, "")


def _known_accounts(session: Session) -> list[str]:
    return session.store.accounts() if session.environment.operator else []


def _member(members: Any, path: str) -> Any:
    """Return the member at a path of names and indexes, as in `nats.exports[0].subject`. Raises Failure."""
    found = members
    for name in path.replace("[", ".").replace("]", "").split("."):
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise Failure(f"there is no member {printable(path)}: see the whole with --json") from None
    return found


def _rows(members: ClaimMembers, names: dict[Any, str]) -> Iterator[Row]:
    nats = body(members)
    yield "Key", str(members.get("sub"))
    yield "Issuer", str(members.get("iss"))
    if nats.get("issuer_account"):
        yield "Issuer account", _named(nats["issuer_account"], names)
    yield "Issued", show_time(int(members.get("iat") or 0))
    if members.get("nbf"):
        yield "Valid from", show_time(int(members["nbf"]))
    yield "Expires", _expiry(int(members.get("exp") or 0))
    for member, label in (
        ("account_server_url", "Account server"),
        ("description", "Description"),
        ("info_url", "Info"),
        ("subject", "Subject"),
        ("kind", "Kind of export"),
    ):
        if nats.get(member):
            yield label, str(nats[member])
    if nats.get("type") == "activation":
        yield "Hash", activation_hash(str(members.get("iss")), str(members.get("sub")), str(nats.get("subject")))
    if nats.get("system_account"):
        yield "System account", _named(nats["system_account"], names)
    if nats.get("type") == "operator":
        yield "Requires signing keys", "yes" if nats.get("strict_signing_key_usage") else "no"
    for member, label in (("operator_service_urls", "Service URLs"), ("tags", "Tags")):
        if nats.get(member):
            yield label, ", ".join(map(str, nats[member]))
    keys = [key for key in nats.get("signing_keys") or () if isinstance(key, str)]
    if keys:
        yield "Signing keys", "\n".join(keys) if len(keys) == 1 else ", ".join(keys)
    yield from _limits(nats.get("limits") or {})
    yield from _grant(nats if nats.get("type") == "user" else nats.get("default_permissions") or {})
    callout = nats.get("authorization") or {}
    for member, label in (("auth_users", "Auth callout users"), ("allowed_accounts", "Auth callout accounts")):
        if callout.get(member):
            yield label, ", ".join(map(str, callout[member]))
    if callout.get("xkey"):
        yield "Auth callout curve key", str(callout["xkey"])


def _limits(limits: dict[str, Any]) -> Iterator[Row]:
    for name, value in sorted(limits.items()):
        if name == "tiered_limits":
            for tier, inner in sorted((value or {}).items()):
                yield (
                    f"Limits of {tier}",
                    ", ".join(f"{key} {_limit(key, each)}" for key, each in sorted(inner.items())),
                )
        else:
            yield f"Limit {name}", _limit(name, value)


def _limit(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == -1:
        return "unlimited"
    return size(value) if name in _BYTES and isinstance(value, int) else str(value)


def _grant(grant: dict[str, Any]) -> Iterator[Row]:
    for side, label in (("pub", "Publish"), ("sub", "Subscribe")):
        for kind in ("allow", "deny"):
            subjects = (grant.get(side) or {}).get(kind)
            if subjects:
                yield f"{label} {kind}", ", ".join(map(str, subjects))
    if grant.get("resp"):
        yield "Responses", f"{grant['resp'].get('max')} within {grant['resp'].get('ttl', 0) / 1e9:g} s"
    for member, label in (
        ("src", "Source networks"),
        ("allowed_connection_types", "Connection types"),
    ):
        if grant.get(member):
            found = grant[member]
            yield label, found if isinstance(found, str) else ", ".join(map(str, found))
    if grant.get("times"):
        yield "Times", ", ".join(f"{each.get('start')}-{each.get('end')}" for each in grant["times"])
    if grant.get("times_location"):
        yield "Time zone", str(grant["times_location"])
    if "pub" in grant and grant.get("type") == "user":
        for name in ("subs", "data", "payload"):
            yield f"Most {name}", _limit(name, grant.get(name, "as the signing key's scope says"))
        yield "Bearer token", "yes" if grant.get("bearer_token") else "no"


def _tables(
    members: ClaimMembers, names: dict[Any, str]
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Piece, ...]]]]:
    nats = body(members)
    scopes = [key for key in nats.get("signing_keys") or () if isinstance(key, dict)]
    for key in scopes:
        rows = [("Key", str(key.get("key"))), *_grant({"type": "user"} | (key.get("template") or {}))]
        yield f"Scoped signing key {key.get('role') or ''}", ("", ""), [tuple(row) for row in rows]
    exports: list[tuple[Piece, ...]] = [
        (
            str(each.get("name")),
            str(each.get("type")),
            str(each.get("subject")),
            "no" if each.get("token_req") else "yes",
            str(len(each.get("revocations") or ())),
        )
        for each in nats.get("exports") or ()
    ]
    if exports:
        yield "Exports", ("Name", "Type", "Subject", "Public", ">Revocations"), exports
    imports: list[tuple[Piece, ...]] = [
        (
            str(each.get("name")),
            str(each.get("type")),
            str(each.get("subject")),
            str(each.get("local_subject") or ""),
            _named(each.get("account"), names),
            "private" if each.get("token") else "public",
        )
        for each in nats.get("imports") or ()
    ]
    if imports:
        yield "Imports", ("Name", "Type", "Remote", "Local", "From account", "Kind"), imports
    mappings: list[tuple[Piece, ...]] = [
        (str(source), str(each.get("subject")), str(each.get("weight") or 100), str(each.get("cluster") or ""))
        for source, entries in (nats.get("mappings") or {}).items()
        for each in entries
    ]
    if mappings:
        yield "Mappings", ("From", "To", ">Weight", "Cluster"), mappings
    revoked = [(str(key), show_time(int(when))) for key, when in (nats.get("revocations") or {}).items()]
    if revoked:
        yield "Revoked users", ("Key", "Tokens issued up to"), [tuple(row) for row in revoked]


def _named(key: Any, names: dict[Any, str]) -> str:
    return f"{names[key]} {str(key)[:_KEY_SHOWN]}..." if key in names else str(key)


def _expiry(seconds: int) -> str:
    expired = " (expired)" if seconds and seconds <= time.time() else ""
    return show_time(seconds) + expired
