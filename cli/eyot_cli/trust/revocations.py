"""`eyot trust revocations`: users and activations whose tokens, issued up to a time, are no longer valid."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_table
from eyot_cli.trust.command import TrustGroup, account_option, in_changing_session, in_session
from eyot_cli.trust.session import Session
from eyot_cli.trust.sharing import account_key, find_export
from eyot_cli.trust.store import body
from eyot_cli.trust.values import parse_time, show_time
from eyot_wire.digits import parse_uint
from eyot_wire.quoting import printable
from eyot_wire.trust.nkey import is_public

_ALL: Final = "*"


@click.group("revocations", cls=TrustGroup)
def revocations() -> None:
    """Revoke users and activations, or take that back."""


def _push(account: str) -> str:
    """Return what makes servers learn of a change: the account is named, because it need not be the one in use."""
    return f"`eyot trust push -a {printable(account)}` tells the servers"


def _at(text: str | None) -> int:
    """Return the time of `--at`: seconds since the epoch, a date, or a span; now without one."""
    if text is None or text == "0":
        return int(time.time())
    seconds = parse_uint(text)
    return parse_time(text, time.time()) if seconds is None else seconds


def _user_key(session: Session, account: str, name: str | None, key: str | None) -> str:
    text = key or name
    if text is None:
        raise Failure("which user? Name it with -n NAME, or with -u KEY; -u '*' is all users")
    if text == _ALL or is_public(text, "U"):
        return text
    return str(session.store.user(account, text)["sub"])


def _user_options(function: Any) -> Any:
    function = click.option("-u", "--user-public-key", "key", metavar="KEY", help="the user's public key; *: all")(
        function
    )
    return click.option("-n", "--name", metavar="NAME", help="name of the user")(function)


@revocations.command("add-user")
@_user_options
@click.option("--at", metavar="TIME", help="tokens issued up to then are invalid (now)")
@account_option
@in_changing_session
def add_user(session: Session, account: str | None, name: str | None, key: str | None, at: str | None) -> None:
    """Revoke a user.

    Tokens issued up to now are invalid, later ones are valid.
    """
    called = session.account_name(account)
    members = session.store.account(called)
    public, when = _user_key(session, called, name, key), _at(at)
    body(members)["revocations"] = (body(members).get("revocations") or {}) | {public: when}
    session.save_account(members)
    session.report.result["revoked"] = {"key": public, "at": when}
    whom = "all users" if public == _ALL else f"user {public}"
    session.report.ok(
        f"revoked {whom} for tokens issued up to {show_time(when)}: {_push(called)}, which then end the connections"
    )


@revocations.command("delete-user")
@_user_options
@account_option
@in_changing_session
def delete_user(session: Session, account: str | None, name: str | None, key: str | None) -> None:
    """Take a user's revocation back: the tokens are valid again."""
    called = session.account_name(account)
    members = session.store.account(called)
    public = _user_key(session, called, name, key)
    revoked: dict[str, int] = dict(body(members).get("revocations") or {})
    if revoked.pop(public, None) is None:
        raise Failure(f"{public} is not revoked: see `eyot trust revocations list-users -a {printable(called)}`")
    body(members)["revocations"] = revoked
    session.save_account(members)
    session.report.ok(f"deleted user revocation of {public}: {_push(called)}")


@revocations.command("list-users")
@account_option
@in_session
def list_users(session: Session, account: str | None) -> None:
    """List the revoked users of an account."""
    called = session.account_name(account)
    revoked: dict[str, int] = body(session.store.account(called)).get("revocations") or {}
    names = {session.store.user(called, user)["sub"]: user for user in session.store.users(called)}
    _show(session, f"Revoked users of {called}", revoked, names)


@revocations.command("add_activation")
@click.option("-s", "--subject", metavar="SUBJECT", help="subject of the export")
@click.option("--service", is_flag=True, default=None, help="the export is a service")
@click.option("-t", "--target-account", "target", metavar="KEY|NAME", required=True, help="importing account; *: all")
@click.option("--at", metavar="TIME", help="activations issued up to then are invalid (now)")
@account_option
@in_changing_session
def add_activation(session: Session, account: str | None, target: str, at: str | None, **flags: Any) -> None:
    """Revoke the activations of a private export for an account."""
    called = session.account_name(account)
    members = session.store.account(called)
    export = find_export(members, flags["subject"], service=flags["service"])
    if not export.get("token_req"):
        raise Failure(
            "the export is public, so it needs no activation: `eyot trust edit export --private` changes that"
        )
    public, when = _ALL if target == _ALL else account_key(session, target), _at(at)
    export["revocations"] = (export.get("revocations") or {}) | {public: when}
    session.save_account(members)
    session.report.result["revoked"] = {"key": public, "at": when}
    session.report.ok(f"revoked activation of {printable(str(export.get('name')))} for {public}: {_push(called)}")


@revocations.command("delete_activation")
@click.option("-s", "--subject", metavar="SUBJECT", help="subject of the export")
@click.option("--service", is_flag=True, default=None, help="the export is a service")
@click.option("-t", "--target-account", "target", metavar="KEY|NAME", required=True, help="importing account; *: all")
@account_option
@in_changing_session
def delete_activation(session: Session, account: str | None, target: str, **flags: Any) -> None:
    """Take the revocation of an activation back."""
    called = session.account_name(account)
    members = session.store.account(called)
    export = find_export(members, flags["subject"], service=flags["service"])
    public = _ALL if target == _ALL else account_key(session, target)
    revoked: dict[str, int] = dict(export.get("revocations") or {})
    if revoked.pop(public, None) is None:
        raise Failure(f"the activation of {public} is not revoked: see `eyot trust revocations list_activations`")
    export["revocations"] = revoked
    session.save_account(members)
    session.report.ok(f"deleted activation revocation of {public}: {_push(called)}")


@revocations.command("list_activations")
@click.option("-s", "--subject", metavar="SUBJECT", help="subject of the export")
@click.option("--service", is_flag=True, default=None, help="the export is a service")
@account_option
@in_session
def list_activations(session: Session, account: str | None, **flags: Any) -> None:
    """List the revoked activations of an export."""
    called = session.account_name(account)
    export = find_export(session.store.account(called), flags["subject"], service=flags["service"])
    names = {session.store.account(name)["sub"]: name for name in session.store.accounts()}
    _show(session, f"Revoked activations of {export.get('name')}", export.get("revocations") or {}, names)


def _show(session: Session, title: str, revoked: dict[str, int], names: dict[Any, str]) -> None:
    if session.report.as_json:
        print_json([{"key": key, "name": names.get(key, ""), "at": when} for key, when in sorted(revoked.items())])
        return
    shown = [(names.get(key, "?"), key, show_time(when)) for key, when in sorted(revoked.items())]
    print_table(title, ("Name", "Public key", "Revoked up to"), shown, "nothing is revoked")
