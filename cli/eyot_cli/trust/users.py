"""`eyot trust add|edit|delete user`."""

from __future__ import annotations

import time
from typing import Any

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import check_name, remove
from eyot_cli.trust.claims import edit_tags, edit_times, new_user
from eyot_cli.trust.command import (
    TrustCommand,
    account_option,
    in_changing_session,
    name_of,
    name_options,
    time_options,
)
from eyot_cli.trust.grants import (
    UNLIMITED,
    edit_limits,
    edit_permissions,
    has_grant,
    limit_options,
    permission_options,
    without_grant,
)
from eyot_cli.trust.keystore import KeyPair, new_pair
from eyot_cli.trust.session import Session, scoped_keys
from eyot_cli.trust.store import body
from eyot_cli.trust.values import split_list
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt_sign import ClaimMembers


@click.command("user", cls=TrustCommand)
@name_options("user")
@click.option("-k", "--public-key", "key", metavar="KEY", help="the user's key: public key, seed or file (a new key)")
@click.option("--tag", multiple=True, metavar="TAG", help="add a tag, which templates of scoped keys may use")
@account_option
@permission_options
@limit_options
@time_options
@in_changing_session
def add_user(
    session: Session, given: str | None, name: str | None, key: str | None, account: str | None, **flags: Any
) -> None:
    """Make a user with its key and credentials file."""
    of = session.account_name(account)
    called = check_name(name_of(given, name, "user"), "a user")
    if called in session.store.users(of):
        raise Failure(
            f"user {printable(called)} exists already: change it with `eyot trust edit user -a {printable(of)}`"
        )
    members = session.store.account(of)
    signer = session.account_signer(members)
    made = None if key else new_pair("U")
    public = made.public if made else session.public_key(str(key), "U")
    user = new_user(public, called, scoped=_scope_of(members, signer) is not None)
    _apply(session, members, user, signer, flags)
    if made:
        session.keystore.add(made)
        session.report.ok(f"generated and stored user key {public}")
    session.save_user(members, user, signer)
    session.report.result["user"] = {"name": called, "key": public, "account": of}
    session.report.ok(f"added user {printable(called)} to account {printable(of)}")


@click.command("user", cls=TrustCommand)
@name_options("user")
@click.option("--tag", multiple=True, metavar="TAG", help="add a tag")
@click.option("--rm-tag", multiple=True, metavar="TAG", help="remove a tag")
@account_option
@permission_options
@limit_options
@time_options
@in_changing_session
def edit_user(session: Session, given: str | None, name: str | None, account: str | None, **flags: Any) -> None:
    """Change a user, and write its credentials file anew.

    Without changes the user is signed again. With -K another key of the account signs it.
    """
    of = session.account_name(account)
    called = _one_user(session, of, given or name)
    members, user = session.store.account(of), session.store.user(of, called)
    signer = session.account_signer(members, prefer=str(user.get("iss", "")))
    scoped = _scope_of(members, signer) is not None
    if signer.public != user.get("iss") and scoped != (_scope_of(members, user.get("iss")) is not None):
        user["nats"] = without_grant(body(user)) | ({} if scoped else UNLIMITED)
        session.report.warn("permissions and limits are replaced: the old and the new key differ in having a scope")
    _apply(session, members, user, signer, flags)
    session.save_user(members, user, signer)
    session.report.ok(f"edited user {printable(called)}")


def _apply(session: Session, account: ClaimMembers, user: ClaimMembers, signer: KeyPair, flags: dict[str, Any]) -> None:
    nats = body(user)
    edit_permissions(nats, flags, session.report)
    edit_limits(nats, flags, session.report)
    edit_tags(user, flags["tag"], flags.get("rm_tag", ()), session.report)
    edit_times(user, flags["start"], flags["expiry"], session.report)
    scope = _scope_of(account, signer)
    if scope is not None and has_grant(nats):
        raise Failure(
            f"{signer.public} has the scope {printable(str(scope.get('role') or ''))}, which sets its users' permissions: "
            "change the scope (`eyot trust edit signing-key`), or sign with another key (-K)"
        )


def _scope_of(account: ClaimMembers, key: KeyPair | Any) -> dict[str, Any] | None:
    public = key.public if isinstance(key, KeyPair) else key
    return next((scope for scope in scoped_keys(account) if scope.get("key") == public), None)


def _one_user(session: Session, account: str, name: str | None) -> str:
    """Return the named user, or the only one of the account. Raises Failure."""
    users = session.store.users(account)
    if name is None and len(users) == 1:
        return users[0]
    if name is None:
        raise Failure(f"which user? Name it with -n: {', '.join(map(printable, users)) or 'the account has none'}")
    session.store.user(account, name)
    return name


@click.command("user", cls=TrustCommand)
@click.argument("given", metavar="[NAME]", required=False)
@click.option("-n", "--name", "names", multiple=True, metavar="NAME", help="name of the user; several: commas or again")
@click.option("-R", "--revoke", is_flag=True, help="also revoke the user in the account, which is to be pushed then")
@click.option("-D", "--rm-nkey", is_flag=True, help="also delete the user's key")
@click.option("-C", "--rm-creds", is_flag=True, help="also delete the credentials file")
@account_option
@in_changing_session
def delete_user(
    session: Session, given: str | None, names: tuple[str, ...], account: str | None, **flags: bool
) -> None:
    """Delete users from the store.

    Servers still accept their credentials, unless --revoke and a push.
    """
    of = session.account_name(account)
    called = split_list((*names, *((given,) if given else ())))
    if not called:
        raise Failure("which user? Name it with -n NAME")
    users = {name: session.store.user(of, name) for name in called}
    if flags["revoke"]:
        members = session.store.account(of)
        revoked = dict(body(members).get("revocations") or {})
        revoked |= {str(user["sub"]): int(time.time()) for user in users.values()}
        body(members)["revocations"] = revoked
        session.save_account(members)
        cut = f"`eyot trust push -a {printable(of)}` cuts the connections"
        session.report.ok(f"revoked {', '.join(map(printable, called))}: {cut}")
    for name, user in users.items():
        if flags["rm_creds"] and remove(session.keystore.creds_path(session.store.name, of, name)):
            session.report.ok("deleted creds file")
        if flags["rm_nkey"] and session.keystore.remove(str(user["sub"])):
            session.report.ok(f"deleted private key {user['sub']}")
        session.store.remove_user(of, name)
        session.report.ok(f"deleted user {printable(name)}")
