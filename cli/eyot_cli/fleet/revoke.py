"""`eyot fleet revoke`: a stolen or replaced device is cut, and its name is free."""

from __future__ import annotations

import time
from typing import Any

import click

from eyot_cli.fleet.records import Records
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import remove
from eyot_cli.trust.command import TrustCommand, account_option, in_changing_session
from eyot_cli.trust.remote import find_remote, push_accounts, remote_options
from eyot_cli.trust.resolver import UPDATE
from eyot_cli.trust.session import Session
from eyot_cli.trust.store import body
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt_sign import ClaimMembers


@click.command("revoke", cls=TrustCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@remote_options
@account_option
@in_changing_session
def revoke(session: Session, names: tuple[str, ...], account: str | None, **flags: Any) -> None:
    """Cut devices at once, and free their names.

    The servers end the connections and refuse the credentials. Then the user, its key and its credentials file are
    deleted from the store, so that a new device can have the name. If no server takes the revocation, the user stays:
    run the command again.
    """
    of = session.account_name(account)
    users = {name: session.store.user(of, name) for name in names}
    remote = find_remote(session, flags, (UPDATE,))  # first: without a server to tell, nothing changes
    members = session.store.account(of)
    revoked = _revoked(members, list(users.values()))
    body(members)["revocations"] = revoked
    session.save_account(members)
    called = ", ".join(map(printable, users))
    try:
        # The account is not checked as `push` does: a mistake elsewhere in it must not keep a stolen device connected.
        push_accounts(remote, [of])
    except Failure as failure:
        raise Failure(
            f"{called}: revoked in the store, but not by all servers, which may still accept the device: "
            "run the command again once the cause is removed",
            *failure.lines,
        ) from failure
    records = Records(session.store, of)
    for name, user in users.items():
        records.forget(name, str(user["sub"]))
        _forget(session, of, name, str(user["sub"]))
    keys = {name: str(user["sub"]) for name, user in users.items()}
    session.report.result["revoked"] = [{"name": name, "key": key, "at": revoked[key]} for name, key in keys.items()]
    session.report.ok(f"revoked {called}: a new device can have the name")


def _revoked(account: ClaimMembers, users: list[ClaimMembers]) -> dict[str, int]:
    """Return the account's revocations with these users: key to the time, in seconds, up to which tokens are invalid.

    A clock that has gone back must not leave the stored token valid, nor an earlier revocation undone: the latest of
    the three times counts.
    """
    revoked: dict[str, int] = dict(body(account).get("revocations") or {})
    for user in users:
        key = str(user["sub"])
        revoked[key] = max(int(time.time()), int(user.get("iat") or 0), revoked.get(key, 0))
    return revoked


def _forget(session: Session, account: str, name: str, key: str) -> None:
    """Delete a user from the store. The token goes last: while it is there, the command can be run again."""
    remove(session.keystore.creds_path(session.store.name, account, name))
    session.keystore.remove(key)
    session.store.remove_user(account, name)
